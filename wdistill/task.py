"""The tables of a weigh job, opened and joined: unlabeled rows as rules see them, chunk by chunk.

A job is anything that is a `Work`: tables, and a fitted thing that makes the output's columns of a chunk. `Task` is the one
that weighs by rules.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from wdistill import checks, states
from wdistill.confidence import Scan, scan
from wdistill.evidence import Evidence, Rows
from wdistill.joining import Numbers, align, aligned
from wdistill.options import NEEDS, Options, check_options, make_rule
from wdistill.progress import progress
from wdistill.readers import Chunk, Table, open_tables
from wdistill.rules import EntropyMean, Fitted, Weighed, unweighted
from wdistill.validation import (
    holder,
    naming_ids,
    naming_place,
    read_validation,
    same_class_names,
    text_tolerance,
)

ENTRIES = 1 << 21  # predictions of one model held at once


@dataclass(frozen=True)
class Made:
    """What became of a chunk: the rows of it that all tables have, their columns, and counts for the record."""

    kept: np.ndarray  # (rows,) indices into the chunk
    columns: tuple[pa.Array, ...]  # behind the id, in the order of the schema
    counts: dict[str, int]


class Work(Protocol):
    """A prepared job: the tables of the unlabeled rows, and a fitted thing that makes the output's columns of a chunk."""

    @property
    def tables(self) -> tuple[Table, ...]: ...  # the first gives the order of the rows

    @property
    def options(self) -> Options: ...

    @property
    def evidence(self) -> Evidence: ...  # of the validation rows

    @property
    def corrections(self) -> dict[str, float]: ...  # largest so far, of columns whose rows were scaled

    @property
    def sides(self) -> dict[str, Table]: ...  # the columns it needs, and the table that has each

    @property
    def state(self) -> bytes: ...  # what was fitted: parts made with another state are of another job

    @property
    def told(self) -> dict[str, Any]: ...  # what the record says of what was fitted

    def schema(self, ids: pa.DataType) -> pa.Schema: ...

    def align(self, table: Table, target: Path) -> None: ...  # bring another table into the order of the first, on disk

    def made(self, folder: Path, start: int, position: int) -> Iterator[tuple[Chunk, Made]]: ...  # from file `start` on


@dataclass(frozen=True)
class Task:
    """Everything opened and fitted: what the streaming part needs."""

    tables: tuple[Table, ...]  # of the unlabeled rows; the first gives their order
    options: Options
    fitted: Fitted
    classes: int
    names: Sequence[str] | None
    evidence: Evidence
    corrections: dict[str, float] = field(default_factory=dict)  # largest so far, of columns whose rows were scaled

    @property
    def sides(self) -> dict[str, Table]:
        """The columns the rules need, and the table that has each."""
        needed = dict.fromkeys(side for name in self.options.rule for side in NEEDS[name])
        return {side: holder(self.tables, self.options.truth or "" if side == "truth" else side) for side in needed}

    @property
    def entropies(self) -> bool:
        return "fidelity" in self.options.rule or self.options.confidence == "entropy"

    @property
    def state(self) -> bytes:
        return states.to_bytes(self.fitted)

    @property
    def told(self) -> dict[str, Any]:
        return {"state": base64.b64encode(self.state).decode()}

    def schema(self, ids: pa.DataType) -> pa.Schema:
        names = self.fitted.name.split(",")
        factors = [f"weight_{name}" for name in names] if len(names) > 1 else []
        return pa.schema([("id", ids), *((name, pa.float32()) for name in ("weight", "error", "distortion", *factors))])

    def align(self, table: Table, target: Path) -> None:
        numbers = ((chunk.ids, _numbers(self, table, chunk)) for chunk in _chunks(self, table, 0))
        align_table(self.tables[0], table, target, numbers, self.options.allow_subset)

    def made(self, folder: Path, start: int, position: int) -> Iterator[tuple[Chunk, Made]]:
        for chunk, given, kept in task_rows(self, folder, start, position):
            if len(kept):
                weighed = self.fitted.weigh_rows(given)
                yield chunk, Made(kept, _columns(weighed), {"clipped": weighed.clipped, "tied": weighed.tied})
            else:
                yield chunk, Made(kept, (), {})


def _columns(weighed: Weighed) -> tuple[pa.Array, ...]:
    found = (weighed.weights, weighed.error, weighed.distortion, *weighed.factors.values())
    n = len(weighed.weights)
    return tuple(pa.nulls(n, pa.float32()) if values is None else pa.array(values.astype(np.float32)) for values in found)


def order_of(table: Table) -> str:
    """What the order of a table's rows depends on."""
    return json.dumps([[str(path), *stamp] for path, stamp in zip(table.files, table.stamps, strict=True)])


def prepare(validation: Sequence[str], unlabeled: Sequence[str], labeled: Sequence[str], options: Options) -> Task:
    """Open the tables, check what can be checked without reading the unlabeled rows, and fit the rule."""
    check_options(options, bool(labeled))
    gold = open_tables(validation, option="--validation")
    tables = open_tables(unlabeled, option="--unlabeled")
    own = open_tables(labeled, option="--labeled") if labeled else ()
    evidence, ids = read_gold(gold, options, (*tables, *own))
    k = evidence.validation_teacher.shape[1]
    task = Task(tables, options, unweighted.fit(evidence), k, evidence.classes, evidence)
    sides = task.sides
    mean = _mean_entropy(task, sides["teacher"], own) if "fidelity" in options.rule else None
    with naming_ids(ids, "--validation"):
        return replace(task, fitted=make_rule(options, mean).fit(evidence))


def read_gold(gold: Sequence[Table], options: Options, others: Sequence[Table]) -> tuple[Evidence, pa.Array]:
    """The validation rows as evidence, and their ids; class names must agree with those of the other tables."""
    names = same_class_names((*gold, *others), options.classes)
    for name in ("label", "teacher", "student"):
        holder(gold, name)
    return read_validation(
        gold,
        kind=options.kind,
        classes=names,
        soft_labels=options.soft_labels,
        renormalize=options.renormalize,
        allow_subset=options.allow_subset,
    )


def _mean_entropy(task: Task, teacher: Table, labeled: Sequence[Table]) -> EntropyMean:
    """Fidelity's first pass: over the unlabeled rows and, if given, the labeled ones."""
    if not labeled:
        checks.warn("fidelity's mean entropy runs over the unlabeled rows only: --labeled names no labeled rows")
    mean = EntropyMean()
    for table in (teacher, *([holder(labeled, "teacher")] if labeled else [])):
        with progress(f"mean entropy of {table.option}", table.rows) as tick:
            for chunk in table.chunks(["teacher"], rows=chunk_rows(task.classes)):
                with naming_place(table, chunk, "teacher"):
                    found = _checked(chunk.columns["teacher"], "teacher", task)
                    mean = mean.plus(found, name="teacher", **reading(task, table))
                tick(len(chunk.ids))
    return mean


def reading(task: Task, table: Table) -> dict[str, Any]:
    """How a table's predictions are to be read; numbers in text do not tell how exact they are."""
    return {**task.evidence.reading, "tolerance": text_tolerance([table], task.classes)}


def _checked(values: np.ndarray, name: str, task: Task) -> np.ndarray:
    checks.same_classes({"--validation": task.classes, name: values.shape[1]})
    return values


def chunk_rows(classes: int) -> int:
    return max(256, min(1 << 17, ENTRIES // classes))


def align_table(
    base: Table, table: Table, target: Path, numbers: Iterable[tuple[pa.Array, Numbers]], allow_subset: bool
) -> None:
    """Bring the numbers of another table's rows, chunk by chunk with their ids, into the order of the first, on disk."""

    def ids() -> Iterator[pa.Array]:
        with progress("reading ids", base.rows) as tick:
            for chunk in base.chunks():
                tick(len(chunk.ids))
                yield chunk.ids

    def counted() -> Iterator[tuple[pa.Array, Numbers]]:
        with progress(f"reading {table.files[0].name}", table.rows) as tick:
            for found in numbers:
                yield found
                tick(len(found[0]))

    align(target, ids(), counted(), (str(base.files[0]), str(table.files[0])), allow_subset, order_of(base))


def joined(folder: Path, others: Sequence[int], position: int, n: int) -> tuple[np.ndarray, Numbers]:
    """Which of n rows of the first table from `position` on all the others have, and their numbers there."""
    found = [aligned(folder / f"aligned-{i}", position, n) for i in others]
    kept = np.arange(n)
    for _, which in found:
        kept = np.intersect1d(kept, which, assume_unique=True)
    numbers: Numbers = {}
    for values, which in found:
        at = np.searchsorted(which, kept)
        numbers |= {name: each[at] for name, each in values.items()}
    return kept, numbers


def others_of(work: Work) -> list[int]:
    """The numbers of the tables behind the first that are needed."""
    return [i for i, table in enumerate(work.tables) if i and table in work.sides.values()]


def _own(task: Task, table: Table) -> list[str]:
    return [side for side, where in task.sides.items() if where is table]


def _chunks(task: Task, table: Table, start: int) -> Iterator[Chunk]:
    own = _own(task, table)
    matrices = [side for side in own if side != "truth"]
    vectors = [task.options.truth or ""] if "truth" in own else []
    return table.chunks(matrices, vectors, start=start, rows=chunk_rows(task.classes))


def _seen(task: Task, table: Table, chunk: Chunk, side: str) -> Scan:
    with naming_place(table, chunk, side):
        values = _checked(chunk.columns[side], side, task)
        found = scan(values, entropy=task.entropies, name=side, **reading(task, table))
    if found.correction > checks.tolerance(values.dtype, task.classes):
        task.corrections[side] = max(found.correction, task.corrections.get(side, 0.0))
    return found


def _labels(task: Task, table: Table, chunk: Chunk) -> np.ndarray:
    column = task.options.truth or ""
    with naming_place(table, chunk, column):
        return checks.labels(chunk.columns[column], task.classes, column, task.names)


def _numbers(task: Task, table: Table, chunk: Chunk) -> Numbers:
    """A chunk of another table, reduced to the few numbers a row that rules look at."""
    numbers: Numbers = {}
    for side in _own(task, table):
        if side == "truth":
            numbers[side] = _labels(task, table, chunk).astype(np.float64)
            continue
        found = _seen(task, table, chunk, side)
        numbers |= {f"{side}.best": found.best.astype(np.float64), f"{side}.margin": found.margin}
        if found.entropy is not None:
            numbers[f"{side}.entropy"] = found.entropy
    return numbers


def task_rows(task: Task, folder: Path, start: int, position: int) -> Iterator[tuple[Chunk, Rows, np.ndarray]]:
    """Chunks of the first table from file `start` on, their rows as rules see them, and which rows those are."""
    base = task.tables[0]
    others = others_of(task)
    for chunk in _chunks(task, base, start):
        n = len(chunk.ids)
        kept, numbers = joined(folder, others, position, n)
        given: dict[str, Any] = {}
        for side in _own(task, base):
            if side == "truth":
                given[side] = _labels(task, base, chunk)[kept]
            else:
                found = _seen(task, base, chunk, side)
                entropies = None if found.entropy is None else found.entropy[kept]
                given[side] = Scan(found.best[kept], found.margin[kept], entropies)
        for side in {name.split(".")[0] for name in numbers}:
            if side == "truth":
                given[side] = numbers[side].astype(np.int64)
            else:
                best, gap = numbers[f"{side}.best"].astype(np.int32), numbers[f"{side}.margin"]
                given[side] = Scan(best, gap, numbers.get(f"{side}.entropy"))
        if not given:
            given["truth"] = kept  # unweighted looks at nothing but the number of rows
        yield chunk, Rows(**given), kept
        position += n
