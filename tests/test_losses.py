"""Cross-entropies: their values and gradients against the formulas, in every precision and at the extremes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from wdistill.training.losses import soft_cross_entropy, weighted_loss

torch.set_num_threads(1)


def batch(seed: int, rows: int, classes: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (b, K), soft targets (b, K), labels (b,)."""
    random = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(rows, classes, generator=random, dtype=torch.float64)
    targets = torch.softmax(3 * torch.randn(rows, classes, generator=random, dtype=torch.float64), dim=1)
    return logits.to(dtype), targets.to(dtype), torch.randint(classes, (rows,), generator=random)


def hard_cross_entropy(logits: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """The loss that is trained with, of every row alone: (b, K), (b,) → (b,)."""
    rows = zip(logits.split(1), labels.split(1), strict=True)
    return torch.stack([weighted_loss(row, label, torch.ones(1), temperature) for row, label in rows])


def by_hand(logits: list[float], targets: list[float], temperature: float) -> float:
    """−Σ t log softmax(z / T) in plain Python."""
    scaled = [z / temperature for z in logits]
    total = math.log(sum(math.exp(z - max(scaled)) for z in scaled)) + max(scaled)
    return -sum(t * (z - total) for t, z in zip(targets, scaled, strict=True))


@given(st.integers(0, 99), st.integers(1, 5), st.integers(2, 6), st.floats(0.25, 8))
def test_values_and_gradients_follow_the_formulas(seed: int, rows: int, classes: int, temperature: float) -> None:
    logits, targets, labels = batch(seed, rows, classes)
    one_hot = torch.eye(classes, dtype=torch.float64)[labels]
    for wanted, loss in ((targets, soft_cross_entropy), (one_hot, hard_cross_entropy)):
        inside = logits.clone().requires_grad_()
        found = loss(inside, labels if loss is hard_cross_entropy else wanted, temperature)
        assert found.shape == (rows,)
        hand = [by_hand(z, t, temperature) for z, t in zip(logits.tolist(), wanted.tolist(), strict=True)]
        torch.testing.assert_close(found, torch.tensor(hand, dtype=torch.float64))
        weights = torch.arange(1.0, rows + 1, dtype=torch.float64)
        (found * weights).sum().backward()
        formula = weights[:, None] * (torch.softmax(logits / temperature, dim=1) - wanted) / temperature
        torch.testing.assert_close(inside.grad, formula)


def test_rows_do_not_meet() -> None:
    logits, targets, labels = batch(1, 6, 3)
    torch.testing.assert_close(soft_cross_entropy(logits, targets)[2:4], soft_cross_entropy(logits[2:4], targets[2:4]))
    torch.testing.assert_close(hard_cross_entropy(logits, labels)[2:4], hard_cross_entropy(logits[2:4], labels[2:4]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_loss_is_float32_with_autocast_and_without(dtype: torch.dtype) -> None:
    logits, targets, labels = batch(2, 8, 5, dtype)
    plain = soft_cross_entropy(logits, targets), hard_cross_entropy(logits, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = soft_cross_entropy(logits, targets), hard_cross_entropy(logits, labels)
    wide = soft_cross_entropy(logits.double(), targets.double()), hard_cross_entropy(logits.double(), labels)
    for one, other, exact in zip(plain, inside, wide, strict=True):
        assert one.dtype == other.dtype == torch.float32 and torch.equal(one, other)
        torch.testing.assert_close(one.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [65504.0, 1e30])
@pytest.mark.parametrize("temperature", [1e-3, 1.0, 100.0])
def test_extremes_are_finite(size: float, temperature: float) -> None:
    logits = torch.tensor([[size, -size, 0.0], [-size, -size, -size], [size, size, -size]], requires_grad=True)
    targets = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    loss = soft_cross_entropy(logits, targets, temperature) + hard_cross_entropy(logits, targets.argmax(1), temperature)
    loss.sum().backward()
    assert loss.isfinite().all() and (loss >= 0).all() and logits.grad is not None and logits.grad.isfinite().all()


def test_labels_outside_the_classes_do_not_work() -> None:
    logits, _, _ = batch(3, 4, 3)
    for outside in (-1, 3):
        with pytest.raises((RuntimeError, IndexError)):
            hard_cross_entropy(logits, torch.full((4,), outside))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("soft", [True, False])
def test_the_weighted_loss_is_the_mean_of_weight_times_loss(soft: bool, temperature: float) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    soft_targets = torch.softmax(torch.randn(7, 4, generator=generator, dtype=torch.float64), 1)
    weights = torch.rand(7, generator=generator, dtype=torch.float64)
    weights[2] = 0
    targets = soft_targets if soft else soft_targets.argmax(1)
    per_example = (soft_cross_entropy if soft else hard_cross_entropy)(logits, targets, temperature)
    wanted = (per_example * weights).sum() / 7
    found = weighted_loss(logits, targets, weights, temperature)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(each, logits)[0] for each in (wanted, found)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)
    assert (gradients[1][2] == 0).all()
