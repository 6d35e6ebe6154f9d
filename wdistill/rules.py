"""Rules: functions from evidence to one weight in [0, 1] for every unlabeled row.

A rule is written as its fitting step, a function `Evidence → Fitted`; `@rule` makes of it
    debiased(evidence)          weights (n,)
    debiased.explain(evidence)  the same with what the rule saw
    debiased.fit(evidence)      the small frozen state, which weighs any number of chunks
All three take the rule's options; `debiased.using(targets="hard")` is the rule with options filled in.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol

import numpy as np
from numpy.typing import NDArray

from wdistill import checks
from wdistill.confidence import Confidence, Floats, Kind, entropy, margin, scan
from wdistill.elementary import exp64
from wdistill.errors import ConfigError, InputError
from wdistill.evidence import Evidence, Rows, Scores
from wdistill.neighbors import Neighbors, neighbors
from wdistill.threads import parallel
from wdistill.weighting import (
    LOSS_FLOOR,
    cross_entropy,
    debiasing_weight,
    distortion,
    effective_sample_size,
    log_probabilities,
    neighbors_of,
    probabilities,
    truth_loss,
)

Targets = Literal["soft", "hard"]
Estimate = Literal["paper", "conditional", "ratio"]
P = ParamSpec("P")
BLOCK = 1 << 15  # predictions whose losses are computed at once: few enough to stay in the cache
ROWS = 1 << 15  # rows whose weights are computed at once


@dataclass(frozen=True, eq=False)
class Weighed:
    """Weights of some rows, and what the rule saw."""

    weights: Floats  # (n,)
    error: Floats | None = None  # (n,) estimated chance that the teacher is wrong
    distortion: Floats | None = None  # (n,) estimated loss distortion
    clipped: int = 0  # rows whose unclipped weight would be above 1
    tied: int = 0  # rows in which the teacher's two largest classes are equal
    floored: int = 0  # validation rows with a wrong teacher whose loss on the truth was floored
    largest_distortion: float = 0.0  # of any validation row
    factors: dict[str, Floats] = field(default_factory=dict)  # of a composition, by rule

    @property
    def effective_sample_size(self) -> float:
        return effective_sample_size(self.weights)

    @property
    def share_below_one(self) -> float:
        return float(np.mean(self.weights < 1))


class Fitted(Protocol):
    """What a rule learned from the validation rows."""

    @property
    def name(self) -> str: ...

    def weigh_rows(self, rows: Rows) -> Weighed: ...


class Rule(Generic[P]):
    """A rule made from its fitting step."""

    def __init__(self, fitting: Callable[Concatenate[Evidence, P], Fitted], options: dict[str, Any] | None = None) -> None:
        self._fitting, self._options = fitting, options or {}
        update_wrapper(self, fitting)

    def fit(self, evidence: Evidence, *args: P.args, **options: P.kwargs) -> Fitted:
        """The rule's small state, from the validation part of the evidence."""
        return self._fitting(evidence, *args, **{**self._options, **options})

    def explain(self, evidence: Evidence, *args: P.args, **options: P.kwargs) -> Weighed:
        """Weights of the unlabeled rows with what the rule saw."""
        return self.fit(evidence, *args, **options).weigh_rows(evidence.rows)

    def __call__(self, evidence: Evidence, *args: P.args, **options: P.kwargs) -> Floats:
        return self.explain(evidence, *args, **options).weights

    def using(self, **options: Any) -> Rule[P]:
        """The same rule with some of its options filled in."""
        return Rule(self._fitting, {**self._options, **options})

    def defaulting(self, **options: Any) -> Rule[P]:
        """The same rule with those of the options filled in that it takes and that are still open."""
        if isinstance(self._fitting, Composition):
            parts: Any = Composition(tuple(each.defaulting(**options) for each in self._fitting.rules))
            return Rule(parts)
        taken = inspect.signature(self._fitting).parameters
        return self.using(**{name: value for name, value in options.items() if name in taken and name not in self._options})

    @property
    def name(self) -> str:
        return str(getattr(self._fitting, "__name__", "rule"))

    def __str__(self) -> str:
        """The name with the options that are filled in: what tells this rule from others."""
        if isinstance(self._fitting, Composition):
            return f"compose({', '.join(map(str, self._fitting.rules))})"
        options = {name: getattr(value, "__qualname__", repr(value)) for name, value in sorted(self._options.items())}
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in options.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A rule goes to another process by the name it is known under, where it has one."""
        place = getattr(self._fitting, "__module__", ""), getattr(self._fitting, "__qualname__", "")
        known = getattr(sys.modules.get(place[0]), place[1], None)
        if isinstance(known, Rule) and known._fitting is self._fitting:
            return _named, (*place, self._options)
        return Rule, (self._fitting, self._options)


def _named(module: str, name: str, options: dict[str, Any]) -> Rule[...]:
    known: Rule[...] = getattr(importlib.import_module(module), name)
    return known.using(**options)


def rule(fitting: Callable[Concatenate[Evidence, P], Fitted]) -> Rule[P]:
    """Turn a fitting step into a rule."""
    return Rule(fitting)


def weigh(
    fitted: Fitted,
    teacher: NDArray[Any] | None = None,
    student: NDArray[Any] | None = None,
    truth: NDArray[Any] | None = None,
    *,
    kind: Kind = "probabilities",
    renormalize: bool = False,
    tolerance: float | None = None,
) -> Weighed:
    """Weigh one chunk with a fitted rule; chunks give the same bits as the whole."""
    checks.kind(kind)
    if not hasattr(fitted, "weigh_rows"):
        raise ConfigError(
            "not a fitted rule",
            where="weigh",
            found=repr(fitted),
            expected="what a rule's fit() returned",
            remedy="fit the rule first: weigh(debiased.fit(evidence), teacher, student)",
        )
    rows = Rows(teacher, student, truth, kind=kind, renormalize=renormalize, tolerance=tolerance)
    if len(rows) == 0:
        raise checks.no_rows("teacher")
    return fitted.weigh_rows(rows)


@rule
def unweighted(evidence: Evidence) -> Fitted:
    """Every row counts in full: conventional distillation."""
    return Unweighted()


@dataclass(frozen=True)
class Unweighted:
    name = "unweighted"

    def weigh_rows(self, rows: Rows) -> Weighed:
        return Weighed(np.ones(len(rows)))


@rule
def debiased(
    evidence: Evidence,
    *,
    confidence: Confidence | Scores = margin,
    targets: Targets = "soft",
    estimate: Estimate = "paper",
    neighbors: int | None = None,
) -> Fitted:
    """The paper's rule, Algorithm 2: error and distortion from the nearest validation rows, then the debiasing weight.

    `confidence` is margin, entropy, any function from probabilities (n, K) to (n,), or Scores. `targets` says what the
    student will be trained on: the teacher's distributions or their argmax. `estimate` says how the neighbours' answers
    are averaged:
    "paper" as Algorithm 2 does, error and distortion apart; "conditional" the distortion over the wrong ones only;
    "ratio" mean loss on the truth over mean loss on the target. `neighbors=None` is k = ceil(√m / 2).
    """
    _measure(confidence)
    _one_of("targets", targets, ("soft", "hard"))
    _one_of("estimate", estimate, ("paper", "conditional", "ratio"))
    labels = evidence.validation_labels
    k = _check_neighbors(neighbors, len(labels))
    known = Rows(evidence.validation_teacher, evidence.validation_student, **evidence.reading, prefix="validation_")
    teacher, student = known.scan("teacher", certainty=True), known.scan("student")
    assert teacher.certainty is not None
    if isinstance(confidence, Scores):
        given = Rows(confidence.validation_teacher, confidence.validation_student, prefix="validation_")
        checks.same_length({"validation_labels": len(labels), "scores": len(given)})
    else:
        given = known
    wrong = teacher.best != labels
    # an estimate looks at losses only where the teacher is wrong; the ratio, at the loss on the truth everywhere
    asked = np.arange(len(labels)) if estimate == "ratio" else np.flatnonzero(wrong)
    losses = np.ones((2, len(labels)))
    step = max(1, BLOCK // evidence.validation_teacher.shape[1])

    def lose(part: slice) -> None:
        rows = asked[part]
        log_student = log_probabilities(evidence.validation_student[rows], evidence.kind, evidence.renormalize)
        losses[0, rows] = truth_loss(labels[rows], log_student)
        if targets == "hard":
            losses[1, rows] = truth_loss(teacher.best[rows], log_student)
        else:
            distributions = probabilities(evidence.validation_teacher[rows], evidence.kind, evidence.renormalize)
            losses[1, rows] = cross_entropy(distributions, log_student)

    parallel(lose, len(asked), step)
    fitted = Debiased(
        confidence=confidence,
        targets=targets,
        estimate=estimate,
        k=k,
        classes=evidence.validation_teacher.shape[1],
        points=np.stack([given.confidence("teacher", confidence), given.confidence("student", confidence)], axis=1),
        wrong=wrong,
        truth_loss=losses[0],
        target_loss=losses[1],
        margins=teacher.margin,
        certainty=teacher.certainty,
    )
    _warn_about(fitted, evidence, student.best)
    return fitted


@dataclass(frozen=True, eq=False)
class Debiased:
    """What the validation rows say about the teacher, as points of the plane of the two confidences."""

    confidence: Confidence | Scores
    targets: str
    estimate: str
    k: int
    classes: int
    points: Floats  # (m, 2) teacher's and student's confidence
    wrong: NDArray[np.bool_]  # (m,) the teacher's argmax is not the label
    truth_loss: Floats  # (m,) the student's loss on the label; 1 where the estimate does not look at it
    target_loss: Floats  # (m,) its loss on the target; likewise
    margins: Floats  # (m,) the teacher's margin, for inspection
    certainty: Floats  # (m,) the teacher's largest probability, for inspection

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
    def neighbors(self) -> Neighbors:
        error = self.wrong.astype(np.float64)
        if self.estimate == "ratio":
            truth = np.maximum(self.truth_loss, LOSS_FLOOR)
            responses = [error, truth, np.where(self.wrong, self.target_loss - truth, 0.0)]
        else:
            responses = [error, np.where(self.wrong, self.distortion, 0.0)]
        return neighbors(self.points, np.stack(responses, axis=1), self.k)

    def estimates(self, queries: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """Weights, error, distortion (n,) at points (n, 2) of the plane, and where the weight was clipped to 1."""
        return self._estimates_at(queries[:, 0], queries[:, 1])

    def _estimates_at(self, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """`estimates` at points whose coordinates (n,), (n,) are given apart."""
        means, n = self.neighbors.means_at(x, y), len(x)
        weights, error, seen, clipped = np.empty(n), np.empty(n), np.empty(n), np.empty(n, bool)

        def work(part: slice) -> None:
            error[part] = means[part, 0]
            weights[part], seen[part], clipped[part] = self._weights(means[part])

        parallel(work, n, ROWS)
        return weights, error, seen, clipped

    def _weights(self, means: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Weights, distortion, and where clipped, from mean responses (n, R)."""
        error = means[:, 0]
        if self.estimate == "ratio":
            truth, excess = means[:, 1], means[:, 2]  # of the loss on the target over the loss on the truth
            return truth / (truth + np.maximum(excess, 0.0)), 1.0 + excess / truth, excess < 0
        if self.estimate == "conditional":  # D: the mean over the wrong neighbours
            seen = np.divide(means[:, 1], error, out=np.ones_like(error), where=error > 0)
        else:  # d̂ = mean over all neighbours, the right ones counting 1
            seen = 1.0 + (means[:, 1] - error)
        return debiasing_weight(error, seen), seen, (error > 0) & (seen < 1)

    def weigh_rows(self, rows: Rows) -> Weighed:
        if rows.classes is not None:
            checks.same_classes({"validation_teacher": self.classes, "teacher": rows.classes})
        teacher, student = rows.confidence("teacher", self.confidence), rows.confidence("student", self.confidence)
        weights, error, seen, clipped = self._estimates_at(teacher, student)
        return Weighed(
            weights,
            error,
            seen,
            clipped=int(np.count_nonzero(clipped)),
            tied=rows.tied("teacher"),
            floored=self.floored,
            largest_distortion=float(self.distortion.max()),
        )


@rule
def fidelity(evidence: Evidence, *, mean: EntropyMean | None = None, over: Literal["all", "unlabeled"] = "all") -> Fitted:
    """exp(−entropy / mean entropy) of the teacher: fidelity weighting as in Appendix C.3 of the paper.

    The mean runs over labeled and unlabeled rows, or the unlabeled ones only; pass `mean` where chunks are streamed.
    """
    _one_of("over", over, ("all", "unlabeled"))
    if mean is None:
        mean = EntropyMean()
        parts = {"teacher": evidence.teacher, "labeled_teacher": evidence.labeled_teacher if over == "all" else None}
        for name, values in parts.items():
            if values is not None:
                mean = mean.plus(values, name=name, **evidence.reading)
        if over == "all" and evidence.labeled_teacher is None and evidence.teacher is not None:
            checks.warn("fidelity's mean entropy runs over the unlabeled rows only: no labeled rows were given")
    if mean.count == 0:
        raise InputError(
            "fidelity needs the teacher's mean entropy",
            where="teacher",
            found="no rows",
            expected="the teacher's predictions on the unlabeled rows",
            remedy="pass them to Evidence, or a mean of your own as `mean`",
        )
    return Fidelity(mean)


@dataclass(frozen=True)
class EntropyMean:
    """A running mean of entropies, exact in any order: a sum in quanta of 2^-50 nats, and a count."""

    quanta: int = 0
    count: int = 0

    def plus(self, values: NDArray[Any], **reading: Any) -> EntropyMean:
        """The mean with another chunk of predictions (n, K) taken in; `reading` is as for `scan`."""
        found = scan(values, entropy=True, **reading).entropy
        assert found is not None
        whole = np.rint(found * 2.0**50).astype(np.int64)
        # the two halves of each number are summed apart: no sum can overflow
        total = (int((whole >> 20).sum()) << 20) + int((whole & 0xFFFFF).sum())
        return EntropyMean(self.quanta + total, self.count + len(found))

    @property
    def value(self) -> float:
        return self.quanta / self.count / 2.0**50


@dataclass(frozen=True)
class Fidelity:
    mean: EntropyMean
    name = "fidelity"

    def weigh_rows(self, rows: Rows) -> Weighed:
        found = rows.confidence("teacher", entropy)
        average = self.mean.value
        ratio = found / average if average > 0 else np.zeros_like(found)
        weights: Floats = exp64(-np.maximum(ratio, 0.0))
        return Weighed(weights)


@rule
def threshold(evidence: Evidence, *, at: float, confidence: Confidence = margin) -> Fitted:
    """1 where the teacher's confidence is at least `at`, else 0; for entropy, where it is at most `at`."""
    _measure(confidence)
    if not isinstance(at, int | float | np.number) or not np.isfinite(at):
        raise ConfigError("not a threshold", where="at", found=repr(at), expected="a finite number", remedy="try at=0.5")
    return Threshold(float(at), confidence)


@dataclass(frozen=True, eq=False)
class Threshold:
    at: float
    confidence: Confidence
    name = "threshold"

    def weigh_rows(self, rows: Rows) -> Weighed:
        found = rows.confidence("teacher", self.confidence)
        kept = found <= self.at if self.confidence is entropy else found >= self.at
        return Weighed(kept.astype(np.float64))


@rule
def oracle(evidence: Evidence) -> Fitted:
    """1 where the teacher is right, 0 where it is wrong: the ceiling for any filter. Needs `truth`."""
    return Oracle()


@dataclass(frozen=True)
class Oracle:
    name = "oracle"

    def weigh_rows(self, rows: Rows) -> Weighed:
        wrong = rows.scan("teacher").best != rows.need("truth")
        return Weighed(1.0 - wrong, error=wrong.astype(np.float64))


def compose(*rules: Rule[...]) -> Rule[[]]:
    """The product of several rules' weights, each factor kept."""
    if not rules:
        raise ConfigError(
            "nothing to compose",
            where="compose",
            found="no rules",
            expected="one or more rules",
            remedy="name the rules: compose(debiased, fidelity)",
        )

    for each in rules:
        if not isinstance(each, Rule):
            raise ConfigError(
                "not a rule",
                where="compose",
                found=repr(each),
                expected="rules such as debiased",
                remedy="write a function of your own as a rule: @rule on its fitting step",
            )

    return Rule(Composition(rules))


@dataclass(frozen=True)
class Composition:
    """The fitting step of a product of rules."""

    rules: tuple[Rule[...], ...]

    @property
    def __name__(self) -> str:
        return ",".join(each.name for each in self.rules)

    def __call__(self, evidence: Evidence) -> Fitted:
        return Product(tuple(each.fit(evidence) for each in self.rules))


@dataclass(frozen=True)
class Product:
    parts: tuple[Fitted, ...]

    @property
    def names(self) -> list[str]:
        """Of the factors; a rule that occurs again gets a number."""
        plain = [part.name for part in self.parts]
        return [name if plain.index(name) == i else f"{name}_{i + 1}" for i, name in enumerate(plain)]

    @property
    def name(self) -> str:
        return ",".join(self.names)

    def weigh_rows(self, rows: Rows) -> Weighed:
        seen = [part.weigh_rows(rows) for part in self.parts]
        informed = next((each for each in seen if each.distortion is not None), seen[0])
        return Weighed(
            np.prod([each.weights for each in seen], axis=0),
            informed.error,
            informed.distortion,
            clipped=informed.clipped,
            tied=informed.tied,
            floored=informed.floored,
            largest_distortion=informed.largest_distortion,
            factors=dict(zip(self.names, (each.weights for each in seen), strict=True)),
        )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(
            "unknown choice",
            where=name,
            found=repr(value),
            expected=" or ".join(map(repr, allowed)),
            remedy=f"leave it out for {allowed[0]!r}",
        )


def _measure(confidence: Any) -> None:
    if not callable(confidence) and not isinstance(confidence, Scores):
        raise ConfigError(
            "not a confidence",
            where="confidence",
            found=repr(confidence),
            expected="a function such as margin or entropy, or Scores",
            remedy="pass the function itself: confidence=margin",
        )


def _check_neighbors(wanted: int | None, m: int) -> int:
    if wanted is None:
        return neighbors_of(m)
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or not 1 <= wanted <= m:
        raise ConfigError(
            "not a number of neighbours",
            where="neighbors",
            found=repr(wanted),
            expected=f"a whole number from 1 to {m}, the size of the validation set",
            remedy=f"leave it out for the paper's k = ceil(√m / 2) = {neighbors_of(m)}",
        )
    return int(wanted)


def _warn_about(fitted: Debiased, evidence: Evidence, student_best: NDArray[np.int32]) -> None:
    """What a person should know before trusting weights from this validation set."""
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
    if m >= 20 and not fitted.wrong.all() and np.mean(student_best == labels) < 0.5 / k:
        checks.warn("the student is worse than chance on the validation rows: check the order of its classes")
    if fitted.floored > 0.001 * m:
        checks.warn(
            f"{fitted.floored} of {m} validation rows have a wrong teacher and a student loss below {LOSS_FLOOR:g}: "
            f"their distortion is capped (largest {fitted.distortion.max():.3g})"
        )
