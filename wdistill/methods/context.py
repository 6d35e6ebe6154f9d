"""Context and Supervision: the input and the output of a method.

A method is a function Context → Supervision: targets and weights for the unlabeled rows, whether the gold rows are trained
on as labels, and the loss. A rule is the method that keeps the teacher's own targets and estimates their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_value
from wdistill.methods.crossfit import Ints, folds_of
from wdistill.methods.gold_design import GoldDesign
from wdistill.methods.metric import Metric
from wdistill.weights.confidence import Floats
from wdistill.weights.debiased import Targets
from wdistill.weights.equations import probabilities
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import Rule, as_rule

Weigh = Callable[[Evidence], Floats]  # a rule, or any function like one
Loss = Callable[[Any, Any, Any], Any]  # logits (…, b, K), targets (…, b, K), unlabeled rows (b,) → (…, b)


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_c target_c · log p_c."""

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        return -(targets * logits.log_softmax(-1)).sum(-1)


@dataclass(frozen=True, eq=False)
class AuxiliaryPredictions:
    """Predictions of a model that was also trained on gold rows; those of the gold rows are out of fold."""

    validation: Floats  # (m, K) probabilities, out of fold
    unlabeled: Floats  # (n, K) probabilities


@dataclass(frozen=True, eq=False)
class Context:
    """All that is available before the student's second training: predictions, gold labels, auxiliary models."""

    evidence: Evidence  # predictions of teacher and student, and the gold labels
    auxiliary: Mapping[str, AuxiliaryPredictions] = field(default_factory=dict)  # of models also trained on gold, by name
    targets: Targets = "soft"  # the student's targets: distributions, or their argmax
    seed: int = 0
    same: Ints | None = None  # (m,) the first equal gold row of every gold row, where gold rows are repeated
    targets_from: str = "average"  # what `best` teaches: see methods/targets.py
    gold_alone: bool = False  # there are no labeled rows: the student was trained on gold rows alone
    gold_weights: Floats | None = None  # (m,) 1 / the probability of being drawn, of gold rows that were drawn unevenly
    gold_groups: NDArray[Any] | None = None  # (m,) of gold rows that belong together: documents, users, queries
    metric: Metric | None = None  # the user's: `best` says its gain by it too, and teaches the same

    @property
    def labels(self) -> NDArray[Any]:
        """The truth of the gold rows (m,)."""
        return self.evidence.validation_labels

    @cached_property
    def folds(self) -> Ints:
        """The fold of every gold row (m,)."""
        return folds_of(self.labels, seed=self.seed, same=self.same, groups=self.gold_groups)

    @property
    def design(self) -> GoldDesign:
        """How the gold rows were drawn."""
        return GoldDesign(self.gold_weights, self.gold_groups)

    @cached_property
    def validation(self) -> dict[str, Floats]:
        """Probabilities (m, K) of the gold rows, by expert; no expert was trained on the row it predicts."""
        models = {"teacher": self.evidence.validation_teacher, "student": self.evidence.validation_student}
        return self._normalized(models, {name: model.validation for name, model in self.auxiliary.items()})

    @cached_property
    def unlabeled(self) -> dict[str, Floats]:
        """Probabilities (n, K) of the unlabeled rows, by expert."""
        teacher, student = self.evidence.on_unlabeled
        models = {"teacher": teacher, "student": student}
        return self._normalized(models, {name: model.unlabeled for name, model in self.auxiliary.items()})

    def _normalized(self, models: Mapping[str, NDArray[Any] | None], auxiliary: Mapping[str, Floats]) -> dict[str, Floats]:
        """All as float64 that sum to 1 up to its rounding: float32 predictions do not."""
        kind, renormalize = self.evidence.kind, self.evidence.renormalize
        given = {name: values for name, values in models.items() if values is not None}
        read = {name: probabilities(values, kind, renormalize) for name, values in given.items()} | dict(auxiliary)
        return {name: values / values.sum(axis=1, keepdims=True, dtype=np.float64) for name, values in read.items()}

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Where the teacher is wrong on gold (m,)."""
        return np.asarray(self.validation["teacher"].argmax(axis=1) != self.labels)


@dataclass(frozen=True, eq=False)
class Supervision:
    """What the student is trained on: targets and weights of the unlabeled rows, and whether gold rows are labels too."""

    targets: Floats  # (n, K) distributions
    weights: Floats  # (n,)
    gold: bool = False  # the gold rows are trained on, with their true labels and weight 1
    loss: Loss = field(default_factory=CrossEntropy)  # of the unlabeled rows; labeled and gold rows have the cross-entropy
    refresh: Weigh | None = None  # re-estimates the weights after every epoch
    why: str = ""  # of a method that chooses: the reason

    @property
    def with_gold(self) -> Supervision:
        """The same, and the gold rows as labels."""
        return replace(self, gold=True)


Method = Callable[[Context], Supervision]


def supervise(
    distributions: Floats, context: Context, weights: Floats | None = None, loss: Loss | None = None
) -> Supervision:
    """These distributions (n, K) as targets, or their argmax where the context asks for hard ones."""
    targets = distributions if context.targets == "soft" else one_hot(distributions.argmax(axis=1), distributions.shape[1])
    full = np.ones(len(distributions)) if weights is None else weights
    return Supervision(targets, full) if loss is None else Supervision(targets, full, loss=loss)


def one_hot(labels: NDArray[np.integer], classes: int) -> Floats:
    return np.asarray(np.eye(classes)[labels], np.float64)


@dataclass(frozen=True)
class MethodArm:
    """A method as an arm of a run: its name, and the auxiliary models whose predictions it uses."""

    name: str
    method: Method
    auxiliary: tuple[str, ...] = ()  # names of AUXILIARY_MODELS; a run trains those that it can
    parts: ClassVar[tuple[Rule[...], ...]] = ()  # no rules
    needs: ClassVar[tuple[str, ...]] = ("teacher", "student")

    def defaulting(self, **options: Any) -> MethodArm:
        """A method has no options to fill in."""
        return self

    def __call__(self, evidence: Evidence) -> Floats:
        """Weights (n,) of a method that only weighs; any other method is an error."""
        context = Context(evidence)
        supervision = self.method(context)
        plain = isinstance(supervision.loss, CrossEntropy) and supervision.refresh is None and not supervision.gold
        if not plain or not np.array_equal(supervision.targets, supervise(context.unlabeled["teacher"], context).targets):
            found = "other targets, another loss, refreshed weights, or gold rows as labels"
            remedy = f"train with it, distill(…, rule={self.name}), or write tables, wdistill weigh --method best"
            expected, where = "a method that weighs the teacher's own targets", f"{self.name}(evidence)"
            raise bad_value("weights are not all that this method gives", where, found, expected, remedy)
        return supervision.weights

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.auxiliary)})"


def by_rule(rule: Weigh, refresh: bool = False) -> Method:
    """A rule as a method: the teacher's own targets with the rule's weights; with `refresh`, estimated after every epoch."""

    def method(context: Context) -> Supervision:
        weigh = as_rule(rule).defaulting(targets=context.targets, seed=context.seed)
        supervision = supervise(context.unlabeled["teacher"], context, weigh(context.evidence))
        return replace(supervision, refresh=weigh) if refresh else supervision

    return method


def as_rule_or_method(arm: Any) -> Rule[...] | MethodArm:
    """What an arm can be: a rule, a method, or any function from evidence to weights (n,), which becomes a rule."""
    return arm if isinstance(arm, MethodArm) else as_rule(arm)
