"""XGBoost on soft targets with weights: against its own objectives on rows × classes, and against the naive ways."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.base import clone

from tests.adapters import trees
from tests.adapters.answers import Answers, answers
from wdistill import ConfigError
from wdistill.adapters.soft_trees import cross_entropy, derivatives
from wdistill.adapters.table import TargetTable
from wdistill.adapters.xgboost import METRIC, SoftXGBClassifier

FEW: dict[str, Any] = {"n_jobs": 1, "random_state": 0, "n_estimators": 5, "max_depth": 3}
student = partial(SoftXGBClassifier, **FEW)
both = pytest.mark.parametrize("classes", [2, 3])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return answers(tmp_path_factory.mktemp("answers"), classes=10)


def native(inputs: Any, labels: Any, weight: Any, base: Any) -> Any:
    """XGBoost's own objective on labels, from these initial scores."""
    several = {"objective": "multi:softprob", "num_class": 3} if np.size(base) > 1 else {"objective": "binary:logistic"}
    data = xgboost.DMatrix(inputs, labels, weight=weight)
    return xgboost.train({"max_depth": 3, "nthread": 1, "base_score": base} | several, data, 5)


def said(booster: Any, inputs: Any) -> Any:
    return booster.predict(xgboost.DMatrix(inputs))


def test_the_trees_are_those_of_xgboost_on_rows_times_classes() -> None:
    inputs, targets, weight = trees.rows(3)
    initial = np.log(np.average(targets, axis=0, weights=weight)).tolist()
    theirs = native(*trees.expanded(inputs, targets, weight), initial)
    ours = student().fit(inputs, targets, weight)
    np.testing.assert_allclose(ours.predict_proba(inputs), said(theirs, inputs), atol=1e-5)


def test_two_classes_are_those_of_xgboost_on_rows_times_classes() -> None:
    inputs, targets, weight = trees.rows(2)
    share = float(np.average(targets[:, 1], weights=weight))
    theirs = native(*trees.expanded(inputs, targets, weight), share)
    ours = student().fit(inputs, targets, weight)
    np.testing.assert_allclose(ours.predict_proba(inputs)[:, 1], said(theirs, inputs), atol=1e-5)


def test_two_classes_begin_with_loss_and_gradient_of_the_core() -> None:
    def one_round(inputs: Any, targets: Any, weight: Any, rate: float) -> tuple[Any, Any, float]:
        history, held = History(), [(inputs, trees.table_of(targets, weight))]
        one = student(n_estimators=1, learning_rate=rate, reg_lambda=0, min_child_weight=0)
        booster = one.fit(inputs, targets, weight, eval_set=held, callbacks=[history]).booster_
        data = xgboost.DMatrix(inputs)
        leaves, odds = (booster.predict(data, **{asked: True}) for asked in ("pred_leaf", "output_margin"))
        return leaves.ravel(), odds, history.losses[0]

    trees.assert_one_round_is_the_references(one_round)


@pytest.mark.filterwarnings("ignore:refresh:wdistill.core.errors.WdistillWarning")
def test_a_distiller_hands_soft_targets_on() -> None:
    trees.assert_a_distiller_hands_on_targets(student)


@both
def test_rows_of_weight_0_are_left_out(classes: int) -> None:
    trees.assert_weight_0_leaves_out(student, classes)


@both
def test_a_weight_of_3_is_a_row_three_times(classes: int) -> None:
    trees.assert_integer_weights_repeat(student, classes)


@both
def test_trees_without_a_split_predict_the_mean_of_the_targets(classes: int) -> None:
    trees.assert_starts_from_the_mean(partial(student, min_child_weight=1e9), classes)


def test_a_class_that_all_rows_are_of_is_learned() -> None:
    inputs, targets, _ = trees.rows(2)
    certain = np.tile([0.0, 1.0], (len(targets), 1))
    assert student().fit(inputs, certain).predict_proba(inputs)[:, 1].min() > 0.99


def test_the_saved_booster_alone_predicts_the_probabilities(tmp_path: Path) -> None:
    inputs, targets, weight = trees.rows(3)
    fitted = student().fit(inputs, targets, weight)
    fitted.booster_.save_model(tmp_path / "student.ubj")
    code = "import xgboost\nsaid = xgboost.Booster(model_file='student.ubj').predict(xgboost.DMatrix(X))"
    trees.assert_alone_in_a_fresh_process(fitted, inputs, tmp_path, code)


@both
@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_a_booster_that_is_loaded_predicts_the_same(classes: int, booster: str) -> None:
    inputs, targets, weight = trees.rows(classes)
    fitted = student(booster=booster).fit(inputs, targets, weight)
    loaded = xgboost.Booster(model_file=fitted.booster_.save_raw())
    np.testing.assert_allclose(trees.as_matrix(said(loaded, inputs)), fitted.predict_proba(inputs), atol=1e-6)


class History(xgboost.callback.TrainingCallback):
    """What was measured after every round."""

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        ((self.name, self.losses),) = evals_log["validation_0"].items()
        return False


@both
def test_early_stopping_looks_at_the_weighted_soft_cross_entropy(classes: int) -> None:
    inputs, targets, weight = trees.rows(classes)
    held, taught, counts = trees.rows(classes, seed=1, n=80)
    table, history = TargetTable(np.arange(80), taught, counts), History()
    fitted = student(n_estimators=60, learning_rate=0.6, early_stopping_rounds=5).fit(
        inputs, targets, weight, eval_set=[(held, table)], callbacks=[history]
    )
    assert history.name == (METRIC if classes == 3 else "logloss")
    best = int(np.argmin(history.losses))
    assert fitted.booster_.num_boosted_rounds() == best + 1 < len(history.losses) == best + 6
    kept = counts > 0
    loss = cross_entropy(np.log(fitted.predict_proba(held))[kept], taught[kept], counts[kept])
    np.testing.assert_allclose(history.losses[best] * (1 if classes == 3 else counts.sum() / kept.sum()), loss, rtol=1e-5)


@both
def test_early_stopping_looks_at_the_last_set_alone(classes: int) -> None:
    early = partial(student, n_estimators=60, learning_rate=0.6, early_stopping_rounds=5)
    trees.assert_stops_by_the_last_set(early, lambda fitted: fitted.booster_.num_boosted_rounds(), classes)


# the traps ------------------------------------------------------------------------------------------------------------


def test_an_objective_of_ones_own_gets_its_gradient_used_without_weights() -> None:
    inputs, targets, weight = trees.rows(3)

    def own(scores: Any, _: Any) -> Any:
        return derivatives(scores, targets, np.ones(len(targets)), 2.0)

    params = {"max_depth": 3, "nthread": 1, "objective": "multi:softprob", "num_class": 3, "base_score": 0.0}
    naive = [
        said(xgboost.train(params, xgboost.DMatrix(inputs, weight=each, label=targets.argmax(axis=1)), 5, obj=own), inputs)
        for each in (weight, np.ones(len(weight)))
    ]
    assert np.array_equal(*naive)  # the weights changed nothing
    ours = [student().fit(inputs, targets, each).predict_proba(inputs) for each in (weight, np.ones(len(weight)))]
    assert np.abs(ours[0] - ours[1]).max() > 0.01


def test_the_library_s_metric_stops_by_labels_and_without_weights() -> None:
    inputs, targets, weight, held, taught, counts = trees.rows_to_stop_by()

    def own(scores: Any, _: Any) -> Any:
        return derivatives(scores, targets, weight, 2.0)

    params = {"max_depth": 3, "nthread": 1, "objective": "multi:softprob", "num_class": 3, "learning_rate": 0.1}
    judged = [(xgboost.DMatrix(held, taught.argmax(axis=1)), "held")]
    data, few = xgboost.DMatrix(inputs, targets.argmax(axis=1)), {"early_stopping_rounds": 3, "verbose_eval": False}
    naive = xgboost.train(params | {"eval_metric": "mlogloss"}, data, 40, obj=own, evals=judged, **few)
    ours = student(n_estimators=40, learning_rate=0.1, early_stopping_rounds=3).fit(
        inputs, targets, weight, eval_set=[(held, TargetTable(np.arange(len(held)), taught, counts))]
    )
    assert naive.best_iteration < 5 < 15 < ours.booster_.num_boosted_rounds()


def test_without_a_base_score_all_classes_begin_alike() -> None:
    inputs, targets, weight = trees.rows(3)
    targets = targets * [1, 1, 0.02]
    targets /= targets.sum(axis=1, keepdims=True)

    def own(scores: Any, _: Any) -> Any:
        return derivatives(scores, targets, weight, 2.0)

    params = {"max_depth": 3, "nthread": 1, "objective": "multi:softprob", "num_class": 3}
    naive = said(xgboost.train(params, xgboost.DMatrix(inputs, targets.argmax(axis=1)), 5, obj=own), inputs)
    share = np.average(targets[:, 2], weights=weight)
    assert np.average(naive[:, 2], weights=weight) > 2 * share
    ours = student().fit(inputs, targets, weight).predict_proba(inputs)
    assert abs(np.average(ours[:, 2], weights=weight) - share) < 0.2 * share


def test_a_booster_that_stopped_early_predicts_with_all_its_trees_once_it_is_loaded() -> None:
    (inputs, targets, _), (held, taught, _) = trees.rows(3), trees.rows(3, seed=1, n=80)
    targets, taught = targets[::-1], taught[::-1]  # of other rows: more trees only make it worse
    early = {"n_estimators": 60, "learning_rate": 0.9, "early_stopping_rounds": 9}
    stopped = xgboost.XGBClassifier(**FEW | early).fit(
        inputs, targets.argmax(axis=1), eval_set=[(held, taught.argmax(axis=1))], verbose=False
    )
    reloaded = xgboost.Booster(model_file=stopped.get_booster().save_raw())
    assert np.abs(said(reloaded, held) - stopped.predict_proba(held)).max() > 0.01
    ours = student(**early).fit(inputs, targets, eval_set=[(held, taught)])
    again = xgboost.Booster(model_file=ours.booster_.save_raw())
    assert again.num_boosted_rounds() < 60 and np.array_equal(said(again, held).astype(float), ours.predict_proba(held))


@both
@pytest.mark.parametrize("where", ["fit", "parameters"])
@pytest.mark.parametrize("save_best", [False, True])
def test_a_booster_ends_at_its_best_round_also_by_the_user_s_own_early_stopping(
    classes: int, where: str, save_best: bool
) -> None:
    (inputs, targets, weight), (held, taught, _) = trees.rows(classes), trees.rows(classes, seed=1, n=80)
    steps = {"n_estimators": 60, "learning_rate": 0.6}
    wanted = student(**steps, early_stopping_rounds=5).fit(inputs, targets, weight, eval_set=[(held, taught)])
    own = [xgboost.callback.EarlyStopping(rounds=5, save_best=save_best)]
    called = student(**steps, **({"callbacks": own} if where == "parameters" else {}))
    called.fit(inputs, targets, weight, eval_set=[(held, taught)], callbacks=own if where == "fit" else ())
    assert called.booster_.num_boosted_rounds() == wanted.booster_.num_boosted_rounds() < 60
    loaded = xgboost.Booster(model_file=called.booster_.save_raw())
    assert np.array_equal(called.predict_proba(held), wanted.predict_proba(held))
    assert np.array_equal(trees.as_matrix(said(loaded, held)), trees.as_matrix(said(wanted.booster_, held)))


def test_another_hessian_makes_other_steps() -> None:
    inputs, targets, weight = trees.rows(3)
    initial = np.log(np.average(targets, axis=0, weights=weight)).tolist()

    def own(scores: Any, _: Any) -> Any:
        return derivatives(scores, targets, weight, 1.0)

    params = {"max_depth": 3, "nthread": 1, "objective": "multi:softprob", "num_class": 3, "base_score": initial}
    naive = said(xgboost.train(params, xgboost.DMatrix(inputs, targets.argmax(axis=1)), 5, obj=own), inputs)
    theirs = said(native(*trees.expanded(inputs, targets, weight), initial), inputs)
    assert np.abs(naive - theirs).max() > 0.02


@pytest.mark.parametrize(
    ("name", "value"), [("objective", "multi:softmax"), ("eval_metric", "mlogloss"), ("scale_pos_weight", 3.0)]
)
def test_what_would_change_the_loss_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match="changes what is minimised"):
        student(**{name: value}).fit(*trees.rows(3))


# as a classifier ------------------------------------------------------------------------------------------------------


def test_frames_with_categories_are_read_and_a_clone_is_the_same() -> None:
    inputs, targets, weight = trees.rows(3)
    frame = pd.DataFrame(inputs, columns=list("abcd")).astype({"a": int}).astype({"a": "category"})
    fitted = clone(student(enable_categorical=True)).set_params(max_depth=2).fit(frame, targets, weight)
    assert fitted.booster_.feature_types[0] == "c"
    assert fitted.get_params() == FEW | {"enable_categorical": True, "max_depth": 2}
    assert fitted.predict(frame).shape == (len(frame),)


def test_targets_and_weights_are_those_of_the_file(found: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.assert_takes_what_the_file_says(student, found, monkeypatch)


def test_a_student_learns_more_than_from_gold_alone(found: Answers) -> None:
    trees.assert_learns(partial(SoftXGBClassifier, n_jobs=1, n_estimators=25, max_depth=3), found)


def test_tables_with_classes_in_another_order_are_refused() -> None:
    trees.assert_refuses_classes_in_another_order(student)


def test_rows_to_judge_on_are_pairs_with_targets() -> None:
    trees.assert_refuses_what_is_no_list_of_pairs(student)


def test_what_is_not_fitted_predicts_nothing() -> None:
    trees.assert_not_fitted(student)
