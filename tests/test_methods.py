"""Methods: what each teaches, on small objects; the posterior against a slow reference; gold never seen twice."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.leaderboard.run import METHODS
from wdistill.core.errors import ConfigError
from wdistill.methods import best, corrected, robust, weighted
from wdistill.methods.context import AuxiliaryPredictions, Context, CrossEntropy, by_rule, one_hot
from wdistill.methods.crossfit import FLOOR, floored_logs, folds_of, out_of_fold
from wdistill.methods.metric import parse_metric
from wdistill.methods.posterior import cross_fitted, fit_posterior
from wdistill.methods.robust import Forward, Generalised, Mixed, Taylor, Tempered, TwoSided
from wdistill.methods.targets import PRIOR_ROWS, better_alone, fit_targets, leader_of, stacked_share
from wdistill.methods.teacher_error import boosted, features, learned_error, logistic, neighbors_error
from wdistill.weights.debiased import debiased
from wdistill.weights.evidence import Evidence
from wdistill.weights.rules import shuffled

K = 3


def speaking(truth: np.ndarray, accuracy: float, seed: int, certainty: float = 0.8) -> np.ndarray:
    """Distributions (n, K) of somebody who is right so often, and always equally sure."""
    rng = np.random.default_rng(seed)
    right = rng.random(len(truth)) < accuracy
    said = np.where(right, truth, (truth + rng.integers(1, K, len(truth))) % K)
    return np.where(one_hot(said, K) > 0, certainty, (1 - certainty) / (K - 1))


def case(
    m: int = 200, n: int = 300, *, second: float = 0.9, teacher: float = 0.7, targets: str = "soft", seed: int = 0
) -> Context:
    rng = np.random.default_rng(seed)
    gold, rest = rng.integers(0, K, m), rng.integers(0, K, n)
    gold[:K] = np.arange(K)
    both = np.concatenate([gold, rest])
    said = {name: speaking(both, p, seed + i) for i, (name, p) in enumerate({"teacher": teacher, "student": 0.6}.items(), 1)}
    jitter = np.random.default_rng(seed + 9).dirichlet(np.ones(K), m + n)
    said = {name: 0.9 * each + 0.1 * jitter for name, each in said.items()}
    evidence = Evidence(
        gold, said["teacher"][:m], said["student"][:m], said["teacher"][m:], said["student"][m:], said["teacher"][m:], rest
    )
    auxiliary = {}
    for i, name in enumerate(("second", "forest", "retrained"), 20):
        other = speaking(both, second, seed + i)
        auxiliary[name] = AuxiliaryPredictions(other[:m], other[m:])
    return Context(evidence, auxiliary, targets, seed)  # type: ignore[arg-type]


# cross-fitting ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.integers(0, 3))
def test_folds_share_out_every_class(labels: list[int], seed: int) -> None:
    folds = folds_of(np.array(labels), seed=seed)
    sizes = np.bincount(folds, minlength=min(5, len(labels)))
    assert sizes.max() - sizes.min() <= 1
    for label in set(labels):
        counted = np.bincount(folds[np.array(labels) == label], minlength=min(5, len(labels)))
        assert counted.max() - counted.min() <= 1


@given(st.integers(2, 40))
def test_nobody_answers_for_a_row_it_has_learned_from(m: int) -> None:
    folds = folds_of(np.zeros(m, int))
    asked_rows = []

    def answer(learning: np.ndarray, asked: np.ndarray) -> np.ndarray:
        assert not set(learning) & set(asked)
        assert len(learning) + len(asked) == m
        asked_rows.extend(asked.tolist())
        return asked.astype(float)

    assert out_of_fold(answer, folds).tolist() == list(range(m))
    assert sorted(asked_rows) == list(range(m))


def test_an_expert_that_remembers_gold_is_not_believed_when_cross_fitted() -> None:
    """The planted leak: in sample the memory is always right and takes all the weight; out of fold it knows nothing."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, K, 300)
    teacher = speaking(labels, 0.8, 1)
    memory = one_hot(labels, K) * 0.98 + 0.01
    leaked = fit_posterior({"teacher": teacher, "memory": memory}, labels)
    assert leaked.slopes["memory"] > 1.0

    def remember(learning: np.ndarray, asked: np.ndarray) -> np.ndarray:
        known = {int(row): labels[row] for row in learning}
        return np.stack([one_hot(np.array([known[row]]), K)[0] if row in known else np.full(K, 1 / K) for row in asked])

    honest = out_of_fold(remember, folds_of(labels))
    found = fit_posterior({"teacher": teacher, "memory": honest}, labels)
    assert "memory" not in found.slopes  # it says the same of all gold rows
    assert np.mean(cross_fitted({"teacher": teacher, "memory": honest}, labels, folds_of(labels)).argmax(1) == labels) < 0.9


# the posterior ------------------------------------------------------------------------------------------------------


def test_the_posterior_is_the_minimum_of_its_objective() -> None:
    """Against a slow reference: the objective as written down, minimised without gradients from another start."""
    from scipy.optimize import minimize

    from wdistill.methods.posterior import BIAS_PRECISION, SLOPE_PRECISION

    labels = np.random.default_rng(3).integers(0, K, 60)
    said = {"teacher": speaking(labels, 0.7, 4), "other": speaking(labels, 0.6, 5)}

    def objective(parameters: np.ndarray) -> float:
        total = 0.0
        for row, label in enumerate(labels):
            scores = [
                sum(parameters[e] * np.log(max(each[row, c], FLOOR)) for e, each in enumerate(said.values()))
                + parameters[2 + c]
                for c in range(K)
            ]
            total -= scores[label] - np.log(np.sum(np.exp(scores)))
        off = parameters[:2] - np.array([1.0, 0.0])
        return total + SLOPE_PRECISION / 2 * off @ off + BIAS_PRECISION / 2 * parameters[2:] @ parameters[2:]

    slow = minimize(objective, np.zeros(5), method="Powell", options={"xtol": 1e-8, "ftol": 1e-12, "maxiter": 20000}).x
    found = fit_posterior(said, labels)
    assert np.allclose([*found.slopes.values(), *found.biases], slow, atol=2e-3)


@settings(max_examples=20)
@given(st.permutations(range(40)))
def test_the_order_of_the_gold_rows_does_not_matter(order: list[int]) -> None:
    labels = np.random.default_rng(0).integers(0, K, 40)
    said = {"teacher": speaking(labels, 0.7, 1), "other": speaking(labels, 0.5, 2)}
    found = fit_posterior(said, labels)
    again = fit_posterior({name: each[order] for name, each in said.items()}, labels[order])
    assert np.allclose(list(found.slopes.values()), list(again.slopes.values()), atol=1e-4)


def test_a_better_expert_counts_more_and_certainty_has_a_floor() -> None:
    labels = np.random.default_rng(0).integers(0, K, 400)
    found = fit_posterior({"teacher": speaking(labels, 0.6, 1), "other": speaking(labels, 0.9, 2)}, labels)
    assert found.slopes["other"] > 2 * found.slopes["teacher"]
    impossible = {"teacher": np.eye(K), "other": np.eye(K)[[1, 2, 0]]}
    assert np.isfinite(found(impossible)).all()
    assert np.allclose(found(impossible).sum(axis=1), 1)
    assert floored_logs(np.zeros((1, K))).min() == np.log(FLOOR)


# every method -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("targets", ["soft", "hard"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_teaches_something_sound(name: str, targets: str) -> None:
    given_case = case(targets=targets)
    lesson = METHODS[name](given_case)
    assert lesson.targets.shape == (300, K) and np.allclose(lesson.targets.sum(axis=1), 1)
    assert lesson.weights.shape == (300,) and lesson.weights.min() >= 0 and lesson.weights.max() <= 1
    assert lesson.gold == (name.endswith("+gold") or name == "best")
    if targets == "hard":
        assert set(np.unique(lesson.targets)) <= {0.0, 1.0}
    logits = torch.randn(7, K, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([0, 5, 9, 299, 17, 3, 2])
    losses = lesson.loss(logits, torch.from_numpy(lesson.targets)[rows], rows)
    assert losses.shape == (7,) and torch.isfinite(losses).all()
    losses.sum().backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    stacked = torch.stack([logits.detach(), -logits.detach()])
    both = lesson.loss(stacked, torch.from_numpy(lesson.targets)[rows].expand(2, -1, -1), rows)
    assert torch.allclose(both[0], losses.detach())  # many students at once lose what each would alone


def test_losses_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64))
    target, row = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64), torch.tensor([0])
    moved = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.0, 1.0]])

    def value(loss: object) -> float:
        return float(loss(logits, target, row))  # type: ignore[operator]

    assert value(CrossEntropy()) == pytest.approx(-np.log(0.3))
    assert value(Generalised(0.7)) == pytest.approx((1 - 0.3**0.7) / 0.7)
    assert value(Generalised(1e-6)) == pytest.approx(-np.log(0.3), abs=1e-4)  # towards the cross-entropy
    assert value(Taylor(2)) == pytest.approx(0.7 + 0.49 / 2)
    assert value(Forward(moved)) == pytest.approx(-np.log(0.5 * 0.1 + 0.3 * 0.7))
    assert value(Forward(np.eye(3))) == pytest.approx(-np.log(0.3))
    assert value(Mixed(np.array([0.9]), np.array([[1.0, 1.0, 0.0]]))) == pytest.approx(-np.log(0.9 * 0.3 + 0.1 * 0.7))
    assert value(Mixed(np.array([1.0]), np.ones((1, 3)))) == pytest.approx(-np.log(0.3))
    cooled = np.sqrt([0.5, 0.3, 0.2])
    assert value(Tempered(2.0)) == pytest.approx(-np.log(cooled[1] / cooled.sum()))
    assert value(TwoSided(np.array([True]), np.zeros((1, 3), bool))) == pytest.approx(-np.log(0.3))
    only_not = TwoSided(np.array([False]), np.array([[False, False, True]]))
    assert value(only_not) == pytest.approx(-np.log(1 - 0.2))


@pytest.mark.slow
def test_weights_follow_the_chance_of_an_error() -> None:
    """Where agreement gives errors away, the learned weights find them; the control has the same weights elsewhere."""
    found = case(m=600, n=600, second=1.0)
    for learner in (logistic, boosted):
        chances, asked = learned_error(found, learner)
        assert chances.shape == (600,) and asked.shape == (600,)
        wrong = found.unlabeled["teacher"].argmax(axis=1) != found.evidence.truth
        assert asked[wrong].mean() > asked[~wrong].mean() + 0.1
    assert neighbors_error(found)[0].shape == (600,)
    assert features(found.unlabeled["teacher"], found.unlabeled["student"]).shape == (600, 7 + K)
    paper, control = by_rule(debiased)(found), by_rule(shuffled(seed=None))(found)
    assert np.array_equal(np.sort(paper.weights), np.sort(control.weights)) and not np.array_equal(
        paper.weights, control.weights
    )


def test_a_learner_that_remembers_is_asked_about_other_rows() -> None:
    """The planted leak: of rows it has seen it knows everything, of the others nothing."""
    found = case(m=100)

    def memory(known: np.ndarray, wrong: np.ndarray, asked: np.ndarray, once: np.ndarray) -> np.ndarray:
        seen = {row.tobytes(): float(each) for row, each in zip(known, wrong, strict=True)}
        return np.array([seen.get(row.tobytes(), 0.5) for row in asked])

    assert set(learned_error(found, memory)[0].tolist()) == {0.5}


def test_a_constant_teacher_gives_constant_errors() -> None:
    found = case(teacher=1.0)
    assert not learned_error(found, logistic)[1].any()
    assert weighted.above_threshold(found).weights.all()


def test_forward_counts_who_is_taken_for_whom() -> None:
    found = case(m=3000)
    lesson = robust.forward(found)
    transition = lesson.loss.transition  # type: ignore[attr-defined]
    said = found.validation["teacher"].argmax(axis=1)
    for truth in range(K):
        counted = np.bincount(said[found.labels == truth], minlength=K) / np.sum(found.labels == truth)
        assert np.allclose(transition[truth], counted, atol=0.01)


# rivals, by hand: whoever is wrong about them flatters `best`


def at(said: int, first: float, second: float = 0.0, classes: int = 5) -> list[float]:
    """A distribution that has `first` for what is said, `second` for the next class, and shares out the rest."""
    found = np.full(classes, (1 - first - second) / (classes - 2))
    found[said], found[(said + 1) % classes] = first, second
    return found.tolist()


def by_hand(labels: list[int], gold: list[list[float]], teacher: list[list[float]], student: list[list[float]]) -> Context:
    """Gold rows of which the student says what the teacher does, and unlabeled rows."""
    known, asked, other = (np.array(each) for each in (gold, teacher, student))
    return Context(Evidence(np.array(labels), known, known, asked, other))


def test_sure_teachers_and_unsure_students_are_compared_with_the_mean_of_their_class() -> None:
    teacher = [at(0, 0.9), at(0, 0.9), at(0, 0.5), at(0, 0.5), at(3, 0.4)]
    student = [at(0, 0.3), at(0, 0.95), at(0, 0.3), at(0, 0.95), at(1, 0.9)]
    lesson = weighted.llkd(by_hand([0], [at(0, 0.9)], teacher, student))
    assert lesson.weights.tolist() == [1, 0, 0, 0, 1]  # sure and unsure; sure of itself; unsure; neither; alone in its class


@pytest.mark.filterwarnings("ignore::wdistill.core.errors.WdistillWarning")  # of so few gold rows
def test_one_minus_error_asks_the_nearest_gold_rows() -> None:
    gold = [at(0, 0.9), at(1, 0.85), at(2, 0.4, 0.3), at(3, 0.4, 0.35)]  # q = 4: one neighbour each
    found = by_hand([0, 1, 0, 0], gold, [at(4, 0.88), at(4, 0.4, 0.32)], [at(4, 0.88), at(4, 0.4, 0.32)])
    assert weighted.one_minus_error(found).weights.tolist() == [1, 0]


def test_the_threshold_keeps_the_rows_that_are_worth_most() -> None:
    gold = [at(0, 0.90, 0.00), at(1, 0.85, 0.05), at(2, 0.5, 0.2), at(3, 0.5, 0.3)]  # margins 0.9, 0.8, 0.3, 0.2
    asked = [at(0, 0.9, 0.05), at(0, 0.85, 0.05), at(0, 0.8, 0.05), at(0, 0.5, 0.1)]  # 0.85, 0.8, 0.75, 0.4
    right = by_hand([0, 1, 0, 0], gold, asked, asked)
    assert weighted.above_threshold(right).weights.tolist() == [1, 1, 0, 0]  # 1, 2, 3 · (1/3)², 0 rows' worth
    most = by_hand([0, 1, 2, 0], gold, asked, asked)
    assert weighted.above_threshold(most).weights.tolist() == [1, 1, 1, 1]  # 1, 2, 3, 4 · (1/2)²: down to a margin of 0.3


def test_two_sides_are_selected_by_certainty_and_agreement() -> None:
    """PreparedArm: sure, and of one mind (the first row, not the second). Of the others, what both exclude alike."""
    teacher = [[0.80, 0.20, 0, 0], [0.80, 0.20, 0, 0], [0.60, 0.38, 0.02, 0], [0.60, 0.38, 0.02, 0]]
    student = [[0.72, 0.28, 0, 0], [0.60, 0.40, 0, 0], [0.60, 0.375, 0.025, 0], [0.50, 0.45, 0.05, 0]]
    loss = robust.two_sided(by_hand([0], [[1.0, 0, 0, 0]], teacher, student)).loss
    assert isinstance(loss, TwoSided)
    assert loss.positive.tolist() == [True, False, False, False]
    assert loss.excluded.tolist() == [
        [False] * 4,
        [False, False, True, True],
        [False, False, True, True],
        [False] * 3 + [True],
    ]


def test_mixing_learns_accuracy_by_margin_and_how_many_classes_hold_the_truth() -> None:
    """Margins 0.1 to 0.8: wrong, right, right, wrong, right, right pool to 0 (a half at least), 2/3 and 1; k is 3 of 5."""
    margins = [0.1, 0.3, 0.4, 0.5, 0.7, 0.8]
    gold = np.array([[1 + gap, 1 - gap, 0.02, 0.01, 0.005] for gap in margins])
    known = gold / gold.sum(axis=1, keepdims=True)
    asked = known[[0, 2, 5]]
    lesson = robust.mixed(by_hand([2, 0, 0, 1, 0, 0], known.tolist(), asked.tolist(), asked.tolist()))
    assert isinstance(lesson.loss, Mixed)
    assert lesson.loss.accuracy.tolist() == pytest.approx([0.5, 2 / 3, 1])
    assert lesson.loss.top.tolist() == [[1, 1, 1, 0, 0]] * 3
    two = robust.mixed(by_hand([1, 0, 0, 1, 0, 0], known.tolist(), asked.tolist(), asked.tolist()))
    assert two.loss.top.tolist() == [[1, 1, 0, 0, 0]] * 3  # type: ignore[attr-defined]


def test_a_posterior_weighs_by_the_chance_that_the_teacher_is_right() -> None:
    found = case(m=200, n=20)
    experts = ("teacher", "student", "second")
    truth = fit_posterior({name: found.validation[name] for name in experts}, found.labels)(found.unlabeled)
    teacher, student = found.unlabeled["teacher"], found.unlabeled["student"]
    plain, debiased = corrected.posterior_weighted(*experts)(found), corrected.posterior_debiased(*experts)(found)
    for row in range(20):
        assert plain.weights[row] == pytest.approx(truth[row, teacher[row].argmax()])
        losses = [-np.log(student[row, c]) for c in range(K)]
        on_truth, on_target = (sum(each[row, c] * losses[c] for c in range(K)) for each in (truth, teacher))
        assert debiased.weights[row] == pytest.approx(min(1.0, on_truth / on_target))
    assert np.array_equal(plain.targets, teacher) and np.array_equal(debiased.targets, teacher)
    assert debiased.weights.min() < 0.9


def test_others_targets_are_taught_as_they_are() -> None:
    found = case(n=20)
    assert np.array_equal(corrected.retrained(found).targets, found.unlabeled["retrained"])
    softened = robust.tempered(found)
    for row, said in zip(softened.targets, found.unlabeled["teacher"], strict=True):
        assert row.tolist() == pytest.approx([each**0.5 / sum(other**0.5 for other in said) for each in said])
    assert softened.loss == Tempered(2.0)


def test_corrected_targets_are_right_more_often_than_the_teacher() -> None:
    found = case(m=400, n=2000, second=0.9, teacher=0.7)
    truth = found.evidence.truth
    lesson = corrected.corrected("teacher", "student", "second")(found)
    assert np.mean(lesson.targets.argmax(axis=1) == truth) > 0.87
    alone = corrected.supervised_only(found)
    assert alone.gold and not alone.weights.any()


# the choice ---------------------------------------------------------------------------------------------------------


def test_best_corrects_where_gold_speaks_for_it() -> None:
    found = case(m=300, second=0.95, teacher=0.7)
    lesson = best.supervise_best(found)
    assert lesson.gold and "recalibrated on 300 gold rows, averaged with their correction by " in lesson.why
    said = r"student, second, forest: the correction is \d+% of the average, [\d.]+% of the rows get another class, \+"
    assert re.search(said, lesson.why)
    other = best.correct_targets(case(m=300, second=0.95, teacher=0.7, seed=1)).why
    assert other != lesson.why and other.partition(":")[0] == lesson.why.partition(":")[0], "trials are counted by it"
    assert np.mean(lesson.targets.argmax(axis=1) == found.evidence.truth) > 0.9
    seen = best.correct_targets(found).gain
    assert seen.won > seen.lost
    truth = found.evidence.truth
    real = np.mean(lesson.targets.argmax(axis=1) == truth) - np.mean(found.unlabeled["teacher"].argmax(axis=1) == truth)
    assert abs(seen.gain - real) < 0.15


def test_the_gain_is_that_of_rows_that_differ() -> None:
    little, much = (best.GainEstimate(1.0, 0.1, differing, 10, 8, 2, 0.5) for differing in (0.001, 0.2))
    assert little.advantage == much.advantage == (20 * 0.5 + 8 - 2) / (20 + 10)
    assert little.gain_error < much.gain_error and little.prior > much.prior
    assert replace(much, differing=0.0).prior == 0 and much.gain == 0.2 * much.advantage


@pytest.mark.parametrize("seed", range(5))
def test_best_is_never_far_from_a_teacher_whom_nobody_betters(seed: int) -> None:
    """Second opinions that guess: hardly any row gets another class, and the gold rows are taught."""
    found = case(m=100, second=1 / K, teacher=0.9, seed=seed)
    lesson = best.supervise_best(found)
    assert lesson.gold and leader_of(found) == "teacher"
    assert np.mean(lesson.targets.argmax(axis=1) == found.unlabeled["teacher"].argmax(axis=1)) > 0.98


# the targets --------------------------------------------------------------------------------------------------------


def shaped(power: float, gold: int, classes: int, n: int = 2_000) -> tuple[float, float, float]:
    """A teacher's probabilities to this power, corrected: the targets' accuracy and log loss, and its own log loss."""
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, gold + n)
    scores = (2.2 if classes == 3 else 3.5) * one_hot(labels, classes) + 1.2 * rng.normal(size=(gold + n, classes))
    powers = np.exp(power * scores)
    teacher = powers / powers.sum(axis=1, keepdims=True)
    found = Context(Evidence(labels[:gold], teacher[:gold], None, teacher[gold:], None))
    targets, truth, rows = best.correct_targets(found).targets.of(found.unlabeled), labels[gold:], np.arange(n)
    losses = [-np.log(each[rows, truth]).mean() for each in (targets, teacher[gold:])]
    return float(np.mean(targets.argmax(axis=1) == truth)), float(losses[0]), float(losses[1])


@pytest.mark.parametrize("classes", [3, 10, 26])
@pytest.mark.parametrize(("gold", "undone"), [(100, 0.4), (500, 0.7)])
@pytest.mark.parametrize("power", [0.2, 5.0], ids=["too flat", "too sure"])
def test_a_teacher_of_a_bad_shape_teaches_nearly_as_one_of_a_good_shape(
    power: float, gold: int, undone: float, classes: int
) -> None:
    """As many rows are right; of the log loss that the shape costs, gold undoes this share."""
    (right, loss, raw), (right_of_good, loss_of_good, _) = (shaped(each, gold, classes) for each in (power, 1.0))
    assert abs(right - right_of_good) < 0.015
    assert raw > loss_of_good + 0.05, "a good shape"
    assert loss - loss_of_good < (1 - undone) * (raw - loss_of_good)


@pytest.mark.parametrize("constant", [[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]])
def test_an_expert_that_says_the_same_of_all_rows_changes_nothing(constant: list[float]) -> None:
    found = case(m=60)
    mute = AuxiliaryPredictions(*(np.tile(constant, (len(each), 1)) for each in (found.labels, found.unlabeled["teacher"])))
    heard = replace(found, auxiliary={**found.auxiliary, "mute": mute})
    for source in ("average", "posterior"):
        without, with_it = (fit_targets(each, source) for each in (found, heard))
        assert np.array_equal(without.of(found.unlabeled), with_it.of(heard.unlabeled))
        assert np.array_equal(without.out_of_fold, with_it.out_of_fold)


def test_targets_of_every_name_are_distributions_and_the_average_lies_between() -> None:
    found = case(m=100, n=200)
    fitted = {name: fit_targets(found, name) for name in ("average", "posterior", "retrained-recalibrated", "teacher")}
    for each in fitted.values():
        targets = each.of(found.unlabeled)
        assert np.allclose(targets.sum(axis=1), 1) and (targets >= 0).all() and each.out_of_fold.shape == (100, K)
        assert json.loads(json.dumps(each.of.record)) == each.of.record
    average, posterior, leader = (fitted[name].of(found.unlabeled) for name in list(fitted)[:3])
    assert (average <= np.maximum(posterior, leader) + 1e-12).all() and (
        average >= np.minimum(posterior, leader) - 1e-12
    ).all()
    assert np.array_equal(fitted["teacher"].of(found.unlabeled), found.unlabeled["teacher"])
    with pytest.raises(ConfigError, match="no such targets"):
        fit_targets(found, "oracle")


def boastful(m: int, seed: int) -> Context:
    """A forest that is right on 85 % of the rows, but nearly sure where it errs and unsure where it is right."""
    found = case(m=m, teacher=0.55, seed=seed)
    truth = np.concatenate([found.labels, found.evidence.truth])  # type: ignore[list-item]
    right = np.random.default_rng(seed + 5).random(len(truth)) < 0.85
    said = one_hot(np.where(right, truth, (truth + 1) % K), K)
    forest = np.where(right[:, None], 0.33 + 0.01 * said, 0.01 + 0.97 * said)
    return replace(found, auxiliary={"forest": AuxiliaryPredictions(forest[:m], forest[m:])})


@pytest.mark.parametrize("seed", range(4))
def test_the_reason_says_what_targets_gain_by_the_users_metric_of_losses_too_and_teaches_the_same(seed: int) -> None:
    found = case(m=300, seed=seed)
    plain = best.correct_targets(found)
    for name in ("macro-f1", "log-loss", "average-precision:b"):
        told = best.correct_targets(replace(found, metric=parse_metric(name, "abc")))
        assert np.array_equal(told.targets.of(found.unlabeled), plain.targets.of(found.unlabeled))
        values = [parse_metric(name, "abc")(each, found.labels) for each in
                  (told.targets.out_of_fold, found.validation["teacher"])]  # fmt: skip
        gain = values[0] - values[1] if name != "log-loss" else values[1] - values[0]
        assert gain > 0.1 and told.why.startswith(f"{plain.why}; by {name} a gain of +{gain:.3f} (+")
        assert told.why.endswith(") on gold, out of fold")
    assert best.correct_targets(replace(found, metric=parse_metric("accuracy", "abc"))).why == plain.why
    first = replace(found.evidence, validation_labels=np.minimum(found.labels, 1))  # no gold row of the last class
    lacking = replace(found, evidence=first, metric=parse_metric("recall:c", "abc"))
    assert "; by recall:c the gold rows tell no gain" in best.correct_targets(lacking).why


@pytest.mark.parametrize("seed", range(4))
def test_an_expert_that_alone_is_better_on_gold_than_the_targets_is_told(seed: int) -> None:
    found = boastful(300, seed)
    told = best.correct_targets(found)
    right = [100 * np.mean(each.argmax(axis=1) == found.labels) for each in
             (found.validation["forest"], told.targets.out_of_fold)]  # fmt: skip
    assert right[0] > right[1] + 10 and better_alone(found, told.targets) == "forest"
    said = f"; forest alone is right on more gold rows ({right[0]:.1f}%, these targets {right[1]:.1f}%)"
    assert told.why.endswith(f"{said}: --targets-from forest (targets_from in Python) teaches it")
    overruled = best.correct_targets(replace(found, targets_from="forest"))
    assert overruled.gain.gain > told.gain.gain and "alone" not in overruled.why
    asked = best.correct_targets(replace(case(m=300, seed=seed), targets_from="teacher"))
    assert "alone is right on more gold rows" in asked.why, "of targets that were asked for too"


@pytest.mark.parametrize("seed", range(4))
def test_where_no_expert_is_better_than_the_targets_beyond_chance_none_is_told(seed: int) -> None:
    for found in (case(m=300, seed=seed), case(m=30, seed=seed), case(m=300, second=1 / K, seed=seed)):
        told = best.correct_targets(found)
        assert better_alone(found, told.targets) == "" and "alone" not in told.why
    few = boastful(300, seed)
    groups = replace(few, gold_groups=np.arange(300) % 3)  # of three groups hardly anything is known
    assert better_alone(groups, fit_targets(groups)) == ""


def test_the_leader_is_the_retrained_teacher_where_there_is_one_and_none_is_clearly_better() -> None:
    found = case()
    assert leader_of(found) == "retrained"
    frozen = {name: each for name, each in found.auxiliary.items() if name != "retrained"}
    assert leader_of(replace(found, auxiliary=frozen)) == "second"  # right on 90 % of 200 gold rows, the teacher on 70 %
    few = case(m=30)
    assert leader_of(replace(few, auxiliary={"forest": few.auxiliary["forest"]})) == "teacher"  # it may be chance


@given(st.integers(5, 60), st.integers(0, 2**32 - 1))
def test_the_stacked_share_is_the_likeliest_with_its_prior(m: int, seed: int) -> None:
    """Compared with a grid of Σ log((1 − s) p + s q) + PRIOR_ROWS / 2 · (log s + log(1 − s))."""
    random = np.random.default_rng(seed)
    one, other, labels = random.dirichlet(np.ones(3), m), random.dirichlet(np.ones(3), m), random.integers(0, 3, m)
    p, q = (each[np.arange(m), labels] for each in (one, other))
    grid = np.linspace(0.001, 0.999, 999)
    score = [np.log((1 - s) * p + s * q).sum() + PRIOR_ROWS / 2 * (np.log(s) + np.log(1 - s)) for s in grid]
    assert abs(stacked_share(one, other, labels) - grid[int(np.argmax(score))]) < 0.002


def test_of_a_class_without_gold_the_teachers_word_stands() -> None:
    """Gold of two classes of three: whoever is called the third stays so, and nothing is promised for them."""
    whole = case(m=300, n=900)
    seen, rows = whole.evidence, np.flatnonzero(whole.labels != 2)
    parts = {name: getattr(seen, name)[rows] for name in ("validation_labels", "validation_teacher", "validation_student")}
    auxiliary = {name: AuxiliaryPredictions(each.validation[rows], each.unlabeled) for name, each in whole.auxiliary.items()}
    found = replace(whole, evidence=replace(seen, **parts), auxiliary=auxiliary)
    posterior = fit_posterior(found.validation, found.labels)
    assert posterior.classes_with_gold.tolist() == [True, True, False]
    said, truth = found.unlabeled["teacher"], posterior(found.unlabeled)
    third = said.argmax(axis=1) == 2
    assert np.allclose(truth[third], said[third], atol=1e-3) and not np.allclose(truth[~third], said[~third], atol=1e-2)
    one = replace(found, evidence=replace(found.evidence, validation_labels=np.zeros(len(rows), int)))  # of one class alone
    fitted = fit_targets(one, "posterior")
    leading = one.unlabeled[fitted.leader].argmax(axis=1)
    assert (fitted.of(one.unlabeled).argmax(axis=1) == leading)[leading > 0].all()


def test_many_classes_do_not_drown_a_sure_teacher() -> None:
    sure = np.full((1, 10_000), 0.01 / 9_999)
    sure[0, 7] = 0.99
    assert np.exp(floored_logs(sure)).sum() < 1.02
