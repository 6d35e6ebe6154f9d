"""Tables joined by id, whatever their order, without holding them in memory.

Every row of another table is first reduced to a few numbers. Ids and numbers are then dealt into buckets on disk, so that
equal ids meet; each bucket is joined by the ids themselves; and the numbers are dealt again by where their row stands in
the first table, so that they can be read back in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.core import checks, store
from wdistill.core.errors import InputError, StorageError, bad_input, empty
from wdistill.tables.formats.table import Table

BUCKETS = 64
LIMIT = 8_000_000  # keys held in memory; where there are more, all go to files
FILES = 256  # a file of a billion keys takes 31 MB
BLOCK = 1 << 20  # keys that are dealt to the files at once
STRETCH = 1 << 18  # rows of the first table whose numbers lie in one file

Numbers = dict[str, NDArray[np.float64]]


def check_ids(*options: Sequence[Table]) -> None:
    """Refuse row numbers in place of ids where tables are joined by them, or where other tables of the job have ids.

    npy arrays are columns side by side because the user said so; beside another table they need ids too.
    """
    with_ids = next((table for group in options for table in group if not table.counts_rows), None)
    for group in options:
        for table in (table for table in group if table.counts_rows):
            joined = next((f"it is joined with {other.files[0]}" for other in group if other is not table), "")
            ids = f"{with_ids.option} {with_ids.files[0]} has ids" if with_ids and table.format == "npz" else ""
            if joined or ids:
                found, where = f"arrays {', '.join(map(repr, table.columns))}", f"{table.option} {table.files[0]}"
                expected = f"an array named 'id' too: {joined or ids}"
                remedy = "save the ids with the arrays: np.savez(path, id=…, teacher=…)"
                raise bad_input("there are no ids in this file", where, found, expected, remedy)


@dataclass
class Unmatched:
    """Ids of either table that the other one lacks."""

    missing: int = 0  # ids of the first table that the other one lacks
    extra: int = 0  # ids of the other table that the first one lacks
    examples: list[str] = field(default_factory=list)


def align(
    target: Path,
    scratch: Path,
    first: Iterable[pa.Array],
    other: Iterable[tuple[pa.Array, Numbers]],
    names: tuple[str, str],
    allow_subset: bool,
) -> tuple[list[str], dict[str, list[Any]]]:
    """Write the numbers of the other table's rows into `target`, in the order of the first table's ids.

    Returns their names, and the files that were written, with size and SHA-256; `scratch` is a folder for the time being.
    """
    store.make_folder(target)
    store.make_folder(scratch)
    base = _deal_first(scratch / "first", first, names[0])
    columns = _deal_other(scratch / "other", other, names[1], base.type)
    lost = Unmatched()
    stretches = [0] * (-(-base.rows // STRETCH))
    for i in range(BUCKETS):
        left, right = _read(scratch / f"first-{i:02d}"), _read(scratch / f"other-{i:02d}")
        refuse_repeats(left["id"].combine_chunks(), names[0])
        refuse_repeats(right["id"].combine_chunks(), names[1])
        partner = pc.index_in(left["id"], value_set=right["id"])
        _count_unmatched(lost, left, right, partner)
        kept = np.flatnonzero(pc.is_valid(partner).to_numpy(zero_copy_only=False))
        rows, source = left["row"].to_numpy()[kept], partner.drop_null().to_numpy()
        table = np.column_stack([rows.astype(np.float64), *(right[name].to_numpy()[source] for name in columns)])
        which = rows // STRETCH
        for stretch in np.unique(which):
            part = np.ascontiguousarray(table[which == stretch])
            store.append(target / f"rows-{stretch:06d}", part.tobytes(), fresh=stretches[stretch] == 0)
            stretches[stretch] += len(part)
        for name in ("first", "other"):
            store.remove(scratch / f"{name}-{i:02d}", scratch=True)
    store.remove(scratch, scratch=True)
    _report(lost, names, allow_subset)
    return columns, {name: _synced(target / name, 8 * (1 + len(columns)) * count) for name, count in _named(stretches)}


def _named(stretches: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The files of the stretches that have rows, and how many rows each has."""
    return ((f"rows-{stretch:06d}", count) for stretch, count in enumerate(stretches) if count)


def _synced(path: Path, size: int) -> list[Any]:
    """Size and SHA-256 of a file that is on the disk now, whole."""
    store.sync(path)
    if path.stat().st_size != size:
        found, remedy = f"{path.stat().st_size} bytes", "check the disk, then start again"
        raise StorageError(
            "a file is not as it was written", where=str(path), found=found, expected=f"{size}", remedy=remedy
        )
    return [size, store.digest_file(path)]


def aligned(folder: Path, columns: Sequence[str], first: int, count: int) -> tuple[Numbers, NDArray[np.intp]]:
    """Numbers of rows first … first + count of the first table that have any, and which of them those are."""
    tables = []
    for stretch in range(first // STRETCH, (first + count - 1) // STRETCH + 1):
        path = folder / f"rows-{stretch:06d}"
        if path.exists():
            table = np.fromfile(path).reshape(-1, 1 + len(columns))
            inside = (table[:, 0] >= first) & (table[:, 0] < first + count)
            tables.append(table[inside])
    table = np.concatenate(tables) if tables else np.empty((0, 1 + len(columns)))
    table = table[np.argsort(table[:, 0])]
    return {name: table[:, 1 + i].copy() for i, name in enumerate(columns)}, table[:, 0].astype(np.intp) - first


@dataclass(frozen=True)
class _Base:
    rows: int
    type: pa.DataType


def _deal_first(base: Path, chunks: Iterable[pa.Array], name: str) -> _Base:
    rows, kind = 0, pa.int64()
    for ids in chunks:
        kind = ids.type
        _deal(base, pa.table({"id": ids, "row": np.arange(rows, rows + len(ids))}), fresh=rows == 0)
        rows += len(ids)
    if rows == 0:
        raise empty("no rows", name, "at least 1 row", "name a table that has rows")
    return _Base(rows, kind)


def _deal_other(base: Path, chunks: Iterable[tuple[pa.Array, Numbers]], name: str, kind: pa.DataType) -> list[str]:
    columns: list[str] = []
    for ids, numbers in chunks:
        same_type(kind, ids.type, name)
        _deal(base, pa.table({"id": ids, **numbers}), fresh=not columns)
        columns = list(numbers)
    if not columns:
        raise empty("no rows", name, "at least 1 row", "name a table that has rows")
    return columns


def same_type(first: pa.DataType, other: pa.DataType, name: str) -> None:
    """Ids of two tables must be of one type: 7 and "007" are not silently made equal."""
    if first != other:
        remedy = "write the ids of both tables as whole numbers, or of both as strings (ids in csv are strings)"
        raise bad_input("ids are of another type than in the first table", name, str(other), str(first), remedy)


def _deal(base: Path, table: pa.Table, fresh: bool) -> None:
    """Append the rows of a table to the bucket files, each as an Arrow stream of its own."""
    bucket = buckets(keys(table["id"].combine_chunks()), BUCKETS)
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(BUCKETS), side="right")
    table, start = table.take(order), 0
    for i, end in enumerate(ends):
        if end > start or fresh:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(start, end - start))
            content = sink.getvalue().to_pybytes()
            store.append(base.with_name(f"{base.name}-{i:02d}"), content, fresh=fresh)
        start = end


def _read(path: Path) -> pa.Table:
    def streams() -> Iterator[pa.Table]:
        with pa.OSFile(str(path)) as file:
            while file.tell() < file.size():
                yield pa.ipc.open_stream(file).read_all()

    return pa.concat_tables(streams()).combine_chunks()


def refuse_repeats(ids: pa.Array, name: str) -> None:
    """Every id of a table once."""
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(repeated):
        raise repeated_ids(name, "such as " + ", ".join(repr(value) for value in repeated[:5].to_pylist()))


def _count_unmatched(lost: Unmatched, left: pa.Table, right: pa.Table, partner: pa.Array) -> None:
    absent = left["id"].filter(pc.is_null(partner))
    lost.missing += len(absent)
    lost.extra += right.num_rows - (left.num_rows - len(absent))
    lost.examples += [repr(value) for value in absent[: 5 - len(lost.examples)].to_pylist()]
    if lost.extra and len(lost.examples) < 5:
        more = right["id"].filter(pc.invert(pc.is_in(right["id"], value_set=left["id"])))
        lost.examples += [repr(value) for value in more[: 5 - len(lost.examples)].to_pylist()]


def _report(lost: Unmatched, names: tuple[str, str], allow_subset: bool) -> None:
    if not lost.missing and not lost.extra:
        return
    found = f"{lost.missing} ids only in {names[0]} and {lost.extra} only in {names[1]}, such as {', '.join(lost.examples)}"
    if allow_subset:
        checks.warn(f"tables differ in their ids: {found}; these rows are left out")
        return
    raise different_ids(f"{names[0]} and {names[1]}", found)


def different_ids(where: str, found: str) -> InputError:
    """The error for tables that cannot be joined."""
    remedy = "complete the tables, or use only the ids in both with --allow-subset"
    return bad_input("the tables do not hold the same ids", where, found, "every id in all tables", remedy)


def repeated_ids(where: str, found: str) -> InputError:
    remedy = "drop the repeated rows, or give every row an id of its own"
    return bad_input("ids that occur more than once", where, found, "every id once", remedy)


# every id once --------------------------------------------------------------------------------------------------------


def keys(ids: Any) -> NDArray[np.int64]:
    """A 64-bit key for every id of an arrow array: whole numbers are their own key, strings are hashed."""
    if pa.types.is_integer(ids.type):
        return np.asarray(ids.to_numpy(zero_copy_only=False), np.int64)
    return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))


def buckets(values: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Spread keys over `count` buckets; equal keys always meet."""
    mixed = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(40)) % np.uint64(count)).astype(np.intp)


class IdCheck:
    """Collects the keys of all ids, then tells whether any id came twice."""

    def __init__(self, folder: Path, rows: int, limit: int = LIMIT) -> None:
        self._folder = folder
        self._keys, self._count = np.empty(min(rows, limit), np.int64), 0
        self._spilled = False

    def add(self, ids: Any) -> None:
        fresh = keys(ids)
        while len(fresh):
            room = len(self._keys) - self._count
            self._keys[self._count : self._count + min(room, len(fresh))] = fresh[:room]
            self._count += min(room, len(fresh))
            fresh = fresh[room:]
            if len(fresh):
                self._spill()

    def finish(self, again: Callable[[], Iterator[Any]], where: str) -> None:
        """Raise for ids that occur twice; `again` yields all ids once more, to see whether equal keys are equal ids."""
        suspects = np.concatenate([_repeated(part) for part in self._parts()])
        if not len(suspects):
            return
        seen, twice = set[Any](), dict[Any, None]()
        for ids in again():
            close = np.flatnonzero(np.isin(keys(ids), suspects))
            for value in ids.take(close).to_pylist() if len(close) else ():
                if value in seen:
                    twice[value] = None
                seen.add(value)
        if twice:
            shown = ", ".join(map(repr, list(twice)[:5]))
            raise repeated_ids(where, f"{len(twice)} such id{'s' if len(twice) > 1 else ''}: {shown}")

    def _parts(self) -> Iterator[NDArray[np.int64]]:
        if not self._spilled:
            yield self._keys[: self._count]
            return
        self._spill()
        self._keys = np.empty(0, np.int64)
        for i in range(FILES):
            yield np.fromfile(self._folder / f"keys-{i:03d}", np.int64)

    def _spill(self) -> None:
        """Move the keys in memory to files, so that equal keys lie in one file; a block at a time, to need little more."""
        for start in range(0, self._count, BLOCK):
            block = self._keys[start : min(start + BLOCK, self._count)]
            bucket = buckets(block, FILES).astype(np.uint8)
            ends = np.cumsum(np.bincount(bucket, minlength=FILES))[:-1]
            for i, part in enumerate(np.split(block[np.argsort(bucket, kind="stable")], ends)):
                store.append(self._folder / f"keys-{i:03d}", part.tobytes(), fresh=not self._spilled)
            self._spilled = True
        self._count = 0


def _repeated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    values.sort()
    return np.unique(values[1:][values[1:] == values[:-1]])
