"""Answers as the tables that `weigh` and `advise` read: id and teacher, experts, and the gold rows with their labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.answers.pool import AnswerPool, AnswerRows, GoldRows, missing_rows, usable
from wdistill.answers.row_models import TREES, RowExperts, RowModels, Values
from wdistill.core import checks, store
from wdistill.methods.gold_design import GROUP, INCLUSION
from wdistill.tables.correct import lists
from wdistill.tables.formats.parquet import parquet_file
from wdistill.tables.join import keys, refuse_repeats, repeated_ids
from wdistill.tables.options import Options, Paths
from wdistill.tables.output import parquet_writer

ANSWERS, EXPERTS, GOLD = "answers.parquet", "experts.parquet", "gold.parquet"


def write_tables(
    pool: AnswerPool, gold: GoldRows, experts: RowExperts | None, folder: Path, only: pa.Array | None = None
) -> Written:
    """Write the tables of a job into a folder of its own; rows without a usable answer, and gold rows, are not in them.

    `only`: the ids of the unlabeled rows that are wanted; all, unless given.
    """
    _write(folder / GOLD, iter([_gold(gold, experts)]))
    written = write_answers(pool, None if experts is None else experts.models, folder, only)
    if not written.rows:
        raise checks.no_rows("--answers")
    return written


@dataclass(frozen=True)
class Written:
    """How many rows were written, and how many of them have no text."""

    rows: int
    empty: int


def write_answers(rows: AnswerRows, models: RowModels | None, folder: Path, only: pa.Array | None = None) -> Written:
    """Write the unlabeled rows alone, with what models say of them; no file, where there are none."""
    empty = Counter[str]()
    own = models if rows.rows is None else None
    count = _write(folder / ANSWERS, _answers(rows, own, only, empty))
    if count and models is not None and rows.rows is not None:
        _write(folder / EXPERTS, _others(rows, models, _keys(folder / ANSWERS), empty))
    return Written(count, empty["text"])


def table_paths(folder: Path) -> Paths:
    """The tables that were written into a folder."""
    return Paths([str(folder / GOLD)], answer_paths(folder))


def answer_paths(folder: Path) -> list[str]:
    """Those of the unlabeled rows."""
    return [str(path) for path in (folder / ANSWERS, folder / EXPERTS) if path.exists()]


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
        metric=chosen.metric,
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


def _answers(
    rows: AnswerRows, models: RowModels | None, only: pa.Array | None, empty: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """All unlabeled rows whose answers can be used; with what models say, where texts or inputs stand there too."""
    for batch in rows.batches(rows.value_columns if models else ()):
        parsed = batch.parsed
        kept = rows.unlabeled(parsed)
        if only is not None:
            kept &= pc.is_in(parsed.ids, value_set=only).to_numpy(zero_copy_only=False)
        wanted = pa.array(np.flatnonzero(kept))
        columns = {"id": parsed.ids.take(wanted), "teacher": lists(usable(parsed, rows)[kept])}
        if models is not None and len(wanted):
            values = {name: column.take(wanted) for name, column in batch.columns.items()}
            empty["text"] += _empty(values)
            columns |= {name: lists(each) for name, each in models.predict(values, batch.where).items()}
        if len(wanted):
            yield pa.RecordBatch.from_pydict(columns)


def _keys(path: Path) -> NDArray[np.int64]:
    """The keys of all ids of a table, sorted."""
    with path.open("rb") as file:
        parts = [keys(batch["id"]) for batch in parquet_file(file).iter_batches(columns=["id"])]
    return np.sort(np.concatenate(parts))


def _others(
    pool: AnswerRows, models: RowModels, answered: NDArray[np.int64], empty: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """What models say of the answered rows, which stand in a table of their own; `answered` are the keys of their ids."""
    assert pool.rows is not None
    place = f"--pool {pool.rows.files[0]}"
    there = np.zeros(len(answered), bool)
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
            empty["text"] += _empty(kept)
            predictions = {name: lists(each) for name, each in models.predict(kept, where).items()}
            yield pa.RecordBatch.from_pydict({"id": ids.take(rows), **predictions})
    missing = len(answered) - int(there.sum())
    if missing:
        raise missing_rows(pool, missing, len(answered))


def _empty(values: Values) -> int:
    """Rows without a text."""
    (column, *others) = values.values()
    if others or not pa.types.is_string(column.type):
        return 0
    return int(pc.sum(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column.fill_null(""))), 0)).as_py() or 0)


def warn_of_empty(count: int) -> None:
    """Warn of rows without a text."""
    if count:
        checks.warn(f"{count:,} rows have no text: of these, the experts know nothing")


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """A parquet file of all batches, the first of which tells its columns; how many rows it has. None where there are 0."""
    first = next(batches, None)
    if first is None:
        return 0
    rows = 0
    with store.synced(path) as file, parquet_writer(file, first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
