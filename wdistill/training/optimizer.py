"""The optimizer of a training, with its gradient scaler and its learning-rate schedules.

A schedule is a function (progress, epochs) → factor of the initial rate. `progress` counts epochs done, with their fraction:
epoch from 0 + step / steps. `epochs` is the length of the run. The thresholds are the paper's, strict on the epoch counted
from 1, and scale with the length of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wdistill.runs.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.predict import device_of
from wdistill.training.randomness import key, seed_generators
from wdistill.training.stage import Stage

Schedule = Callable[[float, int], float]

STEPS = ((180, 0.0005), (160, 0.001), (120, 0.01), (80, 0.1))  # after so many of 200 epochs
WARMUP_STEPS = ((80, 0.001), (60, 0.01), (30, 0.1))  # after so many of 100 epochs
WARMUP = 5  # of 100 epochs


def steps(progress: float, epochs: int) -> float:
    """Appendix C.1: 1, then .1, .01, .001 and .0005 after 80, 120, 160 and 180 of 200 epochs."""
    return _factor(progress, epochs, STEPS, of=200)


def warmup(progress: float, epochs: int) -> float:
    """Appendix C.2: from 0 to 1 step by step in 5 of 100 epochs, then .1, .01 and .001 after 30, 60 and 80."""
    rising = 100 * progress / (WARMUP * epochs)
    return min(rising, 1.0) * _factor(progress, epochs, WARMUP_STEPS, of=100)


def constant(progress: float, epochs: int) -> float:
    """Always the initial rate."""
    return 1.0


def linear(progress: float, epochs: int) -> float:
    """Falls with every step, from 1 to 0 at the end."""
    return 1 - progress / epochs


SCHEDULES: dict[str, Schedule] = {"steps": steps, "warmup": warmup, "constant": constant, "linear": linear}


def _factor(progress: float, epochs: int, drops: Sequence[tuple[int, float]], of: int) -> float:
    """The factor of the last threshold that this epoch, counted from 1, is past: epoch > after · epochs / of."""
    epoch = int(progress) + 1
    return next((factor for after, factor in drops if epoch * of > after * epochs), 1.0)


class Optimization:
    """A model with the module of its auxiliary loss, their optimizer, and the scaler of float16 gradients."""

    def __init__(self, model: nn.Module, auxiliary: nn.Module, recipe: Recipe, name: str) -> None:
        self.model, self.auxiliary, self.name = model, auxiliary, name
        self.optimizer = make_optimizer(model, auxiliary, recipe)
        self.scaler = torch.amp.GradScaler(device_of(model).type, enabled=recipe.precision == "float16")
        self._initial, self.seed = (recipe.rate, SCHEDULES[recipe.schedule]), recipe.seed

    def rate(self, stage: Stage, epoch: int, step: int, steps: int) -> float:
        """The learning rate of a step."""
        rate, schedule = self._initial
        return rate * (stage.schedule or schedule)(epoch + step / steps, stage.epochs)

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def begin(self, stage: Stage, epoch: int, step: int, steps: int) -> int:
        """Set the rate and the generators of a step; returns the key of its position, from which they are seeded."""
        position = key(self.seed, stage.order, epoch, step)
        seed_generators(position, device_of(self.model))
        self.set_rate(self.rate(stage, epoch, step, steps))
        return position

    def zero(self) -> None:
        """Forget all gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self) -> bool:
        """One step by the gradients; False where float16 scaling left the step out."""
        if not self.scaler.is_enabled():
            self.optimizer.step()
            return True
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale() >= before

    def to_tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint keeps of it; parameters that are not finite are an error."""
        tensors.check_finite(dict(self.model.named_parameters()), self.name)  # a buffer may hold a mask of infinities
        tensors.check_finite(dict(self.auxiliary.named_parameters()), f"the auxiliary loss of {self.name}")
        return (
            tensors.prefixed("model/", tensors.parameters(self.model))
            | tensors.prefixed("auxiliary/", tensors.parameters(self.auxiliary))
            | tensors.prefixed("optimizer/", tensors.optimizer_state(self.optimizer))
        )

    def load_tensors(self, stored: Mapping[str, Tensor], scale: Mapping[str, Any] | None) -> None:
        """Resume from what `to_tensors` gave, and from the scaler's state."""
        tensors.load_parameters(self.model, tensors.under("model/", stored), self.name)
        tensors.load_parameters(self.auxiliary, tensors.under("auxiliary/", stored), f"the auxiliary loss of {self.name}")
        tensors.load_optimizer(self.optimizer, tensors.under("optimizer/", stored))
        if scale is not None:
            self.scaler.load_state_dict(dict(scale))


def make_optimizer(model: nn.Module, auxiliary: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Of the parameters of a model and of its auxiliary loss; the kernels that decay are the model's alone."""
    trained = [parameter for parameter in nn.ModuleList([model, auxiliary]).parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [{"params": trained}]  # a group may be empty
    if recipe.decayed == "kernels":
        kernels = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)}
        groups = [{"params": [parameter for parameter in trained if id(parameter) in kernels]}]
        groups += [{"params": [parameter for parameter in trained if id(parameter) not in kernels], "weight_decay": 0.0}]
    fusible = all(each.is_floating_point() and each.device.type in ("cpu", "cuda") for each in trained)
    fused = fusible and recipe.precision != "float16"  # one pass over the parameters
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, recipe.rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=fused)
    return torch.optim.Adam(groups, recipe.rate, weight_decay=recipe.weight_decay, fused=fused)
