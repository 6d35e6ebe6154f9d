"""The one table that every adapter takes: ids, targets and weights, as `correct` and `weigh` write it, joined by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.answers.frames import as_files, uses_index
from wdistill.core import checks
from wdistill.core.errors import bad_input, wrong_shape
from wdistill.methods.context import one_hot
from wdistill.tables.formats.table import Table, open_tables
from wdistill.tables.output import read_record
from wdistill.weights.confidence import Floats

TARGETS, WEIGHT = "targets", "weight"  # the columns beside `id`


@dataclass(frozen=True, eq=False)
class TargetTable:
    """What to teach for every row: a distribution over the classes, and what the row's loss counts."""

    ids: NDArray[Any]  # (n,) integers or strings, each once
    targets: Floats  # (n, K)
    weight: Floats  # (n,)
    classes: tuple[str, ...] | None = None  # their names, in the order of the columns of the targets

    def __post_init__(self) -> None:
        ids = np.asarray(self.ids)
        _check_ids(ids)
        targets, weight = check_targets(self.targets, self.weight)
        checks.same_length({"ids": len(ids), TARGETS: len(targets)})
        checks.class_names(self.classes, targets.shape[1])
        for name, value in (("ids", ids), ("targets", targets), ("weight", weight)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The likeliest class of every row (n,)."""
        return np.asarray(self.targets.argmax(axis=1), np.int64)

    def rows(self, ids: Any) -> NDArray[np.intp]:
        """Where these ids stand in the table; compared as text, as everywhere in wdistill."""
        wanted = np.asarray(ids.detach().cpu() if hasattr(ids, "detach") else ids)
        found = np.array([self._places.get(str(key), -1) for key in wanted.tolist()], np.intp)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            first = ", ".join(map(repr, wanted[missing[:5]].tolist()))
            found_, expected = f"{len(missing):,} of {len(wanted):,} ids, such as {first}", "a row of the table for each id"
            remedy = "leave these rows out of training, or make targets for them"
            raise bad_input("rows without targets", "ids", found_, expected, remedy, missing)
        return found

    def select(self, ids: Any) -> TargetTable:
        """The rows of these ids, in their order."""
        rows = self.rows(ids)
        return TargetTable(self.ids[rows], self.targets[rows], self.weight[rows], self.classes)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {str(key): place for place, key in enumerate(self.ids.tolist())}


def check_targets(targets: Any, weight: Any = None) -> tuple[Floats, Floats]:
    """Targets (n, K) and weights (n,), as float64, that a loss can be made of; without weights every row counts 1."""
    given = checks.matrix(targets, TARGETS)
    allowed = checks.tolerance("float32" if given.dtype == np.float64 else given.dtype.name, given.shape[1])
    every = np.arange(len(given))
    rows = checks.rows(checks.widened(given), every, "probabilities", allowed, False, TARGETS, False).astype(np.float64)
    counts = np.ones(len(rows)) if weight is None else checks.scores(weight, WEIGHT).astype(np.float64)
    checks.same_length({TARGETS: len(rows), WEIGHT: len(counts)})
    below = np.flatnonzero(counts < 0)
    if len(below):
        found, remedy = f"{len(below):,} negative weights, the least {counts.min():.4g}", "leave rows out by weight 0"
        raise bad_input("weights below 0", WEIGHT, found, "0 or more", remedy, below)
    if not counts.any():
        raise bad_input("no row counts", WEIGHT, f"{len(counts):,} weights, all 0", "a weight above 0", "weigh again")
    return rows, counts


def read_targets(source: Any, *, teacher: Any = None, gold: Any = None) -> TargetTable:
    """The table of a file or a frame: `id`, `targets` (n, K) and `weight`.

    A file of `wdistill correct` has the gold rows and the names of the classes; a frame has no names.
    `source`: what `wdistill correct` and `wdistill weigh` wrote, the result of `wdistill.correct`, a frame, a dict of
    columns, or a table that was read already. `teacher`: a file or frame with `id` and `teacher`, whose predictions are the
    targets where the source has weights alone. `gold`: one with `id` and `label`: its rows get their label as target, and
    weight 1, whatever else is said of them.
    """
    table = source if isinstance(source, TargetTable) else _read(source, teacher)
    return table if gold is None else _with_gold(table, gold)


def _read(source: Any, teacher: Any) -> TargetTable:
    frame = getattr(source, "table", source)  # the result of `correct`
    uses_index({"source": frame})
    with as_files(source=frame, teacher=teacher) as path:
        name = str(path("source"))
        (table,) = open_tables([name], option="source")
        names = getattr(source, "classes", None) or _class_names(Path(name))
        ids, columns = _columns(table, [TARGETS] * table.has(TARGETS), [WEIGHT] * table.has(WEIGHT))
        names = names or table.classes(TARGETS)
        if TARGETS in columns:
            return TargetTable(ids, columns[TARGETS], columns.get(WEIGHT), _named(names))  # type: ignore[arg-type]
        if WEIGHT not in columns:
            found, expected = f"columns {', '.join(table.columns)}", "id, targets and weight"
            raise bad_input("no targets and no weights", "source", found, expected, "name the output of `wdistill correct`")
        if teacher is None:
            found, expected = "weights, no column 'targets'", "targets beside them"
            remedy = "pass teacher=FILE, with the predictions that were weighed"
            raise bad_input("it is not said what to teach", "source", found, expected, remedy)
        (said,) = open_tables([str(path("teacher"))], option="teacher")
        theirs, predictions = _columns(said, ["teacher"], [])
        seen = TargetTable(theirs, predictions["teacher"], np.ones(len(theirs)), _named(said.classes("teacher")))
    return TargetTable(ids, seen.targets[seen.rows(ids)], columns[WEIGHT], seen.classes)


def _with_gold(table: TargetTable, gold: Any) -> TargetTable:
    with as_files(gold=gold) as path:
        (file,) = open_tables([str(path("gold"))], option="gold")
        ids, columns = _columns(file, [], ["label"])
    labels = one_hot(_class_numbers(columns["label"], table), table.targets.shape[1])
    _check_ids(ids)
    known = {str(key) for key in ids.tolist()}
    others = np.array([str(key) not in known for key in table.ids.tolist()], bool)
    both = pa.concat_arrays([pa.array(each.astype(str)) for each in (table.ids[others], ids)])
    same = table.ids.dtype.kind == ids.dtype.kind
    return TargetTable(
        np.concatenate([table.ids[others], ids]) if same else both.to_numpy(zero_copy_only=False),
        np.concatenate([table.targets[others], labels]),
        np.concatenate([table.weight[others], np.ones(len(ids))]),
        table.classes,
    )


def _class_numbers(labels: NDArray[Any], table: TargetTable) -> NDArray[np.int64]:
    """Labels as class numbers. Where the classes have names, a label is a name, also if it is a number.

    So it is in `wdistill correct`. Numbers stand for class numbers where no name is a number.
    """
    named = table.classes is not None and any(name.strip().lstrip("+-").isdigit() for name in table.classes)
    if named and labels.dtype.kind in "iuf" and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64).astype(str)
    return checks.labels(labels, table.targets.shape[1], "gold, column 'label'", table.classes)


def _columns(table: Table, matrices: Sequence[str], vectors: Sequence[str]) -> tuple[NDArray[Any], dict[str, Any]]:
    """Ids and whole columns of a file."""
    chunks = list(table.chunks(matrices, vectors))
    if not chunks:
        raise wrong_shape("no rows", table.option, "0 rows", "at least 1 row", "name another file")
    ids = pa.concat_arrays([chunk.ids for chunk in chunks]).to_numpy(zero_copy_only=False)
    return ids, {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in (*matrices, *vectors)}


def _class_names(path: Path) -> tuple[str, ...] | None:
    names = (read_record(path) or {}).get("class_names")
    return tuple(names) if isinstance(names, list) else None


def _named(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _check_ids(ids: NDArray[Any]) -> None:
    if ids.ndim != 1:
        raise wrong_shape("ids are not a vector", "ids", ids.shape, "(rows,)", "pass one id for every row")
    kinds, counts = np.unique(ids.astype(str), return_counts=True)
    repeated = kinds[counts > 1]
    if len(repeated):
        found, expected = f"{len(repeated):,} ids more than once, such as {str(repeated[0])!r}", "every id once"
        raise bad_input("repeated ids", "ids", found, expected, "keep one row for each id")
