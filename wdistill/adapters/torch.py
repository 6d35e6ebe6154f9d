"""For whoever writes a training loop in PyTorch: targets and weights, joined by id inside a Dataset."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np

from wdistill.adapters.extras import brought_by
from wdistill.core import checks
from wdistill.core.errors import bad_input, wrong_shape, wrong_type
from wdistill.weights.confidence import Floats

with brought_by("torch", __name__):
    import torch
    from torch import Tensor
    from torch.utils.data import Dataset

    from wdistill.adapters.target_table import TARGETS, WEIGHT, TargetTable, check_table
    from wdistill.training.batch import LABELS

NOT_INPUTS = (*LABELS, "label_ids", TARGETS, WEIGHT, "id")  # names in an item that no network reads


class WithTargets(Dataset[Any]):
    """A map-style Dataset with the targets and weights of a table, joined by id: `ids` are those of its items, in order.

    Items x, (x,) or (x, label) become (x, targets (K,), weight); mappings get `targets` and `weight`, and lose `id`. The
    weights are in shared memory: workers of a DataLoader see `set_weights` too, but for batches they have loaded already.
    """

    def __init__(self, dataset: Any, table: TargetTable, ids: Any) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            expected = "a Dataset with items by row, and a length"
            raise wrong_type("not a map-style Dataset", "dataset", dataset, expected, "store its rows, or list them")
        if not isinstance(dataset, Dataset) and (hasattr(dataset, "iloc") or hasattr(dataset, "columns")):
            expected, remedy = "items by row number; those of a frame are by name", "pass its values: frame.to_numpy()"
            raise wrong_type("a frame, not rows", "dataset", dataset, expected, remedy)
        self.dataset, self.table = dataset, check_table(table)
        self.rows = table.rows(ids)  # where each item stands in the table
        checks.same_length({"dataset": len(dataset), "ids": len(self.rows)})
        self.targets, self.weight = _shared(table.targets), _shared(table.weight)  # float32, as a loss takes them

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Any:
        return self._joined(self.dataset[row], row)

    def __getitems__(self, rows: list[int]) -> list[Any]:
        """Several items, read at once where the Dataset can do so; torch's DataLoader asks for this."""
        several = getattr(self.dataset, "__getitems__", lambda rows: [self.dataset[row] for row in rows])
        return [self._joined(item, row) for item, row in zip(several(rows), rows, strict=True)]

    def set_weights(self, weight: Any, ids: Any = None) -> None:
        """New weights (n,) for the rows of these ids; without ids, for every item in order."""
        rows = self.rows if ids is None else self.table.rows(ids)
        values = checks.scores(weight, WEIGHT)
        checks.same_length({"ids": len(rows), WEIGHT: len(values)})
        if (values < 0).any():
            found, remedy = f"a least weight of {values.min():.4g}", "leave rows out by weight 0"
            raise bad_input("weights below 0", WEIGHT, found, "0 or more", remedy, np.flatnonzero(values < 0))
        self.weight[torch.from_numpy(rows)] = torch.from_numpy(values.astype(np.float32))

    def _joined(self, item: Any, row: int) -> Any:
        place = self.rows[row]
        targets, weight = self.targets[place], self.weight[place]
        if not isinstance(item, Mapping):
            return first_of(item), targets, weight
        both = [name for name in (TARGETS, WEIGHT) if name in item]
        if both:
            found, remedy = f"an item with {' and '.join(both)}", "remove them from the Dataset"
            raise bad_input("two answers to what to teach", "dataset", found, "those of the table alone", remedy)
        others = {name: value for name, value in item.items() if name != "id"}
        return {**others, TARGETS: targets.numpy(), WEIGHT: weight.numpy()[()]}  # collators of tokenizers want no tensors


def apart(batch: Any) -> tuple[Any, Tensor, Tensor]:
    """A batch of a `WithTargets` as inputs, targets (b, K) and weights (b,)."""
    if isinstance(batch, Mapping) and TARGETS in batch and WEIGHT in batch:
        return inputs_of(batch), batch[TARGETS], batch[WEIGHT]
    if isinstance(batch, tuple | list) and len(batch) == 3:
        return batch[0], batch[1], batch[2]
    found = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else f"{type(batch).__name__} of {len(batch)}"
    expected, remedy = "inputs, targets and weight", "make the DataLoader of WithTargets(dataset, table, ids)"
    raise wrong_shape("a batch without targets and weights", "batch", found, expected, remedy)


def inputs_of(batch: Any) -> Any:
    """What the network reads of a batch."""
    if isinstance(batch, Mapping):
        return {name: values for name, values in batch.items() if name not in NOT_INPUTS}
    return batch[0] if isinstance(batch, tuple | list) else batch


def first_of(item: Any) -> Any:
    """What the network reads of an item."""
    if not isinstance(item, tuple | list):
        return item
    if all(isinstance(each, Number) for each in item):
        found, expected = f"{type(item).__name__} of {len(item)} numbers", "inputs, or a pair of inputs and a label"
        raise wrong_shape("an item of another kind", "dataset", found, expected, "pass the rows as one array, or tensor")
    if len(item) not in (1, 2):
        found, expected = f"{type(item).__name__} of {len(item)}", "inputs, or a pair of inputs and a label"
        raise wrong_shape("an item of another kind", "dataset", found, expected, "return several inputs by name, in a dict")
    return item[0]


def _shared(values: Floats) -> Tensor:
    """A copy that other processes see."""
    shared: Tensor = torch.from_numpy(values.astype(np.float32)).share_memory_()  # type: ignore[no-untyped-call]
    return shared
