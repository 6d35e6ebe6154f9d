"""Estimates with their 95 % intervals: Wilson's for shares; and Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z = 1.96  # standard errors on either side


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def percent(self) -> str:
        """A share as text, such as 81.3 % (79.0–83.4)."""
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f}–{100 * self.high:.1f})"

    def within(self, bound: float) -> bool:
        """Whether the whole interval is within ± bound."""
        return -bound <= self.low and self.high <= bound


def share(count: int, rows: int) -> Interval:
    """count / rows, with Wilson's interval; without rows, NaN and [0, 1]."""
    return wilson(count / rows, rows) if rows else Interval(float("nan"), 0.0, 1.0)


def wilson(p: float, rows: float, z: float = Z) -> Interval:
    """Wilson's interval of a share p of so many rows, or of the effective number of weighted or grouped ones."""
    square = z**2
    middle = (p + square / (2 * rows)) / (1 + square / rows)
    half = z / (1 + square / rows) * float(np.sqrt(p * (1 - p) / rows + square / (4 * rows**2)))
    return Interval(p, max(0.0, middle - half), min(1.0, middle + half))


def holm(chances: Sequence[float]) -> list[float]:
    """The p of several tests, corrected for their number after Holm (1979)."""
    order, corrected, least = np.argsort(chances, kind="stable"), [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = least
    return corrected
