"""Shares, means and comparisons on gold rows as they were drawn: counted, or with weights and by group where there are any.

Rows with weights or groups are worth fewer than they are: as many as would, drawn one by one at random, leave as much open.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.gold_design import GoldDesign
from wdistill.methods.groups import Ints, numbered, sums
from wdistill.methods.interval import FEWEST, covariance, effective_rows, interval_of, quantile, variation
from wdistill.methods.metric import PLAIN, ratio, row_weights
from wdistill.methods.statistics import Interval, Z, share
from wdistill.weights.confidence import Floats

Bools = NDArray[np.bool_]


def share_of(right: Bools, design: GoldDesign, among: Bools | None = None) -> Interval:
    """The share of gold rows that are right (m,), of those `among` them (m,); NaN and [0, 1] where there are none."""
    counted = np.ones(len(right), bool) if among is None else among
    if design.even or not counted.any():
        return share(int(np.sum(right & counted)), int(counted.sum()))
    weights, groups = _drawn(design, len(right))
    parts = ratio((right & counted)[:, None].astype(np.float64), counted[:, None].astype(np.float64), weights)
    return interval_of(variation(parts, weights, groups), PLAIN["accuracy"])


def mean_of(values: Floats, design: GoldDesign) -> tuple[float, float]:
    """The mean of values (m,) of gold rows, and its standard error, which is infinite where there is one row."""
    if design.even:
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
        return float(values.mean()), error
    weights, groups = _drawn(design, len(values))
    mean = float(weights @ values / weights.sum())
    return mean, float(np.sqrt(covariance((values - mean)[:, None], weights, groups)[0, 0]))


def effective_number(values: Floats, design: GoldDesign, among: Bools | None = None) -> float:
    """How many rows the gold rows `among` (m,) are worth for the mean of values (m,) or (m, C): at most their number."""
    weights, groups = _drawn(design, len(values))
    used = weights if among is None else weights * among
    if not used.any():
        return 0.0
    rows = values.reshape(len(values), -1)
    off = rows - used @ rows / used.sum()
    spread, variance = float(used @ np.square(off).sum(axis=1) / used.sum()), float(np.trace(covariance(off, used, groups)))
    moved = np.square(sums(off * used[:, None], groups)).sum(axis=1)
    telling = float(moved.sum() ** 2 / np.square(moved).sum()) if moved.any() else 0.0
    one = np.ones((len(values), 1))
    most = float(effective_rows(one, used, groups if telling < FEWEST else None)[0])
    return min(spread / variance, most) if variance > 0 and spread > 0 else most


def beats(first: Bools, second: Bools, z: float, design: GoldDesign) -> bool:
    """Whether the first is right (m,) more often than the second, beyond `z` standard errors of rows that differ."""
    if design.even:
        won, lost = int(np.sum(first & ~second)), int(np.sum(second & ~first))
        return bool(won - lost > z * np.sqrt(won + lost))
    weights, groups = _drawn(design, len(first))
    moved = sums((weights * (first.astype(np.float64) - second))[:, None], groups)[:, 0]
    return bool(moved.sum() > z * standard_errors(design) / Z * np.sqrt(moved @ moved))


def standard_errors(design: GoldDesign) -> float:
    """How many make a 95 % interval, on either side: 1.96, and with groups Student's."""
    return Z if design.groups is None else quantile(numbered(design.groups, len(design.groups)))


def _drawn(design: GoldDesign, rows: int) -> tuple[Floats, Ints | None]:
    groups = None if design.groups is None else numbered(design.groups, rows)
    return row_weights(design.weights, rows), groups
