"""Claims of the paper: what was predicted and measured, the verdict, and how both are written.

A verdict allows for how far chance may carry a measurement from what was predicted, and for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from wdistill.report.words import MINUS
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGMAS = 4.0  # standard errors that one mean may be off: by chance 6 times in 100,000
EXACT = 1e-9  # of what no chance enters: rounding, and the end of an optimisation


@dataclass(frozen=True)
class Check:
    """One prediction against one measurement."""

    claim: str  # in words, e.g. "E[R_S^w] = R"
    predicted: str  # as shown, e.g. "0.6931", "≤ 0.25", "slope ≤ −0.5 + 0.1"
    measured: float
    error: float | None  # standard error of the measurement; None where nothing is random
    holds: bool
    contrast: bool = False  # shown beside the claim, to see what it rests on; `holds` says whether it does what theory says


@dataclass(frozen=True)
class Finding:
    """One experiment."""

    name: str  # as on the command line
    title: str
    place: str  # in the paper, e.g. "Proposition 2.1, §2.2"
    checks: tuple[Check, ...]
    settings: dict[str, str]  # what was simulated
    notes: tuple[str, ...]  # where the paper's proof slips, and what holds
    draw: Callable[[], dict[str, Figure]]  # title of each figure → figure

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


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


def none_far(claim: str, sigmas: Floats) -> Check:
    """The farthest of many means, in standard errors, is no farther than chance carries the farthest of so many."""
    measured, limit = float(np.abs(sigmas).max()), farthest(sigmas.size)
    return Check(f"farthest {claim}, in standard errors", f"≤ {limit:.2f}", measured, None, measured <= limit)


def at_most(claim: str, limit: float, measured: float) -> Check:
    """Nothing random is in it."""
    return Check(claim, with_minus(f"≤ {limit:g}"), measured, None, measured <= limit)


def exact(claim: str, measured: float) -> Check:
    """Nothing random is in it, and it is 0 up to rounding."""
    return at_most(claim, EXACT, measured)


def slope(sizes: Sequence[float], values: Floats) -> tuple[float, float]:
    """Least squares of log mean on log size, and its standard error; sizes (s,), values (s, runs), runs independent."""
    x = np.log(np.asarray(sizes, np.float64))
    shares = (x - x.mean()) / np.square(x - x.mean()).sum()
    means = values.mean(axis=1, keepdims=True)
    _, error = mean_and_error(shares @ (values / means))  # what each run adds to the logs of the means
    return float(shares @ np.log(means[:, 0])), error


def falls(claim: str, rate: float, sizes: Sequence[float], values: Floats, contrast: bool = False) -> Check:
    """The slope on log–log axes of values (s, runs) is at most the rate, up to SIGMAS standard errors.

    Where these are more than half of the rate, the runs are too few to tell, and it does not hold.
    """
    measured, error = slope(sizes, values)
    tolerance = SIGMAS * error
    decided = tolerance <= abs(rate) / 2
    predicted = with_minus(f"slope ≤ {rate:g} + {tolerance:.2g}") + ("" if decided else ": undecided")
    return Check(claim, predicted, measured, error, decided and measured <= rate + tolerance, contrast)


def stays(claim: str, end: float, values: Floats) -> Check:
    """A contrast: the mean of values (runs,), on its way to `end`, stays above half of it."""
    measured, error = mean_and_error(values)
    holds = measured - SIGMAS * error > end / 2 > EXACT
    return Check(claim, f"> {end / 2:.4f}, half of its limit", measured, error, holds, contrast=True)


def with_minus(text: str) -> str:
    """Numbers as the page writes them."""
    return text.replace("-", MINUS)


def measured(check: Check) -> str:
    """With its standard error, to the second digit of that; 4 digits of what has none."""
    if check.error is None or not check.error > 0:
        return f"{check.measured:.4g}".replace("-", MINUS)
    places = min(12, max(0, 1 - math.floor(math.log10(check.error))))
    return f"{check.measured:.{places}f} ± {check.error:.{places}f}".replace("-", MINUS)


def verdict(check: Check) -> str:
    """A contrast is no claim: it does what theory says of it, or not."""
    if check.contrast:
        return "as expected" if check.holds else "not as expected"
    return "holds" if check.holds else "fails"


def summary(finding: Finding) -> str:
    """The verdict of a whole experiment, with what it rests on."""
    failed = sum(not check.holds for check in finding.checks)
    return "holds" if finding.holds else f"fails: {failed} of {len(finding.checks)} checks"
