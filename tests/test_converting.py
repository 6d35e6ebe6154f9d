"""Other copies of the data sets: what comes out of small sheets, and what does not fit."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from experiments.lab import converting
from tests import official
from wdistill.core.errors import FileError
from wdistill.core.store import digest
from wdistill.datasets import load, prepare
from wdistill.datasets.arrays import read_cifar10

Pixels = NDArray[np.uint8]


def write_sheet(path: Path, images: Pixels, columns: int) -> None:
    """Images (n, 3, 32, 32) side by side in rows of so many; what is left of the last row is black."""
    rows = -(-len(images) // columns)
    sheet = np.zeros((rows * columns, 32, 32, 3), np.uint8)
    sheet[: len(images)] = images.transpose(0, 2, 3, 1)
    Image.fromarray(sheet.reshape(rows, columns, 32, 32, 3).swapaxes(1, 2).reshape(32 * rows, 32 * columns, 3)).save(path)


def write_svhn(folder: Path) -> official.Written:
    """13 train crops on two sheets of two rows of four, 5 test crops on one."""
    written, index = official.drawn(13, 5, 0, (3, 32, 32), 10), {}
    for part, (images, labels) in written.items():
        names = [f"{part}_{i}.png" for i in range(0, len(images), 8)]
        for i, name in enumerate(names):
            write_sheet(folder / name, images[8 * i : 8 * i + 8], 4)
        np.save(folder / f"labels_{part}.npy", labels.astype(np.uint8))
        pixels = digest(np.ascontiguousarray(images.transpose(0, 2, 3, 1)).tobytes())
        index[part] = {"sheets": names, "count": len(images), "pixels_sha256": pixels}
    (folder / "index.json").write_text(json.dumps(index))
    return written


def write_cifar10(folder: Path) -> official.Written:
    """One image in every row of 1,024 pixels, three rows a sheet."""
    written = official.drawn(15, 3, 0, (3, 32, 32), 10)
    for part, names in (("train", [f"data_batch_{i}" for i in range(1, 6)]), ("test", ["test_batch"])):
        images, labels = written[part]
        (folder / f"{part}_lables.json").write_text(json.dumps(labels.tolist()))
        for i, name in enumerate(names):
            sheet = images[3 * i : 3 * i + 3].reshape(3, 3, 1024).transpose(0, 2, 1)
            Image.fromarray(np.ascontiguousarray(sheet)).save(folder / f"{name}.png")
    return written


def write_celeba(folder: Path, n: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Portraits of one colour between black bars, as PNGs in an order that is not that of their names."""
    rng = np.random.default_rng(0)
    colours, male = rng.integers(0, 256, (n, 3), np.uint8), rng.integers(0, 2, n)
    names = [f"{i:06d}.png" for i in range(1, n + 1)]
    with (folder / "attributes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerows([["image_id", "Young", "Male"], *([name, 1, each] for name, each in zip(names, male, strict=True))])
    with tarfile.open(folder / "images.tar", "w") as archive:
        for i in rng.permutation(n):
            image, buffer = Image.new("RGB", (89, 109)), io.BytesIO()
            image.paste(tuple(colours[i].tolist()), (0, 10, 89, 99))
            image.save(buffer, "PNG")
            member = tarfile.TarInfo(f"images/{names[i]}")
            member.size = buffer.tell()
            buffer.seek(0)
            archive.addfile(member, buffer)
    return colours, male.astype(np.int64)


def test_svhn_comes_back_from_its_sheets(tmp_path: Path) -> None:
    written = write_svhn(tmp_path)
    found = converting.svhn(tmp_path)
    for part, rows in (("train", found.train), ("test", found.test)):
        assert np.array_equal(rows.inputs, written[part][0]) and np.array_equal(rows.labels, written[part][1])
    assert not found.official and found.train.labels.dtype == np.int64


def test_other_pixels_than_those_of_the_index_are_an_error(tmp_path: Path) -> None:
    written = write_svhn(tmp_path)
    images = written["test"][0].copy()
    images[4, 2, 31, 31] ^= 1
    write_sheet(tmp_path / "test_0.png", images, 4)
    with pytest.raises(FileError, match="the pixels are not those of the index") as error:
        converting.svhn(tmp_path)
    assert "test" in error.value.found and str(tmp_path) in error.value.where and error.value.remedy


def test_cifar10_becomes_the_binary_version(tmp_path: Path) -> None:
    written = write_cifar10(tmp_path)
    for part, rows in zip(("train", "test"), read_cifar10(converting.cifar10(tmp_path)), strict=True):
        assert np.array_equal(rows.inputs, written[part][0]) and np.array_equal(rows.labels, written[part][1])


NAMES = ("inputs", "labels")


def test_celeba_is_cropped_resized_and_in_the_order_of_its_names(tmp_path: Path) -> None:
    colours, male = write_celeba(tmp_path, 12)
    found = converting.celeba(tmp_path, 8)
    inputs, labels = (np.concatenate([getattr(part, name) for part in (found.train, found.test)]) for name in NAMES)
    assert np.array_equal(inputs, np.broadcast_to(colours[:, :, None, None], (12, 3, 8, 8)))
    assert np.array_equal(labels, male) and not found.official and (len(found.train), len(found.test)) == (9, 3)


def test_an_image_that_the_table_has_and_the_archive_has_not_is_an_error(tmp_path: Path) -> None:
    write_celeba(tmp_path, 4)
    with (tmp_path / "attributes.csv").open("a") as file:
        file.write("000005.png,1,1\n")
    with pytest.raises(FileError, match="do not belong together") as error:
        converting.celeba(tmp_path, 8)
    assert error.value.found.startswith("4 images, 0 of them") and "the 5 rows" in error.value.expected


def test_an_image_that_the_archive_has_and_the_table_has_not_is_an_error(tmp_path: Path) -> None:
    write_celeba(tmp_path, 4)
    rows = (tmp_path / "attributes.csv").read_text().splitlines()
    (tmp_path / "attributes.csv").write_text("\n".join(rows[:-1]) + "\n")
    with pytest.raises(FileError, match="do not belong together") as error:
        converting.celeba(tmp_path, 8)
    assert error.value.found == "4 images, 1 of them without attributes"


def test_the_command_makes_what_load_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = write_svhn(tmp_path)
    assert converting.main(["svhn", str(tmp_path), "--root", str(tmp_path / "root")]) == 0
    assert np.array_equal(load("svhn", tmp_path / "root").train.inputs, written["train"][0])
    assert "13 train and 5 test rows, unofficial" in capsys.readouterr().out


def test_cifar10_is_put_where_it_is_prepared_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = write_cifar10(tmp_path)
    assert converting.main(["cifar10", str(tmp_path), "--root", str(tmp_path / "root")]) == 0
    assert "the binary version" in capsys.readouterr().out
    found = prepare("cifar10", tmp_path / "root", unofficial=True)
    assert np.array_equal(found.train.inputs, written["train"][0]) and not found.official


@pytest.mark.parametrize("name", ["svhn", "cifar10", "celeba", "keel", "imdb"])
def test_a_folder_without_the_files_is_one_clear_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert converting.main([name, str(tmp_path / "nothing"), "--root", str(tmp_path / "root")]) == FileError.exit_code
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(tmp_path / "nothing") in said and "Traceback" not in said
    assert not (tmp_path / "root").exists()
