"""Prediction-powered intervals: they cover, are narrower where the imputed truth is good, and never much wider."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_interval import covered, two
from tests.test_metric import SMOOTH, named
from wdistill.core.errors import ConfigError, InputError
from wdistill.methods.interval import estimate
from wdistill.methods.metric import Metric
from wdistill.methods.power import rows_for_width, rows_to_tell_apart
from wdistill.methods.prediction_powered import (
    JudgedGold,
    JudgedPool,
    PredictionPowered,
    prediction_powered,
    prediction_powered_by_class,
    variance_left,
)

REPLICATIONS = 400
SUMS = tuple(name for name in SMOOTH if not named(name).ranking)
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # labels, predictions, imputed truth


def world(n: int, rng: np.random.Generator, level: float = -6.2, hidden: np.ndarray | None = None) -> Rows:
    """2.3 % positives, a predictor that sees half of what tells them, and a biased imputation that sees most of it."""
    seen, more = rng.normal(size=(2, n)) if hidden is None else hidden
    truth = rng.random(n) < 1 / (1 + np.exp(-(level + 2.2 * seen + 1.2 * more)))
    predictions, imputed = level + 1.5 + 2.4 * seen, level + 0.5 + 2.0 * seen + 0.9 * more
    return truth.astype(int), *(two(1 / (1 + np.exp(-logits))) for logits in (predictions, imputed))


def judged(gold: Rows, pool: Rows, **more: np.ndarray) -> tuple[JudgedGold, JudgedPool]:
    return JudgedGold(gold[1], gold[0], gold[2], **more), JudgedPool(pool[1], pool[2])


def width(found: PredictionPowered) -> tuple[float, float]:
    return found.estimate.high - found.estimate.low, found.gold.high - found.gold.low


def slow(metric: Metric, gold: Rows, pool: Rows, tuning: float) -> float:
    """An accuracy or a share from its definition: mean on gold + λ · (imputed mean on the pool − imputed mean on gold)."""
    return metric(gold[1], gold[0]) + tuning * (metric(pool[1], pool[2]) - metric(gold[1], gold[2]))


# what it is -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(["accuracy", "share:b", "log-loss"]))
def test_a_mean_is_that_of_the_definition(seed: int, name: str) -> None:
    rng, metric = np.random.default_rng(seed), named(name, "ab")
    gold, pool = world(200, rng, -2.0), world(700, rng, -2.0)
    found = prediction_powered(metric, *judged(gold, pool))
    assert found.estimate.value == pytest.approx(slow(metric, gold, pool, found.tuning))
    assert 0 <= found.tuning <= 1 and found.estimate.low <= found.estimate.value <= found.estimate.high


def test_lambda_and_error_of_a_mean_are_those_of_the_paper() -> None:
    """λ = cov(h, f) / ((1 + m / n) var f); the variance is var(h − λ f) / m + λ² var f / n."""
    rng, metric = np.random.default_rng(0), named("accuracy", "ab")
    gold, pool = world(400, rng, -2.0), world(1_000, rng, -2.0)
    found = prediction_powered(metric, *judged(gold, pool))
    right = (gold[1].argmax(axis=1) == gold[0]).astype(float)
    imputed, far = (each[2][np.arange(len(each[0])), each[1].argmax(axis=1)] for each in (gold, pool))
    spread = np.var(imputed) / 400 + np.var(far) / 1_000
    tuning = np.cov(right, imputed, ddof=0)[0, 1] / 400 / spread
    assert found.tuning == pytest.approx(tuning)
    error = np.sqrt((np.var(right - tuning * imputed) / 400 + tuning**2 * np.var(far) / 1_000) * 400 / 399)
    assert found.error == pytest.approx(error) and found.gold_error == pytest.approx(np.std(right, ddof=1) / 20)


def test_sums_are_combined_before_the_ratio() -> None:
    rng, metric = np.random.default_rng(1), named("f1:b", "ab")
    gold, pool = world(600, rng, -3.0), world(4_000, rng, -3.0)
    found = prediction_powered(metric, *judged(gold, pool))

    def sums(predictions: np.ndarray, true: np.ndarray) -> np.ndarray:
        decided = predictions.argmax(axis=1)
        return np.array([np.mean(2 * decided * true), np.mean(decided + true)])

    top, bottom = sums(gold[1], gold[0]) + found.tuning * (sums(pool[1], pool[2][:, 1]) - sums(gold[1], gold[2][:, 1]))
    assert found.tuning > 0 and found.estimate.value == pytest.approx(top / bottom)


def test_an_imputation_of_no_use_leaves_gold_alone() -> None:
    rng = np.random.default_rng(2)
    (labels, predictions, _), pool = world(500, rng, -2.0), world(2_000, rng, -2.0)
    constant = np.full((500, 2), 0.5)
    found = prediction_powered(
        named("share:b", "ab"),
        JudgedGold(predictions, labels, constant),
        JudgedPool(pool[1], np.full((2_000, 2), 0.5)),
    )
    assert found.tuning == 0 and found.estimate == found.gold == estimate(named("share:b", "ab"), predictions, labels)


@given(st.integers(0, 10**6), st.sampled_from(SUMS), st.floats(-5.0, -1.0))
def test_the_error_is_hardly_ever_above_that_of_gold_alone(seed: int, name: str, level: float) -> None:
    rng = np.random.default_rng(seed)
    gold, pool = world(150, rng, level), world(600, rng, level)
    found = prediction_powered(named(name, "ab"), *judged(gold, pool))
    assert np.isnan(found.error) or found.error <= 1.25 * found.gold_error + 1e-12
    assert found.tuning > 0 or found.estimate == found.gold or np.isnan(found.gold.value)


def test_few_telling_rows_are_judged_by_gold_alone() -> None:
    rng = np.random.default_rng(3)
    gold, pool = world(100, rng, -6.2), world(5_000, rng, -6.2)
    found = prediction_powered(named("recall:b", "ab"), *judged(gold, pool))
    assert found.tuning == 0 and found.estimate is found.gold


def test_classes_are_judged_each() -> None:
    rng = np.random.default_rng(4)
    gold, pool = judged(world(600, rng, -2.0), world(3_000, rng, -2.0))
    found = prediction_powered_by_class(named("accuracy", "ab"), gold, pool)
    assert [each.estimate.value for each in found] == pytest.approx(
        [prediction_powered(named(f"recall:{c}", "ab"), gold, pool).estimate.value for c in "ab"]
    )


def test_what_does_not_fit_is_an_error() -> None:
    rng = np.random.default_rng(5)
    gold, pool = judged(world(50, rng), world(80, rng))
    for name in ("recall@precision=0.9:b", "average-precision:b"):
        with pytest.raises(ConfigError, match="no prediction-powered interval"):
            prediction_powered(named(name, "ab"), gold, pool)
    with pytest.raises(InputError, match="number of rows"):
        prediction_powered(named("accuracy", "ab"), gold, JudgedPool(pool.predictions, pool.imputed[:10]))


# simulations ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_intervals_cover_and_are_narrower_on_a_task_with_two_percent_positives() -> None:
    rng = np.random.default_rng(6)
    labels, predictions, _ = world(1_000_000, rng)
    assert 0.01 < labels.mean() < 0.05
    names = ("accuracy", "recall:b", "f1:b", "share:b", "balanced-accuracy", "macro-f1")
    metrics = {name: named(name, "ab") for name in names}
    found: dict[str, list[PredictionPowered]] = {name: [] for name in names}
    for _ in range(REPLICATIONS):
        gold, pool = judged(world(1_000, rng), world(4_000, rng))
        for name, metric in metrics.items():
            found[name].append(prediction_powered(metric, gold, pool))
    for name, metric in metrics.items():
        truth = metric(predictions, labels)
        assert covered([each.estimate for each in found[name]], truth) >= 0.92, name
        here, alone = np.mean([width(each) for each in found[name]], axis=0)
        assert here < 0.95 * alone, name
    wide, alone = np.mean([width(each) for each in found["accuracy"]], axis=0)
    assert wide < 0.8 * alone


@pytest.mark.slow
def test_a_wrong_imputation_costs_nothing_but_its_help() -> None:
    """Imputed truth that is the opposite of what it should be: intervals still cover, and are about those of gold."""
    rng = np.random.default_rng(7)
    labels, predictions, _ = world(1_000_000, rng, -2.0)
    for name in ("accuracy", "f1:b"):
        metric, found = named(name, "ab"), []
        for _ in range(REPLICATIONS):
            gold, pool = world(500, rng, -2.0), world(3_000, rng, -2.0)
            gold, pool = (*gold[:2], gold[2][:, ::-1]), (*pool[:2], pool[2][:, ::-1])
            found.append(prediction_powered(metric, *judged(gold, pool)))
        assert covered([each.estimate for each in found], metric(predictions, labels)) >= 0.925
        here, alone = np.mean([width(each) for each in found], axis=0)
        assert here < 1.02 * alone


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "f1:b"])
def test_gold_that_was_drawn_unevenly_is_right_with_its_weights_only(name: str) -> None:
    """As many gold rows that are decided to be positive as negative ones: a usual way to find a rare class."""
    rng, metric = np.random.default_rng(8), named(name, "ab")
    labels, predictions, imputed = world(30_000, rng, -3.0)
    pool = labels, predictions, two(imputed[:, 1] ** 0.3)  # positives far too likely
    truth = metric(predictions, labels)
    decided = pool[1].argmax(axis=1)
    chance = np.where(decided == 1, 300 / decided.sum(), 300 / (1 - decided).sum())
    ignoring, using = [], []
    for _ in range(REPLICATIONS):
        drawn = rng.random(len(decided)) < chance
        gold = (pool[0][drawn], pool[1][drawn], pool[2][drawn])
        ignoring.append(prediction_powered(metric, *judged(gold, pool)))
        using.append(prediction_powered(metric, *judged(gold, pool, weights=1 / chance[drawn])))
    assert covered([each.estimate for each in ignoring], truth) < 0.85
    assert covered([each.estimate for each in using], truth) >= 0.92
    here, alone = np.mean([width(each) for each in using], axis=0)
    assert here < alone


def grouped(count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    """Documents of 1 to 39 rows that have much in common."""
    groups = np.repeat(np.arange(count), rng.integers(1, 40, count))
    hidden = 0.9 * rng.normal(size=(2, count))[:, groups] + 0.44 * rng.normal(size=(2, len(groups)))
    return world(len(groups), rng, -2.0, hidden), groups


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "f1:b", "share:b"])
def test_gold_and_pool_in_groups_are_right_with_their_groups_only(name: str) -> None:
    rng, metric = np.random.default_rng(9), named(name, "ab")
    labels, predictions, _ = grouped(100_000, rng)[0]
    ignoring, using = [], []
    for _ in range(REPLICATIONS):
        (gold, groups), (pool, pool_groups) = grouped(60, rng), grouped(300, rng)
        ignoring.append(prediction_powered(metric, *judged(gold, pool)).estimate)
        here = JudgedGold(gold[1], gold[0], gold[2], groups=groups)
        using.append(prediction_powered(metric, here, JudgedPool(pool[1], pool[2], 1_000 + pool_groups)).estimate)
    truth = metric(predictions, labels)
    assert covered(using, truth) >= 0.92
    assert covered(ignoring, truth) < covered(using, truth) - 0.04


# power ----------------------------------------------------------------------------------------------------------------


def test_rows_for_a_width_of_a_plain_share_are_those_of_the_formula() -> None:
    p, labels = two(np.full(100, 0.9)), np.r_[np.ones(80, int), np.zeros(20, int)]
    needed = rows_for_width(named("accuracy", "ab"), 0.02, JudgedGold(p, labels, p))
    assert needed.gold == pytest.approx(0.16 * (1.96 / 0.02) ** 2, rel=0.01) and needed.with_pool is None


def test_so_many_rows_give_that_width() -> None:
    rng = np.random.default_rng(10)
    for name in ("accuracy", "f1:b", "recall:b", "log-loss"):
        metric = named(name, "ab")
        gold, pool = judged(world(4_000, rng, -3.0), world(6_000, rng, -3.0))
        half = 0.6 * width(prediction_powered(metric, gold, pool))[1] / 2
        needed = rows_for_width(metric, half, gold, pool)
        assert needed.gold is not None and needed.with_pool is not None and needed.with_pool < needed.gold
        for rows, place in ((needed.gold, 1), (needed.with_pool, 0)):
            fresh = judged(world(rows, rng, -3.0), world(6_000, rng, -3.0))
            assert width(prediction_powered(metric, *fresh))[place] / 2 == pytest.approx(half, rel=0.12), name


def test_rows_in_groups_tell_less() -> None:
    (rows, groups), metric = grouped(200, np.random.default_rng(11)), named("accuracy", "ab")
    alone, together = (
        rows_for_width(metric, 0.01, JudgedGold(rows[1], rows[0], rows[2], groups=given)).gold for given in (None, groups)
    )
    assert alone is not None and together is not None and together > 1.3 * alone


def test_a_pool_as_small_as_gold_helps_less_than_a_large_one() -> None:
    rng, metric = np.random.default_rng(12), named("accuracy", "ab")
    gold = world(400, rng, -2.0)
    small, large = (variance_left(metric, *judged(gold, world(n, rng, -2.0))) for n in (400, 40_000))
    assert large(1.0) < small(1.0) < 1
    assert small(1.0) < small(10.0) <= 1  # gold rows that outnumber the pool need it less


def test_a_perfect_predictor_still_needs_rows() -> None:
    p, labels = two(np.r_[np.full(50, 0.9), np.full(50, 0.1)]), np.r_[np.ones(50, int), np.zeros(50, int)]
    needed = rows_for_width(named("accuracy", "ab"), 0.005, JudgedGold(p, labels, p)).gold
    assert needed is not None and 300 < needed < 500


def test_a_pool_whose_truth_is_known_still_needs_ten_rows() -> None:
    rng = np.random.default_rng(14)
    (labels, teacher, _), (truth, other, _) = world(100, rng, 0.0), world(5_000, rng, 0.0)
    gold, pool = JudgedGold(teacher, labels, np.eye(2)[labels]), JudgedPool(other, np.eye(2)[truth])
    needed = rows_for_width(named("accuracy", "ab"), 0.03, gold, pool)
    assert needed.with_pool == 10 and needed.gold is not None and needed.gold > 100


@pytest.mark.slow
def test_with_that_many_rows_a_difference_is_found_in_four_of_five_cases() -> None:
    from wdistill.methods.interval import difference

    rng, metric = np.random.default_rng(13), named("f1:b", "ab")

    def pair(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        labels, first, second = world(n, rng, -2.5)
        return first, second, labels

    many = pair(500_000)
    least = metric(many[1], many[2]) - metric(many[0], many[2])
    assert least > 0
    rows = rows_to_tell_apart(metric, least, *pair(20_000))
    assert rows is not None
    found = [difference(metric, second, first, y).low > 0 for first, second, y in (pair(rows) for _ in range(REPLICATIONS))]
    assert 0.72 < np.mean(found) < 0.88


def test_nothing_is_asked_of_a_width_of_0() -> None:
    p, labels = two(np.full(10, 0.9)), np.ones(10, int)
    with pytest.raises(ConfigError, match="above 0"):
        rows_for_width(named("accuracy", "ab"), 0, JudgedGold(p, labels, p))
    with pytest.raises(ConfigError, match="above 0"):
        rows_to_tell_apart(named("accuracy", "ab"), 0, p, p, labels)
    with pytest.raises(ConfigError, match="no power analysis"):
        rows_to_tell_apart(named("recall@precision=0.9:b", "ab"), 0.1, p, p, labels)
    assert rows_for_width(named("accuracy", "ab"), 1e-9, JudgedGold(p, labels, p)).gold is None
