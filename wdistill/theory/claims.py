"""What an experiment on a claim of the paper comes to: what was claimed, predicted and measured, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
