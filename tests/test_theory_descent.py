"""The descents of Appendix E: what they are made of, and that each mutant fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.theory import claims, linear, multi_pass, single_pass, smoothness
from experiments.theory.claims import Finding
from experiments.theory.linear import CLASSES, DIMENSIONS, Number, Regularity, Weight
from experiments.theory.simulator import weight
from tests.shortening import SEED, bold, shorten
from wdistill.weights import equations
from wdistill.weights.equations import Floats

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def at() -> linear.Instances:
    return linear.tensors(linear.turned_world(np.random.default_rng(3)))


def models(count: int, seed: int = 0) -> Tensor:
    """Random Θ, inside the ball and on its boundary."""
    return linear.projected(torch.from_numpy(np.random.default_rng(seed).normal(size=(count, CLASSES, DIMENSIONS)) / 3))


def swapped(error: Tensor, distortion: Tensor) -> Tensor:
    return weight(1 - error, distortion)


def clipped(error: Tensor, distortion: Tensor) -> Tensor:
    return weight(error, distortion).clamp(max=1.0)


def half_of_p(error: Tensor, distortion: Tensor) -> Tensor:
    return weight(error / 2, distortion)


# ---------------------------------------------------------------------------------------------------- the common ground


def test_loss_distortion_and_weight_are_those_of_the_library(at: linear.Instances) -> None:
    predictions = at.inputs @ models(1)[0].mT
    logs = equations.log_probabilities(predictions.numpy(), "logits")
    truth, corrupted = (equations.truth_loss(labels.numpy(), logs) for labels in (at.truth, at.corrupted))
    found = [linear.loss(labels, predictions).numpy() for labels in (at.truth, at.corrupted)]
    np.testing.assert_allclose(found, [truth, corrupted], rtol=1e-12)
    distortion = equations.distortion(corrupted, truth)
    ours = weight(at.error, torch.from_numpy(distortion))
    assert float(ours.max()) > 1 > float(ours.min())
    np.testing.assert_allclose(ours.clamp(max=1.0), equations.debiasing_weight(at.error.numpy(), distortion), rtol=1e-12)


def test_the_gradient_runs_through_the_weight_and_is_that_of_torch_func(at: linear.Instances) -> None:
    theta, corrupted = models(len(at.error)), torch.arange(len(at.error)) % 2 == 0

    def one(theta: Tensor, row: Tensor) -> Tensor:
        here = linear.Instances(*(each.index_select(0, row[None])[0] for each in vars(at).values()))
        losses = linear.weighted_losses(theta @ here.inputs, here, weight)
        return torch.where(row % 2 == 0, losses[1], losses[0])

    expected = torch.func.vmap(torch.func.grad(one))(theta, torch.arange(len(at.error)))
    torch.testing.assert_close(linear.gradients(theta, at, corrupted, weight), expected)
    assert not torch.allclose(linear.gradients(theta, at, corrupted, single_pass.detached), expected, atol=0.01)


def test_rules_side_by_side_take_the_steps_they_take_alone(at: linear.Instances) -> None:
    theta, rows, corrupted = models(10), torch.arange(10), torch.arange(10) % 3 == 0

    def both(error: Tensor, distortion: Tensor) -> Tensor:
        return torch.stack([weight(error, distortion[0]), linear.naive(error, distortion[1])])

    found = linear.gradients(torch.stack([theta, theta]), at[rows], corrupted, both)
    alone = [linear.gradients(theta, at[rows], corrupted, each) for each in (weight, linear.naive)]
    torch.testing.assert_close(found, torch.stack(alone))


def test_the_mean_gradient_is_the_clean_one_only_with_debiasing_weights(at: linear.Instances) -> None:
    theta = models(8)
    clean = linear.clean_gradient(theta, at)
    torch.testing.assert_close(linear.mean_gradient(theta, at, linear.chances(at), weight), clean)
    for wrong in (swapped, clipped, single_pass.detached, single_pass.dropped, linear.naive):
        assert not torch.allclose(linear.mean_gradient(theta, at, linear.chances(at), wrong), clean, atol=0.01)


def test_no_point_of_the_ball_is_better_than_the_minimiser(at: linear.Instances) -> None:
    best = linear.minimiser(at)
    gradient = linear.clean_gradient(best, at)
    assert float(linear.gap(best, gradient)) <= linear.SETTLED
    assert float(linear.norm(best)) == pytest.approx(1)
    near = linear.projected(best + 0.02 * torch.randn(500, CLASSES, DIMENSIONS, generator=torch.Generator().manual_seed(0)))
    assert float(linear.risk(torch.cat([near, models(500)]), at).min()) > float(linear.risk(best, at))


def test_the_gap_bounds_what_is_left_to_gain(at: linear.Instances) -> None:
    theta = models(200)
    left = linear.risk(theta, at) - linear.risk(linear.minimiser(at), at)
    assert bool((left <= linear.gap(theta, linear.clean_gradient(theta, at))).all())


@pytest.mark.parametrize("length", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("sign", [-1, 1])
def test_stationarity_is_the_steepest_way_down_within_the_ball(length: float, sign: int) -> None:
    random = torch.Generator().manual_seed(1)
    direction, gradient = torch.randn(2, 1, 2, generator=random, dtype=torch.float64)[:, None]
    theta = sign * length * direction / linear.norm(direction)
    ways = torch.randn(200_000, 1, 2, generator=random, dtype=torch.float64)
    others = linear.projected(theta + 1e-3 * ways)
    steepest = -((others - theta) * gradient).sum(dim=(-2, -1)) / linear.norm(others - theta)
    assert float(linear.stationarity(theta, gradient)) == pytest.approx(float(steepest.max()), rel=2e-3)


def test_projection_keeps_what_is_inside_and_shortens_the_rest() -> None:
    inside, outside = torch.full((1, 2, 2), 0.4), torch.full((1, 2, 2), 3.0)
    assert torch.equal(linear.projected(inside), inside)
    torch.testing.assert_close(linear.projected(outside), torch.full((1, 2, 2), 0.5))


# ----------------------------------------------------------------------------------------------------------- the pieces


def test_the_steps_halve_from_phase_to_phase() -> None:
    np.testing.assert_allclose(single_pass.last_iterate_steps(8, 1.0, np.sqrt(8)), [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.125])
    np.testing.assert_allclose(single_pass.last_iterate_steps(5, 2.0, 2 * np.sqrt(5)), [1, 1, 0.5, 0.25, 0.125])
    assert len(single_pass.last_iterate_steps(1000, 3.0, 2.0)) == 1000


def test_a_sample_is_kept_as_shares_of_its_examples(at: linear.Instances) -> None:
    rows, corrupted, shares = multi_pass.draw(at, 50, 3, np.random.default_rng(0))
    torch.testing.assert_close(shares.sum(dim=(1, 2)), torch.ones(3, dtype=torch.float64))
    for i in range(3):
        for row in range(len(at.error)):
            seen = [((rows[i] == row) & (corrupted[i] == side)).sum() / 50 for side in (False, True)]
            torch.testing.assert_close(shares[i, row], torch.stack(seen).double())


def test_permutations_show_every_example_once_in_a_pass() -> None:
    cell = multi_pass.Cell("permutations", 64, 4096)
    picks = multi_pass.picks(cell, 3, np.random.default_rng(0))
    assert picks.shape == (4096, 3)
    np.testing.assert_array_equal(
        np.sort(picks.reshape(64, 64, 3), axis=1), np.broadcast_to(np.arange(64)[:, None], (64, 64, 3))
    )
    assert len({tuple(each) for each in picks.reshape(64, 64, 3).transpose(0, 2, 1).reshape(-1, 64)}) == 192


def test_the_slope_of_a_power_law_is_its_exponent() -> None:
    sizes = [10, 100, 1000]
    law = np.array(sizes, dtype=float)[:, None] ** -0.7 * np.ones((1, 5))
    assert claims.slope(sizes, law) == (pytest.approx(-0.7), pytest.approx(0, abs=1e-12))
    assert claims.falls("", -0.6, sizes, law).holds and not claims.falls("", -0.8, sizes, law).holds


def test_a_slope_of_too_few_runs_is_undecided_and_does_not_hold() -> None:
    sizes = [10, 100, 1000]
    law = np.array(sizes, dtype=float)[:, None] ** -2.0 * np.array([[0.1, 1.9, 1.0, 1.0]])
    law[0] = law[0, ::-1]  # runs are independent of each other, and each of itself
    unsure = claims.falls("", -0.25, sizes, law)
    assert not unsure.holds and unsure.predicted.startswith("slope ≤ −0.25 + 0.") and unsure.predicted.endswith("undecided")
    sure = claims.falls("", -0.25, sizes, np.tile(law, 100))
    assert sure.holds and sure.error is not None and sure.predicted == f"slope ≤ −0.25 + {4 * sure.error:.2g}"


def test_the_error_of_a_slope_is_how_far_slopes_scatter() -> None:
    random = np.random.default_rng(0)
    sizes = [10, 20, 40, 80]
    means = np.array(sizes)[:, None] ** -0.5
    found = np.array([claims.slope(sizes, means * random.gamma(4, 0.25, (4, 40))) for _ in range(400)])
    assert found[:, 0].mean() == pytest.approx(-0.5, abs=4 * found[:, 0].std() / 20 + 0.01)
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.15)


# ----------------------------------------------- mutants, at the size at which test_theory_cli sees that the claims hold

SMALL = 0.05


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield


def failed(finding: Finding) -> str:
    assert not finding.holds
    return "; ".join(check.claim for check in finding.checks if not check.holds)


@pytest.mark.parametrize("mutant", [swapped, clipped, single_pass.detached])
def test_single_pass_fails_with_wrong_weights(mutant: Weight) -> None:
    found = failed(single_pass.single_pass(seed=SEED, scale=SMALL, weight=mutant, steps=bold))
    assert "E[∇(w ℓ)] = ∇R" in found and "share of runs with R(Θ^(T)) − R(Θ*)" in found and "R = 8, p = 1: R" in found
    assert mutant is not single_pass.detached or "; R(Θ^(T)) − R(Θ*) against T ≥ 64" in found


def test_single_pass_fails_with_the_same_step_for_every_t() -> None:
    def same(horizon: int, lipschitz: float, diameter: float) -> Floats:
        return np.full(horizon, 0.25)

    found = "; " + failed(single_pass.single_pass(seed=SEED, scale=SMALL, steps=same))
    assert "; R(Θ^(T)) − R(Θ*) against T ≥ 64" in found and "share of runs" in found


@pytest.mark.parametrize("mutant", [swapped, clipped, half_of_p, single_pass.detached])
def test_multi_pass_fails_with_wrong_weights(mutant: Weight) -> None:
    found = failed(multi_pass.multi_pass(seed=SEED, scale=SMALL, weight=mutant))
    assert "N·E‖∇R̂^w(Θ*) − ∇R(Θ*)‖²" in found and "largest ‖∇R̂^w − ∇R‖ of 256 Θ against N" in found
    assert "with replacement: least R(Θ) − R(Θ*) in the list against N" in found
    assert "of all starts against N, ε = 0.001" in found and "of all starts against 1/ε" in found
    assert mutant in (clipped, half_of_p) or "with replacement: least R(Θ) − R(Θ*) in the list against T" in found
    assert mutant is half_of_p or "R(Θ̂) − R(Θ*) over 2ε + 2‖∇R − ∇R̂^w‖" in found


def test_multi_pass_fails_with_the_same_step_for_every_t() -> None:
    def same(horizon: int, lipschitz: float, smooth: float) -> float:
        return 6 * multi_pass.step(multi_pass.HORIZONS[0], lipschitz, smooth)

    found = failed(multi_pass.multi_pass(seed=SEED, scale=SMALL, step=same)).split("; ")
    assert len(found) == 6 and all("in the list against" in claim for claim in found)  # every row on lists, and no other


def constant_weight_slope(known: Regularity) -> Number:
    return known.radius * known.m_weight * known.l_loss


def constant_loss_slope(known: Regularity) -> Number:
    return known.l_weight * known.m_loss


def constant_weight_curvature(known: Regularity) -> Number:
    return known.m_weight * known.b_loss * known.radius**2


def half(known: Regularity) -> Number:
    return linear.b_q(known) / 2


def four_fifths(known: Regularity) -> Number:
    return 0.8 * linear.b_q(known)


def cross_once(known: Regularity) -> Number:
    return linear.b_q(known) - known.l_loss * known.l_weight * known.radius


def no_cross(known: Regularity) -> Number:
    return cross_once(known) - known.l_loss * known.l_weight * known.radius


def constant_loss_curvature(known: Regularity) -> Number:
    return known.m_loss * known.b_weight


POINTWISE = "B_q draw by draw"


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"kappa": constant_weight_slope}, "‖∇(w ℓ)‖ ≤ κ"),
        ({"kappa": constant_weight_slope}, "κ draw by draw"),
        ({"kappa": constant_loss_slope}, "κ draw by draw"),
        ({"b_q": constant_weight_curvature}, "‖∇²(w ℓ)‖ ≤ B_q"),
        ({"b_q": half}, "‖∇²(w ℓ)‖ ≤ B_q"),
        ({"b_q": four_fifths}, POINTWISE),
        ({"b_q": cross_once}, POINTWISE),
        ({"b_q": no_cross}, POINTWISE),
        ({"b_q": constant_loss_curvature}, POINTWISE),
    ],
)
def test_smoothness_fails_with_a_constant_too_small(changed: dict[str, smoothness.Constant], claim: str) -> None:
    assert claim in failed(smoothness.smoothness(seed=SEED, scale=0.2, **changed))
