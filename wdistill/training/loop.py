"""The one training loop: a model on examples, epoch by epoch, resumed from its last checkpoint.

Algorithm 1 of the paper trains three times: the teacher and the student on the labeled rows, then the student on the union
with weights that are estimated before the first epoch and, if asked, refreshed. All three are this loop; only the third has
an `estimate`, and may have an `auxiliary_loss`. Small students of several arms are one model here, a stack, with one stage
and one folder each. The loop never sees a teacher (an auxiliary loss may), and a batch never leaves torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wdistill.core.errors import NumericalError, UnfinishedError
from wdistill.runs.outcome import Epoch
from wdistill.runs.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.batch import Batch
from wdistill.training.checkpointer import Checkpointer
from wdistill.training.data import Split
from wdistill.training.losses import weighted_losses
from wdistill.training.optimizer import Optimization
from wdistill.training.parted import PartedEpochs
from wdistill.training.passes import batch_loss, batches_of, read
from wdistill.training.predict import accuracy, device_of, is_out_of_memory, model_error, predict, score
from wdistill.training.randomness import key, permutation
from wdistill.training.ranks import ranks
from wdistill.training.stack import Alone, Students
from wdistill.training.stage import Callbacks, Stage, StoppedError, TrainState
from wdistill.training.targets import targets_on

if TYPE_CHECKING:
    from wdistill.training.sharded import Shards

QUIET = 0.2  # seconds between events from inside an epoch
SETTLED = 50  # steps between looks at the loss on a device where each look would make it wait


def run_stage(
    stage: Stage, model: nn.Module, recipe: Recipe, accuracies: Mapping[str, Split], callbacks: Callbacks | None = None
) -> None:
    """Train the model from its last checkpoint to its final parameters (not of shards)."""
    run_stages([stage], Alone(model), recipe, accuracies, callbacks)


def run_stages(
    stages: Sequence[Stage],
    students: Students,
    recipe: Recipe,
    accuracies: Mapping[str, Split],
    callbacks: Callbacks | None = None,
) -> None:
    """The same for every student of a stack, each with its own stage; all have the same rows, and soft targets."""
    members = [_Member(stage, Checkpointer(stage, recipe, callbacks or Callbacks())) for stage in stages]
    if all(each.checkpointer.store.state.get("finished") for each in members):
        if stages[0].sharded:
            return
        stored = [each.checkpointer.read("parameters.safetensors") for each in members]
        tensors.load_parameters(students.model, students.join(stored), _names(stages))
        return
    _Trainer(members, students, recipe, accuracies, callbacks or Callbacks()).run()


def _names(stages: Sequence[Stage]) -> str:
    return ", ".join(stage.name for stage in stages)


def batch_losses(
    stages: Sequence[Stage], logits: Tensor, targets: Tensor, weights: Tensor, rows: Tensor, batch: Batch
) -> Tensor:
    """The same for every student of a stack; logits and targets (S, b, K), weights (S, b) → (S,)."""
    first = stages[0]
    plain = [s for s, each in enumerate(stages) if each.has_loss_of(first.temperature, first.scale)]
    if len(plain) == len(stages):
        return weighted_losses(logits, targets, weights, first.temperature) * first.scale
    others = [s for s in range(len(stages)) if s not in plain]
    own = [batch_loss(stages[s], logits[s], targets[s], weights[s], rows, batch) for s in others]
    if not plain:
        return torch.stack(own)
    together = weighted_losses(logits[plain], targets[plain], weights[plain], first.temperature) * first.scale
    return torch.cat([together, torch.stack(own)])[torch.tensor([*plain, *others]).argsort()]


@dataclass
class _Member:
    """One training while it runs, alone or in a stack."""

    stage: Stage
    checkpointer: Checkpointer
    state: TrainState = field(default_factory=TrainState)
    chosen: Mapping[str, Tensor] = field(default_factory=dict)  # parameters after the epoch that was best on validation

    def add_loss(self, loss: float, rows: Tensor, weights: Tensor, size: int) -> None:
        """Count the loss of a batch; one that is not finite ends the training before the optimizer has stepped on it."""
        if not math.isfinite(loss):
            used = weights[rows.to(weights.device)]
            ids = ", ".join(map(str, self.stage.examples.ids[rows.numpy()][:5]))
            raise NumericalError(
                "the loss is not finite",
                where=f"{self.stage.name}, epoch {self.state.epoch + 1}, step {self.state.step + 1}",
                found=f"{loss}; ids of the batch {ids} …; weights from {used.min():.3g} to {used.max():.3g}",
                expected="a finite loss",
                remedy="the last good state is kept; start a new run with a smaller rate, or precision float32",
            )
        self.state.loss += loss * size

    def is_best(self, epoch: Epoch) -> bool:
        """Whether an epoch is better on the validation rows than all epochs before it."""
        before = [each.rank for each in self.state.epochs if each.rank is not None]
        return not before or (epoch.rank or 0.0) > max(before)


class _Trainer:
    """A training while it runs; those of a stack keep step."""

    def __init__(
        self,
        members: Sequence[_Member],
        students: Students,
        recipe: Recipe,
        accuracies: Mapping[str, Split],
        callbacks: Callbacks,
    ) -> None:
        self.members, self.students, self.model, self.recipe = members, students, students.model, recipe
        self.accuracies, self.callbacks, self.device = accuracies, callbacks, device_of(students.model)
        self.stages = [each.stage for each in members]
        self.stage, self.names = self.stages[0], _names(self.stages)  # of a stack, all have its rows, order and epochs
        self.targets = targets_on(self.device, [stage.examples.targets for stage in self.stages])
        self.weights = _stacked([stage.examples.weights.to(self.device, copy=True) for stage in self.stages])
        auxiliary = self.stage.auxiliary_loss.module if self.stage.auxiliary_loss else nn.Module()  # without parameters
        self.optimization = Optimization(self.model, auxiliary, recipe, self.names)
        self.reported, self.asked = time.monotonic(), False  # whether another process was asked to stop
        self.shards: Shards | None = None
        self.parted: PartedEpochs | None = None
        if self.stage.sharded:
            from wdistill.training.sharded import ShardedEpochs, Shards

            self.shards = Shards(self.optimization)
        if self.stage.sharded and ranks().size > 1:
            self.parted = ShardedEpochs(self.stage, recipe, self.optimization, ranks())
        elif self.stage.parts > 1 and len(members) == 1:
            self.parted = PartedEpochs(self.stage, recipe, self.optimization, ranks())

    @property
    def state(self) -> TrainState:
        """How far the training is: the same of all."""
        return self.members[0].state

    def run(self) -> None:
        if self.shards is not None and self.parted is not None:
            self.parted.lead(self.model)
        self._resume()
        if self.shards is None and self.parted is not None:
            self.parted.lead(self.model)
        while self.state.epoch < self.stage.epochs:
            for number, each in enumerate(self.members):
                if each.stage.estimate_is_due(each.state):
                    self._estimate(number, each)
            self._epoch()
            self._measure()
            if self.state.epoch < self.stage.epochs:
                self._pause()
        for each, parameters, chosen in zip(self.members, *self._final(), strict=True):
            files = {"parameters.safetensors": tensors.to_bytes(parameters)}
            files |= {"chosen.safetensors": tensors.to_bytes(chosen)} if each.stage.trajectory else {}
            each.state.scale = self.optimization.scaler.state_dict() or None
            each.checkpointer.write(each.state, files, {"finished": True})
        self.model.eval()

    def _parameters(self) -> list[dict[str, Tensor]]:
        """Of every student, as they are now."""
        return self.students.split(tensors.parameters(self.model))

    def _final(self) -> tuple[Sequence[Mapping[str, Tensor]], Sequence[Mapping[str, Tensor]]]:
        """Of every student, its parameters, which are finite, and the chosen ones."""
        if self.shards is not None:
            return [self.shards.whole(False)], [self.shards.whole(True) if self.stage.trajectory else {}]
        tensors.check_finite(dict(self.model.named_parameters()), self.names)
        return self._parameters(), [each.chosen for each in self.members]

    def _choose(self, numbers: Sequence[int]) -> None:
        """Remember the parameters of these students as they are now."""
        if self.shards is not None and numbers:
            self.shards.choose()
        elif numbers:
            parameters = self._parameters()
            for number in numbers:
                self.members[number].chosen = parameters[number]

    def _epoch(self) -> None:
        """All batches of one epoch, or those that are left of it."""
        state, recipe, examples = self.state, self.recipe, self.stage.examples
        order = permutation(len(examples), key(recipe.seed, self.stage.order, "order", state.epoch))
        plan = list(batches_of(order, recipe.batch_size))
        looking, pending = 1 if self.device.type == "cpu" else SETTLED, []
        self.model.train()
        started = time.perf_counter()
        passes = self._whole if self.parted is None else self._parted
        with closing(passes(plan)) as batches:
            for rows, loss in batches:
                pending.append((loss, len(rows)))
                if len(pending) >= looking:
                    self._add_losses(pending, rows)
                skipped = not self.optimization.step()
                for each in self.members:
                    each.state.skipped += skipped
                    each.state.step += 1
                if self.checkpointer.is_due() or self.asked:
                    self._add_losses(pending, rows)
                    self._spend(time.perf_counter() - started)
                    self._pause()
                    started = time.perf_counter()
                    self.model.train()
                if time.monotonic() - self.reported > QUIET:
                    self.reported = time.monotonic()
                    for stage in self.stages:
                        progress = {"epoch": state.epoch, "epochs": stage.epochs, "step": state.step, "steps": len(plan)}
                        self._report(stage, "training", **progress)
        self._add_losses(pending, order[-1:])
        self._spend(time.perf_counter() - started)

    def _whole(self, plan: Sequence[Tensor]) -> Generator[tuple[Tensor, Tensor], None, None]:
        """The rows and losses of the batches that are left, each with its gradients, in one forward and backward pass."""
        left = plan[self.state.step :]
        for rows, batch in zip(left, self.stage.examples.inputs.batches(left), strict=True):
            position = self.optimization.begin(self.stage, self.state.epoch, self.state.step, len(plan))
            loss = self._loss(rows, batch, position)
            self.optimization.zero()
            self._backward(loss, batch)
            yield rows, loss.detach()

    def _parted(self, plan: Sequence[Tensor]) -> Generator[tuple[Tensor, Tensor], None, None]:
        """The same for batches in parts, of which followers compute theirs."""
        assert self.parted is not None
        team = self.parted.ranks

        def supervision(rows: Tensor) -> tuple[Tensor, Tensor]:
            at = rows.to(self.device)
            targets, weights = self.targets.rows(at), self.weights[0].index_select(0, at)
            if team.size > 1:
                team.tell("step", targets.cpu().numpy(), weights.cpu().numpy())
            return targets, weights

        team.tell("epoch", self.state.epoch, self.state.step)
        try:
            for rows, summed in self.parted.epoch(self.state.epoch, self.state.step, supervision, self.callbacks.stopping):
                self.asked = self.asked or summed.stopping
                yield rows, torch.tensor(summed.loss)
        finally:
            with suppress(UnfinishedError):  # where another process is gone, that is raised already
                team.tell("leave")

    def _loss(self, rows: Tensor, batch: Batch, position: int) -> Tensor:
        """The loss of a batch; of a stack, those of its students (S,)."""
        batch, logits = read(self.model, batch, self.recipe, position, self.device, self.names)
        rows = rows.to(self.device)
        targets, weights = self.targets.rows(rows), self.weights.index_select(1, rows)
        if len(self.members) == 1:
            return batch_loss(self.stage, logits, targets, weights[0], rows, batch)
        return batch_losses(self.stages, logits, targets, weights, rows, batch)

    def _add_losses(self, pending: list[tuple[Tensor, int]], rows: Tensor) -> None:
        """Count the losses so far; `rows` are those of the last."""
        for losses, size in pending:
            for each, weights, loss in zip(self.members, self.weights, losses.view(-1).tolist(), strict=True):
                each.add_loss(loss, rows, weights, size)
        pending.clear()

    def _backward(self, loss: Tensor, batch: Batch) -> None:
        """Gradients of a loss; where memory does not suffice for them, the run can resume."""
        try:
            self.optimization.backward(loss if loss.ndim == 0 else loss.sum())
        except Exception as error:
            if is_out_of_memory(error):
                raise model_error(error, f"the {self.names}", batch) from error
            raise

    def _spend(self, seconds: float) -> None:
        """Count seconds of training: of a stack, each has its share."""
        for each in self.members:
            each.state.spent += seconds / len(self.members)

    def _estimate(self, number: int, member: _Member) -> None:
        """Lines 8 and 9 of Algorithm 1: weights for the student as it is now."""
        stage, state = member.stage, member.state
        assert stage.estimate is not None
        try:
            estimate = stage.estimate(self.students.student(number), state.epoch)
        except StoppedError:
            if state.epoch:
                self._commit()
            raise
        refresh = estimate.refresh
        self.weights[number] = estimate.weights
        state.seconds["forward"] += refresh.forward_seconds
        state.seconds["estimate"] += refresh.estimate_seconds
        state.refreshes.append(refresh)
        mean, share = refresh.weights.mean, refresh.weights.share_below_one
        self._report(stage, "weights", epoch=state.epoch, mean=mean, share=share)
        member.checkpointer.keep(estimate.files)

    def _measure(self) -> None:
        """The record of an epoch, with accuracies where they are due."""
        started, measured = time.perf_counter(), [dict[str, float]() for _ in self.members]

        def on_batch(rows: int) -> None:
            if self.callbacks.stopping():
                raise StoppedError("stopped while measuring accuracies")

        if self.stage.trajectory or self.state.epoch + 1 == self.stage.epochs:
            for name, split in self.accuracies.items():
                try:
                    logits = predict(self.model, split.inputs, self.recipe.precision, on_batch=on_batch)
                except StoppedError:
                    self._commit()  # all steps of the epoch are done: resuming begins with its accuracies
                    raise
                assert split.labels is not None
                for each, own in zip(measured, logits if logits.ndim == 3 else [logits], strict=True):
                    each[name] = accuracy(own, split.labels, split.design.weights)
                    if name == "validation" and self.stage.metric is not None:
                        each["score"] = score(self.stage.metric, own, split.labels, split.design.weights)
        seconds, n = (time.perf_counter() - started) / len(self.members), len(self.stage.examples)
        # the rate of the last step, which may have been another process's
        rate = self.optimization.rate(self.stage, self.state.epoch, self.state.step - 1, self.state.step)
        best = list[int]()
        for number, (member, accuracies) in enumerate(zip(self.members, measured, strict=True)):
            state, validation, test = member.state, accuracies.get("validation"), accuracies.get("test")
            state.seconds["evaluate"] += seconds
            chosen_by = accuracies.get("score")
            epoch = Epoch(state.epoch + 1, state.loss / n, rate, validation, test, n, state.spent, chosen_by)
            if member.is_best(epoch):
                best.append(number)
            self._report(member.stage, "epoch", epochs=self.stage.epochs, **epoch.record)
            state.end_epoch(epoch)
        self._choose(best)

    def _report(self, stage: Stage, what: str, **more: Any) -> None:
        self.callbacks.on_event({"stage": stage.name, "what": what, **more})

    @property
    def checkpointer(self) -> Checkpointer:
        """Of the first, which tells when checkpoints are due."""
        return self.members[0].checkpointer

    def _pause(self) -> None:
        """Between steps or epochs: save if it is due, and leave if asked to."""
        stopping, state = self.callbacks.stopping() or self.asked, self.state
        if stopping or self.checkpointer.is_due() or (self.recipe.checkpoint_seconds == 0 and state.step == 0):
            self._commit()
        if stopping:
            raise StoppedError(f"stopped in {self.names} after {state.epoch} epochs and {state.step} steps")

    def _commit(self) -> None:
        """Save a checkpoint."""
        if self.shards is not None:
            self.checkpointer.commit_shards(self.state, self.shards.save)
            return
        for member, content in zip(self.members, self.students.split(self.optimization.to_tensors()), strict=True):
            started, state = time.perf_counter(), member.state
            stored = tensors.to_bytes({**content, **tensors.prefixed("chosen/", member.chosen)})
            state.scale = self.optimization.scaler.state_dict() or None
            state.seconds["store"] += time.perf_counter() - started
            state.seconds["store"] += member.checkpointer.commit(state, stored)

    def _resume(self) -> None:
        """Go back to the last checkpoint that there is of all."""
        stores = [each.checkpointer.resumable() for each in self.members]
        common = [position for position in stores[0] if all(position in each for each in stores)]
        if not common:
            self._choose(range(len(self.members)))
            return
        contents = []
        for number, (member, checkpoints) in enumerate(zip(self.members, stores, strict=True)):
            member.state, paths = member.checkpointer.resume(checkpoints[common[0]])
            if self.shards is not None:
                self.shards.load(paths)
            else:
                content = member.checkpointer.content(checkpoints[common[0]])
                member.chosen = tensors.under("chosen/", content)
                contents.append({name: value for name, value in content.items() if not name.startswith("chosen/")})
            if member.state.refreshes and member.stage.restore:
                self.weights[number] = member.stage.restore(checkpoints[common[0]], member.state.refreshes[-1])
        if contents:
            self.optimization.load_tensors(self.students.join(contents), self.state.scale)


def _stacked(values: Sequence[Tensor]) -> Tensor:
    """(S, …)"""
    return torch.stack(list(values)) if len(values) > 1 else values[0][None]
