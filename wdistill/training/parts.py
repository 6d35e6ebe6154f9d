"""The gradients of a batch from its parts, added in the order of the parts: the same bits whoever has computed them.

A batch is cut into parts (micro-batches), and every part is one forward and backward pass. One process computes them one
after the other (gradient accumulation), several processes each some of them (data parallelism). Sums of floating-point
numbers depend on their order, so vectors are exchanged, and each is added in its turn. Every part starts from the same
buffers (of batch norm, for instance); the batch moves them by the mean of what its parts would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from wdistill.core.errors import from_words, in_words
from wdistill.training.optimizer import Optimization
from wdistill.training.ranks import Ranks


def parts_of(rows: Tensor, count: int) -> list[Tensor]:
    """The rows of a batch in so many parts of the same length, up to one row; fewer, where parts would have a single row."""
    return list(rows.tensor_split(max(1, min(count, len(rows) // 2))))


def sum_in_order(mine: Iterable[Tensor], parts: int, length: int, ranks: Ranks, device: torch.device) -> Tensor:
    """v_0 + v_1 + … of vectors (length,), one for every part; `mine` are those numbered rank, rank + size, …"""
    vectors, total = iter(mine), None
    if ranks.size == 1:
        for vector in vectors:
            total = vector if total is None else total.add_(vector)
        assert total is not None
        return total
    share = -(-length // ranks.size)
    for first in range(0, parts, ranks.size):
        rows = torch.zeros(ranks.size * share, dtype=torch.float32, device=device)
        if first + ranks.rank < parts:
            vector = next(vectors)
            rows = rows.to(vector.dtype)
            rows[:length] = vector
        received = ranks.exchange(rows).view(ranks.size, share)
        for vector in received[: parts - first]:
            total = vector.clone() if total is None else total.add_(vector)
    assert total is not None
    return ranks.gather(total)[:length]


@dataclass(frozen=True)
class Summed:
    """What the parts of a batch say together."""

    loss: float  # of the batch
    stopping: bool  # whether a process was asked to stop


class Gradients(Protocol):
    """Who computes which parts of a batch, and how their gradients come together."""

    def numbers(self, parts: int) -> range:
        """Of the parts that this process computes; a number beyond the last stands for nothing."""

    def gradients(self, parts: int, losses: Iterable[Callable[[], Tensor]], stopping: Callable[[], bool]) -> Summed:
        """From the losses of this process' parts, each its share of the batch's mean."""


class PartedBatch:
    """The gradients of batches that are cut into parts; they are left where the optimizer looks for them."""

    def __init__(self, optimization: Optimization, ranks: Ranks, device: torch.device) -> None:
        self.optimization, self.ranks, self.device = optimization, ranks, device
        modules = nn.ModuleList([optimization.model, optimization.auxiliary])
        self.trained = [parameter for parameter in modules.parameters() if parameter.requires_grad]
        self.buffers = [buffer for buffer in modules.buffers() if buffer.dtype != torch.bool]
        self.length = sum(each.numel() for each in (*self.trained, *self.buffers)) + len(self.trained) + 3

    def numbers(self, parts: int) -> range:
        """Of the parts that this process computes."""
        return range(self.ranks.rank, parts, self.ranks.size)

    def gradients(self, parts: int, losses: Iterable[Callable[[], Tensor]], stopping: Callable[[], bool]) -> Summed:
        """From the losses of this process' parts, each its share of the batch's mean."""
        before, failed = [buffer.clone() for buffer in self.buffers], list[Exception]()

        def vectors() -> Iterator[Tensor]:
            for loss in losses:
                for buffer, value in zip(self.buffers, before, strict=True):
                    buffer.copy_(value)
                try:
                    yield self._vector(loss, before, stopping())
                except Exception as error:  # the others wait for this part: they are told with the sum
                    failed.append(error)
                    yield torch.ones(self.length, device=self.device)

        total = sum_in_order(vectors(), parts, self.length, self.ranks, self.device)
        if total[-1] > 0:
            said = self.ranks.agree(in_words(failed[0]) if failed else None)
            raise failed[0] if failed else from_words(next(each for each in said if each))
        self._put(total, before, parts)
        return Summed(float(total[-3]), bool(total[-2] > 0))

    def _vector(self, loss: Callable[[], Tensor], before: list[Tensor], stopping: bool) -> Tensor:
        """Gradients, which of them there are, how far buffers moved, the loss, and two flags."""
        self.optimization.zero()
        value = loss()
        self.optimization.backward(value)
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in self.trained]
        moved = [buffer.double() - value.double() for buffer, value in zip(self.buffers, before, strict=True)]
        there = [each.grad is not None for each in self.trained]
        last = [*map(float, there), float(value.detach()), float(stopping), 0.0]
        flat = [each.detach().reshape(-1).float() for each in (*gradients, *moved)]
        return torch.cat([*flat, torch.tensor(last, device=self.device)])

    def _put(self, total: Tensor, before: list[Tensor], parts: int) -> None:
        """Gradients into the parameters, buffers to where the batch moves them."""
        places = torch.split(total, [each.numel() for each in (*self.trained, *self.buffers)] + [len(self.trained), 3])
        there = places[-2].tolist()
        for parameter, values, used in zip(self.trained, places, there, strict=False):
            parameter.grad = values.view_as(parameter).to(parameter.dtype) if used else None
        for buffer, start, values in zip(self.buffers, before, places[len(self.trained) :], strict=False):
            end = start.double() + values.view_as(start).double() / parts
            buffer.copy_(end if buffer.is_floating_point() else end.round())
