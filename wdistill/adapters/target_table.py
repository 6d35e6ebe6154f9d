"""The one table that every adapter takes: ids, targets (n, K) and weights (n,), checked, and joined by id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.answers.api import Corrected
from wdistill.core import checks
from wdistill.core.errors import InputError, bad_input, wrong_shape, wrong_type
from wdistill.weights.confidence import Floats

TARGETS, WEIGHT = "targets", "weight"  # the columns beside `id`
READ = "read it first: table = read_targets(…), of wdistill.adapters.table"


@dataclass(frozen=True, eq=False)
class TargetTable:
    """What to teach for every row: a distribution over the classes, and what the row's loss counts."""

    ids: NDArray[Any]  # (n,) integers or strings, each once
    targets: Floats  # (n, K)
    weight: Floats  # (n,)
    classes: tuple[str, ...] | None = None  # their names, in the order of the columns of the targets

    def __post_init__(self) -> None:
        ids = np.asarray(self.ids)
        check_ids(ids)
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

    def has(self, ids: Any) -> NDArray[np.bool_]:
        """Which of these ids have a row (n,): `rows[table.has(rows["id"])]` can be trained on."""
        return self._find(ids) >= 0

    def rows(self, ids: Any) -> NDArray[np.intp]:
        """Where these ids stand in the table; compared as text, as everywhere in wdistill."""
        found = self._find(ids)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            first = ", ".join(map(repr, _as_array(ids)[missing[:5]].tolist()))
            what, expected = f"{len(missing):,} of {len(found):,} ids, such as {first}", "a row of the table for each id"
            remedy = "train on the rows where table.has(ids), or make targets for the others"
            raise bad_input("rows without targets", "ids", what, expected, remedy, missing)
        return found

    def select(self, ids: Any) -> TargetTable:
        """The rows of these ids, in their order."""
        rows = self.rows(ids)
        return TargetTable(self.ids[rows], self.targets[rows], self.weight[rows], self.classes)

    def _find(self, ids: Any) -> NDArray[np.intp]:
        """Where these ids stand (n,), −1 for those that are not there."""
        return np.array([self._places.get(str(key), -1) for key in _as_array(ids).tolist()], np.intp)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {str(key): place for place, key in enumerate(self.ids.tolist())}


def check_table(table: Any) -> TargetTable:
    """The table; an error where it is something that a table is read from, such as the name of a file."""
    if isinstance(table, TargetTable):
        return table
    raise wrong_type("this is no table of targets", "table", table, "a TargetTable, which read_targets returns", READ)


def check_targets(targets: Any, weight: Any = None) -> tuple[Floats, Floats]:
    """Targets (n, K) and weights (n,), as float64, that a loss can be made of; without weights every row counts 1."""
    given = matrix_of(targets, TARGETS)
    allowed = checks.tolerance("float32" if given.dtype == np.float64 else given.dtype.name, given.shape[1])
    rows = distributions(given, allowed, TARGETS).astype(np.float64)
    counts = np.ones(len(rows)) if weight is None else checks.scores(weight, WEIGHT).astype(np.float64)
    checks.same_length({TARGETS: len(rows), WEIGHT: len(counts)})
    below = np.flatnonzero(counts < 0)
    if len(below):
        found, remedy = f"{len(below):,} negative weights, the least {counts.min():.4g}", "leave rows out by weight 0"
        raise bad_input("weights below 0", WEIGHT, found, "0 or more", remedy, below)
    if not counts.any():
        raise bad_input("no row counts", WEIGHT, f"{len(counts):,} weights, all 0", "a weight above 0", "weigh again")
    return rows, counts


def matrix_of(
    values: Any, name: str, remedy: str = f"{READ}; its arrays are table.targets and table.weight"
) -> NDArray[Any]:
    """Numbers (n, K); an error that says what to pass where there are labels, a file (`remedy`), or a table."""
    if isinstance(values, str | PathLike | TargetTable | pa.Table | Corrected):
        raise wrong_type("this is no array", name, values, "an array (rows, classes)", remedy)
    flat = isinstance(values, list | tuple) and len(values) and np.ndim(values[0]) == 0
    if flat or getattr(values, "ndim", 2) == 1:
        what, expected = "one value a row, not a distribution over the classes", "(rows, classes)"
        remedy = (
            "of gold rows table.select(ids); of class numbers np.eye(K)[numbers]; of probabilities p columns 1 − p and p"
        )
        raise wrong_shape(what, name, f"({len(values)},)", expected, remedy)
    return checks.matrix(values, name)


def distributions(values: NDArray[Any], allowed: float, name: str) -> NDArray[Any]:
    """Rows (n, K) that are probabilities, each of which sums to 1 within `allowed`."""
    try:
        return checks.rows(checks.widened(values), np.arange(len(values)), "probabilities", allowed, False, name, False)
    except InputError as error:
        optional = "renormalize=" in error.remedy or "kind=" in error.remedy  # options that adapters do not have
        remedy = "pass probabilities: of logits their softmax, of counts every row divided by its sum"
        raise (error.at(name, 0, (), remedy) if optional else error) from None


def _as_array(ids: Any) -> NDArray[Any]:
    return np.asarray(ids.detach().cpu() if hasattr(ids, "detach") else ids)


def check_ids(ids: NDArray[Any]) -> None:
    """Raise where ids are no vector (n,), or one is there twice."""
    if ids.ndim != 1:
        raise wrong_shape("ids are not a vector", "ids", ids.shape, "(rows,)", "pass one id for every row")
    kinds, counts = np.unique(ids.astype(str), return_counts=True)
    repeated = kinds[counts > 1]
    if len(repeated):
        found, expected = f"{len(repeated):,} ids more than once, such as {str(repeated[0])!r}", "every id once"
        raise bad_input("repeated ids", "ids", found, expected, "keep one row for each id")
