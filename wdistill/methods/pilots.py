"""Pilot students: a forecast of what a student gains by corrected targets, measured instead of computed.

Two students are trained on the labeled rows, the gold rows and three quarters of the unlabeled rows: one on the teacher's
targets, one on the corrected ones. On the last quarter the corrected targets judge both: as if the truth were distributed
as they say, the metric of the one minus that of the other is the forecast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wdistill.methods.crossfit import Ints
from wdistill.methods.interval import difference
from wdistill.methods.metric import PLAIN, Metric
from wdistill.methods.statistics import Interval, Z
from wdistill.methods.targets import Targets
from wdistill.weights.confidence import Floats

TAUGHT = 0.75  # share of the unlabeled rows that pilots are trained on
UNFORESEEN = 0.007  # how far single students are from their forecast, as a standard deviation, on the tuning tasks


@dataclass(frozen=True, eq=False)
class PilotPredictions:
    """What two pilots predict for rows that neither was trained on, and the targets that judge them."""

    targets: Floats  # (n, K) corrected
    plain: Floats  # (n, K) probabilities, of the pilot that was taught the teacher's targets
    corrected: Floats  # (n, K) of the one that was taught the corrected ones


Pilots = Callable[[Targets], PilotPredictions]  # trains two students, one of them on these targets


def pilot_rows(n: int, seed: int = 0) -> tuple[Ints, Ints]:
    """Of n unlabeled rows those that pilots are trained on, and those that they are judged on, each in order."""
    order = np.random.default_rng(seed).permutation(n)
    taught = max(1, int(TAUGHT * n))
    return np.sort(order[:taught]), np.sort(order[taught:])


def forecast(pilots: PilotPredictions, metric: Metric = PLAIN["accuracy"]) -> Interval:
    """The gain of a student that is taught the corrected targets over one that is taught the teacher's; more is better.

    The interval has what the judged rows leave open, and how far single students are from such forecasts.
    """
    measured = difference(metric, pilots.corrected, pilots.plain, pilots.targets)
    error = float(np.hypot((measured.high - measured.low) / 2, Z * UNFORESEEN))
    value = measured.value if metric.higher else -measured.value
    return Interval(value, value - error, value + error)
