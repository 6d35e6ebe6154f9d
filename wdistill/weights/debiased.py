"""Algorithm 2 of the paper: error and distortion from the nearest validation rows, then the debiasing weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, wrong_shape
from wdistill.core.threads import parallel
from wdistill.weights.confidence import Confidence, Floats, entropy, margin
from wdistill.weights.equations import (
    LOSS_CEILING,
    LOSS_FLOOR,
    cross_entropy,
    debiasing_weight,
    distortion,
    log_probabilities,
    neighbors_of,
    probabilities,
    truth_loss,
)
from wdistill.weights.evidence import Evidence, Rows, Scores, check_confidence
from wdistill.weights.neighbors import Neighbors, neighbors
from wdistill.weights.rule import Weighed, rule

Targets = Literal["soft", "hard"]
Estimate = Literal["paper", "conditional", "ratio"]
Losses = Callable[[Floats, Floats], Any]  # log-probabilities (m, K), distributions to match (m, K) → losses (m,)
BLOCK = 1 << 15  # predictions whose losses are computed at once: few enough to stay in the cache
LARGEST = 1e60  # of a loss, in a file
ROWS = 1 << 15  # rows whose weights are computed at once


@rule
def debiased(
    evidence: Evidence,
    *,
    confidence: Confidence | Scores = margin,
    targets: Targets = "soft",
    estimate: Estimate = "paper",
    neighbors: int | None = None,
    losses: Losses | None = None,
) -> Debiased:
    """The paper's rule, Algorithm 2: error and distortion from the nearest validation rows, then the debiasing weight.

    `confidence` is margin, entropy, any function from probabilities (n, K) to (n,), or Scores. `targets`: whether the
    student will be trained on the teacher's distributions or on their argmax. `estimate`: how the neighbours are averaged:
    "paper" as Algorithm 2 does, error and distortion apart; "conditional" the distortion over the wrong ones only;
    "ratio" mean loss on the truth over mean loss on the target. `neighbors=None` is k = ceil(√m / 2). `losses`: the loss
    that the student will be trained with, where it is not the cross-entropy, such as one weighted by costs: a function from
    its log-probabilities (m, K) and distributions to match (m, K), one-hot for labels, to a loss of every row (m,).
    """
    check_confidence(confidence)
    checks.one_of("targets", targets, ("soft", "hard"))
    checks.one_of("estimate", estimate, ("paper", "conditional", "ratio"))
    _check_losses(losses)
    labels = evidence.validation_labels
    k = _check_neighbors(neighbors, len(labels))
    validation = Rows(*evidence.both_on_validation, **evidence.reading, prefix="validation_")
    teacher, student = validation.scan("teacher", certainty=True), validation.scan("student")
    assert teacher.certainty is not None
    if isinstance(confidence, Scores):
        scored = Rows(confidence.validation_teacher, confidence.validation_student, prefix="validation_")
        checks.same_length({"validation_labels": len(labels), "scores": len(scored)})
    else:
        scored = validation
    wrong = teacher.argmax != labels
    # an estimate uses losses only where the teacher is wrong; the ratio, the loss on the truth everywhere
    needed = np.arange(len(labels)) if estimate == "ratio" else np.flatnonzero(wrong)
    on_truth, on_target = np.ones((2, len(labels)))

    def compute_losses(part: slice) -> None:
        rows = needed[part]
        log_student = log_probabilities(evidence.both_on_validation[1][rows], evidence.kind, evidence.renormalize)
        target: NDArray[Any] = teacher.argmax[rows]
        if targets == "soft":
            target = probabilities(evidence.validation_teacher[rows], evidence.kind, evidence.renormalize)
        on_truth[rows] = _losses_on(labels[rows], log_student, losses)
        on_target[rows] = _losses_on(target, log_student, losses)

    # a function of the user's is called here, once for all rows
    step = BLOCK // evidence.validation_teacher.shape[1] if losses is None else len(needed)
    parallel(compute_losses, len(needed), max(1, step))
    fitted = Debiased(
        confidence=confidence,
        targets=targets,
        estimate=estimate,
        k=k,
        classes=evidence.validation_teacher.shape[1],
        points=np.stack([scored.confidence("teacher", confidence), scored.confidence("student", confidence)], axis=1),
        wrong=wrong,
        truth_loss=on_truth,
        target_loss=on_target,
        margins=teacher.margin,
        certainty=teacher.certainty,
        rounding=_rounding(evidence, confidence),
    )
    _warn_about(fitted, evidence, student.argmax)
    return fitted


@dataclass(frozen=True, eq=False)
class Debiased:
    """Errors and losses of the validation rows, as points of the plane of the two confidences."""

    confidence: Confidence | Scores
    targets: str
    estimate: str
    k: int
    classes: int
    points: Floats  # (m, 2) teacher's and student's confidence
    wrong: NDArray[np.bool_]  # (m,) the teacher's argmax is not the label
    truth_loss: Floats  # (m,) the student's loss on the label; 1 where the estimate does not use it
    target_loss: Floats  # (m,) its loss on the target; likewise
    margins: Floats  # (m,) the teacher's margin, for inspection
    certainty: Floats  # (m,) the teacher's largest probability, for inspection
    rounding: float  # distances that differ by so much, in units of `scale`, count as equal

    def __post_init__(self) -> None:
        m, columns = len(self.wrong), (self.wrong, self.truth_loss, self.target_loss, self.margins, self.certainty)
        if self.points.shape != (m, 2) or any(column.shape != (m,) for column in columns) or not 1 <= self.k <= m:
            raise ValueError(f"{m} validation rows, k {self.k}, points {self.points.shape}")  # in a file; `fit` checks them
        if not all((np.abs(column) <= LARGEST).all() for column in (self.truth_loss, self.target_loss)):
            raise ValueError(f"losses that are not finite, or above {LARGEST:g}")

    name = "debiased"

    @property
    def distortion(self) -> Floats:
        """Loss distortion of every validation row: 1 where the teacher is right (lines 6 to 9 of Algorithm 2)."""
        return np.where(self.wrong, distortion(self.target_loss, self.truth_loss), 1.0)

    @property
    def floored(self) -> int:
        """Validation rows with a wrong teacher whose loss on the truth was floored."""
        return int(np.count_nonzero(self.wrong & (self.truth_loss < LOSS_FLOOR)))

    @cached_property
    def scale(self) -> float:
        """The size of the numbers that were rounded: for margin and entropy 1, else twice the median size of the points.

        The median of those that are not 0: a few huge scores shall not make all the others equal.
        """
        if self.confidence is margin or self.confidence is entropy:
            return 1.0
        sizes = np.abs(self.points[self.points != 0])
        return 2.0 * float(np.median(sizes)) if len(sizes) else 0.0

    @cached_property
    def neighbors(self) -> Neighbors:
        error = self.wrong.astype(np.float64)
        if self.estimate == "ratio":
            truth = np.maximum(self.truth_loss, LOSS_FLOOR)
            responses = [error, truth, np.where(self.wrong, self.target_loss - truth, 0.0)]
        else:
            responses = [error, np.where(self.wrong, self.distortion, 0.0)]
        return neighbors(self.points, np.stack(responses, axis=1), self.k, self.rounding * self.scale)

    def estimates(self, queries: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """Weights, error, distortion (n,) at points (n, 2) of the plane, and where the weight was clipped to 1."""
        return self._estimates_at(queries[:, 0], queries[:, 1])

    def _estimates_at(self, x: Floats, y: Floats, rounding: float = 0.0) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """`estimates` at points whose coordinates (n,), (n,) are separate arrays, and were rounded themselves."""
        coarsest = replace(self.neighbors, rounding=max(self.rounding, rounding) * self.scale)
        means, n = coarsest.means_at(x, y), len(x)
        weights, error, distortions, clipped = np.empty(n), np.empty(n), np.empty(n), np.empty(n, bool)

        def work(part: slice) -> None:
            error[part] = means[part, 0]
            weights[part], distortions[part], clipped[part] = self._weights(means[part])

        parallel(work, n, ROWS)
        return weights, error, distortions, clipped

    def _weights(self, means: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Weights, distortion, and where clipped, from mean responses (n, R)."""
        error = means[:, 0]
        if self.estimate == "ratio":
            truth, excess = (
                np.maximum(means[:, 1], LOSS_FLOOR / 2),
                means[:, 2],
            )  # of the loss on the target over the loss on the truth
            return truth / (truth + np.maximum(excess, 0.0)), 1.0 + excess / truth, excess < 0
        if self.estimate == "conditional":  # D: the mean over the wrong neighbours
            distortions = np.divide(means[:, 1], error, out=np.ones_like(error), where=error > 0)
        else:  # d̂ = mean over all neighbours, the right ones counting 1
            distortions = 1.0 + (means[:, 1] - error)
        return debiasing_weight(error, distortions), distortions, (error > 0) & (distortions < 1)

    def weigh_rows(self, rows: Rows) -> Weighed:
        if rows.classes is not None:
            checks.same_classes({"validation_teacher": self.classes, "teacher": rows.classes})
        teacher, student = rows.confidence("teacher", self.confidence), rows.confidence("student", self.confidence)
        weights, error, distortions, clipped = self._estimates_at(teacher, student, rows.rounding)
        return Weighed(
            weights,
            error,
            distortions,
            clipped=int(np.count_nonzero(clipped)),
            tied=rows.tied("teacher"),
            floored=self.floored,
            largest_distortion=float(self.distortion.max()),
            idle=self._idle(weights, error),
        )

    @property
    def harmful(self) -> int:
        """Validation rows with a wrong teacher on which the student loses more on the target than on the truth."""
        return int(np.count_nonzero(self.wrong & (self.target_loss > np.maximum(self.truth_loss, LOSS_FLOOR))))

    def _idle(self, weights: Floats, error: Floats) -> str:
        """Why these weights are all 1, where the teacher errs and not every row would have weight 1."""
        if not self.harmful or not len(weights) or weights.min() < 1:
            return ""
        many = f"the teacher is wrong on {np.count_nonzero(self.wrong)} of {len(self.wrong)} validation rows, but "
        if not error.any():
            return many + f"on none that is among the {self.k} nearest of an unlabeled row"
        return many + "wherever it is, the nearest ones together have a distortion of at most 1"


def _rounding(evidence: Evidence, confidence: Confidence | Scores) -> float:
    """What rounding can do to distances, by the precision of the coarser of the two arrays that the points come from."""
    if isinstance(confidence, Scores):
        scores = (confidence.validation_teacher, confidence.validation_student)
        return max(checks.rounding(checks.precision(checks.array(values, "scores"))) for values in scores)
    both = evidence.both_on_validation
    return max(checks.rounding(checks.precision(values), evidence.kind) for values in both)


def _losses_on(matched: NDArray[Any], log_student: Floats, losses: Losses | None) -> Floats:
    """Losses (m,) of log-probabilities (m, K) on labels (m,) or distributions (m, K)."""
    if losses is None:
        return truth_loss(matched, log_student) if matched.ndim == 1 else cross_entropy(matched, log_student)
    classes = log_student.shape[1]
    found = checks.array(losses(log_student, np.eye(classes)[matched] if matched.ndim == 1 else matched), "losses")
    if found.shape != (len(matched),) or found.dtype.kind not in "fiu":
        remedy = "return a loss for every row, without taking their mean"
        shape = f"shape {found.shape}, dtype {found.dtype}"
        raise wrong_shape("not one loss a row", "losses", shape, f"({len(matched)},) numbers", remedy)
    bad = np.flatnonzero(~((found >= 0) & (found < np.inf)))
    if len(bad):
        rows, remedy = f"{len(bad)} others, such as {found[bad[0]]:g}", "add what makes it positive, such as a smallest cost"
        raise bad_input("not losses", "losses", rows, "finite numbers of at least 0", remedy)
    return np.asarray(np.minimum(found.astype(np.float64), LOSS_CEILING))


def _check_losses(losses: Any) -> None:
    if losses is not None and not callable(losses):
        expected = "a function from log-probabilities (m, K) and distributions (m, K) to losses (m,)"
        raise bad_value("not a loss", "losses", type(losses).__name__, expected, "pass the function itself, or leave it out")


def _check_neighbors(k: int | None, m: int) -> int:
    if k is None:
        return neighbors_of(m)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= m:
        raise bad_value(
            "not a number of neighbours",
            "neighbors",
            repr(k),
            f"a whole number from 1 to {m}, the size of the validation set",
            f"leave it out for the paper's k = ceil(√m / 2) = {neighbors_of(m)}",
        )
    return int(k)


def _warn_about(fitted: Debiased, evidence: Evidence, student_best: NDArray[np.int32]) -> None:
    """Warn about what makes weights from this validation set unreliable."""
    labels, m, k = evidence.validation_labels, len(fitted.wrong), evidence.validation_teacher.shape[1]
    if m < 20:
        checks.warn(f"only {m} validation rows: the weights are nearly constant; a hundred or more would help")
    present = np.unique(labels)
    if len(present) < k:
        missing = sorted(set(range(k)) - set(present.tolist()))
        named = [evidence.classes[c] if evidence.classes else str(c) for c in missing[:10]]
        checks.warn(f"{len(missing)} of {k} classes have no validation row: {', '.join(named)}")
    if not fitted.wrong.any():
        checks.warn("the teacher is right on every validation row: all weights are 1 and weighting has no effect")
    elif fitted.wrong.all():
        checks.warn("the teacher is wrong on every validation row: check the labels and the order of the classes")
    if fitted.wrong.any() and not fitted.harmful:
        checks.warn(
            f"all weights are 1, although the teacher is wrong on {np.count_nonzero(fitted.wrong)} of {m} validation rows: "
            "on none of them is the student's loss on the teacher's answer larger than on the truth, so nothing is "
            "down-weighted; the student makes the same errors, or has learned little"
        )
    if m >= 20 and not fitted.wrong.all() and np.mean(student_best == labels) < 0.5 / k:
        checks.warn("the student is worse than chance on the validation rows: check the order of its classes")
    if fitted.floored > 0.001 * m:
        checks.warn(
            f"{fitted.floored} of {m} validation rows have a wrong teacher and a student loss below {LOSS_FLOOR:g}: "
            f"their distortion is capped (largest {fitted.distortion.max():.3g})"
        )
