"""Data from files: an npz file, a folder of npy files that are memory-mapped, or a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.core import npy
from wdistill.core.errors import WdistillError, bad_input, unreadable
from wdistill.methods.gold_design import check_groups, inclusion_weights
from wdistill.tables.formats.npz import read_arrays
from wdistill.tables.formats.schema import refuse_misnamed_ids
from wdistill.tables.formats.table import Chunk, Table, open_tables
from wdistill.tables.gold_design import column_values, naming_ids
from wdistill.training.data import Data
from wdistill.training.inputs import MemoryMapped

CHUNK = 1 << 11  # rows that are read at once
GROWN_LIMIT = 500  # times that the rows of a table may grow when they are read: sparse ones are packed well …
GROWN_FREE = 32 << 20  # … beyond this many bytes


@dataclass(frozen=True)
class DesignColumn:
    """A column that says how rows were drawn."""

    name: str
    needed: bool  # an error where it is not there


def read_data(path: Path, groups: DesignColumn | None = None, inclusion: DesignColumn | None = None) -> Data:
    """One split, with its groups and inclusion probabilities where columns of them are asked for and there."""
    columns = {"groups": groups, "inclusion": inclusion}
    asked = {what: column for what, column in columns.items() if column is not None}
    if path.is_dir() and (path / "inputs.npy").exists():
        there = {file.stem for file in path.glob("*.npy")}
        drawn = {what: _read_npy(path / f"{name}.npy") for what, name in _found(asked, there, path).items()}
        others = {name: _read_npy(path / f"{name}.npy") for name in ("label", "id") if name in there}
        inputs = MemoryMapped(path / "inputs.npy")
        inputs.check()
        return Data(inputs, others.get("label"), others.get("id"), **drawn)
    if path.suffix.lower() == ".npz" and path.is_file():
        return _read_npz(path, asked)
    return _read_table(path, asked)


def _found(asked: Mapping[str, DesignColumn], there: Collection[str], where: Path) -> dict[str, str]:
    """Those of the columns asked for that are there, by what they tell."""
    missing = [column.name for column in asked.values() if column.needed and column.name not in there]
    if missing:
        found, expected = f"columns {', '.join(sorted(there)[:30])}", f"a column {missing[0]!r}"
        raise bad_input(f"no column {missing[0]!r}", str(where), found, expected, "add the column, or name another one")
    return {what: column.name for what, column in asked.items() if column.name in there}


def _read_npy(path: Path) -> Any:
    return npy.mapped(path, "save it again", npy.NUMBERS + npy.WORDS)


def _read_npz(path: Path, asked: Mapping[str, DesignColumn]) -> Data:
    columns = ("inputs", "label", "labels", "id", *(column.name for column in asked.values()))
    try:
        names, arrays = read_arrays(path, "data", columns)
    except WdistillError:
        raise
    except Exception as error:  # whatever a damaged archive makes of its members
        expected = "arrays that numpy.savez wrote, none of objects"
        raise unreadable("not an npz file of numbers", path, error, expected, "save it again") from None
    refuse_misnamed_ids(names, str(path))
    if "inputs" not in arrays:
        found, remedy = ", ".join(arrays) or "other arrays", "save it with numpy.savez(path, inputs=…, label=…)"
        raise unreadable("no inputs", path, found, "inputs, and label where the truth is known", remedy)
    drawn = {what: arrays[name] for what, name in _found(asked, arrays, path).items()}
    return Data(arrays["inputs"], arrays.get("label", arrays.get("labels")), arrays.get("id"), **drawn)


def _read_table(path: Path, asked: Mapping[str, DesignColumn]) -> Data:
    (table,) = open_tables([str(path)], option="data")
    labeled = table.has("label")
    chunks, held, limit = list[Chunk](), 0, GROWN_FREE + GROWN_LIMIT * table.bytes
    for chunk in table.chunks(matrices=["inputs"], vectors=["label"] if labeled else [], rows=CHUNK):
        held += sum(values.nbytes for values in chunk.columns.values()) + chunk.ids.nbytes
        if held > limit:  # such data would be held in memory, whole
            found, expected = f"more than {limit:,} bytes of rows in {table.bytes:,} bytes", f"at most {limit:,} bytes"
            remedy = "save it as a folder of npy files, which is not read whole"
            raise unreadable("the rows grow too much", path, found, expected, remedy)
        chunks.append(chunk)
    inputs = np.concatenate([chunk.columns["inputs"] for chunk in chunks])
    labels = np.concatenate([chunk.columns["label"] for chunk in chunks]) if labeled else None
    ids = pa.concat_arrays([chunk.ids for chunk in chunks])
    drawn = {what: _drawn(table, what, name, ids) for what, name in _found(asked, table.columns, path).items()}
    return Data(inputs.astype(np.float32), labels, np.asarray(ids.to_pylist()), **drawn)


def _drawn(table: Table, what: str, name: str, ids: pa.Array) -> NDArray[Any]:
    """Groups or inclusion probabilities (n,) of rows with these ids, which errors name."""
    values, where = column_values([table], name, ids), f"{table.files[0]}, column {name!r}"
    with naming_ids(ids):
        if what == "groups":
            return check_groups(values, where, fewest=1)
        inclusion_weights(values, where)
    return values.astype(np.float64)
