"""Stored predictions: a number a class in lists of one length, or the k largest of every row with the mass of all others.

A column of the k largest is a struct: `classes` (k class numbers a row, the most likely first, equals by number),
`probabilities` (of these) and `missing` (the sum over all other classes: the missing mass of the row). The metadata of its
field tells the number of classes K. Read, the other classes share the missing mass evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from wdistill.core import checks

Precision = Literal["float16", "float32"]
CLASSES, PROBABILITIES, MISSING = "classes", "probabilities", "missing"
COUNT = b"wdistill.classes"  # key of the number of classes in the metadata of a field
MOST_CLASSES = 1 << 20
SHORT = 1 << 15  # classes whose numbers fit 16 bits


@dataclass(frozen=True)
class StoredPredictions:
    """How predictions are stored: their precision, and how many of a row, all or the k largest."""

    precision: Precision
    top_k: int | None = None

    def field(self, name: str, classes: int) -> pa.Field:
        """The column of predictions over so many classes."""
        number = pa.from_numpy_dtype(np.dtype(self.precision))
        if self.top_k is None:
            return pa.field(name, _list(number, classes), nullable=False)
        short = pa.int16() if classes <= SHORT else pa.int32()
        parts = {CLASSES: _list(short, self.top_k), PROBABILITIES: _list(number, self.top_k), MISSING: pa.float32()}
        kind = pa.struct([pa.field(part, each, nullable=False) for part, each in parts.items()])
        return pa.field(name, kind, nullable=False, metadata={COUNT: str(classes).encode()})

    def column(self, values: NDArray[Any]) -> pa.Array:
        """Probabilities (n, K), rounded; the k largest are chosen after that."""
        kind = self.field("", values.shape[1]).type
        flat = pc.cast(pa.array(values.astype(np.float32).ravel()), self.precision)  # five times as fast as NumPy's float16
        if self.top_k is None:
            return pa.FixedSizeListArray.from_arrays(flat, type=kind)
        numbers, probabilities = largest(flat.to_numpy().reshape(values.shape), self.top_k)
        wide = values.astype(np.float64)
        missing = np.maximum(wide.sum(axis=1) - np.take_along_axis(wide, numbers, axis=1).sum(axis=1), 0.0)
        short = numbers.astype(kind.field(CLASSES).type.value_type.to_pandas_dtype())
        parts = [
            pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), type=kind.field(name).type)
            for name, part in ((CLASSES, short), (PROBABILITIES, probabilities))
        ]
        return pa.StructArray.from_arrays([*parts, pa.array(missing.astype(np.float32))], fields=list(kind))


def _list(number: pa.DataType, length: int) -> pa.DataType:
    return pa.list_(pa.field("element", number, nullable=False), length)


def largest(values: NDArray[Any], k: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Numbers and values (n, k) of the k largest of every row (n, K), the largest first, equals by number; none below 0.

    Floats of one sign are in the order of their bits: bits and number together are one whole number, and no two are equal.
    """
    classes, size = values.shape[1], values.dtype.itemsize
    half = 2 if size == 2 and classes <= 1 << 16 else 4  # bytes of the bits, and of the number
    key: Any = np.dtype(f"u{2 * half}").type
    shift, last = key(8 * half), (1 << 8 * half) - 1
    bits = np.abs(values).view(f"u{size}").astype(key)  # −0.0 becomes 0.0
    keys = (bits << shift) | (last - np.arange(classes)).astype(key)
    top = np.sort(np.partition(keys, classes - k, axis=1)[:, classes - k :], axis=1)[:, ::-1]
    found = np.ascontiguousarray((top >> shift).astype(f"u{size}")).view(values.dtype)
    return last - (top & key(last)).astype(np.int64), found


def writing(schema: pa.Schema) -> dict[str, Any]:
    """How tables are written to parquet: compressed, and numbers without dictionaries, as few are there twice.

    Predictions are written byte by byte in streams, whole numbers as the differences of those that follow each other.
    """
    encodings = {path: "BYTE_STREAM_SPLIT" for each in schema for path in _leaves(each)}
    encodings |= {each.name: "DELTA_BINARY_PACKED" for each in schema if types.is_integer(each.type)}
    numbers = {*encodings, *(each.name for each in schema if types.is_floating(each.type))}
    others = [each.name for each in schema if each.name not in numbers and not _leaves(each)]
    return {"use_dictionary": others, "column_encoding": encodings or None, "compression": "zstd"}


def _leaves(field: pa.Field) -> list[str]:
    """The columns on disk of a column of predictions; none of another one."""
    if is_top_k(field.type):
        lists = [f"{field.name}.{part}.list.element" for part in (CLASSES, PROBABILITIES)]
        return [*lists, f"{field.name}.{MISSING}"]
    listed = types.is_fixed_size_list(field.type) and types.is_floating(field.type.value_type)
    return [f"{field.name}.list.element"] if listed else []


def is_top_k(kind: pa.DataType) -> bool:
    """Whether a column holds the k largest of every row."""
    if not types.is_struct(kind) or {each.name for each in kind} != {CLASSES, PROBABILITIES, MISSING}:
        return False
    numbers, probabilities = kind.field(CLASSES).type, kind.field(PROBABILITIES).type
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if not all(any(is_kind(each) for is_kind in lists) for each in (numbers, probabilities)):
        return False
    floats = probabilities.value_type, kind.field(MISSING).type
    return bool(types.is_integer(numbers.value_type) and all(map(types.is_floating, floats)))


def class_count(field: pa.Field) -> int | None:
    """The number of classes K of a column of the k largest, where its metadata tells a sensible one."""
    text = (field.metadata or {}).get(COUNT, b"")
    count = int(text) if text.isdigit() and len(text) < 9 else 0
    return count if 2 <= count <= MOST_CLASSES else None


def spread(
    numbers: NDArray[np.int64], probabilities: NDArray[Any], missing: NDArray[Any], classes: int
) -> NDArray[np.floating]:
    """Probabilities (n, K) from the k largest (n, k): the other classes share what is missing (n,), each less than any."""
    least, k = probabilities.min(axis=1), probabilities.shape[1]
    share = missing.astype(np.float64) / max(1, classes - k)
    below = np.where(
        share < least, share, np.nextafter(least, least.dtype.type(0))
    )  # of equals, rounding must make no winner
    rows = np.repeat(below.astype(least.dtype)[:, None], classes, axis=1)
    np.put_along_axis(rows, numbers, probabilities, axis=1)
    return rows


def faults(
    numbers: NDArray[np.int64], probabilities: NDArray[Any], missing: NDArray[Any], classes: int
) -> Iterator[tuple[str, NDArray[np.bool_], str]]:
    """What may be wrong with rows of the k largest, which of them (n,) have that fault, and what is expected."""
    k, allowed = probabilities.shape[1], checks.tolerance(probabilities.dtype.name, classes)
    outside = (numbers < 0) | (numbers >= classes)
    yield "class numbers out of range", np.asarray(outside.any(axis=1)), f"numbers 0 … {classes - 1}"
    in_order = np.sort(numbers, axis=1)
    twice = in_order[:, 1:] == in_order[:, :-1]
    yield "a class occurs twice in a row", np.asarray(twice.any(axis=1)), "every class once in a row"
    wide, rest = probabilities.astype(np.float64), missing.astype(np.float64)
    whole = np.column_stack([wide, rest])
    yield "not probabilities", np.asarray(~(np.isfinite(whole) & (whole >= 0)).all(axis=1)), "finite numbers of at least 0"
    with np.errstate(invalid="ignore", over="ignore"):
        off = ~(np.abs(wide.sum(axis=1) + rest - 1) <= allowed)
        yield "probabilities and missing mass do not sum to 1", off, f"a sum of 1 within {allowed:.1g}"
        much = ~(rest <= (classes - k) * wide.min(axis=1) + allowed)
    expected = f"at most the least probability of a row for each of the {classes - k} other classes"
    yield "the missing mass is too large for the k largest", much, expected
