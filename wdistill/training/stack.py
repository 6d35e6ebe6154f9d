"""Small students as one model: each layer holds the parameters of all of them, and one step trains them side by side.

A step of a small student is mostly overhead: four of them as one take little longer than one. No layer mixes students, and
optimizers work element by element: up to rounding each is trained as if it were alone.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from wdistill.training import tensors
from wdistill.training.batch import Batch
from wdistill.training.models.text import TextBag
from wdistill.training.predict import device_of, forward
from wdistill.training.randomness import seed_generators

SMALL = 20_000  # parameters of all linear layers up to which arithmetic is the lesser part of a step on a processor

ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardtanh, nn.Identity)
FUNCTIONS = (
    *(operator.add, operator.sub, operator.mul, torch.relu, torch.tanh, torch.sigmoid),
    *(functional.relu, functional.leaky_relu, functional.elu, functional.gelu, functional.silu, functional.softplus),
    *(functional.tanh, functional.sigmoid),
)
METHODS = ("relu", "tanh", "sigmoid")
COUNTER = re.compile(r"optimizer/\d+/step")  # of steps, in a checkpoint


class Linears(nn.Module):
    """S linear layers; inputs (b, d) that all of them read, or (S, b, d) → (S, b, e)."""

    def __init__(self, layer: nn.Linear, count: int, shared: bool) -> None:
        super().__init__()
        self.count, self.axes = count, 2 if shared else 3
        self.weight = _copies(layer.weight, count)
        self.bias = None if layer.bias is None else _copies(layer.bias, count)

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != self.axes:
            raise ValueError(f"{inputs.ndim} axes instead of {self.axes}")
        rows, kernels = inputs.expand(self.count, *inputs.shape[-2:]), self.weight.transpose(1, 2)
        return torch.bmm(rows, kernels) if self.bias is None else torch.baddbmm(self.bias[:, None], rows, kernels)


class BatchNorms(nn.Module):
    """S batch norms of vectors; (S, b, d) → (S, b, d)."""

    running_mean: Tensor  # (S, d)
    running_var: Tensor  # (S, d)
    num_batches_tracked: Tensor

    def __init__(self, layer: nn.BatchNorm1d, count: int, shared: bool) -> None:
        super().__init__()
        if shared or layer.momentum is None or not (layer.affine and layer.track_running_stats):
            raise ValueError("a batch norm of inputs, or one without running averages or without parameters")
        self.eps, self.momentum = layer.eps, layer.momentum
        self.weight, self.bias = _copies(layer.weight, count), _copies(layer.bias, count)
        for name in ("running_mean", "running_var"):
            self.register_buffer(name, _copies(layer.get_buffer(name), count).detach())
        self.register_buffer("num_batches_tracked", layer.get_buffer("num_batches_tracked").clone())

    def forward(self, inputs: Tensor) -> Tensor:
        count, rows, size = inputs.shape
        if self.training:
            self.num_batches_tracked.add_(1)
        means, variances = self.running_mean.view(-1), self.running_var.view(-1)
        scales, shifts = self.weight.view(-1), self.bias.view(-1)
        side_by_side = inputs.transpose(0, 1).reshape(rows, count * size)
        normed = functional.batch_norm(
            side_by_side, means, variances, scales, shifts, self.training, self.momentum, self.eps
        )
        return normed.view(rows, count, size).transpose(0, 1)


class SharedDropout(nn.Module):
    """Dropout of (S, b, d), the same for all students, as it is where each is trained alone."""

    def __init__(self, layer: nn.Dropout, count: int, shared: bool) -> None:
        super().__init__()
        self.p = layer.p

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * functional.dropout(torch.ones_like(inputs[0]), self.p) if self.training else inputs


class TextBags(TextBag):
    """S bags of words as one whose classes are those of all; rows (b, L) → (S, b, K)."""

    def __init__(self, bag: TextBag, count: int, shared: bool) -> None:
        super().__init__(**bag.arguments)
        self.weight, self.bias = _copies(bag.weight, count), _copies(bag.bias, count)
        self.idf, self.places = bag.idf, bag.places

    def forward(self, rows: Tensor) -> Tensor:
        count, columns, classes = self.weight.shape
        side_by_side = self.weight.transpose(0, 1).reshape(columns, count * classes)
        return self.sums(rows, side_by_side).view(-1, count, classes).transpose(0, 1) + self.bias[:, None]


LAYERS: dict[type[nn.Module], Callable[[Any, int, bool], nn.Module]] = {
    nn.Linear: Linears,
    nn.BatchNorm1d: BatchNorms,
    nn.Dropout: SharedDropout,
    TextBag: TextBags,
}


@dataclass(frozen=True, eq=False)
class Alone:
    """One student, with the interface of several."""

    model: nn.Module

    def __len__(self) -> int:
        return 1

    def split(self, named: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        return [dict(named)]

    def join(self, parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        return dict(parts[0])

    def student(self, number: int) -> nn.Module:
        return self.model


@dataclass(frozen=True, eq=False)
class Stack:
    """Several students of one shape."""

    model: nn.Module  # inputs (b, …) → logits (S, b, K); tensors have the student's names, and the students first
    one: nn.Module  # a student, to hold the parameters of any of them
    count: int
    shared: frozenset[str]  # names of buffers that all students have in common, such as means of the inputs

    def __len__(self) -> int:
        return self.count

    def split(self, named: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """The tensors of every student, of the model or of a checkpoint."""
        return [
            {name: value if self._is_shared(name) else value[s] for name, value in named.items()} for s in range(self.count)
        ]

    def join(self, parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The inverse of `split`."""
        return {
            name: value if self._is_shared(name) else torch.stack([part[name] for part in parts])
            for name, value in parts[0].items()
        }

    def student(self, number: int) -> nn.Module:
        """That student by itself as it is now, until the next call."""
        tensors.load_parameters(self.one, self.split(tensors.parameters(self.model))[number], "student")
        return self.one

    def _is_shared(self, name: str) -> bool:
        return name.removeprefix("model/") in self.shared or COUNTER.fullmatch(name) is not None


Students = Alone | Stack


def stack_of(student: nn.Module, count: int, batch: Batch) -> Stack | None:
    """So many copies of a student; None where they would not pay, or not give its logits for a batch, as it is the rule.

    Bags of words pay, and linear layers with up to SMALL parameters, with dropout, batch norm and activations between them.
    """
    layers = _layers_of(student)
    if layers is None or _multiplied(student) > SMALL:
        return None
    whole = nn.Sequential(copy.deepcopy(student))
    try:
        for name, shared in layers.items():
            layer = whole.get_submodule(name)
            whole.set_submodule(name, LAYERS[type(layer)](layer, count, shared))
        same = all(_logits_agree(student, whole[0], batch, training) for training in (False, True))
    except Exception:  # whatever a module of the user's raises that was not made for this: it is trained alone
        return None
    one, several = tensors.parameters(student), tensors.parameters(whole[0])
    shared_names = frozenset(name for name, value in several.items() if value.shape == one[name].shape)
    return Stack(whole[0], copy.deepcopy(student), count, shared_names) if same else None


def _multiplied(student: nn.Module) -> int:
    return sum(layer.weight.numel() for layer in student.modules() if isinstance(layer, nn.Linear))


def _logits_agree(student: nn.Module, stacked: nn.Module, batch: Batch, training: bool) -> bool:
    """Whether copies of both, in this mode, give the same logits for a batch up to rounding."""
    found = []
    for model in (student, stacked):
        seed_generators(0, torch.device("cpu"))
        with torch.no_grad():
            found.append(forward(copy.deepcopy(model).train(training), batch, device_of(model), "float32"))
    return found[1].ndim == 3 and torch.allclose(found[1], found[0].expand_as(found[1]), rtol=1e-4, atol=1e-5)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LAYERS or super().is_leaf_module(m, module_qualified_name)


def _layers_of(student: nn.Module) -> dict[str, bool] | None:
    """The layers to be stacked, by their names in nn.Sequential(student), and whether they read what all students share.

    None where anything else is done with what differs between students, or where other layers have parameters.
    """
    whole, layers, several = nn.Sequential(copy.deepcopy(student)), dict[str, bool](), set[fx.Node]()
    if not _is_plain(student):
        return None
    try:
        graph = _Tracer().trace(whole)
    except Exception:  # what depends on the values of its inputs cannot be traced
        return None
    for node in graph.nodes:
        differs = bool(several & set(node.all_input_nodes))
        kind = type(whole.get_submodule(node.target)) if node.op == "call_module" else None
        if kind in LAYERS and (differs or kind is not nn.Dropout):
            if node.target in layers:
                return None
            layers[node.target] = not differs
            several.add(node)
        elif differs and node.op != "output":
            if not _is_elementwise(whole, node, several):
                return None
            several.add(node)
    inside = sum(_size(whole.get_submodule(name)) for name in layers)
    (returned,) = (node.args[0] for node in graph.nodes if node.op == "output")
    return layers if returned in several and inside == _size(student) else None


def _is_plain(student: nn.Module) -> bool:
    """Whether all parameters are trained, none is shared by layers, and no hook sees or changes what layers do."""
    parameters = [each for _, each in student.named_parameters(remove_duplicate=False)]
    hooked = any(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks for layer in student.modules())
    trained = all(each.requires_grad and each.dtype == torch.float32 for each in parameters)
    return trained and len({id(each) for each in parameters}) == len(parameters) and not hooked


def _is_elementwise(whole: nn.Module, node: fx.Node, several: set[fx.Node]) -> bool:
    """Whether an operation treats every number alike, and all that it reads differs between students."""
    if not several >= set(node.all_input_nodes):
        return False
    if node.op == "call_module":
        return type(whole.get_submodule(str(node.target))) in ACTIVATIONS
    return node.target in (FUNCTIONS if node.op == "call_function" else METHODS)


def _size(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def _copies(values: Tensor, count: int) -> nn.Parameter:
    """(S, …)"""
    return nn.Parameter(values.detach().expand(count, *values.shape).clone())
