"""Arrays as npy files: every header is read here, and none is believed that declares more, or less, than the file holds."""

from __future__ import annotations

import io
import math
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from wdistill.core.errors import unreadable

LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}  # of the header, by version
HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
HEADER_LIMIT = 10_000  # bytes
NUMBERS, AXES = "biuf", 32  # kinds of dtypes, and axes, that an array may have
WORDS = "US"  # … and those of columns that are no numbers: ids, groups


@dataclass(frozen=True)
class Header:
    """What an npy file says of its array."""

    shape: tuple[int, ...]
    by_columns: bool  # Fortran order
    dtype: np.dtype[Any]
    length: int  # bytes before the numbers

    def __str__(self) -> str:
        return f"an array of shape {self.shape} and dtype {self.dtype}"

    @property
    def declared(self) -> int:
        """Bytes of the whole file."""
        return self.length + math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes]) -> Header:
    """The header at the beginning of a stream, which then stands before the numbers; ValueError where there is none."""
    try:
        version = npy_format.read_magic(stream)
        if version not in LENGTHS:
            raise ValueError(f"npy version {version}, and not 1 or 2")
        length = stream.read(LENGTHS[version].size)
        (size,) = LENGTHS[version].unpack(length)
        if size > HEADER_LIMIT:
            raise ValueError(f"a header of {size} bytes")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, by_columns, dtype = HEADERS[version](io.BytesIO(length + stream.read(size)))
    except Exception as error:  # NumPy parses the header as Python, and raises whatever Python does
        raise ValueError(f"no npy array: {type(error).__name__}: {error}") from None
    return Header(shape, by_columns, dtype, stream.tell())


def read_numbers(opened: Callable[[], IO[bytes]], size: int) -> NDArray[Any]:
    """The real numbers or booleans in an npy file of `size` bytes; ValueError where it holds anything else, or less."""
    return _read(opened, size, NUMBERS)


def read(path: Path, remedy: str, kinds: str = NUMBERS) -> NDArray[Any]:
    """An npy file, read whole; an error that names the file where it is none, or holds other `kinds` of dtypes."""
    try:
        return _read(lambda: path.open("rb"), _size(path), kinds)
    except (OSError, ValueError, MemoryError) as error:
        raise unreadable("not an npy file", path, error, _expected(kinds), remedy) from None


def mapped(path: Path, remedy: str, kinds: str = NUMBERS) -> np.memmap[Any, Any]:
    """An npy file, read from the disk as it is used; errors as of `read`."""
    try:
        size = _size(path)
        with path.open("rb") as stream:
            header = read_header(stream)
        _check(header, size, kinds)
        order: Any = "F" if header.by_columns else "C"
        values = np.memmap(path, header.dtype, "r", header.length, header.shape, order)
        check_text(values)
        return values
    except (OSError, ValueError, MemoryError) as error:
        raise unreadable("not an npy file", path, error, _expected(kinds), remedy) from None


def check_text(values: NDArray[Any]) -> None:
    """Raise ValueError where text has characters that do not exist: Python fails on them without saying where."""
    if values.dtype.kind == "U" and values.nbytes:
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        if int(native.reshape(-1).view(np.uint32).max()) > sys.maxunicode:
            raise ValueError("text with characters that do not exist")


def _size(path: Path) -> int:
    """Bytes of a file; what is no file, such as a device or a pipe, might never end."""
    if path.exists() and not path.is_file():
        raise ValueError("no file")
    return path.stat().st_size


def _read(opened: Callable[[], IO[bytes]], size: int, kinds: str) -> NDArray[Any]:
    with opened() as stream:
        header = read_header(stream)
    _check(header, size, kinds)
    with opened() as stream:
        values: NDArray[Any] = npy_format.read_array(stream, allow_pickle=False)
    check_text(values)
    return values


def _check(header: Header, size: int, kinds: str) -> None:
    """Raise ValueError where a file of `size` bytes is not the array that its header declares, or not of these kinds."""
    dtype, shape = header.dtype, header.shape
    if dtype.kind not in kinds:
        raise ValueError(f"an array of dtype {dtype}, and not of {_words(kinds)}")
    if len(shape) > AXES or min(shape, default=0) < 0 or header.declared != size:
        raise ValueError(f"{header} in {size} bytes")


def _words(kinds: str) -> str:
    return "real numbers" if kinds == NUMBERS else "real numbers or text"


def _expected(kinds: str) -> str:
    return f"an array of {_words(kinds)} that numpy.save wrote, whole"
