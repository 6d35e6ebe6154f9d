"""The targets of a training, gathered by row number as its inputs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class TargetRows(Protocol):
    """Targets of n rows, of which only those of a batch need be in memory."""

    def rows(self, at: Tensor) -> Tensor:
        """Those of the rows with these numbers (b,): distributions (b, K) or classes (b,); of a stack (S, b, K)."""
        ...


@dataclass(frozen=True, eq=False)
class Dense:
    """Targets in one tensor, on the device of the training."""

    values: Tensor  # (n, K) or (n,); of a stack (S, n, K)
    axis: int = 0  # of the rows

    def rows(self, at: Tensor) -> Tensor:
        return self.values.index_select(self.axis, at)


def targets_on(device: torch.device, targets: Sequence[Tensor]) -> TargetRows:
    """The targets of a training on its device; those of several, in one order of their rows, as the targets of a stack."""
    values = [each.to(device) for each in targets]
    return Dense(values[0]) if len(values) == 1 else Dense(torch.stack(values), axis=1)
