"""Intervals: against Wilson's and exact cases; in simulations they cover where weights and groups are used, else not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_metric import SMOOTH, named, rows, samples
from wdistill.core.errors import InputError
from wdistill.methods import interval
from wdistill.methods.crossfit import folds_of, out_of_fold
from wdistill.methods.groups import joined, numbered, shared_groups
from wdistill.methods.guards import gold_shares_groups
from wdistill.methods.interval import difference, estimate, estimate_by_class
from wdistill.methods.metric import cost_metric
from wdistill.methods.statistics import Interval, share

REPLICATIONS = 500


def covered(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([each.low <= truth <= each.high for each in intervals]))


def two(chance: np.ndarray) -> np.ndarray:
    return np.stack([1 - chance, chance], axis=1)


# what they are --------------------------------------------------------------------------------------------------------


@given(samples)
def test_the_interval_of_a_plain_accuracy_is_wilsons(sample: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, y, _ = sample
    found, wanted = estimate(named("accuracy"), p, y), share(int((p.argmax(axis=1) == y).sum()), len(y))
    assert (found.value, found.low, found.high) == pytest.approx((wanted.value, wanted.low, wanted.high))
    found = estimate_by_class(named("accuracy"), p, y)[1]
    wanted = share(int((p.argmax(axis=1) == y)[y == 1].sum()), int((y == 1).sum()))
    assert (found.value, found.low, found.high) == pytest.approx((wanted.value, wanted.low, wanted.high))


@given(samples, st.sampled_from([*SMOOTH, "cost"]))
def test_every_interval_has_its_value_inside_and_stays_within_bounds(
    sample: tuple[np.ndarray, np.ndarray, np.ndarray], name: str
) -> None:
    p, y, w = sample
    classes = p.shape[1]
    metric = cost_metric(2 - 2 * np.eye(classes)) if name == "cost" else named(name, "abcd"[:classes])
    for weights, groups in ((None, None), (w, None), (None, np.arange(len(y)) // 2), (w, np.arange(len(y)) % 7)):
        found = estimate(metric, p, y, weights, groups)
        assert np.isnan(found.value) or 0 <= found.low <= found.value <= found.high <= metric.worst
        assert found.value == pytest.approx(metric(p, y, weights), nan_ok=True)


@given(samples, st.sampled_from(SMOOTH))
def test_groups_of_one_row_hardly_change_anything_and_rows_repeated_count_once(
    sample: tuple[np.ndarray, np.ndarray, np.ndarray], name: str
) -> None:
    p, y, w = sample
    metric, n = named(name, "abcd"[: p.shape[1]]), len(y)
    plain = estimate(metric, p, y, w, np.arange(n))
    twice = np.repeat(np.arange(n), 3)
    grouped = estimate(metric, p[twice], y[twice], w[twice], twice)
    assert (grouped.low, grouped.high) == pytest.approx((plain.low, plain.high), nan_ok=True)


@given(samples, st.sampled_from([*SMOOTH, "recall@precision=0.6:b"]))
def test_differences_are_of_values_and_turn_round(sample: tuple[np.ndarray, np.ndarray, np.ndarray], name: str) -> None:
    p, y, w = sample
    if name.startswith("recall@") and len(y) > 12:
        return  # a bootstrap: a few examples are enough
    metric = named(name, "abcd"[: p.shape[1]])
    other = np.roll(p, 1, axis=0)
    one, back = difference(metric, p, other, y, w), difference(metric, other, p, y, w)
    value = metric(p, y, w) - metric(other, y, w)
    assert (one.value, one.low, one.high) == pytest.approx((value, -back.high, -back.low), nan_ok=True)


def test_equal_predictors_on_few_rows_may_differ_on_others() -> None:
    p, y, _ = rows(100, 3, 0)
    found = difference(named("accuracy"), p, p, y)
    assert found.value == 0 and found.high == pytest.approx(1.96 / 100)


def test_a_class_of_few_rows_that_are_all_right_is_no_certain_one() -> None:
    """Three of three positives found: the mean over classes knows that this is little; ± z standard errors would not."""
    labels = np.r_[np.zeros(400, int), np.ones(3, int)]
    p = two(np.r_[np.full(390, 0.1), np.full(13, 0.9)])
    found = estimate(named("balanced-accuracy", "ab"), p, labels)
    assert found.value > 0.98 and found.low < 0.75


def test_a_cost_that_never_occurred_may_occur() -> None:
    p, metric = two(np.r_[np.full(90, 0.001), np.full(10, 0.9)]), cost_metric(np.array([[0.0, 1], [50, 0]]))
    found = estimate(metric, p, metric.decide(p))
    assert found.value == 0 and found.high == pytest.approx(50 * share(0, 100).high, rel=0.001)


# simulations: 1 to 5 % positives --------------------------------------------------------------------------------------


def rare(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """2.3 % positives, found by a model that misses two in three."""
    seen, hidden = rng.normal(size=(2, n))
    truth = rng.random(n) < 1 / (1 + np.exp(6.2 - 2.2 * seen - 1.2 * hidden))
    return two(1 / (1 + np.exp(4.7 - 2.4 * seen))), truth.astype(int)


@pytest.mark.slow
def test_intervals_cover_on_a_task_with_two_percent_positives() -> None:
    rng = np.random.default_rng(0)
    p, y = rare(1_000_000, rng)
    assert 0.01 < y.mean() < 0.05
    names = ("f1:b", "recall:b", "precision:b", "average-precision:b", "balanced-accuracy", "macro-f1", "log-loss")
    metrics = {name: named(name, "ab") for name in names} | {"cost": cost_metric(np.array([[0.0, 1], [20, 0]]))}
    truth = {name: metric(p, y) for name, metric in metrics.items()}
    for m in (400, 1_500):
        found: dict[str, list[Interval]] = {name: [] for name in metrics}
        for _ in range(REPLICATIONS):
            sample = rare(m, rng)
            for name, metric in metrics.items():
                found[name].append(estimate(metric, *sample))
        coverage = {name: covered(found[name], truth[name]) for name in metrics}
        assert all(coverage[name] >= 0.92 for name in metrics if name != "log-loss"), coverage
        assert coverage["log-loss"] >= 0.88, coverage  # a mean of few large losses, which have no bound


@pytest.mark.slow
def test_recall_at_a_precision_is_covered_by_its_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "REPLICATIONS", 100)
    rng = np.random.default_rng(1)
    metric = named("recall@precision=0.4:b", "ab")
    truth = metric(*rare(1_000_000, rng))
    found = [estimate(metric, *rare(2_000, rng)) for _ in range(100)]
    assert 0.88 <= covered(found, truth) <= 0.99


@pytest.mark.slow
def test_paired_differences_are_covered_and_narrower_than_unpaired_ones() -> None:
    rng = np.random.default_rng(2)

    def both(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        p, y = rare(n, rng)
        logits = np.log(p[:, 1] / p[:, 0]) + 0.5 * rng.normal(size=n) + 0.3
        return p, two(1 / (1 + np.exp(-logits))), y

    many = both(1_000_000)
    for name in ("accuracy", "f1:b", "average-precision:b", "log-loss"):
        metric = named(name, "ab")
        truth = metric(many[0], many[2]) - metric(many[1], many[2])
        found, wide = [], 0
        for _ in range(REPLICATIONS):
            first, second, y = both(1_500)
            found.append(difference(metric, first, second, y))
            alone = [estimate(metric, each, y) for each in (first, second)]
            unpaired = np.hypot(*(each.high - each.low for each in alone))
            wide += found[-1].high - found[-1].low < unpaired
        assert 0.92 <= covered(found, truth) <= 0.99, name
        assert wide > 0.95 * REPLICATIONS, name


# simulations: groups --------------------------------------------------------------------------------------------------


def documents(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of documents of 1 to 29 rows, on which a model is good or bad throughout: predictions, labels, groups."""
    sizes = rng.integers(1, 30, count)
    groups = np.repeat(np.arange(count), sizes)
    level, share_of_positives = rng.beta(4, 1, count)[groups], rng.beta(1, 5, count)[groups]
    y = (rng.random(len(groups)) < share_of_positives).astype(int)
    right = rng.random(len(groups)) < level
    return two(np.where(right == (y == 1), 0.8, 0.2)), y, groups


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "f1:b", "recall:b", "macro-f1", "average-precision:b", "log-loss"])
def test_ignoring_groups_gives_wrong_intervals_and_using_them_right_ones(name: str) -> None:
    rng, metric = np.random.default_rng(3), named(name, "ab")
    p, y, _ = documents(100_000, rng)
    truth = metric(p, y)
    ignoring, using = [], []
    for _ in range(REPLICATIONS):
        p, y, groups = documents(60, rng)
        ignoring.append(estimate(metric, p, y))
        using.append(estimate(metric, p, y, groups=groups))
    assert covered(ignoring, truth) < 0.88, name
    assert 0.92 <= covered(using, truth) <= 0.985, name


def test_ignoring_groups_makes_leaks_between_folds_and_using_them_none() -> None:
    """A model that remembers documents: across folds by row it looks far better than on new documents."""
    rng = np.random.default_rng(4)
    documents_of_class = rng.integers(0, 2, 60)
    groups = rng.integers(0, 60, 600)
    labels = np.where(rng.random(600) < 0.9, documents_of_class[groups], 1 - documents_of_class[groups])

    def remember(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        ones, rows_of = (np.bincount(groups[train], values, 60) for values in (labels[train], None))
        return two((ones[groups[test]] + 0.5) / (rows_of[groups[test]] + 1))

    ignoring, using = (
        estimate(named("accuracy", "ab"), out_of_fold(remember, folds_of(labels, groups=given)), labels, groups=groups)
        for given in (None, groups)
    )
    assert ignoring.low > 0.8  # wrong: new documents are guessed
    assert using.low < 0.5 < using.high


# simulations: inclusion probabilities ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "f1:b", "recall:b", "share:b", "average-precision:b", "balanced-accuracy"])
def test_ignoring_inclusion_probabilities_gives_wrong_intervals_and_using_them_right_ones(name: str) -> None:
    """Gold that was drawn where positives are likely, to find some: weights 1 / probability keep it valid for judging."""
    rng, metric = np.random.default_rng(5), named(name, "ab")
    pool, y = rare(100_000, rng)
    truth = metric(pool, y)
    chance = 1_000 * (0.2 / len(pool) + 0.8 * pool[:, 1] / pool[:, 1].sum())
    ignoring, using = [], []
    for _ in range(REPLICATIONS):
        drawn = rng.random(len(pool)) < chance
        ignoring.append(estimate(metric, pool[drawn], y[drawn]))
        using.append(estimate(metric, pool[drawn], y[drawn], 1 / chance[drawn]))
    assert covered(ignoring, truth) < 0.5, name
    assert (0.9 if name.startswith("average") else 0.92) <= covered(using, truth) <= 0.99, name
    assert np.mean([each.value for each in using]) == pytest.approx(truth, abs=0.02)


# groups ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=30))
def test_joined_groups_are_the_connected_components(pairs: list[tuple[int, int]]) -> None:
    first, second = np.array(pairs).T
    slow = list(range(len(pairs)))
    for _ in pairs:
        for i in range(len(pairs)):
            near = [slow[j] for j in range(len(pairs)) if pairs[i][0] == pairs[j][0] or pairs[i][1] == pairs[j][1]]
            slow[i] = min(near)
    for alike in (joined(first, second), joined(second, first)):
        assert all((alike[i] == alike[j]) == (slow[i] == slow[j]) for i in range(len(pairs)) for j in range(len(pairs)))


@given(st.integers(4, 60), st.integers(2, 12), st.integers(0, 10**6), st.booleans())
def test_rows_of_a_group_and_equal_rows_share_a_fold(m: int, count: int, seed: int, repeated: bool) -> None:
    rng = np.random.default_rng(seed)
    labels, groups = rng.integers(0, 3, m), np.array([f"d{i}" for i in rng.integers(0, count, m)])
    same = np.arange(m)
    if repeated:
        same[m // 2] = 0
    together = joined(groups, same)
    if len(np.unique(together)) < 2:
        with pytest.raises(InputError, match="belong together"):
            folds_of(labels, groups=groups, same=same)
        return
    folds = folds_of(labels, groups=groups, same=same if repeated else None)
    assert all(len(np.unique(folds[groups == group])) == 1 for group in np.unique(groups))
    assert not repeated or folds[m // 2] == folds[0]
    assert 2 <= len(np.unique(folds)) == min(5, len(np.unique(together)))


def test_folds_by_group_are_even_in_rows_and_classes() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 100, 1_000)
    labels = (rng.random(1_000) < 0.1).astype(int)
    folds = folds_of(labels, groups=groups)
    assert np.bincount(folds).min() > 180 and np.bincount(folds).max() < 220
    assert np.bincount(folds[labels == 1]).min() > 0.15 * labels.sum()


def test_groups_in_two_sets_are_found() -> None:
    shared = shared_groups(np.array(["a", "b", "b", "c"]), np.array(["b", "d", "c"]))
    assert shared.groups.tolist() == ["b", "c"] and shared.first.tolist() == [1, 2, 3] and shared.second.tolist() == [0, 2]
    (concern,) = gold_shares_groups(shared, 4, "labeled rows")
    assert "3 of 4 gold rows are of 2 groups that labeled rows have too" in concern.text
    assert gold_shares_groups(shared_groups(np.arange(3), np.arange(3, 5)), 3, "test rows") == ()


def test_groups_that_are_none_are_errors() -> None:
    with pytest.raises(InputError, match="two kinds"):
        shared_groups(np.array(["1"]), np.array([1]))
    with pytest.raises(InputError, match="one group a row"):
        numbered(np.array([1.0, np.nan]), 2)
    with pytest.raises(InputError, match="number of rows"):
        numbered(np.arange(3), 2)
