"""Data from files: an npz file, a folder of npy files that are memory-mapped, or a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from wdistill.core.errors import unreadable
from wdistill.tables.formats.schema import refuse_misnamed_ids
from wdistill.tables.formats.table import open_tables
from wdistill.training.data import Data
from wdistill.training.inputs import MemoryMapped


def read_data(path: Path) -> Data:
    """One split."""
    if path.is_dir() and (path / "inputs.npy").exists():
        _read_npy(path / "inputs.npy")
        others = {name: _read_npy(path / f"{name}.npy") for name in ("label", "id") if (path / f"{name}.npy").exists()}
        return Data(MemoryMapped(path / "inputs.npy"), others.get("label"), others.get("id"))
    if path.suffix.lower() == ".npz" and path.is_file():
        return _read_npz(path)
    return _read_table(path)


def _read_npy(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        expected = "an array that numpy.save wrote, not of objects"
        raise unreadable("not an npy file of numbers", path, error, expected, "save it again") from None


def _read_npz(path: Path) -> Data:
    try:
        # the stream is ours: of a damaged archive, np.load would leave its own open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = file.files
            arrays = {name: file[name] for name in file.files if name in ("inputs", "label", "labels", "id")}
    except Exception as error:
        expected = "arrays that numpy.savez wrote, none of objects"
        raise unreadable("not an npz file of numbers", path, error, expected, "save it again") from None
    refuse_misnamed_ids(names, str(path))
    if "inputs" not in arrays:
        found, remedy = ", ".join(arrays) or "other arrays", "save it with numpy.savez(path, inputs=…, label=…)"
        raise unreadable("no inputs", path, found, "inputs, and label where the truth is known", remedy)
    return Data(arrays["inputs"], arrays.get("label", arrays.get("labels")), arrays.get("id"))


def _read_table(path: Path) -> Data:
    (table,) = open_tables([str(path)], option="data")
    labeled = table.has("label")
    chunks = list(table.chunks(matrices=["inputs"], vectors=["label"] if labeled else []))
    inputs = np.concatenate([chunk.columns["inputs"] for chunk in chunks])
    labels = np.concatenate([chunk.columns["label"] for chunk in chunks]) if labeled else None
    ids = [value for chunk in chunks for value in chunk.ids.to_pylist()]
    return Data(inputs.astype(np.float32), labels, np.asarray(ids))
