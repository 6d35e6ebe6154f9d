"""Data from files: an npz, a folder of npy files that stay on the disk, or a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from wdistill.errors import FileError
from wdistill.readers import open_tables
from wdistill.training.data import Data
from wdistill.training.inputs import Mapped


def read_data(path: Path) -> Data:
    """One split."""
    if path.is_dir() and (path / "inputs.npy").exists():
        _array(path / "inputs.npy")
        others = {name: _array(path / f"{name}.npy") for name in ("label", "id") if (path / f"{name}.npy").exists()}
        return Data(Mapped(path / "inputs.npy"), others.get("label"), others.get("id"))
    if path.suffix.lower() == ".npz" and path.is_file():
        return _npz(path)
    return _table(path)


def _array(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(
            "not an npy file of numbers",
            where=str(path),
            found=f"{type(error).__name__}: {error}",
            expected="an array that numpy.save wrote, not of objects",
            remedy="save it again",
        ) from None


def _npz(path: Path) -> Data:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files if name in ("inputs", "label", "labels", "id")}
    except Exception as error:
        raise FileError(
            "not an npz file of numbers",
            where=str(path),
            found=f"{type(error).__name__}: {error}",
            expected="arrays that numpy.savez wrote, none of objects",
            remedy="save it again",
        ) from None
    if "inputs" not in found:
        raise FileError(
            "no inputs",
            where=str(path),
            found=", ".join(found) or "none of the arrays we look for",
            expected="inputs, and label where the truth is known",
            remedy="save it with numpy.savez(path, inputs=…, label=…)",
        )
    return Data(found["inputs"], found.get("label", found.get("labels")), found.get("id"))


def _table(path: Path) -> Data:
    (table,) = open_tables([str(path)], option="data")
    labeled = table.has("label")
    chunks = list(table.chunks(matrices=["inputs"], vectors=["label"] if labeled else []))
    inputs = np.concatenate([chunk.columns["inputs"] for chunk in chunks])
    labels = np.concatenate([chunk.columns["label"] for chunk in chunks]) if labeled else None
    ids = [each for chunk in chunks for each in chunk.ids.to_pylist()]
    return Data(inputs.astype(np.float32), labels, np.asarray(ids))
