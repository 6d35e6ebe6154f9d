"""The transfer curve, fitted on trials: how much of a gain in target accuracy reaches a student.

`wdistill advise` forecast with it until it failed on data sets that nobody here had used; pilot students took its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.leaderboard.tasks import data_of
from wdistill.methods.statistics import Interval, Z
from wdistill.weights.debiased import Targets

Line = dict[str, Any]
BASE = "unweighted+gold"  # what every gain is over: all rows of the teacher at weight 1, and the gold rows as labels
BENDS = np.linspace(0, 1, 1001)  # what the trials say is far from the largest


@dataclass(frozen=True)
class TransferCurve:
    """How gains in target accuracy become gains of students."""

    slope: float  # of a first small gain, and of a loss
    bend: float  # 0: a straight line
    residual: float  # standard deviation of single students in points, whatever the number of gold rows

    def __call__(self, targets: float) -> float:
        """The student's gain, from that of its targets; both in points."""
        return self.slope * targets / (1 + self.bend * max(targets, 0.0))

    def error(self, targets: float, error: float) -> float:
        """Its standard error, from that of the targets' gain: half the difference between one error more and one less."""
        return (self(targets + error) - self(targets - error)) / 2

    def known(self, targets: float, error: float) -> Interval:
        """The interval from the error of the targets' gain: both ends are mapped by the curve, which keeps their signs."""
        return Interval(self(targets), self(targets - Z * error), self(targets + Z * error))

    def predicted(self, targets: float, error: float) -> Interval:
        """The same for a single student."""
        interval, student_error = self.known(targets, error), Z * self.residual
        below, above = (float(np.hypot(interval.value - end, student_error)) for end in (interval.low, interval.high))
        return Interval(interval.value, interval.value - below, interval.value + above)


# Fitted on the tuning half: `python -m experiments.leaderboard` prints the estimates of its trials.
TRANSFER: Mapping[Targets, TransferCurve] = {  # by the student's targets
    "soft": TransferCurve(slope=0.418, bend=0.024, residual=0.675),
    "hard": TransferCurve(slope=0.431, bend=0.026, residual=0.581),
}


@dataclass(frozen=True)
class TargetGain:
    """One trial: the gain in target accuracy that the gold rows predict, and what the student gained; in points."""

    task: str
    gold: int
    predicted: float
    error: float  # its standard error
    observed: float


def target_gains(lines: Sequence[Line], targets: str) -> list[TargetGain]:
    """Of all trials with corrected targets: over the teacher's own, both with gold as labels, with all experts there are."""
    found = []
    for line in lines:
        accuracies, prospect = line["accuracies"].get(targets, {}), line["prospect"]
        name = next((each for each in ("corrected-retrained+gold", "corrected+gold") if each in accuracies), None)
        if name:
            numbers = 100 * prospect["gain"], 100 * prospect["gain_error"], accuracies[name] - accuracies[BASE]
            found.append(TargetGain(line["task"], line["gold"], *numbers))
    return found


def cross_fitted(known: Sequence[TargetGain]) -> Iterator[tuple[TargetGain, TransferCurve]]:
    """Every trial with the curve of all other data sets; nothing of fewer than three data sets."""
    sets = sorted({data_of(gain.task) for gain in known})
    for data in sets if len(sets) > 2 else ():
        curve = fit_transfer([gain for gain in known if data_of(gain.task) != data])
        yield from ((gain, curve) for gain in known if data_of(gain.task) == data)


def fit_transfer(known: Sequence[TargetGain]) -> TransferCurve:
    """The least squares over slope and bend, of which BENDS are tried; the straightest of equals. Better targets do no harm.

    The residual is the standard deviation around the curve without the part that gold rows leave open; 0 of two trials.
    """
    x, y = (np.array([getattr(gain, name) for gain in known]) for name in ("predicted", "observed"))
    bent = x / (1 + BENDS[:, None] * np.maximum(x, 0))  # (bends, n)
    size = (bent**2).sum(axis=1)
    slopes = np.maximum(0, np.divide(bent @ y, size, out=np.zeros(len(size)), where=size > 0))
    left = ((y - slopes[:, None] * bent) ** 2).sum(axis=1)
    best = int(np.flatnonzero(left <= left.min() + 1e-9 * (y @ y))[0])
    curve = TransferCurve(float(slopes[best]), float(BENDS[best]), 0.0)
    open_still = np.mean([curve.error(gain.predicted, gain.error) ** 2 for gain in known])
    spread = left[best] / (len(known) - 2) if len(known) > 2 else 0.0
    return replace(curve, residual=float(np.sqrt(max(spread - open_still, 0.0))))
