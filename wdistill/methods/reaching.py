"""What of better targets reaches the student: less of every further point.

    gain of the student = slope · x / (1 + bend · x),   x ≥ 0 the gain in target accuracy, both in points

A small student cannot follow a large correction, and a part of it the gold rows have taught as labels already.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
        """Its standard error that an error of the targets' gain leaves."""
        return self.slope * error / (1 + self.bend * max(targets, 0.0)) ** 2

    def whole_error(self, error: float) -> float:
        """With that of single students, from an error of the student's gain."""
        return float(np.hypot(error, self.residual))


# `python -m experiments.leaderboard` calibrates it on the tuning half of the tasks, and prints these three.
REACH = Reach(slope=0.7, bend=0.0, residual=0.5)
