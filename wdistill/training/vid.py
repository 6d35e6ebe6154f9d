"""Variational Information Distillation (Ahn et al. 2019, equations (2), (4) and (6)), one loss for each example.

Beside its task, the student learns features from which the teacher's can be predicted: for a pair of layers, the teacher's
features t have the density q(t | s), a Gaussian whose mean is a regressor of the student's features s and whose variance is
one learned number per channel. The loss is −log q(t | s), without its constant ½ log 2π.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from wdistill.core.errors import bad_value
from wdistill.runs.recipe import Recipe
from wdistill.training.batch import Batch
from wdistill.training.inputs import Inputs
from wdistill.training.predict import autocast, device_of, forward, model_error, probe
from wdistill.training.randomness import key, seed_generators
from wdistill.training.stage import AuxiliaryLoss
from wdistill.training.tensors import listed

VARIANCE = 5.0  # initial
FLOOR = 1e-5  # of the variance; both as in the common implementation
CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}  # by the number of axes after the channels
POOLINGS: dict[int, Any] = {
    1: functional.adaptive_avg_pool1d,
    2: functional.adaptive_avg_pool2d,
    3: functional.adaptive_avg_pool3d,
}
Features = Mapping[str, Tensor]  # (b, c, …) by layer: channels are dimension 1
ShapePair = tuple[tuple[int, ...], tuple[int, ...]]  # (c, …) of the student's features, and of the teacher's


def vid_loss(target: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """½ log σ_c² + (t − μ)² / (2σ_c²), its mean over channels and positions; target, mean (b, c, …), variance (c,) → (b,).

    The mean, not the sum: the scale of the loss does not depend on the size of the layer.
    """
    wide = torch.promote_types(mean.dtype, torch.float32)
    squares, variance, positions = (target.to(wide) - mean.to(wide)).square(), variance.to(wide), tuple(range(2, mean.ndim))
    per_channel = squares.mean(positions) if positions else squares  # (b, c): all positions share their channel's variance
    return ((torch.log(variance) + per_channel / variance) / 2).mean(1)


class Regressor(nn.Module):
    """q(t | s) of one pair: features of the student (b, c, …) and the teacher (b, C, …) → losses (b,).

    The mean is three 1 × 1 convolutions of C channels with ReLU between them and no bias; for (b, c), one linear layer.
    Where sizes of an axis differ, the larger one is average-pooled to the smaller. The variance is softplus(·) + FLOOR.
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
        return vid_loss(self._pool(teacher, size), self.mean(self._pool(student, size)), self.variance)

    def _pool(self, features: Tensor, size: tuple[int, ...]) -> Tensor:
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
    """Refuse before any training what VID would refuse after it; `teacher` is None for a table of predictions."""
    if recipe.vid and teacher is None:
        what, found = "a teacher that is a table has no layers", f"stored predictions, with vid = {' '.join(recipe.vid)}"
        remedy = "pass the module with teacher_epochs=0, or leave vid out"
        raise bad_value(what, "recipe: vid", found, "a module, whose features are computed for every batch", remedy)
    if recipe.vid and teacher is not None:
        paired_shapes(recipe, student, teacher, inputs)


def paired_shapes(recipe: Recipe, student: nn.Module, teacher: nn.Module, inputs: Inputs) -> list[ShapePair]:
    """The shapes of one row's features, pair by pair; refuses layers that do not exist or cannot be paired."""
    student_layers, teacher_layers = _layer_names(recipe)
    student_shapes = feature_shapes(student, student_layers, "student", inputs, recipe.precision)
    teacher_shapes = feature_shapes(teacher, teacher_layers, "teacher", inputs, recipe.precision)
    pairs = [(student_shapes[s], teacher_shapes[t]) for s, t in zip(student_layers, teacher_layers, strict=True)]
    for name, (one, other) in zip(recipe.vid, pairs, strict=True):
        if len(one) != len(other) or len(one) > 1 + max(CONVOLUTIONS):
            found = f"features of shape {one} in the student and {other} in the teacher"
            expected = "as many dimensions in both: (channels,) or (channels, …) with up to three axes"
            remedy = "name two layers before the pooling, or two after it"
            raise bad_value("layers that cannot be paired", f"recipe: vid: {name}", found, expected, remedy)
    return pairs


@contextmanager
def vid_auxiliary_loss(recipe: Recipe, student: nn.Module, teacher: nn.Module, inputs: Inputs) -> Iterator[AuxiliaryLoss]:
    """While the block runs: the VID loss of the recipe's pairs of layers, with regressors initialised from the seed.

    The teacher is on the student's device, reads the batch that the student has just read, and is not trained.
    """
    device, (student_layers, teacher_layers) = device_of(student), _layer_names(recipe)
    regressors = nn.ModuleList(_regressors(recipe, paired_shapes(recipe, student, teacher, inputs))).to(device)
    teacher.eval().requires_grad_(False)
    with (
        capture_features(student, student_layers, "student") as student_features,
        capture_features(teacher, teacher_layers, "teacher") as teacher_features,
    ):

        def per_example(batch: Batch) -> Tensor:
            """vid_scale · Σ over the pairs, (b,)."""
            try:
                with torch.no_grad():
                    forward(teacher, batch, device, recipe.precision)
            except Exception as error:
                raise model_error(error, "the teacher", batch) from error
            of_student, of_teacher = student_features(), teacher_features()
            with autocast(device, recipe.precision):
                losses = [
                    regressor(of_student[s], of_teacher[t])
                    for regressor, s, t in zip(regressors, student_layers, teacher_layers, strict=True)
                ]
            return recipe.vid_scale * torch.stack(losses).sum(0)

        yield AuxiliaryLoss(regressors, per_example, partial(_for_copy, recipe, teacher, inputs))


def _for_copy(
    recipe: Recipe, teacher: nn.Module, inputs: Inputs, student: nn.Module
) -> AbstractContextManager[AuxiliaryLoss]:
    """The same for another process' copy of the student."""
    return vid_auxiliary_loss(recipe, student, teacher.to(device_of(student)), inputs)


def _regressors(recipe: Recipe, shapes: Sequence[ShapePair]) -> Iterator[Regressor]:
    """Regressors on the CPU, each seeded by its own pair alone."""
    for pair, (student, teacher) in zip(recipe.vid, shapes, strict=True):
        seed_generators(key(recipe.seed, "initial", "vid", pair), torch.device("cpu"))
        yield Regressor(student[0], teacher[0], len(student) - 1)


def _layer_names(recipe: Recipe) -> tuple[list[str], list[str]]:
    """The names of the student's layers, and of the teacher's, pair by pair."""
    pairs = [pair.partition("=") for pair in recipe.vid]
    return [student for student, _, _ in pairs], [teacher for _, _, teacher in pairs]


# features: the outputs of layers inside a module, by their dotted names ----------------------------------------------------


@contextmanager
def capture_features(model: nn.Module, layers: Sequence[str], role: str) -> Iterator[Callable[[], Features]]:
    """While the block runs: a function that returns the layers' outputs in the latest forward pass of the model.

    For a layer that is called several times in a pass it is the last output. Outputs are copies, since a later layer may
    work in place. `role`, student or teacher, is for error messages.
    """
    modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    for name in layers:
        if name not in modules:
            close = difflib.get_close_matches(name, modules, 3)
            inside = listed(list(modules)) or "it has none"
            expected = f"the dotted name of a module inside {type(model).__name__}: {inside}"
            remedy = f"did you mean {' or '.join(close)}?" if close else "print the module to see the names of its layers"
            raise bad_value(f"the {role} has no such layer", f"layer {name}", repr(name), expected, remedy)
    outputs: dict[str, Any] = {}

    def features() -> Features:
        for name in layers:
            _check_output(name, outputs, role)
        return {name: outputs[name] for name in layers}

    handles = [model.register_forward_pre_hook(_Forget(outputs))]
    handles += [modules[name].register_forward_hook(_Keep(outputs, name)) for name in layers]
    try:
        yield features
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class _Hook:
    """A hook of a module; in copies of the module, here or in other processes, it does nothing."""

    outputs: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (_nothing,)


class _Forget(_Hook):
    def __call__(self, *_: Any) -> None:
        self.outputs.clear()


@dataclass(frozen=True)
class _Keep(_Hook):
    name: str

    def __call__(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        self.outputs[self.name] = output.clone() if isinstance(output, Tensor) else output


def _nothing(*_: Any) -> None:
    """A hook's place in a copy."""


def feature_shapes(
    model: nn.Module, layers: Sequence[str], role: str, inputs: Inputs, precision: str = "float32"
) -> dict[str, tuple[int, ...]]:
    """The shape (c, …) of one row's features, by layer, from a forward pass over two rows."""
    with capture_features(model, layers, role) as features:
        probe(model, role, inputs, precision)
        return {name: tuple(output.shape[1:]) for name, output in features().items()}


def _check_output(name: str, outputs: Features, role: str) -> None:
    """Refuse a layer that was not called, or whose output is not one tensor (b, c, …)."""
    where, remedy = f"layer {name}", "name a layer inside of it, or one after it"
    if name not in outputs:
        expected = "a layer that every forward pass calls as a module"
        raise bad_value(f"a layer of the {role} is not called", where, "a forward pass without it", expected, remedy)
    output: Any = outputs[name]
    if not isinstance(output, Tensor) or output.ndim < 2 or not output.is_floating_point():
        tensor = f"a tensor {tuple(output.shape)} of {output.dtype}" if isinstance(output, Tensor) else ""
        found, expected = tensor or f"a {type(output).__name__}", "one tensor (rows, channels, …) of floating numbers"
        raise bad_value(f"a layer of the {role} returns no features", where, found, expected, remedy)
