"""The columns of a file: what every format tells about them, which ones are read, and how they become arrays."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from wdistill.core.errors import FileError, InputError, bad_input, unreadable
from wdistill.tables.formats.predictions import (
    CLASSES,
    COUNT,
    MISSING,
    MOST_CLASSES,
    PROBABILITIES,
    class_count,
    faults,
    is_top_k,
    spread,
)

BLOCK = 1 << 20  # bytes of text parsed at once; Arrow reads some twenty blocks ahead
NO_ID = "label|class|target|teacher|student"  # columns label_id and the like are no ids of rows
MISNAMED_ID = re.compile(rf"(?!(?i:{NO_ID}))(?:(?i:(?:.*[_ .-])?(?:id|idx|uid|uuid|guid|index)s?)|.*[a-z]I[dD]s?)")
TEXT_LIMIT = 192 << 20  # bytes of the strings of one column that are read together
SPREAD_LIMIT = 64 << 20  # bytes of the probabilities that the k largest of some rows become at once
SHOWN = 20  # names or values listed in one message
FIRST_ROWS = 5  # bad rows shown in one message
COPY_AGAIN = "Copy the file again from where it was written, or write it again."


@dataclass(frozen=True)
class Location:
    """Where something comes from, as messages show it: a file and the option that named it, and rows of the file."""

    option: str
    path: Path
    first: int = 0  # number of the first of these rows
    ids: pa.Array | None = None  # of these rows, once they are read

    def __str__(self) -> str:
        name = str(self.path).replace("\n", "\\n")
        return f"{self.option} {name}"

    def column(self, name: str) -> str:
        return f"{self}, column {name!r}"

    def rows(self, indices: NDArray[np.int64]) -> str:
        """The first few rows, by number and id."""
        shown = indices[:FIRST_ROWS]
        more = ", …" if len(indices) > FIRST_ROWS else ""
        text = f"row{'s' if len(indices) > 1 else ''} {listing([int(self.first + i) for i in shown])}{more} (from 0"
        ids = f"; id {listing([repr(self.ids[int(i)].as_py()) for i in shown])}{more}" if self.ids is not None else ""
        return f"{text}{ids})"


@dataclass(frozen=True)
class Layout:
    """The columns of a file and, where the format knows it, the number of its rows."""

    schema: pa.Schema
    rows: int | None


@dataclass(frozen=True)
class Format:
    """How one kind of file is read: its layout, and batches of at most so many rows of some of its columns.

    The schema that `read` gets names the columns. Text formats also take the types from it.
    """

    layout: Callable[[Location], Layout]
    read: Callable[[Location, pa.Schema, int], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class ReadPlan:
    """The columns to read and what becomes of them."""

    schema: pa.Schema  # the columns on disk, with the types that text is converted to
    matrices: Mapping[str, tuple[str, ...]]  # one list column, or one column a class
    vectors: tuple[str, ...]
    row_numbers: bool  # the file has no ids, its rows are counted
    kinds: Mapping[str, tuple[str, ...]]  # what has to be the same in every file of a table

    def rows(self, most: int) -> int:
        """How many rows to read at once, at most `most`: columns of the k largest grow when they are read."""
        row = sum(4 * (class_count(each) or 0) for each in self.schema if is_top_k(each.type))
        return max(1, min(most, SPREAD_LIMIT // max(1, row)))


# messages -------------------------------------------------------------------------------------------------------------


def listing(items: Sequence[object]) -> str:
    """The first items, separated by commas, and how many more there are."""
    more = f", … ({len(items)} in all)" if len(items) > SHOWN else ""
    return ", ".join(f"{item!s:.200}" for item in items[:SHOWN]) + more


def ends_early(where: object, size: int, expected: str) -> FileError:
    """The error for a file that was cut off."""
    return unreadable(f"the file ends early at byte {size}", str(where), f"{size} bytes", expected, COPY_AGAIN)


def row_too_long(where: object, error: Exception) -> FileError | None:
    """The error for a row of text that is longer than a block, if that is what Arrow complains of."""
    if "straddling" not in str(error):
        return None
    found, expected = f"a row that does not end within {BLOCK} bytes", f"rows of at most {BLOCK} bytes"
    remedy = "Close the quotes if one is left open; write tables with very long rows as parquet."
    return unreadable("a row is too long", str(where), found, expected, remedy)


def _wrong_type(location: Location, field: pa.Field, expected: str, remedy: str) -> InputError:
    found = "nothing: no rows, or nulls alone" if pa.types.is_null(field.type) else str(field.type)
    return bad_input("the column has the wrong type", location.column(field.name), found, expected, remedy)


# which columns --------------------------------------------------------------------------------------------------------


def resolve(
    schema: pa.Schema, location: Location, matrices: Sequence[str], vectors: Sequence[str], *, typed: bool, row_numbers: bool
) -> ReadPlan:
    """Find columns in the schema of one file. `typed`: the file itself says what type a column has."""
    row_numbers = row_numbers and "id" not in schema.names
    if row_numbers:
        refuse_misnamed_ids(schema.names, str(location))
    on_disk = {name: _matrix(schema, location, name, typed) for name in matrices}
    fields = [] if row_numbers else [_id(schema, location)]
    kinds: dict[str, tuple[str, ...]] = {} if row_numbers else {"id": (_kind(fields[0], typed=True),)}
    for name, members in on_disk.items():
        fields += [_as_float(schema.field(member)) for member in members]
        kinds[name] = tuple(_kind(schema.field(member), typed) for member in members)
    for name in vectors:
        fields.append(_vector(schema, location, name))
        kinds[name] = (_kind(fields[-1], typed),)
    return ReadPlan(pa.schema(fields), on_disk, tuple(vectors), row_numbers, kinds)


def check_names(names: Sequence[str], location: Location) -> None:
    """Refuse a file in which a column has no name, or two columns have the same."""
    if "" in names:
        what, found = (
            f"column number {names.index('') + 1} has no name",
            f"columns {listing([repr(name) for name in names])}",
        )
        remedy = "Write a name for every column in the header of the file."
        raise bad_input(what, str(location), found, "a name for every column", remedy)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        found, remedy = (
            f"more than one of {listing([repr(name) for name in twice])}",
            "Rename one of the columns, or leave one out.",
        )
        raise bad_input("two columns have the same name", str(location), found, "every column name once", remedy)


def refuse_misnamed_ids(names: Sequence[str], where: str) -> None:
    """Refuse a file without a column `id` that has one of a similar name: its rows would be counted instead."""
    misnamed = [name for name in names if MISNAMED_ID.fullmatch(name)]
    if misnamed and "id" not in names:
        remedy = f"Rename {misnamed[0]!r} to 'id'; or, if these are no ids, give the column another name."
        found = f"a column {misnamed[0]!r}, and none named 'id'"
        raise bad_input("it is not clear whether these are the ids", where, found, "ids in a column named 'id'", remedy)


def check_drift(plan: ReadPlan, location: Location, first: ReadPlan, first_location: Location) -> None:
    """Refuse a file whose columns differ from those of the table's first file."""
    for column, kind in first.kinds.items():
        if plan.kinds.get(column) == kind:
            continue
        pairs = [pair for pair in zip_longest(plan.kinds.get(column, ()), kind, fillvalue="nothing") if len({*pair}) > 1]
        raise bad_input(
            f"the files of this table differ in column {column!r}",
            str(location),
            listing([here for here, _ in pairs]),
            f"{listing([there for _, there in pairs])}, as in {first_location.path}",
            "Write all files of one table with the same columns and types.",
        )


def wide(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """The columns PREFIX_0, PREFIX_1 … in the order of their numbers, or PREFIX_name … in the order of the file."""
    prefix = f"{column}_"
    members = [name for name in schema.names if name.startswith(prefix) and name != prefix]
    numbered = [name for name in members if _digits(name.removeprefix(prefix))]
    if numbered:
        return tuple(sorted(numbered, key=lambda name: int(name.removeprefix(prefix))))
    named = len(members) > 1 and any(is_number(schema.field(name).type) for name in members)
    return tuple(members) if named else ()


def class_names(schema: pa.Schema, column: str) -> tuple[str, ...] | None:
    """The names of the classes, where the columns of a matrix carry names."""
    members = () if _is_list(schema, column) else wide(schema, column)
    tails = tuple(name.removeprefix(f"{column}_") for name in members)
    return tails if tails and not _digits(tails[0]) else None


def is_number(kind: pa.DataType) -> bool:
    """Integers, floats and booleans count as numbers."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def is_listed(kind: pa.DataType) -> bool:
    """Lists of any kind."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """Strings of any kind, also those kept in a dictionary."""
    plain = _plain(kind)
    return bool(types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain))


def _id(schema: pa.Schema, location: Location) -> pa.Field:
    field = _named(schema, location, "id")
    if not is_text(field.type) and not types.is_integer(_plain(field.type)):
        raise _wrong_type(location, field, "integers or strings", "Write the ids as integers or as strings.")
    return field


def _vector(schema: pa.Schema, location: Location, column: str) -> pa.Field:
    field = _named(schema, location, column)
    prefix, _, tail = column.rpartition("_")
    group = wide(schema, prefix) if prefix and _digits(tail) else ()
    if len(group) > 1 and _missing_numbers(group, prefix) == []:
        what = f"column {column!r} is one class of {prefix!r}, not a column of its own"
        remedy = f"Name another column, or rename {column!r} so that it does not end in a number."
        raise bad_input(what, str(location), f"the columns {listing(group)}", "a column of one value a row", remedy)
    if not is_text(field.type) and not is_number(_plain(field.type)):
        raise _wrong_type(location, field, "one number or string a row", "Write one value a row, or name another column.")
    return field


def _matrix(schema: pa.Schema, location: Location, column: str, typed: bool) -> tuple[str, ...]:
    if _is_list(schema, column):
        field = schema.field(column)
        if not is_number(field.type.value_type):
            raise _wrong_type(location, field, "lists of numbers", "Write one number a class in every list.")
        return (column,)
    if column in schema.names and is_top_k(schema.field(column).type):
        _check_count(schema.field(column), location)
        return (column,)
    members = wide(schema, column)
    if not members:
        remedy = f"Write a list of numbers a row, or one column a class: {column}_0, {column}_1 and so on."
        raise _wrong_type(location, _named(schema, location, column), "lists of numbers", remedy)
    if missing := _missing_numbers(members, column):
        found, expected = (
            f"{listing(members)}, without {listing(missing)}",
            f"{column}_0, {column}_1 and so on, each number once",
        )
        remedy = "Write one column for every class, numbered from 0 without gaps."
        raise bad_input(f"column {column!r} is not complete", str(location), found, expected, remedy)
    for member in members if typed else ():
        if not is_number(schema.field(member).type):
            raise _wrong_type(location, schema.field(member), "numbers", "Write one number a row and class.")
    return members


def _check_count(field: pa.Field, location: Location) -> None:
    """Refuse a column of the k largest that does not tell the number of classes, or tells fewer than it has."""
    count, lists = class_count(field), field.type.field(PROBABILITIES).type
    k = lists.list_size if types.is_fixed_size_list(lists) else 1
    if count is None or count < k:
        told = (field.metadata or {}).get(COUNT)
        found = "nothing" if told is None else f"{told[:20]!r}, and {k} classes a row"
        expected = f"the number of classes, 2 to {MOST_CLASSES}, as {COUNT.decode()} in the metadata of the column"
        remedy = "Write the table with wdistill label, or with pyarrow: field.with_metadata({'wdistill.classes': '1000'})."
        raise bad_input("the number of classes is not known", location.column(field.name), found, expected, remedy)


def _missing_numbers(members: Sequence[str], column: str) -> list[str]:
    """The numbered columns that a complete row of them would also have; a number given twice counts too."""
    tails = [name.removeprefix(f"{column}_") for name in members]
    if not _digits(tails[0]):
        return []
    numbers = [int(tail) for tail in tails]
    if len(numbers) == len(set(numbers)) == numbers[-1] + 1:
        return []
    gaps = sorted(set(range(min(numbers[-1], 10 * len(numbers)))) - set(numbers))
    return [f"{column}_{number}" for number in gaps] or ["a number that is there once"]


def _named(schema: pa.Schema, location: Location, column: str) -> pa.Field:
    """The field of that name, or an error that shows what there is and what may have been meant."""
    if column in schema.names:
        return schema.field(column)
    lowered = {name.lower(): name for name in schema.names}
    near = difflib.get_close_matches(column.lower(), lowered, 1)
    meant = f"Rename {lowered[near[0]]!r} to {column!r}, if that is the column meant." if near else ""
    found = f"columns {listing([repr(name) for name in schema.names])}"
    remedy = meant or f"Write the file with a column {column!r}, or name another file."
    raise bad_input(f"there is no column {column!r}", str(location), found, f"a column {column!r}", remedy)


def _kind(field: pa.Field, typed: bool) -> str:
    count = f" of {class_count(field)} classes" if is_top_k(field.type) else ""
    return f"{field.name} ({_words(field.type)}{count})" if typed else str(field.name)


def _words(kind: pa.DataType) -> str:
    """A type without the differences that vanish in reading."""
    if is_text(kind):
        return "string"
    if is_top_k(kind):
        return f"the largest as {kind.field(PROBABILITIES).type.value_type}"
    return f"lists of {kind.value_type}" if is_listed(kind) else str(_plain(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if types.is_dictionary(kind) else kind


def _as_float(field: pa.Field) -> pa.Field:
    """The field of predictions as text is converted; the k largest stand in parquet alone."""
    if is_top_k(field.type):
        return field
    return pa.field(field.name, pa.list_(pa.float64()) if is_listed(field.type) else pa.float64())


def _is_list(schema: pa.Schema, column: str) -> bool:
    return column in schema.names and is_listed(schema.field(column).type)


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


# from Arrow columns to arrays -----------------------------------------------------------------------------------------


def to_ids(values: pa.Array, location: Location) -> pa.Array:
    """Ids as int64 or string, without nulls."""
    values = _decoded(values, "id", location)
    _refuse_nulls([values], 1, "id", location)
    ids = values.cast(pa.string()) if is_text(values.type) else _integers(values, "id", location)
    ids.validate(full=True)
    return ids


def to_vector(values: pa.Array, name: str, location: Location) -> NDArray[Any]:
    """One value a row, (rows,): int64, float64, bool or str."""
    values = _decoded(values, name, location)
    _refuse_nulls([values], 1, name, location)
    if is_text(values.type) and len(values):
        _refuse_long(4 * len(values) * pc.max(pc.utf8_length(values)).as_py(), name, location)
    if types.is_integer(values.type):
        values = _integers(values, name, location)
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if is_text(values.type):
        return array.astype(np.str_)
    return np.require(array, np.float64 if array.dtype.kind == "f" else array.dtype, ["C", "W"])


def to_matrix(columns: list[pa.Array], name: str, width: int | None, location: Location) -> NDArray[Any]:
    """K numbers a row, (rows, K), from one column of lists, or of the k largest of `width`, or from K columns of numbers."""
    _refuse_nulls(columns, 1, name, location)
    if is_listed(columns[0].type):
        flat, width = _from_lists(columns[0], name, width, location)
        return np.require(_floats(flat).reshape(-1, width), requirements=["C", "W"])
    if is_top_k(columns[0].type):
        assert width is not None  # known before any row is read
        return _from_top_k(columns[0], name, width, location)
    return np.stack([_floats(column) for column in columns], axis=1)


def _from_lists(lists: pa.Array, name: str, width: int | None, location: Location) -> tuple[pa.Array, int]:
    """The numbers of all lists, one after the other, and how many each of them has."""
    lengths = pc.list_value_length(lists).to_numpy()
    width = int(lengths[0]) if width is None else width
    wrong = np.flatnonzero(lengths != width)
    if len(wrong) or not width:
        bad = int(wrong[0]) if len(wrong) else 0
        found = f"{int(lengths[bad])} entries in {location.rows(np.array([bad]))}"
        expected = f"{width} entries, as in the rows before" if width else "one entry a class"
        remedy = "Write one number a class, in the same order, in every row."
        raise bad_input("a list has the wrong length", location.column(name), found, expected, remedy)
    values = lists.flatten()
    _refuse_nulls([values], width, name, location)
    return values, width


def _from_top_k(rows: pa.Array, name: str, classes: int, location: Location) -> NDArray[Any]:
    """Probabilities (rows, K) from the k largest of every row, checked."""
    _refuse_nulls([rows.field(part) for part in (CLASSES, PROBABILITIES, MISSING)], 1, name, location)
    values, k = _from_lists(rows.field(PROBABILITIES), f"{name}.{PROBABILITIES}", None, location)
    numbers, _ = _from_lists(rows.field(CLASSES), f"{name}.{CLASSES}", k, location)
    if k > classes:
        found, remedy = f"{k} classes a row", "Write every class at most once in a row."
        raise bad_input("more classes than there are", location.column(name), found, f"at most {classes}", remedy)
    floats = _floats(values)
    probabilities = (floats if floats.dtype == np.float16 else floats.astype(np.float32)).reshape(-1, k)
    whole = _integers(numbers, name, location).to_numpy().reshape(-1, k)
    missing = _floats(rows.field(MISSING))
    for what, bad, expected in faults(whole, probabilities, missing, classes):
        which = np.flatnonzero(bad)
        if len(which):
            shown = f"classes {whole[which[0]][:5].tolist()}, probabilities {probabilities[which[0]][:5].tolist()}"
            found_there = f"{shown}, missing {missing[which[0]]:.6g} in {location.rows(which)}"
            remedy = "Write the k largest probabilities of every row, and the sum of all others as missing."
            raise bad_input(what, location.column(name), found_there, expected, remedy)
    return spread(whole, probabilities, missing, classes)


def _floats(values: pa.Array) -> NDArray[Any]:
    """Floats as stored, integers and booleans as float64."""
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _integers(values: pa.Array, name: str, location: Location) -> pa.Array:
    if types.is_uint64(values.type):
        limit = np.iinfo(np.int64).max
        large = np.flatnonzero(values.to_numpy() > limit)
        if len(large):
            what = f"{len(large)} integers are too large"
            found = f"{values[int(large[0])]} in {replace(location, ids=None).rows(large)}"
            remedy = "Write these numbers as strings."
            raise bad_input(what, location.column(name), found, f"integers up to {limit}", remedy)
    return values.cast(pa.int64())


def _decoded(values: pa.Array, name: str, location: Location) -> pa.Array:
    """The values themselves, of a column that keeps each of them once, in a dictionary."""
    if not types.is_dictionary(values.type):
        return values
    if is_text(values.type):
        _refuse_long(pc.sum(pc.binary_length(values.dictionary).take(values.indices)).as_py() or 0, name, location)
    return values.dictionary_decode()


def _refuse_long(size: int, name: str, location: Location) -> None:
    """Refuse strings that are short on disk but would take too many bytes in memory."""
    if size > TEXT_LIMIT:
        found, expected = f"strings that take {size} bytes in rows read together", f"at most {TEXT_LIMIT} bytes"
        raise bad_input("the strings are too long", location.column(name), found, expected, "Write shorter names or ids.")


def _refuse_nulls(columns: list[pa.Array], width: int, name: str, location: Location) -> None:
    """Nulls are an error; each row of a column is `width` entries long."""
    masks = [pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns if column.null_count]
    if not masks:
        return
    bad = np.logical_or.reduce(masks).reshape(-1, width).any(axis=1)
    rows = np.flatnonzero(bad)
    found = f"no value in {len(rows)} of {len(bad)} rows read together, first {location.rows(rows)}"
    remedy = "Fill in the missing values, or leave these rows out of the file."
    raise bad_input("values are missing", location.column(name), found, "a value in every row", remedy)
