"""Prediction-powered intervals: a metric on the pool, from gold rows and a model's guess of the truth of all rows.

    metric of  gold rows with labels  +  λ · (pool rows with imputed truth  −  gold rows with imputed truth)

The pool has many rows, so its part hardly varies; the gold rows remove the bias of the imputed truth. λ in [0, 1] is tuned
for the least variance: 0 is gold alone, and the interval is, with many rows, never wider than that (PPI++, Angelopoulos et
al., 2023). Sums are combined before a ratio such as F1 is taken; variances come from influences (the delta method). Metrics
of rankings are refused: their value from gold and pool is biased where a class has few gold rows.

Gold and pool are taken to be drawn from the same population, gold with probabilities 1 / weight. No imputed truth may come
from a model that has seen the label of its own row: the posterior of gold rows is the one out of fold. The interval is for
the population, and for the pool itself where it is much larger than gold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_value
from wdistill.methods.groups import Ints, numbered, sums
from wdistill.methods.interval import FEWEST, Variation, estimate, interval_of, mean_error, quantile, telling_rows
from wdistill.methods.metric import Metric, MetricParts, distributions, row_weights
from wdistill.methods.statistics import Interval
from wdistill.weights.confidence import Floats

ROUNDING = 1e-18  # of a variance: an imputation that varies less is constant


@dataclass(frozen=True, eq=False)
class JudgedGold:
    """Rows with labels, a predictor's probabilities, and the truth as a model imputes it, out of fold."""

    predictions: Floats  # (m, K)
    labels: NDArray[Any]  # (m,)
    imputed: Floats  # (m, K) distributions
    weights: Floats | None = None  # (m,) 1 / the probability of being drawn
    groups: NDArray[Any] | None = None  # (m,)


@dataclass(frozen=True, eq=False)
class JudgedPool:
    """Rows without labels: the same predictor, and the truth imputed by the same model."""

    predictions: Floats  # (n, K)
    imputed: Floats  # (n, K) distributions
    groups: NDArray[Any] | None = None  # (n,) of the same ids as those of the gold rows


@dataclass(frozen=True)
class PredictionPowered:
    """A metric from gold and pool, beside the same from gold alone."""

    estimate: Interval
    gold: Interval
    tuning: float  # λ: how much of the pool is used
    error: float  # standard error of the estimate
    gold_error: float  # of gold alone


def prediction_powered(metric: Metric, gold: JudgedGold, pool: JudgedPool) -> PredictionPowered:
    """The metric of a predictor, from gold and pool; from gold alone where the variance rests on fewer than FEWEST rows."""
    sample = _Sample.of(metric, gold, pool)
    alone = estimate(metric, gold.predictions, gold.labels, gold.weights, gold.groups)
    parts = sample.parts(metric, 0.0)
    known = ~np.isnan(parts.values)
    error = mean_error(parts.values, sample.covariance(parts, 0.0))
    tuning = sample.tuned(metric)
    parts = sample.parts(metric, tuning)
    values, variance = parts.values[known], sample.covariance(parts, tuning)[np.ix_(known, known)]
    worst = np.broadcast_to(parts.worst, known.shape)[known]
    inside = bool(np.all((values > 0) & (values < worst)))
    if tuning == 0 or not known.any() or not inside or sample.telling(parts, tuning) < FEWEST:
        return PredictionPowered(alone, alone, 0.0, error, error)
    varying = Variation(values, variance, np.full(len(values), np.inf), worst, quantile(sample.gold_groups))
    return PredictionPowered(interval_of(varying, metric), alone, tuning, mean_error(values, variance), error)


def prediction_powered_by_class(metric: Metric, gold: JudgedGold, pool: JudgedPool) -> tuple[PredictionPowered, ...]:
    """The same for every class (K,), each with its own λ."""
    classes = gold.predictions.shape[1]
    return tuple(prediction_powered(metric.of_class(c), gold, pool) for c in range(classes))


def variance_left(metric: Metric, gold: JudgedGold, pool: JudgedPool) -> Callable[[float], float]:
    """The variance with the pool as a share of that of gold alone, if there were so many times the gold rows."""
    sample = _Sample.of(metric, gold, pool)
    first, second = (moved.mean(axis=1, keepdims=True) for moved in sample.moves(sample.parts(metric, sample.start)))
    groups = sample.groups
    here, imputed, far = (
        sums(moved, None if groups is None else groups[rows])
        for moved, rows in (
            (first[: sample.m], slice(sample.m)),
            (second[: sample.m], slice(sample.m)),
            (second[sample.m :], slice(sample.m, None)),
        )
    )
    a, b, c, d = (float((x * y).sum()) for x, y in ((here, here), (imputed, imputed), (here, imputed), (far, far)))

    def left(times: float) -> float:
        spread = b / times + d
        tuning = float(np.clip(-c / times / spread, 0.0, 1.0)) if spread > 0 else 0.0
        return (a + 2 * tuning * c + tuning**2 * spread * times) / a if a > 0 else 1.0

    return left


@dataclass(frozen=True, eq=False)
class _Sample:
    """Gold rows with labels, gold rows with imputed truth, and pool rows, one below the other."""

    m: int
    n: int
    predictions: Floats  # (2m + n, K)
    truth: Floats  # (2m + n, K)
    weights: Floats  # (m,) of the gold rows; they sum to 1
    groups: Ints | None  # (m + n,) of gold rows and pool rows

    @classmethod
    def of(cls, metric: Metric, gold: JudgedGold, pool: JudgedPool) -> _Sample:
        if metric.ranking:
            expected = "a metric whose value follows from sums over rows, such as recall, F1, a cost or the log loss"
            remedy = "take its interval from gold alone: methods.interval.estimate"
            raise bad_value("no prediction-powered interval", f"metric {metric.name}", metric.name, expected, remedy)
        m, n = len(gold.predictions), len(pool.predictions)
        checks.same_length({"gold rows": m, "labels": len(gold.labels), "imputed truth of gold rows": len(gold.imputed)})
        checks.same_length({"pool rows": n, "imputed truth of pool rows": len(pool.imputed)})
        labels = distributions(np.asarray(gold.labels), gold.predictions.shape[1])
        weights = row_weights(gold.weights, m)
        return cls(
            m,
            n,
            np.concatenate([gold.predictions, gold.predictions, pool.predictions]),
            np.concatenate([labels, gold.imputed, pool.imputed]),
            weights / weights.sum(),
            _together(gold.groups, pool.groups, m, n),
        )

    @property
    def gold_groups(self) -> Ints | None:
        return None if self.groups is None else np.asarray(np.unique(self.groups[: self.m], return_inverse=True)[1])

    def parts(self, metric: Metric, tuning: float) -> MetricParts:
        """The metric of the three together, the second with weights below 0."""
        pool = np.full(self.n, tuning / self.n)
        return metric.overall(self.predictions, self.truth, np.concatenate([self.weights, -tuning * self.weights, pool]))

    def moves(self, parts: MetricParts) -> tuple[Floats, Floats]:
        """What moves the value, (m + n, C) each: the first always, the second times λ. Gold and pool are centred apart."""
        assert parts.influences is not None
        labels, imputed, pool = np.split(parts.influences, [self.m, 2 * self.m])
        here = self.weights[:, None]
        first = here * (labels - self.weights @ labels)
        second = -here * (imputed - self.weights @ imputed)
        return np.concatenate([first, np.zeros_like(pool)]), np.concatenate([second, (pool - pool.mean(axis=0)) / self.n])

    def covariance(self, parts: MetricParts, tuning: float) -> Floats:
        """Of the parts, at this λ: (C, C)."""
        first, second = self.moves(parts)
        by_group = sums(first + tuning * second, self.groups)
        count = self.m if self.gold_groups is None else int(self.gold_groups.max()) + 1
        return np.asarray(count / max(count - 1, 1) * by_group.T @ by_group)

    def telling(self, parts: MetricParts, tuning: float) -> float:
        """How many rows, or groups, the variance of a part rests on, the fewest of all parts."""
        first, second = self.moves(parts)
        return float(telling_rows((first + tuning * second)[:, ~np.isnan(parts.values)], self.groups).min(initial=np.inf))

    @property
    def start(self) -> float:
        """A λ that would suit a perfect imputation."""
        return self.n / (self.n + self.m)

    def tuned(self, metric: Metric) -> float:
        """The λ of least variance, with the influences at a λ that uses the pool: on few gold rows alone they are coarse."""
        parts = self.parts(metric, self.start)
        first, second = (sums(moved.mean(axis=1, keepdims=True), self.groups)[:, 0] for moved in self.moves(parts))
        spread = float(second @ second)
        return float(np.clip(-(first @ second) / spread, 0.0, 1.0)) if spread > ROUNDING * float(first @ first) else 0.0


def _together(gold: NDArray[Any] | None, pool: NDArray[Any] | None, m: int, n: int) -> Ints | None:
    """Groups of gold and pool rows as common numbers (m + n,); where one of the two has none, its rows are groups."""
    if gold is None and pool is None:
        return None
    if gold is not None and pool is not None:
        return numbered(np.concatenate([np.asarray(gold), np.asarray(pool)]), m + n)
    first = np.arange(m, dtype=np.int64) if gold is None else numbered(gold, m)
    second = np.arange(n, dtype=np.int64) if pool is None else numbered(pool, n)
    return np.concatenate([first, first.max() + 1 + second])
