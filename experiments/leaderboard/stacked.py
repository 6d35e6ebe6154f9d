"""Many small students side by side as one model, which the product's own loop trains (wdistill/training/loop.py): up to
rounding as if each were trained alone, since every step of Adam is elementwise and no layer mixes them. All see the same
batches, so that every difference is paired.

What is the leaderboard's own: its layers, of which the product stacks no convolutions, and its schedule of the rate
(`drops`). Rows that a method does not use are in the batches with weight 0, where `distill` leaves them out and trains
methods with and without gold rows apart; there are no augmentation and no accuracies after every epoch, and checkpoints are
in a folder that is removed at the end.

The lines of the leaderboard (commits 397055b and 831fff7) and of the confirmation are from before, from loops of their own
(tests/test_parity.py compared them with `distill`); those of the leaderboard also had another random order of rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, max_pool2d

from wdistill.runs.outcome import Refresh
from wdistill.runs.recipe import Recipe
from wdistill.training.inputs import InMemory
from wdistill.training.loop import run_stages
from wdistill.training.optimizer import Schedule
from wdistill.training.stack import Alone, Stack
from wdistill.training.stage import Callbacks, Estimate, Examples, Stage
from wdistill.weights.diagnostics import Histogram

Floats = NDArray[np.float64]
RowLosses = Callable[[Tensor, Tensor, Tensor], Tensor]  # logits (b, K), targets (b, K), row numbers (b,) → (b,)
Refreshed = Callable[["Students"], Tensor]  # one student as it is now → weights (n,)


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


class OnlyOne(nn.Module):
    """A single student of the leaderboard as the product's loop trains it; inputs (b, …) → logits (b, K)."""

    def __init__(self, students: Students) -> None:
        super().__init__()
        self.students = students

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.students(inputs)
        return logits[0]


@dataclass(frozen=True, eq=False)
class SideBySide(Stack):
    """Several of them."""

    def student(self, number: int) -> nn.Module:
        """That student by itself: its logits are (1, b, K)."""
        assert isinstance(self.model, Students)
        return self.model.one(number)


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
    losses: Sequence[RowLosses | None] = (),
    refreshes: Sequence[Refreshed | None] = (),
    after_epoch: Callable[[int], None] = lambda epoch: None,
) -> None:
    """Adam: inputs (n, d), targets (S, n, K), weights (S, n). The rate follows `schedule`, or else `drops`.

    `losses`: one for each student, None for the cross-entropy. `refreshes`: weights of a student before every epoch, None
    where they stay.
    """
    recipe = Recipe(epochs=epochs, batch_size=batch, rate=rate, seed=seed, checkpoint_seconds=math.inf)
    rows, ids = InMemory(inputs), np.arange(len(inputs))

    def stage(number: int) -> Stage:
        renew = refreshes[number] if refreshes else None
        return Stage(
            f"student {number}",
            Path(folder) / str(number),
            Examples(rows, targets[number], weights[number], ids),
            epochs,
            order="arm",
            schedule=schedule or drops,
            loss=losses[number] if losses else None,
            estimate=None if renew is None else partial(_estimate, renew),
            every=1,
        )

    def on_event(event: Mapping[str, Any]) -> None:
        if event["what"] == "epoch" and event["stage"] == "student 0":
            after_epoch(event["epoch"])

    with TemporaryDirectory() as folder:
        several = SideBySide(students, students, len(students), frozenset())
        trained = several if len(students) > 1 else Alone(OnlyOne(students))
        run_stages([stage(s) for s in range(len(students))], trained, recipe, {}, Callbacks(on_event=on_event))


def _estimate(renew: Refreshed, student: nn.Module, after: int) -> Estimate:
    """The weights of one student after so many epochs, with the record that the product's loop keeps of them."""
    alone = student.students if isinstance(student, OnlyOne) else student
    assert isinstance(alone, Students)
    weights = renew(alone)
    histogram = Histogram().plus(weights.numpy())
    return Estimate(weights, Refresh(after, histogram, None, None, 0, 0, 0.0, 0.0, 0.0, ""), {})


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
