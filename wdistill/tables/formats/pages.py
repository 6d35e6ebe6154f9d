"""The pages of a parquet file, measured by their headers and compared with the footer before any of them is decoded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from wdistill.core.errors import FileError, unreadable
from wdistill.tables.formats import thrift
from wdistill.tables.formats.schema import COPY_AGAIN, TEXT_LIMIT, Location, ends_early, listing

DECODED = 64 << 20  # bytes of all columns decoded at once
ROW_LIMIT = 64 << 20  # bytes of one row
PAGES_LIMIT = 128 << 20  # bytes of the pages that are open at once, beyond the size of the file
PREFIXES = 7  # the encoding DELTA_BYTE_ARRAY: a string may repeat the one before it, and be as long as its page
COPIES = 3  # of such strings in memory, while Arrow builds the column
GROWTH_LIMIT = 4096  # times that the lists of a row group may grow when they are decoded: one may hold all the numbers …
GROWTH_FREE = 256 << 20  # … beyond this many bytes
HEADER_LIMIT = 16 << 20  # bytes of the header of a page, as Arrow has it
TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 16}
LEVELS = 8  # bytes that tell which list a value is in
UNCOMPRESSED, DATA, DICTIONARY, DATA_2 = 0, 0, 2, 3
CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
DICTIONARIES = {2: 8}  # the older of two numbers for the same encoding, by a dictionary
REMEDY = (
    "Write the file again with smaller row groups and pages, for example pq.write_table(table, path, row_group_size=10_000)."
)


class Page(NamedTuple):
    """What the header of a page declares."""

    kind: int
    packed: int  # bytes as stored
    size: int  # bytes when decompressed
    values: int  # 0 in a dictionary
    encoding: int | None  # of the values, where the page has a checksum: a checksum does not cover the header


class ColumnChunk(NamedTuple):
    """What the footer declares of the part of a column in a row group."""

    kind: int
    encodings: tuple[int, ...]
    path: str
    codec: int
    values: int
    packed: int  # bytes of all pages as stored
    start: int  # byte of the first page

    @property
    def end(self) -> int:
        return self.start + self.packed


class Group(NamedTuple):
    """What the footer declares of a row group: all columns in the order of the schema."""

    rows: int
    chunks: tuple[ColumnChunk, ...]


class Leaf(NamedTuple):
    """A column on disk that is read; a column of lists is one."""

    number: int
    path: str
    kind: str
    flat: bool  # one value a row
    width: int  # bytes of a value while it is decoded


def check_empty(location: Location, descriptor: int) -> None:
    """Refuse rows in the row groups of an open file that declares to have none."""
    rows = sum(max(group.rows, *(chunk.values for chunk in group.chunks)) for group in _groups(location, descriptor))
    if rows:
        raise _contradicts(str(location), "no rows declared", f"{rows} rows, as the row groups have")


def _groups(location: Location, descriptor: int) -> list[Group]:
    """The row groups that the footer of an open file describes."""
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 4, size - 8), "little")
    try:
        footer = os.pread(descriptor, length, max(0, size - 8 - length))
        return list(thrift.structure(footer, convert={4: _group})[0].get(4, []))
    except (IndexError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _contradicts(str(location), f"{error or 'no end'}", "a footer that describes row groups") from None


@dataclass
class Guard:
    """The row groups of an open file, looked at in their order, before they are read."""

    location: Location
    descriptor: int
    size: int
    leaves: list[Leaf]
    groups: list[Group]
    checked: int = 0  # row groups
    rows: int = 0  # of these row groups
    at_once: int = 1  # rows that are decoded at once

    @classmethod
    def of(cls, location: Location, descriptor: int, schema: pq.ParquetSchema, columns: Sequence[str]) -> Guard:
        """The guard of the columns of these names; pyarrow's own view of a footer ends the process where it is damaged."""
        size, leaves = os.fstat(descriptor).st_size, _leaves(schema, set(columns))
        guard = cls(location, descriptor, size, leaves, _groups(location, descriptor))
        guard._check_footer(schema)
        return guard

    def batch(self, rows: int) -> int:
        """How many rows may be decoded at once, at most `rows`."""
        longest = 1
        for group in self.groups:
            if group.rows > 0:
                entries = sum(group.chunks[leaf.number].values * leaf.width for leaf in self.leaves)
                longest = max(longest, -(-entries // group.rows) + self._repeating(group))
        if longest > ROW_LIMIT:
            found, expected = f"rows of {longest} bytes on average", f"rows of at most {ROW_LIMIT} bytes"
            raise unreadable("the rows are too long", str(self.location), found, expected, REMEDY)
        self.at_once = max(1, min(rows, DECODED // longest))
        return self.at_once

    def _repeating(self, group: Group) -> int:
        """How long strings of a row may be that repeat those before them, which few bytes of a page can do."""
        chunks = [group.chunks[leaf.number] for leaf in self.leaves if PREFIXES in group.chunks[leaf.number].encodings]
        pages = [[page.size for page, _ in self._pages(chunk, str(self.location))] for chunk in chunks]
        return COPIES * sum(max(sizes, default=0) for sizes in pages)

    def check(self, rows: int) -> None:
        """Look at the pages of the row groups of the first `rows` rows, and of one more."""
        while self.checked < len(self.groups) and self.rows <= rows:
            group, where = self.groups[self.checked], f"{self.location}, row group {self.checked}"
            needed = 0
            for leaf in self.leaves:
                needed += self._check_chunk(group.chunks[leaf.number], leaf, needed, where)
            self.rows += group.rows
            self.checked += 1

    def _check_footer(self, schema: pq.ParquetSchema) -> None:
        """Refuse row groups that do not fit the schema, and parts of columns that overlap."""
        chunks = [chunk for group in self.groups for chunk in group.chunks]
        paths = [schema.column(number).path for number in range(len(schema))]
        for number, group in enumerate(self.groups):
            names = [chunk.path for chunk in group.chunks]
            if names != paths:
                found, where = sorted({*names} ^ {*paths}) or names, f"{self.location}, row group {number}"
                raise _contradicts(where, f"other columns: {listing(found)}", f"{len(paths)} columns, as in the schema")
        for before, after in pairwise(sorted((chunk.start, chunk.end) for chunk in chunks if chunk.packed)):
            if before[1] > after[0]:
                raise _contradicts(str(self.location), f"two columns at byte {after[0]}", "columns one after the other")
        for number, group in enumerate(self.groups):
            for leaf in self.leaves:
                chunk, rows = group.chunks[leaf.number], group.rows
                kind = TYPES[chunk.kind] if 0 <= chunk.kind < len(TYPES) else chunk.kind
                if kind != leaf.kind or chunk.values < rows or (leaf.flat and chunk.values != rows):
                    where, expected = f"{self.location}, row group {number}", f"{leaf.path}, {leaf.kind}, for {rows} rows"
                    raise _contradicts(where, f"{leaf.path}, {kind}, {chunk.values} values", expected)

    def _check_chunk(self, chunk: ColumnChunk, leaf: Leaf, needed: int, group: str) -> int:
        """The bytes of the largest pages of a part of a column, which are open at once, after `needed` bytes of others."""
        where, grown = f"{group}, column {leaf.path!r}", 0 if leaf.flat else chunk.values * leaf.width
        data = dictionary = seen = 0
        limit, at = PAGES_LIMIT + self.size, chunk.start
        if not 0 < at <= chunk.end <= self.size:
            raise _contradicts(where, f"bytes {at} to {chunk.end}", f"bytes of the file, which has {self.size}")
        for page, after in self._pages(chunk, where):
            if page.kind == DICTIONARY:
                dictionary = page.size
                self._check_strings(chunk, page, after - page.packed, where)
            data = max(data, page.size) if page.kind != DICTIONARY else data
            seen, at = seen + page.values, after
            if needed + data + dictionary > limit:
                found = f"pages of {needed + data + dictionary} bytes together, in a file of {self.size} bytes"
                raise unreadable("the pages are too large", where, found, f"at most {limit} bytes", REMEDY)
        if grown > GROWTH_FREE + GROWTH_LIMIT * chunk.packed:
            found = f"{chunk.values} values in {chunk.packed} bytes"
            raise unreadable("the lists are too long", where, found, f"at most {GROWTH_LIMIT} times as much", REMEDY)
        if seen != chunk.values or at > chunk.end:
            raise _contradicts(where, f"pages with {seen} values to byte {at}", f"{chunk.values} values to byte {chunk.end}")
        return data + dictionary

    def _check_strings(self, chunk: ColumnChunk, page: Page, start: int, where: str) -> None:
        """Refuse a dictionary with a string so long that the rows decoded at once, if all are this string, need too much."""
        codec, rows = CODECS.get(chunk.codec), min(self.at_once, chunk.values)
        if TYPES[chunk.kind] != "BYTE_ARRAY" or page.size * rows <= TEXT_LIMIT or page.size > PAGES_LIMIT or codec is None:
            return
        data = os.pread(self.descriptor, page.packed, start)
        longest = _longest(pa.decompress(data, page.size, codec, asbytes=True) if codec else data)
        if longest * rows > TEXT_LIMIT:
            found, expected = f"a string of {longest} bytes", f"at most {TEXT_LIMIT // rows} bytes"
            raise unreadable("the strings are too long", where, found, expected, "Write shorter names or ids.")

    def _pages(self, chunk: ColumnChunk, where: str) -> Iterator[tuple[Page, int]]:
        """The pages of a part of a column, each with the byte after it, until they hold all of its values."""
        at, seen, known = chunk.start, 0, {DICTIONARIES.get(encoding, encoding) for encoding in chunk.encodings}
        while seen < chunk.values and at < chunk.end:
            page, start = self._page(at, where)
            at, seen = start + page.packed, seen + page.values
            if at > self.size:
                raise ends_early(where, self.size, f"a page up to byte {at}")
            if chunk.codec == UNCOMPRESSED and page.size != page.packed:
                raise _contradicts(where, f"a page of {page.packed} bytes", f"{page.size} bytes, as it is not compressed")
            if known and page.encoding is not None and page.encoding not in known:
                raise _contradicts(where, f"a page with encoding {page.encoding}", f"one of {chunk.encodings}")
            yield page, at

    def _page(self, at: int, where: str) -> tuple[Page, int]:
        """What the header at a byte of the file declares, and the byte after it."""
        length = 1 << 10
        while True:
            head = os.pread(self.descriptor, length, at)
            try:
                fields, used = thrift.structure(head)
                return _declared(fields), at + used
            except IndexError:
                if len(head) < length or length >= HEADER_LIMIT:
                    raise ends_early(where, self.size, f"the header of a page at byte {at}") from None
                length *= 16
            except ValueError as error:
                raise _contradicts(where, f"{error} at byte {at}", "the header of a page") from None


def _contradicts(where: str, found: str, expected: str) -> FileError:
    return unreadable("the file contradicts itself", where, found, expected, COPY_AGAIN)


def _leaves(schema: pq.ParquetSchema, wanted: set[str]) -> list[Leaf]:
    found = []
    for number in range(len(schema)):
        column = schema.column(number)
        if not wanted.isdisjoint(_prefixes(column.path)):
            flat = column.max_repetition_level == 0
            width = WIDTHS.get(column.physical_type, max(1, column.length)) + (0 if flat else LEVELS)
            found.append(Leaf(number, column.path, column.physical_type, flat, width))
    return found


def _longest(data: bytes) -> int:
    """The length of the longest string of a dictionary, each of which has its length before it."""
    at = longest = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        at, longest = at + 4 + length, max(longest, length)
    return longest


def _prefixes(path: str) -> list[str]:
    """The path a.b.c and what it lies in: a, a.b; the name of a column may have points of its own."""
    names = path.split(".")
    return [".".join(names[:count]) for count in range(1, len(names) + 1)]


# structures of the format, by the numbers of their fields --------------------------------------------------------------


def _group(fields: dict[int, Any]) -> Group:
    return Group(_count(fields[3]), tuple(_chunk(chunk[3]) for chunk in fields[1]))


def _chunk(fields: dict[int, Any]) -> ColumnChunk:
    path = ".".join(name.decode() for name in fields[3])
    data, dictionary = fields[9], fields.get(11)
    start = dictionary if dictionary and dictionary < data else data
    return ColumnChunk(fields[1], tuple(fields[2]), path, fields[4], _count(fields[5]), _count(fields[7]), start)


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"a count of {value!r}")
    return value


def _declared(fields: dict[int, Any]) -> Page:
    kind, size, packed, checksum = (fields.get(number) for number in (1, 2, 3, 4))
    inner, encoding = {DATA: (5, 2), DATA_2: (8, 4)}.get(_count(kind), (0, 0))
    header = fields.get(inner, {1: 0})
    if not isinstance(header, dict):
        raise ValueError("no header of a page")
    used = None if checksum is None or not inner else DICTIONARIES.get(_count(header.get(encoding)), header[encoding])
    return Page(_count(kind), _count(packed), _count(size), _count(header.get(1)), used)
