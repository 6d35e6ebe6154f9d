"""The tables of a weigh job, opened and joined: unlabeled rows as rules see them, chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wdistill import checks
from wdistill.confidence import Scan, scan
from wdistill.evidence import Evidence, Rows
from wdistill.joining import Numbers, align, aligned
from wdistill.options import NEEDS, Options, check_options, make_rule
from wdistill.progress import progress
from wdistill.readers import Chunk, Table, open_tables
from wdistill.rules import EntropyMean, Fitted, unweighted
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
    def order(self) -> str:
        """What the order of the unlabeled rows depends on."""
        return json.dumps(
            [[str(path), *stamp] for path, stamp in zip(self.tables[0].files, self.tables[0].stamps, strict=True)]
        )

    @property
    def entropies(self) -> bool:
        return "fidelity" in self.options.rule or self.options.confidence == "entropy"


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
            for chunk in table.chunks(["teacher"], rows=_chunk_rows(task.classes)):
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


def _chunk_rows(classes: int) -> int:
    return max(256, min(1 << 17, ENTRIES // classes))


def align_table(task: Task, table: Table, target: Path) -> None:
    """Bring what the rules need of another table into the order of the first, on disk."""
    base = task.tables[0]

    def ids() -> Iterator[pa.Array]:
        with progress("reading ids", base.rows) as tick:
            for chunk in base.chunks():
                tick(len(chunk.ids))
                yield chunk.ids

    def numbers() -> Iterator[tuple[pa.Array, Numbers]]:
        with progress(f"reading {table.files[0].name}", table.rows) as tick:
            for chunk in _chunks(task, table, 0):
                yield chunk.ids, _numbers(task, table, chunk)
                tick(len(chunk.ids))

    names = (str(base.files[0]), str(table.files[0]))
    align(target, ids(), numbers(), names, task.options.allow_subset, task.order)


def _own(task: Task, table: Table) -> list[str]:
    return [side for side, where in task.sides.items() if where is table]


def _chunks(task: Task, table: Table, start: int) -> Iterator[Chunk]:
    own = _own(task, table)
    matrices = [side for side in own if side != "truth"]
    vectors = [task.options.truth or ""] if "truth" in own else []
    return table.chunks(matrices, vectors, start=start, rows=_chunk_rows(task.classes))


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
    others = [i for i, table in enumerate(task.tables) if i and table in task.sides.values()]
    for chunk in _chunks(task, base, start):
        n = len(chunk.ids)
        joined = [aligned(folder / f"aligned-{i}", position, n) for i in others]
        kept = np.arange(n)
        for _, which in joined:
            kept = np.intersect1d(kept, which, assume_unique=True)
        given: dict[str, Any] = {}
        for side in _own(task, base):
            if side == "truth":
                given[side] = _labels(task, base, chunk)[kept]
            else:
                found = _seen(task, base, chunk, side)
                entropies = None if found.entropy is None else found.entropy[kept]
                given[side] = Scan(found.best[kept], found.margin[kept], entropies)
        for numbers, which in joined:
            at = np.searchsorted(which, kept)
            for side in {name.split(".")[0] for name in numbers}:
                if side == "truth":
                    given[side] = numbers[side][at].astype(np.int64)
                else:
                    entropies = numbers[f"{side}.entropy"][at] if f"{side}.entropy" in numbers else None
                    best, gap = numbers[f"{side}.best"][at].astype(np.int32), numbers[f"{side}.margin"][at]
                    given[side] = Scan(best, gap, entropies)
        if not given:
            given["truth"] = kept  # unweighted looks at nothing but the number of rows
        yield chunk, Rows(**given), kept
        position += n
