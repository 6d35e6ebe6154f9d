"""The one training loop: a model on examples, epoch by epoch, resumed from its last checkpoint.

Algorithm 1 of the paper trains three times: the teacher and the student on the labeled rows, then the student on the union
with weights that are estimated before the first epoch and, if asked, refreshed. All three are this loop; only the third has
an `estimate`, and may have an `auxiliary_loss`. The loop never sees a teacher (an auxiliary loss may), and a batch never
leaves torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from wdistill.core.errors import NumericalError
from wdistill.runs.outcome import Epoch
from wdistill.runs.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.augmentation import augment
from wdistill.training.batch import Batch
from wdistill.training.checkpointer import Checkpointer
from wdistill.training.data import Split
from wdistill.training.losses import weighted_loss, weighted_mean
from wdistill.training.optimizer import Optimization
from wdistill.training.predict import accuracy, device_of, forward, is_out_of_memory, model_error, predict
from wdistill.training.randomness import key, permutation, seed_generators
from wdistill.training.stage import Callbacks, Stage, StoppedError, TrainState

QUIET = 0.2  # seconds between events from inside an epoch
SETTLED = 50  # steps between looks at the loss on a device where each look would make it wait


def run_stage(
    stage: Stage, model: nn.Module, recipe: Recipe, accuracies: Mapping[str, Split], callbacks: Callbacks | None = None
) -> None:
    """Train the model to the end of the stage, from its last checkpoint; on return it has its final parameters."""
    checkpointer = Checkpointer(stage, recipe, callbacks or Callbacks())
    if checkpointer.store.state.get("finished"):
        tensors.load_parameters(model, checkpointer.read("parameters.safetensors"), stage.name)
        return
    _Trainer(stage, model, recipe, accuracies, callbacks or Callbacks(), checkpointer).run()


def batches_of(order: Tensor, size: int) -> Iterator[Tensor]:
    """Consecutive slices of an order; a single row left over joins the batch before it, for batch norm's sake."""
    n = len(order)
    ends = [*range(size, n, size), n]
    if len(ends) > 1 and n - ends[-2] == 1:
        del ends[-2]
    return (order[first:last] for first, last in zip([0, *ends], ends, strict=False))


def batch_loss(
    stage: Stage,
    model: nn.Module,
    recipe: Recipe,
    targets: Tensor,
    weights: Tensor,
    rows: Tensor,
    batch: Batch,
    position: int,
) -> Tensor:
    """The weighted mean loss over a batch of augmented inputs; targets and weights are those of all examples."""
    device = device_of(model)
    if recipe.augmentation:
        batch = augment(batch, recipe.augmentation, position)
    try:
        logits = forward(model, batch, device, recipe.precision)
    except Exception as error:
        raise model_error(error, f"the {stage.name}", batch) from error
    rows = rows.to(device)
    own_targets, own_weights = targets.index_select(0, rows), weights.index_select(0, rows)
    if stage.loss:
        mean = weighted_mean(stage.loss(logits, own_targets, rows), own_weights)
    else:
        mean = weighted_loss(logits, own_targets, own_weights, stage.temperature)
    if stage.scale != 1:
        mean = mean * stage.scale
    if stage.auxiliary_loss:
        mean = mean + weighted_mean(stage.auxiliary_loss.per_example(batch), own_weights)
    return mean


def sum_losses(stage: Stage, state: TrainState, pending: list[tuple[Tensor, int]], rows: Tensor, weights: Tensor) -> None:
    """Add up the losses so far; one that is not finite ends the training before the optimizer has stepped on it."""
    for loss, size in pending:
        value = loss.item()
        if not math.isfinite(value):
            used = weights[rows.to(weights.device)]
            ids = ", ".join(map(str, stage.examples.ids[rows.numpy()][:5]))
            raise NumericalError(
                "the loss is not finite",
                where=f"{stage.name}, epoch {state.epoch + 1}, step {state.step + 1}",
                found=f"{value}; ids of the batch {ids} …; weights from {used.min():.3g} to {used.max():.3g}",
                expected="a finite loss",
                remedy="the last good state is kept; start a new run with a smaller rate, or precision float32",
            )
        state.loss += value * size
    pending.clear()


class _Trainer:
    """A training while it runs."""

    def __init__(
        self,
        stage: Stage,
        model: nn.Module,
        recipe: Recipe,
        accuracies: Mapping[str, Split],
        callbacks: Callbacks,
        checkpointer: Checkpointer,
    ) -> None:
        self.stage, self.model, self.recipe, self.accuracies, self.callbacks = stage, model, recipe, accuracies, callbacks
        self.device, self.checkpointer, self.state = device_of(model), checkpointer, TrainState()
        self.weights, self.targets = stage.examples.weights.to(self.device), stage.examples.targets.to(self.device)
        auxiliary = stage.auxiliary_loss.module if stage.auxiliary_loss else nn.Module()  # without parameters
        self.optimization = Optimization(model, auxiliary, recipe, stage.name)
        self.chosen = tensors.parameters(model)
        self.reported = time.monotonic()

    def run(self) -> None:
        if self.checkpointer.store.state:
            self._resume()
        while self.state.epoch < self.stage.epochs:
            if self.stage.estimate_is_due(self.state):
                self._estimate()
            self._epoch()
            self.state.end_epoch(self._measure())
            if self.state.epoch < self.stage.epochs:
                self._pause()
        parameters = tensors.parameters(self.model)
        tensors.check_finite(dict(self.model.named_parameters()), self.stage.name)
        chosen = {"chosen.safetensors": tensors.to_bytes(self.chosen)} if self.stage.trajectory else {}
        files = {"parameters.safetensors": tensors.to_bytes(parameters), **chosen}
        self.state.scale = self.optimization.scaler.state_dict() or None
        self.checkpointer.write(self.state, files, {"finished": True})
        self.model.eval()

    def _epoch(self) -> None:
        """All batches of one epoch, or those that are left of it."""
        state, recipe, examples = self.state, self.recipe, self.stage.examples
        order = permutation(len(examples), key(recipe.seed, self.stage.order, "order", state.epoch))
        plan = list(batches_of(order, recipe.batch_size))
        looking, pending = 1 if self.device.type == "cpu" else SETTLED, []
        self.model.train()
        started = time.perf_counter()
        for rows, batch in zip(plan[state.step :], examples.inputs.batches(plan[state.step :]), strict=True):
            position = key(recipe.seed, self.stage.order, state.epoch, state.step)
            seed_generators(position, self.device)
            self.optimization.set_rate(self.optimization.rate(state.epoch, state.step, len(plan), self.stage.epochs))
            loss = batch_loss(self.stage, self.model, self.recipe, self.targets, self.weights, rows, batch, position)
            pending.append((loss.detach(), len(rows)))
            if len(pending) >= looking:
                sum_losses(self.stage, state, pending, rows, self.weights)
            state.skipped += not self._step(loss, batch)
            state.step += 1
            if self.checkpointer.is_due():
                sum_losses(self.stage, state, pending, rows, self.weights)
                state.spent += time.perf_counter() - started
                self._pause()
                started = time.perf_counter()
                self.model.train()
            if time.monotonic() - self.reported > QUIET:
                self.reported = time.monotonic()
                self._report("training", epoch=state.epoch, epochs=self.stage.epochs, step=state.step, steps=len(plan))
        sum_losses(self.stage, state, pending, order[-1:], self.weights)
        state.spent += time.perf_counter() - started

    def _step(self, loss: Tensor, batch: Batch) -> bool:
        """One step of the optimizer; where memory does not suffice for the gradients, the run can resume."""
        try:
            return self.optimization.step(loss)
        except Exception as error:
            if is_out_of_memory(error):
                raise model_error(error, f"the {self.stage.name}", batch) from error
            raise

    def _estimate(self) -> None:
        """Lines 8 and 9 of Algorithm 1: weights for the student as it is now."""
        assert self.stage.estimate is not None
        try:
            estimate = self.stage.estimate(self.model, self.state.epoch)
        except StoppedError:
            if self.state.epoch:
                self._commit()
            raise
        refresh = estimate.refresh
        self.weights = estimate.weights.to(self.device)
        self.state.seconds["forward"] += refresh.forward_seconds
        self.state.seconds["estimate"] += refresh.estimate_seconds
        self.state.refreshes.append(refresh)
        mean, share = refresh.weights.mean, refresh.weights.share_below_one
        self._report("weights", epoch=self.state.epoch, mean=mean, share=share)
        self.checkpointer.keep(estimate.files)

    def _measure(self) -> Epoch:
        """The record of an epoch, with accuracies where they are due."""
        started, state, measured = time.perf_counter(), self.state, {}

        def on_batch(rows: int) -> None:
            if self.callbacks.stopping():
                self._commit()  # all steps of the epoch are done: resuming begins with its accuracies
                raise StoppedError("stopped while measuring accuracies")

        if self.stage.trajectory or state.epoch + 1 == self.stage.epochs:
            for name, split in self.accuracies.items():
                logits = predict(self.model, split.inputs, self.recipe.precision, on_batch=on_batch)
                assert split.labels is not None
                measured[name] = accuracy(logits, split.labels)
        state.seconds["evaluate"] += time.perf_counter() - started
        n, validation = len(self.stage.examples), measured.get("validation")
        # the rate of the last step, which may have been another process's
        rate = self.optimization.rate(state.epoch, state.step - 1, state.step, self.stage.epochs)
        epoch = Epoch(state.epoch + 1, state.loss / n, rate, validation, measured.get("test"), n, state.spent)
        if (validation or 0.0) > max(
            (each.validation for each in state.epochs if each.validation is not None), default=-1.0
        ):
            self.chosen = tensors.parameters(self.model)
        self._report("epoch", epochs=self.stage.epochs, **asdict(epoch))
        return epoch

    def _report(self, what: str, **more: Any) -> None:
        self.callbacks.on_event({"stage": self.stage.name, "what": what, **more})

    def _pause(self) -> None:
        """Between steps or epochs: save if it is due, and leave if asked to."""
        stopping, state = self.callbacks.stopping(), self.state
        if stopping or self.checkpointer.is_due() or (self.recipe.checkpoint_seconds == 0 and state.step == 0):
            self._commit()
        if stopping:
            raise StoppedError(f"stopped in {self.stage.name} after {state.epoch} epochs and {state.step} steps")

    def _commit(self) -> None:
        """Save a checkpoint."""
        started, state = time.perf_counter(), self.state
        chosen = tensors.prefixed("chosen/", self.chosen)
        content = tensors.to_bytes({**self.optimization.to_tensors(), **chosen})
        state.scale = self.optimization.scaler.state_dict() or None
        state.seconds["store"] += time.perf_counter() - started
        state.seconds["store"] += self.checkpointer.commit(state, content)

    def _resume(self) -> None:
        """Go back to the last checkpoint."""
        self.state, stored = self.checkpointer.resume()
        self.optimization.load_tensors(stored, self.state.scale)
        self.chosen = tensors.under("chosen/", stored)
        if self.state.refreshes and self.stage.restore:
            self.weights = self.stage.restore(self.checkpointer.store, self.state.refreshes[-1]).to(self.device)
