"""Columns of numbers, categories or vectors as one matrix of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from wdistill.answers.forms import as_text
from wdistill.core.errors import bad_input

CATEGORIES = 100  # of one column, the most common ones


@dataclass(frozen=True)
class InputColumns:
    """How columns become numbers: a number as it is, a list spread out, a category as one number for each of its values."""

    widths: Mapping[str, int]  # of columns of numbers (1) and lists
    categories: Mapping[str, tuple[str, ...]]  # of columns of text

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array], where: str) -> InputColumns:
        """Told by some rows."""
        widths, categories = dict[str, int](), dict[str, tuple[str, ...]]()
        for name, column in columns.items():
            kind = column.type
            if _is_listed(kind):
                lengths = pc.unique(pc.list_value_length(column).drop_null()).to_pylist()
                if len(lengths) != 1 or not lengths[0]:
                    raise bad_input(
                        "lists of different lengths", f"{where}, column {name!r}", f"{lengths[:5]}", "one length", FILL
                    )
                widths[name] = int(lengths[0])
            elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
                widths[name] = 1
            else:
                counts = pc.value_counts(as_text(column).drop_null())
                order = sorted(
                    zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True), key=_rank
                )
                categories[name] = tuple(value for value, _ in order[:CATEGORIES])
        return cls(widths, categories)

    def __call__(self, columns: Mapping[str, pa.Array], where: str) -> NDArray[np.float32]:
        """Inputs (n, d)."""
        parts = [self._part(name, column, where) for name, column in columns.items()]
        return np.concatenate(parts, axis=1)

    def _part(self, name: str, column: pa.Array, where: str) -> NDArray[np.float32]:
        if name in self.categories:
            position = pc.index_in(as_text(column), pa.array(self.categories[name], pa.string()))
            part = np.zeros((len(column), len(self.categories[name])), np.float32)
            known = np.flatnonzero(position.is_valid().to_numpy(zero_copy_only=False))
            part[known, position.drop_null().to_numpy()] = 1.0
            return part
        width = self.widths[name]
        flat = column.flatten() if _is_listed(column.type) else column
        try:
            values = pc.cast(flat, pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            expected = "numbers, as in the other rows"
            raise bad_input("values of another kind", f"{where}, column {name!r}", error, expected, FILL) from None
        if len(values) != width * len(column) or not np.isfinite(values).all():
            bad = np.flatnonzero(~np.isfinite(values)) // width
            found = f"{len(np.unique(bad))} rows with missing or infinite numbers" if len(bad) else "lists of other lengths"
            raise bad_input(
                "inputs are missing", f"{where}, column {name!r}", found, "finite numbers in every row", FILL, np.unique(bad)
            )
        return np.asarray(values, np.float32).reshape(len(column), width)


FILL = "fill in what is missing, or leave the column out"


def deviations(inputs: NDArray[np.floating]) -> NDArray[np.float32]:
    """Standard deviations (d,) of columns (n, d); 1 where a column is constant."""
    found = inputs.std(axis=0)
    return np.where(found > 1e-6 * np.maximum(1.0, abs(inputs.mean(axis=0))), found, 1.0).astype(np.float32)


def _is_listed(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _rank(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def texts_of(column: pa.Array) -> Sequence[str | None]:
    """A column of texts."""
    texts: list[str | None] = as_text(column).to_pylist()
    return texts
