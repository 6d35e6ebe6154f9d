"""Batches of Arrow columns turned into ids, matrices and vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from wdistill.errors import InputError
from wdistill.readers.layout import Place, listing
from wdistill.readers.plan import is_listed, is_text

FIRST_ROWS = 5  # bad rows shown in one message


@dataclass(frozen=True)
class Spot:
    """Where a batch comes from: a file, the number of its first row, and its ids once they are known."""

    place: Place
    first: int
    ids: pa.Array | None = None

    def column(self, name: str) -> str:
        return f"{self.place}, column {name!r}"

    def rows(self, indices: NDArray[np.int64]) -> str:
        """The first few rows, by number and id."""
        shown = indices[:FIRST_ROWS]
        more = ", …" if len(indices) > FIRST_ROWS else ""
        text = f"row{'s' if len(indices) > 1 else ''} {listing([int(self.first + i) for i in shown])}{more} (from 0"
        known = f"; id {listing([repr(self.ids[int(i)].as_py()) for i in shown])}{more}" if self.ids is not None else ""
        return f"{text}{known})"


def to_ids(values: pa.Array, spot: Spot) -> pa.Array:
    """Ids as int64 or string, without nulls."""
    values = _decoded(values)
    _refuse_nulls([values], 1, "id", spot)
    ids = values.cast(pa.string()) if is_text(values.type) else _integers(values, "id", spot)
    ids.validate(full=True)
    return ids


def to_vector(values: pa.Array, name: str, spot: Spot) -> NDArray[Any]:
    """One value a row, (rows,): int64, float64, bool or str."""
    values = _decoded(values)
    _refuse_nulls([values], 1, name, spot)
    if types.is_integer(values.type):
        values = _integers(values, name, spot)
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if is_text(values.type):
        return array.astype(np.str_)
    return np.require(array, np.float64 if array.dtype.kind == "f" else array.dtype, ["C", "W"])


def to_matrix(columns: list[pa.Array], name: str, width: int | None, spot: Spot) -> NDArray[Any]:
    """K numbers a row, (rows, K), from one column of lists or from K columns of numbers."""
    _refuse_nulls(columns, 1, name, spot)
    if is_listed(columns[0].type):
        return _from_lists(columns[0], name, width, spot)
    return np.stack([_floats(column) for column in columns], axis=1)


def _from_lists(lists: pa.Array, name: str, width: int | None, spot: Spot) -> NDArray[Any]:
    lengths = pc.list_value_length(lists).to_numpy()
    width = int(lengths[0]) if width is None else width
    wrong = np.flatnonzero(lengths != width)
    if len(wrong) or not width:
        bad = int(wrong[0]) if len(wrong) else 0
        raise InputError(
            "a list has the wrong length",
            where=spot.column(name),
            found=f"{int(lengths[bad])} entries in {spot.rows(np.array([bad]))}",
            expected=f"{width} entries, as in the rows before" if width else "one entry a class",
            remedy="Write one number a class, in the same order, in every row.",
        )
    values = lists.flatten()
    _refuse_nulls([values], width, name, spot)
    return np.require(_floats(values).reshape(-1, width), requirements=["C", "W"])


def _floats(values: pa.Array) -> NDArray[Any]:
    """Floats as stored, integers and booleans as float64."""
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _integers(values: pa.Array, name: str, spot: Spot) -> pa.Array:
    if types.is_uint64(values.type):
        large = np.flatnonzero(values.to_numpy() > np.iinfo(np.int64).max)
        if len(large):
            raise InputError(
                f"{len(large)} integers are too large",
                where=spot.column(name),
                found=f"{values[int(large[0])]} in {Spot(spot.place, spot.first).rows(large)}",
                expected=f"integers up to {np.iinfo(np.int64).max}",
                remedy="Write these numbers as strings.",
            )
    return values.cast(pa.int64())


def _decoded(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def _refuse_nulls(columns: list[pa.Array], width: int, name: str, spot: Spot) -> None:
    """Nulls are an error; each row of a column is `width` entries long."""
    masks = [pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns if column.null_count]
    if not masks:
        return
    bad = np.logical_or.reduce(masks).reshape(-1, width).any(axis=1)
    rows = np.flatnonzero(bad)
    raise InputError(
        "values are missing",
        where=spot.column(name),
        found=f"no value in {len(rows)} of {len(bad)} rows read together, first {spot.rows(rows)}",
        expected="a value in every row",
        remedy="Fill in the missing values, or leave these rows out of the file.",
    )
