"""Some rows of tables, drawn at random or named by their ids, joined by id and held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.progress import progress
from wdistill.tables.formats.table import Chunk, Table
from wdistill.tables.gold import table_with
from wdistill.tables.join import different_ids, refuse_repeats, same_type

Read = Callable[[Table, Chunk, str], NDArray[Any]]  # a table, a chunk of it, a column → what is kept of its rows (rows, …)


def draw_ids(table: Table, count: int, seed: int, gold: pa.Array) -> tuple[pa.Array, int, int]:
    """At most `count` ids drawn at random, in the order of the table; how many there are, and how many are among `gold`."""
    rows, shared = 0, 0

    def batches() -> Iterator[pa.Array]:
        nonlocal rows, shared
        with progress("drawing rows", table.rows) as tick:
            for chunk in table.chunks():
                rows += len(chunk.ids)
                if chunk.ids.type == gold.type:
                    shared += pc.sum(pc.is_in(chunk.ids, value_set=gold)).as_py() or 0
                yield chunk.ids
                tick(len(chunk.ids))

    ids = drawn(batches(), count, seed)
    if rows == 0:
        raise checks.no_rows(f"{table.option} {table.files[0]}")
    refuse_repeats(ids, f"{table.option} {table.files[0]}")
    return ids, rows, shared


def drawn(batches: Iterable[pa.Array], count: int, seed: int) -> pa.Array:
    """At most `count` of all ids, drawn at random, in their order, however they are cut into batches."""
    rng = np.random.default_rng(seed)
    kept: list[pa.Array] = []
    lots, limit = np.empty(0), 1.0
    for ids in batches:
        own = rng.random(len(ids))
        low = np.flatnonzero(own < limit)
        kept, lots = [*kept, ids.take(pa.array(low))], np.concatenate([lots, own[low]])
        if len(lots) > 2 * count:
            limit = float(np.partition(lots, count)[count])
            kept, lots = [pa.concat_arrays(kept).filter(pa.array(lots < limit))], lots[lots < limit]
    every = pa.concat_arrays(kept) if kept else pa.array([], pa.string())
    return every.filter(pa.array(lots < np.partition(lots, count)[count])) if len(lots) > count else every


def gather(
    tables: Sequence[Table], columns: Mapping[str, Read], ids: pa.Array, chunk_rows: int, allow_subset: bool
) -> tuple[dict[str, NDArray[Any]], NDArray[np.intp]]:
    """Matrices of the rows with these ids, whatever their order in each table, by column; and which ids all tables have.

    An id that a table lacks is an error, or is left out where a subset is allowed.
    """
    gathered: dict[str, NDArray[Any]] = {}
    present = np.ones(len(ids), bool)
    homes = {name: table_with(tables, name) for name in columns}
    for table in tables:
        names = [name for name in columns if homes[name] is table]
        here = np.zeros(len(ids), bool)
        with progress("reading predictions", table.rows) as tick:
            for chunk in table.chunks(names, rows=chunk_rows) if names else ():
                same_type(ids.type, chunk.ids.type, f"{table.option} {table.files[0]}")
                position = pc.index_in(chunk.ids, value_set=ids)
                rows = np.flatnonzero(pc.is_valid(position).to_numpy(zero_copy_only=False))
                at = position.drop_null().to_numpy()
                here[at] = True
                for name in names:
                    values = columns[name](table, chunk, name)
                    if name not in gathered:
                        gathered[name] = np.zeros((len(ids), *values.shape[1:]), values.dtype)
                    gathered[name][at] = values[rows]
                tick(len(chunk.ids))
        if names and not here.all():
            if not allow_subset or not here.any():
                absent = ids.filter(pa.array(~here))
                found = f"{len(absent)} ids missing, such as {', '.join(map(repr, absent[:5].to_pylist()))}"
                raise different_ids(f"{table.option} {table.files[0]}", found)
            present &= here
    kept = np.flatnonzero(present)
    return {name: values[kept] for name, values in gathered.items()}, kept
