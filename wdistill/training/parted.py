"""One training whose batches are cut into parts: the leader and its followers step through its epochs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wdistill.core.errors import from_words
from wdistill.runs.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.batch import Batch
from wdistill.training.inputs import first_row
from wdistill.training.optimizer import Optimization
from wdistill.training.packing import packed, unpacked
from wdistill.training.parts import Gradients, PartedBatch, Summed, parts_of
from wdistill.training.passes import batch_loss, plan_of, read
from wdistill.training.predict import device_of
from wdistill.training.randomness import key, seed_generators
from wdistill.training.ranks import Ranks
from wdistill.training.stage import Examples, Stage

Supervision = Callable[[Tensor], tuple[Tensor, Tensor] | None]  # rows of a batch → their targets and weights; None: no more


@dataclass(frozen=True, eq=False)
class Copy:
    """What a follower needs of a training: all but targets and weights, which come with every batch."""

    stage: Stage
    model: nn.Module
    recipe: Recipe
    again: Any  # AuxiliaryLoss.again
    state: bytes  # of the model, its auxiliary loss and the optimizer
    scale: dict[str, Any] | None


class PartedEpochs:
    """The epochs of one training in one process, which computes its parts of every batch."""

    def __init__(self, stage: Stage, recipe: Recipe, optimization: Optimization, ranks: Ranks) -> None:
        self.stage, self.recipe, self.optimization, self.ranks = stage, recipe, optimization, ranks
        self.device = device_of(optimization.model)
        self.batch = self._batch_of(optimization)

    def lead(self, model: nn.Module) -> None:
        """Make the followers ready: they begin with copies of all that is here."""
        if self.ranks.size == 1:
            return
        again = self.stage.auxiliary_loss.again if self.stage.auxiliary_loss else None
        state, scale = tensors.to_bytes(self.optimization.to_tensors()), self.optimization.scaler.state_dict() or None
        content = packed(Copy(self._for_others(), model, self.recipe, again, state, scale), self.stage.name)
        self.ranks.tell("train", content, self.recipe.device)
        for error in filter(None, self.ranks.agree(None)):
            raise from_words(error)

    def _for_others(self) -> Stage:
        """The stage without what the leader keeps to itself."""
        nothing = Examples(self.stage.examples.inputs, torch.empty(0), torch.empty(0), np.empty(0))
        return replace(self.stage, examples=nothing, estimate=None, restore=None, auxiliary_loss=None, metric=None)

    def epoch(
        self, epoch: int, step: int, supervision: Supervision, stopping: Callable[[], bool]
    ) -> Iterator[tuple[Tensor, Summed]]:
        """The batches of an epoch from a step on: their rows, with the gradients of all parts in place."""
        plan = plan_of(self.stage, self.recipe, epoch)
        batches = self._batches([part for rows in plan[step:] for _, part, _ in self._mine(rows)])
        for number, rows in enumerate(plan[step:], step):
            position = self.optimization.begin(self.stage, epoch, number, len(plan))
            supervised = supervision(rows)
            if supervised is None:
                return
            losses = [
                self._loss(part, place, *supervised, batches, key(position, number))
                for number, part, place in self._mine(rows)
            ]
            yield rows, self.batch.gradients(len(parts_of(rows, self.stage.parts)), losses, stopping)

    def _batch_of(self, optimization: Optimization) -> Gradients:
        return PartedBatch(optimization, self.ranks, self.device)

    def _mine(self, rows: Tensor) -> list[tuple[int, Tensor, slice]]:
        """The parts of a batch that this process computes: numbers, rows, and the places of the rows in the batch."""
        parts = parts_of(rows, self.stage.parts)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        numbered = [(number, min(number, len(parts) - 1)) for number in self.batch.numbers(len(parts))]
        return [(number, parts[i], slice(ends[i] - len(parts[i]), ends[i])) for number, i in numbered]

    def _batches(self, mine: Sequence[Tensor]) -> Iterator[Batch]:
        """Read when the first is needed: an error then is one of a part."""
        yield from self.stage.examples.inputs.batches(mine)

    def _loss(
        self, rows: Tensor, place: slice, targets: Tensor, weights: Tensor, batches: Iterator[Batch], position: int
    ) -> Callable[[], Tensor]:
        """The loss of a part, at its place in the batch, as its share of the batch's mean."""

        def loss() -> Tensor:
            batch, model, name = next(batches), self.optimization.model, self.stage.name
            seed_generators(position, self.device)
            batch, logits = read(model, batch, self.recipe, position, self.device, name)
            wanted, weighed = targets[place].to(self.device), weights[place].to(self.device)
            mean = batch_loss(self.stage, logits, wanted, weighed, rows.to(self.device), batch)
            return mean * (len(rows) / len(targets))

        return loss


class Follower:
    """A follower's copy of a training."""

    def __init__(self, content: bytes, device: torch.device, ranks: Ranks) -> None:
        copy: Copy = unpacked(content)
        self.resources, self.ranks = ExitStack(), ranks
        model, stage, auxiliary = copy.model.to(device), copy.stage, nn.Module()
        first_row(stage.examples.inputs)  # it can be read here, too
        if copy.again is not None:
            auxiliary_loss = self.resources.enter_context(copy.again(model))
            stage, auxiliary = replace(stage, auxiliary_loss=auxiliary_loss), auxiliary_loss.module
        self.optimization = Optimization(model, auxiliary, copy.recipe, stage.name)
        self.optimization.load_tensors(tensors.from_bytes(copy.state, stage.name), copy.scale)
        self.epochs = PartedEpochs(stage, copy.recipe, self.optimization, ranks)

    def follow(self, epoch: int, step: int, stopping: Callable[[], bool]) -> None:
        """Step with the leader, until it leaves the epoch."""
        self.optimization.model.train()

        def supervision(rows: Tensor) -> tuple[Tensor, Tensor] | None:
            order, *values = self.ranks.hear()
            while order == "shards":
                self.keep(*values)
                order, *values = self.ranks.hear()
            if order == "leave":
                return None
            targets, weights = map(torch.from_numpy, values)
            return targets, weights

        for _ in self.epochs.epoch(epoch, step, supervision, stopping):
            self.optimization.step()

    def keep(self, step: str, *values: Any) -> None:
        """What is to be done with shards, of which a copy has none (sharded.py)."""
        raise NotImplementedError

    def close(self) -> None:
        self.resources.close()
