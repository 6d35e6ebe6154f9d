"""Evidence: the arrays that weights are computed from, checked once for shape, and the rows a fitted rule weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import InputError, bad_input, bad_value, empty, wrong_shape
from wdistill.weights.confidence import Confidence, Floats, Kind, Scan, entropy, margin, scan
from wdistill.weights.equations import probabilities


@dataclass(frozen=True, eq=False)
class Scores:
    """Confidences the caller already has, in place of a confidence function."""

    validation_teacher: Floats  # (m,)
    validation_student: Floats  # (m,)
    teacher: Floats | None = None  # (n,)
    student: Floats | None = None  # (n,)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Predictions of teacher and student, and true labels of the validation rows.

    m validation rows, n unlabeled rows, l labeled rows, K classes. `teacher` and `student` may be left out to fit a rule
    on the validation part alone and weigh chunks afterwards.
    """

    validation_labels: NDArray[Any]  # (m,) the truth
    validation_teacher: NDArray[Any]  # (m, K)
    validation_student: NDArray[Any] | None = None  # (m, K); rules that look at the student need it
    teacher: NDArray[Any] | Scan | None = None  # (n, K), or a scan of them, which the rules of RULES need no more than
    student: NDArray[Any] | Scan | None = None  # (n, K), or a scan
    labeled_teacher: NDArray[Any] | Scan | None = None  # (l, K) for fidelity's mean entropy, or a scan with entropies
    truth: NDArray[Any] | None = None  # (n,) for the oracle
    kind: Kind = field(default="probabilities", kw_only=True)  # what all the predictions are
    classes: Sequence[str] | None = field(default=None, kw_only=True)  # names, where labels are strings
    soft_labels: bool = field(default=False, kw_only=True)  # labels may be (m, K) distributions; their argmax counts
    renormalize: bool = field(default=False, kw_only=True)  # scale rows of probabilities to sum to 1
    tolerance: float | None = field(
        default=None, kw_only=True
    )  # largest distance of their sum from 1 otherwise; None: by their precision

    def __post_init__(self) -> None:
        checks.kind(self.kind)
        for name in ("validation_labels", "validation_teacher"):
            if getattr(self, name) is None:
                raise missing(name)
        predictions = ("validation_teacher", "validation_student", "teacher", "student", "labeled_teacher")
        given = {name: getattr(self, name) for name in predictions if getattr(self, name) is not None}
        arrays = {name: checks.matrix(values, name) for name, values in given.items() if not isinstance(values, Scan)}
        k = checks.same_classes({name: values.shape[1] for name, values in arrays.items()})
        checks.class_names(self.classes, k)
        labels = checks.labels(self.validation_labels, k, "validation_labels", self.classes, self.soft_labels)
        if len(labels) == 0:
            expected, remedy = "at least 1 row, better 100 or more", "label some rows that the teacher was not trained on"
            raise empty("the validation set is empty", "validation_labels", expected, remedy)
        names = [name for name in ("validation_teacher", "validation_student") if name in arrays]
        checks.same_length({"validation_labels": len(labels), **{name: len(arrays[name]) for name in names}})
        for name, values in (*arrays.items(), ("validation_labels", labels)):
            object.__setattr__(self, name, values)
        if self.truth is not None:
            object.__setattr__(self, "truth", checks.labels(self.truth, k, "truth", self.classes))
        unlabeled = {name: getattr(self, name) for name in ("teacher", "student", "truth")}
        lengths = {name: len(values) for name, values in unlabeled.items() if values is not None}
        if lengths and checks.same_length(lengths) == 0:
            raise checks.no_rows(next(iter(lengths)))

    @property
    def both_on_validation(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Predictions of teacher and student for the validation rows, each (m, K); an error where there is no student."""
        if self.validation_student is None:
            raise missing("validation_student")
        return self.validation_teacher, self.validation_student

    @property
    def on_unlabeled(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Predictions (n, K) of the teacher, and of the student if there are any; an error where there are only scans."""
        if self.teacher is None or isinstance(self.teacher, Scan) or isinstance(self.student, Scan):
            raise missing("student" if isinstance(self.student, Scan) else "teacher")
        return self.teacher, self.student

    @property
    def rows(self) -> Rows:
        """The unlabeled part, as a fitted rule weighs it."""
        return Rows(self.teacher, self.student, self.truth, **self.reading)

    @property
    def reading(self) -> dict[str, Any]:
        """How to read the predictions: the arguments that `Rows` and `scan` share."""
        return {"kind": self.kind, "renormalize": self.renormalize, "tolerance": self.tolerance}


def missing(name: str) -> InputError:
    """The error for an array that was not passed."""
    return bad_input("it is missing", name, "None", "an array", "pass it")


@dataclass(frozen=True, eq=False)
class Rows:
    """A chunk of unlabeled rows: predictions (n, K), or what was already computed from them: scores (n,) or a Scan."""

    teacher: NDArray[Any] | Scan | None = None
    student: NDArray[Any] | Scan | None = None
    truth: NDArray[Any] | None = None
    kind: Kind = field(default="probabilities", kw_only=True)
    renormalize: bool = field(default=False, kw_only=True)
    tolerance: float | None = field(default=None, kw_only=True)
    prefix: str = field(default="", kw_only=True)  # of the arrays' names in messages
    _scans: dict[str, Scan] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("teacher", "student"):
            values = getattr(self, name)
            if values is not None and not isinstance(values, Scan):
                values = checks.array(values, self.prefix + name)
                check = checks.scores if values.ndim == 1 else checks.matrix
                object.__setattr__(self, name, check(values, self.prefix + name))
        if self.truth is not None:
            object.__setattr__(self, "truth", checks.labels(self.truth, self.classes, self.prefix + "truth"))
        lengths = {name: len(getattr(self, name)) for name in ("teacher", "student", "truth") if self.has(name)}
        if lengths:
            checks.same_length(lengths)

    def __len__(self) -> int:
        return next((len(getattr(self, name)) for name in ("teacher", "student", "truth") if self.has(name)), 0)

    @property
    def classes(self) -> int | None:
        """The number of classes, where there are predictions."""
        predictions = {name: getattr(self, name) for name in ("teacher", "student")}
        sizes = {name: values.shape[1] for name, values in predictions.items() if getattr(values, "ndim", 1) == 2}
        return checks.same_classes(sizes) if sizes else None

    def has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def need(self, name: str) -> NDArray[Any] | Scan:
        """The array of that name; raises where it is missing."""
        values: NDArray[Any] | Scan | None = getattr(self, name)
        if values is None:
            expected = "an array with one row for every unlabeled row"
            remedy = "pass it to Evidence, or to weigh() of the fitted rule"
            raise bad_input("this rule needs it and it is missing", name, "nothing", expected, remedy)
        return values

    def scan(self, name: str, *, entropy: bool = False, certainty: bool = False) -> Scan:
        """One pass over the predictions of that name; cached for the next rule."""
        values = self.need(name)
        if isinstance(values, Scan):
            return values
        cached = self._scans.get(name)
        if cached is None or (entropy and cached.entropy is None) or (certainty and cached.certainty is None):
            cached = scan(
                values,
                self.kind,
                entropy=entropy,
                certainty=certainty,
                renormalize=self.renormalize,
                tolerance=self.tolerance,
                name=self.prefix + name,
            )
            self._scans[name] = cached
            if cached.correction > checks.tolerance(values.dtype.name, values.shape[1]):
                checks.warn(
                    f"{self.prefix}{name}: rows were scaled to sum to 1; the largest correction is {cached.correction:.3g}"
                )
        return cached

    def confidence(self, name: str, measure: Confidence | Scores) -> Floats:
        """Confidence (n,) of the predictions of that name."""
        values = self.need(name)
        if isinstance(measure, Scores):
            return self._scores(name, measure)
        if not isinstance(values, Scan) and values.ndim == 1:
            expected, remedy = "(rows, classes) predictions", "pass predictions, or fit the rule on Scores"
            raise wrong_shape("scores instead of predictions", self.prefix + name, values.shape, expected, remedy)
        if measure is margin:
            return self.scan(name).margin
        if measure is entropy:
            entropies = self.scan(name, entropy=True).entropy
            assert entropies is not None
            return entropies
        scores = checks.scores(measure(self.probabilities(name)), f"confidence of {self.prefix}{name}")
        checks.same_length({name: len(values), "its confidence": len(scores)})
        return scores

    @property
    def rounding(self) -> float:
        """What rounding can do to distances from these rows, by the types of their predictions: `checks.rounding`."""
        found = [0.0]
        for values in (self.teacher, self.student):
            if isinstance(values, Scan):
                found.append(values.rounding)
            elif values is not None:
                found.append(checks.rounding(values.dtype.name, self.kind))
        return max(found)

    def tied(self, name: str) -> int:
        """Rows whose two largest classes are equal; 0 where there are only scores."""
        values = self.need(name)
        return int(np.count_nonzero(self.scan(name).margin == 0)) if isinstance(values, Scan) or values.ndim == 2 else 0

    def _scores(self, name: str, scores: Scores) -> Floats:
        """Scores given in place of predictions, or those of the `Scores` that the rule was fitted with."""
        values: Any = self.need(name)
        confidences = values if getattr(values, "ndim", 2) == 1 else getattr(scores, name)
        if confidences is None or len(confidences) != len(values):
            found, expected = f"{len(values)} rows of predictions", "(rows,) scores, since the rule was fitted on scores"
            remedy = "pass the scores of these rows, or fit the rule with a confidence function"
            raise bad_input("predictions instead of scores", self.prefix + name, found, expected, remedy)
        return checks.scores(confidences, self.prefix + name)

    def probabilities(self, name: str) -> NDArray[np.floating]:
        """The predictions as probabilities, checked, whatever their kind."""
        self.scan(name)
        values = self.need(name)
        assert not isinstance(values, Scan)
        if self.kind == "probabilities" and not self.renormalize:
            return values
        return probabilities(values, self.kind, self.renormalize)


def check_confidence(confidence: Any) -> None:
    """Raise where it is neither a confidence function nor Scores."""
    if not callable(confidence) and not isinstance(confidence, Scores):
        expected = "a function such as margin or entropy, or Scores"
        raise bad_value(
            "not a confidence", "confidence", confidence, expected, "pass the function itself: confidence=margin"
        )
