"""Gold rows that stand elsewhere too, or twice: a leak, unless such rows are common.

Inputs of few values repeat by themselves: rows that have nothing to do with each other are equal, and what is learned from
one rightly helps with the other. How often that happens is told by rows that are no gold rows. Only where gold rows repeat
more often than those, it is a leak.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.folds import Ints

Keys = NDArray[np.bytes_]  # (n,) one for every row, equal where all its inputs are, to the bit
Bools = NDArray[np.bool_]

ALARM = 0.001  # chance, by what other rows do, below which so many repeats are a leak
TELLING = 100  # rows at least that tell how common repeats are


def keys_of(rows: NDArray[Any]) -> Keys:
    """Keys of rows (n, …)."""
    zero = 0.0 if np.issubdtype(rows.dtype, np.floating) else 0  # −0.0 becomes 0.0
    digests = (hashlib.blake2b(np.ascontiguousarray(row + zero).tobytes(), digest_size=16).digest() for row in rows)
    return np.frombuffer(b"".join(digests), "S16")


def twice(keys: Keys) -> Bools:
    """Which rows (n,) are in their own set more than once."""
    _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[place] > 1)


def leaked(gold: Bools, *others: Bools) -> Bools:
    """Which gold rows (m,) are where they should not be: `gold` as they are found there, or none where that is common.

    `others`: of rows that are no gold rows, which of them are found there as well. The rarest counts: each may be inflated
    by a mistake of its own, such as labeled rows among the unlabeled ones.
    """
    from scipy.stats import binom

    common = min((float(each.mean()) for each in others if len(each) >= TELLING), default=0.0)
    count = int(gold.sum())
    return gold if count and binom.sf(count - 1, len(gold), common) < ALARM else np.zeros_like(gold)


def one_of_each(gold: Keys, *others: Keys) -> Ints | None:
    """Of every gold row (m,) the first that is the same, where gold rows are repeated; None where all differ."""
    again = leaked(twice(gold), *(np.isin(each, gold) for each in others))
    _, first, place = np.unique(gold, return_index=True, return_inverse=True)
    return first[place].astype(np.int64) if again.any() and len(first) > 1 else None
