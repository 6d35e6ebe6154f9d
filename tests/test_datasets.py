"""The data sets: official formats read back, checksums, damaged files, images decoded once, and splits."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from tests import official
from wdistill import cli
from wdistill.core import store
from wdistill.core.errors import BusyError, ConfigError, FileError, StorageError, WdistillError
from wdistill.datasets import (
    DATASETS,
    Dataset,
    ImageSplit,
    catalog,
    data_root,
    load,
    originals,
    pictures,
    prepare,
    save_prepared,
    splits,
)
from wdistill.datasets.originals import Original, download

Writer = Callable[..., official.Written]
ARRAYS: dict[str, Writer] = {
    "svhn": official.write_svhn,
    "cifar10": official.write_cifar10,
    "cifar100": official.write_cifar100,
    "fashion": official.write_fashion,
    "mnist": official.write_mnist,
}
PICTURES: dict[str, Writer] = {"celeba": official.write_celeba, "imagenet": official.write_imagenet}
WRITERS = ARRAYS | PICTURES
PACKED, LOOSE = ("cifar10", "cifar100", "fashion", "mnist"), {"packed": False}


def same(dataset: Dataset, written: official.Written) -> bool:
    """Whether the arrays are exactly those that were written."""
    parts = {"train": dataset.train, "test": dataset.test}
    return all(
        np.array_equal(rows.inputs, written[part][0]) and np.array_equal(rows.labels, written[part][1])
        for part, rows in parts.items()
    )


def near(rows: ImageSplit, colours: np.ndarray) -> bool:
    """Whether images (n, 3, size, size) are all over of the colours (n, 3), but for what JPEG changes."""
    return bool((np.abs(rows.inputs.astype(int) - colours.astype(int)[:, :, None, None]) <= 4).all())


def publish(monkeypatch: pytest.MonkeyPatch, name: str, root: Path) -> None:
    """Make the files that lie there the published ones."""

    def published(original: Original) -> Original:
        path = originals.find_file(root / name, original.name)
        md5 = originals.md5_of(path) if path is not None and path.is_file() else original.md5
        packed = dict(original.packed)
        for inside in [name for name in packed if packed[name]]:
            contents = originals._unpack(path, original) if path else {}
            lies = originals.find_file(root / name, inside)
            content = lies.read_bytes() if lies else contents[inside]
            packed[inside] = hashlib.new("sha256" if len(packed[inside]) == 64 else "md5", content).hexdigest()
        return dataclasses.replace(original, md5=md5, packed=packed)

    kind = DATASETS[name]
    monkeypatch.setitem(catalog.DATASETS, name, dataclasses.replace(kind, originals=tuple(map(published, kind.originals))))


@pytest.mark.parametrize(("name", "how"), [(name, {}) for name in ARRAYS] + [(name, LOOSE) for name in PACKED])
def test_arrays_come_back_as_they_were_written(tmp_path: Path, name: str, how: dict[str, bool]) -> None:
    written = ARRAYS[name](tmp_path / name, **how)
    dataset = prepare(name, tmp_path, unofficial=True)
    kind = DATASETS[name]
    assert same(dataset, written) and same(load(name, tmp_path), written)
    assert dataset.classes == kind.classes and dataset.train.inputs.shape[1:] == (kind.channels, kind.size, kind.size)
    assert not dataset.official and "not the published" in dataset.source and dataset.name == name


def test_files_lie_one_folder_deeper_too(tmp_path: Path) -> None:
    written = official.write_svhn(tmp_path / "svhn" / "downloads")
    assert same(prepare("svhn", tmp_path, unofficial=True), written)


@pytest.mark.parametrize("name", ["svhn", "cifar100", "mnist"])
def test_the_published_files_are_official(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = ARRAYS[name](tmp_path / name)
    publish(monkeypatch, name, tmp_path)
    dataset = load(name, tmp_path)
    assert dataset.official and same(dataset, written) and "the official files" in dataset.source


@pytest.mark.parametrize("name", ["cifar10", "fashion"])
def test_official_contents_may_be_unpacked_or_packed_anew(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = ARRAYS[name](tmp_path / "loose" / name, packed=False)
    publish(monkeypatch, name, tmp_path / "loose")
    ARRAYS[name](tmp_path / "packed" / name)
    for root in ("loose", "packed"):
        dataset = load(name, tmp_path / root)
        assert dataset.official and same(dataset, written)


@pytest.mark.parametrize("name", ARRAYS)
def test_another_file_than_the_published_one_is_named(tmp_path: Path, name: str) -> None:
    ARRAYS[name](tmp_path / name)
    with pytest.raises(FileError, match="not the official file") as caught:
        load(name, tmp_path)
    first = DATASETS[name].originals[0]
    assert first.name in caught.value.where and caught.value.expected == first.md5
    assert originals.md5_of(tmp_path / name / first.name) in caught.value.found and "--unofficial" in caught.value.remedy
    assert not (tmp_path / name / "prepared" / "dataset.json").exists()


def test_unpacked_files_are_compared_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.write_cifar10(tmp_path / "cifar10", packed=False)
    publish(monkeypatch, "cifar10", tmp_path)
    path = tmp_path / "cifar10" / "cifar-10-batches-bin" / "data_batch_3.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"data_batch_3\.bin: this is not the official file"):
        load("cifar10", tmp_path)
    assert not prepare("cifar10", tmp_path, unofficial=True).official


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other(path: Path) -> None:
    path.write_bytes(b"<html>404 not found</html>" * 50)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, empty, other, folder])
@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files_are_errors(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    WRITERS[name](tmp_path / "good" / name)
    files = sorted(path.relative_to(tmp_path / "good") for path in (tmp_path / "good").rglob("*") if path.is_file())
    for i, file in enumerate(files[:7]):
        root = tmp_path / str(i)
        shutil.copytree(tmp_path / "good", root)
        damage(root / file)
        with pytest.raises(FileError) as caught:
            prepare(name, root, 16 if name in PICTURES else None, unofficial=True)
        error = caught.value
        assert all((error.what, error.where, error.found, error.expected, error.remedy))
        assert file.name.split(".")[0] in error.where


@pytest.mark.parametrize("name", ["cifar10", "fashion", "celeba"])
def test_a_flipped_bit_in_a_packed_file_is_found(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    flipped(next(path for path in sorted((tmp_path / name).iterdir()) if path.suffix in (".gz", ".zip")))
    with pytest.raises(FileError):
        prepare(name, tmp_path, unofficial=True)


def test_labels_out_of_range_are_damage(tmp_path: Path) -> None:
    images = np.zeros((32, 32, 3, 4), np.uint8)
    official.write_svhn(tmp_path / "svhn")
    savemat(tmp_path / "svhn" / "train_32x32.mat", {"X": images, "y": np.array([[1], [10], [11], [2]], np.uint8)})
    with pytest.raises(FileError, match="labels from 1 to 11"):
        prepare("svhn", tmp_path, unofficial=True)
    official.write_cifar10(tmp_path / "cifar10", packed=False)
    (tmp_path / "cifar10" / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(bytes([10] + [0] * 3072))
    with pytest.raises(FileError, match="labels from 10 to 10"):
        prepare("cifar10", tmp_path, unofficial=True)


@pytest.mark.parametrize(
    "arrays",
    [
        {"X": np.zeros((28, 32, 3, 4), np.uint8), "y": np.ones((4, 1), np.uint8)},
        {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.ones((5, 1), np.uint8)},
        {"X": np.zeros((32, 32, 3, 4)), "y": np.ones((4, 1), np.uint8)},
        {"X": np.zeros((32, 32, 3, 4), np.uint8)},
    ],
)
def test_matlab_files_of_another_kind_are_damage(tmp_path: Path, arrays: dict[str, Any]) -> None:
    official.write_svhn(tmp_path / "svhn")
    savemat(tmp_path / "svhn" / "test_32x32.mat", arrays)
    with pytest.raises(FileError, match=r"test_32x32\.mat") as caught:
        prepare("svhn", tmp_path, unofficial=True)
    assert "(32, 32, 3, n)" in caught.value.expected


def test_a_header_is_not_believed(tmp_path: Path) -> None:
    official.write_mnist(tmp_path / "mnist", packed=False)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    path.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12 + path.read_bytes()[16:])
    with pytest.raises(FileError, match="damaged"):
        prepare("mnist", tmp_path, unofficial=True)


def test_what_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(originals, "MAX_UNPACKED", 1 << 20)
    official.write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(1 << 22)))
    with pytest.raises(FileError, match="too large"):
        prepare("mnist", tmp_path, unofficial=True)


def bomb(kind: str) -> bytes:
    """An archive of about a megabyte that unpacks to two gigabytes: in files, in one header, or in headers of files."""
    zeros, gigabyte = gzip.compress(bytes(1 << 24), 1), 1 << 30
    wanted = [tarfile.TarInfo(f"data_batch_{i}.bin") for i in range(1, 6)]
    if kind == "files":
        for member in wanted:
            member.size = gigabyte // 4
        return b"".join(gzip.compress(member.tobuf()) + zeros * 16 for member in wanted)
    if kind == "many":
        return gzip.compress(wanted[0].tobuf() * (1 << 14), 6) * 128
    long = tarfile.TarInfo("long")
    long.type = {"pax": tarfile.XHDTYPE, "name": tarfile.GNUTYPE_LONGNAME, "sparse": tarfile.GNUTYPE_SPARSE}[kind]
    long.size = 2 * gigabyte
    return gzip.compress(long.tobuf()) + zeros * 128


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "many", "pax", "name", "sparse"])
def test_an_archive_takes_no_more_memory_than_the_official_one(tmp_path: Path, kind: str) -> None:
    """256 MB beyond what the program has after its imports."""
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-binary.tar.gz").write_bytes(bomb(kind))
    code = """
import resource, sys
from pathlib import Path
import wdistill.datasets as datasets
from wdistill import FileError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    datasets.prepare("cifar10", Path(sys.argv[1]), unofficial=True)
except FileError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True, timeout=60)
    *said, grown = done.stdout.splitlines()
    assert "too large" in said[0] or "cannot be read" in said[0]
    assert int(grown) < 256


def test_only_plain_files_are_taken_from_an_archive(tmp_path: Path) -> None:
    """A link under a wanted name is passed over, a path that leads outside is never followed, nothing is unpacked."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"\x00" * 3073)
    files = {f"../../data_batch_{i}.bin": b"\x01" * 3073 for i in range(2, 6)} | {"/test_batch.bin": b"\x02" * 3073}
    link, device = tarfile.TarInfo("data_batch_1.bin"), tarfile.TarInfo("test_batch.bin")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, str(secret), tarfile.CHRTYPE
    place = tmp_path / "root" / "cifar10"
    place.mkdir(parents=True)
    (place / "cifar-10-binary.tar.gz").write_bytes(official.tar_gz(files, (link, device)))
    with pytest.raises(FileError, match=r"no data_batch_1\.bin"):
        prepare("cifar10", tmp_path / "root", unofficial=True)
    (place / "cifar-10-binary.tar.gz").write_bytes(
        official.tar_gz(files | {"data_batch_1.bin": b"\x03" * 3073}, (link, device))
    )
    assert prepare("cifar10", tmp_path / "root", unofficial=True).train.labels.tolist() == [3, 1, 1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "secret"]


@pytest.mark.parametrize("size", [None, 16])
def test_celeba_is_the_middle_square_labeled_male(tmp_path: Path, size: int | None) -> None:
    written = official.write_celeba(tmp_path / "celeba")
    dataset = prepare("celeba", tmp_path, size, unofficial=True)
    assert dataset.train.inputs.shape == (12, 3, size or 64, size or 64) and len(dataset.test) == 5 and dataset.classes == 2
    for part, rows in (("train", dataset.train), ("test", dataset.test)):
        assert near(rows, written[part][0]) and np.array_equal(rows.labels, written[part][1])
    assert (tmp_path / "celeba" / f"prepared-{size or 64}" / "dataset.json").exists()


def test_celeba_is_the_same_packed_and_unpacked(tmp_path: Path) -> None:
    sets = []
    for packed in (True, False):
        official.write_celeba(tmp_path / str(packed) / "celeba", packed=packed)
        sets.append(prepare("celeba", tmp_path / str(packed), 16, unofficial=True))
    assert all(np.array_equal(sets[0].train.inputs, each.train.inputs) for each in sets)
    assert "unpacked" in sets[1].source


def test_celeba_is_official_by_its_checksums_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.write_celeba(tmp_path / "celeba")
    for name in ("CELEBA_IMAGES", "CELEBA_ATTRIBUTES", "CELEBA_PARTS"):
        original = getattr(pictures, name)
        md5 = originals.md5_of(tmp_path / "celeba" / original.name)
        monkeypatch.setattr(pictures, name, dataclasses.replace(original, md5=md5))
    with pytest.raises(FileError, match="published numbers"):
        load("celeba", tmp_path, 16)
    monkeypatch.setitem(catalog.DATASETS, "celeba", dataclasses.replace(DATASETS["celeba"], rows=(12, 5)))
    assert load("celeba", tmp_path, 16).official


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("list_attr_celeba.txt", "000003.jpg -1 0 1", "line 5"),
        ("list_attr_celeba.txt", "000003.jpg -1", "line 5"),
        ("list_eval_partition.txt", "000005.jpg 3", "line 5"),
    ],
)
def test_a_bad_line_of_celebas_lists_is_named(tmp_path: Path, file: str, line: str, message: str) -> None:
    official.write_celeba(tmp_path / "celeba")
    lines = (tmp_path / "celeba" / file).read_text().splitlines()
    lines[4] = line
    (tmp_path / "celeba" / file).write_text("\n".join(lines) + "\n")
    with pytest.raises(FileError, match=message) as caught:
        prepare("celeba", tmp_path, 16, unofficial=True)
    assert caught.value.where == file


def test_a_missing_image_is_named_before_any_is_decoded(tmp_path: Path) -> None:
    official.write_celeba(tmp_path / "celeba", packed=False)
    (tmp_path / "celeba" / "img_align_celeba" / "000009.jpg").unlink()
    with pytest.raises(FileError, match=r"1 of 19, first 000009\.jpg"):
        prepare("celeba", tmp_path, 16, unofficial=True)


def test_a_damaged_image_in_an_archive_is_named(tmp_path: Path) -> None:
    official.write_celeba(tmp_path / "celeba")
    path = tmp_path / "celeba" / "img_align_celeba.zip"
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content[:300] if "000004" in name else content)
    with pytest.raises(FileError, match=r"img_align_celeba/000004\.jpg: the image cannot be decoded"):
        prepare("celeba", tmp_path, 16, unofficial=True)


def listed(place: Path) -> tuple[list[int], list[str]]:
    """Labels and names of train.files.txt."""
    lines = [line.split("\t") for line in place.read_text().splitlines()]
    return [int(label) for label, _ in lines], [name for _, name in lines]


def test_imagenet_is_in_an_order_that_is_kept(tmp_path: Path) -> None:
    written = official.write_imagenet(tmp_path / "imagenet")
    dataset = prepare("imagenet", tmp_path, 28, unofficial=True)
    labels, names = listed(tmp_path / "imagenet" / "prepared-28" / "train.files.txt")
    order = np.array([int(Path(name).stem.split("_")[1]) for name in names])
    assert sorted(order) == list(range(14)) and sorted(labels) != labels == dataset.train.labels.tolist()
    assert near(dataset.train, written["train"][0][order]) and (written["train"][1][order] == labels).all()
    assert near(dataset.test, written["test"][0]) and (dataset.test.labels == written["test"][1]).all()
    official.write_imagenet(tmp_path / "again" / "imagenet")
    again = prepare("imagenet", tmp_path / "again", 28, unofficial=True)
    assert np.array_equal(again.train.inputs, dataset.train.inputs) and not again.official and again.classes == 3


@pytest.mark.parametrize(("width", "height"), [(300, 500), (500, 300), (256, 256), (100, 101), (31, 400)])
def test_imagenet_is_cut_from_the_middle_of_the_resized_image(width: int, height: int) -> None:
    """A picture whose red is its column and whose green is its row, as parts of the whole."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.linspace(0, 255, width), np.linspace(0, 255, height)[:, None]
    found = np.asarray(pictures.short_side(Image.fromarray(pixels), 224))
    assert found.shape == (224, 224, 3)
    short = min(width, height)
    for channel, whole, axis in ((0, width, 1), (1, height, 0)):
        kept = found[..., channel].mean(axis=1 - axis)
        assert abs(kept.mean() - 127.5) < 3 and abs((kept[-1] - kept[0]) - 255 * 224 / 256 * short / whole) < 8


@pytest.mark.slow
def test_two_processes_decode_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "CHUNK", 2)
    sets = []
    for workers in (1, 2):
        official.write_imagenet(tmp_path / str(workers) / "imagenet")
        sets.append(prepare("imagenet", tmp_path / str(workers), 28, workers=workers, unofficial=True))
    assert np.array_equal(sets[0].train.inputs, sets[1].train.inputs)
    assert np.array_equal(sets[0].test.inputs, sets[1].test.inputs)
    flipped_image = next((tmp_path / "2" / "imagenet" / "train").rglob("*.JPEG"))
    flipped_image.write_bytes(b"no image")
    with pytest.raises(FileError, match=f"{flipped_image.name}: the image cannot be decoded"):
        prepare("imagenet", tmp_path / "2", 29, workers=2, unofficial=True)


class Counted:
    """Counts how often each image is decoded, and fails at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int = 0) -> None:
        self.names: list[str] = []
        inner = pictures.decode_one

        def decode_one(place: Path, fit: Any, size: int, name: str) -> Any:
            if len(self.names) + 1 == fail_at:
                raise KeyboardInterrupt
            self.names.append(name)
            return inner(place, fit, size, name)

        monkeypatch.setattr(pictures, "decode_one", decode_one)


def test_a_chunk_that_is_done_is_not_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "CHUNK", 3)
    official.write_imagenet(tmp_path / "imagenet", 14, 6)
    with monkeypatch.context() as patch:
        first = Counted(patch, fail_at=12)  # two into the fourth chunk
        with pytest.raises(KeyboardInterrupt):
            prepare("imagenet", tmp_path, 28, unofficial=True)
    with monkeypatch.context() as patch:
        second = Counted(patch)
        dataset = prepare("imagenet", tmp_path, 28, unofficial=True)
    done = first.names[:9]
    assert len(first.names) == 11 and set(second.names).isdisjoint(done) and len(second.names) == 14 - 9 + 6
    official.write_imagenet(tmp_path / "whole" / "imagenet", 14, 6)
    whole = prepare("imagenet", tmp_path / "whole", 28, unofficial=True)
    assert np.array_equal(whole.train.inputs, dataset.train.inputs)
    manifests = [
        json.loads((each / "imagenet/prepared-28/dataset.json").read_text()) for each in (tmp_path, tmp_path / "whole")
    ]
    assert manifests[0] == manifests[1]
    for name, digest in manifests[0]["sha256"].items():
        assert store.digest_file(tmp_path / "imagenet" / "prepared-28" / name) == digest
    assert sorted(manifests[0]["sha256"]) == sorted(
        f"{part}.{what}" for part in ("train", "test") for what in ("files.txt", "inputs.npy", "labels.npy")
    )


def test_a_chunk_that_has_rotted_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "CHUNK", 3)
    written = official.write_imagenet(tmp_path / "imagenet", 14, 6)
    with monkeypatch.context() as patch:
        Counted(patch, fail_at=12)
        with pytest.raises(KeyboardInterrupt):
            prepare("imagenet", tmp_path, 28, unofficial=True)
    scratch = tmp_path / "imagenet" / "prepared-28" / "train.inputs.part"
    content = bytearray(scratch.read_bytes())
    content[-3 * 28 * 28 * 4] ^= 1  # in the second chunk of three
    scratch.write_bytes(content)
    with monkeypatch.context() as patch:
        second = Counted(patch)
        dataset = prepare("imagenet", tmp_path, 28, unofficial=True)
    _, names = listed(tmp_path / "imagenet" / "prepared-28" / "train.files.txt")
    assert second.names[:11] == names[3:]
    order = np.array([int(Path(name).stem.split("_")[1]) for name in names])
    assert near(dataset.train, written["train"][0][order])


def test_other_images_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "CHUNK", 3)
    official.write_imagenet(tmp_path / "imagenet", 14, 6)
    with monkeypatch.context() as patch:
        Counted(patch, fail_at=12)
        with pytest.raises(KeyboardInterrupt):
            prepare("imagenet", tmp_path, 28, unofficial=True)
    next((tmp_path / "imagenet" / "train").rglob("*.JPEG")).unlink()
    with monkeypatch.context() as patch:
        second = Counted(patch)
        assert len(prepare("imagenet", tmp_path, 28, unofficial=True).train) == 13
    assert len(second.names) == 13 + 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imagenet", "mnist"])
def test_a_failure_at_any_operation_on_the_disk_is_made_good(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "CHUNK", 3)
    monkeypatch.setattr("os.fsync", lambda handle: None)  # for speed
    writer, size = (official.write_imagenet, 9) if name == "imagenet" else (official.write_mnist, None)
    writer(tmp_path / "files" / name, 5, 3)
    count = fail_at = 0

    def before(operation: str, path: Path) -> None:
        nonlocal count
        count += 1
        if count == fail_at:
            raise OSError(28, "No space left on device")

    def made(root: Path) -> dict[str, str]:
        """Prepare the data set, and read all of it back."""
        prepare(name, root, size, unofficial=True)
        (manifest,) = (root / name).glob("prepared*/dataset.json")
        digests: dict[str, str] = json.loads(manifest.read_text())["sha256"]
        assert all(store.digest_file(manifest.parent / file) == digest for file, digest in digests.items())
        return digests

    monkeypatch.setattr(store, "before", before)
    shutil.copytree(tmp_path / "files", tmp_path / "whole")
    expected, operations = made(tmp_path / "whole"), count
    assert operations > 25
    for fail_at in range(1, operations + 1):
        root, count = tmp_path / str(fail_at), 0
        shutil.copytree(tmp_path / "files", root)
        with pytest.raises(StorageError):
            made(root)
        assert made(root) == expected


def test_train_and_val_have_the_same_class_folders(tmp_path: Path) -> None:
    official.write_imagenet(tmp_path / "imagenet")
    (tmp_path / "imagenet" / "val" / "n99999999").mkdir()
    with pytest.raises(FileError, match="n99999999"):
        prepare("imagenet", tmp_path, 28, unofficial=True)
    shutil.rmtree(tmp_path / "imagenet" / "val")
    (tmp_path / "imagenet" / "val").mkdir()
    (tmp_path / "imagenet" / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(b"")
    with pytest.raises(FileError, match="no class folders"):
        prepare("imagenet", tmp_path, 28, unofficial=True)


def test_imagenet_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.write_imagenet(tmp_path / "imagenet")
    with pytest.raises(FileError, match="published numbers") as caught:
        load("imagenet", tmp_path, 28)
    assert caught.value.found == "3 classes, 14 train and 6 test images" and "1,281,167" in caught.value.expected
    monkeypatch.setitem(catalog.DATASETS, "imagenet", dataclasses.replace(DATASETS["imagenet"], classes=3, rows=(14, 6)))
    assert load("imagenet", tmp_path, 28).official


def test_an_image_of_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.write_imagenet(tmp_path / "imagenet")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(FileError, match="decompression bomb"):
        prepare("imagenet", tmp_path, 28, unofficial=True)


def test_one_process_prepares_at_a_time(tmp_path: Path) -> None:
    official.write_mnist(tmp_path / "mnist")
    with store.lock(tmp_path / "mnist" / "prepared"), pytest.raises(BusyError):
        prepare("mnist", tmp_path, unofficial=True)


def address(path: Path) -> str:
    return path.as_uri()


def test_a_download_gets_its_name_once_its_digest_is_right(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name in ("a", "b"):
        (tmp_path / "far" / name).write_bytes(name.encode() * 3_000_000)
    good = [Original(n, originals.md5_of(tmp_path / "far" / n), address(tmp_path / "far" / n)) for n in ("a", "b")]
    left, other = store.temporary_name(tmp_path / "near" / "a"), tmp_path / "near" / ".a.tmp"
    for path in (left, other):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"a")  # of a killed download, and of somebody else
    download(tmp_path / "near", good)
    assert not left.exists() and other.exists()
    other.unlink()
    assert (tmp_path / "near" / "b").read_bytes() == (tmp_path / "far" / "b").read_bytes()
    bad = Original("c", "0" * 32, good[0].url)
    with pytest.raises(FileError, match="not the published file") as caught:
        download(tmp_path / "near", [bad])
    assert "3,000,000 bytes" in caught.value.found and good[0].md5 in caught.value.found
    assert sorted(path.name for path in (tmp_path / "near").iterdir()) == ["a", "b"]


def test_without_a_network_one_error_names_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def urlopen(url: str, timeout: float) -> Any:
        tries.append(url)
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    with pytest.raises(FileError) as caught:
        catalog.get_originals("svhn", tmp_path)
    error = caught.value
    assert error.expected == "train_32x32.mat, test_32x32.mat" and str(tmp_path / "svhn") in error.remedy
    assert "housenumbers/test_32x32.mat" in error.remedy and "no network" in error.found
    assert len(tries) == originals.ATTEMPTS and list((tmp_path / "svhn").iterdir()) == []


def test_a_download_that_ends_early_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, asked = b"x" * 100_000, []

    class Short(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: 50_000 if len(asked) < whole_at else len(content)])

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Short) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/x"
            wanted = Original("x", hashlib.md5(content, usedforsecurity=False).hexdigest(), address)
            whole_at = 2
            download(tmp_path, [wanted])
            assert len(asked) == 2 and (tmp_path / "x").read_bytes() == content
            whole_at = 100
            with pytest.raises(FileError, match=r"ended after") as error:
                download(tmp_path / "other", [wanted])
            assert "ended after 50,000 of 100,000 bytes" in str(error.value)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("damage", ["empty", "labels", "pixels"])
def test_prepared_arrays_that_were_damaged_are_one_clear_error(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ImageSplit(np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 1, 28, 28), np.array([0, 1]))
    folder = tmp_path / "mnist" / "prepared"
    save_prepared(folder, Dataset("mnist", 10, rows, rows, official=True, source="here"))
    words = ["data", "mnist", "--root", str(tmp_path)]
    assert cli.main(words) == 0 and "and is whole" in capsys.readouterr().out
    name = "train.labels.npy" if damage != "pixels" else "test.inputs.npy"
    if damage == "empty":
        (folder / name).write_bytes(b"")
    else:
        np.save(folder / name, np.array([99, 1]) if damage == "labels" else 255 - rows.inputs)
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert (
        "defect" not in said and "to do: " in said and (name in said or "labels from 1 to 99" in said or damage == "empty")
    )
    assert cli.main(["data", "--list", "--root", str(tmp_path)]) == 0


def flip(path: Path, at: int = -1) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["train.inputs.npy", "test.labels.npy", "test.files.txt", "dataset.json"])
def test_what_is_damaged_is_not_used_and_is_prepared_again_once_it_is_removed(tmp_path: Path, name: str) -> None:
    official.write_imagenet(tmp_path / "imagenet", 5, 3)
    whole = prepare("imagenet", tmp_path, 9, unofficial=True)
    path = tmp_path / "imagenet" / "prepared-9" / name
    content = path.read_bytes()
    flip(path, content.index(b"files that are not") if name == "dataset.json" else -1)
    with pytest.raises(FileError, match="other contents than were written") as caught:
        load("imagenet", tmp_path, 9)
    assert caught.value.where == str(path) and "remove this file" in caught.value.remedy
    path.unlink()
    again = prepare("imagenet", tmp_path, 9, unofficial=True)
    assert again.sha256 == whole.sha256 and path.read_bytes() == content


@pytest.mark.parametrize("name", ["train.inputs.npy", "notes.txt", "dataset.json", "owner.txt"])
def test_a_folder_of_others_is_not_used_for_arrays(tmp_path: Path, name: str) -> None:
    official.write_mnist(tmp_path / "mnist")
    mine = tmp_path / "mnist" / "prepared" / name
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    with pytest.raises(WdistillError, match=rf"{name}"):
        prepare("mnist", tmp_path, unofficial=True)
    assert mine.read_bytes() == b"mine" and list(mine.parent.iterdir()) == [mine]
    mine.unlink()
    prepare("mnist", tmp_path, unofficial=True)


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 20_000, b"\xff", b'{"dataset": 7}', b'{"dataset": 1, "sha256": {}}'])
def test_a_manifest_that_is_none_is_named(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    official.write_mnist(tmp_path / "mnist")
    words = ["data", "mnist", "--unofficial", "--root", str(tmp_path)]
    path = tmp_path / "mnist" / "prepared" / "dataset.json"
    assert cli.main(words) == 0
    path.write_bytes(content)
    assert cli.main(words) == 2 and f"{path}: the manifest of the prepared data set is damaged" in capsys.readouterr().err
    assert "damaged" in catalog.state_of("mnist", tmp_path)
    path.unlink()
    assert cli.main(words) == 0


@pytest.mark.parametrize("other", [b"1", b"true"])
def test_a_manifest_whose_format_was_damaged_is_not_taken_for_one_without_a_digest(tmp_path: Path, other: bytes) -> None:
    official.write_mnist(tmp_path / "mnist")
    assert cli.main(["data", "mnist", "--unofficial", "--root", str(tmp_path)]) == 0
    path = tmp_path / "mnist" / "prepared" / "dataset.json"
    path.write_bytes(path.read_bytes().replace(b'"dataset": 2', b'"dataset": ' + other).replace(b'"mnist"', b'"mist"'))
    assert "damaged" in catalog.state_of("mnist", tmp_path)


def test_prepared_sets_of_the_first_format_are_read(tmp_path: Path) -> None:
    official.write_mnist(tmp_path / "mnist")
    whole = prepare("mnist", tmp_path, unofficial=True)
    path = tmp_path / "mnist" / "prepared" / "dataset.json"
    manifest = json.loads(path.read_text()) | {"dataset": 1}
    del manifest["digest"]
    path.write_text(json.dumps(manifest))
    assert load("mnist", tmp_path).sha256 == whole.sha256
    path.write_text(json.dumps(manifest | {"sha256": manifest["sha256"] | {"../../secret": ""}}))
    with pytest.raises(FileError, match="no proper"):
        load("mnist", tmp_path)


def test_only_what_is_missing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.write_mnist(tmp_path / "mnist", packed=False)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    wanted: list[Original] = []
    monkeypatch.setattr(catalog, "download", lambda folder, lost: wanted.extend(lost))
    catalog.get_originals("mnist", tmp_path)
    assert [each.name for each in wanted] == ["t10k-labels-idx1-ubyte.gz"]


@pytest.mark.parametrize("name", ["celeba", "imagenet"])
def test_files_without_an_address_are_said_to_be_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError, match="https://") as caught:
        catalog.get_originals(name, tmp_path)
    assert str(tmp_path / name) in caught.value.remedy


def test_what_is_not_there_is_told_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=r"wdistill data svhn") as caught:
        load("svhn", tmp_path)
    assert caught.value.where == str(tmp_path / "svhn") and not (tmp_path / "svhn").exists()
    with pytest.raises(ConfigError, match="did you mean cifar100"):
        load("cifar1000", tmp_path)
    with pytest.raises(ConfigError, match="no such size"):
        load("svhn", tmp_path, 64)
    monkeypatch.setenv("WDISTILL_DATA", str(tmp_path / "elsewhere"))
    assert data_root(None) == tmp_path / "elsewhere" and data_root(tmp_path) == tmp_path


def test_the_command_prepares_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    official.write_celeba(tmp_path / "celeba")
    words = ["data", "celeba", "--root", str(tmp_path), "--size", "16", "--workers", "1"]
    assert cli.main(words) == 2
    assert "img_align_celeba.zip" in capsys.readouterr().err
    assert cli.main([*words, "--unofficial"]) == 0
    said = capsys.readouterr().out
    assert f"expected in {tmp_path / 'celeba'}" in said and "12 train and 5 test rows, 2 classes, 3×16×16" in said
    assert "UNOFFICIAL" in said
    place = tmp_path / "celeba" / "prepared-16"
    stamps = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    assert cli.main(words) == 0 and f"celeba: was prepared before, and is whole: {place}" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in place.iterdir()} == stamps


def test_the_command_lists_all_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    official.write_mnist(tmp_path / "mnist")
    official.write_svhn(tmp_path / "svhn")
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    official.write_fashion(tmp_path / "fashion")
    prepare("fashion", tmp_path, unofficial=True)
    for words in ([], ["mnist", "--list"]):
        assert cli.main(["data", *words, "--root", str(tmp_path)]) == 0
        lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
        assert set(lines) == set(DATASETS)
        assert "files there, not prepared" in lines["mnist"] and "missing: test_32x32.mat" in lines["svhn"]
        assert "prepared, unofficial" in lines["fashion"] and "no files" in lines["imagenet"]


@pytest.mark.parametrize("words", [["nothing"], ["celeba", "--size", "0"], ["mnist", "--workers", "0"]])
def test_bad_words_are_refused(tmp_path: Path, words: list[str]) -> None:
    assert cli.main(["data", *words, "--root", str(tmp_path)]) == 2


@given(data=st.data(), n=st.integers(3, 200), trial=st.integers(0, 2**40), repeat=st.none() | st.integers(0, 2**40))
def test_splits(data: st.DataObject, n: int, trial: int, repeat: int | None) -> None:
    labels = data.draw(st.integers(1, n - 2))
    validation = data.draw(st.integers(1, n - labels - 1))
    unlabeled = data.draw(st.none() | st.integers(1, n - labels - validation))
    cut = splits(n, labels, validation, unlabeled, trial=trial, repeat=repeat)
    assert list(cut) == ["labeled", "validation", "unlabeled"] and all(part.dtype == np.int64 for part in cut.values())
    sizes = [labels, validation, n - labels - validation if unlabeled is None else unlabeled]
    assert [len(part) for part in cut.values()] == sizes
    together = np.concatenate(list(cut.values()))
    assert len(set(together.tolist())) == len(together) and together.min() >= 0 and together.max() < n
    again = splits(n, labels, validation, unlabeled, trial=trial, repeat=repeat)
    assert all(np.array_equal(cut[name], again[name]) for name in cut)
    elsewhere = splits(n, labels, validation, unlabeled, trial=trial + 1, repeat=repeat)
    assert np.array_equal(cut["labeled"], elsewhere["labeled"])
    if repeat is None:
        assert cut["labeled"].tolist() == list(range(labels))
    whole = splits(n, labels, validation, trial=trial, repeat=repeat)
    assert np.array_equal(whole["unlabeled"][: sizes[2]], cut["unlabeled"])
    assert np.array_equal(whole["validation"], cut["validation"])


def test_trials_and_repeats_differ() -> None:
    trials = [splits(1000, 100, 200, trial=trial) for trial in range(5)]
    assert len({part["validation"].tobytes() for part in trials}) == 5
    repeats = [splits(1000, 100, 200, trial=0, repeat=repeat) for repeat in range(5)]
    assert len({part["labeled"].tobytes() for part in repeats}) == 5


@pytest.mark.parametrize("wanted", [(50, 50), (0, 10), (10, 0), (101, 1), (40, 40, 21), (10, 10, 0), (10, 10, -1)])
def test_more_rows_than_there_are_cannot_be_split(wanted: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        splits(100, *wanted, trial=0)
    assert "100 altogether" in caught.value.expected


@pytest.mark.slow
def test_every_error_of_a_fuzzed_file_is_ours(tmp_path: Path) -> None:
    """Random damage to random files: the arrays come out, or an error of ours does."""
    rng = np.random.default_rng(0)
    for name, writer in ARRAYS.items():
        writer(tmp_path / "good" / name, 5, 3)
        files = sorted(path for path in (tmp_path / "good" / name).rglob("*") if path.is_file())
        for i in range(30):
            root = tmp_path / f"{name}{i}"
            shutil.copytree(tmp_path / "good" / name, root / name)
            path = root / name / files[rng.integers(len(files))].relative_to(tmp_path / "good" / name)
            content = bytearray(path.read_bytes())
            for at in rng.integers(0, min(len(content), 400), rng.integers(1, 4)):
                content[at] = rng.integers(256)
            path.write_bytes(content[: rng.integers(1, len(content) + 1)] if rng.random() < 0.3 else content)
            try:
                prepare(name, root, unofficial=True)
            except WdistillError as error:
                assert isinstance(error, FileError), error
