"""For whoever trains with the Trainer of Hugging Face: targets and weights as columns, and the gradient that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wdistill.adapters.extras import brought_by
from wdistill.core.errors import bad_value, wrong_shape

with brought_by("transformers", __name__):
    import torch
    from torch import Tensor, nn
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

    from wdistill.adapters.refresh import Refresh
    from wdistill.adapters.target_table import TARGETS, WEIGHT, TargetTable
    from wdistill.adapters.torch import WithTargets, apart
    from wdistill.adapters.weights_file import load_weights, save_weights
    from wdistill.training.batch import logits_of
    from wdistill.training.losses import weighted_loss


class WeightedTrainer(Trainer):
    """A Trainer whose loss is the mean over rows of weight × soft cross-entropy: that of one optimizer step is the mean
    over all its rows, however they lie in batches and processes. Batches without targets are evaluated by their labels.

    Its arguments are those of Trainer; the training set is one that `to_dataset` made.
    """

    label_names: list[str]
    loss_is_scaled_for_ga = True  # by `get_batch_samples` and `compute_loss`: not to be divided again

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not hasattr(Trainer, "loss_is_scaled_for_ga"):
            found, expected = (
                "an older version",
                "5.23 or newer: older ones divide losses once more when gradients accumulate",
            )
            raise bad_value(
                "a Trainer that cannot be told", "transformers", found, expected, "pip install 'wdistill[transformers]'"
            )
        super().__init__(*args, **kwargs)
        for given, name in ((self.label_smoother, "label_smoothing_factor"), (self.compute_loss_func, "compute_loss_func")):
            if given is not None:
                expected, remedy = "the cross-entropy with the targets", "leave it out, or smooth the targets in the table"
                raise bad_value("a loss beside that of the targets", name, "it is set", expected, remedy)
        self._labels = [name for name in self.label_names if name not in (TARGETS, WEIGHT)]  # of the model itself
        self.label_names = [*self._labels, TARGETS, WEIGHT]  # no columns that Trainer removes

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        folder = get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
        for each in self.callback_handler.callbacks:
            if isinstance(each, RefreshWeights):
                each.checkpoint = folder or None
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """The batches of one optimizer step, and their rows, counted over all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        rows = torch.tensor(sum(len(apart(batch)[2]) for batch in batches), device=device)
        return batches, self.accelerator.gather(rows).sum()

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Tensor | None = None
    ) -> Any:
        """The weighted loss of a batch: its part of the mean over the step's rows, or in evaluation the batch's own mean."""
        if TARGETS not in inputs and not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        given, targets, weight = apart(inputs)
        outputs = model(**given)
        logits = logits_of(outputs)
        if logits.shape != targets.shape:
            found, expected = f"logits of shape {tuple(logits.shape)}", f"{tuple(targets.shape)}, as the targets have"
            remedy = f"make the model with num_labels={targets.shape[1]}"
            raise wrong_shape("the model has other classes", type(model).__name__, found, expected, remedy)
        loss = weighted_loss(logits, targets, weight)
        if model.training and num_items_in_batch is not None:  # gradients are averaged over processes
            loss = loss * (len(weight) * self.accelerator.num_processes / num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def prediction_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Loss, logits, and labels: the model's own where the batch has them, else the targets (b, K)."""
        own = bool(self._labels) and all(inputs.get(name) is not None for name in self._labels)
        names, self.label_names = self.label_names, self._labels if own else [TARGETS]
        try:
            return super().prediction_step(model, inputs, *args, **kwargs)
        finally:
            self.label_names = names


class RefreshWeights(TrainerCallback):
    """Weights that are estimated again from the student, after every so many epochs.

    They are in Trainer's checkpoints: a run that is resumed has those it had, in the middle of an epoch too.
    """

    def __init__(self, refresh: Refresh, every: int = 1) -> None:
        if every < 1:
            raise bad_value("no schedule", "every", every, "a number of epochs, 1 or more", "leave it out for 1")
        self.refresh, self.every, self.epoch = refresh, every, 0  # epoch: after which they were estimated
        self.checkpoint: str | None = None  # that training is resumed from

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.epoch = 0 if self.checkpoint is None else load_weights(self.refresh.data, self.checkpoint)
        if self.checkpoint and state.epoch == round(state.epoch):  # saved by steps, before the epoch's end was told
            self._when_due(state, kwargs["model"])

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._when_due(state, kwargs["model"])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.should_save and not state.is_hyper_param_search:
            folder = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
            save_weights(self.refresh.data, self.epoch, folder)

    def _when_due(self, state: Any, model: nn.Module) -> None:
        epoch = round(state.epoch)
        if epoch % self.every == 0 and epoch > self.epoch and state.global_step < state.max_steps:
            self.refresh(model)
            self.epoch = epoch


def to_dataset(table: TargetTable, tokenized: Any, ids: Any = None) -> WithTargets:
    """Tokenized texts with their targets and weights: a `datasets.Dataset`, a dict of columns, or a list of dicts.

    `ids`: those of the texts, in order; None: the column `id` has them.
    """
    if isinstance(tokenized, Mapping):
        names = list(tokenized)
        tokenized = [dict(zip(names, row, strict=True)) for row in zip(*tokenized.values(), strict=True)]
    if ids is None:
        names = getattr(tokenized, "column_names", None) or list(tokenized[0])
        if "id" not in names:
            found, remedy = f"columns {', '.join(names)}", "pass ids=, or keep the column"
            raise bad_value("rows without ids", "tokenized", found, "a column 'id' to join by", remedy)
        ids = tokenized["id"][:] if hasattr(tokenized, "column_names") else [row["id"] for row in tokenized]
    return WithTargets(tokenized, table, ids)
