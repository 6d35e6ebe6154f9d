"""Tables: from what the command line names (files, folders, globs, npy columns) to rows, read chunk by chunk."""

from __future__ import annotations

import codecs
import errno
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.core.errors import FileError, WdistillError, bad_input, unreadable
from wdistill.core.paths import refuse_remote
from wdistill.tables.formats.csv import CSV, DELIMITERS
from wdistill.tables.formats.jsonl import JSONL
from wdistill.tables.formats.npz import NPZ, npy_columns
from wdistill.tables.formats.parquet import PARQUET
from wdistill.tables.formats.predictions import class_count, is_top_k
from wdistill.tables.formats.schema import (
    COPY_AGAIN,
    Format,
    Layout,
    Location,
    ReadPlan,
    check_drift,
    check_names,
    class_names,
    resolve,
    to_ids,
    to_matrix,
    to_vector,
    wide,
)

HELD_LIMIT = 1 << 29  # numbers that the k largest of a table may become in memory
HEAD = 4096  # bytes that tell the format of a file
SAMPLE = 1 << 20  # bytes that tell how long its lines are
MAGICS = {b"PAR1": "parquet", b"PK\x03\x04": "npz", b"\x93NUMPY": "npy"}
READERS = {"parquet": PARQUET, "npz": NPZ, "csv": CSV, "jsonl": JSONL}
JSON_ARRAY = re.compile(r"\[\s*(?:$|[\[\]{\"\d-])")
WEB_PAGE = re.compile(r"<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
NPY_STEMS = ("teacher", "student", "label", "id")
FORMATS = "parquet, npz, npy, CSV or JSON lines"
SYNTAX = "COLUMN=PATH.npy, for example teacher=predictions.npy"


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

    @cached_property
    def rows_about(self) -> int:
        """The number of rows, for showing progress: in text, guessed from the size of the files and their first lines."""
        return rows_of_text(self.files, quoted=self.format == "csv") if self.rows is None else self.rows

    @property
    def schema(self) -> pa.Schema:
        """The columns on disk; in text, with the types that their first rows have."""
        return self._first[1].schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns on disk."""
        return tuple(self.schema.names)

    @property
    def counts_rows(self) -> bool:
        """Whether its files hold no ids, so that row numbers stand for them."""
        return self.format in ("npz", "npy") and "id" not in self.columns

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

    def batches(
        self, schema: pa.Schema, rows: int = 65536, *, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Location, pa.RecordBatch]]:
        """The columns of a schema as they stand in files start … stop, at most `rows` rows at a time, with their place."""
        for number in range(start, self._parts if stop is None else stop):
            location, first = self._location(number), 0
            with self._file_errors(number):
                layout = self._first[1] if number == self._first[0] else self._layout(number)
                if layout.rows == 0:
                    continue
                missing = [name for name in schema.names if name not in layout.schema.names]
                if missing:
                    found, expected = (
                        f"no column {missing[0]!r}",
                        f"columns {', '.join(schema.names)}, as in {self.files[0]}",
                    )
                    remedy = "Write all files of one table with the same columns."
                    raise bad_input("the files of this table differ", str(location), found, expected, remedy)
                for batch in self.reader.read(location, schema, rows):
                    batch.validate(full=True)  # strings that are no text
                    if batch.num_rows:
                        yield replace(location, first=first), batch
                    first += batch.num_rows
            self._check_unchanged(number)

    def _stream(self, expected: ReadPlan, reference: int, start: int, rows: int) -> Iterator[Chunk]:
        base = sum(self._counts[:start]) if expected.row_numbers and start else 0
        widths = {each.name: count for each in expected.schema if is_top_k(each.type) and (count := class_count(each))}
        rows = expected.rows(rows)
        for number in range(start, self._parts):
            location, first = self._location(number), 0
            with self._file_errors(number):
                for batch in self._batches(number, expected, reference, rows):
                    chunk = _chunk(number, batch, expected, replace(location, first=first), widths, base)
                    first += batch.num_rows
                    yield chunk
            self._check_unchanged(number)
            base += first

    def _batches(self, number: int, expected: ReadPlan, reference: int, rows: int) -> Iterator[pa.RecordBatch]:
        """The batches of one file, after a look whether its columns are those of the first file, and all its rows."""
        location, layout = self._location(number), self._layout(number)
        if layout.rows == 0:
            return
        plan = self._plan(number, layout, tuple(expected.matrices), expected.vectors)
        check_drift(plan, location, expected, self._location(reference))
        seen = 0
        for batch in self.reader.read(location, expected.schema, rows):
            seen += batch.num_rows
            if batch.num_rows:
                yield batch
        if layout.rows not in (None, seen):
            what = "the file does not hold the rows that it declares"
            raise unreadable(what, str(location), f"{seen} rows", f"{layout.rows} rows", COPY_AGAIN)

    def _plan(self, number: int, layout: Layout, matrices: Sequence[str], vectors: Sequence[str]) -> ReadPlan:
        typed, counted = self.format not in ("csv", "jsonl"), self.format in ("npz", "npy")
        return resolve(layout.schema, self._location(number), matrices, vectors, typed=typed, row_numbers=counted)

    @cached_property
    def _first(self) -> tuple[int, Layout]:
        """The first file that has rows, by number, and its layout; the very first when none has."""
        first = self._layout(0)
        layouts = ((number, self._layout(number)) for number in range(1, self._parts))
        return (0, first) if first.rows != 0 else next((pair for pair in layouts if pair[1].rows != 0), (0, first))

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        return tuple(self._layout(number).rows or 0 for number in range(self._parts))

    @property
    def _parts(self) -> int:
        """How many files follow each other; those of an npy table lie side by side."""
        return 1 if self.format == "npy" else len(self.files)

    def _layout(self, number: int) -> Layout:
        with self._file_errors(number):
            layout = self.reader.layout(self._location(number))
            check_names(layout.schema.names, self._location(number))
            return layout

    def _location(self, number: int) -> Location:
        return Location(self.option, self.files[number])

    @contextmanager
    def _file_errors(self, number: int) -> Iterator[None]:
        """Whatever goes wrong with a file in here becomes an error that names it."""
        try:
            yield
        except WdistillError:
            raise
        except Exception as error:
            self._check_unchanged(number)
            what, expected = f"the file cannot be read as {self.format}", f"a complete and undamaged {self.format} file"
            found = f"{type(error).__name__}: {error}"
            raise unreadable(what, str(self._location(number)), found, expected, COPY_AGAIN) from error

    def _check_unchanged(self, number: int) -> None:
        """Compare size and time of change with those at the opening of the table."""
        numbers = range(len(self.files)) if self.format == "npy" else [number]
        for location, then in ((self._location(n), self.stamps[n]) for n in numbers):
            now = stamp(location)
            if now != then:
                found, expected = (f"{size} bytes, changed at {time} ns" for size, time in (now, then))
                remedy = "Wait until the file is complete, then start again."
                raise unreadable("the file changed while it was being read", str(location), found, expected, remedy)


def check_top_k(tables: Sequence[Table], kind: str) -> None:
    """Refuse columns of the k largest where predictions are no probabilities, which these are."""
    for table in tables:
        found = [each.name for each in table.schema if is_top_k(each.type)]
        if found and kind != "probabilities":
            remedy = "Leave out --kind; write the other predictions as probabilities, or these as all logits."
            where, expected = f"{table.option} {table.files[0]}, column {found[0]!r}", "--kind probabilities"
            raise bad_input("the k largest of a row are probabilities", where, f"--kind {kind}", expected, remedy)


def check_held(table: Table, columns: Sequence[str]) -> None:
    """Refuse columns of the k largest, in a table that is held in memory, that become too much there."""
    counts = [class_count(table.schema.field(name)) or 0 for name in columns if name in table.columns]
    entries = (table.rows or 0) * sum(counts)
    if entries > HELD_LIMIT:
        where, found = f"{table.option} {table.files[0]}", f"{table.rows} rows of {max(counts)} classes"
        remedy = "Name fewer rows here: those with a label."
        raise bad_input("too many predictions to hold in memory", where, found, f"at most {HELD_LIMIT} numbers", remedy)


def rows_of_text(files: Sequence[Path], *, quoted: bool) -> int:
    """About how many rows files of text have, one a line; `quoted`: line ends inside quotes end no row."""
    rows = 0.0
    for path in files:
        with path.open("rb") as stream:
            head = stream.read(SAMPLE)
        lines = sum(part.count(b"\n") for part in head.split(b'"')[::2]) if quoted else head.count(b"\n")
        rows += lines * path.stat().st_size / max(1, len(head))
    return round(rows)


def stamp(location: Location) -> tuple[int, int]:
    """Size and time of change of a file."""
    try:
        status = location.path.stat()
    except (OSError, ValueError) as error:
        raise forbidden(location, error) from error
    return status.st_size, status.st_mtime_ns


def forbidden(location: Location, error: Exception) -> FileError:
    """The error for a file that the system does not let us read."""
    found, expected = getattr(error, "strerror", None) or str(error), "a file that exists and may be read"
    remedy = "Correct the path, or ask for the right to read the file."
    return unreadable("the file cannot be read", str(location), found, expected, remedy)


def _chunk(
    number: int, batch: pa.RecordBatch, plan: ReadPlan, location: Location, widths: dict[str, int], base: int
) -> Chunk:
    """One batch converted; the widths of the matrices are remembered for the batches that follow."""
    columns: dict[str, NDArray[Any]] = {}
    ids = to_ids(batch.column("id"), location)
    location = replace(location, ids=ids)
    for name, members in plan.matrices.items():
        columns[name] = to_matrix([batch.column(member) for member in members], name, widths.get(name), location)
        widths[name] = columns[name].shape[1]
    for name in plan.vectors:
        columns[name] = to_vector(batch.column(name), name, location)
    return Chunk(number, location.first, pc.add(ids, base) if plan.row_numbers else ids, columns)


# what the command line names -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """One argument: its files in order, their format, and the column they were given, if any."""

    files: tuple[Path, ...]
    format: str
    column: str


def open_tables(sources: Sequence[str], *, option: str) -> tuple[Table, ...]:
    """One table for every file, folder and glob; all npy arrays together are the columns of one table."""
    for text in sources:
        refuse_remote(text, option)
    found = [_source(text, option) for text in sources]
    arrays = [source for source in found if source.format == "npy"]
    tables = []
    for source in found:
        if source.format != "npy":
            tables.append(_table(option, source.files, source.format, READERS[source.format]))
        elif source is arrays[0]:
            columns = _npy_names(arrays, option)
            tables.append(_table(option, tuple(columns.values()), "npy", npy_columns(option, columns)))
    return tuple(tables)


def _table(option: str, files: tuple[Path, ...], kind: str, reader: Format) -> Table:
    return Table(option, files, kind, tuple(stamp(Location(option, path)) for path in files), reader)


def _source(text: str, option: str) -> Source:
    if not text.strip():
        remedy = "Check the variable that should hold the path."
        raise unreadable("an empty path", option, repr(text), "a file, a folder or a glob", remedy)
    column, equals, rest = text.partition("=")
    named = equals and column.isidentifier() and not os.path.lexists(text)
    if named and (os.path.lexists(rest) or rest.endswith(".npy")):
        return _npy_source(column, Location(option, Path(rest)))
    try:
        files = files_of(text, option)
    except (OSError, ValueError) as error:
        raise forbidden(Location(option, Path(text)), error) from error
    kinds = [_format(Location(option, path)) for path in files]
    for path, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            where, remedy = str(Location(option, path)), "Name the files of each format in an argument of their own."
            what = "the files of one table have different formats"
            raise unreadable(what, where, kind, f"{kinds[0]}, as in {files[0]}", remedy)
    return Source(files, kinds[0], "")


def _npy_source(column: str, location: Location) -> Source:
    kind = _format(location)
    if kind != "npy":
        what, remedy = "only npy files are given the name of a column", f"Name the file without {column}= before it."
        raise unreadable(what, str(location), kind, SYNTAX, remedy)
    return Source((location.path,), kind, column)


def files_of(text: str, option: str) -> tuple[Path, ...]:
    """The files that an argument stands for; a path that exists is never taken for a glob.

    Names that begin with . or _ are left out, unless a glob begins so: manifests, and what other programs note there.
    """
    path = Path(text)
    if path.is_dir():
        files = [entry for entry in path.iterdir() if not entry.name.startswith((".", "_")) and not entry.is_dir()]
    elif os.path.lexists(path) or not glob.has_magic(text):
        return (path,)
    else:
        named = [Path(name) for name in glob.glob(text)]  # noqa: PTH207 (the text may be an absolute path)
        files = [file for file in named if path.name.startswith("_") or not file.name.startswith("_")]
    if not files:
        found = "an empty folder, but for names that begin with . or _" if path.is_dir() else "no file that matches"
        where, remedy = str(Location(option, path)), "Correct the path, or write the files first."
        raise unreadable("there are no files here", where, found, "at least one file", remedy)
    return tuple(sorted(files))


def _npy_names(arrays: Sequence[Source], option: str) -> dict[str, Path]:
    """The npy files by the names of their columns."""
    columns: dict[str, Path] = {}
    for source in arrays:
        for path in source.files:
            name = source.column or path.stem
            if name in columns or (not source.column and name not in NPY_STEMS):
                what = "a column is given twice" if name in columns else "it is not clear which column this array is"
                where, found = str(Location(option, path)), f"an array named {name!r}"
                expected = f"one file a column, named {', '.join(NPY_STEMS)}, or with the column before it: {SYNTAX}"
                remedy = f"Write COLUMN={path} with the name of the column in place of COLUMN."
                raise bad_input(what, where, found, expected, remedy)
            columns[name] = path
    return columns


def _format(location: Location) -> str:
    """The format of a file, told by its first bytes."""
    head = _head(location)
    for magic, kind in MAGICS.items():
        if head.startswith(magic):
            return kind
    if head.startswith(b"\x1f\x8b"):
        remedy = "Decompress it first, for example with gunzip."
        raise unreadable("the file is compressed", str(location), "gzip", FORMATS, remedy)
    text = _text(head)
    if text.startswith("{"):
        return "jsonl"
    if WEB_PAGE.match(text):
        found, remedy = (
            "HTML or XML, the answer of a server",
            "Open it to see what the server says, then fetch the file again.",
        )
        raise unreadable("this is a web page", str(location), found, FORMATS, remedy)
    if JSON_ARRAY.match(text):
        remedy = f"Write one object a line, without commas between them: jq -c '.[]' {location.path.name} > table.jsonl."
        raise unreadable(
            "the file is one JSON array", str(location), f"{text[:20]!r}", "JSON lines: one object a line", remedy
        )
    line = text.partition("\n")[0].rstrip("\r")
    if any(mark in line for mark in DELIMITERS) or re.fullmatch(r"\S+", line):
        return "csv"
    remedy = "Write the table in one of these formats; CSV and JSON lines have to be UTF-8 text."
    raise unreadable("cannot tell what this is", str(location), f"a file that begins with {head[:16]!r}", FORMATS, remedy)


def _text(head: bytes) -> str:
    """The first bytes as text without blank lines before it, or nothing if they are no text."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text else text.lstrip()


def _head(location: Location) -> bytes:
    """The first bytes of a regular file that is not empty."""
    try:
        mode = location.path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        with location.path.open("rb") as stream:
            head = stream.read(HEAD)
    except (OSError, ValueError) as error:
        raise forbidden(location, error) from error
    if not head:
        raise unreadable("the file is empty", str(location), "0 bytes", "a table", "Write the file again, or leave it out.")
    return head
