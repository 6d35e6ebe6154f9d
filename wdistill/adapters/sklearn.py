"""For users of scikit-learn: an estimator that learns from a teacher's probabilities, corrected or weighted by gold labels.

model = Distiller(LogisticRegression()).fit(X, y, teacher=P)  # y is −1, None or NaN where there is no label
"""

# ruff: noqa: N803 (X is scikit-learn's name)

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.adapters.extras import brought_by
from wdistill.core import checks
from wdistill.methods.advice import Advice, advise
from wdistill.methods.context import one_hot
from wdistill.weights.confidence import Floats

with brought_by("sklearn", __name__):
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
    from sklearn.metrics import accuracy_score
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import _num_samples, check_is_fitted

    from wdistill.adapters.expand import NEGLIGIBLE, expand, take
    from wdistill.adapters.sklearn_context import make_context
    from wdistill.adapters.sklearn_labels import fit_labels, probabilities_of
    from wdistill.adapters.sklearn_method import check_supervision, method_of
    from wdistill.adapters.sklearn_refresh import fit_refreshed, weights_again
    from wdistill.adapters.sklearn_rows import read_rows, read_teacher
    from wdistill.adapters.sklearn_student import fit_student, fit_targets, seed_of
    from wdistill.adapters.target_table import TargetTable

__all__ = ["Distiller", "expand", "fit_student"]


class Distiller(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A student trained on labels, and on a teacher's probabilities where there are none.

    `method`: "best" corrects the teacher by the gold rows, "paper" weighs its rows by Algorithm 2, or a rule or MethodArm.
    `targets`: "soft", or "hard" for students that soft ones cannot be made rows × classes for. `teacher_classes`: the class
    of every column of the teacher, if not the sorted classes of y. `refresh`: train by so many epochs of `partial_fit`, and
    estimate the weights of a rule again after each. `negligible`: see `expand`; students of LightGBM and XGBoost that learn
    soft targets get them as they are. Without unlabeled rows the student is fitted on the labels alone.
    """

    def __init__(
        self,
        student: Any,
        method: Any = "best",
        *,
        targets: str = "soft",
        teacher_classes: Any = None,
        refresh: int | None = None,
        negligible: float = NEGLIGIBLE,
        random_state: Any = 0,
    ) -> None:
        self.student, self.method, self.targets, self.teacher_classes = student, method, targets, teacher_classes
        self.refresh, self.negligible, self.random_state = refresh, negligible, random_state

    def fit(
        self, X: Any, y: Any, teacher: Any = None, groups: Any = None, seen_by_teacher: Any = None, ids: Any = None
    ) -> Distiller:
        """Fit on rows X, labels y (n,) with marks for unlabeled rows, and the teacher's probabilities (n, K) of all rows.

        A labeled row is gold unless the mask `seen_by_teacher` (n,) says that the teacher was trained on it. Rows of one of
        the `groups` (n,) share a fold. `ids` (n,) name the rows of `table_`.
        """
        rows, seed = read_rows(y, seen_by_teacher, self.teacher_classes), seed_of(self.random_state)
        known, count = rows.labels >= 0, len(rows.labels)
        named = np.arange(count) if ids is None else np.asarray(ids)
        checks.same_length({"X": _num_samples(X), "y": count, "ids": len(named)})
        self.__dict__.pop("advice_", None)
        self.classes_, self.context_, self._rows, self._ids = rows.classes, None, rows, named
        self.targets_, self.weight_ = np.zeros((count, len(rows.classes))), np.ones(count)
        self.targets_[known] = one_hot(rows.labels[known], len(rows.classes))
        if known.all():
            if teacher is not None:
                checks.warn("no row is unlabeled: the student is fitted on the labels alone, the teacher is not asked")
            self.student_ = fit_labels(self.student, X, rows.labels, rows.classes, seed)
            return self
        method, asked = method_of(self.method, self.student, self.refresh), read_teacher(teacher, rows, self.teacher_classes)
        self.context_, self._concerns = make_context(self.student, X, rows, asked, self.targets, seed, groups)
        supervision = method(self.context_)
        self.targets_[rows.unlabeled], self.weight_[rows.unlabeled] = supervision.targets, supervision.weights
        check_supervision(supervision, self.method, self.refresh)
        options: dict[str, Any] = {"negligible": self.negligible, "seed": seed}
        taught = self.student, X, self.targets_, self.weight_, self.classes_
        if self.refresh is None:
            self.student_ = fit_targets(*taught, **options)
        else:
            estimate = weights_again(X, rows, self.context_, supervision, self.weight_)
            self.student_, self.weight_ = fit_refreshed(*taught, estimate, self.refresh, **options)
        return self

    @cached_property
    def advice_(self) -> Advice:
        """The verdict on teacher and gold, made when it is first read; its `next` are rows of X, to label next."""
        check_is_fitted(self)
        if self.context_ is None:
            raise AttributeError("advice_: no teacher was asked, since no row was unlabeled")
        advice = advise(self.context_, self._concerns)
        return replace(advice, next=self._rows.unlabeled[advice.next])

    @property
    def table_(self) -> TargetTable:
        """Ids, targets and weights of all rows, as other adapters take them."""
        check_is_fitted(self)
        return TargetTable(self._ids, self.targets_, self.weight_, tuple(map(str, self.classes_)))

    @property
    def n_features_in_(self) -> int:
        """Columns of X, where the student counts them."""
        return int(self.student_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns of X, where it was a frame."""
        return np.asarray(self.student_.feature_names_in_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes (n,)."""
        check_is_fitted(self)
        return np.asarray(self.student_.predict(X))

    @available_if(lambda self: hasattr(self.student, "predict_proba"))
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, K) of `classes_`."""
        check_is_fitted(self)
        return probabilities_of(self.student_, X, self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the rows that have a label: what GridSearchCV chooses by, unless told otherwise."""
        check_is_fitted(self)
        rows = np.flatnonzero(read_rows(y).labels >= 0)
        weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
        truth, predicted = np.asarray(y)[rows].tolist(), self.predict(take(X, rows)).tolist()
        return float(accuracy_score(truth, predicted, sample_weight=weight))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import get_tags  # not in 1.5

        tags, inner = super().__sklearn_tags__(), get_tags(self.student)
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        tags.classifier_tags.multi_label = False
        return tags
