"""Verdicts on descents: how fast an excess falls, where it stays, and what is 0 up to rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wdistill.pages.words import MINUS
from wdistill.theory.claims import Check
from wdistill.theory.judging import SIGMAS, mean_and_error
from wdistill.weighting import Floats

EXACT = 1e-9  # of what no chance enters: rounding, and the end of an optimisation


def slope(sizes: Sequence[int], values: Floats) -> tuple[float, float]:
    """Least squares of log mean on log size, and its standard error; sizes (s,), values of independent runs (s, runs)."""
    x = np.log(np.asarray(sizes, np.float64))
    shares = (x - x.mean()) / np.square(x - x.mean()).sum()
    means = values.mean(axis=1)
    errors = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]) / means  # of log mean
    return float(shares @ np.log(means)), float(np.sqrt(np.square(shares * errors).sum()))


def falls(claim: str, rate: float, sizes: Sequence[int], values: Floats, contrast: bool = False) -> Check:
    """The slope on log–log axes of values (s, runs) is at most the rate, up to SIGMAS standard errors."""
    measured, error = slope(sizes, values)
    predicted = f"slope ≤ {rate:g}".replace("-", MINUS)
    return Check(claim, predicted, measured, error, measured <= rate + SIGMAS * error, contrast)


def stays(claim: str, end: float, values: Floats) -> Check:
    """A contrast: the mean of values (runs,), on its way to `end`, stays above half of it."""
    measured, error = mean_and_error(values)
    holds = measured - SIGMAS * error > end / 2 > EXACT
    return Check(claim, f"> {end / 2:.4f}, half of its limit", measured, error, holds, contrast=True)


def exact(claim: str, measured: float) -> Check:
    """Nothing random is in it, and it is 0 up to rounding."""
    return Check(claim, f"≤ {EXACT:g}".replace("-", MINUS), measured, None, measured <= EXACT)
