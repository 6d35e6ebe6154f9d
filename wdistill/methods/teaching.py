"""A method as an arm of a run: its name, and the second opinions that it asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wdistill.confidence import Floats
from wdistill.errors import ConfigError
from wdistill.evidence import Evidence
from wdistill.methods import choosing
from wdistill.methods.lessons import Case, Method, taught
from wdistill.methods.losses import CrossEntropy

OPINIONS = ("second", "forest", "retrained")  # a student of the same kind, a random forest, and the teacher, all with gold


@dataclass(frozen=True)
class Teaching:
    """An arm that is taught by a method. A run trains the opinions it asks for, as far as they can be had."""

    name: str
    method: Method
    opinions: tuple[str, ...] = ()  # of OPINIONS

    def __call__(self, evidence: Evidence) -> Floats:
        """Its weights (n,), of a method that does nothing but weigh."""
        case = Case(evidence)
        lesson = self.method(case)
        plain = isinstance(lesson.loss, CrossEntropy) and lesson.refresh is None and not lesson.gold
        if not plain or not np.array_equal(lesson.targets, taught(case.unlabeled["teacher"], case).targets):
            raise ConfigError(
                "weights are not all that this method teaches",
                where=f"{self.name}(evidence)",
                found="other targets, another loss, refreshed weights, or gold rows as labels",
                expected="a method that weighs the teacher's own targets",
                remedy=f"train with it, distill(…, rule={self.name}), or write tables, wdistill weigh --method best",
            )
        return lesson.weights

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.opinions)})"


best = Teaching("best", choosing.best, OPINIONS)
