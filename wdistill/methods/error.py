"""The chance that the teacher is wrong, learned from richer evidence than two confidences, always cross-fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats, entropy, margin
from wdistill.methods.folds import Ints, out_of_fold
from wdistill.methods.lessons import Case, one_hot
from wdistill.methods.posterior import logs
from wdistill.rules import debiased

Learner = Callable[[Floats, NDArray[np.bool_], Floats, Ints], Floats]  # features, wrong or not, features to ask, one of each


def features(teacher: Floats, student: Floats) -> Floats:
    """What the two predictions of a row (n, K) say about an error: (n, 7 + K).

    Both margins, both entropies, the logarithms of the teacher's and the student's probability of the teacher's label,
    whether they agree, and the teacher's label.
    """
    said, n, classes = teacher.argmax(axis=1), len(teacher), teacher.shape[1]
    own = logs(student)[np.arange(n), said]
    numbers = [margin(teacher), entropy(teacher), np.log(teacher.max(axis=1)), margin(student), entropy(student), own]
    return np.column_stack([*numbers, said == student.argmax(axis=1), one_hot(said, classes)])


def learned_error(case: Case, learner: Learner) -> tuple[Floats, Floats]:
    """The chance of an error: of the gold rows, out of fold (m,), and of the unlabeled rows (n,)."""
    known, asked = (features(each["teacher"], each["student"]) for each in (case.validation, case.unlabeled))
    wrong, same = case.wrong, np.arange(len(known)) if case.same is None else case.same
    mean, scale = known.mean(axis=0), known.std(axis=0) + 1e-3
    known, asked = (known - mean) / scale, (asked - mean) / scale

    def answer(learning: Ints, rows: Ints) -> Floats:
        return _learned(learner, known[learning], wrong[learning], known[rows], same[learning])

    return out_of_fold(answer, case.folds), _learned(learner, known, wrong, asked, same)


def neighbors_error(case: Case) -> tuple[Floats, Floats]:
    """The paper's own estimate of the error, from the nearest gold rows: as `learned_error` gives it."""
    seen = case.evidence

    def answer(learning: Ints, rows: Ints) -> Floats:
        part = replace(
            seen,
            validation_labels=seen.validation_labels[learning],
            validation_teacher=seen.validation_teacher[learning],
            validation_student=seen.validation_student[learning],
            teacher=seen.validation_teacher[rows],
            student=seen.validation_student[rows],
            labeled_teacher=None,
            truth=None,
        )
        found = debiased.explain(part).error
        assert found is not None
        return found

    own = debiased.explain(seen).error
    assert own is not None
    return out_of_fold(answer, case.folds), own


def logistic(known: Floats, wrong: NDArray[np.bool_], asked: Floats, once: Ints) -> Floats:
    """Logistic regression, its penalty chosen by cross-validation inside the rows it may see, each asked `once`."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    rows, right_or_not = known[once], wrong[once]
    fewest = int(min(right_or_not.sum(), (~right_or_not).sum()))
    models = [LogisticRegression(C=penalty, max_iter=500) for penalty in (0.01, 0.1, 1.0)]
    if fewest < 3:
        return _chances(models[0].fit(known, wrong), asked)
    parts = min(5, fewest)
    scores = [cross_val_score(each, rows, right_or_not, cv=parts, scoring="neg_log_loss").mean() for each in models]
    return _chances(models[int(np.argmax(scores))].fit(known, wrong), asked)


def boosted(known: Floats, wrong: NDArray[np.bool_], asked: Floats, once: Ints) -> Floats:
    """Gradient-boosted trees, few and shallow."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.07, max_leaf_nodes=7, min_samples_leaf=10, early_stopping=False, random_state=0
    )
    return _chances(model.fit(known, wrong), asked)


def _learned(learner: Learner, known: Floats, wrong: NDArray[np.bool_], asked: Floats, same: Ints) -> Floats:
    """A constant where all rows seen are alike; `same` has one number for rows that are the same."""
    if wrong.all() or not wrong.any():
        return np.full(len(asked), float(wrong[0]))
    return learner(known, wrong, asked, np.sort(np.unique(same, return_index=True)[1]))


def _chances(model: Any, asked: Floats) -> Floats:
    return np.asarray(model.predict_proba(asked)[:, 1], np.float64)
