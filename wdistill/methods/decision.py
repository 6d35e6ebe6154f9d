"""The decision, a class from probabilities, that maximises a metric: an offset for every class.

Offsets are added to log-probabilities; with two classes that is a threshold. They are found by exact search over all cuts
of one class after the other, and are used where they gain out of fold. With a cost matrix the decision of least expected
cost follows from the probabilities, if these are true: so they are recalibrated first, by a slope and an offset for every
class. Where the decision costs more than the most likely class out of fold, the most likely class is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_value
from wdistill.methods.crossfit import Ints, log_softmax, out_of_fold
from wdistill.methods.interval import difference
from wdistill.methods.metric import PLAIN, Metric, OfCounts, bayes_decision, distributions, most_likely, row_weights
from wdistill.methods.posterior import fit_scaling
from wdistill.methods.statistics import Interval, Z
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import PROBABILITY_FLOOR

ROUNDS = 3  # over all classes, at most
LEAST_ERRORS = 0.5  # standard errors by which the metric must improve out of fold
BEYOND = 1.0  # log-probability between the last row and a cut that no row is beyond
OFFSET_PRECISION = 5.0  # of the prior of recalibrated offsets, which is around 0
MOST_CLASSES = 1 << 20  # of a decision in a file
ROUNDING = 1e-9  # values, and log-probabilities, that differ by less are equal


@dataclass(frozen=True, eq=False)
class Decision:
    """Decide the class with the largest slope · log-probability + offset; with costs, the class that then costs least."""

    offsets: Floats  # (K,) the largest is 0
    costs: Floats | None = None  # (K, K) of deciding j where i is true
    slope: float = 1.0  # at least 0; other than 1 only with costs

    def __call__(self, probabilities: Any) -> Ints:
        """Classes (n,) from probabilities (n, K), an array or a tensor."""
        shifted = self.shifted(np.asarray(checks.matrix(probabilities, "probabilities"), np.float64))
        return most_likely(shifted) if self.costs is None else bayes_decision(shifted, self.costs)

    def shifted(self, probabilities: Floats) -> Floats:
        """Distributions (n, K) with the offsets, on which a metric of the same costs, or of none, decides as this does."""
        return np.exp(log_softmax(self.slope * _logs(probabilities) + self.offsets))

    @property
    def thresholds(self) -> Floats:
        """With two classes, the probability of each above which it is decided: (2,)."""
        return np.asarray(1 / (1 + np.exp(self.offsets - self.offsets[::-1])))


def read_decision(stored: Any, classes: Any) -> Decision:
    """A decision as JSON keeps it, or for K classes that of the most likely one; ValueError where it is none."""
    if type(classes) is not int or not 1 <= classes <= MOST_CLASSES:
        raise ValueError(f"{classes!r} classes")
    if stored is None:
        return Decision(np.zeros(classes))
    if not isinstance(stored, dict) or not {"offsets", "costs"} <= {*stored}:
        raise ValueError(f"a decision that is {type(stored).__name__} without offsets and costs")
    costs, slope = stored["costs"], float(_finite(stored.get("slope", 1.0), ()))
    if slope < 0:
        raise ValueError(f"a slope of {slope}")
    matrix = None if costs is None else _finite(costs, (classes, classes))
    return Decision(_finite(stored["offsets"], (classes,)), matrix, slope)


def _finite(given: Any, shape: tuple[int, ...]) -> Floats:
    """Finite numbers of this shape, from lists of them."""
    try:
        values = np.array(given)
    except OverflowError:
        values = np.array(None)
    if values.dtype.kind not in "iuf" or values.shape != shape or not np.isfinite(values).all():
        raise ValueError(f"{str(given)[:100]} in place of finite numbers {shape}")
    return values.astype(np.float64)


@dataclass(frozen=True, eq=False)
class DecisionChoice:
    """The decision to use, and what it gains over the most likely class."""

    decision: Decision  # offsets 0 where they do not gain
    out_of_fold: Floats  # (m, K) the gold rows, each shifted by offsets that were found without it
    gain: Interval  # of the fitted decision in the metric, out of fold: above 0 is better (recall at a precision: in recall)
    accepted: bool  # whether the fitted decision is used


def choose_decision(
    metric: Metric,
    probabilities: Floats,
    labels: NDArray[Any],
    folds: Ints,
    weights: Floats | None = None,
    groups: NDArray[Any] | None = None,
) -> DecisionChoice:
    """Fitted offsets where they gain out of fold, from probabilities (m, K), labels and folds (m,), else none.

    For recall at a precision they are used where any reach it on all of these rows, since it is they that bring it about.
    With costs, the decision of least expected cost, from recalibrated probabilities, unless it costs more out of fold.
    Labels may be distributions.
    """
    full = row_weights(weights, len(labels))
    plain = Decision(np.zeros(probabilities.shape[1]))
    if metric.costs is not None:
        return _by_costs(metric, probabilities, labels, folds, weights, groups)
    if metric.of_counts is None:
        _refuse_trivial(metric)
        return DecisionChoice(plain, probabilities, Interval(0.0, 0.0, 0.0), False)

    def fit_and_shift(train: Ints, test: Ints) -> Floats:
        return fit_decision(metric, probabilities[train], labels[train], full[train]).shifted(probabilities[test])

    shifted = out_of_fold(fit_and_shift, folds)
    constrained = metric.name.startswith("recall@")
    judge = PLAIN["accuracy"].of_class(metric.one) if constrained and metric.one is not None else metric
    gain = difference(judge, shifted, probabilities, labels, weights, groups)
    fitted = fit_decision(metric, probabilities, labels, full)
    if constrained:
        accepted = _value(fitted(probabilities), distributions(labels, probabilities.shape[1]), full, metric.of_counts) > 0
    else:
        accepted = gain.value > LEAST_ERRORS * (gain.high - gain.value) / Z
    return DecisionChoice(fitted if accepted else plain, shifted, gain, accepted)


def _by_costs(
    metric: Metric,
    probabilities: Floats,
    labels: NDArray[Any],
    folds: Ints,
    weights: Floats | None,
    groups: NDArray[Any] | None,
) -> DecisionChoice:
    assert metric.costs is not None
    costs, classes = metric.costs, probabilities.shape[1]

    def fit(rows: Ints | slice) -> Decision:
        return recalibrated(costs, probabilities[rows], labels[rows], None if weights is None else weights[rows])

    shifted = out_of_fold(lambda train, test: fit(train).shifted(probabilities[test]), folds)
    likely = distributions(most_likely(probabilities), classes)
    saved = difference(metric, likely, shifted, labels, weights, groups)
    accepted = not saved.value < 0
    return DecisionChoice(fit(slice(None)) if accepted else Decision(np.zeros(classes)), shifted, saved, accepted)


def recalibrated(costs: Floats, probabilities: Floats, truth: NDArray[Any], weights: Floats | None = None) -> Decision:
    """The decision of least expected cost, by probabilities (n, K) that slope and offsets make true on these rows.

    The truth is labels (n,) or distributions (n, K), smoothed as Platt does (1999), so that few rows make nothing
    certain. The slope has no prior: a student of few epochs can be ten times less sure than is true. Probabilities that rank
    classes the wrong way round say nothing: all rows are then decided alike, by the shares of the classes.
    """
    logs, (n, classes) = _logs(probabilities), probabilities.shape
    spread = max(float(logs.std(axis=1).mean()), ROUNDING)
    smooth = (n * distributions(truth, classes) + 1) / (n + classes)
    slopes, biases = fit_scaling(logs[None] / spread, smooth, weights, 0.0, OFFSET_PRECISION)
    slope = float(slopes[0]) / spread
    offsets = biases if slope > 0 else np.log(row_weights(weights, n) @ smooth)
    return Decision(offsets - offsets.max(), costs, max(slope, 0.0))


def fit_decision(metric: Metric, probabilities: Floats, truth: NDArray[Any], weights: Floats | None = None) -> Decision:
    """The offsets that maximise the metric on these rows: probabilities (n, K), labels (n,) or distributions (n, K).

    With the posterior as the truth of pool rows, many more rows than gold has decide. A metric that no offset changes
    (log loss, average precision, shares) or needs (a cost) gets offsets 0.
    """
    classes = probabilities.shape[1]
    offsets, numbers = np.zeros(classes), np.arange(classes)
    if metric.of_counts is None:
        _refuse_trivial(metric)
        return Decision(offsets, metric.costs)
    logs, dense, w = _logs(probabilities), distributions(truth, classes), row_weights(weights, len(probabilities))
    searched = (metric.one,) if metric.one is not None else tuple(range(1 if classes == 2 else 0, classes))
    best = -np.inf
    for _ in range(ROUNDS if len(searched) > 1 else 1):
        before = best
        for c in searched:
            offsets[c], best = _best_cut(logs + offsets * (numbers != c), c, offsets[c], dense, w, metric.of_counts)
        if best <= before + ROUNDING:
            break
    plain, fitted = Decision(np.zeros(classes)), Decision(offsets - offsets.max())
    values = [_value(each(probabilities), dense, w, metric.of_counts) for each in (plain, fitted)]
    return fitted if values[1] > values[0] + ROUNDING else plain  # rows between classes can fall to another than was meant


def _value(decided: Ints, truth: Floats, weights: Floats, of_counts: OfCounts) -> float:
    classes = truth.shape[1]
    right, rows = (
        np.bincount(decided, mass, classes).astype(np.float64)
        for mass in (weights * truth[np.arange(len(truth)), decided], weights)
    )
    return float(of_counts(right, rows, weights @ truth))


def _best_cut(
    scores: Floats, c: int, now: float, truth: Floats, weights: Floats, of_counts: OfCounts
) -> tuple[float, float]:
    """The best offset of class c, the scores (n, K) of the others being fixed, and its value; `now` where it is as good."""
    n, classes = scores.shape
    others = np.where(np.arange(classes) == c, -np.inf, scores)
    second = others.argmax(axis=1)
    leads = scores[:, c] - others.max(axis=1)  # decided c where lead + offset > 0
    order = np.argsort(-leads, kind="stable")
    leads, second, rows = leads[order], second[order], np.arange(n)
    right, decided = np.zeros((n + 1, classes)), np.zeros((n + 1, classes))  # changes as one more row is decided c
    mass, true = weights[order], truth[order] * weights[order, None]
    right[0], decided[0] = np.bincount(second, true[rows, second], classes), np.bincount(second, mass, classes)
    right[1 + rows, second], decided[1 + rows, second] = -true[rows, second], -mass
    right[1 + rows, c], decided[1 + rows, c] = true[:, c], mass
    right, decided = (np.maximum(np.cumsum(part, axis=0), 0.0) for part in (right, decided))
    values = of_counts(right, decided, true.sum(axis=0))
    ends = np.concatenate([[leads[0] + 2 * BEYOND], leads, [leads[-1] - 2 * BEYOND]])
    values = np.where(ends[:-1] > ends[1:] + ROUNDING, values, -np.inf)  # rows with the same lead are decided together
    best = float(values.max())
    if values[np.searchsorted(-leads, now)] >= best - ROUNDING and np.abs(leads + now).min() > ROUNDING:
        return now, best
    cuts = -(ends[:-1] + ends[1:]) / 2
    good = np.flatnonzero(values >= best - ROUNDING)
    return float(cuts[good[np.argmin(np.abs(cuts[good] - now))]]), best


def _logs(probabilities: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(probabilities, PROBABILITY_FLOOR)))


def reachable(metric: Metric, probabilities: Floats, labels: NDArray[Any], weights: Floats | None = None) -> float:
    """The metric at its best threshold on these rows, probabilities (m, K), labels (m,), weights (m,); it compares students.

    That is where the decision is one threshold: of two classes, or for a metric of one class. Elsewhere the most likely
    class is decided, or that of least expected cost.
    """
    threshold = metric.one is not None or probabilities.shape[1] == 2
    if metric.of_counts is None or metric.ranking or not threshold:
        return metric(probabilities, labels, weights)
    return metric(fit_decision(metric, probabilities, labels, weights).shifted(probabilities), labels, weights)


def check_choosable(metric: Metric) -> None:
    """Raise where neither a decision nor an epoch can be chosen by the metric."""
    if metric.name.startswith("share:"):
        expected = "a metric of what is predicted, such as f1:CLASS"
        raise bad_value("the same for all students", f"metric {metric.name}", metric.name, expected, "name such a metric")
    _refuse_trivial(metric)


def _refuse_trivial(metric: Metric) -> None:
    """Recall alone is best when every row is decided to be of the class, precision alone when hardly any is."""
    if metric.name.partition(":")[0] in ("recall", "precision"):
        expected = "a metric that weighs one error against the other, such as f1:CLASS or recall@precision=0.9:CLASS"
        remedy = "name one of these for the choice of decisions"
        raise bad_value("no best decision", f"metric {metric.name}", metric.name, expected, remedy)
