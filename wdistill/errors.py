"""Every error and warning that wdistill raises on purpose, with the exit code the command line gives it."""

from __future__ import annotations

from collections.abc import Sequence


class WdistillError(Exception):
    """Base class: what is wrong, where, what was found, what was expected, what to do about it."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", found: str = "", expected: str = "", remedy: str = "") -> None:
        self.what, self.where, self.found, self.expected, self.remedy = what, where, found, expected, remedy
        lines = [f"{where}: {what}" if where else what]
        lines += [f"  {word}: {text}" for word, text in _parts(found, expected, remedy) if text]
        super().__init__(printable("\n".join(lines)))


class InputError(WdistillError, ValueError):
    """An array or a table holds something that no weight can be computed from; `rows` are the first to blame, if any."""

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
        if rows:
            found += f", first in row{'s' if len(rows) > 1 else ''} {', '.join(map(str, self.rows))} (from 0)"
        if ids:
            found += f", id{'s' if len(ids) > 1 else ''} {', '.join(map(repr, ids))}"
        super().__init__(what, where=where, found=found, expected=expected, remedy=remedy)

    def at(self, where: str, first: int, ids: Sequence[object]) -> InputError:
        """The same error for a chunk of a file that begins at row `first`; `ids` are those of the offending rows."""
        rows = [first + row for row in self.rows]
        return InputError(
            self.what, where=where, found=self._found, expected=self.expected, remedy=self.remedy, rows=rows, ids=ids
        )


class FileError(WdistillError):
    """A file that was named cannot be read as what it should be."""


class ConfigError(WdistillError, ValueError):
    """An option, or a combination of options, makes no sense."""


class StorageError(WdistillError, OSError):
    """Something could not be written: no space, no permission, a broken disk."""

    exit_code = 3


class CheckpointError(WdistillError):
    """A run folder is damaged beyond what its two generations can mend."""

    exit_code = 3


class LeakError(WdistillError, ValueError):
    """Rows that must not meet are in two sets: a validation row that the teacher was trained on."""


class NumericalError(WdistillError, ArithmeticError):
    """A loss or a parameter is not a finite number; the last good state is kept."""

    exit_code = 4


class BusyError(WdistillError):
    """Another process is writing the same output."""

    exit_code = 5


class UnfinishedError(WdistillError):
    """The run stopped for a reason outside of it, and goes on when it is started again."""

    exit_code = 75


class WdistillWarning(UserWarning):
    """The work goes on, but a person should know."""


def printable(text: str) -> str:
    """Text with terminal escapes and other control characters (but not newlines) shown instead of obeyed."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _parts(found: str, expected: str, remedy: str) -> list[tuple[str, str]]:
    return [("found", found), ("expected", expected), ("to do", remedy)]
