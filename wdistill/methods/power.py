"""Power analysis: gold rows for an interval of ± x, and for telling two predictors apart.

Both scale the variance of the present gold rows to their number: rows to come are drawn as these were, with the same
weights and, where there are groups, in groups of the same size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_value
from wdistill.methods.groups import numbered
from wdistill.methods.interval import FEWEST, difference_error, estimate, interval_of, variation
from wdistill.methods.metric import Metric, row_weights
from wdistill.methods.prediction_powered import JudgedGold, JudgedPool, variance_left
from wdistill.methods.statistics import Interval, Z
from wdistill.weights.confidence import Floats

MOST = 10**9  # rows: what needs more is not reached
POWER_Z = 0.84  # standard errors beyond the interval's: the difference is found in 80 % of the cases


@dataclass(frozen=True)
class RowsNeeded:
    """Gold rows in all, the present ones included; None above MOST."""

    gold: int | None  # judged by gold alone
    with_pool: int | None = None  # judged by gold and pool: prediction-powered; at least FEWEST


def rows_for_width(metric: Metric, half: float, gold: JudgedGold, pool: JudgedPool | None = None) -> RowsNeeded:
    """Gold rows after which the metric's interval is ± `half` on average of both sides, such as 0.01 for a point."""
    if not half > 0:
        raise bad_value("not a width", "half", repr(half), "a number above 0", "write 0.01 for ± 1 point")
    m = len(gold.predictions)
    parts, w = metric.parts(gold.predictions, gold.labels, gold.weights), row_weights(gold.weights, m)
    if parts.influences is None:
        found = estimate(metric, gold.predictions, gold.labels, gold.weights, gold.groups)
        return RowsNeeded(_least(lambda rows: _half(found) * float(np.sqrt(m / rows)) <= half))
    now = variation(parts, w, None if gold.groups is None else numbered(gold.groups, m))

    def width(rows: int) -> float:
        more = rows / m
        return _half(interval_of(replace(now, covariance=now.covariance / more, rows=now.rows * more), metric))

    alone = _least(lambda rows: width(rows) <= half)
    if pool is None:
        return RowsNeeded(alone)
    left = variance_left(metric, gold, pool)
    return RowsNeeded(alone, _least(lambda rows: width(rows) * float(np.sqrt(left(rows / m))) <= half, FEWEST))


def rows_to_tell_apart(
    metric: Metric,
    least: float,
    first: Floats,
    second: Floats,
    labels: NDArray[Any],
    weights: Floats | None = None,
    groups: NDArray[Any] | None = None,
) -> int | None:
    """Gold rows after which a difference of `least` between two predictors (m, K) is found in 80 % of the cases."""
    if not least > 0:
        raise bad_value("not a difference", "least", repr(least), "a number above 0", "write 0.01 for 1 point")
    m = len(first)
    numbers = None if groups is None else numbered(groups, m)
    error = difference_error(metric, first, second, labels, row_weights(weights, m), numbers)
    if error is None:
        expected, remedy = "a metric that moves smoothly with every row", "name another metric, such as average-precision"
        raise bad_value("no power analysis", f"metric {metric.name}", metric.name, expected, remedy)
    return _least(lambda rows: (Z + POWER_Z) * error * float(np.sqrt(m / rows)) <= least)


def _half(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


def _least(enough: Callable[[int], bool], fewest: int = 1) -> int | None:
    """The least number of rows that is enough, where more are enough too; at least `fewest`."""
    low, high = fewest - 1, fewest
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
