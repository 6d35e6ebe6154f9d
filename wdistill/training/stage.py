"""The one training loop: a model on examples, epoch by epoch, from wherever its ledger says it stands.

Algorithm 1 of the paper trains three times: the teacher and the student on the labeled rows, then the student on the union
with weights that are estimated before the first epoch and, if asked, refreshed. All three are this loop; only the third has
an `estimate`, and may have a `guide`. The loop never sees a teacher (a guide may), and a batch never leaves torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.errors import NumericalError, WdistillError
from wdistill.ledger import Ledger
from wdistill.outcome import Epoch, Refresh, refresh_of
from wdistill.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.augmentation import augment
from wdistill.training.data import Split
from wdistill.training.inputs import Inputs
from wdistill.training.losses import weighted_loss, weighted_mean
from wdistill.training.predicting import accuracy, device_of, failed, forward, predict
from wdistill.training.randomness import begin, key, permutation
from wdistill.training.schedules import SCHEDULES

KINDS = ("train", "evaluate", "forward", "estimate", "store")  # of work, whose time is kept apart
QUIET = 0.2  # seconds between messages from inside an epoch
SETTLED = 50  # steps between looks at the loss on a device where each look would make it wait


@dataclass(frozen=True, eq=False)
class Examples:
    """What a student or teacher is trained on: parallel rows, so that a batch is one index."""

    inputs: Inputs  # (n, …)
    targets: Tensor  # (n, K) distributions, or (n,) classes
    weights: Tensor  # (n,) float32
    ids: NDArray[Any]  # (n,) for messages

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Weights of all examples, and the record of how they came about."""

    weights: Tensor  # (n,) float32
    refresh: Refresh
    files: Mapping[str, bytes]  # the same by row id, and the fitted rule, to be kept


@dataclass(frozen=True, eq=False)
class Guide:
    """A second loss for every example, whose own parameters are trained along and kept in checkpoints, but in no result."""

    module: nn.Module  # the parameters, on the model's device
    per_example: Callable[[Tensor], Tensor]  # the augmented batch that the model has just read → (b,)


@dataclass(frozen=True, eq=False)
class Stage:
    """One training: what, for how long, and where its ledger lies."""

    name: str  # teacher, student, or an arm
    folder: Path
    examples: Examples
    epochs: int
    order: str  # stages of the same order see the same batches, augmentation and dropout
    temperature: float = 1.0
    scale: float = 1.0  # of the cross-entropy
    estimate: Callable[[nn.Module, int], Estimate] | None = None  # (student, epochs trained) → weights
    restore: Callable[[Ledger, Refresh], Tensor] | None = None  # the weights of an earlier estimate, from its file
    every: int | None = None  # epochs from one estimate to the next
    guide: Guide | None = None  # what is minimised beside the cross-entropy, with the same weights
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # logits, targets, rows → (b,), not the cross-entropy
    why: str = ""  # of an arm whose method chose: what it saw
    gold: bool = False  # of an arm: its examples hold the validation rows that its accuracy is measured on
    trajectory: bool = False  # measure accuracies after every epoch, not only the last


@dataclass(frozen=True)
class Watch:
    """How a training talks to the outside: it asks whether to stop, and says where it is."""

    stopping: Callable[[], bool] = lambda: False
    say: Callable[[Mapping[str, Any]], None] = lambda message: None


class StoppedError(WdistillError):
    """The training was asked to stop, and has saved its state."""

    exit_code = 75


@dataclass
class Position:
    """Where a training stands; all that is needed to go on besides the tensors."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps done in the next one
    loss: float = 0.0  # sum over the examples of those steps
    spent: float = 0.0  # seconds of training in the unfinished epoch
    skipped: int = 0  # optimizer steps that float16 scaling left out
    scale: dict[str, Any] | None = None  # of float16 gradients: the scaler's state
    epochs: list[Epoch] = field(default_factory=list)
    refreshes: list[Refresh] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))


def run_stage(
    stage: Stage, model: nn.Module, recipe: Recipe, accuracies: Mapping[str, Split], watch: Watch | None = None
) -> None:
    """Train the model to the end of the stage. On return its ledger is finished and the model has its final parameters."""
    _Run(stage, model, recipe, accuracies, watch or Watch()).go()


class _Run:
    """A training while it lives."""

    def __init__(
        self, stage: Stage, model: nn.Module, recipe: Recipe, accuracies: Mapping[str, Split], watch: Watch
    ) -> None:
        self.stage, self.model, self.recipe, self.accuracies, self.watch = stage, model, recipe, accuracies, watch
        self.device = device_of(model)
        self.ledger, self.at = Ledger(stage.folder), Position()
        self.weights, self.targets = stage.examples.weights.to(self.device), stage.examples.targets.to(self.device)
        self.guiding = stage.guide.module if stage.guide else nn.Module()  # which has no parameters
        self.optimizer = make_optimizer(model, self.guiding, recipe)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "float16")
        self.chosen = tensors.parameters(model)
        self.files: dict[str, bytes] = {}  # estimated, not yet committed
        self.checkpoint = ""
        self.committed = self.said = time.monotonic()

    def go(self) -> None:
        self.ledger.clean()
        if self.ledger.state.get("finished"):
            tensors.load_parameters(self.model, self._tensors("parameters.safetensors"), self.stage.name)
            return
        if self.ledger.state:
            self._resume()
        while self.at.epoch < self.stage.epochs:
            if self.stage.estimate and self.at.step == 0 and self._is_due_for_weights():
                self._estimate()
            self._epoch()
            self._measure()
            self.at.seconds["train"] += self.at.spent
            self.at.epoch, self.at.step, self.at.loss, self.at.spent = self.at.epoch + 1, 0, 0.0, 0.0
            if self.at.epoch < self.stage.epochs:
                self._pause()
        self._finish()

    # one epoch ------------------------------------------------------------------------------------------------------

    def _epoch(self) -> None:
        epoch, recipe, examples = self.at.epoch, self.recipe, self.stage.examples
        order = permutation(len(examples), key(recipe.seed, self.stage.order, "order", epoch))
        plan = list(batches_of(order, recipe.batch_size))
        looking, pending = 1 if self.device.type == "cpu" else SETTLED, []
        self.model.train()
        started = time.perf_counter()
        for rows, batch in zip(plan[self.at.step :], examples.inputs.batches(plan[self.at.step :]), strict=True):
            place = key(recipe.seed, self.stage.order, epoch, self.at.step)
            begin(place, self.device)
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate(self.at.step, len(plan))
            loss = self._loss(rows.to(self.device), batch, place)
            pending.append((loss.detach(), len(rows)))
            if len(pending) >= looking:
                self._settle(pending, rows)
            self._step(loss)
            self.at.step += 1
            if self._is_due():
                self._settle(pending, rows)
                self.at.spent += time.perf_counter() - started
                self._pause()
                started = time.perf_counter()
                self.model.train()
            if time.monotonic() - self.said > QUIET:
                self._say(len(plan))
        self._settle(pending, order[-1:])
        self.at.spent += time.perf_counter() - started

    def _rate(self, step: int, steps: int) -> float:
        return self.recipe.rate * SCHEDULES[self.recipe.schedule](self.at.epoch + step / steps, self.stage.epochs)

    def _loss(self, rows: Tensor, batch: Tensor, place: int) -> Tensor:
        """The weighted mean over a batch, of its augmented inputs."""
        if self.recipe.augmentation:
            batch = augment(batch, self.recipe.augmentation, place)
        try:
            logits = forward(self.model, batch, self.device, self.recipe.precision)
        except Exception as error:
            raise failed(error, f"the {self.stage.name}", batch) from error
        targets, weights = self.targets.index_select(0, rows), self.weights.index_select(0, rows)
        if self.stage.loss:
            mean = weighted_mean(self.stage.loss(logits, targets, rows), weights)
        else:
            mean = weighted_loss(logits, targets, weights, self.stage.temperature)
        if self.stage.scale != 1:
            mean = mean * self.stage.scale
        if self.stage.guide:
            mean = mean + weighted_mean(self.stage.guide.per_example(batch), weights)
        return mean

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if not self.scaler.is_enabled():
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            return
        before = self.scaler.get_scale()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.at.skipped += self.scaler.get_scale() < before

    def _settle(self, pending: list[tuple[Tensor, int]], rows: Tensor) -> None:
        """Add up the losses so far; one that is not finite ends the training before the optimizer has stepped on it."""
        for loss, size in pending:
            value = loss.item()
            if not math.isfinite(value):
                used = self.weights[rows.to(self.device)]
                ids = ", ".join(str(each) for each in self.stage.examples.ids[rows.numpy()][:5])
                raise NumericalError(
                    "the loss is not finite",
                    where=f"{self.stage.name}, epoch {self.at.epoch + 1}, step {self.at.step + 1}",
                    found=f"{value}; ids of the batch {ids} …; weights from {used.min():.3g} to {used.max():.3g}",
                    expected="a finite loss",
                    remedy="the last good state is kept; start a new run with a smaller rate, or precision float32",
                )
            self.at.loss += value * size
        pending.clear()

    # weights and accuracies -----------------------------------------------------------------------------------------

    def _is_due_for_weights(self) -> bool:
        """Before the first epoch, then after every `every`-th."""
        done = self.at.refreshes[-1].after if self.at.refreshes else None
        if done is None:
            return True
        return bool(self.stage.every) and self.at.epoch % (self.stage.every or 1) == 0 and done < self.at.epoch

    def _estimate(self) -> None:
        assert self.stage.estimate is not None
        try:
            found = self.stage.estimate(self.model, self.at.epoch)
        except StoppedError:
            if self.at.epoch:
                self._commit()
            raise
        self.weights = found.weights.to(self.device)
        self.at.seconds["forward"] += found.refresh.forward_seconds
        self.at.seconds["estimate"] += found.refresh.estimate_seconds
        self.at.refreshes.append(found.refresh)
        said = {"mean": found.refresh.weights.mean, "share": found.refresh.weights.share_below_one}
        self.watch.say({"stage": self.stage.name, "what": "weights", "epoch": self.at.epoch, **said})
        first = f"{0:05d}"
        self.files = {name: content for name, content in self.files.items() if first in name} | dict(found.files)

    def _measure(self) -> None:
        started = time.perf_counter()
        found: dict[str, float] = {}
        if self.stage.trajectory or self.at.epoch + 1 == self.stage.epochs:
            for name, split in self.accuracies.items():
                logits = predict(self.model, split.inputs, self.recipe.precision, between=self._between)
                assert split.labels is not None
                found[name] = accuracy(logits, split.labels)
        self.at.seconds["evaluate"] += time.perf_counter() - started
        n = len(self.stage.examples)
        rate = self._rate(self.at.step - 1, self.at.step)  # of the last step, which may have been another process's
        best = max((each.validation for each in self.at.epochs if each.validation is not None), default=-1.0)
        epoch = Epoch(
            self.at.epoch + 1,
            self.at.loss / n,
            rate,
            found.get("validation"),
            found.get("test"),
            n,
            self.at.spent,
        )
        if (epoch.validation or 0.0) > best:
            self.chosen = tensors.parameters(self.model)
        self.at.epochs.append(epoch)
        self.watch.say({"stage": self.stage.name, "what": "epoch", "epochs": self.stage.epochs, **asdict(epoch)})

    def _between(self, rows: int) -> None:
        if self.watch.stopping():
            self._commit()  # all steps of the epoch are done: going on begins with its accuracies
            raise StoppedError("stopped while measuring accuracies")

    def _say(self, steps: int) -> None:
        self.said = time.monotonic()
        place = {"epoch": self.at.epoch, "epochs": self.stage.epochs, "step": self.at.step, "steps": steps}
        self.watch.say({"stage": self.stage.name, "what": "training", **place})

    # keeping --------------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        return self.watch.stopping() or (
            self.recipe.checkpoint_seconds > 0 and time.monotonic() - self.committed > self.recipe.checkpoint_seconds
        )

    def _pause(self) -> None:
        """Between steps or epochs: save if it is time to, and leave if asked to."""
        stopping = self.watch.stopping()
        if stopping or self._is_due() or (self.recipe.checkpoint_seconds == 0 and self.at.step == 0):
            self._commit()
        if stopping:
            raise StoppedError(f"stopped in {self.stage.name} after {self.at.epoch} epochs and {self.at.step} steps")

    def _commit(self) -> None:
        started = time.perf_counter()
        name = f"checkpoint-{self.at.epoch:05d}-{self.at.step:07d}.safetensors"
        current = tensors.parameters(self.model)
        tensors.check_finite(dict(self.model.named_parameters()), self.stage.name)  # a buffer may hold a mask of infinities
        tensors.check_finite(dict(self.guiding.named_parameters()), f"the guide of {self.stage.name}")
        content = tensors.to_bytes(
            tensors.prefixed("model/", current)
            | tensors.prefixed("chosen/", self.chosen)
            | tensors.prefixed("guide/", tensors.parameters(self.guiding))
            | tensors.prefixed("optimizer/", tensors.optimizer_state(self.optimizer))
        )
        self.at.seconds["store"] += time.perf_counter() - started
        started = time.perf_counter()
        self._write({name: content}, {"checkpoint": name})
        self.checkpoint = name
        self.at.seconds["store"] += time.perf_counter() - started
        self.committed = time.monotonic()

    def _finish(self) -> None:
        final = tensors.parameters(self.model)
        tensors.check_finite(dict(self.model.named_parameters()), self.stage.name)
        files = {"parameters.safetensors": tensors.to_bytes(final)}
        if self.stage.trajectory:
            files["chosen.safetensors"] = tensors.to_bytes(self.chosen)
        self._write(files, {"finished": True})
        self.model.eval()

    def _write(self, files: Mapping[str, bytes], more: Mapping[str, Any]) -> None:
        """Commit files and position; of the weights, the first and the newest are kept."""
        last = [self.at.refreshes[-1].file] if self.at.refreshes else []
        kept = {"00000", *(Path(name).stem for name in last)}
        old = [name for name in self.ledger.generation.files if name.startswith("weights/") and Path(name).stem not in kept]
        drop = [*old, *([self.checkpoint] if self.checkpoint and self.checkpoint not in files else [])]
        self.at.scale = self.scaler.state_dict() or None
        self.ledger.commit(
            {**asdict(self.at), "why": self.stage.why, "gold": self.stage.gold, **more}, {**self.files, **files}, drop
        )
        self.files = {}

    def _resume(self) -> None:
        state = dict(self.ledger.state)
        self.checkpoint = state.pop("checkpoint")
        for told in ("why", "gold"):
            state.pop(told, None)
        self.at = _from_json(state)
        found = self._tensors(self.checkpoint)
        tensors.load_parameters(self.model, tensors.under("model/", found), self.stage.name)
        self.chosen = tensors.under("chosen/", found)
        tensors.load_parameters(self.guiding, tensors.under("guide/", found), f"the guide of {self.stage.name}")
        tensors.load_optimizer(self.optimizer, tensors.under("optimizer/", found))
        if self.at.scale is not None:
            self.scaler.load_state_dict(self.at.scale)
        if self.at.refreshes and self.stage.restore:
            self.weights = self.stage.restore(self.ledger, self.at.refreshes[-1]).to(self.device)

    def _tensors(self, name: str) -> dict[str, Tensor]:
        return tensors.from_bytes(self.ledger.read(name), str(self.stage.folder / name))


def make_optimizer(model: nn.Module, guiding: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Of the parameters of a model and of its guide; the kernels that decay are the model's alone."""
    trained = [each for each in nn.ModuleList([model, guiding]).parameters() if each.requires_grad]
    groups: list[dict[str, Any]] = [{"params": trained}]  # a group may be empty
    if recipe.decayed == "kernels":
        kernels = {id(each.weight) for each in model.modules() if isinstance(each, nn.Conv1d | nn.Conv2d | nn.Conv3d)}
        groups = [{"params": [each for each in trained if id(each) in kernels]}]
        groups += [{"params": [each for each in trained if id(each) not in kernels], "weight_decay": 0.0}]
    known = all(each.is_floating_point() and each.device.type in ("cpu", "cuda") for each in trained)
    fused = known and recipe.precision != "float16"  # one pass over the parameters
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, recipe.rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=fused)
    return torch.optim.Adam(groups, recipe.rate, weight_decay=recipe.weight_decay, fused=fused)


def batches_of(order: Tensor, size: int) -> Iterator[Tensor]:
    """Consecutive slices of an order; a single row left over joins the batch before it, for batch norm's sake."""
    n = len(order)
    ends = [*range(size, n, size), n]
    if len(ends) > 1 and n - ends[-2] == 1:
        del ends[-2]
    return (order[first:last] for first, last in zip([0, *ends], ends, strict=False))


def _from_json(state: Mapping[str, Any]) -> Position:
    epochs = [Epoch(**each) for each in state["epochs"]]
    refreshes = [refresh_of(each) for each in state["refreshes"]]
    return Position(**{**state, "epochs": epochs, "refreshes": refreshes})
