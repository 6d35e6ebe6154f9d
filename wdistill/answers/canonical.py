"""Answers as the tables that `weigh` and `advise` read: id and teacher, experts, and the gold rows with their labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wdistill.answers.pool import AnswerPool, GoldRows, missing_rows, usable
from wdistill.answers.row_models import TREES, RowExperts, Values
from wdistill.core import checks, store
from wdistill.methods.gold_design import GROUP, INCLUSION
from wdistill.tables.correct import lists
from wdistill.tables.join import keys, refuse_repeats, repeated_ids
from wdistill.tables.options import Options, Paths
from wdistill.tables.output import parquet_writer

ANSWERS, EXPERTS, GOLD = "answers.parquet", "experts.parquet", "gold.parquet"


def write_tables(pool: AnswerPool, gold: GoldRows, experts: RowExperts | None, folder: Path) -> None:
    """Write the tables of a job into a folder of its own; rows without a usable answer, and gold rows, are not in them."""
    _write(folder / GOLD, iter([_gold(gold, experts)]))
    own = experts if pool.rows is None else None
    _write(folder / ANSWERS, _answers(pool, own))
    if experts is not None and pool.rows is not None:
        _write(folder / EXPERTS, _others(pool, experts, _keys(folder / ANSWERS)))


def table_paths(folder: Path) -> Paths:
    """The tables that were written into a folder."""
    tables = [folder / ANSWERS, *([folder / EXPERTS] if (folder / EXPERTS).exists() else [])]
    return Paths([str(folder / GOLD)], [str(path) for path in tables])


def table_options(pool: AnswerPool) -> Options:
    """How those tables are read."""
    experts = (TREES,) if pool.value_columns else ()
    chosen = pool.options
    return Options(
        method="best",
        targets=chosen.targets,
        opinions=experts,
        classes=pool.classes.names,
        targets_from=chosen.targets_from,
        escape_formulas=chosen.escape_formulas,
    )


def _gold(gold: GoldRows, experts: RowExperts | None) -> pa.RecordBatch:
    columns = {"id": gold.ids, "label": pa.array(gold.labels), "teacher": lists(gold.teacher)}
    for name, values in experts.gold.items() if experts else ():
        columns[name] = lists(values)
    if gold.design.groups is not None:
        columns[GROUP] = pa.array(gold.design.groups.tolist(), pa.string())
    if gold.design.weights is not None:
        columns[INCLUSION] = pa.array(1.0 / gold.design.weights)
    return pa.RecordBatch.from_pydict(columns)


def _answers(pool: AnswerPool, experts: RowExperts | None) -> Iterator[pa.RecordBatch]:
    """All answers that can be used, without those of gold rows; with what experts say, where the rows stand there too."""
    gold = pa.array(list(pool.numbers), pa.string())
    empty = 0
    for batch in pool.batches(pool.value_columns if experts else ()):
        parsed = batch.parsed
        kept = ~pc.is_in(parsed.ids, value_set=gold).to_numpy(zero_copy_only=False)
        if pool.options.refusals == "drop":
            kept &= parsed.answered
        rows = pa.array(np.flatnonzero(kept))
        columns = {"id": parsed.ids.take(rows), "teacher": lists(usable(parsed, pool)[kept])}
        if experts is not None and len(rows):
            values = {name: column.take(rows) for name, column in batch.columns.items()}
            empty += _empty(values)
            columns |= {name: lists(each) for name, each in experts.predict(values, batch.where).items()}
        if len(rows):
            yield pa.RecordBatch.from_pydict(columns)
    _warn_of_empty(empty)


def _keys(path: Path) -> NDArray[np.int64]:
    """The keys of all ids of a table, sorted."""
    with path.open("rb") as file:
        parts = [keys(batch["id"]) for batch in pq.ParquetFile(file).iter_batches(columns=["id"])]
    return np.sort(np.concatenate(parts))


def _others(pool: AnswerPool, experts: RowExperts, answered: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """What experts say of the answered rows, which stand in a table of their own; `answered` are the keys of their ids."""
    assert pool.rows is not None
    place = f"--pool {pool.rows.files[0]}"
    empty, there = 0, np.zeros(len(answered), bool)
    for ids, values, where in pool.row_batches():
        own = keys(ids)
        at = np.minimum(np.searchsorted(answered, own), len(answered) - 1)
        known = np.flatnonzero(answered[at] == own)
        rows = pa.array(known)
        if len(rows):
            refuse_repeats(ids.take(rows), place)
            again = ids.take(rows).filter(pa.array(there[at[known]])).to_pylist()
            if again:
                raise repeated_ids(place, f"such as {', '.join(map(repr, again[:5]))}")
            there[at[known]] = True
            kept = {name: column.take(rows) for name, column in values.items()}
            empty += _empty(kept)
            predictions = {name: lists(each) for name, each in experts.predict(kept, where).items()}
            yield pa.RecordBatch.from_pydict({"id": ids.take(rows), **predictions})
    _warn_of_empty(empty)
    missing = len(answered) - int(there.sum())
    if missing:
        raise missing_rows(pool, missing, len(answered))


def _empty(values: Values) -> int:
    """Rows without a text."""
    (column, *others) = values.values()
    if others or not pa.types.is_string(column.type):
        return 0
    return int(pc.sum(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column.fill_null(""))), 0)).as_py() or 0)


def _warn_of_empty(count: int) -> None:
    if count:
        checks.warn(f"{count:,} rows have no text: of these, the experts know nothing")


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """A parquet file of all batches; the first tells its columns."""
    first = next(batches, None)
    if first is None:
        raise checks.no_rows("--answers")
    with store.synced(path) as file, parquet_writer(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
