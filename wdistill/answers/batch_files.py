"""Output of batch jobs, one JSON object a line: OpenAI's and vLLM's (the same form), and Anthropic's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wdistill.answers.logprobs import Alternatives
from wdistill.core.errors import FileError, unreadable
from wdistill.tables.formats.nesting import DEPTH_LIMIT, Nesting

LINE_LIMIT = 16 << 20  # bytes
BLOCK = 1 << 20


@dataclass(frozen=True)
class Reply:
    """One answer of a model: its text, and where they were reported, its tokens with their alternatives."""

    text: str | None
    tokens: Sequence[str] = ()
    alternatives: Sequence[Alternatives] = ()


@dataclass(frozen=True)
class BatchRow:
    """All answers to one row; `error` says why there are none."""

    id: str
    choices: tuple[Reply, ...]
    error: str = ""


def is_batch_line(record: Mapping[str, Any]) -> bool:
    """Whether an object is a line of such a file."""
    return "custom_id" in record and ("response" in record or "result" in record or "error" in record)


def lines_of(path: Path, option: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1; too long and too deep ones are errors."""
    nesting, left, number = Nesting(), b"", 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            deep = nesting.too_deep(block)
            if deep is not None:
                found = f"more than {DEPTH_LIMIT} open brackets"
                raise _bad_line(option, path, deep, found, f"at most {DEPTH_LIMIT}, and one object a line")
            *lines, left = (left + block).split(b"\n")
            for line in lines:
                number += 1
                if line.strip():
                    yield number, line
            if len(left) > LINE_LIMIT:
                raise _bad_line(option, path, number + 1, f"more than {LINE_LIMIT} bytes", "one object a line")
    if left.strip():
        yield number + 1, left


def read_batch_file(path: Path, option: str) -> Iterator[BatchRow]:
    """The rows of a file, in its order."""
    for number, line in lines_of(path, option):
        try:
            record = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            html = line.lstrip()[:1] == b"<"
            found = "HTML: the answer of a server, not of a model" if html else f"{str(error)[:200]}"
            raise _bad_line(option, path, number, found, "one JSON object") from None
        if not isinstance(record, dict) or not is_batch_line(record):
            found = ", ".join(map(str, record))[:200] if isinstance(record, dict) else type(record).__name__
            raise _bad_line(option, path, number, found, "custom_id, and response or result")
        try:
            yield _row(record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            found = f"{type(error).__name__}: {error}"
            raise _bad_line(option, path, number, found, "the output of an OpenAI, vLLM or Anthropic batch") from None


def _bad_line(option: str, path: Path, number: int, found: str, expected: str) -> FileError:
    remedy = "correct the line, or fetch the file again; a last line that is not complete means that it was cut off"
    return unreadable("a line cannot be read", f"{option} {path}, line {number}", found, expected, remedy)


def _row(record: Mapping[str, Any]) -> BatchRow:
    key = str(record["custom_id"])
    if "result" in record:
        return _anthropic(key, record["result"])
    response = record.get("response")
    if record.get("error") or not response:
        return BatchRow(key, (), f"error: {_message(record.get('error')) or 'no response'}")
    if int(response.get("status_code", 200)) != 200:
        return BatchRow(key, (), f"error: status {response['status_code']}: {_message(response.get('body'))}")
    choices = sorted(response["body"]["choices"], key=lambda choice: choice.get("index", 0))
    return BatchRow(key, tuple(_reply(choice) for choice in choices), "" if choices else "error: no choices")


def _reply(choice: Mapping[str, Any]) -> Reply:
    message = choice.get("message") or {"content": choice.get("text")}
    text = message.get("content")
    if not isinstance(text, str | None):
        raise TypeError(f"an answer that is {type(text).__name__}")
    if message.get("refusal"):
        return Reply(None)
    content = (choice.get("logprobs") or {}).get("content") or []
    tokens = [str(position["token"]) for position in content]
    if "".join(tokens) != text:
        return Reply(text)  # tokens that do not spell the answer tell nothing of its class
    alternatives = [
        {str(position["token"]): float(position["logprob"])}
        | {str(other["token"]): float(other["logprob"]) for other in position.get("top_logprobs") or []}
        for position in content
    ]
    return Reply(text, tokens, alternatives)


def _anthropic(key: str, result: Mapping[str, Any]) -> BatchRow:
    if result["type"] != "succeeded":
        return BatchRow(key, (), f"error: {result['type']}: {_message(result.get('error'))}".rstrip(": "))
    message = result["message"]
    if message.get("stop_reason") == "refusal":
        return BatchRow(key, (Reply(None),))
    texts = [part["text"] for part in message["content"] if part.get("type", "text") == "text"]
    return BatchRow(key, (Reply("".join(texts)),))


def _message(error: object) -> str:
    """The words of an error, wherever they stand in it."""
    while isinstance(error, Mapping):
        error = error.get("message") or error.get("error") or error.get("type") or ""
    return str(error or "")[:200]
