"""Many small students trained side by side as one model: up to rounding as if each were trained alone, since every step of
Adam is elementwise and no layer mixes them. All see the same batches, so that every difference is paired.

Up to rounding a student is also the one that `wdistill.distill` trains (tests/test_parity.py): order of rows, batches, loss
and optimizer are the product's, which stacks small students of several arms itself (wdistill/training/stack.py). What
differs: the schedule is the leaderboard's own (`drops`); rows that a method does not use are in the batches with weight 0,
where `distill` leaves them out and trains methods with and without gold rows apart; students may have convolutions, and
teachers be as wide as they like; there are no augmentation, checkpoints or accuracies after every epoch.

The leaderboard's lines (commits 397055b and 831fff7), from before commit 0b87b41, had another random order of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, max_pool2d

from wdistill.methods.context import CrossEntropy, Loss
from wdistill.training.optimizer import Schedule
from wdistill.training.passes import batches_of
from wdistill.training.randomness import key, permutation

Floats = NDArray[np.float64]
Moved = Callable[[int, "Students"], None]  # called after every epoch


class Students(nn.Module):
    """S students of one shape; inputs (b, …) → logits (S, b, K). Their parameters have the students first."""

    def __len__(self) -> int:
        return len(next(self.parameters()))

    def copies(self, count: int) -> Students:
        """So many copies of the first student."""
        copied = copy.deepcopy(self)
        for each in (*copied.parameters(), *copied.buffers()):
            each.data = each.data[:1].repeat(count, *[1] * (each.ndim - 1))
        return copied

    def one(self, place: int) -> Students:
        """One of them, alone."""
        alone = copy.deepcopy(self)
        for each in (*alone.parameters(), *alone.buffers()):
            each.data = each.data[place : place + 1].clone()
        return alone


class Perceptrons(Students):
    """Multi-layer perceptrons with ReLU."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        linears = [nn.Linear(before, after) for before, after in pairwise(sizes)]
        self.weights = nn.ParameterList(each.weight.detach().T[None].clone() for each in linears)
        self.biases = nn.ParameterList(each.bias.detach()[None, None].clone() for each in linears)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.flatten(1).expand(len(self), -1, -1)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, hidden.relu() if layer else hidden, weight)
        return hidden


class Networks(Students):
    """Convolutional networks: three convolutions with batch norm and ReLU, halving after two, and a mean over pixels.

    Maps of images in colour have their channels last in memory, and all are halved before ReLU: the same numbers,
    sooner on a processor.
    """

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        sizes = [channels, width, 2 * width, 4 * width]
        layers = [nn.Conv2d(before, after, 3, bias=False) for before, after in pairwise(sizes)]
        last = nn.Linear(sizes[-1], classes)
        self.kernels = nn.ParameterList(each.weight.detach()[None].clone() for each in layers)
        self.scales = nn.ParameterList(torch.ones(1, each) for each in sizes[1:])
        self.shifts = nn.ParameterList(torch.zeros(1, each) for each in sizes[1:])
        self.weight, self.bias = (
            nn.Parameter(last.weight.detach().T[None].clone()),
            nn.Parameter(last.bias.detach()[None, None].clone()),
        )
        for i, each in enumerate(sizes[1:]):
            self.register_buffer(f"mean{i}", torch.zeros(1, each))
            self.register_buffer(f"variance{i}", torch.ones(1, each))

    def forward(self, inputs: Tensor) -> Tensor:
        maps, count = inputs.contiguous(memory_format=torch.channels_last), len(self)
        for i, (kernel, scale, shift) in enumerate(zip(self.kernels, self.scales, self.shifts, strict=True)):
            maps = conv2d(maps, kernel.flatten(0, 1), padding=1, groups=count if i else 1)
            mean, variance = (self.get_buffer(f"{name}{i}").view(-1) for name in ("mean", "variance"))
            maps = batch_norm(maps, mean, variance, scale.view(-1), shift.view(-1), self.training)
            maps = max_pool2d(maps, 2).relu() if i < 2 else maps.relu().mean((2, 3))
        return torch.baddbmm(self.bias, maps.view(len(inputs), count, -1).permute(1, 0, 2), self.weight)


def train(
    students: Students,
    inputs: Tensor,
    targets: Tensor,
    weights: Tensor,
    *,
    epochs: int,
    seed: int,
    batch: int,
    rate: float = 1e-3,
    schedule: Schedule | None = None,
    losses: Sequence[Loss] | None = None,
    first: int = 0,
    moved: Moved | None = None,
) -> None:
    """Adam: inputs (n, d), targets (S, n, K), weights (S, n). The rate follows `schedule`, or else `drops`.

    `losses`: one for each student, of the rows from `first` on; the rows before have the cross-entropy.
    """
    optimizer, factor = torch.optim.Adam(students.parameters(), rate, fused=True), schedule or drops
    special = [(s, loss) for s, loss in enumerate(losses or ()) if not isinstance(loss, CrossEntropy)]
    for epoch in range(epochs):
        students.train()
        batches = list(batches_of(permutation(len(inputs), key(seed, "arm", "order", epoch)), batch))
        for step, rows in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor(epoch + step / len(batches), epochs)
            logits = students(inputs[rows])
            per_row = -(targets[:, rows] * logits.log_softmax(-1)).sum(-1)
            later = rows >= first
            for s, loss in special:
                other = loss(logits[s][later], targets[s, rows[later]], rows[later] - first)
                per_row = per_row.index_put((torch.tensor(s), torch.nonzero(later)[:, 0]), other)
            total = (weights[:, rows] * per_row).sum() / len(rows)
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            optimizer.step()
        if moved:
            moved(epoch + 1, students)


def predictions(students: Students, inputs: Tensor, block: int = 4096) -> Floats:
    """Probabilities (S, n, K)."""
    students.eval()
    with torch.no_grad():
        parts = [students(part).double().softmax(-1) for part in inputs.split(block)]  # type: ignore[no-untyped-call]
    return np.asarray(torch.cat(parts, 1).numpy())


def drops(progress: float, epochs: int) -> float:
    """The leaderboard's schedule: the rate falls to 0.2 and 0.03 of itself after 60 and 85 % of the epochs."""
    done = int(progress) / epochs
    return 1.0 if done < 0.6 else 0.2 if done < 0.85 else 0.03
