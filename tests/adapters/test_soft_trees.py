"""The soft cross-entropy of boosted trees, against finite differences and the core's own loss."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from wdistill.adapters.soft_trees import cross_entropy, derivatives, initial_scores, probabilities
from wdistill.training.losses import weighted_loss


def batch(seed: int, rows: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    targets = rng.dirichlet(np.full(classes, 0.5), rows)
    return rng.normal(0, 3, (rows, classes)), targets, rng.exponential(size=rows) * (rng.random(rows) < 0.9)


batches = st.builds(batch, st.integers(0, 10_000), st.integers(1, 6), st.integers(2, 6))


@given(batches)
def test_the_gradient_is_that_of_the_sum_of_weighted_losses(drawn: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, targets, weight = drawn
    gradient, _ = derivatives(scores, targets, weight, 1.0)
    step = 1e-5
    for place in np.ndindex(*scores.shape):
        up, down = scores.copy(), scores.copy()
        up[place] += step
        down[place] -= step
        rise = (cross_entropy(up, targets, weight) - cross_entropy(down, targets, weight)) * len(scores)
        np.testing.assert_allclose(gradient[place], rise / (2 * step), atol=1e-6)


@given(batches, st.floats(1, 3))
def test_the_hessian_is_its_diagonal_times_the_factor(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray], factor: float
) -> None:
    scores, targets, weight = drawn
    _, hessian = derivatives(scores, targets, weight, factor)
    step = 1e-5
    for place in np.ndindex(*scores.shape):
        up, down = scores.copy(), scores.copy()
        up[place] += step
        down[place] -= step
        rise = derivatives(up, targets, weight, factor)[0][place] - derivatives(down, targets, weight, factor)[0][place]
        np.testing.assert_allclose(hessian[place], factor * rise / (2 * step), atol=1e-6)


@given(batches)
def test_loss_and_gradient_are_those_of_the_core(drawn: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, targets, weight = drawn
    logits = torch.tensor(scores, requires_grad=True)
    loss = weighted_loss(logits, torch.tensor(targets), torch.tensor(weight))
    loss.backward()
    np.testing.assert_allclose(cross_entropy(scores, targets, weight), loss.item(), atol=1e-6)
    gradient, _ = derivatives(scores, targets, weight, 1.0)
    assert logits.grad is not None
    np.testing.assert_allclose(gradient / len(scores), logits.grad.numpy(), atol=1e-6)


@given(batches)
def test_the_initial_scores_are_the_best_of_all_constants(drawn: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    _, targets, weight = drawn
    weight = weight + 0.1
    constant = np.tile(initial_scores(targets, weight), (len(targets), 1))
    gradient, _ = derivatives(constant, targets, weight, 1.0)
    np.testing.assert_allclose(gradient.sum(axis=0), 0, atol=1e-9)


def test_a_class_that_no_target_names_has_a_finite_score() -> None:
    scores = initial_scores(np.array([[0.5, 0.5, 0.0]]), np.ones(1))
    assert np.isfinite(scores).all() and probabilities(scores[None])[0, 2] < 1e-14


def test_scores_of_any_size_give_finite_numbers() -> None:
    scores, targets, weight = np.array([[1e4, -1e4, 0.0]]), np.array([[0.0, 1.0, 0.0]]), np.ones(1)
    assert np.isfinite(cross_entropy(scores, targets, weight))
    assert all(np.isfinite(each).all() for each in derivatives(scores, targets, weight, 1.5))
