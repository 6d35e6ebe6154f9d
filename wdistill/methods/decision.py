"""The decision, a class from probabilities, that maximises a metric: an offset for every class.

Offsets are added to log-probabilities; with two classes that is a threshold. They are found by exact search over all cuts
of one class after the other, and are used where they gain out of fold. A cost matrix needs no search: the decision of least
expected cost follows from the probabilities (`metric.bayes_decision`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_value
from wdistill.methods.crossfit import Ints, log_softmax, out_of_fold
from wdistill.methods.interval import difference
from wdistill.methods.metric import (
    Measure,
    Metric,
    accuracy,
    distributions,
    f1_scores,
    precise,
    recalls,
    recalls_at_precision,
    row_weights,
)
from wdistill.methods.statistics import Interval, Z
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import PROBABILITY_FLOOR

ROUNDS = 3  # over all classes, at most
LEAST_ERRORS = 0.5  # standard errors by which the metric must improve out of fold
STEP = 1.0  # of the offset beyond the last row, in log-probability


@dataclass(frozen=True, eq=False)
class Decision:
    """Decide the class with the largest log-probability plus offset."""

    offsets: Floats  # (K,) the largest is 0

    def __call__(self, probabilities: Floats) -> Ints:
        """Classes (n,) from probabilities (n, K)."""
        return np.asarray(self._scores(probabilities).argmax(axis=1), np.int64)

    def shifted(self, probabilities: Floats) -> Floats:
        """Distributions (n, K) whose most likely class is the decision, for metrics."""
        return np.exp(log_softmax(self._scores(probabilities)))

    def threshold(self, number: int) -> float:
        """With two classes, the probability of this one above which it is decided."""
        other = 1 - number
        return float(1 / (1 + np.exp(self.offsets[number] - self.offsets[other])))

    def _scores(self, probabilities: Floats) -> Floats:
        return _logs(probabilities) + self.offsets


@dataclass(frozen=True, eq=False)
class DecisionChoice:
    """The decision to use, and what it gains over the most likely class."""

    decision: Decision  # offsets 0 where they do not gain
    out_of_fold: Ints  # (m,) decisions of the gold rows by offsets that were found without them
    gain: Interval  # of the fitted offsets in the metric, out of fold; above 0 is better
    accepted: bool  # whether the fitted offsets are used


def choose_decision(
    metric: Metric,
    probabilities: Floats,
    labels: NDArray[Any],
    folds: Ints,
    weights: Floats | None = None,
    groups: NDArray[Any] | None = None,
) -> DecisionChoice:
    """Fitted offsets where they gain out of fold, from probabilities (m, K), labels and folds (m,), else none."""
    full, classes = row_weights(weights, len(labels)), probabilities.shape[1]

    def fit_and_decide(train: Ints, test: Ints) -> Floats:
        return fit_decision(metric, probabilities[train], labels[train], full[train]).shifted(probabilities[test])

    shifted = out_of_fold(fit_and_decide, folds)
    gain = difference(metric, shifted, probabilities, labels, weights, groups) if _decided(metric) else Interval(0.0, 0.0, 0.0)
    accepted = gain.value > LEAST_ERRORS * (gain.high - gain.value) / Z
    fitted = fit_decision(metric, probabilities, labels, full) if accepted else Decision(np.zeros(classes))
    return DecisionChoice(fitted, np.asarray(shifted.argmax(axis=1), np.int64), gain, bool(accepted))


def fit_decision(
    metric: Metric, probabilities: Floats, truth: NDArray[Any], weights: Floats | None = None
) -> Decision:
    """The offsets that maximise the metric on these rows; probabilities (n, K), labels (n,) or distributions (n, K).

    On pool rows with the posterior as truth, far more rows decide than gold has. A metric that does not depend on decisions
    gets offsets 0; one that is best when a class is always, or hardly ever, decided is an error.
    """
    logs, dense, w = _logs(probabilities), distributions(truth, probabilities.shape[1]), row_weights(weights, len(truth))
    measure, least, classes = _plain(metric.overall)
    offsets = np.zeros(probabilities.shape[1])
    if not _decided(metric) and measure is not recalls_at_precision:
        return Decision(offsets)
    if measure not in (accuracy, recalls, f1_scores, recalls_at_precision) or (measure is recalls and len(classes) == 1):
        expected = "a metric that weighs one error against the other, such as f1:CLASS or recall@precision=0.9:CLASS"
        remedy = "name one of these for the choice of the decision"
        raise bad_value("no best decision", f"metric {metric.name}", metric.name, expected, remedy)
    searched = classes if len(classes) == 1 else range(1 if len(offsets) == 2 else 0, len(offsets))
    best = -np.inf
    for _ in range(ROUNDS):
        before = best
        for c in searched:
            offsets[c], best = _cut(logs + offsets * (np.arange(len(offsets)) != c), c, dense, w, measure, least, classes)
        if not best > before + 1e-12 or len(searched) == 1:
            break
    return Decision(offsets - offsets.max())
