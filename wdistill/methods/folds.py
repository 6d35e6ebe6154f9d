"""Cross-fitting: whatever is learned from gold rows answers for the gold rows it has not seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats

Ints = NDArray[np.int64]
PARTS = 5


def folds_of(labels: NDArray[np.integer], parts: int = PARTS, seed: int = 0, same: Ints | None = None) -> Ints:
    """The fold of every gold row, each class spread evenly over the folds; labels (m,) → (m,) in 0 … parts − 1.

    `same` (m,): the first row that is the same as this one; such rows are in one fold.
    """
    if same is not None and len(np.unique(same)) > 1:  # else nobody would be left to learn from
        first, place = np.unique(same, return_inverse=True)
        return folds_of(labels[first], parts, seed)[place]
    m = len(labels)
    order = np.random.default_rng(seed).permutation(m)
    by_class = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(m, np.int64)
    folds[by_class] = np.arange(m) % min(parts, m)
    return folds


def out_of_fold(answer: Callable[[Ints, Ints], Floats], folds: Ints) -> Floats:
    """answer(rows to learn from, rows to answer for) of every fold, put together in the order of the rows: (m, …)."""
    found: Floats | None = None
    for fold in np.unique(folds):
        asked = np.flatnonzero(folds == fold)
        given = answer(np.flatnonzero(folds != fold), asked)
        if found is None:
            found = np.empty((len(folds), *given.shape[1:]))
        found[asked] = given
    assert found is not None
    return found
