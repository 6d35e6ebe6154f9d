"""Answers and gold labels that are in memory: pandas, polars, Arrow, Hugging Face datasets, NumPy, torch, plain columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from wdistill.core import store
from wdistill.core.errors import wrong_type
from wdistill.tables.output import parquet_writer

EXPECTED = "a path, a pandas or polars frame, an Arrow table, a Hugging Face dataset, a dict of columns, or an array (n, K)"


def to_arrow(frame: Any, name: str) -> pa.Table:
    """A frame as an Arrow table. An index of pandas that is no plain count becomes the column `id`, unless there is one."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        return pa.table({key: _column(values) for key, values in frame.items()})
    array = frame.detach().cpu().numpy() if hasattr(frame, "detach") else frame
    if isinstance(array, np.ndarray) and array.ndim == 2:
        flat = pa.array(np.ascontiguousarray(array, np.float64).ravel())
        return pa.table({"teacher": pa.FixedSizeListArray.from_arrays(flat, array.shape[1])})
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas
        return _from_pandas(frame)
    if hasattr(frame, "with_format"):  # a dataset of Hugging Face
        table: pa.Table = frame.with_format("arrow")[:]
        return table
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise wrong_type("this is no table", name, frame, EXPECTED, "turn it into one of these")


def _from_pandas(frame: Any) -> pa.Table:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    counted = list(frame.index) == list(range(len(frame)))
    if counted or "id" in table.column_names:
        return table
    return table.append_column("id", pa.array([str(value) for value in frame.index]))


def _column(values: Any) -> Any:
    """A column of a dict: matrices become lists."""
    array = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return array.tolist() if isinstance(array, np.ndarray) and array.ndim > 1 else array


@contextmanager
def as_files(**frames: Any) -> Iterator[Callable[[str], str | None]]:
    """A function that gives the path of each by name; what is in memory is copied into files, until the block ends."""
    with TemporaryDirectory(prefix="wdistill-") as folder:
        paths: dict[str, str | None] = {}
        for name, frame in frames.items():
            if frame is None or isinstance(frame, str | Path):
                paths[name] = None if frame is None else str(frame)
                continue
            table, path = to_arrow(frame, name), Path(folder) / f"{name}.parquet"
            with store.writing(path) as file, parquet_writer(file, storable(table.schema)) as writer:
                writer.write_table(table.cast(storable(table.schema)))
            paths[name] = str(path)
        yield paths.__getitem__


def storable(schema: pa.Schema) -> pa.Schema:
    """The same columns without kinds of strings and categories that parquet files do not keep."""

    def kept(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return kept(kind.value_type)
        return pa.string() if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else kind

    return pa.schema([field.with_type(kept(field.type)) for field in schema]).remove_metadata()
