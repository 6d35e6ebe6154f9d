"""Features: what layers inside any module put out, by their dotted names, while the module reads a batch."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from wdistill.errors import ConfigError
from wdistill.training.inputs import Inputs
from wdistill.training.predicting import glance
from wdistill.training.tensors import listed

Features = Mapping[str, Tensor]  # (b, c, …) by layer: channels are dimension 1


@contextmanager
def tapped(model: nn.Module, layers: Sequence[str], who: str) -> Iterator[Callable[[], Features]]:
    """While the block runs: a function that gives what the layers put out in the newest forward pass of the model.

    Of a layer that is called several times in a pass it is the last output. Outputs are copies, since a layer that comes
    after may work in place.
    """
    modules = {name: each for name, each in model.named_modules(remove_duplicate=False) if name}
    for name in layers:
        if name not in modules:
            raise _unknown(name, list(modules), model, who)
    seen: dict[str, Any] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, inputs: Any, output: Any) -> None:
            seen[name] = output.clone() if isinstance(output, Tensor) else output

        return hook

    def features() -> Features:
        for name in layers:
            _check(name, seen, who)
        return {name: seen[name] for name in layers}

    handles = [model.register_forward_pre_hook(lambda *_: seen.clear())]
    handles += [modules[name].register_forward_hook(keep(name)) for name in layers]
    try:
        yield features
    finally:
        for handle in handles:
            handle.remove()


def shapes(
    model: nn.Module, layers: Sequence[str], who: str, inputs: Inputs, precision: str = "float32"
) -> dict[str, tuple[int, ...]]:
    """The shape (c, …) of one row's features, by layer; found by reading two rows."""
    with tapped(model, layers, who) as features:
        glance(model, who, inputs, precision)
        return {name: tuple(each.shape[1:]) for name, each in features().items()}


def _check(name: str, seen: Mapping[str, Any], who: str) -> None:
    """Refuse a layer that was not called, or whose output is no (b, c, …)."""
    if name not in seen:
        raise ConfigError(
            f"a layer of the {who} is not called",
            where=f"layer {name}",
            found="a forward pass that goes round it",
            expected="a layer that every forward pass calls",
            remedy="name a layer that is called as a module, such as one inside of it",
        )
    output = seen[name]
    if not isinstance(output, Tensor) or output.ndim < 2 or not output.is_floating_point():
        shape = f"a tensor {tuple(output.shape)} of {output.dtype}" if isinstance(output, Tensor) else None
        raise ConfigError(
            f"a layer of the {who} puts out no features",
            where=f"layer {name}",
            found=shape or f"a {type(output).__name__}",
            expected="one tensor (rows, channels, …) of floating numbers",
            remedy="name a layer inside of it, or one after it, that returns such a tensor",
        )


def _unknown(name: str, known: list[str], model: nn.Module, who: str) -> ConfigError:
    close = difflib.get_close_matches(name, known, 3)
    return ConfigError(
        f"the {who} has no such layer",
        where=f"layer {name}",
        found=repr(name),
        expected=f"the dotted name of a module inside {type(model).__name__}: {listed(known) or 'it has none'}",
        remedy=f"did you mean {' or '.join(close)}?" if close else "print the module to see the names of its layers",
    )
