"""Texts or inputs of answered rows as the arrays that a student reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.answers.input_columns import InputColumns, texts_of
from wdistill.answers.pool import AnswerPool, missing_rows
from wdistill.answers.row_models import Values
from wdistill.tables.join import keys, refuse_repeats, repeated_ids
from wdistill.text.features import TextFeatures, fit_features
from wdistill.text.integers import text_rows

Encode = Callable[[Values, str], NDArray[Any]]  # texts or inputs of n rows, and their place for messages → (n, …)


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Texts as rows of hashed words and pairs of words."""

    column: str
    features: TextFeatures

    def __call__(self, values: Values, where: str) -> NDArray[Any]:
        return text_rows(texts_of(values[self.column]), self.features)

    @property
    def record(self) -> dict[str, Any]:
        """What a record of the student says of its inputs."""
        return {"text": self.column}


@dataclass(frozen=True, eq=False)
class InputEncoder:
    """Columns of numbers, categories and vectors, side by side."""

    names: tuple[str, ...]
    columns: InputColumns

    def __call__(self, values: Values, where: str) -> NDArray[Any]:
        return self.columns(values, where)

    @property
    def record(self) -> dict[str, Any]:
        """What a record of the student says of its inputs, in their order."""
        widths, categories = self.columns.widths, self.columns.categories
        kinds = [
            {"categories": list(categories[name])} if name in categories else {"width": widths[name]} for name in self.names
        ]
        return {"inputs": [{"name": name, **kind} for name, kind in zip(self.names, kinds, strict=True)]}


def fit_encoder(pool: AnswerPool) -> TextEncoder | InputEncoder:
    """An encoder of the columns that the options name, fitted to the rows of the pool."""
    column = pool.options.text
    if column is None:
        _, values, where = next(pool.value_batches())
        return InputEncoder(pool.value_columns, InputColumns.of(values, where))

    texts = (texts_of(values[column]) for _, values, _ in pool.value_batches("reading texts"))
    return TextEncoder(column, fit_features(texts))


def encode_rows(pool: AnswerPool, ids: pa.Array, encode: Encode, named: str = "") -> NDArray[Any]:
    """The rows with these ids (n,), in their order, as the encoder makes them (n, …); `named` is where the ids stand."""
    wanted = keys(ids)
    order = np.argsort(wanted)
    ordered, there = wanted[order], np.zeros(len(wanted), bool)
    encoded: NDArray[Any] | None = None
    for batch_ids, values, where in pool.value_batches("encoding rows"):
        own = keys(batch_ids)
        at = np.minimum(np.searchsorted(ordered, own), len(ordered) - 1)
        rows = np.flatnonzero(ordered[at] == own)
        if len(rows):
            refuse_repeats(batch_ids.take(pa.array(rows)), where)
            again = batch_ids.take(pa.array(rows[there[order[at[rows]]]])).to_pylist()
            if again:
                raise repeated_ids(where, f"such as {', '.join(map(repr, again[:5]))}")
            part = encode({name: column.take(pa.array(rows)) for name, column in values.items()}, where)
            encoded = np.zeros((len(wanted), *part.shape[1:]), part.dtype) if encoded is None else encoded
            encoded[order[at[rows]]], there[order[at[rows]]] = part, True
    if encoded is None or not there.all():
        raise missing_rows(pool, int((~there).sum()), len(there), ids.filter(pa.array(~there)).to_pylist(), named)
    return encoded


def present_ids(pool: AnswerPool, ids: Sequence[str]) -> list[str]:
    """Of these ids, those whose texts or inputs are there, in their order."""
    wanted = pa.array(ids, pa.string())
    if not len(wanted):
        return []
    found = {key for each, _, _ in pool.value_batches() for key in each.filter(pc.is_in(each, value_set=wanted)).to_pylist()}
    return [key for key in ids if key in found]
