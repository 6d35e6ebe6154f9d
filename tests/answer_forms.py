"""The same answers in every form in which people hold them, and gold labels in every form of theirs.

python -m tests.answer_forms FOLDER        writes all of them, to try the commands on
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CLASSES = ("negative", "positive")
GOOD, BAD = (("superb moving clever", "warm bright witty"), ("dull tedious flat", "noisy clumsy stale"))
FILLER = (
    "film",
    "story",
    "about",
    "people",
    "their",
    "long",
    "way",
    "home",
    "with",
    "music",
    "some",
    "rain",
    "over",
    "city",
)


@dataclass(frozen=True)
class Rows:
    """Made-up reviews, their truth, and what a teacher says of them."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    truth: np.ndarray  # (n,)
    teacher: np.ndarray  # (n, 2)

    @property
    def labels(self) -> list[str]:
        return [CLASSES[number] for number in self.teacher.argmax(axis=1)]


def make(n: int = 600, seed: int = 0) -> Rows:
    """Reviews whose words tell the truth; the teacher is right on some 80 %, leans to "positive" and is too sure."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    texts = []
    for label in truth:
        told, other = (GOOD, BAD) if label else (BAD, GOOD)
        words = [*rng.choice(FILLER, 12), *rng.choice(" ".join(told).split(), 3), *rng.choice(" ".join(other).split(), 1)]
        texts.append(" ".join(rng.permutation(words)))
    score = np.where(truth == 1, 1.0, -0.6) + 0.5 + rng.normal(0, 1.0, n)
    positive = np.round(1 / (1 + np.exp(-2.5 * score)), 3).clip(0.01, 0.99)
    positive[positive == 0.5] = 0.51
    return Rows(tuple(f"r{i:05d}" for i in range(n)), tuple(texts), truth, np.column_stack([1 - positive, positive]))


def _lines(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def _csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def _named(row: np.ndarray) -> dict[str, float]:
    return dict(zip(CLASSES, row.tolist(), strict=True))


def _votes(rows: Rows, seed: int = 1) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[CLASSES[int(rng.random() < row[1])] for _ in range(5)] for row in rows.teacher]


# answers: each function writes a file and returns its path; all but batch files carry the texts -------------------------


def label(rows: Rows, folder: Path) -> Path:
    shown = [f" {name.title()}. " if i % 3 else f'"{name.upper()}"' for i, name in enumerate(rows.labels)]
    return _csv(folder / "label.csv", ("id", "text", "label"), list(zip(rows.ids, rows.texts, shown, strict=True)))


def label_and_confidence(rows: Rows, folder: Path) -> Path:
    top = rows.teacher.max(axis=1).tolist()
    records = [
        {"id": key, "text": text, "label": name, "confidence": value}
        for key, text, name, value in zip(rows.ids, rows.texts, rows.labels, top, strict=True)
    ]
    return _lines(folder / "label_confidence.jsonl", records)


def percentages(rows: Rows, folder: Path) -> Path:
    cells = [f"{100 * value:.1f} %" for value in rows.teacher.max(axis=1)]
    lines = list(zip(rows.ids, rows.texts, rows.labels, cells, strict=True))
    return _csv(folder / "percent.csv", ("id", "text", "answer", "confidence"), lines)


def objects(rows: Rows, folder: Path) -> Path:
    records = [
        {"id": key, "text": text, "probs": _named(row)}
        for key, text, row in zip(rows.ids, rows.texts, rows.teacher, strict=True)
    ]
    return _lines(folder / "objects.jsonl", records)


def struct(rows: Rows, folder: Path) -> Path:
    columns = {"id": rows.ids, "text": rows.texts, "probabilities": [_named(row) for row in rows.teacher]}
    pq.write_table(pa.table(columns), folder / "struct.parquet")
    return folder / "struct.parquet"


def object_text(rows: Rows, folder: Path) -> Path:
    """As pandas writes dicts into csv."""
    lines = [(key, text, str(_named(row))) for key, text, row in zip(rows.ids, rows.texts, rows.teacher, strict=True)]
    return _csv(folder / "object_text.csv", ("id", "text", "probs"), lines)


def votes(rows: Rows, folder: Path) -> Path:
    columns = {"id": rows.ids, "text": rows.texts, "votes": _votes(rows)}
    pq.write_table(pa.table(columns), folder / "votes.parquet")
    return folder / "votes.parquet"


def vote_columns(rows: Rows, folder: Path) -> Path:
    lines = [(key, text, *each) for key, text, each in zip(rows.ids, rows.texts, _votes(rows), strict=True)]
    return _csv(folder / "vote_columns.csv", ("id", "text", *(f"sample_{i}" for i in range(5))), lines)


def wide(rows: Rows, folder: Path) -> Path:
    lines = [(key, text, *row) for key, text, row in zip(rows.ids, rows.texts, rows.teacher.tolist(), strict=True)]
    return _csv(folder / "wide.csv", ("id", "text", *(f"prob_{name}" for name in CLASSES)), lines)


def lists(rows: Rows, folder: Path) -> Path:
    columns = {"id": rows.ids, "text": rows.texts, "pred_probs": rows.teacher.tolist()}
    pq.write_table(pa.table(columns), folder / "lists.parquet")
    return folder / "lists.parquet"


def openai(rows: Rows, folder: Path) -> Path:
    """With log-probabilities; the tokens of a class are spelled in two ways, and some mass goes elsewhere."""
    return _lines(folder / "openai.jsonl", [_openai(key, row) for key, row in zip(rows.ids, rows.teacher, strict=True)])


def _openai(key: str, row: np.ndarray) -> dict[str, Any]:
    name = CLASSES[int(row.argmax())]
    top = []
    for known, value in zip(CLASSES, row, strict=True):
        top += [(known[:3], 0.7 * value), (known[:3].title(), 0.2 * value)]
    top += [("The", 0.05)]
    chosen = [{"token": token, "logprob": math.log(value)} for token, value in top]
    rest = {"token": name[3:], "logprob": 0.0, "top_logprobs": [{"token": name[3:], "logprob": 0.0}]}
    first = {
        **next(each for each in chosen if each["token"] == name[:3]),
        "top_logprobs": [*chosen, {"token": "x", "logprob": -9999.0}],
    }
    choice = {"index": 0, "message": {"role": "assistant", "content": name}, "logprobs": {"content": [first, rest]}}
    body = {"choices": [choice]}
    return {"id": f"batch_{key}", "custom_id": key, "response": {"status_code": 200, "body": body}, "error": None}


def vllm_votes(rows: Rows, folder: Path) -> Path:
    """Several choices a row, and a row that failed."""
    records = []
    for key, each in zip(rows.ids, _votes(rows), strict=True):
        choices = [{"index": i, "message": {"content": f"{name.title()}."}, "logprobs": None} for i, name in enumerate(each)]
        records.append({"custom_id": key, "response": {"status_code": 200, "body": {"choices": choices}}, "error": None})
    records[-1] = {"custom_id": rows.ids[-1], "response": None, "error": {"message": "too long"}}
    return _lines(folder / "vllm_votes.jsonl", records)


def anthropic(rows: Rows, folder: Path) -> Path:
    """JSON that the model was told to write, in any order; a refusal, and one that expired."""
    records: list[dict[str, Any]] = []
    for key, row in zip(rows.ids, rows.teacher, strict=True):
        said = json.dumps({"label": CLASSES[int(row.argmax())], "confidence": round(float(row.max()), 3)})
        text = f"```json\n{said}\n```" if len(records) % 2 else said
        message = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
        records.append({"custom_id": key, "result": {"type": "succeeded", "message": message}})
    records[-1]["result"] = {"type": "expired"}
    prose = "I would rather not judge this film, which is about real people and their grief."
    records[-2]["result"]["message"] = {"content": [{"type": "text", "text": prose}], "stop_reason": "end_turn"}
    order = np.random.default_rng(2).permutation(len(records))
    return _lines(folder / "anthropic.jsonl", [records[i] for i in order])


ANSWERS: dict[str, Callable[[Rows, Path], Path]] = {
    each.__name__: each
    for each in (
        label, label_and_confidence, percentages, objects, struct, object_text, votes, vote_columns, wide, lists,
        openai, vllm_votes, anthropic,
    )
}  # fmt: skip
BATCHES = ("openai", "vllm_votes", "anthropic")  # they carry no texts


# gold labels ------------------------------------------------------------------------------------------------------------


def gold_csv(rows: Rows, folder: Path) -> Path:
    lines = [(key, CLASSES[number]) for key, number in zip(rows.ids, rows.truth, strict=True)]
    return _csv(folder / "gold.csv", ("id", "label"), lines)


def gold_annotators(rows: Rows, folder: Path) -> Path:
    """Three annotators a row, of whom one errs on every tenth row."""
    lines = []
    for i, (key, number) in enumerate(zip(rows.ids, rows.truth, strict=True)):
        lines += [(key, CLASSES[number], "ann"), (key, CLASSES[number], "bob")]
        lines += [(key, CLASSES[1 - number if i % 10 == 0 else number], "eve")]
    return _csv(folder / "annotators.csv", ("id", "label", "annotator"), lines)


def gold_parquet(rows: Rows, folder: Path) -> Path:
    pq.write_table(pa.table({"id": rows.ids, "truth": [CLASSES[i] for i in rows.truth]}), folder / "gold.parquet")
    return folder / "gold.parquet"


def label_studio(rows: Rows, folder: Path) -> Path:
    tasks = []
    for i, (key, text, number) in enumerate(zip(rows.ids, rows.texts, rows.truth, strict=True)):
        value = {"choices": [CLASSES[number].title()]}
        result = [{"from_name": "sentiment", "to_name": "text", "type": "choices", "value": value}]
        tasks.append(
            {"id": i, "data": {"id": key, "text": text}, "annotations": [{"result": result, "was_cancelled": False}]}
        )
    tasks[0]["annotations"].append({"result": [], "was_cancelled": True})
    path = folder / "label_studio.json"
    path.write_text(json.dumps(tasks))
    return path


def label_studio_min(rows: Rows, folder: Path) -> Path:
    tasks = [
        {"id": key, "text": text, "sentiment": CLASSES[number], "annotator": 1, "annotation_id": i, "lead_time": 2.5}
        for i, (key, text, number) in enumerate(zip(rows.ids, rows.texts, rows.truth, strict=True))
    ]
    path = folder / "label_studio_min.json"
    path.write_text(json.dumps(tasks))
    return path


def doccano(rows: Rows, folder: Path) -> Path:
    records = [
        {"id": key, "text": text, "label": [CLASSES[number]], "Comments": []}
        for key, text, number in zip(rows.ids, rows.texts, rows.truth, strict=True)
    ]
    return _lines(folder / "doccano.jsonl", records)


def argilla(rows: Rows, folder: Path) -> Path:
    records = [
        {"id": key, "status": "completed", "text": text, "sentiment.responses": [CLASSES[number]],
         "sentiment.responses.users": ["u1"], "sentiment.responses.status": ["submitted"]}
        for key, text, number in zip(rows.ids, rows.texts, rows.truth, strict=True)
    ]  # fmt: skip
    return _lines(folder / "argilla.jsonl", records)


GOLD: dict[str, Callable[[Rows, Path], Path]] = {
    each.__name__: each
    for each in (gold_csv, gold_annotators, gold_parquet, label_studio, label_studio_min, doccano, argilla)
}


def part(rows: Rows, first: int, last: int) -> Rows:
    """Some of the rows."""
    return Rows(rows.ids[first:last], rows.texts[first:last], rows.truth[first:last], rows.teacher[first:last])


def texts(rows: Rows, folder: Path) -> Path:
    """The rows by themselves, in another order."""
    order = np.random.default_rng(3).permutation(len(rows.ids))
    lines = [(rows.ids[i], rows.texts[i]) for i in order]
    return _csv(folder / "texts.csv", ("id", "text"), lines)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    everything = make()
    texts(everything, place)
    for write in ANSWERS.values():
        print(write(everything, place))
    for write in GOLD.values():
        print(write(part(everything, 0, 150), place))
