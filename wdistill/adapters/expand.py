"""Soft targets for models that take hard labels: every row as a row for each class, weighted, as scikit-learn fits it."""

# ruff: noqa: N803 (X is scikit-learn's name)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from wdistill.adapters.target_table import TargetTable, check_targets
from wdistill.core.checks import same_length
from wdistill.core.errors import bad_value, wrong_shape
from wdistill.weights.confidence import Floats

NEGLIGIBLE = 1e-3  # of a row's mass: a prediction fitted to it moves by no more in any class


@dataclass(frozen=True, eq=False)
class Expanded:
    """e rows made of n: one for each class that a row's target names. Those of one row are twins, with the same inputs."""

    X: Any  # (e, …) of the kind that was given
    y: NDArray[Any]  # (e,) the class
    weight: Floats  # (e,) the weight of the row times its target for this class
    rows: NDArray[np.intp]  # (e,) the row that it was made of: never split twins between training and validation
    dropped: float  # the largest share of any row's mass that went from its least likely classes to the others

    @property
    def twins(self) -> bool:
        """Whether some row was made into more than one."""
        return len(np.unique(self.rows)) < len(self.rows)


def expand(
    X: Any,
    targets: TargetTable | Floats,
    weight: Floats | None = None,
    classes: Sequence[Any] | NDArray[Any] | None = None,
    negligible: float = NEGLIGIBLE,
) -> Expanded:
    """Rows × classes of X (n, …), targets (n, K) and weights (n,), or of a table with both.

    The log loss of the expanded rows is the soft cross-entropy of the rows: exactly with `negligible=0`. Otherwise the least
    likely classes of a row are left out, as long as they have together no more than this share of its mass; the rest is
    scaled up to the row's weight. So a target moves by at most `negligible` (in total variation), and `dropped` says by how
    much the worst one did. Rows of weight 0 are left out. `y` has names of `classes`, or the numbers of their columns.
    """
    if isinstance(targets, TargetTable):
        weight = targets.weight if weight is None else weight
        classes, targets = targets.classes if classes is None else classes, targets.targets
    distributions, counts = check_targets(targets, weight)
    same_length({"X": _num_samples(X), "targets": len(distributions)})
    names = np.arange(distributions.shape[1]) if classes is None else np.asarray(classes)
    if names.shape != distributions.shape[1:]:
        expected, remedy = f"{distributions.shape[1]} classes", "name one class for each column of the targets"
        raise wrong_shape("other classes than targets", "classes", names.shape, expected, remedy)
    kept, dropped = _keep(distributions, negligible)
    kept[counts == 0] = False
    rows, columns = np.nonzero(kept)
    scale = counts / (1.0 - dropped)
    mass = distributions[rows, columns] * scale[rows]
    return Expanded(take(X, rows), names[columns], mass, rows, float(dropped[counts > 0].max()))


def _keep(distributions: Floats, negligible: float) -> tuple[NDArray[np.bool_], Floats]:
    """Which classes are kept (n, K), and what share of every row's mass is not (n,)."""
    if not 0 <= negligible < 1:
        raise bad_value("not a share", "negligible", negligible, "at least 0 and below 1", "leave it out, or pass 0")
    order = np.argsort(distributions, axis=1, kind="stable")
    rising = np.take_along_axis(distributions, order, axis=1)
    least = rising.cumsum(axis=1) <= negligible * rising.sum(axis=1, keepdims=True)
    kept = np.empty(least.shape, bool)
    np.put_along_axis(kept, order, ~least, axis=1)
    kept &= distributions > 0
    total = distributions.sum(axis=1)
    return kept, np.where(kept, 0.0, distributions).sum(axis=1) / total


def take(X: Any, rows: NDArray[np.intp]) -> Any:
    """Some rows of an array, a sparse matrix, a frame or a list, as the same kind."""
    return _safe_indexing(X.tocsr() if hasattr(X, "tocsr") else X, rows)
