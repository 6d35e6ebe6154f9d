"""NumPy's npz archives and npy arrays, read in stripes of rows and never unpickled."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.core import npy
from wdistill.core.errors import FileError, bad_input, unreadable
from wdistill.tables.formats import archive
from wdistill.tables.formats.schema import COPY_AGAIN, Format, Layout, Location, ends_early

RECORD = "record.json"  # the member of an npz file of weights that tells how it was made
ROW_LIMIT = 64 << 20  # bytes of one row
STRIPE = 48 << 20  # bytes of all columns read at once
SCATTERED_LIMIT = 1 << 20  # bytes of one row in Fortran order, whose numbers are read one by one
PACKED_LIMIT = 96 << 20  # bytes of compressed arrays in Fortran order, which are read whole
GROWTH_LIMIT = 100  # times that arrays which are read whole may grow when they are decompressed …
GROWTH_FREE = 256 << 20  # … beyond this many bytes


@dataclass(frozen=True)
class Member:
    """An array in a file: its header has been read and checked."""

    name: str
    where: str
    open: Callable[[], IO[bytes]]
    path: Path
    start: int | None  # byte of the file where its values begin; None if they are compressed
    header: int  # bytes before the values
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    by_columns: bool  # Fortran order

    @property
    def row(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def type(self) -> pa.DataType:
        kind = pa.from_numpy_dtype(self.dtype)
        for size in reversed(self.shape[1:]):
            kind = pa.list_(kind, size)
        return kind

    def stripes(self, rows: int) -> Iterator[NDArray[Any]]:
        """The values, at most so many rows at a time."""
        total, others = self.shape[0], self.shape[1:]
        with self.open() as stream:
            stream.read(self.header)
            if not self.by_columns:
                for at in range(0, total, rows):
                    yield self._take(stream, (min(rows, total - at), *others))
            elif self.start is None or rows >= total:
                whole = self._take(stream, self.shape[::-1]).T
                yield from (whole[at : at + rows] for at in range(0, total, rows))
            else:
                while stream.read(1 << 20):  # to its end, where a checksum is compared
                    pass
                yield from self._gathered(self.start, rows)

    def whole(self) -> NDArray[Any]:
        """All values."""
        return next(self.stripes(max(1, self.shape[0])), np.empty(self.shape, self.dtype))

    def _take(self, stream: IO[bytes], shape: tuple[int, ...]) -> NDArray[Any]:
        array = np.empty(shape, self.dtype)
        wanted = array.reshape(-1).view(np.uint8)
        for at in range(0, len(wanted), 1 << 20):
            piece = stream.read(min(1 << 20, len(wanted) - at))
            wanted[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            if at + len(piece) < min(at + (1 << 20), len(wanted)):
                raise self._ends(len(wanted) - at - len(piece))
        return array

    def _gathered(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Rows whose numbers lie far apart in the file."""
        total, columns = self.shape[0], math.prod(self.shape[1:])
        with self.path.open("rb", buffering=0) as file:
            for at in range(0, total, rows):
                pieces = np.empty((columns, min(rows, total - at)), self.dtype)
                for column, piece in enumerate(pieces.view(np.uint8)):
                    offset = start + (column * total + at) * self.dtype.itemsize
                    if os.preadv(file.fileno(), [piece], offset) < len(piece):
                        raise self._ends(len(piece))
                yield pieces.reshape(*self.shape[:0:-1], -1).T

    def _ends(self, missing: int) -> FileError:
        return ends_early(self.where, self.path.stat().st_size, f"{missing} bytes more")


def npy_columns(option: str, paths: Mapping[str, Path]) -> Format:
    """The format of one table whose columns are npy files."""

    @contextmanager
    def opened(_: Location) -> Iterator[list[Member]]:
        yield [_npy(name, Location(option, path)) for name, path in paths.items()]

    return _format(opened)


@contextmanager
def _npz(location: Location) -> Iterator[list[Member]]:
    with archive.opened(location) as members:
        refuse_other_members([member.info.filename for member in members], str(location))
        yield [_unpacked(member, location) for member in members if member.info.filename != RECORD]


def refuse_other_members(names: Sequence[str], where: str) -> None:
    """Refuse an archive with a member that is no array: a column that lost its ending would be left out in silence."""
    others = [name for name in names if not name.endswith(".npy") and name != RECORD]
    if others:
        remedy = "Save plain columns only, with np.savez, which names every member COLUMN.npy."
        found = f"a member {others[0]!r}"
        raise unreadable("the archive holds something else than arrays", where, found, "members named COLUMN.npy", remedy)


def read_arrays(path: Path, option: str, names: Collection[str]) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """The names of all arrays of an npz file, and those of the given names, read whole."""
    location = Location(option, path)
    with archive.opened(location) as packed:
        files = [each.info.filename for each in packed]
        refuse_other_members(files, str(location))
        wanted = [each for each in packed if each.info.filename.removesuffix(".npy") in names]
        grown, limit = sum(each.info.file_size for each in wanted), GROWTH_FREE + GROWTH_LIMIT * path.stat().st_size
        if grown > limit:
            found, expected = f"{grown} bytes in a file of {path.stat().st_size}", f"at most {limit} bytes"
            remedy = "Save it with np.savez, which does not compress, or as a folder of npy files, which is not read whole."
            raise unreadable("the arrays grow too much", str(location), found, expected, remedy)
        members = [_unpacked(each, location) for each in wanted]
        arrays = {member.name: member.whole() for member in members}
    for values in arrays.values():
        npy.check_text(values)
    return [name.removesuffix(".npy") for name in files], arrays


def _unpacked(packed: archive.Packed, location: Location) -> Member:
    name, start = packed.info.filename.removesuffix(".npy"), packed.start if packed.stored else None
    return _member(name, packed.where, packed.open, location.path, start, packed.info.file_size)


def _npy(name: str, location: Location) -> Member:
    size = location.path.stat().st_size
    return _member(name, str(location), lambda: location.path.open("rb"), location.path, 0, size)


def _member(name: str, where: str, opens: Callable[[], IO[bytes]], path: Path, start: int | None, size: int) -> Member:
    """Read the header of an array of `size` bytes and refuse what it cannot hold, before any of it is allocated."""
    try:
        with opens() as stream:
            read = npy.read_header(stream)
    except ValueError as error:
        raise _unfit(where, str(error), "an npy array of version 1 or 2") from None
    shape, by_columns, dtype, header = read.shape, read.by_columns, read.dtype, read.length
    if dtype.hasobject:
        raise _unfit(where, f"dtype {dtype}, which only unpickling could read", "numbers or strings")
    if not shape or len(shape) > npy.AXES or min(shape) < 0 or not _has_arrow_type(dtype):
        raise _unfit(where, f"dtype {dtype}, shape {shape}", "an array of numbers or strings with one row an example")
    row = math.prod(shape[1:]) * dtype.itemsize
    declared = header + shape[0] * row
    if declared > size:
        raise ends_early(where, size, f"{declared} bytes, as the header declares with shape {shape} and dtype {dtype}")
    if declared < size or not row or row > ROW_LIMIT:
        found = f"shape {shape}, dtype {dtype}, {size} bytes"
        raise _unfit(where, found, f"{declared} bytes, and rows of 1 to {ROW_LIMIT} bytes")
    values = None if start is None else start + header
    return Member(name, where, opens, path, values, header, dtype, shape, by_columns and len(shape) > 1)


def _has_arrow_type(dtype: np.dtype[Any]) -> bool:
    try:
        pa.from_numpy_dtype(dtype)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _unfit(where: str, found: str, expected: str) -> FileError:
    remedy = f"Save plain columns only, with np.save or np.savez. {COPY_AGAIN}"
    return unreadable("this array cannot be a column", where, found, expected, remedy)


def _format(opened: Callable[[Location], AbstractContextManager[list[Member]]]) -> Format:
    """A format over whatever opens the arrays of a file."""

    def layout(location: Location) -> Layout:
        with opened(location) as members:
            return Layout(pa.schema([(member.name, member.type()) for member in members]), _rows(members, location))

    def read(location: Location, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        with opened(location) as members:
            total = _rows(members, location)
            members = [member for member in members if member.name in schema.names]
            rows = max(1, min(rows, STRIPE // max(1, sum(member.row for member in members))))
            _check_columnwise(members, rows)
            columns: dict[str, Iterator[pa.Array]] = {
                member.name: map(_to_arrow, member.stripes(rows)) for member in members
            }
            if "id" not in columns:
                columns["id"] = (pa.array(np.arange(at, min(at + rows, total))) for at in range(0, total, rows))
            for arrays in zip(*columns.values(), strict=True):
                yield pa.RecordBatch.from_arrays(list(arrays), names=list(columns))

    return Format(layout, read)


def _check_columnwise(members: Sequence[Member], rows: int) -> None:
    """Refuse arrays in Fortran order that could only be read whole, or number by number."""
    packed = 0
    for member in (member for member in members if member.by_columns):
        packed += member.shape[0] * member.row if member.start is None else 0
        scattered = member.start is not None and rows < member.shape[0] and member.row > SCATTERED_LIMIT
        if packed > PACKED_LIMIT or scattered:
            found = (
                f"{member.shape[0] * member.row} bytes in Fortran order, {'rows far apart' if scattered else 'compressed'}"
            )
            expected = f"at most {PACKED_LIMIT} bytes of such arrays, or an array in C order"
            remedy = "Save it row by row: np.ascontiguousarray(array) before np.savez_compressed or np.save."
            raise unreadable("the array cannot be read row by row", member.where, found, expected, remedy)


def _rows(members: Sequence[Member], location: Location) -> int:
    """The number of rows, which all arrays share."""
    if not members:
        remedy = "Write the file again with np.savez."
        raise unreadable("the file holds no arrays", str(location), "an empty archive", "one array a column", remedy)
    first = members[0]
    for member in members:
        if member.shape[0] != first.shape[0]:
            found, expected = f"{member.shape[0]} rows", f"{first.shape[0]} rows, as in {first.name!r}"
            remedy = "Save only arrays with one row for every example, the same examples in all of them."
            raise bad_input("the columns have different lengths", member.where, found, expected, remedy)
    return first.shape[0]


def _to_arrow(stripe: NDArray[Any]) -> pa.Array:
    """The same values as Arrow keeps them: an axis beyond the first becomes a list of fixed size."""
    values = pa.array(stripe.astype(stripe.dtype.newbyteorder("="), copy=False).reshape(-1))
    for size in reversed(stripe.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


NPZ = _format(_npz)
