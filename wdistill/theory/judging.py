"""Verdicts from standard errors: how far chance may carry a measurement from what was predicted."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from wdistill.theory.claims import Check
from wdistill.weighting import Floats

SIGMAS = 4.0  # standard errors that one mean may be off: by chance 6 times in 100,000


def farthest(count: int) -> float:
    """Standard errors that the farthest of `count` means may be off: as rare, all together, as SIGMAS for one."""
    chance = NormalDist().cdf(-SIGMAS)
    return -NormalDist().inv_cdf(chance / count)


def mean_and_error(values: Floats) -> tuple[float, float]:
    """Mean and standard error over independent samples, (samples,)."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def near(claim: str, predicted: float, values: Floats) -> Check:
    """The mean of values (samples,) is what was predicted, up to SIGMAS standard errors."""
    measured, error = mean_and_error(values)
    return Check(claim, f"{predicted:.4f}", measured, error, abs(measured - predicted) <= SIGMAS * error)


def away(claim: str, predicted: float, wrong: float, values: Floats) -> Check:
    """A contrast: the mean of values (samples,) is what was predicted, and more than SIGMAS standard errors from `wrong`."""
    measured, error = mean_and_error(values)
    holds = abs(measured - predicted) <= SIGMAS * error < abs(measured - wrong)
    return Check(claim, f"{predicted:.4f}, not {wrong:.4f}", measured, error, holds, contrast=True)
