"""Some rows of tables, drawn at random or named by their ids, joined by id and held in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill import checks
from wdistill.errors import InputError
from wdistill.joining import refuse_repeats, same_type
from wdistill.progress import progress
from wdistill.readers import Chunk, Table
from wdistill.validation import holder

Read = Callable[[Table, Chunk, str], NDArray[Any]]  # a table, a chunk of it, a column → what is kept of its rows (rows, …)


def draw_ids(table: Table, count: int, seed: int, known: pa.Array) -> tuple[pa.Array, int, int]:
    """At most `count` ids drawn at random, in the order of the table; how many there are, and how many are among `known`."""
    rng = np.random.default_rng(seed)
    kept: list[pa.Array] = []
    lots, rows, met, limit = np.empty(0), 0, 0, 1.0
    with progress("drawing rows", table.rows) as tick:
        for chunk in table.chunks():
            drawn = rng.random(len(chunk.ids))
            low = np.flatnonzero(drawn < limit)
            kept, lots = [*kept, chunk.ids.take(pa.array(low))], np.concatenate([lots, drawn[low]])
            if len(lots) > 2 * count:
                limit = float(np.partition(lots, count)[count])
                kept, lots = [pa.concat_arrays(kept).filter(pa.array(lots < limit))], lots[lots < limit]
            rows += len(chunk.ids)
            if chunk.ids.type == known.type:
                met += pc.sum(pc.is_in(chunk.ids, value_set=known)).as_py() or 0
            tick(len(chunk.ids))
    if rows == 0:
        raise checks.no_rows(f"{table.option} {table.files[0]}")
    ids = pa.concat_arrays(kept)
    if len(lots) > count:
        ids = ids.filter(pa.array(lots < np.partition(lots, count)[count]))
    refuse_repeats(ids, f"{table.option} {table.files[0]}")
    return ids, rows, met


def gather(
    tables: Sequence[Table], columns: Mapping[str, Read], ids: pa.Array, chunk_rows: int, allow_subset: bool
) -> tuple[dict[str, NDArray[Any]], NDArray[np.intp]]:
    """Matrices of the rows with these ids, whatever their order in each table, by column; and which ids all tables have.

    An id that a table lacks is an error, or is left out where a subset is allowed.
    """
    found: dict[str, NDArray[Any]] = {}
    present = np.ones(len(ids), bool)
    holders = {name: holder(tables, name) for name in columns}
    for table in tables:
        own = [name for name in columns if holders[name] is table]
        here = np.zeros(len(ids), bool)
        for chunk in table.chunks(own, rows=chunk_rows) if own else ():
            same_type(ids.type, chunk.ids.type, f"{table.option} {table.files[0]}")
            place = pc.index_in(chunk.ids, value_set=ids)
            rows = np.flatnonzero(pc.is_valid(place).to_numpy(zero_copy_only=False))
            at = place.drop_null().to_numpy()
            here[at] = True
            for name in own:
                values = columns[name](table, chunk, name)
                if name not in found:
                    found[name] = np.zeros((len(ids), *values.shape[1:]), values.dtype)
                found[name][at] = values[rows]
        if own and not here.all():
            _missing(ids.filter(pa.array(~here)), here, table, allow_subset)
            present &= here
    kept = np.flatnonzero(present)
    return {name: values[kept] for name, values in found.items()}, kept


def _missing(absent: pa.Array, here: NDArray[np.bool_], table: Table, allow_subset: bool) -> None:
    if not allow_subset or not here.any():
        raise InputError(
            "the tables do not hold the same ids",
            where=f"{table.option} {table.files[0]}",
            found=f"{len(absent)} ids missing, such as {', '.join(map(repr, absent[:5].to_pylist()))}",
            expected="the ids of the first table",
            remedy="complete the tables, or use only the ids in both with --allow-subset",
        )
