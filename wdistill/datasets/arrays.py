"""Readers of the official files that hold arrays: SVHN, CIFAR-10, CIFAR-100, MNIST and Fashion-MNIST.

Each takes the contents of the files by name and returns the train and test images.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import ConfigError, FileError, bad_value, unreadable
from wdistill.datasets.originals import MAX_BYTES
from wdistill.datasets.prepared import ImageSplit

Contents = Mapping[str, bytes]
Reader = Callable[[Contents], tuple[ImageSplit, ImageSplit]]
SIDE = 32  # of SVHN's and CIFAR's images, in pixels
PIXELS = 3 * SIDE * SIDE


def read_svhn(contents: Contents) -> tuple[ImageSplit, ImageSplit]:
    """MATLAB files with X (32, 32, 3, n) and y (n, 1), where label 10 is the digit 0."""

    def read(name: str) -> ImageSplit:
        arrays = _matlab(contents[name], name)
        labels = arrays["y"].reshape(-1).astype(np.int64)
        if labels.size and (labels.min() < 1 or labels.max() > 10):
            raise damaged(name, f"labels from {labels.min()} to {labels.max()}", "labels 1 … 10, of which 10 is the digit 0")
        return _checked(name, np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1)), labels % 10, 10)

    return read("train_32x32.mat"), read("test_32x32.mat")


def _matlab(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    """X and y of a MATLAB 5 file; its header is checked before the arrays are allocated."""
    try:
        from scipy.io import loadmat, whosmat
    except ModuleNotFoundError:
        raise not_installed("scipy", name) from None
    expected = "MATLAB 5 with X, uint8 of shape (32, 32, 3, n), and y of shape (n, 1)"
    try:
        shapes = {variable: shape for variable, shape, _ in whosmat(io.BytesIO(content))}
        x, y = shapes.get("X", ()), shapes.get("y", ())
        fits = len(x) == 4 and x[:3] == (SIDE, SIDE, 3) and y in ((x[3], 1), (1, x[3])) and x[3] * PIXELS <= MAX_BYTES
        arrays = loadmat(io.BytesIO(content), variable_names=["X", "y"]) if fits else {}
    except Exception as error:  # scipy raises many kinds for broken files
        raise damaged(name, f"{type(error).__name__}: {error}", expected) from error
    if not fits or arrays["X"].dtype != np.uint8 or arrays["y"].dtype.kind not in "uif":
        found = ", ".join(f"{variable} {shape}" for variable, shape in shapes.items()) or "no arrays"
        raise damaged(name, found, expected)
    return arrays


def read_cifar10(contents: Contents) -> tuple[ImageSplit, ImageSplit]:
    """Records of one label byte and 3,072 pixels: red, green, blue, each row by row."""
    batches = [_records(contents[name], name, 1, 10) for name in (f"data_batch_{i}.bin" for i in range(1, 6))]
    inputs = np.concatenate([batch.inputs for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    return ImageSplit(inputs, labels), _records(contents["test_batch.bin"], "test_batch.bin", 1, 10)


def read_cifar100(contents: Contents) -> tuple[ImageSplit, ImageSplit]:
    """Records of a coarse label byte, a fine label byte, which is the one used, and 3,072 pixels."""
    return _records(contents["train.bin"], "train.bin", 2, 100), _records(contents["test.bin"], "test.bin", 2, 100)


def _records(content: bytes, name: str, label_bytes: int, classes: int) -> ImageSplit:
    length = label_bytes + PIXELS
    if not content or len(content) % length:
        raise damaged(name, f"{len(content):,} bytes", f"records of {length:,} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, length)
    inputs = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, 3, SIDE, SIDE)
    return _checked(name, inputs, records[:, label_bytes - 1].astype(np.int64), classes)


def read_idx(contents: Contents) -> tuple[ImageSplit, ImageSplit]:
    """MNIST's format: big-endian magic number and lengths, then bytes; one channel."""

    def read(part: str) -> ImageSplit:
        images, labels = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
        inputs = _idx(contents[images], images, 3)[:, None]
        return _checked(images, inputs, _idx(contents[labels], labels, 1).astype(np.int64), 10)

    return read("train"), read("t10k")


def _idx(content: bytes, name: str, dimensions: int) -> NDArray[np.uint8]:
    start, expected = 4 + 4 * dimensions, f"an idx file of bytes, with {dimensions} length{'s' if dimensions > 1 else ''}"
    if len(content) < start or content[:4] != bytes([0, 0, 8, dimensions]):
        raise damaged(name, f"{len(content):,} bytes that start with {content[:4].hex() or 'nothing'}", expected)
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - start != math.prod(shape):
        raise damaged(name, f"{len(content) - start:,} bytes for shape {shape}", f"{expected}, {math.prod(shape):,} bytes")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _checked(name: str, inputs: NDArray[np.uint8], labels: NDArray[np.int64], classes: int) -> ImageSplit:
    if len(inputs) != len(labels) or not len(labels):
        raise damaged(name, f"{len(inputs)} images and {len(labels)} labels", "a label for every image, and at least one")
    if labels.min() < 0 or labels.max() >= classes:
        raise damaged(name, f"labels from {labels.min()} to {labels.max()}", f"labels 0 … {classes - 1}")
    return ImageSplit(inputs, labels)


def damaged(name: str, found: str, expected: str) -> FileError:
    what = "the file is damaged, or not what its name says"
    return unreadable(what, name, found, expected, "get the official file again")


def not_installed(library: str, where: str) -> ConfigError:
    expected, remedy = f"{library}, which reads these files", "pip install 'wdistill[datasets]'"
    return bad_value(f"{library} is not installed", where, f"no module of {library}", expected, remedy)
