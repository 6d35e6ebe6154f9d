"""Predictions of a model on a split: in eval mode, without augmentation, on a fixed grid of batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.errors import ConfigError, NumericalError, UnfinishedError
from wdistill.training.inputs import Inputs

GRID = 128  # rows read at once: the bits of a prediction may depend on it, so it never changes


def predict(
    model: nn.Module,
    inputs: Inputs,
    precision: str = "float32",
    rows: slice | None = None,
    between: Callable[[int], None] = lambda rows: None,
) -> NDArray[np.float32]:
    """Logits (n, K). `rows` picks a part of whole grid cells; `between` is called with the rows done after each batch."""
    part = rows or slice(0, len(inputs))
    orders = [torch.arange(a, min(a + GRID, part.stop)) for a in range(part.start, part.stop, GRID)]
    found: list[NDArray[np.float32]] = []
    training, device = model.training, device_of(model)
    model.eval()
    try:
        with torch.no_grad():
            for batch in inputs.batches(orders):
                try:
                    logits = forward(model, batch, device, precision)
                except Exception as error:
                    raise failed(error, f"the model {type(model).__name__}", batch) from error
                found.append(logits.float().cpu().numpy())
                between(len(batch))
    finally:
        model.train(training)
    result = np.concatenate(found)
    if not np.isfinite(result).all():
        bad = np.flatnonzero(~np.isfinite(result).all(axis=1))
        raise NumericalError(
            "predictions are not finite",
            where=type(model).__name__,
            found=f"NaN or infinite logits in {len(bad)} rows, first {', '.join(map(str, bad[:5]))} (from 0)",
            expected="finite logits",
            remedy="a smaller learning rate, or precision float32",
        )
    return result


def accuracy(logits: NDArray[Any], labels: Tensor) -> float:
    """Share of rows whose largest logit is the label's."""
    return float(np.mean(logits.argmax(axis=1) == labels.numpy()))


def forward(model: nn.Module, batch: Tensor, device: torch.device, precision: str) -> Tensor:
    """Logits (b, K) of a batch, wherever it comes from and whatever its type."""
    with casting(device, precision):
        logits: Tensor = model(as_float(batch.to(device, non_blocking=True)))
    return logits


def as_float(batch: Tensor) -> Tensor:
    """uint8 scaled to [0, 1]; float16 and float64 as float32; other whole numbers (tokens) as they are."""
    if batch.dtype == torch.uint8:
        return batch.float().div_(255)
    return batch.float() if batch.is_floating_point() else batch


def casting(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Mixed precision, where the recipe asks for it."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, getattr(torch, precision))


def device_of(model: nn.Module) -> torch.device:
    return next((each.device for each in model.parameters()), torch.device("cpu"))


def classes_of(model: nn.Module, name: str, inputs: Inputs, precision: str) -> int:
    """The number of classes K that a model tells apart, found by reading two rows; refuses what is not logits."""
    logits, rows = glance(model, name, inputs, precision), min(2, len(inputs))
    shape = getattr(logits, "shape", None)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        raise ConfigError(
            f"the {name} does not return logits",
            where=type(model).__name__,
            found=f"a tensor of shape {tuple(shape)}" if shape is not None else f"a {type(logits).__name__}",
            expected=f"one tensor (rows, classes): here ({rows}, 2 or more)",
            remedy="wrap the module in one whose forward returns the logits alone",
        )
    sums = logits.float().sum(1)
    if (logits >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        raise ConfigError(
            f"the {name} returns probabilities",
            where=type(model).__name__,
            found="rows within [0, 1] that sum to 1",
            expected="logits: losses and temperature need them before the softmax",
            remedy="remove the softmax at the end of the module",
        )
    return int(logits.shape[1])


def glance(model: nn.Module, name: str, inputs: Inputs, precision: str) -> Any:
    """What a model makes of the first two rows, in eval mode."""
    (batch,) = inputs.batches([torch.arange(min(2, len(inputs)))])
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return forward(model, batch, device_of(model), precision)
    except Exception as error:
        raise failed(error, f"the {name}", batch) from error
    finally:
        model.train(training)


def failed(error: Exception, who: str, batch: Tensor) -> ConfigError | UnfinishedError:
    """Our error for an exception out of a model: out of memory can be resumed, anything else is the model's."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error):
        return UnfinishedError(
            "out of memory",
            where=who,
            found=f"a batch of {len(batch)} rows {tuple(batch.shape[1:])}",
            expected="a batch that fits",
            remedy="free memory and run again to go on, or start a new run with a smaller batch_size",
        )
    return ConfigError(
        f"{who} cannot read its input",
        where=f"a batch of shape {tuple(batch.shape)}, {batch.dtype}".replace("torch.", ""),
        found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        expected="a module that takes such a batch",
        remedy="call .float() on the module: half precision is a setting of the recipe"
        if "same dtype" in str(error)
        else "check shape and type of the inputs against the module's first layer",
    )
