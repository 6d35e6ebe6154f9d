"""A method as an arm of a run: its name, and the second opinions that it asks for."""

from __future__ import annotations

from dataclasses import dataclass

from wdistill.confidence import Floats
from wdistill.evidence import Evidence
from wdistill.methods import choosing
from wdistill.methods.lessons import Case, Method

OPINIONS = ("second", "forest", "retrained")  # a student of the same kind, a random forest, and the teacher, all with gold


@dataclass(frozen=True)
class Teaching:
    """An arm that is taught by a method. A run trains the opinions it asks for, as far as they can be had."""

    name: str
    method: Method
    opinions: tuple[str, ...] = ()  # of OPINIONS

    def __call__(self, evidence: Evidence) -> Floats:
        """Its weights (n,), where nobody is asked for a second opinion."""
        return self.method(Case(evidence)).weights

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.opinions)})"


best = Teaching("best", choosing.best, OPINIONS)
