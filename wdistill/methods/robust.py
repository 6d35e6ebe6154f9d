"""Methods that change the loss: the teacher's own targets, with a loss that is robust to wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.context import Context, Supervision, one_hot, supervise
from wdistill.weights.confidence import Floats, margin

LEAST_RIGHT = 0.5  # accuracy of the teacher at any margin, in student-label mixing


def generalised(context: Context) -> Supervision:
    """Generalised cross-entropy."""
    return supervise(context.unlabeled["teacher"], context, loss=Generalised())


def taylor(context: Context) -> Supervision:
    """Taylor cross-entropy."""
    return supervise(context.unlabeled["teacher"], context, loss=Taylor())


def forward(context: Context) -> Supervision:
    """Forward correction; how often the teacher predicts j where the truth is i is counted on gold, after adding one correct
    prediction per class."""
    predicted, classes = context.validation["teacher"].argmax(axis=1), context.validation["teacher"].shape[1]
    counts = np.eye(classes) + one_hot(context.labels, classes).T @ one_hot(predicted, classes)
    return supervise(context.unlabeled["teacher"], context, loss=Forward(counts / counts.sum(axis=1, keepdims=True)))


def mixed(context: Context) -> Supervision:
    """SLaM: the teacher's accuracy is an isotonic function of its margin, fitted on gold; k is the smallest number of top
    classes that contain the truth of 95 % of the gold rows, at least 2.

    The accuracy is at least LEAST_RIGHT: below a half, the loss would reward the opposite of the teacher's prediction.
    """
    from sklearn.isotonic import IsotonicRegression

    gold, unlabeled = context.validation["teacher"], context.unlabeled["teacher"]
    fitted = IsotonicRegression(y_min=LEAST_RIGHT, y_max=1.0, out_of_bounds="clip").fit(margin(gold), ~context.wrong)
    rank = (gold > gold[np.arange(len(gold)), context.labels][:, None]).sum(axis=1)
    k = max(2, int(np.quantile(rank + 1, 0.95, method="higher")))
    return supervise(unlabeled, context, loss=Mixed(fitted.predict(margin(unlabeled)), _first(unlabeled, k)))


def tempered(context: Context) -> Supervision:
    """Temperature 2 in both softmaxes (Hinton et al., 2015)."""
    softened = np.sqrt(context.unlabeled["teacher"])
    return supervise(softened / softened.sum(axis=1, keepdims=True), context, loss=Tempered(2.0))


def two_sided(context: Context) -> Supervision:
    """Confident rows on which teacher and student agree are trained on; the others only with classes that they do not have.

    After UPS (Rizve et al., ICLR 2021), with its thresholds 0.7 and 0.05, and 0.05 and 0.005 of uncertainty; half the
    distance of the two predictions replaces its uncertainty from dropout, which a table of predictions does not have.
    """
    teacher, student = context.unlabeled["teacher"], context.unlabeled["student"]
    at = np.arange(len(teacher)), teacher.argmax(axis=1)
    unsure = np.abs(teacher - student) / 2
    positive = (teacher[at] >= 0.7) & (unsure[at] <= 0.05)
    return supervise(teacher, context, loss=TwoSided(positive, (teacher <= 0.05) & (unsure <= 0.005) & ~positive[:, None]))


def _first(distributions: Floats, k: int) -> Floats:
    """1 for the k largest classes of every row, else 0."""
    if k >= distributions.shape[1]:
        return np.ones_like(distributions)
    smallest = np.partition(distributions, -k, axis=1)[:, -k]
    return (distributions >= smallest[:, None]).astype(float)


TINY = 1e-8  # smallest argument of a logarithm


@dataclass(frozen=True)
class Generalised:
    """Σ_c target_c · (1 − p_c^q) / q: generalised cross-entropy (Zhang and Sabuncu, NeurIPS 2018), their q = 0.7."""

    exponent: float = 0.7

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        powers = (self.exponent * logits.log_softmax(-1)).exp()
        return (targets * (1 - powers)).sum(-1) / self.exponent


@dataclass(frozen=True)
class Taylor:
    """Σ_c target_c · Σ_{j ≤ order} (1 − p_c)^j / j: Taylor cross-entropy (Feng et al., IJCAI 2020), order 2."""

    order: int = 2

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        missing = 1 - logits.softmax(-1)
        return (targets * sum(missing**j / j for j in range(1, self.order + 1))).sum(-1)


@dataclass(frozen=True, eq=False)
class Forward:
    """−Σ_c target_c · log (p · transition)_c: forward correction (Patrini et al., CVPR 2017)."""

    transition: Floats  # (K, K): probability that the teacher predicts j where the truth is i

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        predicted = logits.softmax(-1) @ logits.new_tensor(self.transition)
        return -(targets * predicted.clamp_min(TINY).log()).sum(-1)


@dataclass(frozen=True, eq=False)
class Mixed:
    """−Σ_c target_c · log mix_c, mix = a·p + (1 − a)·(1 − p)·top: SLaM, student-label mixing (Kontonis et al., 2023).

    The student models a teacher that is right with probability a and otherwise wrong within its top k classes.
    Not divided by k − 1, as in that paper's experiments (its Remark B.1).
    """

    accuracy: Floats  # (n,) probability that the teacher is right
    top: Floats  # (n, K): 1 for the teacher's top k classes, else 0

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        p = logits.softmax(-1)
        right = logits.new_tensor(self.accuracy[rows.numpy(force=True)])[:, None]
        top = logits.new_tensor(self.top[rows.numpy(force=True)])
        mix = right * p + (1 - right) * (1 - p) * top
        return -(targets * mix.clamp_min(TINY).log()).sum(-1)


@dataclass(frozen=True)
class Tempered:
    """−Σ_c target_c · log softmax(logits / T)_c (Hinton et al., 2015), without the factor T²."""

    temperature: float

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        return -(targets * (logits / self.temperature).log_softmax(-1)).sum(-1)


@dataclass(frozen=True, eq=False)
class TwoSided:
    """The cross-entropy of confident rows, and −mean log(1 − p_c) over the classes excluded for the others (UPS)."""

    positive: NDArray[np.bool_]  # (n,) rows that are trained on
    excluded: NDArray[np.bool_]  # (n, K)

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        at = rows.numpy(force=True)
        positive, excluded = logits.new_tensor(self.positive[at]), logits.new_tensor(self.excluded[at])
        losses = -(targets * logits.log_softmax(-1)).sum(-1)
        missing = -(excluded * (1 - logits.softmax(-1)).clamp_min(TINY).log()).sum(-1) / excluded.sum(-1).clamp_min(1)
        return positive * losses + missing
