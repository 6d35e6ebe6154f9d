"""A batch of inputs: one tensor, or several by name, which a module takes as keyword arguments; the logits in its output."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from wdistill.core.errors import wrong_shape

Batch = Tensor | Mapping[str, Tensor]  # each (b, …)
LABELS = ("label", "labels")  # names that are never an input's: among the names of a Dataset's item, they are its class

Values = TypeVar("Values")


def by_name(values: Values | Mapping[str, Values]) -> Mapping[str, Values]:
    """Values by name; those that have none get the name ""."""
    return values if isinstance(values, Mapping) else {"": values}


def from_names(values: Mapping[str, Values]) -> Values | Mapping[str, Values]:
    """The inverse of `by_name`."""
    return values.get("", values)


def rows_in(batch: Batch) -> int:
    """The number of rows b."""
    return len(next(iter(by_name(batch).values())))


def call(model: nn.Module, batch: Batch, device: torch.device) -> Any:
    """The output of a model, on its device, for a batch on any device and of any type."""
    if isinstance(batch, Tensor):
        return model(as_float(batch.to(device, non_blocking=True)))
    return model(**{name: as_float(values.to(device, non_blocking=True)) for name, values in batch.items()})


def as_float(values: Tensor) -> Tensor:
    """uint8 scaled to [0, 1]; float16 and float64 as float32; other whole numbers (tokens) as they are."""
    if values.dtype == torch.uint8:
        return values.float().div_(255)
    return values.float() if values.is_floating_point() else values


def logits_of(output: Any) -> Any:
    """The logits in the output of a model: the tensor itself, "logits" of a mapping, or the attribute .logits."""
    if isinstance(output, Tensor):
        return output
    return output.get("logits", output) if isinstance(output, Mapping) else getattr(output, "logits", output)


def described(batch: Batch) -> str:
    """Shape and type in a message."""
    if isinstance(batch, Tensor):
        return f"shape {tuple(batch.shape)}, {batch.dtype}".replace("torch.", "")
    listed = [f"{name} {tuple(values.shape)} {values.dtype}" for name, values in batch.items()]
    return ", ".join(listed).replace("torch.", "")


def kind_of(batch: Batch) -> str:
    """Shape and type of its rows; all floating-point types are one."""
    kinds = []
    for name, values in sorted(by_name(batch).items()):
        dtype = "floating" if values.is_floating_point() else str(values.dtype).removeprefix("torch.")
        kinds.append(f"{name} {tuple(values.shape[1:])} of {dtype} numbers".lstrip())
    return ", ".join(kinds)


def check_names(names: Collection[Any], where: str) -> None:
    """Refuse names that are no arguments of a module's forward, or that are the labels'."""
    bad = [name for name in names if not (isinstance(name, str) and name.isidentifier()) or name in LABELS]
    if bad or not names:
        found = ", ".join(map(repr, bad)) or "no names"
        expected = f"inputs by the names of the module's arguments; labels ({' or '.join(LABELS)}) are not among them"
        remedy = "rename or remove them; labels go beside the inputs, as in ({…}, labels)"
        raise wrong_shape("not names of inputs", where, found, expected, remedy)
