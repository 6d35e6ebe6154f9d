"""Two small reference networks, and the networks that can be named on the command line."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from wdistill.core.errors import ConfigError, bad_value, not_one_of
from wdistill.core.named import current_folder_importable, named_object
from wdistill.training.models.mobilenet import MobileNet
from wdistill.training.models.resnet import CifarResNet, ResNet
from wdistill.training.models.text import TextBag

EXAMPLES = {
    "mlp": "mlp:inputs=64,classes=10,hidden=32x32",
    "cnn": "cnn:channels=1,classes=10,width=8",
    "mobilenet": "mobilenet:channels=3,classes=10,width=0.5",
    "resnet_cifar": "resnet_cifar:channels=3,classes=10,depth=56",
    "resnet": "resnet:channels=3,classes=1000,depth=50",
    "text": "text:classes=2",
    "table": "table:inputs=12,classes=2,hidden=64",
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


class TableMLP(MLP):
    """An MLP on columns of numbers, which it brings to mean 0 and standard deviation 1 itself."""

    mean: Tensor  # (inputs,)
    scale: Tensor  # (inputs,)

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (64,)) -> None:
        super().__init__(inputs, classes, hidden)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward((inputs - self.mean) / self.scale)


class CNN(nn.Module):
    """Three convolutions, two max poolings and a mean over pixels; images (b, channels, ≥ 4, ≥ 4) → logits (b, classes).

    Feature maps are in the channels-last memory format, which is faster on a CPU.
    """

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.arguments = {"channels": channels, "classes": classes, "width": width}
        self.layers = nn.Sequential(
            ChannelsLast(channels, width, 3, padding=1, bias=False),
            *_norm_relu(width),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            *_norm_relu(2 * width),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False),
            *_norm_relu(4 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, classes),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layers(inputs)
        return logits


class ChannelsLast(nn.Conv2d):
    """A convolution with output in the channels-last memory format, which the layers after it keep."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).contiguous(memory_format=torch.channels_last)


def _norm_relu(width: int) -> tuple[nn.Module, ...]:
    """Batch norm and ReLU after a convolution without bias."""
    return nn.BatchNorm2d(width), nn.ReLU()


NETWORKS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "cnn": CNN,
    "mobilenet": MobileNet,
    "resnet_cifar": CifarResNet,
    "resnet": ResNet,
    "text": TextBag,
    "table": TableMLP,
}


class NamedNetwork:
    """A network by its name; calling it builds one."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self) -> nn.Module:
        return build(self.source)


def build(spec: str) -> nn.Module:
    """The network of a spec: "package.module:function" (called without arguments), or "name:argument=value,…"."""
    name, _, rest = spec.partition(":")
    if name in NETWORKS and ("=" in rest or not rest):
        return _reference(spec, name, _arguments(spec, name, rest))
    if not rest or "=" in rest:
        close = difflib.get_close_matches(name, NETWORKS, 1)
        expected = " or ".join(["package.module:function", *EXAMPLES.values()])
        remedy = f"did you mean {close[0]}?" if close else "name a function that returns a network"
        raise bad_value("not the name of a network", spec, repr(spec), expected, remedy)
    with current_folder_importable():
        return _call(spec, named_object(spec, name, rest, EXPECTED))


def build_with(spec: str, **arguments: Any) -> nn.Module:
    """The reference network of a spec, with arguments that it does not name."""
    name, _, rest = spec.partition(":")
    given = ",".join([*(f"{key}={value}" for key, value in arguments.items()), *filter(None, [rest])])
    return build(f"{name}:{given}")


def _reference(spec: str, name: str, arguments: dict[str, Any]) -> nn.Module:
    """A reference network; its errors name the spec."""
    try:
        return NETWORKS[name](**arguments)
    except ConfigError as error:
        raise bad_value(error.what, spec, error.found, error.expected, error.remedy) from None


def _arguments(spec: str, network: str, text: str) -> dict[str, Any]:
    """The arguments of a reference network, from "name=value,…"."""
    parameters = inspect.signature(NETWORKS[network], eval_str=True).parameters
    arguments: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        if name in arguments:
            raise bad_value("an argument is given twice", spec, repr(name), ", ".join(parameters), "leave it out")
        if name not in parameters:
            raise not_one_of("unknown argument of a network", spec, name, parameters, "leave it out")
        arguments[name] = _value(spec, network, parameters[name], value)
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    missing = [f"{name}=…" for name in required if name not in arguments]
    if missing:
        found, expected = ", ".join(arguments) or "none", f"{', '.join(missing)} too"
        raise bad_value("arguments are missing", spec, found, expected, f"write {EXAMPLES[network]}, for example")
    return arguments


def _value(spec: str, network: str, argument: inspect.Parameter, text: str) -> Any:
    """A number above 0 of the argument's type; for a sequence, integers such as 64x32."""
    decimal, several = argument.annotation is float, argument.annotation not in (int, float)
    pattern = r"\d*\.?\d+" if decimal else r"\d+"
    numbers = (text.split("x") if text else []) if several else [text]
    if not all(re.fullmatch(pattern, number, re.ASCII) and 0 < float(number) < 2**31 for number in numbers):
        expected = "a number above 0" if decimal else "a whole number of at least 1; of hidden layers, such as 64x32"
        remedy = f"write {EXAMPLES[network]}, for example"
        raise bad_value("not a size", spec, f"{argument.name}={text}", expected, remedy)
    values = tuple(float(number) if decimal else int(number) for number in numbers)
    return values if several else values[0]


EXPECTED = "a function that takes no arguments and returns a network"


def _call(spec: str, function: Any) -> nn.Module:
    """The network that the user's function returns."""
    if not callable(function):
        raise bad_value("not a function", spec, type(function).__name__, EXPECTED, "wrap it: def make(): return …")
    try:
        network = function()
    except Exception as error:
        found, remedy = f"{type(error).__name__}: {error}", "fix the function; calling it alone shows where it fails"
        raise bad_value("the function fails", spec, found, EXPECTED, remedy) from error
    if isinstance(network, type):
        what, remedy = "the function returns no network", "return an instance, not the class"
        raise bad_value(what, spec, f"the class {network.__name__}", "a torch.nn.Module", remedy)
    if not isinstance(network, nn.Module):
        what, found = "the function returns no network", type(network).__name__
        raise bad_value(what, spec, found, "a torch.nn.Module", "return the network")
    return network
