"""The ways to serve rows that a context allows, with the errors that are known of each, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wdistill.methods.context import Context
from wdistill.methods.costs import (
    Alternative,
    CostComparison,
    Prices,
    compare_costs,
    distilled,
    gold_alone,
    labeling_more,
    teacher_alone,
)
from wdistill.methods.gold_plan import PlanStep
from wdistill.methods.interval import estimate
from wdistill.methods.metric import PLAIN
from wdistill.methods.on_pool import PoolEstimates
from wdistill.methods.statistics import Interval


def compare_serving(prices: Prices, served: int, ways: Sequence[Alternative | None]) -> CostComparison:
    """The ways that there are; gold labels and answers of the pool are paid for already."""
    return compare_costs(prices, served, [way for way in ways if way is not None])


def by_teacher(pool: PoolEstimates) -> Alternative:
    """The teacher, as gold and pool know it."""
    return teacher_alone(wrong(pool.teacher.estimate), "gold and pool" if pool.teacher.tuning > 0 else "gold")


def by_labels(context: Context, models: Sequence[str]) -> Alternative | None:
    """The best, on gold and out of fold, of models that were trained on labels alone; None where there is none."""
    given = context.labels, context.gold_weights, context.gold_groups
    found = {name: estimate(PLAIN["accuracy"], context.validation[name], *given) for name in models}
    best = max(found, key=lambda name: found[name].value, default=None)
    return None if best is None else gold_alone(wrong(found[best]), f"{best}, on gold")


def by_student(pool: PoolEstimates, targets: Interval) -> Alternative:
    """A distilled student: as its pilot; without pilots as good as its targets, whose accuracy is given."""
    if pool.pilot is None:
        return distilled(wrong(targets), "its targets")
    return distilled(wrong(pool.pilot), "pilot student")


def after_labeling(now: Alternative, step: PlanStep | None, gain: float, forecast: float | None) -> Alternative | None:
    """The same after labeling more, at best by what targets are projected to gain, in points, and students to keep of it.

    `gain` of the targets and `forecast` of students are the present ones. The most errors stay what they are now.
    """
    if step is None:
        return None
    kept = 1.0 if forecast is None else float(np.clip(forecast / gain, 0.0, 1.0)) if gain > 0 else 0.0
    fewer, errors = kept * (step.gain - gain) / 100, now.errors
    projected = Interval(max(0.0, errors.value - fewer), max(0.0, errors.low - fewer), errors.high)
    return labeling_more(projected, step.more, "projected")


def wrong(right: Interval) -> Interval:
    """The share of rows that are wrong, from that of rows that are right."""
    return Interval(1 - right.value, 1 - right.high, 1 - right.low)
