"""CSV files, parsed block by block, with the delimiter and the decimal mark found in the file itself."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, TextIO

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import types

from wdistill.errors import InputError
from wdistill.readers.layout import BLOCK, Format, Layout, Place, row_too_long

DELIMITERS = ",;\t|"
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


def _layout(place: Place) -> Layout:
    """Types as Arrow finds them in the first block, but ids stay text, and so does what is no number."""
    dialect = _dialect(place)
    if dialect.empty:
        return Layout(pa.schema([(name, pa.string()) for name in dialect.names]), 0)
    with _opened(place, dialect, None) as reader:
        kinds = [kind if types.is_int64(kind) or types.is_float64(kind) else pa.string() for kind in reader.schema.types]
    fields = [(name, pa.string() if name == "id" else kind) for name, kind in zip(dialect.names, kinds, strict=True)]
    return Layout(pa.schema(fields), None)


def _read(place: Place, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    with _opened(place, _dialect(place), schema) as reader:
        for batch in reader:
            yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


@contextmanager
def _opened(place: Place, dialect: Dialect, schema: pa.Schema | None) -> Iterator[arrow_csv.CSVStreamingReader]:
    """A reader of the columns of the schema, or of all of them with the types that Arrow finds."""
    wanted = dict(zip(schema.names, schema.types, strict=True)) if schema is not None else {}
    try:
        with (
            _from_header(place, dialect) as stream,
            arrow_csv.open_csv(
                stream,
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=BLOCK, column_names=dialect.names, skip_rows_after_names=1
                ),
                arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types=wanted,
                    include_columns=list(wanted),
                    null_values=[""],
                    strings_can_be_null=True,
                    decimal_point=dialect.decimal,
                ),
            ) as reader,
        ):
            yield reader
    except pa.ArrowInvalid as error:
        raise _explained(str(error), place, dialect) or row_too_long(place, error) or error from error


def _from_header(place: Place, dialect: Dialect) -> BinaryIO:
    stream = place.path.open("rb")
    stream.seek(dialect.start)
    return stream


def _dialect(place: Place) -> Dialect:
    with place.path.open("rb") as stream:
        head = stream.read(BLOCK)
    body = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    text = body.decode(errors="replace")
    delimiter = _delimiter(text)
    names, *sample = [fields for _, fields in islice(_records(io.StringIO(text, newline=""), delimiter), 1 + SAMPLE)]
    fields = [field for record in sample for field in record]
    pointed = delimiter == "," or any(POINT_NUMBER.fullmatch(field) for field in fields)
    commas = not pointed and any(COMMA_NUMBER.fullmatch(field) for field in fields)
    empty = not sample and len(head) < BLOCK
    return Dialect(len(head) - len(body), names, delimiter, "," if commas else ".", empty)


def _delimiter(text: str) -> str:
    """The delimiter that the header line has most of, outside quotes; a comma when it has none."""
    bare = re.sub(r'"[^"]*"', "", text[: 1 << 16]).splitlines()
    return max(DELIMITERS, key=bare[0].count) if bare else ","


def _explained(words: str, place: Place, dialect: Dialect) -> InputError | None:
    """What Arrow complains of, with the line and the column as a person finds them."""
    if ragged := BAD_ROW.search(words):
        record, expected, found = ragged.groups()
        return InputError(
            "a row has the wrong number of fields",
            where=f"{place}, line {_line(place, dialect, int(record))}",
            found=f"{found} fields",
            expected=f"{expected} fields, as in the header",
            remedy="Correct the line: a field is missing, a delimiter is not quoted, or the file was cut off there.",
        )
    if bad := BAD_VALUE.search(words):
        column, record, kind, value = bad.groups()
        line = _line(place, dialect, int(record))
        return InputError(
            "a value does not fit its column",
            where=f"{place}, line {line}, row {int(record) - 2} (from 0), column {dialect.names[int(column)]!r}",
            found=value,
            expected={"double": "a number", "int64": "an integer, as in the first rows"}.get(kind, "UTF-8 text"),
            remedy="Correct the value, or leave the row out of the file.",
        )
    return None


def _line(place: Place, dialect: Dialect, record: int) -> int:
    """The line where a record begins; records count from 1, and quoted fields may hold line ends."""
    with place.path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
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
