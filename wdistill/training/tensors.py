"""Parameters and optimizer states to safetensors and back; nothing is pickled, and everything loads or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from wdistill.core.errors import CheckpointError, NumericalError, bad_value

HIDDEN = "hidden:"  # prefix of the names of buffers that are not persistent, so not in a state dict


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors by name; tensors that share memory are written separately."""
    return serialise({name: value.detach().cpu().contiguous().clone() for name, value in sorted(tensors.items())})


def from_bytes(content: bytes, where: str) -> dict[str, Tensor]:
    try:
        return parse(content)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        what, remedy = "not a safetensors file", "restore it from a copy, or remove its folder: the run then makes it anew"
        raise CheckpointError(what, where=where, found=found, expected="tensors by name", remedy=remedy) from None


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers, on the CPU; buffers that are not in the state dict have the prefix HIDDEN."""
    state = model.state_dict()
    state |= {HIDDEN + name: buffer for name, buffer in model.named_buffers() if name not in state}
    return {name: value.detach().to("cpu", copy=True) for name, value in state.items()}


def check_finite(tensors: Mapping[str, Tensor], model: str) -> None:
    """Refuse to keep NaN or infinity; `model` is its name."""
    bad = [name for name, value in tensors.items() if value.is_floating_point() and not torch.isfinite(value).all()]
    if bad:
        what, found = f"parameters of {model} are not finite", f"NaN or infinity in {', '.join(bad[:5])}"
        remedy = "the last good state is kept; start a new run with a smaller rate or precision float32"
        raise NumericalError(what, where=model, found=found, expected="finite numbers", remedy=remedy)


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], name: str) -> None:
    """Set all parameters and buffers of a model, called `name`; the names and shapes of tensors must be the model's."""
    hidden = under(HIDDEN, tensors)
    state = {key: value for key, value in tensors.items() if not key.startswith(HIDDEN)}
    differences = compare_states(model.state_dict(), state)
    if differences:
        what, expected = f"the parameters are not those of {name}", "the same names and shapes as in the module"
        remedy = "pass the module that the run was started with, or start a new run"
        raise bad_value(what, name, differences, expected, remedy)
    model.load_state_dict(state)
    for key, buffer in model.named_buffers():
        if key in hidden and hidden[key].shape == buffer.shape:  # a cache that grows with use may have another shape
            buffer.copy_(hidden[key])


def compare_states(wanted: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> str:
    """In words, where a stored state dict has other names or shapes than a network's; empty if it fits."""
    shapes = [
        f"{name} {tuple(stored[name].shape)} instead of {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in stored and stored[name].shape != value.shape
    ]
    missing, extra = [name for name in wanted if name not in stored], sorted(name for name in stored if name not in wanted)
    kinds = [("not in the file", missing), ("not in the network", extra), ("of another shape", shapes)]
    return "; ".join(f"{what}: {listed(names)}" for what, names in kinds if names)


def listed(names: list[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by parameter number and name; everything else in it follows from the recipe."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}/{name}": value for number, slots in state.items() for name, value in slots.items() if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for path, value in tensors.items():
        number, _, name = path.partition("/")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose name starts with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in tensors.items()}
