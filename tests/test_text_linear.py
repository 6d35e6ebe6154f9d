"""Logistic regression on sparse rows: against scikit-learn, against itself on doubled rows, and fold by fold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack

from tests.texts import reviews
from wdistill.core.errors import ConfigError, InputError
from wdistill.methods.crossfit import fit_fold_forests, floored_logs, folds_of
from wdistill.text import linear
from wdistill.text.directions import directions
from wdistill.text.features import fit_features
from wdistill.text.linear import LinearModel, fit_fold_linear, fit_linear


def sparse(rng: np.random.Generator, rows: int, columns: int = 12) -> Any:
    return csr_array(rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.4))


def value(model: LinearModel, rows: Any, targets: Any, weights: Any) -> float:
    """What is minimised."""
    with np.errstate(divide="ignore"):
        logs = np.where(targets > 0, np.log(model(rows)), 0)
    return float(-(weights * (targets * logs).sum(axis=1)).sum() + model.penalty / 2 * (model.coefficients**2).sum())


@pytest.mark.parametrize("dense", [0, 3000])
def test_it_is_that_of_scikit_learn(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setattr(linear, "DENSE", dense)
    rng = np.random.default_rng(0)
    rows, labels, weights = sparse(rng, 60, 90), rng.integers(0, 3, 60), rng.random(60)
    theirs = LogisticRegression(C=1 / 0.3, tol=1e-10, max_iter=5000).fit(rows, labels, weights)
    ours = fit_linear(rows, np.eye(3)[labels], weights, 0.3)
    assert np.allclose(ours(rows), theirs.predict_proba(rows), atol=1e-4)


@given(st.integers(0, 1000), st.integers(2, 4), st.sampled_from([0, 3000]))
@settings(max_examples=20)
def test_no_point_nearby_is_better(seed: int, classes: int, dense: int) -> None:
    before, linear.DENSE = linear.DENSE, dense
    try:
        rng = np.random.default_rng(seed)
        rows, targets, weights = sparse(rng, 10), rng.dirichlet(np.ones(classes), 10), rng.random(10)
        model = fit_linear(rows, targets, weights, 0.2)
    finally:
        linear.DENSE = before
    best = value(model, rows, targets, weights)
    for _ in range(5):
        moved = model.coefficients + 0.01 * rng.normal(size=model.coefficients.shape)
        other = LinearModel(model.columns, moved, model.biases + 0.01 * rng.normal(size=classes), model.seen, classes, 0.2)
        assert value(other, rows, targets, weights) > best - 1e-7


def test_a_weight_is_a_number_of_rows_and_a_target_a_share_of_them() -> None:
    rng = np.random.default_rng(1)
    rows, labels = sparse(rng, 30), rng.integers(0, 3, 30)
    hard = np.eye(3)[labels]
    doubled = fit_linear(vstack([rows, rows[:10]], format="csr"), np.concatenate([hard, hard[:10]]), None, 0.5)
    weighted = fit_linear(rows, hard, 1.0 + (np.arange(30) < 10), 0.5)
    assert np.allclose(doubled(rows), weighted(rows), atol=1e-4)
    other = np.eye(3)[(labels + 1) % 3]
    split = fit_linear(vstack([rows, rows], format="csr"), np.concatenate([hard, other]), np.repeat([0.75, 0.25], 30), 0.5)
    assert np.allclose(split(rows), fit_linear(rows, 0.75 * hard + 0.25 * other, None, 0.5)(rows), atol=1e-4)
    without = fit_linear(rows, hard, np.arange(30) >= 10, 0.5)
    assert np.allclose(without(rows), fit_linear(rows[10:], hard[10:], None, 0.5)(rows), atol=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rows_may_be_equal_or_empty_and_of_any_size(scale: float) -> None:
    rng = np.random.default_rng(6)
    rows = vstack([sparse(rng, 10, 50), csr_array((2, 50))], format="csr") * scale
    rows, targets = vstack([rows, rows], format="csr"), rng.dirichlet([1, 1, 1], 12)
    twice = fit_linear(rows, np.concatenate([targets, targets]), np.full(24, 0.5), 0.3 * scale**2)
    assert np.allclose(twice(rows[:12]), fit_linear(rows[:12], targets, None, 0.3 * scale**2)(rows[:12]), atol=1e-3)


def test_the_same_rows_give_the_same_bits() -> None:
    texts, labels = reviews(80)
    rows = fit_features([texts]).transform(texts)
    models = [fit_linear(rows, np.eye(2)[labels]) for _ in range(2)]
    assert np.array_equal(models[0].coefficients, models[1].coefficients) and models[0].penalty == models[1].penalty
    assert np.array_equal(directions(rows, 5).vectors, directions(rows, 5).vectors)


def test_a_class_without_rows_gets_nothing() -> None:
    rows = sparse(np.random.default_rng(2), 20)
    model = fit_linear(rows, np.eye(4)[np.arange(20) % 2 + 1], None, 1.0)
    assert (model(rows)[:, [0, 3]] == 0).all() and np.allclose(model(rows).sum(axis=1), 1)
    assert (fit_linear(rows, np.eye(3)[np.ones(20, int)])(rows) == np.eye(3)[1]).all()


def test_rows_without_words_are_predicted_by_frequency() -> None:
    targets = np.eye(2)[[0, 0, 0, 1]]
    assert np.allclose(fit_linear(csr_array((4, 7)), targets, None, 1.0)(csr_array((2, 7))), [[0.75, 0.25]] * 2, atol=1e-4)


def test_noise_is_penalised_more_than_what_tells_the_class() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 120)
    noise = csr_array(rng.normal(size=(120, 40)))
    told = csr_array(np.eye(2)[labels])
    targets = np.eye(2)[labels]
    assert fit_linear(noise, targets).penalty == max(linear.PENALTIES)
    assert fit_linear(told, targets).penalty == min(linear.PENALTIES)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"targets": np.full((3, 2), 0.4)}, "no distributions"),
        ({"targets": np.full((3, 2), np.nan)}, "no distributions"),
        ({"weights": [1, -1, 1]}, "not weights"),
        ({"weights": [1, np.inf, 1]}, "not weights"),
        ({"weights": [0, 0, 0]}, "no rows"),
        ({"targets": np.full((2, 2), 0.5)}, "number of rows"),
        ({"penalty": 0.0}, "not a penalty"),
        ({"penalty": []}, "not a penalty"),
        ({"penalty": [1.0, float("nan")]}, "not a penalty"),
    ],
)
def test_what_cannot_be_fitted_is_refused(change: dict[str, Any], what: str) -> None:
    arguments = {"rows": csr_array(np.eye(3)), "targets": np.full((3, 2), 0.5), "weights": None, "penalty": 1.0}
    with pytest.raises((InputError, ConfigError), match=what):
        fit_linear(**{**arguments, **change})


# for gold rows --------------------------------------------------------------------------------------------------------


def test_gold_rows_are_predicted_by_the_model_that_has_not_seen_them() -> None:
    texts, labels = reviews(60, classes=3)
    rows, folds = fit_features([texts]).transform(texts), folds_of(labels)
    expert = fit_fold_linear(None, (rows, labels), folds, 3, 0.1)
    logs = []
    for fold in range(5):
        kept = folds != fold
        model = fit_linear(rows[kept], np.eye(3)[labels[kept]], None, 0.1)
        logs.append(floored_logs(model(rows)))
        part = np.flatnonzero(~kept)
        assert np.allclose(expert.log_probabilities(rows, slice(0, 60))[part], logs[-1][part], atol=1e-3)
    assert np.allclose(expert.log_probabilities(rows), np.mean(logs, axis=0), atol=1e-3)
    assert np.array_equal(expert(rows[10:20], slice(10, 20)), expert(rows, slice(0, 60))[10:20])
    assert np.allclose(expert(rows).sum(axis=1), 1)


def test_labeled_rows_are_in_every_model_and_choose_no_penalty() -> None:
    texts, labels = reviews(60)
    rows, folds = fit_features([texts]).transform(texts), folds_of(labels[20:])
    expert = fit_fold_linear((rows[:20], labels[:20]), (rows[20:], labels[20:]), folds, 2)
    kept = np.concatenate([np.ones(20, bool), folds != 3])
    inner = np.concatenate([np.full(20, -1), folds])[kept]
    alone = fit_linear(rows[kept], np.eye(2)[labels[kept]], None, linear.PENALTIES, inner)
    assert np.allclose(expert.models[3](rows), alone(rows), atol=1e-3) and expert.models[3].penalty == alone.penalty
    none = fit_fold_linear((rows[:0], labels[:0]), (rows, labels), folds_of(labels), 2)
    assert np.array_equal(none(rows), fit_fold_linear(None, (rows, labels), folds_of(labels), 2)(rows))


# main directions ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 10))
@settings(max_examples=20)
def test_directions_are_those_of_the_singular_values(seed: int, k: int) -> None:
    rows = sparse(np.random.default_rng(seed), 9, 7)
    found = directions(rows, k)
    _, values, vectors = np.linalg.svd(rows.toarray())
    many = min(k, len(found.columns) - 1, 6)
    assert found.vectors.shape == (len(found.columns), many) and np.allclose(found.vectors.T @ found.vectors, np.eye(many))
    assert np.allclose(np.linalg.norm(found(rows), axis=0), values[:many])
    apart = values[0] - values[1] > 1e-3  # else the first direction may be any between two
    assert not apart or np.allclose(abs(found(rows)[:, 0]), abs(rows.toarray() @ vectors[0]), atol=1e-6)


@pytest.mark.slow
def test_a_forest_reads_them() -> None:
    texts, labels = reviews(200)
    rows = fit_features([texts]).transform(texts)
    dense, folds = directions(rows, 10)(rows), folds_of(labels)
    forests = fit_fold_forests((dense[:0], labels[:0]), (dense, labels), folds, 2)
    assert (forests(dense, slice(0, 200)).argmax(axis=1) == labels).mean() > 0.6


def test_too_little_for_a_direction_is_refused() -> None:
    for rows in (csr_array((5, 7)), csr_array(np.eye(3)[:1]), csr_array(np.eye(3)[[0, 0]])):
        with pytest.raises(InputError, match="in common"):
            directions(rows)
