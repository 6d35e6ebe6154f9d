"""Decisions: the best offsets on the rows they are fitted to, never worse than none, used where they gain out of fold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.test_metric import named, rows, samples
from wdistill.core.errors import ConfigError
from wdistill.methods.crossfit import folds_of
from wdistill.methods.decision import Decision, choose_decision, fit_decision, recalibrated
from wdistill.methods.metric import cost_metric


@given(samples, st.sampled_from(["accuracy", "balanced-accuracy", "macro-f1", "f1:b"]), st.booleans())
def test_offsets_are_never_worse_than_none_and_with_two_classes_the_best(
    sample: tuple[np.ndarray, np.ndarray, np.ndarray], name: str, soft: bool
) -> None:
    p, y, w = sample
    classes = p.shape[1]
    metric = named(name, "abcd"[:classes])
    truth = np.random.default_rng(len(y)).dirichlet(np.ones(classes), len(y)) if soft else y
    fitted = fit_decision(metric, p, truth, w)
    value = metric(fitted.shifted(p), truth, w)
    assert value >= metric(p, truth, w) - 1e-9
    assert (fitted(p) == fitted.shifted(p).argmax(axis=1)).all()
    if classes == 2:
        leads = np.sort(np.log(p[:, 1] / p[:, 0]))
        cuts = [leads[0] - 1, leads[-1] + 1, *((leads[1:] + leads[:-1]) / 2)]
        slow = [metric(Decision(np.array([0.0, -cut])).shifted(p), truth, w) for cut in cuts if cut not in leads]
        assert value >= max(slow) - 1e-9


@given(samples, st.floats(0.2, 0.95))
def test_recall_at_a_precision_is_reached_by_its_decision(
    sample: tuple[np.ndarray, np.ndarray, np.ndarray], least: float
) -> None:
    p, y, w = sample
    classes = "abcd"[: p.shape[1]]
    fitted = fit_decision(named(f"recall@precision={least}:b", classes), p, y, w)
    shifted = fitted.shifted(p)
    precision = named("precision:b", classes)(shifted, y, w)
    assert np.isnan(precision) or precision >= least - 1e-9
    if p.shape[1] == 2:
        found, wanted = named("recall:b", classes)(shifted, y, w), named(f"recall@precision={least}:b", classes)(p, y, w)
        assert found == pytest.approx(wanted)


def test_a_threshold_is_that_of_the_offsets() -> None:
    decision = Decision(np.array([0.0, -1.0]))
    p = np.stack([1 - np.linspace(0.01, 0.99, 99), np.linspace(0.01, 0.99, 99)], axis=1)
    assert (decision(p) == (p[:, 1] > decision.thresholds[1])).all()
    assert decision.thresholds.sum() == pytest.approx(1)


COSTS = np.array([[0.0, 1.0], [20.0, 0.0]])


def tempered(n: int, rng: np.random.Generator, slope: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A model that ranks rows as well as can be: its true probabilities, those that it says, and labels."""
    scores = 3.0 * rng.normal(size=n)
    true, said = (1 / (1 + np.exp(-each)) for each in (scores, slope * scores))
    return np.stack([1 - true, true], axis=1), np.stack([1 - said, said], axis=1), (rng.random(n) < true).astype(int)


@pytest.mark.parametrize("slope", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("soft", [False, True])
def test_costs_decide_by_probabilities_that_were_made_true(slope: float, soft: bool) -> None:
    """At 0.05 all probabilities are so near one half that by them alone every row is taken for the dear class."""
    rng, metric = np.random.default_rng(9), cost_metric(COSTS)
    true, said, y = tempered(400, rng, slope)
    fresh_true, fresh_said, fresh = tempered(50_000, rng, slope)
    choice = choose_decision(metric, said, true if soft else y, folds_of(y))

    def cost(decided: np.ndarray) -> float:
        return float(COSTS[fresh, decided].mean())

    optimum = cost((fresh_true @ COSTS).argmin(axis=1))
    assert choice.accepted and choice.gain.value > 0
    assert cost(choice.decision(fresh_said)) < optimum + 0.02 < cost(fresh_said.argmax(axis=1))
    assert (choice.decision(said) == metric.decide(choice.decision.shifted(said))).all()
    if slope < 0.1:
        assert cost((fresh_said @ COSTS).argmin(axis=1)) > optimum + 0.08, "no trap"


def test_a_student_that_is_wrong_the_other_way_round_decides_by_the_shares_of_the_classes() -> None:
    rng = np.random.default_rng(4)
    y = (rng.random(300) < 0.02).astype(int)
    wrong = np.where(y[:, None] == np.arange(2), 0.4, 0.6)
    for dear, decided in ((20.0, 0), (200.0, 1)):  # 2 % of 20 is less than 1, 2 % of 200 is more
        found = recalibrated(np.array([[0.0, 1.0], [dear, 0.0]]), wrong, y)
        assert found.slope == 0 and (found(wrong) == decided).all()


@given(samples, st.integers(0, 3))
def test_where_least_expected_cost_costs_more_out_of_fold_the_most_likely_class_is_decided(
    sample: tuple[np.ndarray, np.ndarray, np.ndarray], seed: int
) -> None:
    p, y, _ = sample
    classes, folds = p.shape[1], folds_of(y, seed=seed)
    costs = np.random.default_rng(seed).uniform(1, 5, (classes, classes)) * (1 - np.eye(classes))
    choice = choose_decision(cost_metric(costs), p, y, folds)
    likely, decided = (costs[y, each].mean() for each in (p.argmax(axis=1), (choice.out_of_fold @ costs).argmin(axis=1)))
    assert choice.gain.value == pytest.approx(likely - decided, abs=1e-9)
    assert choice.accepted == (choice.gain.value >= 0)
    if not choice.accepted:
        assert choice.decision.costs is None and (choice.decision(p) == p.argmax(axis=1)).all()


def test_a_metric_that_one_decision_for_all_rows_maximises_is_an_error() -> None:
    p, y, _ = rows(20, 3, 0)
    for name in ("recall:a", "precision:a"):
        with pytest.raises(ConfigError, match="no best decision"):
            fit_decision(named(name), p, y)
        with pytest.raises(ConfigError, match="no best decision"):
            choose_decision(named(name), p, y, folds_of(y))
    for name in ("log-loss", "average-precision:a", "share:a"):
        assert not fit_decision(named(name), p, y).offsets.any()


def imbalanced(n: int, rng: np.random.Generator, positives: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    """A rare class, and a calibrated model of it that is rarely above one half."""
    hidden = rng.normal(size=n)
    level = {0.03: -4.6, 0.02: -5.1, 0.05: -3.9}[positives]
    chance = 1 / (1 + np.exp(-(level + 1.6 * hidden)))
    return np.stack([1 - chance, chance], axis=1), (rng.random(n) < chance).astype(int)


def test_a_decision_that_is_chosen_on_gold_raises_the_f1_of_a_rare_class() -> None:
    """3 % positives: the most likely class is hardly ever the rare one; a threshold from 1,000 rows gains on new rows."""
    rng, metric = np.random.default_rng(5), named("f1:b", "ab")
    fresh, truth = imbalanced(100_000, rng)
    gains, accepted = [], 0
    for seed in range(20):
        p, y = imbalanced(1_000, rng)
        choice = choose_decision(metric, p, y, folds_of(y, seed=seed))
        accepted += choice.accepted
        gains.append(metric(choice.decision.shifted(fresh), truth) - metric(fresh, truth))
    assert accepted >= 18 and np.mean(gains) > 0.1 and np.min(gains) >= 0


@given(st.integers(0, 10**6), st.floats(0.3, 1.0), st.booleans())
def test_a_threshold_for_a_precision_is_used_only_where_one_reaches_it(seed: int, least: float, soft: bool) -> None:
    """Against every threshold there is; else the most likely class stays."""
    rng = np.random.default_rng(seed)
    p, chance = (np.stack([1 - each, each], axis=1) for each in rng.uniform(0.02, 0.98, (2, 30)))
    truth = chance if soft else (rng.random(30) < chance[:, 1]).astype(int)
    assume(soft or truth.any())
    mass = chance[:, 1] if soft else truth
    reached = any(mass[p[:, 1] >= cut].mean() >= least and mass[p[:, 1] >= cut].sum() > 0 for cut in p[:, 1])
    folds = np.arange(30) % 5
    choice = choose_decision(named(f"recall@precision={least}:b", "ab"), p, truth, folds)
    assert choice.accepted == reached
    if not reached:
        assert (choice.decision(p) == p.argmax(axis=1)).all()


def test_offsets_are_left_alone_where_they_gain_nothing() -> None:
    """A calibrated model, and accuracy: the most likely class is the best decision there is."""
    rng, metric = np.random.default_rng(6), named("accuracy", "ab")
    fresh, truth = imbalanced(50_000, rng)
    lost = []
    for seed in range(20):
        p, y = imbalanced(300, rng)
        choice = choose_decision(metric, p, y, folds_of(y, seed=seed))
        lost.append(metric(fresh, truth) - metric(choice.decision.shifted(fresh), truth))
    assert np.mean(lost) < 0.002


def test_gains_are_out_of_fold() -> None:
    """Pure noise: offsets fitted on all rows always gain on them, but not out of fold."""
    rng, metric = np.random.default_rng(7), named("macro-f1")
    inside, outside = [], []
    for seed in range(30):
        p, y = rng.dirichlet(np.ones(3), 60), rng.integers(0, 3, 60)
        choice = choose_decision(metric, p, y, folds_of(y, seed=seed))
        inside.append(metric(fit_decision(metric, p, y).shifted(p), y) - metric(p, y))
        outside.append(choice.gain.value)
    assert np.mean(inside) > 0.08 and abs(np.mean(outside)) < 0.03


def test_the_posterior_of_the_pool_finds_a_better_threshold_than_gold() -> None:
    """Soft truth of 20,000 pool rows against 300 gold rows with about nine positives."""
    rng, metric = np.random.default_rng(8), named("f1:b", "ab")
    fresh, truth = imbalanced(100_000, rng)
    best = fit_decision(metric, fresh, truth)
    regret = []
    for _ in range(10):
        p, y = imbalanced(300, rng)
        pool, _ = imbalanced(20_000, rng)
        found = fit_decision(metric, p, y), fit_decision(metric, pool, pool)
        regret.append([metric(best.shifted(fresh), truth) - metric(each.shifted(fresh), truth) for each in found])
    gold, by_pool = np.mean(regret, axis=0)
    assert by_pool < 0.01 < gold
