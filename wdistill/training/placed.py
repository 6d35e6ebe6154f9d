"""Where a model computes: on one device, or in shards on those of all processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from wdistill.core import checks
from wdistill.core.errors import bad_value
from wdistill.training.ranks import ranks


@contextmanager
def placed(model: nn.Module, device: str | torch.device, sharded: bool) -> Iterator[nn.Module]:
    """While the block runs: the model, which moves to a device, or shards of it on all processes, if there are several."""
    if not sharded or ranks().size == 1:
        yield model.to(device)
        return
    from wdistill.training.sharded import in_shards

    with in_shards(model, torch.device(device)) as shards:
        yield shards


def check_shards(student: nn.Module) -> None:
    """Raise before any training where a student cannot be in shards; warn where that would help little."""
    names: dict[int, list[str]] = {}
    for name, parameter in student.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        if not parameter.ndim:
            expected, remedy = "parameters with an axis", "make it a parameter of shape (1,), or leave sharded out"
            raise bad_value("a number cannot be in shards", "student", name, expected, remedy)
    shared = next((each for each in names.values() if len(each) > 1), None)
    if shared is not None:
        what, found = "layers that share a parameter cannot be in shards", ", ".join(shared)
        raise bad_value(what, "student", found, "a parameter of its own in every layer", "leave sharded out")
    if not blocks_of(student):
        checks.warn(
            f"{type(student).__name__} has no layers in an nn.Sequential or nn.ModuleList: each process gathers all of its "
            "parameters at once in every pass"
        )


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The layers whose parameters are gathered by themselves, inner ones first: those in lists and sequences."""
    lists = (nn.ModuleList, nn.Sequential)
    inside = [layer for each in model.modules() if isinstance(each, lists) for layer in each.children()]
    with_parameters = [layer for layer in inside if not isinstance(layer, lists) and any(True for _ in layer.parameters())]
    return list(dict.fromkeys(reversed(with_parameters)))
