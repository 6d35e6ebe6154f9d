"""Readers of the official files that hold arrays: SVHN, CIFAR-10, CIFAR-100, MNIST and Fashion-MNIST.

Each takes the contents of the files by name and returns train and test rows.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.datasets.originals import LARGEST
from wdistill.datasets.prepared import Rows
from wdistill.errors import ConfigError, FileError

Contents = Mapping[str, bytes]
Reader = Callable[[Contents], tuple[Rows, Rows]]
SIDE = 32  # of SVHN's and CIFAR's images, in pixels
PIXELS = 3 * SIDE * SIDE


def read_svhn(contents: Contents) -> tuple[Rows, Rows]:
    """MATLAB files with X (32, 32, 3, n) and y (n, 1), where label 10 is the digit 0."""

    def rows(name: str) -> Rows:
        found = _matlab(contents[name], name)
        labels = found["y"].reshape(-1).astype(np.int64)
        if labels.size and (labels.min() < 1 or labels.max() > 10):
            raise damaged(name, f"labels from {labels.min()} to {labels.max()}", "labels 1 … 10, of which 10 is the digit 0")
        return _rows(name, np.ascontiguousarray(found["X"].transpose(3, 2, 0, 1)), labels % 10, 10)

    return rows("train_32x32.mat"), rows("test_32x32.mat")


def _matlab(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    """X and y of a MATLAB 5 file, of which the header is believed only as far as it is sensible."""
    try:
        from scipy.io import loadmat, whosmat
    except ModuleNotFoundError:
        raise lacking("scipy", name) from None
    expected = "MATLAB 5 with X, uint8 of shape (32, 32, 3, n), and y of shape (n, 1)"
    try:
        shapes = {each: shape for each, shape, _ in whosmat(io.BytesIO(content))}
        x, y = shapes.get("X", ()), shapes.get("y", ())
        fits = len(x) == 4 and x[:3] == (SIDE, SIDE, 3) and y in ((x[3], 1), (1, x[3])) and x[3] * PIXELS <= LARGEST
        found = loadmat(io.BytesIO(content), variable_names=["X", "y"]) if fits else {}
    except Exception as error:  # scipy has many ways to say that a file is broken
        raise damaged(name, f"{type(error).__name__}: {error}", expected) from error
    if not fits or found["X"].dtype != np.uint8 or found["y"].dtype.kind not in "uif":
        raise damaged(name, ", ".join(f"{each} {shape}" for each, shape in shapes.items()) or "no arrays", expected)
    return found


def read_cifar10(contents: Contents) -> tuple[Rows, Rows]:
    """Records of one label byte and 3,072 pixels: red, green, blue, each row by row."""
    parts = [_records(contents[name], name, 1, 10) for name in (f"data_batch_{i}.bin" for i in range(1, 6))]
    inputs, labels = (np.concatenate(each) for each in zip(*((part.inputs, part.labels) for part in parts), strict=True))
    return Rows(inputs, labels), _records(contents["test_batch.bin"], "test_batch.bin", 1, 10)


def read_cifar100(contents: Contents) -> tuple[Rows, Rows]:
    """Records of a coarse label byte, a fine label byte, which is the one taken, and 3,072 pixels."""
    return _records(contents["train.bin"], "train.bin", 2, 100), _records(contents["test.bin"], "test.bin", 2, 100)


def _records(content: bytes, name: str, label_bytes: int, classes: int) -> Rows:
    length = label_bytes + PIXELS
    if not content or len(content) % length:
        raise damaged(name, f"{len(content):,} bytes", f"records of {length:,} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, length)
    inputs = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, 3, SIDE, SIDE)
    return _rows(name, inputs, records[:, label_bytes - 1].astype(np.int64), classes)


def read_idx(contents: Contents) -> tuple[Rows, Rows]:
    """MNIST's format: big-endian magic number and lengths, then bytes; one channel."""

    def rows(part: str) -> Rows:
        images, labels = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
        inputs = _idx(contents[images], images, 3)[:, None]
        return _rows(images, inputs, _idx(contents[labels], labels, 1).astype(np.int64), 10)

    return rows("train"), rows("t10k")


def _idx(content: bytes, name: str, dimensions: int) -> NDArray[np.uint8]:
    begin, expected = 4 + 4 * dimensions, f"an idx file of bytes, with {dimensions} length{'s' if dimensions > 1 else ''}"
    if len(content) < begin or content[:4] != bytes([0, 0, 8, dimensions]):
        raise damaged(name, f"{len(content):,} bytes that begin with {content[:4].hex() or 'nothing'}", expected)
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - begin != math.prod(shape):
        raise damaged(name, f"{len(content) - begin:,} bytes for shape {shape}", f"{expected}, {math.prod(shape):,} bytes")
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def _rows(name: str, inputs: NDArray[np.uint8], labels: NDArray[np.int64], classes: int) -> Rows:
    if len(inputs) != len(labels) or not len(labels):
        raise damaged(name, f"{len(inputs)} images and {len(labels)} labels", "a label for every image, and at least one")
    if labels.min() < 0 or labels.max() >= classes:
        raise damaged(name, f"labels from {labels.min()} to {labels.max()}", f"labels 0 … {classes - 1}")
    return Rows(inputs, labels)


def damaged(name: str, found: str, expected: str) -> FileError:
    return FileError(
        "the file is damaged, or not what its name says",
        where=name,
        found=found,
        expected=expected,
        remedy="get the official file again",
    )


def lacking(library: str, where: str) -> ConfigError:
    return ConfigError(
        f"{library} is not installed",
        where=where,
        found=f"no module of {library}",
        expected=f"{library}, which reads these files",
        remedy="pip install 'wdistill[datasets]'",
    )
