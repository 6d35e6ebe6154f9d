"""Weights from a network in training, for every trainer of PyTorch: the student reads gold and pool, and the rule weighs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wdistill.adapters.extras import brought_by
from wdistill.core import checks
from wdistill.core.errors import bad_value, wrong_shape
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import probabilities
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import as_rule

with brought_by("torch", __name__):
    import torch
    from torch import nn
    from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, default_collate

    from wdistill.adapters.torch import WithTargets, first_of, inputs_of
    from wdistill.training.batch import logits_of
    from wdistill.training.predict import GRID, device_of


@dataclass(frozen=True, eq=False)
class Gold:
    """The gold rows: weights are estimated from them."""

    inputs: Any  # a tensor, tensors by name, a map-style Dataset, or a DataLoader that keeps the order
    labels: Any  # (m,) the truth: class numbers; in a Refresh also names of the table's classes
    teacher: Any  # (m, K) the teacher's probabilities


@dataclass(frozen=True, eq=False)
class Pool:
    """The rows to weigh."""

    inputs: Any  # as those of the gold rows
    teacher: Any  # (n, K) the teacher's probabilities


def weights_of(rule: Any, net: nn.Module, gold: Gold, pool: Pool) -> Floats:
    """Weights (n,) of the pool's rows by a rule such as `wdistill.debiased`, with `net` as it is now for the student.

    It reads in eval mode without gradients, on its own device and in its own type; afterwards each of its modules is in
    the mode it was in.
    """
    student = [predict(net, inputs) for inputs in (gold.inputs, pool.inputs)]
    weights: Floats = as_rule(rule)(Evidence(gold.labels, gold.teacher, student[0], pool.teacher, student[1]))
    return weights


@dataclass(frozen=True, eq=False)
class Refresh:
    """Weights of a Dataset, estimated again from the student: `refresh(net)`, between epochs."""

    data: WithTargets
    rule: Any
    gold: Gold
    pool: Pool
    ids: Any = None  # of the pool's rows; None: they are the items of `data`, in order

    def __post_init__(self) -> None:
        rows = self.data.rows if self.ids is None else self.data.table.rows(self.ids)
        predicted = len(self.pool.teacher)
        if self.ids is None and predicted != len(rows):
            what, found = "arrays differ in their number of rows", f"{predicted:,} and {len(rows):,} rows"
            remedy = "pass ids=, those of the pool's rows, where `data` has others too, such as gold rows"
            raise wrong_shape(what, "pool.teacher and data", found, "one row for each item of the data", remedy)
        checks.same_length({"pool.teacher": predicted, "ids": len(rows)})
        table = self.data.table
        labels = checks.labels(self.gold.labels, table.targets.shape[1], "gold.labels", table.classes)
        object.__setattr__(self, "gold", replace(self.gold, labels=labels))

    def __call__(self, net: nn.Module) -> None:
        self.data.set_weights(weights_of(self.rule, net, self.gold, self.pool), self.ids)


def predict(net: nn.Module, inputs: Any) -> Floats:
    """Probabilities (n, K) of a network that returns logits, for inputs as those of `Gold`."""
    net = net.module if isinstance(net, nn.parallel.DistributedDataParallel) else net
    device, modes = device_of(net), [(module, module.training) for module in net.modules()]
    dtype = next((each.dtype for each in net.parameters() if each.is_floating_point()), torch.float32)
    net.eval()
    try:
        with torch.no_grad():
            parts = [_logits(net, _moved(batch, device, dtype)) for batch in _batches(inputs)]
    finally:
        for module, training in modes:
            module.training = training
    return probabilities(checks.matrix(torch.cat(parts), "logits of the network"), "logits")


def _batches(inputs: Any) -> Iterator[Any]:
    """Inputs in batches, in the order of the rows."""
    if isinstance(inputs, DataLoader):
        batches = inputs.batch_sampler
        ordered = isinstance(getattr(batches, "sampler", inputs.sampler), SequentialSampler)
        if not ordered or type(batches) not in (BatchSampler, type(None)):
            found, expected = "a DataLoader that shuffles, or with a sampler of its own", "rows in order"
            raise bad_value("whose weights are these?", "inputs", found, expected, "make one with shuffle=False")
        loader: Iterable[Any] = inputs
    elif isinstance(inputs, Mapping):
        tensors = {name: torch.as_tensor(values) for name, values in inputs_of(inputs).items()}
        rows = len(next(iter(tensors.values())))
        loader = ({name: v[first : first + GRID] for name, v in tensors.items()} for first in range(0, rows, GRID))
    elif isinstance(inputs, Dataset) or hasattr(inputs, "__getitems__"):
        loader = DataLoader(inputs.dataset if isinstance(inputs, WithTargets) else inputs, GRID, collate_fn=_collate)
    else:
        tensor = torch.as_tensor(np.array(inputs) if hasattr(inputs, "to_numpy") else inputs)  # frames forbid writing
        loader = (tensor[first : first + GRID] for first in range(0, len(tensor), GRID))
    return (inputs_of(batch) for batch in loader)


def _collate(items: list[Any]) -> Any:
    """One batch of the inputs of items, lists of numbers as tensors."""
    inputs = [inputs_of(item) if isinstance(item, Mapping) else first_of(item) for item in items]
    if isinstance(inputs[0], Mapping):
        return {name: torch.stack([torch.as_tensor(item[name]) for item in inputs]) for name in inputs[0]}
    return default_collate(inputs)


def _moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A batch on the network's device; numbers with fractions in its type."""
    if isinstance(batch, Mapping):
        return {name: _moved(values, device, dtype) for name, values in batch.items()}
    return batch.to(device, dtype if batch.is_floating_point() else None)


def _logits(net: nn.Module, inputs: Any) -> torch.Tensor:
    """Logits (b, K) as float32 on the CPU; inputs by name are arguments by name."""
    output: torch.Tensor = logits_of(net(**inputs) if isinstance(inputs, Mapping) else net(inputs))
    return output.float().cpu()
