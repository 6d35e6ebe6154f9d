"""Every claim of the paper that is an experiment, in the paper's order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from wdistill.theory.claims import Finding
from wdistill.theory.convergence import convergence
from wdistill.theory.debiasing import debiasing
from wdistill.theory.halfspaces import halfspaces
from wdistill.theory.multi_pass import multi_pass
from wdistill.theory.single_pass import single_pass
from wdistill.theory.smoothness import smoothness
from wdistill.theory.squares import squares


class Run(Protocol):
    def __call__(self, seed: int = ..., scale: float = ...) -> Finding: ...


@dataclass(frozen=True)
class Experiment:
    """One experiment, as it is called on the command line."""

    name: str
    run: Run
    seconds: float  # that it takes on one core, about
    least: float  # that it takes however small the scale, as verdicts need samples

    @property
    def about(self) -> str:
        """The first line of what it says of itself."""
        return (self.run.__doc__ or "").partition("\n")[0]

    def takes(self, scale: float) -> float:
        """Seconds, about."""
        return max(self.least, scale * self.seconds)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("debiasing", debiasing, 1.0, 0.3),
    Experiment("convergence", convergence, 2.0, 0.1),
    Experiment("squares", squares, 0.1, 0.05),
    Experiment("halfspaces", halfspaces, 6.0, 2.0),
    Experiment("single_pass", single_pass, 25.0, 12.0),
    Experiment("multi_pass", multi_pass, 50.0, 22.0),
    Experiment("smoothness", smoothness, 1.5, 0.3),
)
