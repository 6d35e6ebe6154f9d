"""A table: one or more files of the same columns, read chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.errors import FileError, WdistillError
from wdistill.readers.columns import Spot, to_ids, to_matrix, to_vector
from wdistill.readers.layout import COPY_AGAIN, Format, Layout, Place
from wdistill.readers.plan import Plan, check_drift, check_names, class_names, resolve, wide


@dataclass(frozen=True)
class Chunk:
    """Some rows of one file."""

    file: int  # index into the table's files
    first: int  # number of the first row inside that file
    ids: pa.Array  # int64 or string, without nulls
    columns: dict[str, NDArray[Any]]  # matrices (rows, K) and vectors (rows,)


@dataclass(frozen=True)
class Table:
    """Files of one format that hold the same columns; the columns of an npy table are its files."""

    option: str  # the command line option that named the files
    files: tuple[Path, ...]
    format: str  # parquet, npz, npy, csv or jsonl
    stamps: tuple[tuple[int, int], ...]  # size and time of change of every file when the table was opened
    reader: Format

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(size for size, _ in self.stamps)

    @cached_property
    def rows(self) -> int | None:
        """The number of rows, where the format knows it without reading them."""
        return None if self.format in ("csv", "jsonl") else sum(self._counts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns on disk."""
        return tuple(self._first[1].schema.names)

    def has(self, column: str) -> bool:
        """Whether a column is there by its name, or spread over one column a class."""
        return column in self.columns or bool(wide(self._first[1].schema, column))

    def classes(self, column: str) -> tuple[str, ...] | None:
        """The names of a matrix's classes; None when they are only numbered."""
        return class_names(self._first[1].schema, column)

    def chunks(
        self, matrices: Sequence[str] = (), vectors: Sequence[str] = (), *, start: int = 0, rows: int = 65536
    ) -> Iterator[Chunk]:
        """The rows in the order of the files, from file number `start` on, at most `rows` of them at a time."""
        reference, layout = self._first
        expected = self._plan(reference, layout, matrices, vectors)
        return self._stream(expected, reference, start, rows)

    def _stream(self, expected: Plan, reference: int, start: int, rows: int) -> Iterator[Chunk]:
        base = sum(self._counts[:start]) if expected.row_numbers and start else 0
        widths: dict[str, int] = {}
        for number in range(start, self._parts):
            place, first = self._place(number), 0
            with self._guarded(number):
                for batch in self._batches(number, expected, reference, rows):
                    chunk = _chunk(number, batch, expected, Spot(place, first), widths, base)
                    first += batch.num_rows
                    yield chunk
            self._check_unchanged(number)
            base += first

    def _batches(self, number: int, expected: Plan, reference: int, rows: int) -> Iterator[pa.RecordBatch]:
        """The batches of one file, after a look whether its columns are those of the first file, and all its rows."""
        place, layout = self._place(number), self._layout(number)
        if layout.rows == 0:
            return
        plan = self._plan(number, layout, tuple(expected.matrices), expected.vectors)
        check_drift(plan, place, expected, self._place(reference))
        seen = 0
        for batch in self.reader.read(place, expected.schema, rows):
            seen += batch.num_rows
            if batch.num_rows:
                yield batch
        if layout.rows not in (None, seen):
            raise FileError(
                "the file does not hold the rows that it declares",
                where=str(place),
                found=f"{seen} rows",
                expected=f"{layout.rows} rows",
                remedy=COPY_AGAIN,
            )

    def _plan(self, number: int, layout: Layout, matrices: Sequence[str], vectors: Sequence[str]) -> Plan:
        typed, counted = self.format not in ("csv", "jsonl"), self.format in ("npz", "npy")
        return resolve(layout.schema, self._place(number), matrices, vectors, typed=typed, row_numbers=counted)

    @cached_property
    def _first(self) -> tuple[int, Layout]:
        """The first file that has rows, by number, and its layout; the very first when none has."""
        layouts = ((number, self._layout(number)) for number in range(self._parts))
        return next((pair for pair in layouts if pair[1].rows != 0), (0, self._layout(0)))

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        return tuple(self._layout(number).rows or 0 for number in range(self._parts))

    @property
    def _parts(self) -> int:
        """How many files follow each other; those of an npy table lie side by side."""
        return 1 if self.format == "npy" else len(self.files)

    def _layout(self, number: int) -> Layout:
        with self._guarded(number):
            layout = self.reader.layout(self._place(number))
            check_names(layout.schema.names, self._place(number))
            return layout

    def _place(self, number: int) -> Place:
        return Place(self.option, self.files[number])

    @contextmanager
    def _guarded(self, number: int) -> Iterator[None]:
        """Whatever goes wrong with a file in here becomes an error that names it."""
        try:
            yield
        except WdistillError:
            raise
        except Exception as error:
            self._check_unchanged(number)
            raise FileError(
                f"the file cannot be read as {self.format}",
                where=str(self._place(number)),
                found=f"{type(error).__name__}: {error}",
                expected=f"a complete and undamaged {self.format} file",
                remedy=COPY_AGAIN,
            ) from error

    def _check_unchanged(self, number: int) -> None:
        """Compare size and time of change with those at the opening of the table."""
        numbers = range(len(self.files)) if self.format == "npy" else [number]
        for place, then in ((self._place(n), self.stamps[n]) for n in numbers):
            now = stamp(place)
            if now != then:
                raise FileError(
                    "the file changed while it was being read",
                    where=str(place),
                    found=f"{now[0]} bytes, changed at {now[1]} ns",
                    expected=f"{then[0]} bytes, changed at {then[1]} ns",
                    remedy="Wait until the file is complete, then start again.",
                )


def stamp(place: Place) -> tuple[int, int]:
    """Size and time of change of a file."""
    try:
        status = place.path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(place, error) from error
    return status.st_size, status.st_mtime_ns


def unreadable(place: Place, error: Exception) -> FileError:
    """The error for a file that the system does not let us read."""
    return FileError(
        "the file cannot be read",
        where=str(place),
        found=getattr(error, "strerror", None) or str(error),
        expected="a file that exists and may be read",
        remedy="Correct the path, or ask for the right to read the file.",
    )


def _chunk(number: int, batch: pa.RecordBatch, plan: Plan, spot: Spot, widths: dict[str, int], base: int) -> Chunk:
    """One batch converted; the widths of the matrices are remembered for the batches that follow."""
    columns: dict[str, NDArray[Any]] = {}
    ids = to_ids(batch.column("id"), spot)
    known = Spot(spot.place, spot.first, ids)
    for name, members in plan.matrices.items():
        columns[name] = to_matrix([batch.column(member) for member in members], name, widths.get(name), known)
        widths[name] = columns[name].shape[1]
    for name in plan.vectors:
        columns[name] = to_vector(batch.column(name), name, known)
    return Chunk(number, spot.first, pc.add(ids, base) if plan.row_numbers else ids, columns)
