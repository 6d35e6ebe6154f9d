"""Cross-entropies per example, and the weighted mean over a batch that training minimises."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from wdistill.core.errors import wrong_shape


def soft_cross_entropy(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """−Σ_k targets_k · log softmax(logits / T)_k; logits and targets (b, K) → (b,)."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))  # with and without autocast
    log_student = torch.log_softmax(wide / temperature, dim=1)
    return -(targets.to(log_student.dtype) * log_student).sum(dim=1)


def weighted_loss(logits: Tensor, targets: Tensor, weights: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean over the batch of weight × cross-entropy: never divided by the sum of weights. logits (b, K), weights (b,).

    targets (b, K) are soft, (b,) hard. A soft cross-entropy is linear in its target, so the weight multiplies the target,
    which has no gradient: fewer operations for the same mean.
    """
    if targets.ndim == 2 and targets.shape != logits.shape:
        found, expected = f"logits {tuple(logits.shape)}", f"{tuple(targets.shape)}, as the targets have"
        remedy = "end the student in a column for each class"
        raise wrong_shape("the student has other classes", "logits", found, expected, remedy)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scaled = wide / temperature if temperature != 1 else wide
    if targets.ndim == 2:
        return cross_entropy(scaled, targets * weights[:, None])
    return weighted_mean(cross_entropy(scaled, targets, reduction="none"), weights)


def weighted_losses(logits: Tensor, targets: Tensor, weights: Tensor, temperature: float = 1.0) -> Tensor:
    """`weighted_loss` of every student; logits and targets (S, b, K), weights (S, b) → (S,)."""
    scaled = logits / temperature if temperature != 1 else logits
    losses = cross_entropy(scaled.flatten(0, 1), (targets * weights[:, :, None]).flatten(0, 1), reduction="none")
    return losses.view(weights.shape).mean(1)


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Mean over the batch of weight × loss, both (b,): never divided by the sum of weights."""
    return torch.dot(losses, weights.to(losses.dtype)) / len(weights)
