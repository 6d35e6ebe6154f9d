"""One training as records: its examples, its estimate of weights, its state between two steps, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.core.errors import WdistillError, from_words
from wdistill.methods.metric import Metric
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.outcome import Epoch, Refresh, refresh_of
from wdistill.training.batch import Batch
from wdistill.training.inputs import Inputs

if TYPE_CHECKING:
    from wdistill.training.targets import TargetRows

KINDS = ("train", "evaluate", "forward", "estimate", "store")  # of work, whose seconds are counted separately


@dataclass(frozen=True, eq=False)
class Examples:
    """What a student or teacher is trained on: parallel rows, so that a batch is one index."""

    inputs: Inputs  # (n, …)
    targets: Tensor | TargetRows  # (n, K) distributions, or (n,) classes
    weights: Tensor  # (n,) float32
    ids: NDArray[Any]  # (n,) for messages

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Weights of all examples, and the record of how they were estimated."""

    weights: Tensor  # (n,) float32
    refresh: Refresh
    files: Mapping[str, bytes]  # the same by row id, and the fitted rule, to be kept


@dataclass(frozen=True, eq=False)
class AuxiliaryLoss:
    """A second loss for every example, whose own parameters are trained along and kept in checkpoints, but in no result."""

    module: nn.Module  # the parameters, on the model's device
    per_example: Callable[[Batch], Tensor]  # the augmented batch that the model has just read → (b,)
    again: Callable[[nn.Module], AbstractContextManager[AuxiliaryLoss]] | None = None  # the same for a copy of the model


@dataclass(frozen=True, eq=False)
class Stage:
    """One training: what, for how long, and in which folder."""

    name: str  # teacher, student, or an arm
    folder: Path
    examples: Examples
    epochs: int
    order: str  # stages of the same order see the same batches, augmentation and dropout
    temperature: float = 1.0
    scale: float = 1.0  # of the cross-entropy
    schedule: Callable[[float, int], float] | None = None  # (progress, epochs) → factor of the rate; None: the recipe's
    estimate: Callable[[nn.Module, int], Estimate] | None = None  # (student, epochs trained) → weights
    restore: Callable[[CheckpointStore, Refresh], Tensor] | None = None  # the weights of an earlier estimate, from its file
    every: int | None = None  # epochs from one estimate to the next
    auxiliary_loss: AuxiliaryLoss | None = None  # what is minimised beside the cross-entropy, with the same weights
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # logits, targets, rows → (b,), not the cross-entropy
    why: str = ""  # of an arm whose method chose: the reason
    gold: bool = False  # of an arm: its examples hold the validation rows that its accuracy is measured on
    metric: Metric | None = None  # what the epoch is chosen by; None: accuracy
    parts: int = 1  # of a batch, whose gradients are added in order
    sharded: bool = False  # every process has a share of the model: see sharded.py
    trajectory: bool = False  # measure accuracies after every epoch, not only the last

    def has_loss_of(self, temperature: float, scale: float) -> bool:
        """Whether its loss is the cross-entropy at this temperature, times this scale."""
        return self.loss is None and (self.temperature, self.scale) == (temperature, scale)

    def estimate_is_due(self, state: TrainState) -> bool:
        """Weights are estimated before the first epoch, then after every `every`-th."""
        if self.estimate is None or state.step:
            return False
        if not state.refreshes:
            return True
        return bool(self.every) and state.epoch % (self.every or 1) == 0 and state.refreshes[-1].after < state.epoch


@dataclass
class TrainState:
    """How far a training is; all that is needed to resume it besides the tensors."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps done in the next one
    loss: float = 0.0  # sum over the examples of those steps
    spent: float = 0.0  # seconds of training in the unfinished epoch
    skipped: int = 0  # optimizer steps that float16 scaling left out
    scale: dict[str, Any] | None = None  # of float16 gradients: the scaler's state
    epochs: list[Epoch] = field(default_factory=list)
    refreshes: list[Refresh] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> TrainState:
        epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        refreshes = [refresh_of(refresh) for refresh in state["refreshes"]]
        return cls(**{**state, "epochs": epochs, "refreshes": refreshes})

    def end_epoch(self, epoch: Epoch) -> None:
        """Count an epoch whose steps are all done."""
        self.epochs.append(epoch)
        self.seconds["train"] += self.spent
        self.epoch, self.step, self.loss, self.spent = self.epoch + 1, 0, 0.0, 0.0


@dataclass(frozen=True)
class Callbacks:
    """How a training talks to the outside: it asks whether to stop, and reports what happens."""

    stopping: Callable[[], bool] = lambda: False
    on_event: Callable[[Mapping[str, Any]], None] = lambda event: None


class StoppedError(WdistillError):
    """The training was asked to stop, and has saved its state."""

    exit_code = 75


def told(said: Mapping[str, str]) -> WdistillError:
    """The error that another process has sent; that it was asked to stop, too."""
    return StoppedError(said["what"]) if said["kind"] == StoppedError.__name__ else from_words(said)
