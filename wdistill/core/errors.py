"""Every error and warning that wdistill raises on purpose, with the exit code the command line gives it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any


class WdistillError(Exception):
    """Base class: what is wrong, where, what was found, what was expected, what to do about it."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", found: str = "", expected: str = "", remedy: str = "") -> None:
        self.what, self.where, self.found, self.expected, self.remedy = what, where, found, expected, remedy
        lines = [f"{where}: {what}" if where else what]
        lines += [f"  {word}: {text}" for word, text in _parts(found, expected, remedy) if text]
        super().__init__(printable("\n".join(lines)))


class InputError(WdistillError, ValueError):
    """An array or a table holds something that no weight can be computed from; `rows` are the first bad rows, if any."""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        found: str = "",
        expected: str = "",
        remedy: str = "",
        rows: Sequence[int] = (),
        ids: Sequence[object] = (),
    ) -> None:
        self.rows, self._found = tuple(int(row) for row in rows), found
        if self.rows:
            found += f", first in row{'s' if len(self.rows) > 1 else ''} {', '.join(map(str, self.rows))} (from 0)"
        if ids:
            found += f", id{'s' if len(ids) > 1 else ''} {', '.join(map(repr, ids))}"
        super().__init__(what, where=where, found=found, expected=expected, remedy=remedy)

    def at(self, where: str, first: int, ids: Sequence[object], remedy: str = "") -> InputError:
        """The same error for a chunk of a file that begins at row `first`; `ids` are those of the offending rows."""
        rows, remedy = [first + row for row in self.rows], remedy or self.remedy
        return InputError(
            self.what, where=where, found=self._found, expected=self.expected, remedy=remedy, rows=rows, ids=ids
        )


class FileError(WdistillError):
    """A file that was named cannot be read as what it should be."""


class ConfigError(WdistillError, ValueError):
    """An option, or a combination of options, makes no sense."""


class StorageError(WdistillError, OSError):
    """Something could not be written: no space, no permission, a broken disk."""

    exit_code = 3


class CheckpointError(WdistillError):
    """A run folder is damaged, and neither of its two snapshots is intact."""

    exit_code = 3


class LeakError(WdistillError, ValueError):
    """Rows are in two sets that must be disjoint: a validation row that the teacher was trained on."""


class NumericalError(WdistillError, ArithmeticError):
    """A loss or a parameter is not a finite number; the last good state is kept."""

    exit_code = 4


class BusyError(WdistillError):
    """Another process is writing the same output."""

    exit_code = 5


class UnfinishedError(WdistillError):
    """The run stopped for an external reason, and resumes when it is started again."""

    exit_code = 75


WORDS = ("what", "where", "found", "expected", "remedy")  # of an error


def in_words(error: Exception) -> dict[str, str]:
    """An error as text that can be sent to another process."""
    if isinstance(error, WdistillError):
        return {"kind": type(error).__name__, **{word: getattr(error, word) for word in WORDS}}
    remedy = "run the same command again: it resumes. If that fails too, the first error above tells why"
    return {"kind": "", "what": "a process failed", "found": f"{type(error).__name__}: {error}"[:500], "remedy": remedy}


def from_words(said: Mapping[str, str]) -> WdistillError:
    """The error that another process has sent; one that is not ours can be tried again."""
    kind = globals().get(said["kind"], UnfinishedError)
    more = {word: said.get(word, "") for word in WORDS[1:]}
    error: WdistillError = kind(said["what"], **more)
    return error


class WdistillWarning(UserWarning):
    """Not an error, but the user should know."""


def printable(text: str) -> str:
    """Text with terminal escapes and other control characters (but not newlines) escaped."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def article(word: str) -> str:
    """A word with "a" or "an" before it."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _parts(found: str, expected: str, remedy: str) -> list[tuple[str, str]]:
    return [("found", found), ("expected", expected), ("to do", remedy)]


# the common shapes of an error, one line each where it is raised --------------------------------------------------


def not_one_of(
    what: str, where: str, found: object, choices: Collection[str], remedy: str = "name one of them"
) -> ConfigError:
    """An unknown name; the closest valid one is the remedy, where there is one."""
    close = difflib.get_close_matches(str(found), choices, 1)
    expected = " or ".join(map(repr, choices)) if len(choices) < 4 else ", ".join(choices)
    return ConfigError(
        what, where=where, found=repr(found), expected=expected, remedy=f"did you mean {close[0]}?" if close else remedy
    )


def bad_value(what: str, where: str, found: object, expected: str, remedy: str) -> ConfigError:
    """A setting of the right type with an invalid value."""
    return ConfigError(
        what, where=where, found=found if isinstance(found, str) else repr(found), expected=expected, remedy=remedy
    )


def wrong_type(what: str, where: str, value: object, expected: str, remedy: str) -> ConfigError:
    """A value of another type than the one that is needed."""
    return ConfigError(what, where=where, found=article(type(value).__name__), expected=expected, remedy=remedy)


def unreadable(what: str, path: Path | str, error: Exception | str, expected: str, remedy: str) -> FileError:
    """A file that cannot be read, or not as what it should be."""
    if isinstance(error, OSError):
        found = error.strerror or str(error)
    else:
        found = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else error
    return FileError(what, where=str(path), found=found, expected=expected, remedy=remedy)


def wrong_shape(what: str, where: str, found: object, expected: str, remedy: str) -> InputError:
    """An array of another shape, or of another type of number."""
    return InputError(
        what, where=where, found=found if isinstance(found, str) else f"shape {found}", expected=expected, remedy=remedy
    )


def bad_input(what: str, where: str, found: str, expected: str, remedy: str, rows: Any = ()) -> InputError:
    """Data that cannot be used; the first five of `rows`, a sequence or array of row numbers, are named."""
    return InputError(what, where=where, found=found, expected=expected, remedy=remedy, rows=rows[:5])


def empty(what: str, where: str, expected: str, remedy: str) -> InputError:
    """A set without rows."""
    return InputError(what, where=where, found="0 rows", expected=expected, remedy=remedy)


def wrong_extension(what: str, where: str, path: Path, extensions: Collection[str]) -> ConfigError:
    """A file name without a supported extension."""
    found, remedy = path.suffix or "no extension", f"name it {path.stem}{next(iter(extensions))}"
    expected = (" or " if len(extensions) < 3 else ", ").join(extensions)
    return ConfigError(what, where=where, found=found, expected=expected, remedy=remedy)


def worker_died(
    where: str, found: str = "it was killed, or ran out of memory, or could not begin", more: str = ""
) -> UnfinishedError:
    """A worker process that ended before its work was done; `more` is added to the remedy."""
    remedy = "run again to resume; with fewer workers if memory was short" + (f"; {more}" if more else "")
    expected = "processes that live until their work is done"
    return UnfinishedError("a worker process died", where=where, found=found, expected=expected, remedy=remedy)
