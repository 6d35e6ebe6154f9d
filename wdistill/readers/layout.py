"""What every format tells about a file before its rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from wdistill.errors import FileError

BLOCK = 1 << 20  # bytes of text parsed at once; Arrow reads some twenty blocks ahead
SHOWN = 20  # names or values listed in one message
COPY_AGAIN = "Copy the file again from where it was written, or write it again."


@dataclass(frozen=True)
class Place:
    """A file and the option that named it, as messages show them."""

    option: str
    path: Path

    def __str__(self) -> str:
        name = str(self.path).replace("\n", "\\n")
        return f"{self.option} {name}"


@dataclass(frozen=True)
class Layout:
    """The columns of a file and, where the format knows it, the number of its rows."""

    schema: pa.Schema
    rows: int | None


@dataclass(frozen=True)
class Format:
    """How one kind of file is read: its layout, and batches of at most so many rows of some of its columns.

    The schema handed to `read` names the columns. Text formats also take the types from it.
    """

    layout: Callable[[Place], Layout]
    read: Callable[[Place, pa.Schema, int], Iterator[pa.RecordBatch]]


def listing(items: Sequence[object]) -> str:
    """The first items, separated by commas, and how many more there are."""
    more = f", … ({len(items)} in all)" if len(items) > SHOWN else ""
    return ", ".join(str(item) for item in items[:SHOWN]) + more


def ends_early(place: object, size: int, expected: str) -> FileError:
    """The error for a file that was cut off."""
    return FileError(
        f"the file ends early at byte {size}",
        where=str(place),
        found=f"{size} bytes",
        expected=expected,
        remedy=COPY_AGAIN,
    )


def row_too_long(place: object, error: Exception) -> FileError | None:
    """The error for a row of text that is longer than a block, if that is what Arrow complains of."""
    if "straddling" not in str(error):
        return None
    return FileError(
        "a row is too long",
        where=str(place),
        found=f"a row that does not end within {BLOCK} bytes",
        expected=f"rows of at most {BLOCK} bytes",
        remedy="Close the quotes if one is left open; write tables with very long rows as parquet.",
    )
