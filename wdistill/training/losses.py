"""Cross-entropies, one for each example: the caller multiplies by the weights and reduces."""

from __future__ import annotations

import torch
from torch import Tensor


def soft_cross_entropy(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """−Σ_k targets_k · log softmax(logits / T)_k; logits and targets (b, K) → (b,)."""
    log_student = _log_softmax(logits, temperature)
    return -(targets.to(log_student.dtype) * log_student).sum(dim=1)


def hard_cross_entropy(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> Tensor:
    """−log softmax(logits / T) at the label; logits (b, K), labels (b,) → (b,)."""
    return -_log_softmax(logits, temperature).gather(1, labels.long()[:, None])[:, 0]


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """(b, K), in float32 at least: half precision ends at the logits, with autocast as without."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(wide / temperature, dim=1)
