"""Losses of the user's in the distortion: weighted risks that are right by them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.distilling import QUICK, go, undrawn
from wdistill import debiased, load, save
from wdistill.core.errors import ConfigError, InputError
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import LOSS_FLOOR
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import weigh

pytestmark = pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
COSTS = np.array([[0.1, 1.0, 1.0], [10.0, 0.1, 5.0], [30.0, 20.0, 0.1]])  # of deciding j where i is true


def weighted_cross_entropy(log_student: Floats, targets: Floats) -> Floats:
    """The cross-entropy, each class by its largest cost."""
    return np.asarray(-(targets * log_student * COSTS.max(axis=1)).sum(axis=1))


def expected_cost(log_student: Floats, targets: Floats) -> Floats:
    """The cost of a class that is drawn from the student's probabilities."""
    return np.asarray((targets @ COSTS * np.exp(log_student)).sum(axis=1))


def cross_entropy(log_student: Floats, targets: Floats) -> Floats:
    return np.asarray(-(targets * log_student).sum(axis=1))


def rows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Floats, Floats]:
    """Labels of rare classes, and a teacher and a student that err more often where they are less sure."""
    labels = rng.choice(3, n, p=[0.8, 0.13, 0.07])

    def predictions(skill: float, off: int) -> Floats:
        sure = rng.uniform(0, 1, n)
        right = rng.random(n) < skill * (0.6 + 0.4 * sure) + (1 - skill) * 0.2
        first, share = np.eye(3)[np.where(right, labels, (labels + off) % 3)], (0.35 + 0.5 * sure)[:, None]
        return np.asarray((1 - share) * rng.dirichlet(np.ones(3), n) + share * first)

    return labels, predictions(0.85, 1), predictions(0.7, 2)


def evidence(gold: int = 200, pool: int = 300, seed: int = 0) -> Evidence:
    rng = np.random.default_rng(seed)
    labels, *known = rows(gold, rng)
    return Evidence(labels, *known, *rows(pool, rng)[1:])


@pytest.mark.slow
@pytest.mark.parametrize("losses", [weighted_cross_entropy, expected_cost])
def test_the_weighted_risk_by_costs_is_unbiased_with_the_costs_in_the_distortion_and_wrong_without(losses: Any) -> None:
    """Fresh gold rows and a fresh pool in every trial; weights before they are clipped."""
    plain, own = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        gold, pool = rows(2_000, rng), rows(6_000, rng)
        log_student, known = np.log(pool[2]), Evidence(*gold, *pool[1:])
        on_targets, truth = (losses(log_student, np.eye(3)[each]) for each in (pool[1].argmax(axis=1), pool[0]))
        for found, given_losses in ((plain, None), (own, losses)):
            weighed = debiased.explain(known, estimate="ratio", targets="hard", neighbors=100, losses=given_losses)
            assert weighed.distortion is not None
            found.append(np.mean(on_targets / weighed.distortion) / truth.mean() - 1)
    error = np.std(own, ddof=1) / np.sqrt(len(own))
    assert abs(np.mean(own)) < 2.5 * error < 0.05, (np.mean(own), error)
    assert np.mean(plain) > 0.4, "the distortion of the cross-entropy leaves the costs of teacher errors in"


@given(st.integers(0, 10**6), st.sampled_from(["paper", "conditional", "ratio"]), st.sampled_from(["soft", "hard"]))
def test_the_cross_entropy_as_a_function_gives_the_same_weights(seed: int, estimate: Any, targets: Any) -> None:
    known = evidence(40, 30, seed)
    wanted = debiased(known, estimate=estimate, targets=targets)
    assert debiased(known, estimate=estimate, targets=targets, losses=cross_entropy) == pytest.approx(wanted, abs=1e-12)


@given(st.integers(0, 10**6), st.integers(-3, 3), st.sampled_from(["paper", "conditional", "ratio"]))
def test_the_unit_of_a_loss_changes_nothing(seed: int, power: int, estimate: Any) -> None:
    known = evidence(40, 30, seed)

    def scaled(log_student: Floats, targets: Floats) -> Floats:
        return 2.0**power * weighted_cross_entropy(log_student, targets)

    assert (
        weighted_cross_entropy(np.log(known.both_on_validation[1]), np.eye(3)[known.validation_labels]).min()
        > 8 * LOSS_FLOOR
    )
    both = [debiased(known, estimate=estimate, losses=each) for each in (scaled, weighted_cross_entropy)]
    assert both[0].tolist() == both[1].tolist()


def test_losses_see_distributions_of_labels_and_of_targets_by_their_rows() -> None:
    known, seen = evidence(), []

    def watching(log_student: Floats, targets: Floats) -> Floats:
        seen.append((log_student, targets))
        return cross_entropy(log_student, targets)

    debiased.fit(known, estimate="ratio", losses=watching)
    (logs, labels), (again, soft) = seen
    student = np.asarray(known.validation_student)
    assert np.exp(logs) == pytest.approx(student) and (logs == again).all()
    assert (labels == np.eye(3)[known.validation_labels]).all() and soft == pytest.approx(known.validation_teacher)
    debiased.fit(known, targets="hard", losses=watching)
    wrong = known.validation_teacher.argmax(axis=1) != known.validation_labels
    assert (seen[3][1] == np.eye(3)[known.validation_teacher.argmax(axis=1)][wrong]).all(), "where the teacher is wrong"


def test_a_rule_fitted_on_losses_is_saved_without_them(tmp_path: Path) -> None:
    known = evidence()
    fitted = debiased.fit(known, estimate="ratio", losses=lambda logs, targets: expected_cost(logs, targets))
    save(fitted, tmp_path / "rule.npz")
    again = weigh(load(tmp_path / "rule.npz"), known.teacher, known.student).weights
    assert again.tolist() == fitted.weigh_rows(known.rows).weights.tolist() != debiased(known, estimate="ratio").tolist()


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ("cross-entropy", "not a loss"),
        (COSTS, "not a loss"),
        (lambda logs, targets: -(targets * logs).sum(), "not one loss a row"),
        (lambda logs, targets: -(targets * logs), "not one loss a row"),
        (lambda logs, targets: np.full(len(logs), "a"), "not one loss a row"),
        (lambda logs, targets: (targets * logs).sum(axis=1), "not losses"),
        (lambda logs, targets: np.full(len(logs), np.nan), "not losses"),
        (lambda logs, targets: np.full(len(logs), np.inf), "not losses"),
    ],
)
def test_what_are_no_losses_is_one_clear_error(losses: Any, said: str) -> None:
    with pytest.raises((ConfigError, InputError), match=said):
        debiased.fit(evidence(), losses=losses)


def test_a_run_knows_its_losses_by_name(tmp_path: Path) -> None:
    with undrawn():
        go(rule=debiased.using(losses=cross_entropy), recipe=QUICK, run=tmp_path / "run")
        with pytest.raises(ConfigError, match="something else"):
            go(rule=debiased, recipe=QUICK, run=tmp_path / "run")
