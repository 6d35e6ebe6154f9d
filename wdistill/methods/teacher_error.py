"""The chance that the teacher is wrong, learned from more features than two confidences, always cross-fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.context import Context, one_hot
from wdistill.methods.crossfit import Ints, floored_logs, out_of_fold
from wdistill.methods.gold_design import GoldDesign
from wdistill.methods.groups import numbered, sums
from wdistill.weights.confidence import Floats, entropy, margin
from wdistill.weights.debiased import debiased
from wdistill.weights.diagnostics import Bin, Reliability, reliability, standard_error

Learner = Callable[[Floats, NDArray[np.bool_], Floats, Ints], Floats]  # features, errors, features to predict, distinct rows


def features(teacher: Floats, student: Floats) -> Floats:
    """Features of the teacher's and the student's predictions (n, K) for detecting errors: (n, 7 + K).

    Both margins, both entropies, the logarithms of the teacher's and the student's probability of the teacher's label,
    whether they agree, and the teacher's label.
    """
    label, n, classes = teacher.argmax(axis=1), len(teacher), teacher.shape[1]
    student_log = floored_logs(student)[np.arange(n), label]
    numbers = [
        margin(teacher),
        entropy(teacher),
        np.log(teacher.max(axis=1)),
        margin(student),
        entropy(student),
        student_log,
    ]
    return np.column_stack([*numbers, label == student.argmax(axis=1), one_hot(label, classes)])


def learned_error(context: Context, learner: Learner) -> tuple[Floats, Floats]:
    """The chance of an error: of the gold rows, out of fold (m,), and of the unlabeled rows (n,)."""
    gold, unlabeled = (
        features(experts["teacher"], experts["student"]) for experts in (context.validation, context.unlabeled)
    )
    wrong, same = context.wrong, np.arange(len(gold)) if context.same is None else context.same
    mean, scale = gold.mean(axis=0), gold.std(axis=0) + 1e-3
    gold, unlabeled = (gold - mean) / scale, (unlabeled - mean) / scale

    def fit_and_predict(train: Ints, test: Ints) -> Floats:
        return _fit_predict(learner, gold[train], wrong[train], gold[test], same[train])

    return out_of_fold(fit_and_predict, context.folds), _fit_predict(learner, gold, wrong, unlabeled, same)


def neighbors_error(context: Context) -> tuple[Floats, Floats]:
    """The paper's own estimate of the error, from the nearest gold rows: as `learned_error` gives it."""
    evidence = context.evidence
    _, student = evidence.both_on_validation

    def fit_and_predict(train: Ints, test: Ints) -> Floats:
        part = replace(
            evidence,
            validation_labels=evidence.validation_labels[train],
            validation_teacher=evidence.validation_teacher[train],
            validation_student=student[train],
            teacher=evidence.validation_teacher[test],
            student=student[test],
            labeled_teacher=None,
            truth=None,
        )
        error = debiased.explain(part).error
        assert error is not None
        return error

    unlabeled_error = debiased.explain(evidence).error
    assert unlabeled_error is not None
    return out_of_fold(fit_and_predict, context.folds), unlabeled_error


def logistic(inputs: Floats, wrong: NDArray[np.bool_], queries: Floats, distinct: Ints) -> Floats:
    """Logistic regression, its penalty chosen by cross-validation on the `distinct` training rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    rows, errors = inputs[distinct], wrong[distinct]
    fewest = int(min(errors.sum(), (~errors).sum()))
    models = [LogisticRegression(C=penalty, max_iter=500) for penalty in (0.01, 0.1, 1.0)]
    if fewest < 3:
        return _chances(models[0].fit(inputs, wrong), queries)
    folds = min(5, fewest)
    scores = [cross_val_score(model, rows, errors, cv=folds, scoring="neg_log_loss").mean() for model in models]
    return _chances(models[int(np.argmax(scores))].fit(inputs, wrong), queries)


def boosted(inputs: Floats, wrong: NDArray[np.bool_], queries: Floats, distinct: Ints) -> Floats:
    """Gradient-boosted trees, few and shallow."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.07, max_leaf_nodes=7, min_samples_leaf=10, early_stopping=False, random_state=0
    )
    return _chances(model.fit(inputs, wrong), queries)


def _fit_predict(learner: Learner, inputs: Floats, wrong: NDArray[np.bool_], queries: Floats, same: Ints) -> Floats:
    """The learner's predictions; a constant where all rows are right or all wrong. `same`: one number per distinct row."""
    if wrong.all() or not wrong.any():
        return np.full(len(queries), float(wrong[0]))
    return learner(inputs, wrong, queries, np.sort(np.unique(same, return_index=True)[1]))


def _chances(model: Any, inputs: Floats) -> Floats:
    return np.asarray(model.predict_proba(inputs)[:, 1], np.float64)


BINS = 5  # of equally many gold rows


@dataclass(frozen=True)
class Detector:
    """A detector of the teacher's errors: how well it ranks them, and how well its probabilities are calibrated."""

    name: str
    auc: float  # probability that a wrong row scores above a right one; NaN where all are right or all wrong
    auc_error: float  # its standard error
    bins: tuple[Bin, ...]  # mean predicted probability of being right, against how often the teacher was right
    calibration_error: float  # mean distance of the two over the rows


def detectors(context: Context, errors: Mapping[str, Floats], posterior: Floats) -> tuple[Detector, ...]:
    """Detectors: the teacher's margin, estimated errors (m,) by name, and the posterior (m, K) of all experts."""
    teacher, wrong = context.validation["teacher"], context.wrong
    m, label = len(wrong), teacher.argmax(axis=1)
    certain = 1.0 - teacher.max(axis=1)  # the teacher's own estimate of its error
    doubt = 1.0 - posterior[np.arange(m), label]
    return (
        _finder("teacher's margin", -margin(teacher), certain, wrong, context.design),
        *(_finder(name, chances, chances, wrong, context.design) for name, chances in errors.items()),
        _finder("corrected targets", doubt, doubt, wrong, context.design),
    )


def area(high: Floats, low: Floats) -> tuple[float, float]:
    """The chance that a value of the first sample (a,) is larger than one of the second (b,), ties half; its standard error.

    DeLong et al. (1988): from the variance of each row's share of the other sample that it exceeds.
    """
    from scipy.stats import rankdata

    a, b = len(high), len(low)
    if a == 0 or b == 0:
        return float("nan"), float("nan")
    ranks = rankdata(np.concatenate([high, low]))
    beats = (ranks[:a] - rankdata(high)) / b
    beaten = 1.0 - (ranks[a:] - rankdata(low)) / a
    spread = sum(float(shares.var(ddof=1)) / len(shares) if len(shares) > 1 else 0.25 for shares in (beats, beaten))
    return float(beats.mean()), float(np.sqrt(spread))


def weighted_area(scores: Floats, high: NDArray[np.bool_], design: GoldDesign) -> tuple[float, float]:
    """The same for scores (m,) of gold rows, of which `high` (m,) are the first sample, as the rows were drawn."""
    weights = np.ones(len(scores)) if design.weights is None else design.weights
    groups = None if design.groups is None else numbered(design.groups, len(scores))
    if high.all() or not high.any():
        return float("nan"), float("nan")
    beaten = np.where(high, _weight_below(scores, ~high, weights), 1.0 - _weight_below(scores, high, weights))
    parts = [np.where(side, weights / weights[side].sum(), 0.0) for side in (high, ~high)]
    auc = float(parts[0] @ beaten)
    moved = sums(((parts[0] + parts[1]) * (beaten - auc))[:, None], groups)[:, 0]
    return auc, float(np.sqrt(moved @ moved * len(moved) / max(len(moved) - 1, 1)))


def _weight_below(scores: Floats, others: NDArray[np.bool_], weights: Floats) -> Floats:
    """For every score (m,) the share of the weight of `others` (m,) that is below it, ties half."""
    order = np.argsort(scores[others], kind="stable")
    known, total = scores[others][order], np.concatenate([[0.0], np.cumsum(weights[others][order])])
    ends = [total[np.searchsorted(known, scores, side)] for side in ("left", "right")]
    return np.asarray((ends[0] + ends[1]) / (2 * total[-1]))


def weighted_reliability(certainty: Floats, wrong: NDArray[np.bool_], weights: Floats, bins: int) -> Reliability:
    """Calibration, certainty (m,) and wrong (m,), in bins of equal weight (m,) as far as ties allow."""
    below = _weight_below(certainty, np.ones(len(certainty), bool), weights)
    place, found, masses = np.minimum((below * bins).astype(np.int64), bins - 1), list[Bin](), list[float]()
    for number in np.unique(place):
        at = place == number
        own, w = certainty[at], weights[at]
        mean, right = (float(np.average(values, weights=w)) for values in (own, ~wrong[at]))
        rows = float(w.sum() ** 2 / np.square(w).sum())
        ends = float(own.min()), float(own.max())
        found.append(Bin(*ends, mean, int(at.sum()), right, standard_error(right * rows, rows)))
        masses.append(float(w.sum()))
    gaps = [abs(each.mean - each.accuracy) for each in found]
    return Reliability(tuple(found), float(np.average(gaps, weights=masses)))


def _finder(name: str, scores: Floats, chances: Floats, wrong: NDArray[np.bool_], design: GoldDesign) -> Detector:
    auc, error = area(scores[wrong], scores[~wrong]) if design.even else weighted_area(scores, wrong, design)
    curve = (
        reliability(1.0 - chances, wrong, BINS)
        if design.weights is None
        else weighted_reliability(1.0 - chances, wrong, design.weights, BINS)
    )
    return Detector(name, auc, error, curve.bins, curve.error)
