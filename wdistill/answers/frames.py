"""Answers and gold labels that are in memory: pandas, polars, Arrow, Hugging Face datasets, NumPy, torch, plain columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from wdistill.core import store
from wdistill.core.errors import bad_input, wrong_type
from wdistill.tables.output import parquet_writer

EXPECTED = (
    "a path, a pandas or polars frame, a pandas Series, an Arrow table, a Hugging Face dataset, a dict of columns, "
    "a list of dicts, or an array (n, K)"
)


def to_arrow(frame: Any, name: str, *, indexed: bool = False) -> pa.Table:
    """A frame as an Arrow table; `indexed`: the index of pandas is the column `id`, where there is no such column."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, list) and frame and all(isinstance(row, dict) for row in frame):
        names = dict.fromkeys(name for row in frame for name in row)
        return _from_columns({each: [row.get(each) for row in frame] for each in names}, name)
    if isinstance(frame, Mapping):
        return _from_columns(frame, name)
    array = frame.detach().cpu().numpy() if hasattr(frame, "detach") else frame
    if isinstance(array, np.ndarray) and array.ndim == 2:
        flat = pa.array(np.ascontiguousarray(array, np.float64).ravel())
        return pa.table({"teacher": pa.FixedSizeListArray.from_arrays(flat, array.shape[1])})
    if _is_pandas(frame):
        return _from_pandas(frame, name, indexed)
    if hasattr(frame, "with_format") and hasattr(frame, "num_rows"):  # a dataset of Hugging Face, not a stream of one
        return _from_dataset(frame)
    if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
        return pa.table(frame)
    raise wrong_type("this is no table", name, frame, EXPECTED, "turn it into one of these")


def _from_columns(frame: Mapping[str, Any], name: str) -> pa.Table:
    columns = {key: _column(values) for key, values in frame.items()}
    odd = [key for key, values in columns.items() if isinstance(values, str | bytes) or not hasattr(values, "__len__")]
    odd += [key for key, values in columns.items() if hasattr(values, "with_format")]  # the splits of a dataset
    if odd:
        found, expected = f"{odd[0]!r}: {type(columns[odd[0]]).__name__}", "names of columns, each with its values"
        remedy = 'pass {"id": […], "label": […]}, or one split of a dataset'
        raise bad_input("this is no dict of columns", name, found, expected, remedy)
    lengths = {key: len(values) for key, values in columns.items()}
    if len({*lengths.values()}) > 1:
        found = ", ".join(f"{key} ({length:,})" for key, length in [*lengths.items()][:10])
        raise bad_input("columns of different lengths", name, found, "one value a row in each", "complete the columns")
    return pa.table(columns)


# pandas ---------------------------------------------------------------------------------------------------------------


def _is_pandas(frame: Any) -> bool:
    return hasattr(frame, "iloc") and hasattr(frame, "index")


def _has_ids(frame: Any) -> bool:
    return "id" in getattr(frame, "columns", ())


def _is_counted(frame: Any) -> bool:
    """Whether the index only counts the rows, as it does where nobody has set one."""
    return frame.index.name is None and list(frame.index) == list(range(len(frame)))


def uses_index(frames: Mapping[str, Any]) -> bool:
    """Whether ids stand in an index of pandas; refused where it is not clear which ids are meant."""
    pandas = {name: frame for name, frame in frames.items() if _is_pandas(frame)}
    indexed = [name for name, frame in pandas.items() if not _has_ids(frame) and not _is_counted(frame)]
    for name, frame in pandas.items():
        doubtful = indexed and _has_ids(frame) and not _is_counted(frame)
        if doubtful and list(map(str, frame.index)) != list(map(str, frame["id"])):
            found = f"a column 'id' and another index; {indexed[0]} has an index alone"
            expected, remedy = (
                "ids in a column 'id', or in the index, of all frames",
                "reset_index(drop=True) or set_index('id')",
            )
            raise bad_input("it is not clear which ids are meant", name, found, expected, remedy)
    return bool(indexed)


def _from_pandas(frame: Any, name: str, indexed: bool) -> pa.Table:
    if not hasattr(frame, "columns"):
        if not indexed:
            found, remedy = (
                "a Series whose index counts its rows",
                "set its index to the ids, or pass a frame with a column 'id'",
            )
            raise bad_input("no ids", name, found, "a Series that is indexed by id", remedy)
        frame = frame.to_frame(frame.name if isinstance(frame.name, str) else "label")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if not indexed or "id" in table.column_names:
        return table
    ids = pa.array([str(value) for value in frame.index])
    own = frame.index.name
    table = table.append_column("id", ids)
    return table.append_column(own, ids) if isinstance(own, str) and own not in table.column_names else table


def _from_dataset(dataset: Any) -> pa.Table:
    """A dataset of Hugging Face, with the names of classes in place of their numbers."""
    table: pa.Table = dataset.with_format("arrow")[:]
    for name, feature in dataset.features.items():
        names = getattr(feature, "names", None)
        if names:
            numbers = table[name].combine_chunks()
            known = pc.if_else(pc.greater_equal(numbers, 0), numbers, None)  # −1 stands for no label
            table = table.set_column(table.column_names.index(name), name, pa.array(names, pa.string()).take(known))
    return table


def _column(values: Any) -> Any:
    """A column of a dict: matrices become lists."""
    array = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return array.tolist() if isinstance(array, np.ndarray) and array.ndim > 1 else array


@contextmanager
def as_files(**frames: Any) -> Iterator[Callable[[str], str | None]]:
    """A function that gives the path of each by name; what is in memory is copied into files, until the block ends."""
    with TemporaryDirectory(prefix="wdistill-") as folder:
        paths: dict[str, str | None] = {}
        indexed = uses_index(frames)
        for name, frame in frames.items():
            if frame is None or isinstance(frame, str | Path):
                paths[name] = None if frame is None else str(frame)
                continue
            table, path = to_arrow(frame, name, indexed=indexed), Path(folder) / f"{name}.parquet"
            kept = stored(table, name)
            with store.writing(path) as file, parquet_writer(file, kept.schema) as writer:
                writer.write_table(kept)
            paths[name] = str(path)
        yield paths.__getitem__


def stored(table: pa.Table, name: str) -> pa.Table:
    """The same columns without kinds of strings, lists and categories that are not read back as they are."""
    fields, columns = list[pa.Field](), list[pa.ChunkedArray]()
    for field, column in zip(table.schema, table.columns, strict=True):
        fields.append(pa.field(field.name, _storable(field.type)))
        try:
            if types.is_dictionary(field.type):
                column = pa.chunked_array([_decoded(chunk) for chunk in column.chunks], fields[-1].type)
            columns.append(column.cast(fields[-1].type))
        except pa.ArrowNotImplementedError:
            where, expected = f"{name}, column {field.name!r}", "numbers, text, categories, and lists or structs of these"
            remedy = "turn it into one of these, or leave it out"
            raise bad_input("a column cannot be read", where, str(field.type), expected, remedy) from None
    return pa.table(columns, pa.schema(fields))


def _decoded(chunk: pa.DictionaryArray) -> pa.Array:
    """Categories as their values; Arrow itself cannot do that where these are string views."""
    values = chunk.dictionary.cast(_storable(chunk.type.value_type))
    return pa.DictionaryArray.from_arrays(chunk.indices, values).dictionary_decode()


def _storable(kind: pa.DataType) -> pa.DataType:
    if types.is_dictionary(kind):
        return _storable(kind.value_type)
    if types.is_string_view(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_fixed_size_list(kind):
        return pa.list_(_storable(kind.value_type), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(_storable(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _storable(field.type)) for field in kind])
    return kind
