"""CSV files, parsed block by block, with the delimiter and the decimal mark found in the file itself."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TextIO

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import types

from wdistill.core.errors import InputError, bad_input, unreadable
from wdistill.tables.formats.schema import BLOCK, Format, Layout, Location, row_too_long
from wdistill.tables.formats.watched import Reader, Watched

DELIMITERS = ",;\t|"
COLUMN_LIMIT, NAME_LIMIT = 1 << 14, 1000
SAMPLE = 100  # rows that show whether numbers have a decimal comma
COMMA_NUMBER = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")
POINT_NUMBER = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
BAD_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
BAD_VALUE = re.compile(r"column #(\d+): Row #(\d+): CSV conversion error to (\w+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class Dialect:
    """How one file is written."""

    start: int  # byte where the header begins, after a byte order mark and blank lines
    names: list[str]
    delimiter: str
    decimal: str
    empty: bool  # nothing but the header


def _layout(location: Location) -> Layout:
    """Types as Arrow finds them in the first block, but ids stay text, and so does what is no number."""
    dialect = _dialect(location)
    if dialect.empty:
        return Layout(pa.schema([(name, pa.string()) for name in dialect.names]), 0)
    with _opened(location, dialect, None) as reader:
        kinds = [kind if types.is_int64(kind) or types.is_float64(kind) else pa.string() for kind in reader.schema.types]
    fields = [(name, pa.string() if name == "id" else kind) for name, kind in zip(dialect.names, kinds, strict=True)]
    return Layout(pa.schema(fields), None)


def _read(location: Location, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    with _opened(location, _dialect(location), schema) as reader:
        for batch in reader:
            yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


@contextmanager
def _opened(location: Location, dialect: Dialect, schema: pa.Schema | None) -> Iterator[Reader]:
    """A reader of the columns of the schema, or of all of them with the types that Arrow finds."""
    wanted = dict(zip(schema.names, schema.types, strict=True)) if schema is not None else {}
    reading = arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=dialect.names, skip_rows_after_names=1)
    parsing = arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True)
    converting = arrow_csv.ConvertOptions(
        column_types=wanted,
        include_columns=list(wanted),
        null_values=[""],
        strings_can_be_null=True,
        decimal_point=dialect.decimal,
    )
    try:
        watched = partial(_from_header, location, dialect)
        with Reader(arrow_csv.open_csv, watched, reading, parsing, converting) as reader:
            yield reader
    except pa.ArrowInvalid as error:
        raise _explained(str(error), location, dialect) or row_too_long(location, error) or error from error


def _from_header(location: Location, dialect: Dialect) -> Watched:
    """The bytes of a file from its header on, refused where one is 0: other encodings have such bytes, text has none."""
    with location.path.open("rb") as stream:
        lines = 1 + stream.read(dialect.start).count(b"\n")

    def look(block: bytes) -> None:
        nonlocal lines
        if b"\0" in block:
            lines += block[: block.index(0)].count(b"\n")
            remedy = "Write the file as UTF-8 text, for example with iconv -t UTF-8, and leave such bytes out."
            where = f"{location}, line {lines}"
            raise unreadable("the file is not plain text", where, "a byte that is 0", "UTF-8 text", remedy)
        lines += block.count(b"\n")

    return Watched(location.path, look, dialect.start)


def _dialect(location: Location) -> Dialect:
    with location.path.open("rb") as stream:
        head = stream.read(BLOCK)
    body = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    text = body.decode(errors="replace")
    delimiter = _delimiter(text)
    names, *sample = [fields for _, fields in islice(_records(io.StringIO(text, newline=""), delimiter), 1 + SAMPLE)]
    _check_header(names, location)
    fields = [field for record in sample for field in record]
    pointed = delimiter == "," or any(POINT_NUMBER.fullmatch(field) for field in fields)
    commas = not pointed and any(COMMA_NUMBER.fullmatch(field) for field in fields)
    empty = not sample and len(head) < BLOCK
    return Dialect(len(head) - len(body), names, delimiter, "," if commas else ".", empty)


def _check_header(names: list[str], location: Location) -> None:
    """Refuse more columns, or longer names, than anybody has: for every column Arrow makes a builder, in every block."""
    longest = max(map(len, names))
    if len(names) > COLUMN_LIMIT or longest > NAME_LIMIT:
        found = f"{len(names)} columns, with names of up to {longest} letters"
        expected = f"at most {COLUMN_LIMIT} columns, with names of at most {NAME_LIMIT} letters"
        remedy = "Close the quotes if one is left open; write tables of so many columns as parquet, with a list a model."
        raise unreadable("the header is too long", str(location), found, expected, remedy)


def _delimiter(text: str) -> str:
    """The delimiter that the header line has most of, outside quotes; a comma when it has none."""
    bare = re.sub(r'"[^"]*"', "", text[: 1 << 16]).splitlines()
    return max(DELIMITERS, key=bare[0].count) if bare else ","


def _explained(words: str, location: Location, dialect: Dialect) -> InputError | None:
    """What Arrow complains of, with the line and the column as a person finds them."""
    if ragged := BAD_ROW.search(words):
        record, wanted, count = ragged.groups()
        where, expected = f"{location}, line {_line(location, dialect, int(record))}", f"{wanted} fields, as in the header"
        remedy = "Correct the line: a field is missing, a delimiter is not quoted, or the file was cut off there."
        return bad_input("a row has the wrong number of fields", where, f"{count} fields", expected, remedy)
    if bad := BAD_VALUE.search(words):
        column, record, kind, value = bad.groups()
        row = f"line {_line(location, dialect, int(record))}, row {int(record) - 2} (from 0)"
        where = f"{location}, {row}, column {dialect.names[int(column)]!r}"
        expected = {"double": "a number", "int64": "an integer, as in the first rows"}.get(kind, "UTF-8 text")
        remedy = "Correct the value, or leave the row out of the file."
        return bad_input("a value does not fit its column", where, value, expected, remedy)
    return None


def _line(location: Location, dialect: Dialect, record: int) -> int:
    """The line where a record begins; records count from 1, and quoted fields may hold line ends."""
    with location.path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        return max(line for line, _ in islice(_records(stream, dialect.delimiter), record))


def _records(stream: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, each with the line where it begins."""
    reader = csv.reader(stream, delimiter=delimiter)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error:  # a very long field, which Arrow may still take
        yield line, [""]


CSV = Format(_layout, _read)
