"""Small files in exactly the formats of the official data sets.

Each writer puts files into a folder and returns what is in them: {"train": (images, labels), "test": …}, images uint8
(n, C, H, W). CelebA's and ImageNet's images are JPEGs of one colour each, so that resizing and coding leave them as they are
but for a few levels; their images are returned as colours (n, 3).
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

Written = dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]
WNIDS = ("n01440764", "n01443537", "n01484850")


def drawn(n_train: int, n_test: int, seed: int, shape: tuple[int, ...], classes: int) -> Written:
    """Noise, with every class among the first labels as far as they go."""
    rng = np.random.default_rng(seed)
    return {
        part: (rng.integers(0, 256, (n, *shape), np.uint8), rng.permutation(np.arange(n) % classes).astype(np.int64))
        for part, n in (("train", n_train), ("test", n_test))
    }


def write_svhn(folder: Path, n_train: int = 25, n_test: int = 10, seed: int = 0) -> Written:
    """MATLAB 5, compressed: X (32, 32, 3, n) and y (n, 1), where 10 stands for the digit 0."""
    written = drawn(n_train, n_test, seed, (3, 32, 32), 10)
    folder.mkdir(parents=True, exist_ok=True)
    for part, (images, labels) in written.items():
        y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        savemat(folder / f"{part}_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": y}, do_compression=True)
    return written


def write_cifar10(folder: Path, n_train: int = 25, n_test: int = 10, seed: int = 0, *, packed: bool = True) -> Written:
    written = drawn(n_train, n_test, seed, (3, 32, 32), 10)
    files = {"test_batch.bin": records(*written["test"])}
    for i, rows in enumerate(np.array_split(np.arange(n_train), 5), 1):
        files[f"data_batch_{i}.bin"] = records(*(each[rows] for each in written["train"]))
    _put(folder, "cifar-10-binary.tar.gz", "cifar-10-batches-bin", files, packed)
    return written


def write_cifar100(folder: Path, n_train: int = 25, n_test: int = 10, seed: int = 0, *, packed: bool = True) -> Written:
    """The coarse label, which nobody reads, is a fifth of the fine one."""
    written = drawn(n_train, n_test, seed, (3, 32, 32), 100)
    files = {f"{part}.bin": records(images, labels // 5, labels) for part, (images, labels) in written.items()}
    _put(folder, "cifar-100-binary.tar.gz", "cifar-100-binary", files, packed)
    return written


def records(images: NDArray[np.uint8], *labels: NDArray[np.int64]) -> bytes:
    columns = [each.astype(np.uint8)[:, None] for each in labels]
    return np.concatenate([*columns, images.reshape(len(images), -1)], axis=1).tobytes()


def _put(folder: Path, archive: str, inside: str, files: Mapping[str, bytes], packed: bool) -> None:
    (folder if packed else folder / inside).mkdir(parents=True, exist_ok=True)
    if packed:
        (folder / archive).write_bytes(tar_gz({f"{inside}/{name}": content for name, content in files.items()}))
    else:
        for name, content in files.items():
            (folder / inside / name).write_bytes(content)


def tar_gz(files: Mapping[str, bytes], others: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    """A compressed tar archive of files, behind members of other kinds."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for other in others:
            archive.addfile(other)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write_mnist(folder: Path, n_train: int = 25, n_test: int = 10, seed: int = 0, *, packed: bool = True) -> Written:
    written = drawn(n_train, n_test, seed, (1, 28, 28), 10)
    folder.mkdir(parents=True, exist_ok=True)
    for part, (images, labels) in (("train", written["train"]), ("t10k", written["test"])):
        for name, values in (("images-idx3", images[:, 0]), ("labels-idx1", labels.astype(np.uint8))):
            path, content = folder / f"{part}-{name}-ubyte", idx(values)
            if packed:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
            else:
                path.write_bytes(content)
    return written


write_fashion = write_mnist  # the same format under the same names


def idx(values: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_celeba(folder: Path, n_train: int = 12, n_test: int = 5, seed: int = 0, *, packed: bool = True) -> Written:
    """178 × 218 JPEGs, two of them in the validation part; black above and below the middle square."""
    rng, parts = np.random.default_rng(seed), np.repeat([0, 1, 2], [n_train, 2, n_test])
    colours, male = rng.integers(0, 256, (len(parts), 3), np.uint8), rng.integers(0, 2, len(parts))
    names = [f"{i:06d}.jpg" for i in range(1, len(parts) + 1)]
    columns = ["5_o_Clock_Shadow", "Male", "Young"]
    rows = [f"{name} -1 {2 * each - 1:2d}  1" for name, each in zip(names, male.tolist(), strict=True)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "list_attr_celeba.txt").write_text(f"{len(rows)}\n{' '.join(columns)} \n" + "\n".join(rows) + "\n")
    partition = (f"{name} {part}\n" for name, part in zip(names, parts.tolist(), strict=True))
    (folder / "list_eval_partition.txt").write_text("".join(partition))
    files = {name: portrait(colour) for name, colour in zip(names, colours, strict=True)}
    if packed:
        with zipfile.ZipFile(folder / "img_align_celeba.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(f"img_align_celeba/{name}", content)
    else:
        (folder / "img_align_celeba").mkdir()
        for name, content in files.items():
            (folder / "img_align_celeba" / name).write_bytes(content)
    chosen = {"train": parts == 0, "test": parts == 2}
    return {part: (colours[rows], male[rows].astype(np.int64)) for part, rows in chosen.items()}


def portrait(colour: NDArray[np.uint8]) -> bytes:
    image = Image.new("RGB", (178, 218))
    image.paste(tuple(colour.tolist()), (0, 20, 178, 198))
    return jpeg(image)


def jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=100, subsampling=0) if image.mode == "RGB" else image.save(
        buffer, "JPEG", quality=100
    )
    return buffer.getvalue()


def write_imagenet(folder: Path, n_train: int = 14, n_test: int = 6, seed: int = 0) -> Written:
    """Three class folders in train and val; odd sizes; the first image of each class is gray, the second of the first CMYK.

    Images are returned by class and file name, as they lie on the disk.
    """
    rng, written = np.random.default_rng(seed), {}
    for part, inside, n in (("train", "train", n_train), ("test", "val", n_test)):
        labels = np.sort(np.arange(n) % len(WNIDS)).astype(np.int64)
        colours = rng.integers(0, 256, (n, 3), np.uint8)
        for i, label in enumerate(labels.tolist()):
            place = folder / inside / WNIDS[label]
            place.mkdir(parents=True, exist_ok=True)
            width, height = rng.integers(33, 120, 2).tolist()
            image = Image.new("RGB", (width, height), tuple(colours[i].tolist()))
            if not i or labels[i - 1] != label:
                image = image.convert("L")
            elif i == 1:
                image = image.convert("CMYK")
            colours[i] = image.convert("RGB").getpixel((0, 0))
            name = f"{WNIDS[label]}_{i:05d}.JPEG" if part == "train" else f"ILSVRC2012_val_{i:08d}.JPEG"
            (place / name).write_bytes(jpeg(image))
        written[part] = (colours, labels)
    return written
