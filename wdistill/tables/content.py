"""The SHA-256 of what a table says: its columns, row by row, however they are chunked, compressed and laid out in a file."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from wdistill.tables.formats.predictions import class_count, is_top_k


class ContentDigest:
    """A digest that grows batch by batch; the chunks do not matter, the order of rows and columns does."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {}  # of every column: its values, and the lengths of strings

    def add(self, batch: pa.RecordBatch) -> None:
        for field in batch.schema:
            if is_top_k(field.type):
                count = class_count(field)
                for part in field.type:
                    self._add(f"{field.name}.{part.name} of {count}", part.type, batch.column(field.name).field(part.name))
            else:
                self._add(field.name, field.type, batch.column(field.name))

    def _add(self, name: str, kind: pa.DataType, column: pa.Array) -> None:
        """The values of a column of one value a row, or of lists of one length."""
        flat = column.flatten() if types.is_fixed_size_list(kind) else column
        kind = kind.value_type if types.is_fixed_size_list(kind) else kind
        name = f"{name}: {'string' if types.is_string(kind) else kind}"
        values, lengths = self._columns.setdefault(name, [hashlib.sha256(), hashlib.sha256()])
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
