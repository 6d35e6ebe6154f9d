"""Gold rows that stand elsewhere too, or twice: a leak, unless such rows are common.

Inputs of few values repeat by themselves: rows that have nothing to do with each other are equal, and what is learned from
one rightly helps with the other. How often that happens is told by unlabeled rows. Only where gold rows repeat more often
than those, it is a leak. Where unlabeled rows cannot tell, every repeat is one.
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
RARE = 0.05  # share of rows that are nowhere else, below which repeats are beyond doubt common
KINDRED = 0.1  # of the rate at which rows should repeat each other by how often they are in another set: so much at least


def keys_of(rows: NDArray[Any]) -> Keys:
    """Keys of rows (n, …), whatever the size of their floating numbers: they are used as float32."""
    floating = np.issubdtype(rows.dtype, np.floating)
    with np.errstate(over="ignore"):
        exact = (row.astype(np.float32) + np.float32(0) if floating else row for row in rows)  # −0.0 becomes 0.0
        digests = [hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest() for row in exact]
    return np.frombuffer(b"".join(digests), "S16")


def twice(keys: Keys) -> Bools:
    """Which rows (n,) are in their own set more than once."""
    _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[place] > 1)


def among(rest: Keys, others: Keys) -> float:
    """How often unlabeled rows are among `others` by chance.

    They may be there by design: who unites all his rows has the labeled ones in his pool. Rows that are equal by nature are
    equal to each other too; so where the rows that are not among `others` hardly repeat each other, that is how often.
    """
    if len(rest) < TELLING:
        return 0.0
    there = np.isin(rest, others)
    share = float(there.mean())
    if share > 1 - RARE:
        return share
    alone = rest[~there]
    each_other, expected = float(twice(alone).mean()), min(1.0, share * len(alone) / max(1, len(np.unique(others))))
    return share if each_other >= KINDRED * expected else min(share, each_other)


def by_itself(rest: Keys) -> float:
    """How often unlabeled rows are in their own set more than once."""
    return float(twice(rest).mean()) if len(rest) >= TELLING else 0.0


def leaked(gold: Bools, chance: float) -> Bools:
    """Which gold rows (m,) are where they should not be: `gold` as they are found there, or none where so many are common.

    `chance`: of a row to be there all the same.
    """
    from scipy.stats import binom

    count = int(gold.sum())
    return gold if count and binom.sf(count - 1, len(gold), chance) < ALARM else np.zeros_like(gold)


def one_of_each(gold: Keys, rest: Keys) -> Ints | None:
    """Of every gold row (m,) the first that is the same, where gold rows are repeated; None where all differ."""
    if not leaked(twice(gold), among(rest, gold)).any():
        return None
    _, first, place = np.unique(gold, return_index=True, return_inverse=True)
    return np.asarray(first[place], np.int64)
