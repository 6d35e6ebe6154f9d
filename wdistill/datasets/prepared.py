"""A data set as prepared arrays: train and test images with their labels, in one folder, mapped from the disk."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill import store
from wdistill.errors import FileError

MANIFEST = "dataset.json"  # written last: without it there is no data set
PARTS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Rows:
    """One part of a data set."""

    inputs: NDArray[np.uint8]  # (n, C, H, W), mapped from the disk where it was loaded
    labels: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and their classes, with what is known of where they come from."""

    name: str
    classes: int
    train: Rows
    test: Rows
    official: (
        bool  # whether it was read from the official files, whose checksums were the published ones as far as there are any
    )
    source: str  # in words
    sha256: str = ""  # of the digests of the arrays, where they were loaded

    @property
    def described(self) -> dict[str, Any]:
        """What a result says of its data."""
        shape = "×".join(map(str, self.train.inputs.shape[1:]))
        told = {"name": self.name, "official": self.official, "source": self.source, "shape": shape}
        return {**told, "sha256": self.sha256[:16]}


def save_prepared(folder: Path, dataset: Dataset) -> None:
    """Write the arrays, and then the manifest that makes them a data set."""
    store.make_folder(folder, parents=True)
    if (folder / MANIFEST).exists():
        store.remove(folder / MANIFEST)
    digests: dict[str, str] = {}
    for part, rows in (("train", dataset.train), ("test", dataset.test)):
        for name, array in (("inputs", rows.inputs), ("labels", rows.labels)):
            path = folder / f"{part}.{name}.npy"
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            store.write_bytes(path, buffer.getvalue())
            digests[path.name] = store.digest(buffer.getvalue())
    write_manifest(folder, dataset, digests)


def write_manifest(folder: Path, dataset: Dataset, digests: dict[str, str]) -> None:
    """The arrays are there: say what they are."""
    told = {"dataset": 1, "name": dataset.name, "classes": dataset.classes, "official": dataset.official}
    told |= {"source": dataset.source, "sha256": digests}
    store.write_bytes(folder / MANIFEST, (json.dumps(told, indent=1) + "\n").encode())


def load_prepared(folder: Path) -> Dataset:
    """The data set in a folder, its images mapped from the disk."""
    try:
        told = json.loads((folder / MANIFEST).read_text())
        parts = {part: _rows(folder, part, told["classes"]) for part in PARTS}
        digests = store.digest(json.dumps(told["sha256"], sort_keys=True).encode())
        train, test = parts["train"], parts["test"]
        return Dataset(told["name"], told["classes"], train, test, told["official"], told["source"], digests)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise FileError(
            "no prepared data set",
            where=str(folder),
            found=f"{type(error).__name__}: {error}",
            expected=f"{MANIFEST} and the arrays it names",
            remedy="prepare it again with: wdistill data NAME",
        ) from error


def check_prepared(folder: Path) -> None:
    """Read all arrays and compare them with the digests of the manifest."""
    try:
        digests = json.loads((folder / MANIFEST).read_text())["sha256"]
        wrong = [name for name, digest in digests.items() if store.digest_file(folder / name) != digest]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if wrong:
        raise FileError(
            "the prepared data set is damaged",
            where=str(folder),
            found=f"other contents than were written: {', '.join(wrong)}",
            expected=f"the digests in {MANIFEST}",
            remedy=f"remove {folder} and prepare it again with: wdistill data NAME",
        )


def _rows(folder: Path, part: str, classes: int) -> Rows:
    inputs = np.load(folder / f"{part}.inputs.npy", mmap_mode="r", allow_pickle=False)
    labels = np.load(folder / f"{part}.labels.npy", allow_pickle=False)
    if inputs.dtype != np.uint8 or inputs.ndim != 4 or labels.shape != (len(inputs),):
        raise ValueError(f"{part}: {inputs.dtype} {inputs.shape} with labels {labels.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"{part}: labels from {labels.min()} to {labels.max()}, of {classes} classes")
    return Rows(inputs, labels.astype(np.int64))
