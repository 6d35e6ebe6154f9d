"""The SHA-256 of what a table says: its columns, row by row, however they are chunked, compressed and laid out in a file."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types


class ContentDigest:
    """A digest that grows batch by batch; the chunks do not matter, the order of rows and columns does."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {}  # of every column: its values, and the lengths of strings

    def add(self, batch: pa.RecordBatch) -> None:
        for field in batch.schema:
            kind = field.type.value_type if types.is_fixed_size_list(field.type) else field.type
            name = f"{field.name}: {'string' if types.is_string(kind) else kind}"
            values, lengths = self._columns.setdefault(name, [hashlib.sha256(), hashlib.sha256()])
            column = batch.column(field.name)
            flat = column.flatten() if types.is_fixed_size_list(field.type) else column
            if types.is_floating(kind):
                flat = flat.fill_null(float("nan"))  # npz files have no nulls
            if types.is_string(kind):
                texts = [None if text is None else text.encode() for text in flat.to_pylist()]
                values.update(b"".join(filter(None, texts)))
                lengths.update(np.array([-1 if text is None else len(text) for text in texts], "<i8").tobytes())
            else:
                array = flat.to_numpy(zero_copy_only=False)
                values.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())

    def hexdigest(self) -> str:
        whole = hashlib.sha256()
        for name, parts in self._columns.items():
            whole.update("\n".join([name, *(part.hexdigest() for part in parts), ""]).encode())
        return whole.hexdigest()
