"""Parameters and optimizer states as safetensors, and back; nothing is pickled, and nothing loads in part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from wdistill.errors import CheckpointError, ConfigError, NumericalError

HIDDEN = "hidden:"  # before the names of buffers that are not part of a state dict


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors by name; tensors that share memory are written apart."""
    return serialise({name: each.detach().cpu().contiguous().clone() for name, each in sorted(tensors.items())})


def from_bytes(content: bytes, where: str) -> dict[str, Tensor]:
    try:
        return parse(content)
    except Exception as error:
        raise CheckpointError(
            "not a safetensors file", where=where, found=f"{type(error).__name__}: {error}", expected="tensors by name"
        ) from None


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers, on the CPU; buffers that a state dict leaves out are marked as hidden."""
    state = model.state_dict()
    found = state | {HIDDEN + name: each for name, each in model.named_buffers() if name not in state}
    return {name: each.detach().to("cpu", copy=True) for name, each in found.items()}


def check_finite(tensors: Mapping[str, Tensor], who: str) -> None:
    """Refuse to keep what is not a number."""
    bad = [name for name, each in tensors.items() if each.is_floating_point() and not torch.isfinite(each).all()]
    if bad:
        raise NumericalError(
            f"parameters of {who} are not finite",
            where=who,
            found=f"NaN or infinity in {', '.join(bad[:5])}",
            expected="finite numbers",
            remedy="the last good state is kept; start a new run with a smaller rate or precision float32",
        )


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], who: str) -> None:
    """Set all parameters and buffers; names and shapes must be those of the model, each and every one."""
    hidden, tensors = under(HIDDEN, tensors), {name: each for name, each in tensors.items() if not name.startswith(HIDDEN)}
    found = misfits(model.state_dict(), tensors)
    if found:
        raise ConfigError(
            f"the parameters are not those of {who}",
            where=who,
            found=found,
            expected="the same names and shapes as in the module",
            remedy="pass the module that the run was begun with, or begin a new run",
        )
    model.load_state_dict(tensors)
    for name, each in model.named_buffers():
        if name in hidden and hidden[name].shape == each.shape:  # a cache that grows as it is used may have another
            each.copy_(hidden[name])


def misfits(wanted: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> str:
    """Where a stored state has other names or shapes than a network's, in words; nothing where it fits."""
    shapes = [
        f"{name} {tuple(stored[name].shape)} instead of {tuple(each.shape)}"
        for name, each in wanted.items()
        if name in stored and stored[name].shape != each.shape
    ]
    missing, extra = [name for name in wanted if name not in stored], sorted(name for name in stored if name not in wanted)
    kinds = [("not in the file", missing), ("not in the network", extra), ("of another shape", shapes)]
    return "; ".join(f"{what}: {listed(names)}" for what, names in kinds if names)


def listed(names: list[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by parameter number and name; all else in it follows from the recipe."""
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
    """The tensors whose name begins with the prefix, without it."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: each for name, each in tensors.items()}
