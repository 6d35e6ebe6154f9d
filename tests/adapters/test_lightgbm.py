"""LightGBM on soft targets with weights: against its own objectives on rows × classes, and against the naive ways."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tests.adapters import trees
from tests.adapters.answers import Answers, answers
from wdistill import ConfigError, InputError
from wdistill.adapters.lightgbm import METRIC, SoftLGBMClassifier
from wdistill.adapters.soft_trees import cross_entropy, derivatives, initial_scores, probabilities
from wdistill.adapters.table import TargetTable

QUIET: dict[str, Any] = {"verbosity": -1, "n_jobs": 1, "deterministic": True, "random_state": 0}
FREE = QUIET | {"min_child_samples": 1, "num_leaves": 8, "n_estimators": 5}  # no limit that counts rows
student = partial(SoftLGBMClassifier, **FREE)
both = pytest.mark.parametrize("classes", [2, 3])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return answers(tmp_path_factory.mktemp("answers"), classes=10)


def native(inputs: Any, labels: Any, weight: Any, objective: str, **params: Any) -> Any:
    """LightGBM's own objective."""
    data = lightgbm.Dataset(inputs, labels, weight=weight)
    return lightgbm.train(FREE | {"objective": objective, "num_class": 3 if objective == "multiclass" else 1} | params, data)


def test_the_trees_are_those_of_lightgbm_on_rows_times_classes() -> None:
    inputs, targets, weight = trees.rows(3)
    theirs = native(*trees.expanded(inputs, targets, weight), "multiclass")
    ours = student().fit(inputs, targets, weight)
    np.testing.assert_allclose(ours.predict_proba(inputs), theirs.predict(inputs), atol=1e-5)


def test_two_classes_are_those_of_lightgbm_on_rows_times_classes() -> None:
    inputs, targets, weight = trees.rows(2)
    theirs = native(*trees.expanded(inputs, targets, weight), "binary")
    ours = student().fit(inputs, targets, weight)
    np.testing.assert_allclose(ours.predict_proba(inputs)[:, 1], theirs.predict(inputs), atol=1e-5)


def test_two_classes_begin_with_loss_and_gradient_of_the_core() -> None:
    def one_round(inputs: Any, targets: Any, weight: Any, rate: float) -> tuple[Any, Any, float]:
        history: dict[str, Any] = {}
        given = {"eval_set": [(inputs, trees.table_of(targets, weight))], "callbacks": [lightgbm.record_evaluation(history)]}
        fitted = student(n_estimators=1, learning_rate=rate, min_sum_hessian_in_leaf=0).fit(inputs, targets, weight, **given)
        leaves, odds = (fitted.booster_.predict(inputs, **{asked: True}) for asked in ("pred_leaf", "raw_score"))
        return leaves.ravel(), odds, history["valid_0"]["cross_entropy"][0]

    trees.assert_one_round_is_the_references(one_round)


@pytest.mark.filterwarnings("ignore:refresh:wdistill.core.errors.WdistillWarning")
def test_a_distiller_hands_soft_targets_on() -> None:
    trees.assert_a_distiller_hands_on_targets(student)


@both
def test_rows_of_weight_0_are_left_out(classes: int) -> None:
    trees.assert_weight_0_leaves_out(partial(SoftLGBMClassifier, **QUIET, n_estimators=5, min_child_samples=20), classes)


@both
def test_a_weight_of_3_is_a_row_three_times(classes: int) -> None:
    trees.assert_integer_weights_repeat(student, classes)


@both
def test_trees_without_a_split_predict_the_mean_of_the_targets(classes: int) -> None:
    trees.assert_starts_from_the_mean(partial(student, min_split_gain=1e9), classes)


def test_the_saved_booster_alone_predicts_the_probabilities(tmp_path: Path) -> None:
    inputs, targets, weight = trees.rows(3)
    fitted = student().fit(inputs, targets, weight)
    fitted.booster_.save_model(tmp_path / "student.txt")
    code = "import lightgbm\nsaid = lightgbm.Booster(model_file='student.txt').predict(X)"
    trees.assert_alone_in_a_fresh_process(fitted, inputs, tmp_path, code)


@both
@pytest.mark.parametrize("boosting", ["gbdt", "dart"])
def test_a_booster_that_is_loaded_predicts_the_same_bits(classes: int, boosting: str) -> None:
    inputs, targets, weight = trees.rows(classes)
    fitted = student(boosting_type=boosting).fit(inputs, targets, weight)
    loaded = lightgbm.Booster(model_str=fitted.booster_.model_to_string())
    assert np.array_equal(trees.as_matrix(loaded.predict(inputs)), fitted.predict_proba(inputs))


@both
def test_early_stopping_looks_at_the_weighted_soft_cross_entropy(classes: int) -> None:
    inputs, targets, weight = trees.rows(classes)
    held, taught, counts = trees.rows(classes, seed=1, n=80)
    names = np.arange(80)
    table = TargetTable(names, taught, counts)
    history: dict[str, Any] = {}
    fitted = student(n_estimators=60, learning_rate=0.3, early_stopping_round=5).fit(
        inputs, targets, weight, eval_set=[(held, table)], callbacks=[lightgbm.record_evaluation(history)]
    )
    ((name, losses),) = history["valid_0"].items()
    assert name == (METRIC if classes == 3 else "cross_entropy")
    best = int(np.argmin(losses))
    assert fitted.booster_.best_iteration == best + 1 < len(losses) == best + 6
    kept = counts > 0
    scores = np.log(fitted.predict_proba(held))[kept]
    loss = cross_entropy(scores, taught[kept], counts[kept])
    np.testing.assert_allclose(losses[best] * (1 if classes == 3 else counts.sum() / kept.sum()), loss, rtol=1e-6)
    reloaded = lightgbm.Booster(model_str=fitted.booster_.model_to_string())
    assert np.array_equal(trees.as_matrix(reloaded.predict(held)), fitted.predict_proba(held))


@both
def test_early_stopping_looks_at_the_last_set_alone(classes: int) -> None:
    early = partial(student, n_estimators=60, learning_rate=0.3, early_stopping_round=5)
    trees.assert_stops_by_the_last_set(early, lambda fitted: fitted.booster_.best_iteration, classes)


def test_early_stopping_is_the_same_by_any_name() -> None:
    inputs, targets, weight = trees.rows(3)
    early, sets = partial(student, learning_rate=0.3), [trees.rows(3, seed, n=80)[:2] for seed in (2, 1)]
    own = {"n_iter_no_change": 5, "n_estimators": None, "num_boost_round": 60}
    wanted = early(early_stopping_round=5, n_estimators=60).fit(inputs, targets, weight, eval_set=sets)
    called = early(n_estimators=60).fit(
        inputs, targets, weight, eval_set=sets, callbacks=[lightgbm.early_stopping(5, verbose=False)]
    )
    for each in (early(**own).fit(inputs, targets, weight, eval_set=sets), called):
        assert each.booster_.best_iteration == wanted.booster_.best_iteration
        assert np.array_equal(each.predict_proba(inputs), wanted.predict_proba(inputs))


# the traps ------------------------------------------------------------------------------------------------------------


def test_an_objective_of_two_arguments_gets_no_weights() -> None:
    inputs, targets, weight = trees.rows(3)
    hard = targets.argmax(axis=1)

    def two(truth: Any, scores: Any) -> Any:
        return derivatives(scores, np.eye(3)[truth.astype(int)], np.ones(len(truth)), 1.5)

    naive = [
        lightgbm.LGBMClassifier(**FREE, objective=two).fit(inputs, hard, sample_weight=each).booster_.predict(inputs)
        for each in (weight, np.ones(len(weight)))
    ]
    assert np.array_equal(*naive)  # they changed nothing
    ours = [student().fit(inputs, targets, each).predict_proba(inputs) for each in (weight, np.ones(len(weight)))]
    assert np.abs(ours[0] - ours[1]).max() > 0.01


def test_the_binary_objective_takes_every_soft_label_for_a_1() -> None:
    inputs, targets, weight = trees.rows(2)
    naive = native(inputs, targets[:, 1], weight, "binary").predict(inputs)
    assert targets[:, 1].mean() < 0.7 and naive.min() > 0.99
    ours = student().fit(inputs, targets, weight).predict_proba(inputs)[:, 1]
    assert abs(np.average(ours, weights=weight) - np.average(targets[:, 1], weights=weight)) < 0.01


def test_initial_scores_that_are_passed_are_not_saved() -> None:
    inputs, targets, weight = trees.rows(3)
    targets = targets * [1, 1, 0.05]
    targets /= targets.sum(axis=1, keepdims=True)
    kept = weight > 0
    initial = initial_scores(targets[kept], weight[kept])

    def objective(scores: Any, _: Any) -> Any:
        return derivatives(scores, targets[kept], weight[kept], 1.5)

    data = lightgbm.Dataset(inputs[kept], targets[kept].argmax(axis=1), init_score=np.tile(initial, (kept.sum(), 1)))
    trained = lightgbm.train(FREE | {"objective": objective, "num_class": 3}, data)
    naive = probabilities(trained.predict(inputs))
    ours = student().fit(inputs, targets, weight).predict_proba(inputs)
    assert naive[:, 2].mean() > 5 * targets[:, 2].mean() > 4 * ours[:, 2].mean()
    with_them = probabilities(trained.predict(inputs) + initial)
    np.testing.assert_allclose(ours, with_them, atol=1e-6)


def test_without_the_factor_of_the_hessian_the_steps_are_others() -> None:
    inputs, targets, weight = trees.rows(3)
    initial = initial_scores(targets, weight)

    def objective(scores: Any, _: Any) -> Any:
        return derivatives(scores + initial, targets, weight, 1.0)

    data = lightgbm.Dataset(inputs, targets.argmax(axis=1))
    naive = probabilities(lightgbm.train(FREE | {"objective": objective, "num_class": 3}, data).predict(inputs) + initial)
    theirs = native(*trees.expanded(inputs, targets, weight), "multiclass").predict(inputs)
    assert np.abs(naive - theirs).max() > 0.02


def test_the_library_s_metric_stops_by_labels_and_without_weights() -> None:
    """The rows that count say that trees help; the others, of weight 0, that they do not."""
    inputs, targets, weight, held, taught, counts = trees.rows_to_stop_by()
    kept = weight > 0
    initial = initial_scores(targets[kept], weight[kept])

    def objective(scores: Any, _: Any) -> Any:
        return derivatives(scores + initial, targets[kept], weight[kept], 1.5)

    data = lightgbm.Dataset(inputs[kept], targets[kept].argmax(axis=1))
    judged = lightgbm.Dataset(held, taught.argmax(axis=1), data)

    def by_labels(scores: Any, dataset: Any) -> Any:  # multi_logloss itself takes these scores for probabilities
        truth = np.eye(3)[dataset.get_label().astype(int)]
        return "by labels", cross_entropy(scores + initial, truth, np.ones(len(truth))), False

    settings = FREE | {"objective": objective, "metric": "None", "num_class": 3, "n_estimators": 40}
    stop = lightgbm.early_stopping(3, verbose=False)
    naive = lightgbm.train(settings, data, valid_sets=[judged], feval=by_labels, callbacks=[stop])
    ours = student(n_estimators=40, early_stopping_round=3).fit(
        inputs, targets, weight, eval_set=[(held, TargetTable(np.arange(len(held)), taught, counts))]
    )
    assert naive.best_iteration < 5 < 15 < ours.booster_.best_iteration


def test_rows_of_weight_0_count_in_the_limits_of_trees() -> None:
    inputs, targets, weight = trees.rows(2)
    kept = weight > 0
    limit = {"min_child_samples": 40}
    naive = [
        native(inputs[rows], targets[rows, 1], weight[rows], "cross_entropy", **limit).predict(inputs)
        for rows in (slice(None), kept)
    ]
    assert np.abs(naive[0] - naive[1]).max() > 1e-3
    assert np.array_equal(student(**limit).fit(inputs, targets, weight).predict_proba(inputs)[:, 1], naive[1])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "multiclass"),
        ("metric", "multi_logloss"),
        ("class_weight", "balanced"),
        ("loss", "l2"),
        ("unbalance", True),
    ],
)
def test_what_would_change_the_loss_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="changes what is minimised"):
        student(**{name: value}).fit(*trees.rows(3))


@pytest.mark.parametrize("name", ["linear_tree", "linear_trees"])
def test_trees_with_linear_leaves_are_refused_where_initial_scores_do_not_fit_in(name: str) -> None:
    with pytest.raises(ConfigError, match="initial scores"):
        student(**{name: True}).fit(*trees.rows(3))


# as a classifier ------------------------------------------------------------------------------------------------------


def test_targets_of_other_rows_or_classes_are_refused() -> None:
    inputs, targets, weight = trees.rows(3)
    with pytest.raises(InputError, match="number of rows"):
        student().fit(inputs[:-1], targets, weight)
    with pytest.raises(InputError, match="number of classes"):
        student().fit(inputs, targets, weight, eval_set=[(inputs, trees.rows(2)[1])])
    with pytest.raises(ConfigError, match="given twice"):
        student().fit(inputs, TargetTable(np.arange(len(weight)), targets, weight), weight)


def test_frames_are_read_and_a_clone_is_the_same() -> None:
    inputs, targets, weight = trees.rows(3)
    frame = pd.DataFrame(inputs, columns=list("abcd"))
    fitted = clone(student()).set_params(num_leaves=4).fit(frame, targets, weight)
    assert fitted.booster_.feature_name() == list("abcd")
    assert fitted.get_params() == FREE | {"num_leaves": 4}
    plain = student(num_leaves=4).fit(inputs, targets, weight)
    assert np.array_equal(fitted.predict_proba(frame), plain.predict_proba(inputs))


def test_targets_and_weights_are_those_of_the_file(found: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.assert_takes_what_the_file_says(student, found, monkeypatch)


def test_a_student_learns_more_than_from_gold_alone(found: Answers) -> None:
    trees.assert_learns(partial(SoftLGBMClassifier, **QUIET, n_estimators=25, num_leaves=7, min_child_samples=5), found)


def test_tables_with_classes_in_another_order_are_refused() -> None:
    trees.assert_refuses_classes_in_another_order(student)


def test_rows_to_judge_on_are_pairs_with_targets() -> None:
    trees.assert_refuses_what_is_no_list_of_pairs(student)


def test_what_is_not_fitted_predicts_nothing() -> None:
    trees.assert_not_fitted(student)
