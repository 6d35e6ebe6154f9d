"""The targets of a training, gathered by row number as its inputs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

if TYPE_CHECKING:
    from wdistill.training.logits import Logits


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


@dataclass(frozen=True, eq=False)
class OneHot:
    """Classes as distributions."""

    classes: Tensor  # (n,)
    count: int  # of classes K

    def rows(self, at: Tensor) -> Tensor:
        return one_hot(self.classes[at.cpu()], self.count).float().to(at.device)


@dataclass(frozen=True, eq=False)
class SoftRows:
    """The truth of some rows as one-hot rows, and between them the teacher's distributions, made of its logits."""

    before: Tensor  # (a,) the truth of the first rows
    logits: Logits  # (n, K) of the next
    after: Tensor  # (c,) the truth of the last
    temperature: float

    def __len__(self) -> int:
        return len(self.before) + self.logits.shape[0] + len(self.after)

    def rows(self, at: Tensor) -> Tensor:
        rows, (n, count), first = at.cpu(), self.logits.shape, len(self.before)
        distributions = torch.zeros(len(rows), count)
        is_soft = (rows >= first) & (rows < first + n)
        wide = torch.from_numpy(self.logits[(rows[is_soft] - first).numpy()]).double() / self.temperature
        distributions[is_soft] = torch.softmax(wide, dim=1).float()
        true = torch.cat([self.before, self.after])
        place = torch.where(rows < first, rows, rows - n)[~is_soft]
        distributions[~is_soft] = one_hot(true[place], count).float()
        return distributions.to(at.device)


@dataclass(frozen=True, eq=False)
class Stacked:
    """The targets of several students, which have the same rows."""

    students: Sequence[TargetRows]

    def rows(self, at: Tensor) -> Tensor:
        return torch.stack([each.rows(at) for each in self.students])


def targets_on(device: torch.device, targets: Sequence[Tensor | TargetRows]) -> TargetRows:
    """The targets of a training on its device; those of several, in one order of their rows, as the targets of a stack."""
    tensors = [each.to(device) for each in targets if isinstance(each, Tensor)]
    if len(tensors) == len(targets):
        return Dense(tensors[0]) if len(tensors) == 1 else Dense(torch.stack(tensors), axis=1)
    gathered = [Dense(each.to(device)) if isinstance(each, Tensor) else each for each in targets]
    return gathered[0] if len(gathered) == 1 else Stacked(gathered)
