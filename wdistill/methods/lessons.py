"""Case and Lesson: what is known before the second stage, and what a method makes of it.

A method is a function Case → Lesson: the weights, the targets, whether the gold rows are taught as labels, and the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats
from wdistill.evidence import Evidence
from wdistill.methods.folds import Ints, folds_of
from wdistill.methods.losses import CrossEntropy
from wdistill.rules import Targets
from wdistill.weighting import probabilities

Weigh = Callable[[Evidence], Floats]  # a rule, or any function like one
Loss = Callable[[Any, Any, Any], Any]  # logits (…, b, K), targets (…, b, K), unlabeled rows (b,) → (…, b)


@dataclass(frozen=True, eq=False)
class Opinion:
    """What a model that has learned from gold rows says: of every gold row, as if it had never seen that one."""

    validation: Floats  # (m, K) probabilities, out of fold
    unlabeled: Floats  # (n, K) probabilities


@dataclass(frozen=True, eq=False)
class Case:
    """All that is known before the second stage."""

    evidence: Evidence  # predictions of teacher and student, and the gold labels
    opinions: Mapping[str, Opinion] = field(default_factory=dict)  # of models that learned from gold too, by name
    targets: Targets = "soft"  # what the student is asked to match: distributions, or their argmax
    seed: int = 0
    same: Ints | None = None  # (m,) of every gold row the first that is the same, where gold rows are repeated

    @property
    def labels(self) -> NDArray[Any]:
        """The truth of the gold rows (m,)."""
        return self.evidence.validation_labels

    @cached_property
    def folds(self) -> Ints:
        return folds_of(self.labels, seed=self.seed, same=self.same)

    @cached_property
    def validation(self) -> dict[str, Floats]:
        """Probabilities (m, K) of the gold rows, by expert; none has seen the row it speaks of."""
        own = {"teacher": self.evidence.validation_teacher, "student": self.evidence.validation_student}
        return self._read(own, {name: each.validation for name, each in self.opinions.items()})

    @cached_property
    def unlabeled(self) -> dict[str, Floats]:
        """Probabilities (n, K) of the unlabeled rows, by expert."""
        assert self.evidence.teacher is not None and self.evidence.student is not None
        own = {"teacher": self.evidence.teacher, "student": self.evidence.student}
        return self._read(own, {name: each.unlabeled for name, each in self.opinions.items()})

    def _read(self, own: Mapping[str, NDArray[Any]], others: Mapping[str, Floats]) -> dict[str, Floats]:
        """All as float64 that sum to 1 as float64 does: float32 predictions promise less."""
        kind, renormalize = self.evidence.kind, self.evidence.renormalize
        read = {name: probabilities(each, kind, renormalize) for name, each in own.items()} | dict(others)
        return {name: each / each.sum(axis=1, keepdims=True, dtype=np.float64) for name, each in read.items()}

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Where the teacher is wrong on gold (m,)."""
        return np.asarray(self.validation["teacher"].argmax(axis=1) != self.labels)


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the student is taught about the unlabeled rows, and whether it is taught the gold rows too."""

    targets: Floats  # (n, K) distributions
    weights: Floats  # (n,)
    gold: bool = False  # the gold rows are trained on, with their true labels and weight 1
    loss: Loss = field(default_factory=CrossEntropy)  # of the unlabeled rows; labeled and gold rows have the cross-entropy
    refresh: Weigh | None = None  # weights are estimated anew by it after every epoch
    why: str = ""  # of a method that chooses: what it saw

    @property
    def with_gold(self) -> Lesson:
        """The same, and the gold rows as labels."""
        return replace(self, gold=True)


Method = Callable[[Case], Lesson]


def taught(distributions: Floats, case: Case, weights: Floats | None = None, loss: Loss | None = None) -> Lesson:
    """A lesson with these distributions (n, K) as its targets, or with their argmax where the case asks for hard ones."""
    targets = distributions if case.targets == "soft" else one_hot(distributions.argmax(axis=1), distributions.shape[1])
    full = np.ones(len(distributions)) if weights is None else weights
    return Lesson(targets, full) if loss is None else Lesson(targets, full, loss=loss)


def one_hot(labels: NDArray[np.integer], classes: int) -> Floats:
    return np.asarray(np.eye(classes)[labels], np.float64)
