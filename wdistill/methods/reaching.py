"""What of better targets reaches the student: less of every further point.

    gain of the student = slope · x / (1 + bend · x),   x ≥ 0 the gain in target accuracy, both in points

A small student cannot follow a large correction, and a part of it the gold rows have taught as labels already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wdistill.methods.intervals import Interval, Z
from wdistill.rules import Targets


@dataclass(frozen=True)
class Reach:
    """How gains in target accuracy become gains of students."""

    slope: float  # of a first small gain, and of a loss
    bend: float  # 0: a straight line
    residual: float  # standard deviation of single students in points, which no number of gold rows takes away

    def __call__(self, targets: float) -> float:
        """The student's gain, from that of its targets; both in points."""
        return self.slope * targets / (1 + self.bend * max(targets, 0.0))

    def error(self, targets: float, error: float) -> float:
        """Its standard error, from that of the targets' gain: half of what lies between one error less and one more."""
        return (self(targets + error) - self(targets - error)) / 2

    def known(self, targets: float, error: float) -> Interval:
        """What the error of the targets' gain leaves open: both ends on the curve, which moves neither across 0."""
        return Interval(self(targets), self(targets - Z * error), self(targets + Z * error))

    def predicted(self, targets: float, error: float) -> Interval:
        """The same for a single student."""
        known, own = self.known(targets, error), Z * self.residual
        below, above = (float(np.hypot(known.value - end, own)) for end in (known.low, known.high))
        return Interval(known.value, known.value - below, known.value + above)


# Of the leaderboard's tuning half: `python -m experiments.leaderboard` prints what its trials say of the three.
REACH: Mapping[Targets, Reach] = {  # by what the student is asked to match
    "soft": Reach(slope=0.418, bend=0.024, residual=0.675),
    "hard": Reach(slope=0.431, bend=0.026, residual=0.581),
}
