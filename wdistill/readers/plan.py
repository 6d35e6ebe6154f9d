"""Which columns of a file hold what was asked for."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
from pyarrow import types

from wdistill.errors import InputError
from wdistill.readers.layout import Place, listing


@dataclass(frozen=True)
class Plan:
    """The columns to read and what becomes of them."""

    schema: pa.Schema  # the columns on disk, with the types that text is converted to
    matrices: Mapping[str, tuple[str, ...]]  # one list column, or one column a class
    vectors: tuple[str, ...]
    row_numbers: bool  # the file has no ids, its rows are counted
    kinds: Mapping[str, tuple[str, ...]]  # what has to be the same in every file of a table


def resolve(
    schema: pa.Schema, place: Place, matrices: Sequence[str], vectors: Sequence[str], *, typed: bool, row_numbers: bool
) -> Plan:
    """Find the columns in the schema of one file. `typed`: the file itself says what type a column has."""
    row_numbers = row_numbers and "id" not in schema.names
    on_disk = {name: _matrix(schema, place, name, typed) for name in matrices}
    fields = [] if row_numbers else [_id(schema, place)]
    kinds: dict[str, tuple[str, ...]] = {} if row_numbers else {"id": (_kind(fields[0], typed=True),)}
    for name, members in on_disk.items():
        fields += [pa.field(member, _as_float(schema.field(member).type)) for member in members]
        kinds[name] = tuple(_kind(schema.field(member), typed) for member in members)
    for name in vectors:
        fields.append(_vector(schema, place, name))
        kinds[name] = (_kind(fields[-1], typed),)
    return Plan(pa.schema(fields), on_disk, tuple(vectors), row_numbers, kinds)


def check_names(names: Sequence[str], place: Place) -> None:
    """Refuse a file in which a column has no name, or two columns have the same."""
    if "" in names:
        raise InputError(
            f"column number {names.index('') + 1} has no name",
            where=str(place),
            found=f"columns {listing([repr(name) for name in names])}",
            expected="a name for every column",
            remedy="Write a name for every column in the header of the file.",
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            "two columns have the same name",
            where=str(place),
            found=f"more than one of {listing([repr(name) for name in twice])}",
            expected="every column name once",
            remedy="Rename one of the columns, or leave one out.",
        )


def check_drift(plan: Plan, place: Place, first: Plan, first_place: Place) -> None:
    """Refuse a file whose columns differ from those of the table's first file."""
    for column, kind in first.kinds.items():
        if plan.kinds.get(column) == kind:
            continue
        pairs = [pair for pair in zip_longest(plan.kinds.get(column, ()), kind, fillvalue="nothing") if len({*pair}) > 1]
        raise InputError(
            f"the files of this table differ in column {column!r}",
            where=str(place),
            found=listing([here for here, _ in pairs]),
            expected=f"{listing([there for _, there in pairs])}, as in {first_place.path}",
            remedy="Write all files of one table with the same columns and types.",
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
    plain = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain))


def _id(schema: pa.Schema, place: Place) -> pa.Field:
    field = _named(schema, place, "id")
    if not is_text(field.type) and not types.is_integer(_plain(field.type)):
        raise _wrong_type(place, field, "integers or strings", "Write the ids as integers or as strings.")
    return field


def _vector(schema: pa.Schema, place: Place, column: str) -> pa.Field:
    field = _named(schema, place, column)
    prefix, _, tail = column.rpartition("_")
    group = wide(schema, prefix) if prefix and _digits(tail) else ()
    if len(group) > 1 and _missing_numbers(group, prefix) == []:
        raise InputError(
            f"column {column!r} is one class of {prefix!r}, not a column of its own",
            where=str(place),
            found=f"the columns {listing(group)}",
            expected="a column of one value a row",
            remedy=f"Name another column, or rename {column!r} so that it does not end in a number.",
        )
    if not is_text(field.type) and not is_number(_plain(field.type)):
        raise _wrong_type(place, field, "one number or string a row", "Write one value a row, or name another column.")
    return field


def _matrix(schema: pa.Schema, place: Place, column: str, typed: bool) -> tuple[str, ...]:
    if _is_list(schema, column):
        field = schema.field(column)
        if not is_number(field.type.value_type):
            raise _wrong_type(place, field, "lists of numbers", "Write one number a class in every list.")
        return (column,)
    members = wide(schema, column)
    if not members:
        remedy = f"Write a list of numbers a row, or one column a class: {column}_0, {column}_1 and so on."
        raise _wrong_type(place, _named(schema, place, column), "lists of numbers", remedy)
    if missing := _missing_numbers(members, column):
        raise InputError(
            f"column {column!r} is not complete",
            where=str(place),
            found=f"{listing(members)}, without {listing(missing)}",
            expected=f"{column}_0, {column}_1 and so on, each number once",
            remedy="Write one column for every class, numbered from 0 without gaps.",
        )
    for member in members if typed else ():
        if not is_number(schema.field(member).type):
            raise _wrong_type(place, schema.field(member), "numbers", "Write one number a row and class.")
    return members


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


def _named(schema: pa.Schema, place: Place, column: str) -> pa.Field:
    """The field of that name, or an error that shows what there is and what may have been meant."""
    if column in schema.names:
        return schema.field(column)
    lowered = {name.lower(): name for name in schema.names}
    near = difflib.get_close_matches(column.lower(), lowered, 1)
    meant = f"Rename {lowered[near[0]]!r} to {column!r}, if that is the column meant." if near else ""
    raise InputError(
        f"there is no column {column!r}",
        where=str(place),
        found=f"columns {listing([repr(name) for name in schema.names])}",
        expected=f"a column {column!r}",
        remedy=meant or f"Write the file with a column {column!r}, or name another file.",
    )


def _wrong_type(place: Place, field: pa.Field, expected: str, remedy: str) -> InputError:
    where = f"{place}, column {field.name!r}"
    found = "nothing: no rows, or nulls alone" if pa.types.is_null(field.type) else str(field.type)
    return InputError("the column has the wrong type", where=where, found=found, expected=expected, remedy=remedy)


def _kind(field: pa.Field, typed: bool) -> str:
    return f"{field.name} ({_words(field.type)})" if typed else str(field.name)


def _words(kind: pa.DataType) -> str:
    """A type without the differences that vanish in reading."""
    if is_text(kind):
        return "string"
    return f"lists of {kind.value_type}" if is_listed(kind) else str(_plain(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if types.is_dictionary(kind) else kind


def _as_float(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.float64()) if is_listed(kind) else pa.float64()


def _is_list(schema: pa.Schema, column: str) -> bool:
    return column in schema.names and is_listed(schema.field(column).type)


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
