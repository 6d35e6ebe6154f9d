"""Tables joined by id, whatever their order, without holding them in memory.

Every row of another table is first reduced to a few numbers. Ids and numbers are then dealt into buckets on disk, so that
equal ids meet; each bucket is joined by the ids themselves; and the numbers are dealt again by where their row stands in
the first table, so that they can be read back in its order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill import checks, store
from wdistill.errors import InputError
from wdistill.ids import buckets, keys

BUCKETS = 64
STRETCH = 1 << 18  # rows of the first table whose numbers lie in one file

Numbers = dict[str, NDArray[np.float64]]


@dataclass
class Unmatched:
    """Ids of either side that the other side lacks."""

    missing: int = 0  # ids of the first table that the other one lacks
    extra: int = 0  # ids of the other table that the first one lacks
    examples: list[str] = field(default_factory=list)


def align(
    folder: Path,
    first: Iterable[pa.Array],
    other: Iterable[tuple[pa.Array, Numbers]],
    names: tuple[str, str],
    allow_subset: bool,
    made_for: str,
) -> None:
    """Write the numbers of the other table's rows into `folder`, in the order of the first table's ids.

    `made_for` tells that order: `is_aligned` compares it.
    """
    store.make_folder(folder)
    places = _deal_first(folder / "first", first, names[0])
    columns = _deal_other(folder / "other", other, names[1], places.type)
    lost = Unmatched()
    stretches = [0] * (-(-places.rows // STRETCH))
    for i in range(BUCKETS):
        left, right = _read(folder / f"first-{i:02d}"), _read(folder / f"other-{i:02d}")
        refuse_repeats(left["id"].combine_chunks(), names[0])
        refuse_repeats(right["id"].combine_chunks(), names[1])
        found = pc.index_in(left["id"], value_set=right["id"])
        _count_unmatched(lost, left, right, found)
        kept = np.flatnonzero(pc.is_valid(found).to_numpy(zero_copy_only=False))
        rows, source = left["row"].to_numpy()[kept], found.drop_null().to_numpy()
        table = np.column_stack([rows.astype(np.float64), *(right[name].to_numpy()[source] for name in columns)])
        which = rows // STRETCH
        for stretch in np.unique(which):
            part = np.ascontiguousarray(table[which == stretch])
            store.append(folder / f"rows-{stretch:06d}", part.tobytes(), fresh=stretches[stretch] == 0)
            stretches[stretch] += len(part)
        for side in ("first", "other"):
            store.remove(folder / f"{side}-{i:02d}")
    _report(lost, names, allow_subset)
    store.write_bytes(folder / "done.json", json.dumps({"columns": columns, "made_for": made_for}).encode())


def is_aligned(folder: Path, made_for: str) -> bool:
    """Whether an earlier run finished aligning for the same order of the first table."""
    done = folder / "done.json"
    return done.exists() and json.loads(done.read_text())["made_for"] == made_for


def aligned(folder: Path, first: int, count: int) -> tuple[Numbers, NDArray[np.intp]]:
    """Numbers of rows first … first + count of the first table that have any, and which of them those are."""
    columns = json.loads((folder / "done.json").read_text())["columns"]
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
class _Places:
    rows: int
    type: pa.DataType


def _deal_first(base: Path, chunks: Iterable[pa.Array], name: str) -> _Places:
    rows, kind = 0, pa.int64()
    for ids in chunks:
        kind = ids.type
        _deal(base, pa.table({"id": ids, "row": np.arange(rows, rows + len(ids))}), fresh=rows == 0)
        rows += len(ids)
    if rows == 0:
        raise InputError("no rows", where=name, found="0 rows", expected="at least 1 row")
    return _Places(rows, kind)


def _deal_other(base: Path, chunks: Iterable[tuple[pa.Array, Numbers]], name: str, kind: pa.DataType) -> list[str]:
    columns: list[str] = []
    for ids, numbers in chunks:
        same_type(kind, ids.type, name)
        _deal(base, pa.table({"id": ids, **numbers}), fresh=not columns)
        columns = list(numbers)
    if not columns:
        raise InputError("no rows", where=name, found="0 rows", expected="at least 1 row")
    return columns


def same_type(first: pa.DataType, other: pa.DataType, name: str) -> None:
    """Ids of two tables must be of one type: 7 and "007" are not silently made equal."""
    if first != other:
        raise InputError(
            "ids are of another type than in the first table",
            where=name,
            found=str(other),
            expected=str(first),
            remedy="write the ids of both tables as whole numbers, or of both as strings (ids in csv are strings)",
        )


def _deal(base: Path, table: pa.Table, fresh: bool) -> None:
    """Append the rows of a table to the bucket files, each as an Arrow stream of its own."""
    place = buckets(keys(table["id"].combine_chunks()), BUCKETS)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(BUCKETS), side="right")
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
        raise InputError(
            "ids that occur more than once",
            where=name,
            found="such as " + ", ".join(repr(value) for value in repeated[:5].to_pylist()),
            expected="every id once",
            remedy="drop the repeated rows, or give every row an id of its own",
        )


def _count_unmatched(lost: Unmatched, left: pa.Table, right: pa.Table, found: pa.Array) -> None:
    absent = left["id"].filter(pc.is_null(found))
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
    raise InputError(
        "the tables do not hold the same ids",
        where=f"{names[0]} and {names[1]}",
        found=found,
        expected="every id in both tables",
        remedy="complete the tables, or weigh only the ids in both with --allow-subset",
    )
