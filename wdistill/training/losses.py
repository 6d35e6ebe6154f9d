"""Cross-entropies, one for each example, and the weighted mean over a batch that training minimises."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def soft_cross_entropy(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """−Σ_k targets_k · log softmax(logits / T)_k; logits and targets (b, K) → (b,)."""
    log_student = _log_softmax(logits, temperature)
    return -(targets.to(log_student.dtype) * log_student).sum(dim=1)


def hard_cross_entropy(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> Tensor:
    """−log softmax(logits / T) at the label; logits (b, K), labels (b,) → (b,)."""
    return -_log_softmax(logits, temperature).gather(1, labels.long()[:, None])[:, 0]


def weighted_loss(logits: Tensor, targets: Tensor, weights: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean over the batch of weight × cross-entropy: never divided by the sum of weights. logits (b, K), weights (b,).

    targets (b, K) are soft, (b,) hard. A soft cross-entropy is linear in its target, so the weight goes into the target,
    where it costs no gradient: the fewest operations that give the mean.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    cooled = wide / temperature if temperature != 1 else wide
    if targets.ndim == 2:
        return cross_entropy(cooled, targets * weights[:, None])
    return weighted_mean(cross_entropy(cooled, targets, reduction="none"), weights)


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Mean over the batch of weight × loss, both (b,): never divided by the sum of weights."""
    return torch.dot(losses, weights.to(losses.dtype)) / len(weights)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """(b, K), in float32 at least: half precision ends at the logits, with autocast as without."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(wide / temperature, dim=1)
