"""The main directions of features: sparse rows as a few dense columns, which a forest can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import empty
from wdistill.core.threads import one_thread

DIRECTIONS = 50
SAMPLE = 5_000  # texts whose main directions trees are grown on


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions of the features; called with rows, it gives their places along them."""

    columns: NDArray[np.int64]  # (c,) of the features, all others are 0 in every direction
    vectors: NDArray[np.float64]  # (c, k) of length 1, that of the largest variation first

    def __call__(self, rows: Any) -> NDArray[np.float64]:
        """Sparse rows (n, d) → (n, k)."""
        return np.asarray(rows[:, self.columns] @ self.vectors)


def directions(rows: Any, k: int = DIRECTIONS) -> Directions:
    """The k main directions (right singular vectors) of sparse rows (n, d), or as many as there are; some thousand rows do.

    The largest entry of each is positive: the same rows give the same bits.
    """
    from scipy.sparse.linalg import svds

    columns = np.unique(rows.indices)
    inputs = rows[:, columns].astype(np.float64)
    most = min(inputs.shape)
    if most < 2:
        raise empty("no texts with words in common", "rows", "at least 2 rows and 2 columns", "pass more texts")
    with one_thread():
        start = np.random.default_rng(0).standard_normal(most)
        _, values, vectors = svds(inputs, min(k, most - 1), v0=start, which="LM")
    order = np.argsort(-values, kind="stable")
    kept = order[values[order] > 1e-9 * values.max()]
    vectors = vectors[kept].T
    signs = np.sign(vectors[abs(vectors).argmax(axis=0), np.arange(len(kept))])
    return Directions(columns, np.ascontiguousarray(vectors * signs))
