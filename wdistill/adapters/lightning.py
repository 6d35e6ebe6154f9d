"""For whoever trains with Lightning: the weighted loss of a LightningModule, and weights that follow the student."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wdistill.adapters.extras import brought_by
from wdistill.core.errors import bad_value

with brought_by("lightning", __name__):
    import torch
    from lightning.pytorch import Callback
    from torch import Tensor
    from torch.utils.data import BatchSampler

    from wdistill.adapters.refresh import Refresh
    from wdistill.adapters.torch import apart
    from wdistill.adapters.weights_file import set_state, state_of
    from wdistill.training.batch import logits_of
    from wdistill.training.losses import weighted_loss


class WeightedStep:
    """The training step of a LightningModule: `class Student(WeightedStep, LightningModule)`, trained on a DataLoader of
    a `WithTargets`, with the mean over rows of weight × soft cross-entropy. `forward` returns logits.

    The loss of one optimizer step is the mean over all its rows, however they lie in batches and processes.
    """

    trainer: Any
    log: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.training_step
        code = getattr(step, "__code__", None)
        if step is WeightedStep.training_step or code is None or "training_step" in code.co_names:
            return  # ours, or one that calls ours
        found, expected = f"{step.__module__}.{step.__qualname__}", "that of WeightedStep, which weighs the rows"
        remedy = f"class {cls.__name__}(WeightedStep, LightningModule), in this order, and no training_step of its own"
        raise bad_value("another training step takes its place", cls.__name__, found, expected, remedy)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, targets, weight = apart(batch)
        outputs: Any = self(**inputs) if isinstance(inputs, Mapping) else self(inputs)  # type: ignore[operator]
        loss = weighted_loss(logits_of(outputs), targets, weight)
        self.log("train_loss", loss.detach(), batch_size=len(weight), on_step=False, on_epoch=True, sync_dist=True)
        return loss * self._share(len(weight), batch_idx)

    def _share(self, rows: int, batch_idx: int) -> float:
        """What the mean of this batch counts for: Lightning divides by the number of batches that a step accumulates, and
        takes the mean over processes, as if all batches were equal.
        """
        batches = self.trainer.accumulate_grad_batches
        together = rows if batches == 1 else _rows_of_step(self.trainer, rows, batch_idx)
        strategy = self.trainer.strategy
        return float(rows * batches / strategy.reduce(torch.tensor(float(together), device=strategy.root_device)))


class RefreshWeights(Callback):
    """Weights that are estimated again from the student, after every so many epochs: before the next one begins.

    The weights are in Lightning's checkpoints: a run that is resumed has those it had, and with another table it is refused.
    """

    def __init__(self, refresh: Refresh, every: int = 1) -> None:
        if every < 1:
            raise bad_value("no schedule", "every", every, "a number of epochs, 1 or more", "leave it out for 1")
        self.refresh, self.every, self.epoch = refresh, every, 0  # epoch: before which they were estimated

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._when_due(trainer, pl_module)  # of a resumed run, whose next epoch Lightning may not tell

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._when_due(trainer, pl_module)

    def _when_due(self, trainer: Any, module: Any) -> None:
        epoch = int(trainer.current_epoch)
        if epoch % self.every == 0 and 0 < epoch != self.epoch:
            self.refresh(module)
            self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        return dict[str, Any](state_of(self.refresh.data, self.epoch))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = set_state(self.refresh.data, state_dict, "the checkpoint's state of RefreshWeights")


def _rows_of_step(trainer: Any, rows: int, batch_idx: int) -> int:
    """The rows of all batches that are accumulated together with this one, which is batch `batch_idx` of the epoch."""
    batches, sampler = int(trainer.accumulate_grad_batches), getattr(trainer.train_dataloader, "batch_sampler", None)
    if not isinstance(sampler, BatchSampler):
        found, expected = f"a {type(trainer.train_dataloader).__name__} without them", "batches of one size"
        remedy = "pass one DataLoader with a batch_size, or accumulate_grad_batches=1"
        raise bad_value("batches that cannot be counted ahead", "train_dataloader", found, expected, remedy)
    size, total = int(sampler.batch_size), len(sampler.sampler)  # type: ignore[arg-type]
    first = batch_idx - batch_idx % batches
    last = min(first + batches, int(trainer.num_training_batches))
    if rows != min(size, total - batch_idx * size):
        found, expected = f"batch {batch_idx} has {rows} rows", f"{size}, or what is left of {total}"
        remedy = "use accumulate_grad_batches=1 with batches of other sizes"
        raise bad_value("batches of different sizes are accumulated", "train_dataloader", found, expected, remedy)
    return min(last * size, total) - first * size
