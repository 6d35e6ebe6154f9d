"""The user's metric on the gold rows: of the teacher, and of corrected targets out of fold."""

from __future__ import annotations

from dataclasses import dataclass

from wdistill.methods.context import Context
from wdistill.methods.interval import difference, estimate, estimate_by_class
from wdistill.methods.metric import Metric
from wdistill.methods.pilots import PilotPredictions, forecast
from wdistill.methods.statistics import Interval
from wdistill.methods.targets import FittedTargets


@dataclass(frozen=True)
class JudgedTargets:
    """Teacher, corrected targets and pilot students by a metric."""

    metric: str
    loss: bool  # whether less of it is better
    teacher: Interval
    corrected: Interval
    gain: Interval  # of the corrected targets over the teacher; more is better
    forecast: Interval | None  # the same of pilot students; see methods/pilots.py for what its interval has
    by_class: tuple[tuple[Interval, Interval], ...]  # teacher and corrected targets, for every class


def gain_on_gold(metric: Metric, context: Context, targets: FittedTargets) -> Interval:
    """What targets gain over the teacher by a metric, out of fold on the gold rows; more is better."""
    drawn = (context.gold_weights, context.gold_groups)
    found = difference(metric, targets.out_of_fold, context.validation["teacher"], context.labels, *drawn)
    return found if metric.higher else Interval(-found.value, -found.high, -found.low)


def judge(metric: Metric, context: Context, targets: FittedTargets, pilots: PilotPredictions | None) -> JudgedTargets:
    """All of it, from the gold rows and from what pilot students predict."""
    teacher, corrected, labels = context.validation["teacher"], targets.out_of_fold, context.labels
    drawn = (context.gold_weights, context.gold_groups)
    classes = [estimate_by_class(metric, each, labels, *drawn) for each in (teacher, corrected)]
    return JudgedTargets(
        metric.name,
        not metric.higher,
        estimate(metric, teacher, labels, *drawn),
        estimate(metric, corrected, labels, *drawn),
        gain_on_gold(metric, context, targets),
        None if pilots is None else forecast(pilots, metric),
        tuple(zip(*classes, strict=True)),
    )
