"""Two small reference networks, and how any network, the paper's among them, is named on the command line."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wdistill.errors import ConfigError
from wdistill.training.mobilenet import MobileNet
from wdistill.training.resnet import CifarResNet, ResNet

EXAMPLES = {
    "mlp": "mlp:inputs=64,classes=10,hidden=32x32",
    "cnn": "cnn:channels=1,classes=10,width=8",
    "mobilenet": "mobilenet:channels=3,classes=10,width=0.5",
    "resnet_cifar": "resnet_cifar:channels=3,classes=10,depth=56",
    "resnet": "resnet:channels=3,classes=1000,depth=50",
}


class MLP(nn.Module):
    """Linear layers with ReLU between; inputs (b, …) of `inputs` numbers each → logits (b, classes)."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (128,)) -> None:
        super().__init__()
        self.arguments = {"inputs": inputs, "classes": classes, "hidden": list(hidden)}
        sizes = [inputs, *hidden, classes]
        linears = [nn.Linear(before, after) for before, after in pairwise(sizes)]
        layers: list[nn.Module] = [nn.Flatten()]
        for linear in linears[:-1]:
            layers += [linear, nn.ReLU()]
        self.layers = nn.Sequential(*layers, linears[-1])

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layers(inputs)
        return logits


class CNN(nn.Module):
    """Three convolutions, halving twice, and a mean over pixels; images (b, channels, ≥ 4, ≥ 4) → logits (b, classes).

    Maps have their channels last in memory, which is faster on a processor.
    """

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.arguments = {"channels": channels, "classes": classes, "width": width}
        self.layers = nn.Sequential(
            ChannelsLast(channels, width, 3, padding=1, bias=False),
            *_normalised(width),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            *_normalised(2 * width),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False),
            *_normalised(4 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, classes),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layers(inputs)
        return logits


class ChannelsLast(nn.Conv2d):
    """A convolution whose maps have their channels last in memory; convolutions after it keep that order."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).contiguous(memory_format=torch.channels_last)


def _normalised(width: int) -> tuple[nn.Module, ...]:
    """What follows a convolution, whose bias is that of the normalisation."""
    return nn.BatchNorm2d(width), nn.ReLU()


NETWORKS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "cnn": CNN,
    "mobilenet": MobileNet,
    "resnet_cifar": CifarResNet,
    "resnet": ResNet,
}


def build(spec: str) -> nn.Module:
    """The network that a text names: "package.module:function" (called without arguments), or a reference network."""
    name, _, rest = spec.partition(":")
    if name in NETWORKS and ("=" in rest or not rest):
        return _network(spec, name, _arguments(spec, name, rest))
    if not rest or "=" in rest:
        close = difflib.get_close_matches(name, NETWORKS, 1)
        raise ConfigError(
            "not the name of a network",
            where=spec,
            found=repr(spec),
            expected=" or ".join(["package.module:function", *EXAMPLES.values()]),
            remedy=f"did you mean {close[0]}?" if close else "name a function that returns a network",
        )
    with _current_folder_importable():
        return _made(spec, _function(spec, name, rest))


def _network(spec: str, name: str, arguments: dict[str, Any]) -> nn.Module:
    """A reference network; what it refuses is said of the spec."""
    try:
        return NETWORKS[name](**arguments)
    except ConfigError as error:
        raise ConfigError(error.what, where=spec, found=error.found, expected=error.expected, remedy=error.remedy) from None


def _arguments(spec: str, network: str, text: str) -> dict[str, Any]:
    """The arguments of a reference network: whole numbers, "32x32" where several are wanted, 0.5 where a part may be."""
    known = inspect.signature(NETWORKS[network], eval_str=True).parameters
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known or name in found:
            close = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                "an argument that stands twice" if name in found else "unknown argument of a network",
                where=spec,
                found=repr(name),
                expected=", ".join(known),
                remedy=f"did you mean {close[0]}?" if close and name not in found else "leave it out",
            )
        found[name] = _value(spec, network, known[name], value)
    missing = [each.name for each in known.values() if each.default is each.empty and each.name not in found]
    if missing:
        raise ConfigError(
            "arguments are missing",
            where=spec,
            found=", ".join(found) or "none",
            expected=", ".join(f"{name}=…" for name in missing) + " too",
            remedy=f"write {EXAMPLES[network]}, for example",
        )
    return found


def _value(spec: str, network: str, argument: inspect.Parameter, text: str) -> Any:
    """A number above 0 as the argument wants it: with decimals, whole, or several whole ones."""
    decimal, several = argument.annotation is float, argument.annotation not in (int, float)
    number = r"\d*\.?\d+" if decimal else r"\d+"
    texts = (text.split("x") if text else []) if several else [text]
    if not all(re.fullmatch(number, each, re.ASCII) and 0 < float(each) < 2**31 for each in texts):
        raise ConfigError(
            "not a size",
            where=spec,
            found=f"{argument.name}={text}",
            expected="a number above 0" if decimal else "a whole number of at least 1; of hidden layers, such as 64x32",
            remedy=f"write {EXAMPLES[network]}, for example",
        )
    values = tuple(float(each) if decimal else int(each) for each in texts)
    return values if several else values[0]


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _function(spec: str, module_name: str, name: str) -> Any:
    """What `module_name` calls `name`."""
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        raise ConfigError(
            "no such module" if missing else "the module cannot be imported",
            where=spec,
            found=f"{type(error).__name__}: {error}",
            expected="a module that Python finds from the current folder or among the installed packages",
            remedy=f"write {module_name.removesuffix('.py').replace('/', '.')}:{name}, with no .py and dots for slashes"
            if module_name.endswith(".py") or "/" in module_name
            else "correct the name, or run from the folder that holds it"
            if missing
            else "mend the module; importing it alone shows where it fails",
        ) from error
    if not hasattr(module, name):
        close = difflib.get_close_matches(name, dir(module), 1)
        raise ConfigError(
            f"the module {module_name} has no such name",
            where=spec,
            found=repr(name),
            expected="a function that takes no arguments and returns a network",
            remedy=f"did you mean {close[0]}?" if close else "correct the name after the colon",
        )
    return getattr(module, name)


def _made(spec: str, function: Any) -> nn.Module:
    """The network that the user's function returns."""
    if not callable(function):
        raise ConfigError(
            "not a function",
            where=spec,
            found=type(function).__name__,
            expected="a function that takes no arguments and returns a network",
            remedy="wrap it: def make(): return …",
        )
    try:
        network = function()
    except Exception as error:
        raise ConfigError(
            "the function fails",
            where=spec,
            found=f"{type(error).__name__}: {error}",
            expected="a function that takes no arguments and returns a network",
            remedy="mend the function; calling it alone shows where it fails",
        ) from error
    if not isinstance(network, nn.Module):
        raise ConfigError(
            "the function returns no network",
            where=spec,
            found=_type_name(network),
            expected="a torch.nn.Module",
            remedy="return an instance, not the class" if isinstance(network, type) else "return the network",
        )
    return network


def _type_name(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
