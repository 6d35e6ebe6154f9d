"""The batches of an epoch, and one forward pass with its loss: what the training loop and its followers have in common."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from wdistill.runs.recipe import Recipe
from wdistill.training.augmentation import augment
from wdistill.training.batch import Batch
from wdistill.training.losses import weighted_loss, weighted_mean
from wdistill.training.predict import forward, model_error
from wdistill.training.randomness import key, permutation
from wdistill.training.stage import Stage


def plan_of(stage: Stage, recipe: Recipe, epoch: int) -> list[Tensor]:
    """The rows of every batch of an epoch, in their order."""
    order = permutation(len(stage.examples), key(recipe.seed, stage.order, "order", epoch))
    return list(batches_of(order, recipe.batch_size))


def batches_of(order: Tensor, size: int) -> Iterator[Tensor]:
    """Consecutive slices of an order; a single row left over joins the batch before it, for batch norm's sake."""
    n = len(order)
    ends = [*range(size, n, size), n]
    if len(ends) > 1 and n - ends[-2] == 1:
        del ends[-2]
    return (order[first:last] for first, last in zip([0, *ends], ends, strict=False))


def read(
    model: nn.Module, batch: Batch, recipe: Recipe, position: int, device: torch.device, name: str
) -> tuple[Batch, Tensor]:
    """A batch as it is augmented at a position of the run, and its logits."""
    if recipe.augmentation:
        batch = augment(batch, recipe.augmentation, position)
    try:
        return batch, forward(model, batch, device, recipe.precision)
    except Exception as error:
        raise model_error(error, f"the {name}", batch) from error


def batch_loss(stage: Stage, logits: Tensor, targets: Tensor, weights: Tensor, rows: Tensor, batch: Batch) -> Tensor:
    """The weighted mean loss over the rows of a batch; logits (b, K), weights (b,), targets (b, K) or (b,)."""
    if stage.loss:
        mean = weighted_mean(stage.loss(logits, targets, rows), weights)
    else:
        mean = weighted_loss(logits, targets, weights, stage.temperature)
    if stage.scale != 1:
        mean = mean * stage.scale
    if stage.auxiliary_loss:
        mean = mean + weighted_mean(stage.auxiliary_loss.per_example(batch), weights)
    return mean
