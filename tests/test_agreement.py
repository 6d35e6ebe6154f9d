"""Several annotators: agreement against slow references, the ceiling that it sets, and accuracies beyond it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.test_interval import covered
from tests.test_metric import named
from wdistill.core.errors import InputError
from wdistill.methods.agreement import accuracy_beyond_ceiling, agreement, annotator_accuracy
from wdistill.methods.interval import estimate

K = 4


def annotated(m: int, annotators: int, accuracy: float, rng: np.random.Generator, missing: float = 0.0) -> tuple:
    """A truth, and noisy copies of it."""
    truth = rng.integers(0, K, m)
    return truth, noisy(truth, annotators, accuracy, rng, missing)


def noisy(truth: np.ndarray, copies: int, accuracy: float, rng: np.random.Generator, missing: float = 0.0) -> np.ndarray:
    shape = len(truth), copies
    wrong = (truth[:, None] + rng.integers(1, K, shape)) % K
    labels = np.where(rng.random(shape) < accuracy, truth[:, None], wrong)
    return np.where(rng.random(shape) < missing, -1, labels)


@given(st.integers(2, 12), st.integers(2, 4), st.integers(0, 10**6))
def test_agreement_is_the_share_of_equal_pairs(m: int, annotators: int, seed: int) -> None:
    labels = annotated(m, annotators, 0.7, np.random.default_rng(seed), 0.3)[1]
    pairs = [[a == b for a, b in combinations(row[row >= 0], 2)] for row in labels]
    assume(any(pairs))
    found = agreement(labels, K)
    assert found.pairwise.value == pytest.approx(np.mean([np.mean(row) for row in pairs if row]))
    assert found.rows == sum(map(bool, pairs))
    assert found.pairwise.low <= found.pairwise.value <= found.pairwise.high
    assert found.ceiling.low <= found.ceiling.value <= found.ceiling.high
    first = [np.mean(row[1:][row[1:] >= 0] == row[0]) for row in labels if row[0] >= 0 and (row >= 0).sum() > 1]
    assert found.by_annotator[0] == pytest.approx(np.mean(first) if first else np.nan, nan_ok=True)


@given(st.floats(0.25, 1.0), st.integers(2, 10))
def test_the_accuracy_of_an_annotator_solves_its_equation(accuracy: float, classes: int) -> None:
    accuracy = max(accuracy, 1 / classes)
    both = accuracy**2 + (1 - accuracy) ** 2 / (classes - 1)
    assert annotator_accuracy(both, classes) == pytest.approx(accuracy, abs=1e-6)
    assert both - 1e-12 <= accuracy <= np.sqrt(both) + 1e-12


@pytest.mark.slow
def test_the_ceiling_is_the_accuracy_of_a_perfect_model_against_one_annotator() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(500):
        truth, labels = annotated(200, 3, 0.85, rng, 0.2)
        found.append(agreement(labels, K))
    assert 0.92 <= covered([each.ceiling for each in found], 0.85) <= 0.99
    assert all(each.bounds[0] <= each.ceiling.value <= each.bounds[1] for each in found)
    truth, labels = annotated(50_000, 1, 0.85, rng)
    assert np.mean(truth == labels[:, 0]) == pytest.approx(0.85, abs=0.01)


@pytest.mark.slow
def test_ignoring_the_noise_of_annotators_gives_wrong_intervals_and_using_it_right_ones() -> None:
    """A model that is right in 95 % of rows, judged by annotators who are in 85 %."""
    rng, ignoring, using, measured = np.random.default_rng(1), [], [], []
    for _ in range(500):
        truth, labels = annotated(400, 2, 0.85, rng, 0.1)
        kept = (labels >= 0).any(axis=1)
        labels, decided = labels[kept], noisy(truth, 1, 0.95, rng)[kept, 0]
        one = np.where(labels[:, 0] >= 0, labels[:, 0], labels[:, 1])
        ignoring.append(estimate(named("accuracy", "abcd"), np.eye(K)[decided], one))
        found = accuracy_beyond_ceiling(decided, labels, K)
        assert found is not None and found.rows == len(labels)
        using.append(found.corrected)
        measured.append(found.measured)
    assert np.mean(measured) == pytest.approx(0.95 * 0.85 + 0.05 * 0.15 / (K - 1), abs=0.01)
    assert covered(ignoring, 0.95) < 0.01
    assert 0.92 <= covered(using, 0.95) <= 0.99
    assert np.mean([each.value for each in using]) == pytest.approx(0.95, abs=0.01)


def test_annotators_who_agree_by_chance_tell_nothing_of_an_accuracy() -> None:
    rng = np.random.default_rng(3)
    for accuracy, told in ((1 / K, False), (0.85, True)):
        truth, labels = annotated(200, 2, accuracy, rng)
        assert (accuracy_beyond_ceiling(truth, labels, K) is not None) == told


def test_annotators_who_always_agree_leave_an_accuracy_as_it_is() -> None:
    rng = np.random.default_rng(4)
    truth = rng.integers(0, K, 200)
    decided = noisy(truth, 1, 0.8, rng)[:, 0]
    found = accuracy_beyond_ceiling(decided, np.stack([truth, truth], axis=1), K)
    assert found is not None and found.corrected.value == pytest.approx(found.measured) == pytest.approx(
        np.mean(decided == truth)
    )


@pytest.mark.slow
def test_agreement_within_groups_is_less_certain() -> None:
    """Documents that are hard throughout: only with the groups does the interval cover."""
    rng, ignoring, using = np.random.default_rng(2), [], []
    for _ in range(500):
        groups = np.repeat(np.arange(40), 10)
        same = rng.random(400) < rng.beta(4, 1, 40)[groups]
        labels = np.stack([np.zeros(400, int), np.where(same, 0, 1)], axis=1)
        ignoring.append(agreement(labels, K).pairwise)
        using.append(agreement(labels, K, groups=groups).pairwise)
    assert covered(ignoring, 0.8) < 0.88
    assert 0.92 <= covered(using, 0.8) <= 0.99


def test_annotators_who_always_agree_may_disagree_on_other_rows() -> None:
    labels = np.zeros((50, 2), int)
    found = agreement(labels, K)
    assert found.pairwise.value == 1 and found.pairwise.low < 0.95 and found.ceiling.low < 1


@pytest.mark.parametrize(
    "labels", [np.zeros(3, int), np.full((3, 2), -1), np.array([[0, K]]), np.array([[0, -2]]), np.array([[0.5, 1]])]
)
def test_what_are_no_labels_of_annotators_is_an_error(labels: np.ndarray) -> None:
    with pytest.raises(InputError, match="annotator"):
        agreement(labels, K)
