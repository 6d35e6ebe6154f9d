"""Pilot students: a forecast of what a student gains by corrected targets, measured instead of computed.

Two students are trained on the labeled rows, the gold rows and three quarters of the unlabeled rows: one on the teacher's
targets, one on the corrected ones. On the last quarter the corrected targets judge both: the forecast is the mean of the
probability that they give to the class of the one minus that of the class of the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.crossfit import Ints
from wdistill.methods.statistics import Interval, Z
from wdistill.weights.confidence import Floats

TAUGHT = 0.75  # share of the unlabeled rows that pilots are trained on
UNFORESEEN = 0.6  # points: how far single students are from their forecast, as a standard deviation, on the tuning tasks


def pilot_rows(n: int, seed: int = 0) -> tuple[Ints, Ints]:
    """Of n unlabeled rows those that pilots are trained on, and those that they are judged on, each in order."""
    order = np.random.default_rng(seed).permutation(n)
    taught = max(1, int(TAUGHT * n))
    return np.sort(order[:taught]), np.sort(order[taught:])


def judged_accuracy(targets: Floats, classes: NDArray[np.integer]) -> float:
    """The expected accuracy of these classes (n,), where the truth is distributed as the targets (n, K) say."""
    return float(targets[np.arange(len(classes)), classes].mean())


def forecast(targets: Floats, corrected: NDArray[np.integer], plain: NDArray[np.integer]) -> Interval:
    """The gain in points of a student taught the corrected targets over one taught the teacher's.

    From the targets (n, K) of rows that neither pilot was trained on, and the classes (n,) that the two predict.
    """
    rows = np.arange(len(targets))
    gains = 100 * (targets[rows, corrected] - targets[rows, plain])
    sampling = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else float("inf")
    points, error = float(gains.mean()), float(np.hypot(sampling, UNFORESEEN))
    return Interval(points, points - Z * error, points + Z * error)
