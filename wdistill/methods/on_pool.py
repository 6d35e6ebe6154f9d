"""What gold rows and pool together tell of the pool: accuracies of teacher and student, and both class by class.

The truth of a row is imputed by the corrected targets: out of fold on gold, fitted on all gold rows for the pool. Intervals
are prediction-powered. Only predictors that are the same on gold and pool are judged so. A pilot student has learned the
gold rows, so the corrected targets alone judge it, on unlabeled rows that it has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from wdistill.methods.context import Context, one_hot
from wdistill.methods.groups import numbered
from wdistill.methods.interval import covariance, estimate, quantile
from wdistill.methods.metric import OF_A_CLASS, PLAIN, Metric, row_weights
from wdistill.methods.pilots import UNFORESEEN, PilotPredictions
from wdistill.methods.prediction_powered import JudgedGold, JudgedPool, PredictionPowered, prediction_powered
from wdistill.methods.statistics import Interval, Z
from wdistill.methods.targets import FittedTargets
from wdistill.weights.confidence import Floats

CLASSES = 10  # judged at most: those on which the predictor is right least often
ACCURACY = PLAIN["accuracy"]


@dataclass(frozen=True)
class ClassOnPool:
    """One class: its share of the rows, and how well teacher or student finds it."""

    number: int
    share: PredictionPowered
    recall: PredictionPowered
    f1: PredictionPowered


@dataclass(frozen=True)
class PoolEstimates:
    """What is known of the unlabeled rows, beside the same from gold alone."""

    accuracy: Mapping[str, PredictionPowered]  # of the teacher, and of the student where it has seen no gold row
    metric: str  # the user's, or ""
    by_metric: Mapping[str, PredictionPowered]  # the same experts by it; nothing for a metric of rankings
    classes: Mapping[str, tuple[ClassOnPool, ...]]  # of the same experts as `accuracy`, at most CLASSES each
    pilot: Interval | None  # accuracy of the pilot student of corrected targets, as these judge it

    @property
    def teacher(self) -> PredictionPowered:
        return self.accuracy["teacher"]


def judged_pool(context: Context, targets: FittedTargets, imputed: Floats, expert: str) -> tuple[JudgedGold, JudgedPool]:
    """An expert on gold and pool, the truth imputed by the targets: on the pool `imputed` (n, K)."""
    given = context.validation[expert], context.labels, targets.out_of_fold, context.gold_weights, context.gold_groups
    return JudgedGold(*given), JudgedPool(context.unlabeled[expert], imputed)


def estimate_pool(
    context: Context,
    targets: FittedTargets,
    imputed: Floats,
    metric: Metric | None = None,
    pilots: PilotPredictions | None = None,
) -> PoolEstimates:
    """All of it, with the targets (n, K) of the unlabeled rows as their imputed truth."""
    students = ["student"] if "student" in context.validation and not context.gold_alone else []
    judged = {name: judged_pool(context, targets, imputed, name) for name in ["teacher", *students]}
    return PoolEstimates(
        {name: prediction_powered(ACCURACY, *rows) for name, rows in judged.items()},
        "" if metric is None else metric.name,
        {} if metric is None or metric.ranking else {n: prediction_powered(metric, *rows) for n, rows in judged.items()},
        {n: tuple(_of_class(c, *rows) for c in _least_right(context, n)) for n, rows in judged.items()},
        None if pilots is None else pilot_accuracy(pilots, judging_error(context, targets)),
    )


def pilot_accuracy(pilots: PilotPredictions, error: float) -> Interval:
    """Of the pilot that was taught corrected targets, as these judge it on rows that it has not seen.

    The interval has what the judged rows leave open, the standard error with which gold knows the targets, and how far
    single students differ from their forecasts. That is known of gains alone: the larger of its sides stands for both here.
    """
    found, width = estimate(ACCURACY, pilots.corrected, pilots.targets), UNFORESEEN["accuracy"]
    further = Z * float(np.hypot(max(width.below, width.above), error))
    below, above = (float(np.hypot(found.value - end, further)) for end in (found.low, found.high))
    return Interval(found.value, max(0.0, found.value - below), min(1.0, found.value + above))


def judging_error(context: Context, targets: FittedTargets) -> float:
    """The standard error, from gold, of how often the targets are right less how often they say so."""
    rows, decided = np.arange(len(context.labels)), targets.out_of_fold.argmax(axis=1)
    beyond = (decided == context.labels) - targets.out_of_fold[rows, decided]
    weights = row_weights(context.gold_weights, len(rows))
    groups = None if context.gold_groups is None else numbered(context.gold_groups, len(rows))
    centred = beyond - np.average(beyond, weights=weights)
    return float(np.sqrt(covariance(centred[:, None], weights, groups)[0, 0])) * quantile(groups) / Z


def _least_right(context: Context, expert: str) -> list[int]:
    """Classes with gold rows, those with the lowest recall of an expert, in their order."""
    predictions = context.validation[expert]
    found = predictions.argmax(axis=1) == context.labels
    right = np.bincount(context.labels[found], minlength=predictions.shape[1])
    rows = np.bincount(context.labels, minlength=len(right))
    known = np.flatnonzero(rows)
    lowest = known[np.argsort(right[known] / rows[known], kind="stable")]
    return sorted(lowest[:CLASSES].tolist())


def _of_class(number: int, gold: JudgedGold, pool: JudgedPool) -> ClassOnPool:
    """One class against all others: two columns tell as much as all, however many classes there are."""

    def decided(predictions: Floats) -> Floats:
        return one_hot((predictions.argmax(axis=1) == number).astype(np.int64), 2)

    def against(imputed: Floats) -> Floats:
        return np.stack([1.0 - imputed[:, number], imputed[:, number]], axis=1)

    labels = (np.asarray(gold.labels) == number).astype(np.int64)
    own = replace(gold, predictions=decided(gold.predictions), labels=labels, imputed=against(gold.imputed))
    far = replace(pool, predictions=decided(pool.predictions), imputed=against(pool.imputed))

    def of(name: str) -> PredictionPowered:
        scale, measure = OF_A_CLASS[name]
        return prediction_powered(Metric(name, scale, measure, measure, one=1).of_class(1), own, far)

    return ClassOnPool(number, of("share"), of("recall"), of("f1"))
