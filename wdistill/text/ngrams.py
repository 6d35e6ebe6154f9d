"""Hashed n-grams of many texts: what `plain` does one character after the other, in NumPy over the UTF-8 bytes of all.

With the running sums S of (byte + 1) · BASE^place, the hash of the bytes from s to e is (S[e] − S[s]) · BASE^(−s): BASE is
odd, so it has an inverse modulo 2⁶⁴. Texts are taken in blocks, so that the memory at work does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_input, bad_value
from wdistill.text.plain import APART, BASE, BITS, BUCKETS, FIRST, LETTER, PAIR, SECOND, SYMBOL, kind_of

Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]
Characters = tuple[int, int]  # the shortest and the longest run of characters

COLUMNS = 2 * BUCKETS  # single words, then pairs
BLOCK_BYTES, BLOCK_ROWS = 1 << 18, 1 << 12  # a block is full with either; one long text may be more
ROW = BITS + 1  # a key is row << ROW | column, within 32 bits


@dataclass(frozen=True, eq=False)
class Ngrams:
    """The distinct n-grams of n texts, text after text, in ascending columns: those of text i from offsets[i] on."""

    offsets: Ints  # (n + 1,)
    columns: NDArray[np.int32]  # bucket of a single word (or run of characters), 2¹⁸ + bucket of a pair
    counts: NDArray[np.int32]  # how often it occurs in its text

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def pairs(self) -> NDArray[np.bool_]:
        """Which are pairs of words."""
        return np.asarray(self.columns >= BUCKETS)

    @property
    def buckets(self) -> NDArray[np.int32]:
        """0 … 2¹⁸ − 1, of single words and of pairs."""
        return np.asarray(self.columns % BUCKETS)

    @property
    def rows(self) -> Ints:
        """The text of each."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def matrix(self, values: NDArray[Any] | None = None) -> Any:
        """A scipy.sparse.csr_array (n, 2¹⁹) of the counts, or of other values of the n-grams."""
        from scipy.sparse import csr_array

        kept = self.counts.astype(np.float32) if values is None else values
        return csr_array((kept, self.columns, self.offsets.astype(np.int32)), shape=(len(self), COLUMNS))


def ngrams(texts: Sequence[str | None], characters: Characters | None = None) -> Ngrams:
    """Words and pairs of neighbouring words of every text; None is a text without any.

    `characters`, such as (3, 5): runs of so many characters instead, for languages that have no blanks between words.
    """
    check_characters(characters)
    lengths, columns, counts = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for block in _blocks(texts):
        keys = _words(block) if characters is None else _runs(block, characters)
        keys.sort()
        first = np.flatnonzero(np.concatenate([keys[:1] == keys[:1], keys[1:] != keys[:-1]]))
        distinct = keys[first]
        columns.append((distinct & np.uint32(COLUMNS - 1)).astype(np.int32))
        counts.append(np.diff(first, append=len(keys)).astype(np.int32))
        lengths.append(np.bincount(distinct >> np.uint32(ROW), minlength=len(block)))
    return Ngrams(np.cumsum(np.concatenate(lengths)), np.concatenate(columns), np.concatenate(counts))


def check_characters(characters: Characters | None) -> None:
    """Raise where `characters` is neither None nor a shortest and a longest run."""
    fits = characters is None or (len(characters) == 2 and 1 <= characters[0] <= characters[1] <= 100)
    if not fits:
        expected, remedy = "the shortest and the longest, from 1 to 100", "write (3, 5), or None for words"
        raise bad_value("not lengths of runs of characters", "characters", characters, expected, remedy)


def _blocks(texts: Iterable[str | None]) -> Iterator[list[bytes]]:
    """Texts in lower case as UTF-8, some at a time."""
    block: list[bytes] = []
    size = 0
    for row, text in enumerate(texts):
        if not (text is None or isinstance(text, str)):
            found, expected = f"{type(text).__name__} {str(text)[:40]!r}", "a string, or None where there is no text"
            raise bad_input("not a text", "texts", found, expected, "convert it with str, or replace it by None", [row])
        lower = (text or "").lower()
        block.append((lower if lower.isascii() else lower.replace("’", "'")).encode("utf-8", "surrogatepass"))
        size += len(block[-1]) + 1
        if size >= BLOCK_BYTES or len(block) == BLOCK_ROWS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _words(block: Sequence[bytes]) -> NDArray[np.uint32]:
    """Keys of all words and pairs of a block."""
    data = np.frombuffer(b"\n".join([b"", *block, b""]), np.uint8)
    starts, ends = _bounds(data)
    sums, inverses = _sums(data)
    hashes = (sums[ends] - sums[starts]) * inverses[starts]
    borders = np.cumsum([0, *(len(text) + 1 for text in block)])
    rows = np.repeat(np.arange(len(block), dtype=np.uint32), np.diff(np.searchsorted(starts, borders)))
    rows <<= np.uint32(ROW)
    inside = rows[1:] == rows[:-1]
    pairs = _buckets((hashes[:-1] * np.uint64(PAIR) + hashes[1:])[inside])
    return np.concatenate([rows | _buckets(hashes), rows[1:][inside] | np.uint32(BUCKETS) | pairs])


def _bounds(data: Bytes) -> tuple[Ints, Ints]:
    """Where words begin and where they end, in bytes that begin and end with what is apart from words."""
    kinds = np.frombuffer(bytearray(data.tobytes().translate(_ASCII)), np.uint8)
    symbols = _mark_others(data, kinds) if data.max() >= 0x80 else (np.empty(0, np.int64), np.empty(0, np.int64))
    apostrophes = np.flatnonzero(data == ord("'"))
    within = (kinds[apostrophes - 1] == LETTER) & (kinds[apostrophes + 1] == LETTER)
    kinds[apostrophes[within]] = LETTER
    letters = kinds == LETTER
    edges = np.flatnonzero(letters[1:] != letters[:-1]) + 1
    starts, ends = edges[::2], edges[1::2]
    if len(symbols[0]):
        starts, ends = (np.concatenate(both) for both in zip((starts, ends), symbols, strict=True))
        order = np.argsort(starts)
        starts, ends = starts[order], ends[order]
    return starts, ends


_ASCII = bytes(kind_of(chr(byte)) if byte < 0x80 else APART for byte in range(256))
LAST = 0x3FFFF  # this character and all after it are apart from words


@cache
def _kinds() -> Bytes:
    """The kinds of characters: (0x40000,)."""
    return np.fromiter(map(kind_of, map(chr, range(LAST + 1))), np.uint8, LAST + 1)


def _mark_others(data: Bytes, kinds: Bytes) -> tuple[Ints, Ints]:
    """Set the kinds of all bytes of characters that are not ASCII; returns where symbols begin and end."""
    starts, ends = [], []
    for size, low, high in ((2, 0xC0, 0xDF), (3, 0xE0, 0xEF), (4, 0xF0, 0xF7)):
        leads = np.flatnonzero((data >= low) & (data <= high))
        codes = data[leads].astype(np.int64) - low
        for place in range(1, size):
            codes = (codes << 6) | (data[leads + place] & 0x3F)
        found = _kinds()[np.minimum(codes, LAST)]
        for place in range(size):
            kinds[leads + place] = found
        starts.append(leads[found == SYMBOL])
        ends.append(starts[-1] + size)
    return np.concatenate(starts), np.concatenate(ends)


def _runs(block: Sequence[bytes], characters: Characters) -> NDArray[np.uint32]:
    """Keys of all runs of characters of a block."""
    data = np.frombuffer(b"".join(block), np.uint8)
    places = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))  # where characters begin
    sums, inverses = _sums(data)
    borders = np.searchsorted(places, np.cumsum([0, *map(len, block)]))
    rows = np.repeat(np.arange(len(block), dtype=np.uint32), np.diff(borders)) << np.uint32(ROW)
    keys = [np.empty(0, np.uint32)]
    for size in range(characters[0], characters[1] + 1):
        first = np.flatnonzero(rows[: max(0, len(rows) - size + 1)] == rows[size - 1 :])
        starts, ends = places[first], places[first + size]
        keys.append(rows[first] | _buckets((sums[ends] - sums[starts]) * inverses[starts]))
    return np.concatenate(keys)


def _sums(data: Bytes) -> tuple[Hashes, Hashes]:
    """Running sums of (byte + 1) · BASE^place, from 0 on: (len + 1,); and the inverses of the powers, at least as many."""
    powers, inverses = _powers() if len(data) < 2 * BLOCK_BYTES else _powers_up_to(len(data) + 1)
    sums = np.empty(len(data) + 1, np.uint64)
    sums[0] = 0
    np.multiply(data + np.uint8(1), powers[: len(data)], out=sums[1:])  # no byte of UTF-8 is 255
    np.cumsum(sums, out=sums)
    return sums, inverses


@cache
def _powers() -> tuple[Hashes, Hashes]:
    return _powers_up_to(2 * BLOCK_BYTES)


def _powers_up_to(size: int) -> tuple[Hashes, Hashes]:
    """BASE^i and BASE^(−i), i < size."""
    tables = [np.full(size, base, np.uint64) for base in (BASE, pow(BASE, -1, 1 << 64))]
    for table in tables:
        table[0] = 1
        np.cumprod(table, out=table)
    return tables[0], tables[1]


def _buckets(hashes: Hashes) -> NDArray[np.uint32]:
    """The buckets of hashes: mixed, the upper bits."""
    for shift, factor in ((32, FIRST), (29, SECOND)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return (hashes >> np.uint64(64 - BITS)).astype(np.uint32)
