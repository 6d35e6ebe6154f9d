"""The one table that every adapter takes: ids, targets (n, K) and weights (n,), checked, and joined by id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, wrong_shape
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


def check_ids(ids: NDArray[Any]) -> None:
    """Raise where ids are no vector (n,), or one is there twice."""
    if ids.ndim != 1:
        raise wrong_shape("ids are not a vector", "ids", ids.shape, "(rows,)", "pass one id for every row")
    kinds, counts = np.unique(ids.astype(str), return_counts=True)
    repeated = kinds[counts > 1]
    if len(repeated):
        found, expected = f"{len(repeated):,} ids more than once, such as {str(repeated[0])!r}", "every id once"
        raise bad_input("repeated ids", "ids", found, expected, "keep one row for each id")
