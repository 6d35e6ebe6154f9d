"""Every error and warning that wdistill raises on purpose, with the exit code the command line gives it."""

from __future__ import annotations


class WdistillError(Exception):
    """Base class: what is wrong, where, what was found, what was expected, what to do about it."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", found: str = "", expected: str = "", remedy: str = "") -> None:
        self.what, self.where, self.found, self.expected, self.remedy = what, where, found, expected, remedy
        lines = [f"{where}: {what}" if where else what]
        lines += [f"  {word}: {text}" for word, text in _parts(found, expected, remedy) if text]
        super().__init__(printable("\n".join(lines)))


class InputError(WdistillError, ValueError):
    """An array or a table holds something that no weight can be computed from."""

    rows: tuple[int, ...] = ()  # the first offending rows of the array, where rows are to blame


class FileError(WdistillError):
    """A file that was named cannot be read as what it should be."""


class ConfigError(WdistillError, ValueError):
    """An option, or a combination of options, makes no sense."""


class StorageError(WdistillError, OSError):
    """Something could not be written: no space, no permission, a broken disk."""

    exit_code = 3


class BusyError(WdistillError):
    """Another process is writing the same output."""

    exit_code = 5


class WdistillWarning(UserWarning):
    """The work goes on, but a person should know."""


def printable(text: str) -> str:
    """Text with terminal escapes and other control characters (but not newlines) shown instead of obeyed."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _parts(found: str, expected: str, remedy: str) -> list[tuple[str, str]]:
    return [("found", found), ("expected", expected), ("to do", remedy)]
