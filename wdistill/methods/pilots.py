"""Pilot students: a forecast of what a student gains by corrected targets, measured instead of computed.

Two students are trained on the gold rows and three quarters of the unlabeled rows (those of a run on the labeled rows too,
linear ones never): one on the teacher's targets, one on the corrected ones. On the last quarter the corrected targets judge
both, which are what `best` would teach, an average unless another is named: as if the truth were distributed as they say,
the metric of the one minus that of the other is the forecast.

How far single students are from it was measured in the confirmation, for accuracy and macro-F1, and afterwards: with what
had been frozen before (0.7 points to both sides) two thirds of its trials were inside the "95 %" interval, and forecasts
were too low in the mean. `python -m experiments.confirmation` prints how much, and how many are inside where the data set is
left out.
All pilots there were copies of the student. Linear ones, which tables and answers have, and students of texts as bags of
n-grams have the same width, which was not set for them; linear ones were tried on some of those trials
(`python -m experiments.confirmation.linear`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from wdistill.methods.crossfit import Ints
from wdistill.methods.interval import difference
from wdistill.methods.metric import PLAIN, Metric
from wdistill.methods.statistics import Interval, Z
from wdistill.methods.targets import Targets
from wdistill.weights.confidence import Floats

TAUGHT = 0.75  # share of the unlabeled rows that pilots are trained on


@dataclass(frozen=True)
class Unforeseen:
    """How far single students are from what was said of them, as standard deviations to either side."""

    below: float  # of students that gain less
    above: float  # of students that gain more


UNFORESEEN = {  # by metric, of pilots; of other metrics nobody knows
    "accuracy": Unforeseen(0.009, 0.028),
    "macro-f1": Unforeseen(0.019, 0.050),
}
UNFORESEEN_AFTER = {  # the same of final students that are judged on the unlabeled rows, which they were trained on
    "accuracy": Unforeseen(0.011, 0.028),
    "macro-f1": Unforeseen(0.023, 0.038),
}


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


def forecast(
    pilots: PilotPredictions,
    metric: Metric = PLAIN["accuracy"],
    unforeseen: Mapping[str, Unforeseen] = UNFORESEEN,
) -> Interval:
    """The gain of a student that is taught the corrected targets over one that is taught the teacher's; more is better.

    The interval has what the judged rows leave open, and how far single students are from such forecasts. That is known of
    the metrics of `unforeseen` alone: for others it has only the former, and is no interval for a student.
    """
    measured = difference(metric, pilots.corrected, pilots.plain, pilots.targets)
    half, further = (measured.high - measured.low) / 2, unforeseen.get(metric.name, Unforeseen(0.0, 0.0))
    below, above = (float(np.hypot(half, Z * deviation)) for deviation in (further.below, further.above))
    value = measured.value if metric.higher else -measured.value
    return Interval(value, value - below, value + above)
