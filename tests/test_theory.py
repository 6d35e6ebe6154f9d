"""The theory laboratory: sums by hand on tiny worlds, claims that hold at small size, and mutants that make them fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from experiments.theory import halfspaces as spheres
from experiments.theory import squares as mse
from experiments.theory.bias import debiasing
from experiments.theory.claims import SIGMAS, Check, Finding, away, farthest, measured, near, summary, verdict
from experiments.theory.convergence import bernstein_bound, convergence, range_term, spread_term
from experiments.theory.halfspaces import gap, halfspaces, minimise, slack
from experiments.theory.simulator import (
    Linear,
    Losses,
    World,
    bias,
    cross_entropy,
    distortion,
    draw,
    empirical_risk,
    half_square,
    losses,
    mean,
    risk,
    sample_variance,
    uncertain_world,
    variance,
    weight,
)
from experiments.theory.squares import largest_error, region, simulate, squares, unweighted_error, weighted_error
from wdistill import debiasing_weight
from wdistill.core.errors import ConfigError

torch.set_num_threads(1)

SMALL = 0.05

# -- the simulator, by hand


def world(error: list[float]) -> World:
    n = len(error)
    return World(np.arange(2.0 * n).reshape(n, 2), np.zeros(n, np.int64), np.ones(n, np.int64), np.array(error))


TWO = world([0.5, 0.25])
LOST = Losses(np.array([1.0, 2.0]), np.array([3.0, 1.0]))  # distortions 3 and 1/2


def test_risk_distortion_weight_and_bias_by_hand() -> None:
    assert risk(LOST) == 1.5
    assert distortion(LOST).tolist() == [3.0, 0.5]
    weights = weight(TWO.error, distortion(LOST))
    np.testing.assert_allclose(weights, [1 / 2, 8 / 7])
    assert bias(TWO, LOST) == (0.5 * 2 * 1 + 0.25 * -0.5 * 2) / 2
    assert mean(TWO, LOST.observed) == risk(LOST) + bias(TWO, LOST)
    np.testing.assert_allclose(mean(TWO, weights * LOST.observed), risk(LOST))
    np.testing.assert_allclose(variance(TWO, LOST.observed), (1 + 9) / 4 + (3 * 4 + 1) / 8 - mean(TWO, LOST.observed) ** 2)


def zero_one(labels: Any, predictions: Any) -> Any:
    return (predictions.argmax(axis=1) != labels).astype(np.float64)


@pytest.mark.parametrize("loss", [cross_entropy, zero_one])
@pytest.mark.parametrize("sharpness", [1.0, 30.0, 2000.0])  # losses on the truth of 1e-26, and of 0
def test_weights_and_bias_are_exact_for_sharp_students_and_losses_of_0(loss: Any, sharpness: float) -> None:
    made = uncertain_world(Linear(np.eye(3)), 200, np.random.default_rng(0))
    found = losses(made, lambda inputs: sharpness * (inputs + 0.3 * np.eye(3)[0]), loss)
    assert sharpness == 1.0 or found.truth.min() < 1e-6
    np.testing.assert_allclose(mean(made, found.observed), risk(found) + bias(made, found), rtol=1e-12)
    weights = weight(made.error, distortion(found))
    np.testing.assert_allclose(mean(made, weights * found.observed), risk(found), rtol=1e-12)


def test_a_loss_of_0_on_the_truth_has_weight_0_unless_nothing_is_corrupted() -> None:
    found = Losses(np.array([0.0, 0.0, 0.0]), np.array([2.0, 2.0, 0.0]))
    weights = weight(np.array([0.5, 0.0, 0.5]), distortion(found))
    np.testing.assert_allclose(weights, [0, 1, 1], atol=1e-300)
    assert np.isnan(distortion(Losses(np.array([np.nan]), np.array([1.0])))).all()


def test_no_weight_debiases_a_loss_that_is_never_seen() -> None:
    np.testing.assert_allclose(weight(np.array([1.0, 0.5]), np.array([0.5, 0.0])), [2, 2])
    with pytest.raises(ConfigError, match="p = 1"):
        weight(np.array([0.5, 1.0]), np.array([1.0, 0.0]))


def test_the_librarys_weight_is_this_one_clipped() -> None:
    p, d = np.meshgrid(np.linspace(0, 0.99, 40), np.linspace(0, 9, 40))
    np.testing.assert_allclose(debiasing_weight(p, d), np.minimum(1, weight(p, d)), rtol=1e-15)


def test_a_sample_as_counts_is_the_sample() -> None:
    random = np.random.default_rng(0)
    drawn = draw(TWO, 9, 5, random)
    assert drawn.shape == (5, 2, 2) and (drawn.sum(axis=(1, 2)) == 9).all()
    rows = [np.repeat(LOST.observed.ravel(), each.ravel()) for each in drawn]  # the nine losses themselves
    np.testing.assert_allclose(empirical_risk(drawn, LOST.observed[None])[:, 0], [row.mean() for row in rows])
    np.testing.assert_allclose(sample_variance(drawn, LOST.observed[None])[:, 0], [row.var(ddof=1) for row in rows])


def test_labels_are_corrupted_as_often_as_p_says() -> None:
    n = 100_000
    (drawn,) = draw(world([0.0, 0.1, 1.0]), n, 1, np.random.default_rng(0))
    assert drawn[1, 0] == 0 and drawn[0, 2] == 0
    assert abs(drawn[1, 1] - n / 30) < SIGMAS * math.sqrt(n / 30)


def test_losses_of_any_predictor_and_loss() -> None:
    found = losses(TWO, lambda inputs: inputs, lambda labels, said: said[np.arange(len(labels)), labels])
    assert found.truth.tolist() == [0, 2] and found.corrupted.tolist() == [1, 3]
    logits = np.array([[0.0, math.log(3)]])
    label = np.array([1])
    np.testing.assert_allclose(cross_entropy(label, logits), math.log(4 / 3))
    np.testing.assert_allclose(half_square(label, logits), 1 / 16)
    np.testing.assert_allclose(half_square(1 - label, logits), 9 / 16)


def test_the_adversary_names_the_runner_up_where_two_classes_are_close() -> None:
    made = uncertain_world(Linear(np.eye(3)), 200, np.random.default_rng(0))
    order = np.argsort(-made.inputs, axis=1)
    assert (made.truth == order[:, 0]).all() and (made.corrupted == order[:, 1]).all()
    margins = np.take_along_axis(made.inputs, order, 1)[:, :2] @ [1, -1]
    np.testing.assert_allclose(made.error, 0.8 * np.exp(-margins / 2))


# -- verdicts


def test_verdicts_come_from_standard_errors() -> None:
    values = np.array([0.0, 2.0] * 50)  # mean 1, standard error about 0.1
    assert near("", 1.39, values).holds and not near("", 1.45, values).holds
    assert away("", 1.0, 1.45, values).holds
    assert not away("", 1.0, 1.39, values).holds and not away("", 1.45, 9.0, values).holds
    assert away("", 1.0, 2.0, values).contrast and not near("", 1.0, values).contrast
    assert farthest(1) == pytest.approx(SIGMAS) and 5 < farthest(1000) < 6
    assert not near("", 1.0, np.array([np.nan, 1.0])).holds


def test_numbers_and_verdicts_in_words() -> None:
    sure, unsure = Check("", "", 1 / 3, None, True), Check("", "", -0.123456, 0.00123, False, contrast=True)
    assert measured(sure) == "0.3333" and measured(unsure) == "−0.1235 ± 0.0012"
    assert verdict(sure) == "holds" and verdict(unsure) == "not as expected"
    finding = Finding("a", "b", "c", (sure, unsure), {}, (), dict)
    assert not finding.holds and summary(finding) == "fails: 1 of 2 checks"


# -- claims hold, mutants fail


def swapped(error: Any, distortion: Any) -> Any:
    return weight(1 - error, distortion)


def clipped(error: Any, distortion: Any) -> Any:
    return np.minimum(1, weight(error, distortion))


def without_one(error: Any, distortion: Any) -> Any:
    return 1 / (1 + error * distortion)


def none(error: Any, distortion: Any) -> Any:
    return np.ones(np.broadcast_shapes(np.shape(error), np.shape(distortion)))


def clipped_at_2(error: Any, distortion: Any) -> Any:
    return np.minimum(2, weight(error, distortion))


WEIGHTS = [swapped, clipped, clipped_at_2, without_one, none]


@pytest.mark.parametrize("experiment", [debiasing, convergence, squares])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_claims_hold_at_small_size(experiment: Callable[..., Finding], seed: int) -> None:
    finding = experiment(seed=seed, scale=SMALL)
    assert finding.holds, [check for check in finding.checks if not check.holds]
    assert finding.name == experiment.__name__
    assert any(check.contrast for check in finding.checks) and not all(check.contrast for check in finding.checks)


@pytest.mark.parametrize("experiment", [debiasing, convergence, squares])
@pytest.mark.parametrize("mutant", WEIGHTS)
def test_a_wrong_weight_makes_a_claim_fail(experiment: Callable[..., Finding], mutant: Any) -> None:
    failed = [
        check.claim for check in experiment(scale=SMALL, weight=mutant).checks if not check.holds and not check.contrast
    ]
    assert failed


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_proposition_2_1_notices_a_wrong_p(factor: float) -> None:
    assert not debiasing(scale=SMALL, weight=lambda error, d: weight(np.minimum(0.99, factor * error), d)).holds


def test_a_bound_that_is_too_small_is_broken() -> None:
    finding = convergence(scale=SMALL, bound=lambda *arguments: 0.02 * bernstein_bound(*arguments))
    assert {check.claim for check in finding.checks if not check.holds} == {
        "share of samples that break the bound on R_S",
        "share of samples that break the bound on R_S^w",
    }


def test_a_bound_without_its_variance_term_is_broken() -> None:
    finding = convergence(
        scale=SMALL, bound=lambda variance, n, growth, chance, top: 0 * variance + range_term(n, growth, chance, top)
    )
    assert {check.claim for check in finding.checks if not check.holds} == {
        "share of samples that break the bound on R_S",
        "share of samples that break the bound on R_S^w",
    }


def test_a_bound_without_its_range_term_is_broken() -> None:
    finding = convergence(
        scale=SMALL, bound=lambda variance, n, growth, chance, top: spread_term(variance, n, growth, chance)
    )
    (broken,) = (check for check in finding.checks if not check.holds)
    assert broken.claim == "share of samples that break the bound on a loss of 1 with chance 0.01, else 0, n = 16"
    assert not broken.contrast and broken.measured > 0.5


def test_contrasts_do_not_rest_on_the_weight_under_test() -> None:
    beside = [check for check in debiasing(scale=SMALL, weight=none).checks if check.contrast]
    assert len(beside) == 8 and all(check.holds for check in beside)


def test_a_simulation_that_decides_too_few_points_is_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mse, "farthest", lambda count: 1e9)
    claim = "points where simulation and region disagree"
    assert [check.claim for check in squares(scale=SMALL).checks if not check.holds] == [claim]


def test_both_squared_errors_are_simulated_with_labels_of_their_own() -> None:
    first, second = (check.measured for check in squares(scale=SMALL).checks[2:4])
    assert first != second


def test_the_bound_by_hand() -> None:
    logarithm = math.log(2 * 10 / 0.05)
    expected = math.sqrt(18 * 0.3 * logarithm / 100) + 15 * 2.0 * logarithm / 99
    np.testing.assert_allclose(bernstein_bound(np.array(0.3), 100, 10, 0.05, 2.0), expected)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda error, distortion: (distortion < 0.45) & region(error, distortion),
        lambda error, distortion: distortion < 0.5,
        lambda error, distortion: (distortion < 0.5) & (error < 1 - 2 * distortion),
    ],
)
def test_another_region_makes_the_mse_proposition_fail(mutant: Any) -> None:
    assert not squares(scale=SMALL, region=mutant).holds


def test_squared_errors_by_hand() -> None:
    p, d, w = np.array([0.25]), np.array([3.0]), np.array([0.5])
    assert unweighted_error(p, d) == 1.0
    assert weighted_error(p, d, w) == 0.75 * 0.25 + 0.25 * 0.25
    assert largest_error(np.array([0.0, 0.25, 0.5, 4.0])).tolist() == pytest.approx([1, 8 / 9, 0, 0])
    certain = simulate(np.array([1.0]), d, w, 10, np.random.default_rng(0))  # every label is corrupted
    assert certain.unweighted == 4.0 and certain.weighted == 0.25


# -- halfspaces


def unit(*values: float) -> torch.Tensor:
    return torch.tensor([*values, 0.0, 0.0], dtype=torch.float64)


def test_a_risk_on_the_sphere_is_what_sampling_finds() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(200_000, 4, generator=random, dtype=torch.float64)
    x = 7.0 * x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    for theta in (unit(0.3, -0.5), unit(-0.2, 0.9), unit(1.0, 0.0)):
        values = torch.nn.functional.softplus(-torch.sign(x[:, 0]) * (x @ theta)).numpy()
        assert near("", float(spheres.risk(theta, unit(1, 0), torch.tensor(7.0))), values).holds


def test_the_gap_is_exact_and_reaches_half_of_c() -> None:
    for c in (0.1, 0.4, 1.0):
        radius = c / 2 / gap(c, 4, 1.0)
        teacher, truth = unit(math.cos(math.pi * c), math.sin(math.pi * c)), unit(1, 0)
        found = [float(spheres.risk(theta, truth, torch.tensor(radius))) for theta in (teacher, truth)]
        assert found[0] - found[1] == pytest.approx(c / 2, rel=1e-6)
    assert gap(0.3, 2, 1.0) == pytest.approx((1 - math.cos(0.3 * math.pi)) / math.pi)  # on a circle, by hand


def test_descent_finds_the_teacher_and_slack_tells_what_is_not_found() -> None:
    truth, radius = unit(0, 1)[None].repeat(2, 1), torch.tensor([3.0, 40.0], dtype=torch.float64)
    begin = torch.stack([unit(0.1, -0.9), unit(1, 0)])
    found = minimise(begin, truth, radius)
    assert torch.linalg.vector_norm(found - truth, dim=1).max() < 1e-5
    assert slack(found, truth, radius).max() < 1e-5 and slack(begin, truth, radius).min() > 0.1


@pytest.mark.proof
@pytest.mark.slow
def test_the_naive_objective_fails_and_a_smaller_angle_does_not_suffice() -> None:
    finding = halfspaces(scale=SMALL)
    assert finding.holds, [check for check in finding.checks if not check.holds]
    assert finding.name == "halfspaces"
    mutant = halfspaces(scale=SMALL, angle=lambda noise: math.pi * noise / 2)
    failed = {check.claim for check in mutant.checks if not check.holds}
    assert {"smallest gap / (c/2), R = √d/c and more", "farthest share of wrong labels from c, in standard errors"} <= failed
