"""NumPy's npz archives and npy arrays, read in stripes of rows and never unpickled."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from wdistill.errors import FileError, InputError
from wdistill.readers.layout import COPY_AGAIN, Format, Layout, Place, ends_early

ROW_LIMIT = 64 << 20  # bytes of one row
RATIO_LIMIT = 1000  # times that an entry may grow when it is decompressed …
RATIO_FREE = 1 << 30  # … beyond this many bytes
HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


@dataclass(frozen=True)
class Member:
    """An open array: its header has been read and checked, its values come next."""

    name: str
    where: str
    stream: IO[bytes]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    by_columns: bool  # Fortran order

    def type(self) -> pa.DataType:
        kind = pa.from_numpy_dtype(self.dtype)
        for size in reversed(self.shape[1:]):
            kind = pa.list_(kind, size)
        return kind

    def stripes(self, rows: int) -> Iterator[NDArray[Any]]:
        """The values, at most so many rows at a time."""
        if self.by_columns:
            whole = self._take(self.shape[::-1]).T
            yield from (whole[at : at + rows] for at in range(0, self.shape[0], rows))
            return
        for at in range(0, self.shape[0], rows):
            yield self._take((min(rows, self.shape[0] - at), *self.shape[1:]))

    def _take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        size = math.prod(shape) * self.dtype.itemsize
        data = self.stream.read(size)
        if len(data) < size:
            raise ends_early(self.where, self.stream.tell(), f"{size - len(data)} bytes more")
        return np.frombuffer(data, self.dtype).reshape(shape)


def npy_columns(option: str, paths: Mapping[str, Path]) -> Format:
    """The format of one table whose columns are npy files."""

    @contextmanager
    def opened(_: Place) -> Iterator[list[Member]]:
        with ExitStack() as stack:
            yield [_npy(name, stack.enter_context(path.open("rb")), Place(option, path)) for name, path in paths.items()]

    return _format(opened)


@contextmanager
def _npz(place: Place) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(place.path))
        except zipfile.BadZipFile as error:
            expected = "an npz file, which ends with its table of contents"
            raise ends_early(place, place.path.stat().st_size, expected) from error
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        yield [_unpacked(archive, info, place, stack) for info in arrays]


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: Place, stack: ExitStack) -> Member:
    name = info.filename.removesuffix(".npy")
    where = f"{place}, member {name!r}"
    limit = RATIO_LIMIT * info.compress_size + RATIO_FREE
    if info.file_size > limit:
        raise _unfit(where, f"{info.file_size} bytes declared for {info.compress_size} stored", f"at most {limit} bytes")
    return _member(name, stack.enter_context(archive.open(info)), info.file_size, where)


def _npy(name: str, stream: IO[bytes], place: Place) -> Member:
    return _member(name, stream, os.fstat(stream.fileno()).st_size, str(place))


def _member(name: str, stream: IO[bytes], size: int, where: str) -> Member:
    """Read the header of an array of `size` bytes and refuse what it cannot hold, before any of it is allocated."""
    version = npy_format.read_magic(stream)
    if version not in HEADERS:
        raise _unfit(where, f"npy version {version}", "an npy array of version 1 or 2")
    shape, by_columns, dtype = HEADERS[version](stream)
    if dtype.hasobject:
        raise _unfit(where, f"dtype {dtype}, which only unpickling could read", "numbers or strings")
    if not shape or min(shape) < 0 or not _has_arrow_type(dtype):
        raise _unfit(where, f"dtype {dtype}, shape {shape}", "an array of numbers or strings with one row an example")
    row = math.prod(shape[1:]) * dtype.itemsize
    declared = stream.tell() + shape[0] * row
    if declared > size:
        raise ends_early(where, size, f"{declared} bytes, as the header declares with shape {shape} and dtype {dtype}")
    if declared < size or not row or row > ROW_LIMIT:
        found = f"shape {shape}, dtype {dtype}, {size} bytes"
        raise _unfit(where, found, f"{declared} bytes, and rows of 1 to {ROW_LIMIT} bytes")
    return Member(name, where, stream, dtype, shape, by_columns and len(shape) > 1)


def _has_arrow_type(dtype: np.dtype[Any]) -> bool:
    try:
        pa.from_numpy_dtype(dtype)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _unfit(where: str, found: str, expected: str) -> FileError:
    remedy = f"Save plain columns only, with np.save or np.savez. {COPY_AGAIN}"
    return FileError("this array cannot be a column", where=where, found=found, expected=expected, remedy=remedy)


def _format(opened: Callable[[Place], AbstractContextManager[list[Member]]]) -> Format:
    """A format over whatever opens the arrays of a file."""

    def layout(place: Place) -> Layout:
        with opened(place) as members:
            return Layout(pa.schema([(member.name, member.type()) for member in members]), _rows(members, place))

    def read(place: Place, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        with opened(place) as members:
            total = _rows(members, place)
            columns: dict[str, Iterator[pa.Array]] = {
                member.name: map(_to_arrow, member.stripes(rows)) for member in members if member.name in schema.names
            }
            if "id" not in columns:
                columns["id"] = (pa.array(np.arange(at, min(at + rows, total))) for at in range(0, total, rows))
            for arrays in zip(*columns.values(), strict=True):
                yield pa.RecordBatch.from_arrays(list(arrays), names=list(columns))

    return Format(layout, read)


def _rows(members: Sequence[Member], place: Place) -> int:
    """The number of rows, which all arrays share."""
    if not members:
        raise FileError(
            "the file holds no arrays",
            where=str(place),
            found="an empty archive",
            expected="one array a column",
            remedy="Write the file again with np.savez.",
        )
    first = members[0]
    for member in members:
        if member.shape[0] != first.shape[0]:
            raise InputError(
                "the columns have different lengths",
                where=member.where,
                found=f"{member.shape[0]} rows",
                expected=f"{first.shape[0]} rows, as in {first.name!r}",
                remedy="Save only arrays with one row for every example, the same examples in all of them.",
            )
    return first.shape[0]


def _to_arrow(stripe: NDArray[Any]) -> pa.Array:
    """The same values as Arrow keeps them: an axis beyond the first becomes a list of fixed size."""
    values = pa.array(stripe.astype(stripe.dtype.newbyteorder("="), copy=False).reshape(-1))
    for size in reversed(stripe.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


NPZ = _format(_npz)
