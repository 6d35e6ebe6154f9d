"""The zip archive of an npz file, whose table of contents is believed only where the members' own headers say the same."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from wdistill.core.errors import FileError, unreadable
from wdistill.tables.formats.schema import COPY_AGAIN, Location, ends_early

DIRECTORY_LIMIT = 1 << 19  # bytes of the table of contents: some thousands of members
RATIO_LIMIT = 1000  # times that a member may grow when it is decompressed …
RATIO_FREE = 1 << 30  # … beyond this many bytes
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
UTF8_NAME, SIZES_FOLLOW = 0x800, 0x8  # the flags that a member may have
SIZES_LENGTHS = (12, 16, 20, 24)  # bytes of the sizes, where they follow the data
HEADER = struct.Struct("<4s5H3L2H")  # what stands before the name of a member
ELSEWHERE = 0xFFFF_FFFF  # a size that stands in a field of 64 bits
END = struct.Struct("<4s4H2LH")
END_64, LOCATOR_64 = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")  # before the end, in archives beyond 4 GB


@dataclass(frozen=True)
class Packed:
    """A member of an open archive: its entry in the table of contents, and where its data is."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    start: int  # byte of the file where its data begins
    where: str

    @property
    def stored(self) -> bool:
        """Whether its bytes are in the file as they are."""
        return self.info.compress_type == zipfile.ZIP_STORED

    def open(self) -> IO[bytes]:
        """Its bytes; whoever reads the last one has their checksum compared."""
        return self.archive.open(self.info)


@contextmanager
def opened(location: Location) -> Iterator[list[Packed]]:
    """The members of an archive, in the order of its table of contents; every byte before that belongs to one of them."""
    with location.path.open("rb") as stream:
        _check_end(stream, location)
        try:
            archive = zipfile.ZipFile(stream)
        except zipfile.BadZipFile as error:
            raise _no_end(stream, location) from error
        with archive:
            members = [_packed(archive, info, stream, location) for info in archive.infolist()]
            _refuse_gaps(members, archive.start_dir, location)
            yield members


def _check_end(stream: IO[bytes], location: Location) -> None:
    """The last bytes tell where the table of contents is; one that is too long is not read."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - END.size - LOCATOR_64.size - END_64.size))
    tail = stream.read()
    if len(tail) < END.size or tail[-END.size :][:4] != b"PK\5\6":
        raise _no_end(stream, location)
    length = END.unpack(tail[-END.size :])[5]
    if len(tail) > END.size + LOCATOR_64.size and tail[-END.size - LOCATOR_64.size :][:4] == b"PK\6\7":
        length = END_64.unpack(tail[: END_64.size])[8]
    if length > DIRECTORY_LIMIT:
        found, expected = f"a table of contents of {length} bytes", f"at most {DIRECTORY_LIMIT} bytes"
        remedy = "Save one array a model, (rows, classes), not one a class."
        raise unreadable("the archive has too many members", str(location), found, expected, remedy)


def _no_end(stream: IO[bytes], location: Location) -> FileError:
    expected = "an npz file, which ends with its table of contents"
    return ends_early(location, stream.seek(0, os.SEEK_END), expected)


def _packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo, stream: IO[bytes], location: Location) -> Packed:
    """A member whose header says the same as its entry in the table of contents."""
    where = f"{location}, member {info.filename.removesuffix('.npy')!r}"
    limit = RATIO_LIMIT * info.compress_size + RATIO_FREE
    if info.file_size > limit:
        raise _damaged(where, f"{info.file_size} bytes declared for {info.compress_size} stored", f"at most {limit} bytes")
    if info.compress_type not in METHODS or info.flag_bits & ~(UTF8_NAME | SIZES_FOLLOW):
        found = f"method {info.compress_type}, flags {info.flag_bits:#x}"
        raise _damaged(where, found, "a member that is stored or deflated, and not encrypted")
    stream.seek(info.header_offset)
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size or head[:4] != b"PK\3\4":
        raise _damaged(where, f"{head[:4]!r} at byte {info.header_offset}", "the header of a member")
    _, _, flags, method, _, _, checksum, packed, size, name_length, extra_length = HEADER.unpack(head)
    name, extra = stream.read(name_length), stream.read(extra_length)
    header: tuple[object, ...] = (name.decode("utf-8" if flags & UTF8_NAME else "cp437", "replace"), flags, method)
    entry: tuple[object, ...] = (info.orig_filename, info.flag_bits, info.compress_type)
    if not info.flag_bits & SIZES_FOLLOW:
        header += (checksum, *_sizes(packed, size, extra))
        entry += (info.CRC, info.compress_size, info.file_size)
    if header != entry:
        raise _damaged(where, f"{header} in the header of the member", f"{entry}, as in the table of contents")
    if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        raise _damaged(where, f"{info.compress_size} bytes", f"{info.file_size} bytes, as they are stored")
    return Packed(archive, info, info.header_offset + HEADER.size + name_length + extra_length, where)


def _sizes(packed: int, size: int, extra: bytes) -> tuple[int, int]:
    """Bytes as stored and as read, from the field of 64 bits where they stand there."""
    if (packed, size) == (ELSEWHERE, ELSEWHERE) and extra[:4] == struct.pack("<2H", 1, 16) and len(extra) >= 20:
        size, packed = struct.unpack("<2Q", extra[4:20])
    return packed, size


def _refuse_gaps(members: list[Packed], end: int, location: Location) -> None:
    """Refuse members that overlap, and bytes that belong to none: an array that the table of contents lost."""
    at = 0
    for member in sorted(members, key=lambda member: member.info.header_offset):
        if member.info.header_offset != at:
            break
        at = member.start + member.info.compress_size
        if member.info.flag_bits & SIZES_FOLLOW:
            following = {other.info.header_offset for other in members} | {end}
            at = next((at + length for length in SIZES_LENGTHS if at + length in following), at)
    if members and at != end:
        found = f"other bytes than those of a member at byte {at}"
        raise _damaged(str(location), found, "one member after the other, then the table of contents")


def _damaged(where: str, found: str, expected: str) -> FileError:
    return unreadable("the archive contradicts itself", where, found, expected, COPY_AGAIN)
