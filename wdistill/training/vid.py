"""Variational Information Distillation (Ahn et al. 2019, equations (2), (4) and (6)), one loss for each example.

Beside its task, the student is asked for features from which the teacher's can be told: for a pair of layers, the teacher's
features t have the density q(t | s), a Gaussian whose mean is a regressor of the student's features s and whose variance is
one learned number per channel. The loss is −log q(t | s), without its constant ½ log 2π.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from wdistill.errors import ConfigError
from wdistill.recipe import Recipe
from wdistill.training.features import shapes, tapped
from wdistill.training.inputs import Inputs
from wdistill.training.predicting import casting, device_of, failed, forward
from wdistill.training.randomness import begin, key
from wdistill.training.stage import Guide

VARIANCE = 5.0  # at the start, and
FLOOR = 1e-5  # added to it, as in the common implementation
CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}  # by the number of axes after the channels
POOLINGS: dict[int, Any] = {
    1: functional.adaptive_avg_pool1d,
    2: functional.adaptive_avg_pool2d,
    3: functional.adaptive_avg_pool3d,
}
Shapes = tuple[tuple[int, ...], tuple[int, ...]]  # (c, …) of the student's features, and of the teacher's


def vid_loss(target: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """½ log σ_c² + (t − μ)² / (2σ_c²), its mean over channels and positions; target, mean (b, c, …), variance (c,) → (b,).

    The mean, not the sum: the scale of the loss does not depend on the size of the layer.
    """
    wide = torch.promote_types(mean.dtype, torch.float32)
    squares, spread, positions = (target.to(wide) - mean.to(wide)).square(), variance.to(wide), tuple(range(2, mean.ndim))
    of_channels = squares.mean(positions) if positions else squares  # (b, c): all positions share their channel's variance
    return ((torch.log(spread) + of_channels / spread) / 2).mean(1)


class Regressor(nn.Module):
    """q(t | s) of one pair: features of the student (b, c, …) and the teacher (b, C, …) → losses (b,).

    The mean is three 1 × 1 convolutions of C channels with ReLU between and no bias, and one linear map for (b, c). Along
    an axis whose sizes differ the larger is brought to the smaller by average pooling. The variance is softplus(·) + FLOOR.
    """

    def __init__(self, student: int, teacher: int, axes: int) -> None:
        super().__init__()
        self.axes, self.mean = axes, _mean(student, teacher, axes)
        self.raw = nn.Parameter(torch.full((teacher,), math.log(math.expm1(VARIANCE - FLOOR))))

    @property
    def variance(self) -> Tensor:
        """(C,)"""
        return functional.softplus(self.raw) + FLOOR

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        size = tuple(map(min, student.shape[2:], teacher.shape[2:]))
        return vid_loss(self._pooled(teacher, size), self.mean(self._pooled(student, size)), self.variance)

    def _pooled(self, features: Tensor, size: tuple[int, ...]) -> Tensor:
        pooled: Tensor = features if features.shape[2:] == size else POOLINGS[self.axes](features, size)
        return pooled


def _mean(student: int, teacher: int, axes: int) -> nn.Module:
    if axes == 0:
        return nn.Linear(student, teacher)
    convolution = CONVOLUTIONS[axes]
    return nn.Sequential(
        convolution(student, teacher, 1, bias=False),
        nn.ReLU(),
        convolution(teacher, teacher, 1, bias=False),
        nn.ReLU(),
        convolution(teacher, teacher, 1, bias=False),
    )


def check_vid(recipe: Recipe, student: nn.Module, teacher: nn.Module | None, inputs: Inputs) -> None:
    """Refuse before any training what VID would refuse after it; a teacher that is a table is None."""
    if recipe.vid and teacher is None:
        raise ConfigError(
            "a teacher that is a table has no layers to match",
            where="recipe: vid",
            found=f"stored predictions, with vid = {' '.join(recipe.vid)}",
            expected="a teacher that is a module: its features are computed for every batch",
            remedy="pass the module with teacher_epochs=0, or leave vid out",
        )
    if recipe.vid and teacher is not None:
        shapes_of(recipe, student, teacher, inputs)


def shapes_of(recipe: Recipe, student: nn.Module, teacher: nn.Module, inputs: Inputs) -> list[Shapes]:
    """The shapes of one row's features, pair by pair; refuses layers that are not there or cannot be paired."""
    ours, theirs = _layers(recipe)
    known = shapes(student, ours, "student", inputs, recipe.precision)
    given = shapes(teacher, theirs, "teacher", inputs, recipe.precision)
    found = [(known[mine], given[its]) for mine, its in zip(ours, theirs, strict=True)]
    for pair, (one, other) in zip(recipe.vid, found, strict=True):
        if len(one) != len(other) or len(one) > 1 + max(CONVOLUTIONS):
            raise ConfigError(
                "layers that cannot be paired",
                where=f"recipe: vid: {pair}",
                found=f"features of shape {one} in the student and {other} in the teacher",
                expected="as many dimensions in both: (channels,) or (channels, …) with up to three axes",
                remedy="name two layers before the pooling, or two after it",
            )
    return found


@contextmanager
def guided(recipe: Recipe, student: nn.Module, teacher: nn.Module, inputs: Inputs) -> Iterator[Guide]:
    """While the block runs: the VID of the recipe's pairs of layers, with regressors that are made from the seed.

    The teacher is on the student's device, reads the batch that the student has just read, and learns nothing.
    """
    device, (ours, theirs) = device_of(student), _layers(recipe)
    regressors = nn.ModuleList(_made(recipe, shapes_of(recipe, student, teacher, inputs))).to(device)
    teacher.eval().requires_grad_(False)
    with tapped(student, ours, "student") as known, tapped(teacher, theirs, "teacher") as given:

        def per_example(batch: Tensor) -> Tensor:
            """vid_scale · Σ over the pairs, (b,)."""
            try:
                with torch.no_grad():
                    forward(teacher, batch, device, recipe.precision)
            except Exception as error:
                raise failed(error, "the teacher", batch) from error
            student_features, teacher_features = known(), given()
            with casting(device, recipe.precision):
                losses = [
                    regressor(student_features[mine], teacher_features[its])
                    for regressor, mine, its in zip(regressors, ours, theirs, strict=True)
                ]
            return recipe.vid_scale * torch.stack(losses).sum(0)

        yield Guide(regressors, per_example)


def _made(recipe: Recipe, found: Sequence[Shapes]) -> Iterator[Regressor]:
    """Regressors on the CPU; that of a pair is the same whatever other pairs there are."""
    for pair, (student, teacher) in zip(recipe.vid, found, strict=True):
        begin(key(recipe.seed, "initial", "vid", pair), torch.device("cpu"))
        yield Regressor(student[0], teacher[0], len(student) - 1)


def _layers(recipe: Recipe) -> tuple[list[str], list[str]]:
    """The names of the student's layers, and of the teacher's, pair by pair."""
    pairs = [pair.partition("=") for pair in recipe.vid]
    return [student for student, _, _ in pairs], [teacher for _, _, teacher in pairs]
