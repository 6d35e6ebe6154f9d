"""Metrics: against scikit-learn's and slow references, under a posterior over the truth, by class, by name."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from wdistill.core.errors import ConfigError, InputError
from wdistill.methods.metric import Metric, bayes_decision, cost_metric, parse_metric
from wdistill.weights.debiased import debiased
from wdistill.weights.evidence import Evidence

NAMES = (
    "accuracy",
    "balanced-accuracy",
    "macro-f1",
    "log-loss",
    "f1:b",
    "recall:b",
    "precision:b",
    "share:b",
    "average-precision:b",
    "recall@precision=0.6:b",
)
SMOOTH = NAMES[:-1]
LINEAR = ("accuracy", "log-loss", "share:b")


def named(name: str, classes: str = "abc") -> Metric:
    return parse_metric(name, list(classes))


def rows(n: int, classes: int, seed: int, grid: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, labels of which every class has some, and weights; with a grid, probabilities that are often equal."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    raw = rng.dirichlet(np.ones(classes), n) + 0.3 * np.eye(classes)[labels]
    raw = np.rint(grid * raw) + 0.5 if grid else raw
    return raw / raw.sum(axis=1, keepdims=True), labels, rng.random(n) + 0.01


samples = st.builds(rows, st.integers(4, 60), st.integers(2, 4), st.integers(0, 10**6), st.sampled_from([0, 3, 10]))


@settings(max_examples=40)
@given(samples)
def test_values_are_those_of_scikit_learn(sample: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, y, w = sample
    decided, classes = p.argmax(axis=1), "abcd"[: p.shape[1]]
    wanted = {
        "accuracy": sk.accuracy_score(y, decided, sample_weight=w),
        "balanced-accuracy": sk.balanced_accuracy_score(y, decided, sample_weight=w),
        "macro-f1": sk.f1_score(y, decided, average="macro", sample_weight=w),
        "log-loss": sk.log_loss(y, p, sample_weight=w),
        "f1:b": sk.f1_score(y == 1, decided == 1, sample_weight=w),
        "recall:b": sk.recall_score(y == 1, decided == 1, sample_weight=w),
        "average-precision:b": sk.average_precision_score(y == 1, p[:, 1], sample_weight=w),
        "share:b": np.average(y == 1, weights=w),
    }
    if (decided == 1).any():
        wanted["precision:b"] = sk.precision_score(y == 1, decided == 1, sample_weight=w)
    precision, recall, _ = sk.precision_recall_curve(y == 1, p[:, 1], sample_weight=w)
    wanted["recall@precision=0.6:b"] = recall[precision >= 0.6 - 1e-12].max()
    assert {name: named(name, classes)(p, y, w) for name in wanted} == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=40)
@given(samples)
def test_values_by_class_are_those_of_scikit_learn(sample: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, y, w = sample
    decided, classes = p.argmax(axis=1), "abcd"[: p.shape[1]]
    everyone = list(range(p.shape[1]))
    for name in ("accuracy", "balanced-accuracy", "recall:b"):
        wanted = sk.recall_score(y, decided, average=None, labels=everyone, sample_weight=w, zero_division=0)
        assert named(name, classes).classes(p, y, w).values == pytest.approx(wanted)
    wanted = sk.f1_score(y, decided, average=None, labels=everyone, sample_weight=w, zero_division=0)
    assert named("macro-f1", classes).classes(p, y, w).values == pytest.approx(wanted)
    wanted = [sk.average_precision_score(y == c, p[:, c], sample_weight=w) for c in everyone]
    assert named("average-precision:a", classes).classes(p, y, w).values == pytest.approx(wanted)
    losses = -np.log(p[np.arange(len(y)), y])
    wanted = [np.average(losses[y == c], weights=w[y == c]) for c in everyone]
    assert named("log-loss", classes).classes(p, y, w).values == pytest.approx(wanted)
    assert named("macro-f1", classes).of_class(1)(p, y, w) == pytest.approx(named("f1:b", classes)(p, y, w))


@given(samples, st.sampled_from(SMOOTH))
def test_influences_are_derivatives_and_have_mean_0(sample: tuple[np.ndarray, np.ndarray, np.ndarray], name: str) -> None:
    p, y, w = sample
    metric = named(name, "abcd"[: p.shape[1]])
    parts = metric.parts(p, y, w)
    assert parts.influences is not None
    known = ~np.isnan(parts.values)
    assert (w @ parts.influences)[known] == pytest.approx(0, abs=1e-8)
    row, step = len(y) // 2, 1e-6
    up, down = (metric.parts(p, y, w + sign * step * (np.arange(len(y)) == row)).values for sign in (1, -1))
    slope = (up - down) / (2 * step) * w.sum()
    assert parts.influences[row][known] == pytest.approx(slope[known], rel=1e-3, abs=1e-4)


@given(samples, st.sampled_from(NAMES), st.integers(2, 5))
def test_a_weight_counts_as_so_many_rows(sample: tuple[np.ndarray, np.ndarray, np.ndarray], name: str, times: int) -> None:
    p, y, _ = sample
    w = 1 + np.arange(len(y)) % times
    metric = named(name, "abcd"[: p.shape[1]])
    repeated = np.repeat(np.arange(len(y)), w)
    assert metric(p, y, w.astype(float)) == pytest.approx(metric(p[repeated], y[repeated]), nan_ok=True)
    assert metric(p, y) == pytest.approx(metric(p[::-1], y[::-1]), nan_ok=True)


@settings(max_examples=40)
@given(st.integers(2, 5), st.integers(0, 10**6))
def test_linear_metrics_of_a_posterior_are_expected_values(n: int, seed: int) -> None:
    """Against the sum over all 2^n labelings; a ratio of expectations is not the expectation of the ratio."""
    rng = np.random.default_rng(seed)
    p, posterior, w = rng.dirichlet(np.ones(2), n), rng.dirichlet(np.ones(2), n), rng.random(n) + 0.1
    metrics = [*(named(name, "ab") for name in LINEAR), cost_metric(np.array([[0.0, 1], [5, 0.5]]))]
    expected = np.zeros(len(metrics))
    for labels in product((0, 1), repeat=n):
        chance = posterior[np.arange(n), labels].prod()
        expected += chance * np.array([metric(p, np.array(labels), w) for metric in metrics])
    assert [metric(p, posterior, w) for metric in metrics] == pytest.approx(expected.tolist())


def test_ratios_under_a_posterior_come_near_the_expected_value_with_many_rows() -> None:
    rng = np.random.default_rng(0)
    chance = rng.beta(0.3, 2, 4_000)
    posterior = np.stack([1 - chance, chance], axis=1)
    logits = np.log(chance / (1 - chance)) + rng.normal(size=4_000)
    p = np.stack([1 / (1 + np.exp(logits)), 1 / (1 + np.exp(-logits))], axis=1)
    for name in ("f1:b", "recall:b", "balanced-accuracy", "macro-f1", "average-precision:b"):
        metric = named(name, "ab")
        drawn = [metric(p, (rng.random(4_000) < chance).astype(int)) for _ in range(200)]
        assert metric(p, posterior) == pytest.approx(np.mean(drawn), abs=0.2 * np.std(drawn) + 0.004), name


def test_one_hot_truth_is_the_labels() -> None:
    p, y, w = rows(50, 3, 0)
    for name in NAMES:
        assert named(name)(p, np.eye(3)[y], w) == named(name)(p, y, w)


def test_a_class_that_no_row_has_is_left_out_of_means() -> None:
    p = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]])
    labels = np.array([0, 1, 1])
    assert named("balanced-accuracy")(p, labels) == pytest.approx(0.75)
    assert named("macro-f1")(p, labels) == pytest.approx(2 / 3)
    assert np.isnan(named("recall:c")(p, labels)) and np.isnan(named("average-precision:c")(p, labels))


def test_costs_decide_what_costs_least_and_count_it() -> None:
    costs = np.array([[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [9.0, 3.0, 0.5]])
    p, y, w = rows(60, 3, 1)
    slow = [min(range(3), key=lambda j, row=row: sum(row[i] * costs[i, j] for i in range(3))) for row in p]
    metric = cost_metric(costs)
    assert metric.decide(p).tolist() == slow == bayes_decision(p, costs).tolist()
    assert metric(p, y, w) == pytest.approx(np.average(costs[y, slow], weights=w))
    assert not metric.higher and metric.worst == 9
    by_class = [np.average(costs[c, np.array(slow)[y == c]], weights=w[y == c]) for c in range(3)]
    assert metric.classes(p, y, w).values == pytest.approx(by_class)
    assert metric(np.eye(3)[slow], y, w) == pytest.approx(metric(p, y, w))  # decisions may be passed as they are


@given(st.integers(0, 10**6))
def test_no_decision_costs_less_than_bayes_where_the_posterior_is_the_truth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.random((3, 3)) + 0.5
    np.fill_diagonal(costs, rng.random(3) * 0.4)
    posterior = rng.dirichlet(np.ones(3), 20)
    least = cost_metric(costs)(posterior, posterior)
    others = rng.integers(0, 3, (50, 20))
    assert all(least <= np.mean((posterior @ costs)[np.arange(20), other]) + 1e-12 for other in others)


def test_metrics_go_to_other_processes() -> None:
    p, y, w = rows(30, 3, 2)
    for metric in (*map(named, NAMES), cost_metric(1 - np.eye(3))):
        assert pickle.loads(pickle.dumps(metric))(p, y, w) == metric(p, y, w)


def test_a_name_with_a_colon_is_a_class_too() -> None:
    metric = parse_metric("f1:a:b", ["x", "a:b"])
    assert metric.one == 1 and metric.name == "f1:a:b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acuracy", "did you mean accuracy"),
        ("f1", "of which class"),
        ("f1:d", "'d'"),
        ("accuracy:a", "write accuracy"),
        ("recall@precision:a", "recall@precision=0.9:CLASS"),
        ("recall@precision=1.5:a", "at most 1"),
        ("recall@precision=x:a", "not a precision"),
        ("f1=0.5:a", "not a metric"),
    ],
)
def test_a_name_that_is_none_is_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        named(text)


@pytest.mark.parametrize(
    "costs", [np.zeros((2, 3)), np.zeros((2, 2)), np.array([[0, -1], [1, 0.0]]), np.array([[0, np.inf], [1, 0.0]])]
)
def test_what_are_no_costs_is_an_error(costs: np.ndarray) -> None:
    with pytest.raises(InputError, match="cost"):
        cost_metric(costs)


def test_weights_and_truth_that_do_not_fit_are_errors() -> None:
    p, y, w = rows(10, 3, 0)
    for truth, weights in ((y[:5], None), (y, w[:5]), (y, -w), (y, 0 * w), (np.eye(4)[y], None), (y + 1, None)):
        with pytest.raises(InputError):
            named("accuracy")(p, truth, weights)


@pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
def test_the_ratio_estimate_holds_for_any_positive_loss() -> None:
    """Losses by true class in place of the log loss: their weights bring the loss on targets to that on labels."""
    rng, costs = np.random.default_rng(3), np.array([[0.1, 1, 1], [10, 0.1, 5], [30, 20, 0.1]])
    labels = rng.choice(3, 3_000, p=[0.9, 0.07, 0.03])
    teacher, student = (
        0.3 * rng.dirichlet(np.ones(3), 3_000)
        + 0.7 * np.eye(3)[np.where(rng.random(3_000) < right, labels, (labels + off) % 3)]
        for right, off in ((0.8, 1), (0.7, 2))
    )
    evidence = Evidence(labels, teacher, student, teacher, student)
    everyone, cross_entropy = np.arange(3_000), -np.log(student)
    for by_class, losses in (
        (cross_entropy, None),
        (cross_entropy * costs.max(axis=1), lambda logs, targets: -(targets * logs * costs.max(axis=1)).sum(axis=1)),
        (student @ costs.T, lambda logs, targets: (targets @ costs * np.exp(logs)).sum(axis=1)),
    ):
        on_truth, on_target = by_class[everyone, labels], by_class[everyone, teacher.argmax(axis=1)]
        weights = debiased(evidence, estimate="ratio", targets="hard", losses=losses)
        assert np.mean(weights * on_target) == pytest.approx(on_truth.mean(), rel=0.03)
        assert np.mean(on_target) > 1.2 * on_truth.mean()
