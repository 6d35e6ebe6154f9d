"""What a case may come to, and the check of it: a complete error, a warning, an exit code, the same bits, a fact."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from wdistill import (
    BusyError,
    CheckpointError,
    ConfigError,
    FileError,
    InputError,
    LeakError,
    NumericalError,
    StorageError,
    UnfinishedError,
    WdistillError,
    WdistillWarning,
    cli,
)

EXIT_CODES: Mapping[type[WdistillError], int] = {
    InputError: 2,
    FileError: 2,
    ConfigError: 2,
    LeakError: 2,
    StorageError: 3,
    CheckpointError: 3,
    NumericalError: 4,
    BusyError: 5,
    UnfinishedError: 75,
}
PARTS = ("what", "where", "found", "expected", "remedy")
PRINTED = ("found: ", "expected: ", "to do: ")
_noted: list[str] = []


class Failure(AssertionError):  # noqa: N818  (a check that failed, not an error of the program)
    """A case that did not come to what it should."""


@contextmanager
def noting() -> Iterator[list[str]]:
    """A list of the outcomes that the checks inside the block have seen: an error's name, exit N, warning, same, fact."""
    _noted.clear()
    yield _noted


def refused(error: type[WdistillError], call: Callable[[], object], *words: str) -> WdistillError:
    """The call stops with an error of exactly this class, with its exit code and every part of its message."""
    try:
        quietly(call)
    except WdistillError as caught:
        message = str(caught)
        _must(type(caught) is error, f"{type(caught).__name__} instead of {error.__name__}: {message}")
        _must(caught.exit_code == EXIT_CODES[error], f"exit code {caught.exit_code}: {message}")
        for part in PARTS:
            text = str(getattr(caught, part))
            _must(bool(text) and all(line in message for line in text.split("\n")), f"the message lacks {part}: {message}")
        _contains(message, words)
        _noted.append(error.__name__)
        return caught
    raise Failure(f"nothing was raised instead of {error.__name__}")


def exits(code: int, words: Sequence[object], *said: str, parts: bool = True) -> str:
    """The command ends with this exit code, and an error with all parts; returns what it printed to standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            found = cli.main([str(word) for word in words])
        except SystemExit as end:
            found = int(end.code or 0)
    message = err.getvalue()
    _must(found == code, f"exit code {found} instead of {code}: {message}")
    _must("Traceback" not in message and "defect" not in message, message)
    if code:
        _contains(message, ("error: ", *(PRINTED if parts else ("to do: ",))))
    _contains(message, said)
    _noted.append(f"exit {code}")
    return message


def printed(words: Sequence[object]) -> str:
    """What a command that must succeed prints to standard output."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main([str(word) for word in words])
    _must(code == 0, f"exit code {code}: {err.getvalue()}")
    return out.getvalue()


def warned(call: Callable[[], Any], *words: str) -> Any:
    """The call succeeds with a warning of ours, and none of others; returns what it returns."""
    value, text = _listening(call)
    _must(bool(text), "no warning was given")
    told(text, *words)
    return value


def calmly(call: Callable[[], Any], *, texts: bool = False) -> Any:
    """What the call returns, or with `texts` our warnings; a warning of others, NumPy's for example, is a failure."""
    return _listening(call)[1 if texts else 0]


def _listening(call: Callable[[], Any]) -> tuple[Any, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = call()
    others = [str(each.message) for each in caught if not issubclass(each.category, WdistillWarning)]
    _must(not others, f"warnings of others: {others}")
    return value, "\n".join(str(each.message) for each in caught)


def told(text: str, *words: str) -> None:
    """A warning, in whatever place it is kept, has these words."""
    _contains(text, words)
    _noted.append("warning")


def same(found: object, wanted: object) -> None:
    """Two values, or the bits of two arrays, are the same."""
    if isinstance(found, np.ndarray) and isinstance(wanted, np.ndarray):
        equal = found.dtype == wanted.dtype and found.shape == wanted.shape and found.tobytes() == wanted.tobytes()
    else:
        equal = bool(found == wanted)
    _must(equal, f"{found!r:.300} instead of {wanted!r:.300}")
    _noted.append("same")


def fact(holds: object, what: str) -> None:
    """Something holds that is none of the other outcomes."""
    _must(bool(holds), f"this does not hold: {what}")
    _noted.append("fact")


def quietly(call: Callable[[], Any]) -> Any:
    """Call without our warnings, and without the lines that a run writes to standard error."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore", WdistillWarning)
        return call()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; but for locks, which every process opens."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def _contains(message: str, words: Sequence[str]) -> None:
    for word in words:
        _must(word in message, f"{word!r} is not in: {message}")
