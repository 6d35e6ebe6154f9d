"""Students of scikit-learn: soft targets and weights as rows × classes, a `Distiller`, and what would silently go wrong."""

# ruff: noqa: N803, N806 (X and P are the names in scikit-learn's documentation)

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.ensemble._hist_gradient_boosting import gradient_boosting
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, SGDClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from examples import tables
from tests.strategies import SORTS, probabilities
from wdistill.adapters.sklearn import Distiller, expand, fit_student
from wdistill.adapters.table import TargetTable, read_targets
from wdistill.cli import main
from wdistill.core.errors import ConfigError, InputError, WdistillWarning
from wdistill.methods import crossfit
from wdistill.methods.best import supervise_best
from wdistill.methods.context import AuxiliaryPredictions, Context, MethodArm, supervise
from wdistill.methods.crossfit import combine_folds, fit_fold_forests, folds_of, normalized_exp
from wdistill.training.losses import weighted_loss
from wdistill.weights.debiased import debiased
from wdistill.weights.evidence import Evidence
from wdistill.weights.rules import unweighted

REFRESHED = pytest.mark.filterwarnings("ignore:refresh:wdistill.core.errors.WdistillWarning")


class Digits:
    """160 gold rows, 40 labeled ones that the teacher has seen, 500 unlabeled, 600 test rows; the student sees 16 pixels."""

    def __init__(self, seed: int = 0) -> None:
        pixels, self.labels = load_digits(return_X_y=True)
        self.X = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) / 16
        parts = np.split(np.random.default_rng(seed).permutation(len(pixels)), [40, 200, 700, 1300])
        self.labeled, self.gold, self.pool, self.test = parts[:4]
        self.teacher = LogisticRegression(max_iter=500).fit(pixels[self.labeled], self.labels[self.labeled])
        self.P = self.teacher.predict_proba(pixels)

    def rows(self, *parts: np.ndarray) -> tuple[Any, Any, Any]:
        """X, y and teacher of some rows and of the pool, which has no labels."""
        known = np.concatenate(parts)
        rows = np.concatenate([known, self.pool])
        return self.X[rows], np.concatenate([self.labels[known], np.full(len(self.pool), -1)]), self.P[rows]

    def accuracy(self, model: Any) -> float:
        return float(np.mean(model.predict(self.X[self.test]) == self.labels[self.test]))


@pytest.fixture(scope="module")
def digits() -> Digits:
    return Digits()


@pytest.fixture(autouse=True)
def _small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossfit, "TREES", 10)


STUDENT = LogisticRegression(max_iter=300)
FAST = GaussianNB()


# rows × classes -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(2, 6), st.sampled_from(SORTS), st.integers(0, 2**32 - 1))
def test_the_log_loss_of_expanded_rows_is_the_weighted_soft_cross_entropy(n: int, k: int, sort: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets, weight = probabilities(rng, n, k, sort), np.append(rng.random(n - 1), 1.0)
    rows = expand(np.arange(n), targets, weight, negligible=0)
    logits = torch.tensor(rng.normal(size=(n, k)), requires_grad=True)
    reference = weighted_loss(logits, torch.tensor(targets), torch.tensor(weight))
    (wanted,) = torch.autograd.grad(reference, logits)
    each = torch.nn.functional.cross_entropy(logits[rows.X], torch.tensor(rows.y), reduction="none")
    loss = (each * torch.tensor(rows.weight)).sum() / n
    (found,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(reference.item(), abs=1e-6) and torch.allclose(found, wanted, rtol=0, atol=1e-6)
    assert np.array_equal(rows.rows, rows.X) and rows.dropped == 0


@given(st.integers(1, 12), st.integers(2, 6), st.sampled_from(SORTS), st.floats(0, 0.9), st.integers(0, 2**32 - 1))
def test_what_is_negligible_moves_no_target_by_more(n: int, k: int, sort: str, negligible: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets, weight = probabilities(rng, n, k, sort), rng.integers(0, 2, n) * rng.random(n) + (np.arange(n) == 0)
    rows = expand(np.arange(n), targets, weight, negligible=negligible)
    mass = np.zeros((n, k))
    np.add.at(mass, (rows.rows, rows.y), rows.weight)
    assert np.allclose(mass.sum(axis=1), weight) and set(rows.rows) == set(np.flatnonzero(weight))
    moved = [abs(mass[row] / weight[row] - targets[row]).sum() / 2 for row in np.flatnonzero(weight)]
    assert max(moved) <= negligible + 1e-9 and rows.dropped == pytest.approx(max(moved), abs=1e-9)


@pytest.mark.parametrize("negligible", [-0.1, 1.0])
def test_what_is_negligible_is_a_share(negligible: float) -> None:
    with pytest.raises(ConfigError, match="not a share"):
        expand([[1.0]], np.array([[0.5, 0.5]]), negligible=negligible)


@pytest.mark.parametrize("kind", [list, np.asarray, sparse.coo_array, sparse.csc_matrix, "frame"])
def test_inputs_of_every_kind_are_expanded_as_that_kind(kind: Any) -> None:
    if kind == "frame":
        kind = pytest.importorskip("pandas").DataFrame
    rows = expand(kind([[1, 2], [3, 4]]), np.array([[0.5, 0.5], [0.0, 1.0]]), classes=["no", "yes"])
    dense = rows.X.toarray() if hasattr(rows.X, "toarray") else np.asarray(rows.X)
    assert dense.tolist() == [[1, 2], [1, 2], [3, 4]] and rows.y.tolist() == ["no", "yes", "yes"] and rows.twins


def test_frames_of_numbers_are_targets_whatever_their_columns_are_named() -> None:
    frame = pd.DataFrame({"table": [0.9, 0.2], "schema": [0.1, 0.8]})
    assert expand(frame, frame, negligible=0).weight.tolist() == [0.9, 0.1, 0.2, 0.8]


def test_a_table_is_expanded_with_its_weights_and_names() -> None:
    table = TargetTable(np.array(["a", "b"]), np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([0.5, 0.0]), ("no", "yes"))
    rows = expand(["x", "y"], table)
    assert (rows.X, rows.y.tolist(), rows.weight.tolist()) == (["x", "x"], ["no", "yes"], [0.125, 0.375])


# the same as the core -------------------------------------------------------------------------------------------------


def reference_context(digits: Digits, seen: bool, seed: int) -> Context:
    """What `Distiller` knows of gold and pool, made here step by step."""
    gold, labels, own = digits.gold, digits.labels[digits.gold], digits.labels[digits.labeled]
    folds = folds_of(labels, seed=seed)
    if seen:
        student = clone(STUDENT).set_params(random_state=seed).fit(digits.X[digits.labeled], own)
        of_gold, of_pool = student.predict_proba(digits.X[gold]), student.predict_proba(digits.X[digits.pool])
    else:
        models = [clone(STUDENT).fit(digits.X[gold[folds != fold]], labels[folds != fold]) for fold in range(5)]
        predicted = [np.stack([m.predict_proba(digits.X[part]) for m in models]) for part in (gold, digits.pool)]
        of_gold, of_pool = (normalized_exp(combine_folds(p, f)) for p, f in zip(predicted, (folds, None), strict=True))
    labeled = digits.labeled if seen else digits.labeled[:0]
    forest = fit_fold_forests((digits.X[labeled], digits.labels[labeled]), (digits.X[gold], labels), folds, 10, seed)
    auxiliary = {"forest": AuxiliaryPredictions(forest(digits.X[gold], slice(None)), forest(digits.X[digits.pool]))}
    evidence = Evidence(labels, digits.P[gold], of_gold, digits.P[digits.pool], of_pool)
    return Context(evidence, auxiliary, seed=seed, gold_alone=not seen)


@pytest.mark.parametrize(("method", "seen", "seed"), [("best", False, 0), ("best", True, 3), ("paper", False, 0)])
def test_targets_and_weights_are_those_of_the_core(digits: Digits, method: str, seen: bool, seed: int) -> None:
    X, y, P = digits.rows(digits.gold, digits.labeled) if seen else digits.rows(digits.gold)
    mask = np.arange(len(y)) >= len(digits.gold)
    model = Distiller(STUDENT, method, random_state=seed).fit(X, y, teacher=P, seen_by_teacher=mask if seen else None)
    context = reference_context(digits, seen, seed)
    pool = y == -1
    if method == "best":
        targets, weight = supervise_best(context).targets, np.ones(pool.sum())
    else:
        targets, weight = context.unlabeled["teacher"], debiased(context.evidence)
        assert weight.min() < 0.9
    assert np.array_equal(model.targets_[pool], targets) and np.array_equal(model.weight_[pool], weight)
    assert np.array_equal(model.targets_[~pool], np.eye(10)[y[~pool]]) and (model.weight_[~pool] == 1).all()
    trained = fit_student(STUDENT, X, model.targets_, model.weight_, seed=seed)
    assert np.array_equal(trained.coef_, model.student_.coef_)


def test_it_learns_better_than_from_labels_alone_and_than_from_the_teacher_as_it_is() -> None:
    gains = []
    for seed in range(3):
        data = Digits(seed)
        X, y, P = data.rows(data.gold)
        best, plain = (data.accuracy(Distiller(STUDENT, m).fit(X, y, teacher=P)) for m in ("best", unweighted))
        labels = data.accuracy(clone(STUDENT).fit(data.X[data.gold], data.labels[data.gold]))
        gains.append((best - labels, best - plain))
    assert (np.mean(gains, axis=0) > 0.01).all()


def test_the_verdict_names_rows_to_label_next(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)
    model = Distiller(STUDENT).fit(X, y, teacher=P, ids=[f"row {i}" for i in range(len(y))])
    assert model.advice_.verdict.startswith("correct the targets") and model.advice_.gold == len(digits.gold)
    assert (y[model.advice_.next] == -1).all()
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict(X), model.predict(X)) and copy.advice_.verdict == model.advice_.verdict
    assert model.table_.select(["row 3"]).targets.tolist() == [model.targets_[3].tolist()]


# an estimator like others ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_it_passes_the_checks_of_scikit_learn() -> None:
    marks = {"check_classifiers_classes": "its classes are −1 and 1, and −1 marks unlabeled rows"}
    found = check_estimator(Distiller(LogisticRegression()), expected_failed_checks=marks, on_skip=None, on_fail="raise")
    assert len([each for each in found if each["status"] == "passed"]) > 40


def test_without_unlabeled_rows_it_is_the_student(digits: Digits) -> None:
    X, y = digits.X[digits.gold], digits.labels[digits.gold]
    model = Distiller(STUDENT).fit(X, y)
    assert np.array_equal(model.student_.coef_, clone(STUDENT).fit(X, y).coef_) and not hasattr(model, "advice_")
    with pytest.warns(WdistillWarning, match="no row is unlabeled"):
        Distiller(FAST).fit(X, y, teacher=digits.P[digits.gold])


def texts(rng: np.random.Generator, n: int) -> tuple[list[str], np.ndarray]:
    labels = rng.integers(0, 2, n)
    words = np.array([[f"{side}{i}" for i in range(40)] for side in ("good", "bad")])
    noisy = np.where(rng.random((n, 6)) < 0.7, labels[:, None], 1 - labels[:, None])
    return [" ".join(words[side, rng.integers(0, 40, 6)]) for side in noisy], labels


@pytest.mark.parametrize("inside", [False, True], ids=["in front", "in the student"])
def test_texts_are_read_by_a_vectorizer(inside: bool) -> None:
    rng = np.random.default_rng(0)
    said, labels = texts(rng, 1200)
    y = np.where(np.arange(1200) < 100, labels, -1)[:900]
    right = np.clip(0.7 + 0.2 * rng.normal(size=1200), 0.05, 0.95)
    P = np.stack([np.where(labels == c, right, 1 - right) for c in (0, 1)], axis=1)
    if inside:
        model: Any = Distiller(make_pipeline(TfidfVectorizer(), LogisticRegression()))
        model.fit(said[:900], y, teacher=P[:900])
        vectorizer, known = model.student_[0], Distiller.__name__
    else:
        model = make_pipeline(TfidfVectorizer(), Distiller(LogisticRegression()))
        model.fit(said[:900], y, distiller__teacher=P[:900])
        vectorizer, known = model[0], "forest"
        assert known in model[-1].context_.auxiliary
    assert np.array_equal(vectorizer.idf_, TfidfVectorizer().fit(said[:900]).idf_)
    labels_alone = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(said[:100], labels[:100])
    assert model.score(said[900:], labels[900:]) > labels_alone.score(said[900:], labels[900:]) + 0.03


@pytest.mark.parametrize("routing", [False, True])
def test_a_grid_search_passes_the_teacher_along_and_chooses_by_rows_with_a_label(digits: Digits, routing: bool) -> None:
    X, y, P = digits.rows(digits.gold)
    with sklearn.config_context(enable_metadata_routing=routing):
        model = Distiller(LogisticRegression(max_iter=300), unweighted)
        asked = model.set_fit_request(teacher=True) if routing else model
        search = GridSearchCV(asked, {"student__C": [1e-6, 1.0]}, cv=2, error_score="raise").fit(X, y, teacher=P)
        naive = GridSearchCV(asked, {"student__C": [1.0]}, cv=2, scoring="accuracy", error_score="raise").fit(
            X, y, teacher=P
        )
    assert search.best_params_ == {"student__C": 1.0} and search.best_score_ > 0.6  # 3 of 4 rows have no label
    assert naive.best_score_ < 0.25  # and count as errors
    assert digits.accuracy(search) > 0.7


@pytest.mark.parametrize("mark", [None, np.nan, -1, "NA"])
def test_texts_as_classes_are_marked_as_anybody_marks_them(digits: Digits, mark: Any) -> None:
    mark = pytest.importorskip("pandas").NA if mark == "NA" else mark
    X, y, P = digits.rows(digits.gold)
    names = np.array([f"digit {i}" for i in range(10)], object)
    given = names[y]
    given[y == -1] = mark
    model, numbered = (Distiller(FAST, unweighted).fit(X, each, teacher=P) for each in (given, y))
    assert model.classes_.tolist() == names.tolist() and np.array_equal(model.targets_, numbered.targets_)
    assert np.array_equal(model.predict(X), names[numbered.predict(X)])
    assert model.score(X, given) == numbered.score(X, y)


@pytest.mark.parametrize("mark", [None, np.nan, -1])
def test_a_grid_search_over_texts_with_marks_needs_splits_that_look_at_no_label(digits: Digits, mark: Any) -> None:
    X, y, P = digits.rows(digits.gold)
    given = np.array([f"digit {i}" for i in range(10)], object)[y]
    given[y == -1] = mark
    grid = Distiller(FAST, unweighted), {"student__var_smoothing": [1e-9, 1e-3]}
    with pytest.raises((TypeError, ValueError)):
        GridSearchCV(*grid, cv=3, error_score="raise").fit(X, given, teacher=P)
    search = GridSearchCV(*grid, cv=KFold(3, shuffle=True, random_state=0), error_score="raise").fit(X, given, teacher=P)
    assert search.best_score_ > 0.6


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a pipeline"])
def test_columns_in_another_order_than_the_table_s_are_told(inside: bool) -> None:
    """Names of numbers, sorted as text: 1, 10, 2."""
    names, X = ("1", "2", "10"), np.repeat(np.eye(3), 5, axis=0)
    table = TargetTable(np.arange(15), X * 0.8 + (1 - X) * 0.1, np.ones(15), names)
    student = make_pipeline(StandardScaler(), FAST) if inside else FAST
    with pytest.warns(WdistillWarning, match=r"classes_ \(1, 10, 2\) .* \(1, 2, 10\): read .* through classes_") as told:
        model = fit_student(student, X, table)
    assert len(told) == 1 and told[0].filename == __file__
    likeliest, right = model.predict_proba(X).argmax(axis=1), np.repeat(names, 5)
    assert (np.array(names)[likeliest] != right).any() and (model.classes_[likeliest] == right).all()


def test_a_class_that_no_row_is_taught_is_told_as_a_column_that_is_missing() -> None:
    X = np.repeat(np.eye(2), 5, axis=0)
    with pytest.warns(WdistillWarning, match=r"classes_ \(0, 2\) .* \(0, 1, 2\)"):
        assert fit_student(FAST, X, X @ np.eye(3)[[0, 2]]).predict_proba(X).shape == (10, 2)


@pytest.mark.parametrize("mark", [-1, np.nan])
def test_marks_that_numpy_turned_into_texts_are_refused(mark: Any) -> None:
    naive = FAST.fit(np.zeros((3, 1)), np.array(["a", "b", mark]))
    assert str(mark) in naive.classes_  # a class like others
    with pytest.raises(InputError, match="dtype=object"):
        Distiller(FAST).fit(np.zeros((3, 1)), np.array(["a", "b", mark]))


def test_the_columns_of_the_teacher_may_be_named(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)
    order = np.random.default_rng(0).permutation(10)
    usual = Distiller(FAST, unweighted).fit(X, y, teacher=P)
    named = Distiller(FAST, unweighted, teacher_classes=order).fit(X, y, teacher=P[:, order])
    assert np.array_equal(usual.targets_, named.targets_) and np.array_equal(usual.predict_proba(X), named.predict_proba(X))
    kept = y != 3  # no row of this class has a label
    with pytest.raises(InputError, match="teacher_classes"):
        Distiller(FAST, unweighted).fit(X[kept], y[kept], teacher=P[kept])
    model = Distiller(FAST, unweighted, teacher_classes=range(10)).fit(X[kept], y[kept], teacher=P[kept])
    assert model.predict_proba(X).shape == (len(X), 10) and (model.predict(X) == 3).any()


def test_named_columns_of_the_teacher_in_another_order_are_refused(digits: Digits) -> None:
    """The naive frame: by position, each column would be another class's."""
    X, y, P = digits.rows(digits.gold)
    frame, order = pd.DataFrame(P, columns=range(10)), [*range(9, -1, -1)]
    plain = Distiller(FAST, unweighted).fit(X, y, teacher=P)
    assert np.array_equal(Distiller(FAST, unweighted).fit(X, y, teacher=frame).targets_, plain.targets_)
    naive = Distiller(FAST, unweighted).fit(X, y, teacher=frame[order].to_numpy())
    assert not np.allclose(naive.targets_, plain.targets_)
    with pytest.raises(InputError, match=r"(?s)its columns are in another order.*9, 8, .*teacher\[\[0, 1"):
        Distiller(FAST, unweighted).fit(X, y, teacher=frame[order])
    named = Distiller(FAST, unweighted, teacher_classes=order).fit(X, y, teacher=frame[order])
    assert np.array_equal(named.targets_, plain.targets_)
    with pytest.raises(InputError, match="another order"):
        Distiller(FAST, unweighted, teacher_classes=order).fit(X, y, teacher=frame)


def test_a_file_that_is_not_read_and_labels_are_refused_before_anything_is_fitted(digits: Digits) -> None:
    X, y, _ = digits.rows(digits.gold)
    for told, fit in (
        ("read_targets", lambda wrong: fit_student(make_pipeline(MinMaxScaler(), FAST), X, wrong)),
        ("for fit_student, not for Distiller", lambda wrong: Distiller(FAST).fit(X, y, teacher=wrong)),
    ):
        with pytest.raises(ConfigError, match=told):
            fit("targets.parquet")
        with pytest.raises(InputError, match="one value a row"):
            fit(y)


def test_gold_that_stands_elsewhere_too_is_told(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold, digits.labeled)
    seen = np.arange(len(y)) >= len(digits.gold)
    twice = [np.concatenate([part, part[:20]]) for part in (X, y, P)]  # gold rows, as if the teacher had seen them too
    seen = np.concatenate([seen & (y >= 0), np.ones(20, bool)])
    model = Distiller(FAST).fit(twice[0], twice[1], teacher=twice[2], seen_by_teacher=seen)
    assert any("20 of 160 gold rows are among the labeled rows" in each.text for each in model.advice_.concerns)


def test_groups_share_a_fold(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)
    groups = np.where(y == -1, None, (np.arange(len(y)) // 4).astype(object))  # of the pool nobody knows them
    context = Distiller(FAST).fit(X, y, teacher=P, groups=groups).context_
    assert all(len({*context.folds[groups[: len(digits.gold)] == group]}) == 1 for group in range(40))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher": None}, "nobody labels the unlabeled rows"),
        ({"teacher": np.ones((5, 10)) / 10}, "differ in their number of rows"),
        ({"seen_by_teacher": "all"}, "too few gold rows"),
        ({"seen_by_teacher": [0, 1]}, "not a mask"),
        ({"groups": [1, 2]}, "differ in their number of rows"),
        ({"ids": [1, 2]}, "differ in their number of rows"),
    ],
)
def test_what_makes_no_sense_is_refused(digits: Digits, change: dict[str, Any], message: str) -> None:
    X, y, P = digits.rows(digits.gold)
    given = {"teacher": P, **change}
    if change.get("seen_by_teacher") == "all":
        given["seen_by_teacher"] = np.ones(len(y), bool)
    with pytest.raises(InputError, match=message):
        Distiller(FAST).fit(X, y, **given)


def test_unknown_methods_and_methods_for_other_trainers_are_refused(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)

    def robust(context: Context) -> Any:
        return supervise(context.unlabeled["teacher"], context, loss=lambda logits, targets, rows: logits[:, 0])

    for method, message in (("pepar", "paper"), (MethodArm("robust", robust), "no student of scikit-learn has")):
        with pytest.raises(ConfigError, match=message):
            Distiller(FAST, method).fit(X, y, teacher=P)
    with pytest.raises(ConfigError, match="student's probabilities"):
        Distiller(LinearSVC(), "paper").fit(X, y, teacher=P)
    model = Distiller(LinearSVC(), "best").fit(X, y, teacher=P)
    assert not hasattr(model, "predict_proba") and digits.accuracy(model) > 0.7


# traps ----------------------------------------------------------------------------------------------------------------


def test_balanced_class_weights_balance_mass_where_scikit_learn_counts_expanded_rows() -> None:
    """Every row is nine tenths of one class, and makes one row of each: counted, the classes are even; by mass, 9 to 1."""
    X, targets = np.zeros((100, 1)), np.tile([0.9, 0.1], (100, 1))
    student = HistGradientBoostingClassifier(class_weight="balanced", max_iter=5)
    rows = expand(X, targets)
    naive = clone(student).fit(rows.X, rows.y, sample_weight=rows.weight)
    assert naive.predict_proba(X[:1]) == pytest.approx(np.array([[0.9, 0.1]]), abs=0.01)
    assert fit_student(student, X, targets).predict_proba(X[:1]) == pytest.approx(np.array([[0.5, 0.5]]), abs=0.01)


def test_class_weights_that_cannot_be_balanced_by_mass_are_refused() -> None:
    student = BaggingClassifier(LogisticRegression(class_weight="balanced"))
    with pytest.raises(ConfigError, match="estimator__class_weight"):
        fit_student(student, np.zeros((2, 1)), np.array([[0.5, 0.5], [0.2, 0.8]]))


def test_early_stopping_judges_on_whole_rows_where_scikit_learn_splits_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    X, targets = np.arange(400.0)[:, None], np.random.default_rng(0).dirichlet([1, 1], 400)
    student, rows = HistGradientBoostingClassifier(early_stopping=True, max_iter=3), expand(X, targets)
    halves = list[list[set[float]]]()

    def split(*arrays: Any, **options: Any) -> Any:
        parts = train_test_split(*arrays, **options)
        halves.append([{*part.ravel()} for part in parts[:2]])
        return parts

    monkeypatch.setattr(gradient_boosting, "train_test_split", split)
    clone(student).fit(rows.X, rows.y, sample_weight=rows.weight)
    assert len(halves[0][0] & halves[0][1]) > 50  # learned from and judged on

    def fit(self: Any, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, sample_weight_val: Any) -> Any:
        halves.append([{*X.ravel()}, {*X_val.ravel()}])
        mass = [sum(sample_weight), sum(sample_weight_val)]
        assert mass == pytest.approx([360, 40])
        return original(self, X, y, sample_weight, X_val=X_val, y_val=y_val, sample_weight_val=sample_weight_val)

    original = HistGradientBoostingClassifier.fit
    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", fit)
    model = fit_student(student, X, targets)
    assert not halves[1][0] & halves[1][1] and model.do_early_stopping_ and len(halves) == 2


def test_automatic_early_stopping_goes_by_the_number_of_rows_where_scikit_learn_counts_twins() -> None:
    X, targets = np.arange(6000.0)[:, None], np.tile([0.6, 0.4], (6000, 1))
    student, rows = HistGradientBoostingClassifier(max_iter=1), expand(X, targets)
    assert clone(student).fit(rows.X, rows.y, sample_weight=rows.weight).do_early_stopping_
    assert not fit_student(student, X, targets).do_early_stopping_


@pytest.mark.parametrize(
    "student",
    [
        MLPClassifier(early_stopping=True),
        SGDClassifier(loss="log_loss", early_stopping=True),
        GradientBoostingClassifier(n_iter_no_change=3),
        LogisticRegressionCV(cv=3, use_legacy_attributes=False, l1_ratios=(0,)),
        GridSearchCV(LogisticRegression(), {"C": [1.0]}),
        CalibratedClassifierCV(LogisticRegression()),
        BaggingClassifier(SGDClassifier(early_stopping=True)),
        make_pipeline(StandardScaler(), MLPClassifier(early_stopping=True)),
        RandomForestClassifier(oob_score=True),
        SVC(probability=True),
    ],
    ids=lambda student: type(student).__name__,
)
def test_students_that_split_twins_are_refused(student: Any) -> None:
    X, targets = np.arange(20.0)[:, None], np.tile([0.6, 0.4], (20, 1))
    with pytest.raises(ConfigError, match="judge itself on its twin"):
        fit_student(student, X, targets)


def noisy_rows() -> tuple[np.ndarray, np.ndarray]:
    """Rows whose class is that of the side they lie on, as their targets say to 70 %."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    return X, np.where(X[:, :1] > 0, [0.7, 0.3], [0.3, 0.7])


def test_cross_validation_judges_on_twins_of_rows_it_has_learned() -> None:
    """A tree that knows rows by heart knows one twin's class, which is not the other's: it seems worse than it is."""
    X, targets = noisy_rows()
    rows, student = expand(X, targets), DecisionTreeClassifier(random_state=0)
    fit, folds = {"params": {"sample_weight": rows.weight}}, KFold(5, shuffle=True, random_state=0)
    naive = cross_val_score(student, rows.X, rows.y, cv=folds, **fit).mean()
    whole = cross_val_score(student, rows.X, rows.y, cv=GroupKFold(5), groups=rows.rows, **fit).mean()
    assert whole == pytest.approx(0.5, abs=0.01)  # of two twins one is right
    assert naive < 0.2


def test_rows_out_of_the_bag_are_twins_of_rows_in_it() -> None:
    X, targets = noisy_rows()
    rows, student = expand(X, targets), RandomForestClassifier(50, oob_score=True, random_state=0)
    naive = student.fit(rows.X, rows.y, sample_weight=rows.weight)
    assert naive.oob_score_ < 0.35 < naive.score(X, targets.argmax(axis=1))


@pytest.mark.filterwarnings("ignore:.*probability.*:FutureWarning")
def test_probabilities_of_a_support_vector_machine_are_fitted_on_twins() -> None:
    """Its cross-validation does not look at weights: two twins are one row of each class."""
    X, targets = np.linspace(-1, 1, 100)[:, None], np.tile([0.9, 0.1], (100, 1))
    rows = expand(X, targets)
    naive = SVC(probability=True, random_state=0).fit(rows.X, rows.y, sample_weight=rows.weight)
    assert naive.predict_proba(X)[:, 0].mean() < 0.7
    ours = fit_student(LogisticRegression(), X, targets).predict_proba(X)[:, 0].mean()
    assert ours == pytest.approx(0.9, abs=0.02)


def test_with_one_class_a_row_there_are_no_twins_and_no_weights_are_needed(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)
    for student in (GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2), KNeighborsClassifier(3)):
        model = Distiller(student, targets="hard").fit(X, y, teacher=P)
        assert set(np.unique(model.targets_)) == {0.0, 1.0} and digits.accuracy(model) > 0.7
    with pytest.raises(ConfigError, match="takes no weights"):
        Distiller(KNeighborsClassifier(3)).fit(X, y, teacher=P)


def test_transformers_in_a_student_read_every_row_once_where_expanded_rows_would_count_twice() -> None:
    X, targets = np.array([[0.0], [1.0], [5.0]]), np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    student, rows = make_pipeline(StandardScaler(), LogisticRegression()), expand(X, targets)
    naive = clone(student).fit(rows.X, rows.y, logisticregression__sample_weight=rows.weight)
    assert naive[0].mean_ == pytest.approx([7 / 5]) and fit_student(student, X, targets)[0].mean_ == pytest.approx([2.0])


# refreshed weights ----------------------------------------------------------------------------------------------------


@REFRESHED
def test_weights_are_estimated_again_after_an_epoch_by_the_rule_and_the_student_as_it_is(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)
    student = SGDClassifier(loss="log_loss", random_state=1)
    once, first, second = (Distiller(student, "paper", refresh=r).fit(X, y, teacher=P) for r in (None, 1, 2))
    assert np.array_equal(once.weight_, first.weight_)
    known, model = y >= 0, first.student_  # after one epoch
    evidence = replace(
        first.context_.evidence, validation_student=model.predict_proba(X[known]), student=model.predict_proba(X[~known])
    )
    assert np.array_equal(second.weight_[~known], debiased(evidence)) and (second.weight_[known] == 1).all()
    assert not np.array_equal(second.weight_, first.weight_)


def test_refreshing_warns_of_gold_that_is_memorised_and_learns(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)
    student = make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", alpha=0.01))
    with pytest.warns(WdistillWarning, match="memorised gold rows"):
        model = Distiller(student, "paper", refresh=10).fit(X, y, teacher=P)
    assert digits.accuracy(model) > 0.7 and model.predict_proba(X).shape == (len(X), 10)


@REFRESHED
def test_what_cannot_be_refreshed_is_refused(digits: Digits) -> None:
    X, y, P = digits.rows(digits.gold)
    for student, method, refresh in ((FAST, "best", 3), (FAST, "paper", 0), (LogisticRegression(), "paper", 3)):
        with pytest.raises(ConfigError, match="refresh"):
            Distiller(student, method, refresh=refresh).fit(X, y, teacher=P)


# from a file ----------------------------------------------------------------------------------------------------------


def test_a_student_is_trained_from_the_file_that_weigh_wrote(tmp_path: Path) -> None:
    tables.main(tmp_path)
    out = tmp_path / "targets.parquet"
    named = [f"--{name}={tmp_path / name}.parquet" for name in ("unlabeled", "labeled")]
    options = ["--method=best", "--inputs=pixels", f"--validation={tmp_path / 'gold.parquet'}", f"--output={out}"]
    assert main(["weigh", *named, *options]) == 0
    pixels, labels = load_digits(return_X_y=True)
    small = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) / 16
    table = read_targets(out, gold=tmp_path / "gold.parquet")
    student = fit_student(STUDENT, small[table.ids.astype(int)], table)
    gold = np.random.default_rng(0).permutation(len(labels))[80:380]
    alone = clone(STUDENT).fit(small[gold], labels[gold])
    assert student.score(small, labels.astype(student.classes_.dtype)) > alone.score(small, labels) + 0.01
