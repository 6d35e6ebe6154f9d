"""JSON lines, parsed block by block: one object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
from pyarrow import types

from wdistill.core.errors import FileError, unreadable
from wdistill.tables.formats.nesting import CELL_LIMIT, DEPTH_LIMIT, FIELD_LIMIT, Nesting, too_many_fields
from wdistill.tables.formats.schema import BLOCK, Format, Layout, Location, is_listed, row_too_long
from wdistill.tables.formats.watched import Reader, Watched


def _layout(location: Location) -> Layout:
    """Types as Arrow finds them in the first block, but a string that looks like a date stays a string."""
    try:
        _check_fields(location)
        with _opened(location, None) as reader:
            kinds = [pa.string() if types.is_temporal(kind) else kind for kind in reader.schema.types]
            return Layout(pa.schema(list(zip(reader.schema.names, kinds, strict=True))), None)
    except ValueError as error:
        raise row_too_long(location, error) or _bad_line(location, 0, pa.schema([])) or error from error


def _read(location: Location, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    done = 0
    try:
        with _opened(location, schema) as reader:
            for batch in reader:
                _refuse_infinite(batch)
                yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))
                done += batch.num_rows
    except ValueError as error:
        raise row_too_long(location, error) or _bad_line(location, done, schema) or error from error


@contextmanager
def _opened(location: Location, schema: pa.Schema | None) -> Iterator[Reader]:
    """A reader of the columns of the schema, or of all of them with the types that Arrow finds."""
    others = "infer" if schema is None else "ignore"
    reading = arrow_json.ReadOptions(use_threads=False, block_size=BLOCK)
    parsing = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    with Reader(arrow_json.open_json, partial(_watched, location), reading, parsing) as reader:
        yield reader


def _watched(location: Location) -> Watched:
    """The bytes of a file, refused where they nest too deep."""
    nesting = Nesting()

    def look(block: bytes) -> None:
        line = nesting.too_deep(block)
        if line is not None:
            what, where = "a value is nested too deep", f"{location}, line {line}"
            expected = f"at most {DEPTH_LIMIT}, and one object a line"
            remedy = "Close the brackets of this line and of those before it, or leave the field out of the file."
            raise unreadable(what, where, f"more than {DEPTH_LIMIT} open brackets", expected, remedy)

    return Watched(location.path, look)


def _check_fields(location: Location) -> None:
    """Refuse a file in which Arrow would find so many fields that they do not fit into memory."""
    with _watched(location) as stream:
        head = stream.read(BLOCK)
    if too_many_fields(head if len(head) < BLOCK else head[: head.rfind(b"\n") + 1]):
        found = f"more than {FIELD_LIMIT}, or more than {CELL_LIMIT} gaps where objects lack them, in {BLOCK} bytes"
        remedy = "Write the same fields in every line, and the predictions of a model as one list of numbers."
        raise unreadable(
            "there are too many different fields", str(location), found, "the same fields in every line", remedy
        )


def _refuse_infinite(batch: pa.RecordBatch) -> None:
    """Arrow takes NaN and Infinity for numbers; JSON does not know them."""
    for column in batch.columns:
        values = column.flatten() if is_listed(column.type) else column
        if types.is_floating(values.type) and pc.all(pc.is_finite(values)).as_py() is False:
            raise ValueError("a number is not finite")


def _bad_line(location: Location, done: int, schema: pa.Schema) -> FileError | None:
    """The first line after `done` rows that is no JSON object, or holds a value that its column cannot."""
    with location.path.open("rb") as stream:
        lines = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
        for row, (number, line) in enumerate(lines):
            fault = _fault(line, schema) if row >= done else ""
            if fault:
                where, expected = (
                    f"{location}, line {number}, row {row} (from 0)",
                    "one JSON object, with values of one type in each column",
                )
                remedy = "Correct the line; a last line that is not complete means that the file was cut off."
                return unreadable("a line cannot be read", where, fault, expected, remedy)
    return None


def _fault(line: bytes, schema: pa.Schema) -> str:
    """What is wrong with a line, or nothing."""
    try:
        record = json.loads(line.decode("utf-8-sig"), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return str(error)
    if not isinstance(record, dict):
        return f"{type(record).__name__} instead of an object"
    wrong = [field for field in schema if not _fits(record.get(field.name), field.type)]
    return f"column {wrong[0].name!r} with {record[wrong[0].name]!r:.80}, not {wrong[0].type}" if wrong else ""


def _finite(word: str) -> float:
    if not math.isfinite(float(word)):
        raise ValueError(f"{word} is not a number in JSON")
    return float(word)


def _fits(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return True
    if is_listed(kind):
        return isinstance(value, list) and all(_fits(item, kind.value_type) for item in value)
    if types.is_string(kind) or types.is_boolean(kind) or isinstance(value, bool):
        return isinstance(value, str if types.is_string(kind) else bool) and not types.is_floating(kind)
    if types.is_integer(kind):
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, int | float)


JSONL = Format(_layout, _read)
