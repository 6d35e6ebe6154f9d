"""Thrift's compact protocol, as much of it as parquet uses: structures become dictionaries by the number of the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Convert = Callable[[Any], Any]
TRUE, FALSE, BYTE, I16, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 6, 7, 8, 9, 10, 12
DEEPEST = 16


def structure(
    data: bytes, at: int = 0, depth: int = 0, convert: Mapping[int, Convert] | None = None
) -> tuple[dict[int, Any], int]:
    """The structure at a byte, and the byte after it: an IndexError where it does not end, a ValueError where it is none.

    `convert` makes something smaller of each item of a list, by the number of its field.
    """
    fields: dict[int, Any] = {}
    number = 0
    if depth > DEEPEST:
        raise ValueError("a structure that is nested too deep")
    while head := data[at]:
        at += 1
        if head > 15:
            number += head >> 4
        else:
            number, at = integer(data, at)
        kind = head & 15
        if I16 <= kind <= I64:  # most fields; not by a call of its own, as there are many pages
            fields[number], at = integer(data, at)
        elif convert and number in convert and kind == LIST:
            fields[number], at = _list(data, at, depth, convert[number])
        else:
            fields[number], at = _value(data, at, kind, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if I16 <= kind <= I64:
        return integer(data, at)
    if kind == BINARY:
        length, at = varint(data, at)
        if at + length > len(data):
            raise IndexError
        return data[at : at + length], at + length
    if kind == STRUCT:
        return structure(data, at, depth + 1)
    if kind in (LIST, SET):
        return _list(data, at, depth)
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind in (BYTE, DOUBLE):
        return None, at + (1 if kind == BYTE else 8)
    raise ValueError(f"a field of kind {kind}")


def _list(data: bytes, at: int, depth: int, convert: Convert | None = None) -> tuple[list[Any], int]:
    kind, count = data[at] & 15, data[at] >> 4
    at += 1
    if count == 15:
        count, at = varint(data, at)
    if count > len(data) - at:
        raise IndexError
    values = []
    for _ in range(count):
        if kind in (TRUE, FALSE):
            value, at = data[at] == TRUE, at + 1
        else:
            value, at = _value(data, at, kind, depth + 1)
        values.append(convert(value) if convert else value)
    return values, at


def integer(data: bytes, at: int) -> tuple[int, int]:
    """A signed integer, and the byte after it."""
    value = data[at]
    if value < 128:
        return (value >> 1) ^ -(value & 1), at + 1
    value, at = varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of no sign, and the byte after it."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    while byte >= 128:
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number without an end")
    return value, at + 1
