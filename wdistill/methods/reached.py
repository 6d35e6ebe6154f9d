"""What a student reaches by a metric and beside it: intervals of the most likely classes, and of a decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.context import one_hot
from wdistill.methods.gold_design import GoldDesign
from wdistill.methods.interval import estimate
from wdistill.methods.metric import Metric, most_likely, parse_metric
from wdistill.methods.statistics import Interval
from wdistill.weights.confidence import Floats

CLASSES = 10  # that are reported, at most

Reached = tuple[str, Interval | None, Interval | None]  # name, of the most likely classes, of the decision


def companions(metric: Metric, classes: Sequence[str]) -> list[Metric]:
    """The metric, accuracy, and for a metric of one class its recall and precision."""
    of_class = [] if metric.one is None else [f"{name}:{classes[metric.one]}" for name in ("recall", "precision")]
    return [metric, *(parse_metric(name, classes) for name in ("accuracy", *of_class))]


def reached(
    metric: Metric, probabilities: Floats, labels: NDArray[Any], decided: NDArray[np.integer], design: GoldDesign
) -> Reached:
    """The metric of probabilities (n, K), with the most likely classes and with those decided (n,)."""
    drawn = (design.weights, design.groups)
    if metric.ranking or metric.name == "log-loss":
        return metric.name, known(estimate(metric, probabilities, labels, *drawn)), None
    choices = (one_hot(each, probabilities.shape[1]) for each in (most_likely(probabilities), decided))
    likely, chosen = (known(estimate(metric, each, labels, *drawn)) for each in choices)
    return metric.name, likely, chosen


def reached_by_class(
    metric: Metric,
    probabilities: Floats,
    labels: NDArray[Any],
    decided: NDArray[np.integer],
    design: GoldDesign,
    classes: Sequence[str],
) -> list[Reached]:
    """The same for the ten worst classes, and for that of the metric."""
    of_scores = metric.ranking or metric.name == "log-loss"
    values = metric.classes(probabilities if of_scores else one_hot(decided, len(classes)), labels, design.weights).values
    order = np.argsort(values if metric.higher else -values, kind="stable")
    worst = [int(c) for c in order if not np.isnan(values[c])][:CLASSES]
    shown = sorted({*worst, *([] if metric.one is None else [metric.one])})
    return [(classes[c], *reached(metric.of_class(c), probabilities, labels, decided, design)[1:]) for c in shown]


def known(interval: Interval) -> Interval | None:
    """The interval, or None where no row tells."""
    return interval if np.isfinite([interval.value, interval.low, interval.high]).all() else None
