"""Prepared data sets: train and test images with their labels, as arrays in one folder; and the paper's splits of them."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import npy, store
from wdistill.core.errors import FileError, bad_value, unreadable
from wdistill.core.paths import is_name
from wdistill.core.progress import Progress, progress
from wdistill.core.sealed import digest_of

MANIFEST = "dataset.json"  # written last: without it there is no data set
OWNER = "owner.txt"  # by it we know our folder, also without a manifest
OWNER_TEXT = b"wdistill data makes this folder, and replaces what is in it\n"
FORMAT = 2  # of the manifest: it has a digest of its own
ARRAYS = tuple(f"{part}.{name}.npy" for part in ("train", "test") for name in ("inputs", "labels"))
BLOCK = 1 << 22  # bytes of a file that are read at a time
AGAIN = "prepare the data set again with: wdistill data NAME"
SIZES = {"celeba": 64, "imagenet": 224}  # default height and width of data sets whose images are resized


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """The train or test images of a data set."""

    inputs: NDArray[np.uint8]  # (n, C, H, W), memory-mapped if loaded
    labels: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and their classes, and where they come from."""

    name: str
    classes: int
    train: ImageSplit
    test: ImageSplit
    official: bool  # from the official files, with the published checksums where there are any
    source: str  # in words
    sha256: str = ""  # of the digests of the arrays, if loaded

    @property
    def metadata(self) -> dict[str, Any]:
        """Identifies the data in a result line."""
        shape, sha256 = "×".join(map(str, self.train.inputs.shape[1:])), self.sha256[:16]
        return {"name": self.name, "official": self.official, "source": self.source, "shape": shape, "sha256": sha256}


def check_folder(folder: Path) -> None:
    """Raise where a folder holds something other than a data set that was prepared, or begun."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    names -= {"lock", *(path.name for path in store.unfinished_writes(folder, OWNER))}
    if MANIFEST in names:
        read_manifest(folder)
    if names and not is_owner(folder / OWNER) and (OWNER in names or MANIFEST not in names):
        what, expected = "the folder of the prepared arrays holds something else", "a new or empty folder"
        remedy = "move it elsewhere or remove it; nothing was touched"
        raise bad_value(what, str(folder), ", ".join(sorted(names)[:5]), expected, remedy)


def begin(folder: Path) -> None:
    """Make the folder of a data set, or take one of ours; from now on it is unfinished."""
    check_folder(folder)
    store.make_folder(folder, parents=True)
    if not is_owner(folder / OWNER):
        store.write_bytes(folder / OWNER, OWNER_TEXT)
    if (folder / MANIFEST).exists():
        store.remove(folder / MANIFEST)
    for path in store.unfinished_writes(folder):  # of a killed process
        store.remove(path)


def is_owner(path: Path) -> bool:
    """Whether a file says that its folder is one of ours."""
    try:
        return path.read_bytes() == OWNER_TEXT
    except OSError:
        return False


def save_prepared(folder: Path, dataset: Dataset) -> None:
    """Write the arrays, then the manifest."""
    begin(folder)
    digests: dict[str, str] = {}
    for part, images in (("train", dataset.train), ("test", dataset.test)):
        for name, array in (("inputs", images.inputs), ("labels", images.labels)):
            file = f"{part}.{name}.npy"
            digests[file] = write_digested(folder / file, npy_bytes(array))
    write_manifest(folder, dataset, digests)


def npy_bytes(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def write_digested(path: Path, content: bytes) -> str:
    """Write a file; returns its digest."""
    store.write_bytes(path, content)
    return store.digest(content)


def write_manifest(folder: Path, dataset: Dataset, digests: dict[str, str]) -> None:
    """Describe the arrays in a folder, once all are written."""
    manifest = {"dataset": FORMAT, "name": dataset.name, "classes": dataset.classes, "official": dataset.official}
    manifest |= {"source": dataset.source, "sha256": digests}
    content = json.dumps(manifest | {"digest": digest_of(manifest)}, indent=1)
    store.write_bytes(folder / MANIFEST, (content + "\n").encode())


def is_prepared(folder: Path) -> bool:
    """Whether a folder has a manifest and every file it lists, none of them read."""
    try:
        return (folder / MANIFEST).exists() and all((folder / name).exists() for name in read_manifest(folder)["sha256"])
    except FileError:
        return True  # damaged: whoever loads it says so


def load_prepared(folder: Path) -> Dataset:
    """The data set in a folder, with memory-mapped images; every file is compared with its digest first."""
    manifest = read_manifest(folder)
    _check_files(folder, manifest)
    try:
        train, test = (_load_images(folder, part, manifest["classes"]) for part in ("train", "test"))
    except (OSError, EOFError, ValueError) as error:
        raise _no_data_set(folder, error) from error
    digests = store.digest(json.dumps(manifest["sha256"], sort_keys=True).encode())
    name, classes, official, source = (manifest[key] for key in ("name", "classes", "official", "source"))
    return Dataset(name, classes, train, test, official, source, digests)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder's manifest says, checked against the digest in it."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        fault = _fault_of(manifest)
    except FileNotFoundError as error:
        raise _no_data_set(folder, error) from None
    except (OSError, ValueError, RecursionError) as error:
        fault = f"{type(error).__name__}: {error}"
    if fault:
        what, expected = "the manifest of the prepared data set is damaged", "what wdistill data wrote"
        raise unreadable(what, path, fault, expected, f"remove this file, and {AGAIN}")
    return dict(manifest)


def _fault_of(manifest: Any) -> str:
    """What is wrong with a manifest, in words. Those of format 1 have no digest of their own; one that is there counts."""
    if not isinstance(manifest, dict) or manifest.get("dataset") not in (1, FORMAT):
        return "another format"
    if (manifest["dataset"] == FORMAT or "digest" in manifest) and manifest.get("digest") != digest_of(manifest):
        return "other contents than were written"
    kinds = {"name": str, "classes": int, "official": bool, "source": str, "sha256": dict}
    wrong = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
    wrong += [file for file in ARRAYS if not wrong and file not in manifest["sha256"]]
    wrong += [] if wrong else [file for file in manifest["sha256"] if not is_name(file)]
    return f"no proper {', '.join(wrong)}" if wrong else ""


def _check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Read every file of a data set, and raise where one is not what was written."""
    paths = [folder / name for name in manifest["sha256"]]
    try:
        with progress(f"checking {folder}", sum(path.stat().st_size for path in paths), "bytes") as tick:
            digests = {path.name: _digest_of_file(path, tick) for path in paths}
    except OSError as error:
        raise _no_data_set(folder, error) from error
    wrong = [name for name, digest in manifest["sha256"].items() if digests[name] != digest]
    if wrong:
        found, expected = f"other contents than were written: {', '.join(wrong)}", f"the digests in {MANIFEST}"
        what, these = "the prepared data set is damaged", "this file" if len(wrong) == 1 else "these files"
        raise unreadable(what, folder / wrong[0], found, expected, f"remove {these}, and {AGAIN}")


def _digest_of_file(path: Path, tick: Progress) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            tick(len(block))
    return digest.hexdigest()


def _no_data_set(folder: Path, error: Exception) -> FileError:
    found, expected = f"{type(error).__name__}: {error}", f"{MANIFEST} and the arrays it names"
    return unreadable("no prepared data set", folder, found, expected, AGAIN)


def _load_images(folder: Path, part: str, classes: int) -> ImageSplit:
    remedy = f"remove {folder}, and {AGAIN}"
    inputs = npy.mapped(folder / f"{part}.inputs.npy", remedy)
    labels = npy.read(folder / f"{part}.labels.npy", remedy)
    if inputs.dtype != np.uint8 or inputs.ndim != 4 or labels.shape != (len(inputs),):
        raise ValueError(f"{part}: {inputs.dtype} {inputs.shape} with labels {labels.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"{part}: labels from {labels.min()} to {labels.max()}, of {classes} classes")
    return ImageSplit(inputs, labels.astype(np.int64))


def data_root(root: Path | None = None) -> Path:
    """The folder of all data sets: as given, or $WDISTILL_DATA, or ~/.cache/wdistill."""
    return root or Path(os.environ.get("WDISTILL_DATA") or Path.home() / ".cache" / "wdistill")


def prepared_folder(name: str, root: Path, size: int | None = None) -> Path:
    """The folder of a data set's prepared arrays."""
    return root / name / (f"prepared-{size or SIZES[name]}" if name in SIZES else "prepared")


def splits(
    rows: int, labels: int, validation: int, unlabeled: int | None = None, *, trial: int, repeat: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """The paper's splits: row numbers of disjoint labeled, validation and unlabeled rows among the train rows.

    labeled: the first `labels` rows, the same in all trials; with `repeat`, the first of a permutation seeded by it.
    validation, unlabeled: drawn from the others at random, seeded by `trial`; unlabeled: that many, or all that are left.
    """
    rest = max(1, rows - labels - validation) if unlabeled is None else unlabeled
    if min(labels, validation, rest) < 1 or labels + validation + rest > rows:
        where, found = "splits", f"{labels} labeled, {validation} validation and {rest} unlabeled rows"
        expected = f"at least 1 of each, and {rows} altogether"
        raise bad_value("the data set has fewer rows", where, found, expected, "choose smaller splits")
    order = np.arange(rows) if repeat is None else np.random.default_rng([repeat, 1]).permutation(rows)
    others = np.random.default_rng([trial, 0]).permutation(order[labels:])
    pool = others[validation : validation + rest]
    return {"labeled": order[:labels], "validation": others[:validation], "unlabeled": pool}
