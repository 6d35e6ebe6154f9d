"""Ids of answers and gold labels: compared as text, and refused where their text would not be what was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from wdistill.answers.forms import as_text
from wdistill.core.errors import InputError, bad_input

WITHOUT_IDS = (  # what to do in a table that has none
    "; if there are none, number the rows before they are sent to the model, or put the labels into the answers, as a "
    "column: --label COLUMN"
)
EXACT = 2.0**53  # from here on a float64 skips whole numbers


def text_ids(column: pa.Array, name: str, where: str, first: int) -> pa.Array:
    """A column of ids as strings; `first`: the number of its first row."""
    values = column.dictionary_decode() if types.is_dictionary(column.type) else column
    if types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(~_is_exact(numbers))
        if len(odd):
            raise _rounded(float(numbers[odd[0]]), where, name, first + odd)
        whole = pa.array(numbers.astype(np.int64)).cast(pa.string())
        values = pa.array(
            np.where(values.is_valid().to_numpy(zero_copy_only=False), whole.to_numpy(False), None), pa.string()
        )
    ids = as_text(values)
    missing = np.flatnonzero(~ids.is_valid().to_numpy(zero_copy_only=False))
    if len(missing):
        raise _missing(f"at least {len(missing):,} rows", where, name, first + missing)
    return ids


def ids_of_records(values: Sequence[Any], name: str, where: str, first: int = 0, *, all_rows: bool) -> list[str]:
    """The ids of records as text; `first`: the number of the first; `all_rows`: there are no others."""
    missing = [row for row, value in enumerate(values, first) if value is None or value == ""]
    if missing:
        raise _missing(f"{'' if all_rows else 'at least '}{len(missing):,} rows", where, name, missing)
    return [_text_id(value, name, where, row) for row, value in enumerate(values, first)]


def _text_id(value: Any, name: str, where: str, row: int) -> str:
    if isinstance(value, float):
        if not bool(_is_exact(np.array([value]))[0]):
            raise _rounded(value, where, name, [row])
        return str(int(value))
    return str(value)


def _is_exact(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(numbers) < EXACT) & (numbers == np.rint(numbers)))


def _missing(found: str, where: str, name: str, rows: Any) -> InputError:
    remedy = "give every row an id, or leave the rows out"
    return bad_input("rows without an id", where, found, f"a value in {name!r}", remedy, rows)


def _rounded(value: float, where: str, name: str, rows: Any) -> InputError:
    found, expected = f"{len(rows)} such ids, such as {value!r}", "text, or whole numbers below 2^53"
    remedy = f"write {name!r} as text, in quotes: as numbers such ids are rounded, and can not be joined"
    return bad_input("ids that are no exact whole numbers", where, found, expected, remedy, rows)
