"""95 % intervals of any metric, with row weights and groups, and of the paired difference of two predictors.

A metric moves by the mean influence of its rows. The variance of that mean, over rows or over groups (cluster-robust), gives
the interval: Wilson's with the effective number of rows for shares and costs, the same on right / (decided or true) for F1,
and ± z standard errors of its logarithm for the log loss. Weights are 1 / the probability of being drawn (Hájek, 1971); rows
are taken to be drawn independently of each other, or group by group. A mean over classes, or over errors of different cost,
combines the intervals of its parts (Zou and Donner, Statistics in Medicine 2008), so that a class with few rows, or an error
that has not occurred, is not taken for a certain one. Metrics without influences are bootstrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.groups import Ints, numbered, sums
from wdistill.methods.metric import Metric, MetricParts, Scale, aligned, mean_of, row_weights
from wdistill.methods.statistics import Interval, Z, wilson
from wdistill.weights.confidence import Floats

REPLICATIONS = 500  # of a bootstrap
FEWEST = 10  # rows or groups: a variance that rests on fewer is not trusted to be small


@dataclass(frozen=True, eq=False)
class Variation:
    """How the parts of a metric vary from sample to sample."""

    values: Floats  # (C,)
    covariance: Floats  # (C, C)
    rows: Floats  # (C,) effective rows at stake, which bound what is known where the variance rests on few; else infinite
    worst: Floats | float  # (C,) the largest value that a part can have
    z: float  # standard errors on either side


def estimate(
    metric: Metric,
    predictions: Floats,
    truth: NDArray[Any],
    weights: Floats | None = None,
    groups: NDArray[Any] | None = None,
) -> Interval:
    """A metric of predictions (n, K) on rows with labels (n,), with weights (n,) 1 / π and groups (n,) if there are any."""
    parts = metric.parts(predictions, truth, weights)
    w, numbers = row_weights(weights, len(predictions)), _numbers(groups, len(predictions))
    if np.isnan(parts.values).all():
        return Interval(float("nan"), 0.0, metric.worst)
    if parts.influences is None:
        return _bootstrapped(_value(metric, predictions, truth), w, numbers)
    return interval_of(variation(parts, w, numbers), metric)


def estimate_by_class(
    metric: Metric,
    predictions: Floats,
    truth: NDArray[Any],
    weights: Floats | None = None,
    groups: NDArray[Any] | None = None,
) -> tuple[Interval, ...]:
    """The same for every class (K,)."""
    classes = predictions.shape[1]
    return tuple(estimate(metric.of_class(c), predictions, truth, weights, groups) for c in range(classes))


def difference(
    metric: Metric,
    first: Floats,
    second: Floats,
    truth: NDArray[Any],
    weights: Floats | None = None,
    groups: NDArray[Any] | None = None,
) -> Interval:
    """The metric of the first predictor (n, K) minus that of the second, on the same rows: paired."""
    w, numbers = row_weights(weights, len(first)), _numbers(groups, len(first))
    value = metric(first, truth, weights) - metric(second, truth, weights)
    if np.isnan(value):
        return Interval(value, -metric.worst, metric.worst)
    error = difference_error(metric, first, second, truth, w, numbers)
    if error is None:
        of_first, of_second = _value(metric, first, truth), _value(metric, second, truth)
        return _bootstrapped(lambda drawn: of_first(drawn) - of_second(drawn), w, numbers)
    half = quantile(numbers) * error
    return Interval(value, value - half, value + half)


def difference_error(
    metric: Metric, first: Floats, second: Floats, truth: NDArray[Any], weights: Floats, groups: Ints | None
) -> float | None:
    """The standard error of the difference, of a share never below what one differing row makes; None: not smooth."""
    a, b = metric.parts(first, truth, weights), metric.parts(second, truth, weights)
    if a.influences is None or b.influences is None:
        return None
    known = [~np.isnan(part.values) for part in (a, b)]
    moved = a.influences[:, known[0]].mean(axis=1) - b.influences[:, known[1]].mean(axis=1)
    variance = float(covariance(moved[:, None], weights, groups)[0, 0])
    if metric.higher:
        for stakes in (a.stakes, b.stakes):
            rows = np.maximum(effective_rows(stakes, weights, groups), 1.0)
            variance = max(variance, float(np.sum(1 / rows**2)) / len(rows) ** 2)
    return float(np.sqrt(variance))


def variation(parts: MetricParts, weights: Floats, groups: Ints | None) -> Variation:
    """How these parts vary, from the influences of the rows."""
    assert parts.influences is not None
    few = telling_rows(parts.influences * weights[:, None], groups) < FEWEST
    rows = np.where(few, effective_rows(parts.stakes, weights, groups), np.inf)
    return Variation(parts.values, covariance(parts.influences, weights, groups), rows, parts.worst, quantile(groups))


def covariance(influences: Floats, weights: Floats, groups: Ints | None) -> Floats:
    """Of weighted means of influences (n, C), whose rows vary independently, or whose groups do: (C, C)."""
    by_group = sums(influences * (weights / weights.sum())[:, None], groups)
    few = len(by_group) / max(len(by_group) - 1, 1) if groups is not None else 1.0
    return np.asarray(few * by_group.T @ by_group)


def effective_rows(stakes: Floats, weights: Floats, groups: Ints | None) -> Floats:
    """(Σ w)² / Σ w² over rows or groups, w a row's weight times its stake in a part: (n, C) → (C,)."""
    by_group = sums(stakes * weights[:, None], groups)
    squares = np.square(by_group).sum(axis=0)
    return np.asarray(np.divide(by_group.sum(axis=0) ** 2, squares, out=np.zeros_like(squares), where=squares > 0))


def telling_rows(moves: Floats, groups: Ints | None) -> Floats:
    """How many rows, or groups, a variance rests on: (Σ v)² / Σ v² of their shares v of it; moves (n, C) → (C,)."""
    shares = sums(moves, groups) ** 2
    squares = np.square(shares).sum(axis=0)
    return np.asarray(np.divide(shares.sum(axis=0) ** 2, squares, out=np.zeros_like(squares), where=squares > 0))


def mean_error(values: Floats, covariance: Floats) -> float:
    """The standard error of the mean of the parts (C,) that are known; the others have variance 0."""
    known = int(np.count_nonzero(~np.isnan(values)))
    return float(np.sqrt(max(covariance.sum(), 0.0))) / known if known else float("nan")


def quantile(groups: Ints | None) -> float:
    """Standard errors on either side: 1.96, and with groups Student's, by their number less one."""
    from scipy.special import stdtrit

    return Z if groups is None else float(stdtrit(max(len(np.unique(groups)) - 1, 1), 0.975))


def interval_of(variation: Variation, metric: Metric) -> Interval:
    """The interval of the mean of the parts that are known."""
    parts = intervals_of(variation, metric)
    known = np.flatnonzero(~np.isnan(variation.values))
    if len(known) == 1:
        return parts[int(known[0])]
    errors = np.sqrt(np.diag(variation.covariance)[known])
    both = np.outer(errors, errors)
    alike = np.divide(variation.covariance[np.ix_(known, known)], both, out=np.zeros_like(both), where=both > 0)
    np.fill_diagonal(alike, 1.0)
    below, above = (
        np.array([abs(end - part.value) for part, end in ((parts[c], getattr(parts[c], side)) for c in known)])
        for side in ("low", "high")
    )
    value = mean_of(variation.values)
    half = [float(np.sqrt(max(side @ alike @ side, 0.0))) / len(known) for side in (below, above)]
    return Interval(value, value - half[0], value + half[1])


def intervals_of(variation: Variation, metric: Metric) -> tuple[Interval, ...]:
    """The interval of every part."""
    worst = np.broadcast_to(variation.worst, variation.values.shape)
    given = zip(variation.values, np.diag(variation.covariance), variation.rows, worst, strict=True)
    return tuple(_part(float(v), float(s), float(n), float(w), metric.scale, variation.z) for v, s, n, w in given)


def _part(value: float, variance: float, rows: float, worst: float, scale: Scale, z: float) -> Interval:
    """One value, at most `worst`, with its variance, of at most so many effective rows."""
    if np.isnan(value) or rows <= 0:
        return Interval(value, 0.0, worst)
    if np.isinf(worst):  # a mean of skewed losses: on its logarithm
        factor = float(np.exp(z * np.sqrt(variance) / value)) if value > 0 else np.inf
        return Interval(value, value / factor, value * factor if value > 0 else worst)
    if scale == "f1":  # right / (decided or true) is a share of rows, q, and F1 = 2q / (1 + q)
        share = _share(value / (2 - value), variance * (2 / (2 - value) ** 2) ** 2, rows, z)
        low, high = (2 * q / (1 + q) for q in (share.low, share.high))
        return Interval(value, min(low, value), max(high, value))
    share = _share(value / worst, variance / worst**2, rows, z)
    return Interval(value, min(worst * share.low, value), max(worst * share.high, value))


def _share(value: float, variance: float, rows: float, z: float) -> Interval:
    """Wilson's interval with the number of rows that have this variance."""
    spread = value * (1 - value)
    return wilson(value, min(spread / variance, rows) if variance > 0 and spread > 0 else rows, z)


def _bootstrapped(value: Callable[[Floats], float], weights: Floats, groups: Ints | None) -> Interval:
    """The middle 95 % of values on rows, or whole groups, drawn with replacement: a drawn row keeps its weight."""
    rng = np.random.default_rng(0)
    members = np.arange(len(weights)) if groups is None else groups
    count = int(members.max()) + 1
    drawn = (weights * np.bincount(rng.integers(0, count, count), minlength=count)[members] for _ in range(REPLICATIONS))
    values = np.array([value(row) for row in drawn if row.any()])
    low, high = np.nanquantile(values, [0.025, 0.975])
    now = value(weights)
    return Interval(now, min(float(low), now), max(float(high), now))


def _value(metric: Metric, predictions: Floats, truth: NDArray[Any]) -> Callable[[Floats], float]:
    """The metric of these rows as a function of their weights."""
    rows, dense, _ = aligned(predictions, truth, None)
    return lambda weights: mean_of(metric.overall(rows, dense, weights).values)


def _numbers(groups: NDArray[Any] | None, rows: int) -> Ints | None:
    return None if groups is None else numbered(groups, rows)
