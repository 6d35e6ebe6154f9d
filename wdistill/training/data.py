"""Data: the rows of one split with their labels and ids, in whatever form the caller has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wdistill.core import checks, npy, store
from wdistill.core.errors import FileError, InputError, LeakError, bad_input, empty, wrong_shape
from wdistill.core.threads import blocks
from wdistill.methods.gold_design import GoldDesign, check_groups, inclusion_weights
from wdistill.methods.groups import SharedGroups, shared_groups
from wdistill.methods.guards import Keys, among, by_itself, keys_of, leaked, one_of_each
from wdistill.training.batch import LABELS, check_names
from wdistill.training.inputs import (
    Columns,
    InMemory,
    Inputs,
    MemoryMapped,
    Streamed,
    Subset,
    column_path,
    materialise,
    select,
    write_npy,
)
from wdistill.training.items import check_like_first, equal, read_item

MAX_COMPARED = 1 << 30  # bytes of inputs up to which rows are compared by their content


@dataclass(frozen=True, eq=False)
class Data:
    """One split. `inputs`: a tensor, an array, a memory-mapped array, a map-style Dataset, or Streamed(dataset).

    Or a mapping of names to tensors and arrays with the same rows: modules then take them as keyword arguments.
    Inputs of type uint8 are scaled to [0, 1] as they are used; other floating inputs become float32.
    """

    inputs: Any  # (n, …)
    labels: Any = None  # (n,) the truth; optional for unlabeled rows: only the oracle and the report use it
    ids: Any = None  # (n,) integers or strings; default: the row numbers
    groups: Any = None  # (n,) numbers or strings: documents, users or queries whose rows belong together
    inclusion: Any = None  # (n,) of gold rows that were drawn unevenly: the probability with which each was drawn


@dataclass(frozen=True, eq=False)
class Split:
    """One split after all checks, as training uses it."""

    name: str
    inputs: Inputs
    labels: Tensor | None  # (n,) int64
    ids: NDArray[Any]  # (n,) int64 or strings
    original: Mapping[str, Any] | None = None  # the fingerprint of inputs before those in memory went to a file
    same: NDArray[np.int64] | None = None  # (n,) for every row the first row with the same inputs, where some repeat
    design: GoldDesign = field(default_factory=GoldDesign)  # how the rows were drawn

    def __len__(self) -> int:
        return len(self.inputs)

    def fingerprint(self) -> dict[str, Any]:
        labels = "" if self.labels is None else store.digest(self.labels.numpy().tobytes())
        ids = store.digest("\n".join(map(str, self.ids.tolist())).encode())
        same = {} if self.same is None else {"same": store.digest(self.same.tobytes())}
        told = {"groups": self.design.groups, "inclusion": self.design.weights}
        drawn = {name: store.digest(values.tobytes()) for name, values in told.items() if values is not None}
        return {**(self.original or self.inputs.fingerprint()), "labels": labels, "ids": ids, **same, **drawn}


def check_split(name: str, given: Any, *, labels: bool, folder: Path, to_file: bool = False) -> Split:
    """Check one split; `labels`: whether it must have them.

    Datasets are written to files in `folder`; with `to_file` so are tensors and arrays, for other processes to map.
    """
    data = _as_data(given)
    inputs, item_labels = _as_inputs(name, data.inputs, folder)
    original = inputs.fingerprint() if isinstance(inputs, InMemory | Columns) else None
    if to_file:
        inputs = _to_file(inputs, folder / f"{name}.npy")
    given_labels = data.labels if data.labels is not None else item_labels
    if labels and given_labels is None:
        expected, remedy = "a pair (inputs, labels)", f"pass {name}=(inputs, labels)"
        raise InputError("no labels", where=name, found="only inputs", expected=expected, remedy=remedy)
    n = len(inputs)
    if n == 0:
        raise _no_rows(name)
    truth = None if given_labels is None else _as_labels(name, given_labels)
    ids = np.arange(n) if data.ids is None else _as_ids(name, data.ids)
    lengths = {f"{name} inputs": n, f"{name} ids": len(ids)}
    checks.same_length(lengths if truth is None else {**lengths, f"{name} labels": len(truth)})
    _check_ids(name, ids)
    return Split(name, inputs, truth, ids, original, design=_as_design(name, data, n))


def _as_design(name: str, data: Data, rows: int) -> GoldDesign:
    """How the rows of a split were drawn; inclusion probabilities are for gold rows."""
    told = {"groups": data.groups, "inclusion": data.inclusion}
    given = {f"{name} {what}": checks.array(values, f"{name} {what}") for what, values in told.items() if values is not None}
    checks.same_length({f"{name} inputs": rows, **{what: len(values) for what, values in given.items()}})
    groups, inclusion = (given.get(f"{name} {what}") for what in told)
    if inclusion is not None and name != "validation":
        expected, remedy = "inclusion probabilities of the gold rows, validation=Data(…)", "leave them out"
        raise bad_input("is for gold rows", f"{name} inclusion", f"{len(inclusion)} numbers", expected, remedy)
    fewest = 2 if name == "validation" else 1
    return GoldDesign(
        None if inclusion is None else inclusion_weights(inclusion, f"{name} inclusion"),
        None if groups is None else check_groups(groups, f"{name} groups", fewest),
    )


def groups_shared(splits: Mapping[str, Split]) -> dict[str, SharedGroups]:
    """The groups of gold rows that labeled and test rows are of too, by the name of that split."""
    gold = splits["validation"].design.groups
    others = {name: splits[name].design.groups for name in ("labeled", "test") if name in splits}
    return {} if gold is None else {name: shared_groups(gold, own) for name, own in others.items() if own is not None}


def to_device(split: Split, device: torch.device) -> Split:
    """The split with inputs that are in memory on the model's device."""
    return replace(split, inputs=_moved(split.inputs, device)) if device.type != "cpu" else split


def _moved(inputs: Inputs, device: torch.device) -> Inputs:
    if isinstance(inputs, Subset):
        return replace(inputs, inputs=_moved(inputs.inputs, device))
    if isinstance(inputs, Columns):
        return Columns({name: _moved(column, device) for name, column in inputs.columns.items()})
    return InMemory(inputs.values.to(device)) if isinstance(inputs, InMemory) else inputs


def has_ids(given: Any) -> bool:
    """Whether the caller passed ids."""
    return _as_data(given).ids is not None


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Rows with the same inputs in two splits, or twice among the gold rows; only where inputs could be compared."""

    gold_in_labeled: NDArray[np.bool_]  # (m,), or (0,) if not compared
    labeled_in_gold: NDArray[np.bool_]  # (number of labeled rows,), or (0,)
    gold_in_unlabeled: int
    same: NDArray[np.int64] | None  # (m,) for every gold row the first with the same inputs; None where all differ
    test_in_labeled: int


def find_duplicates(splits: Mapping[str, Split], *, gold_as_labeled: bool = False) -> Duplicates:
    """Compare the inputs of all splits that are in memory or in a file; `gold_as_labeled`: gold rows are trained on too."""
    keys = {name: _row_keys(split.inputs) for name, split in splits.items()}
    gold, unlabeled = keys["validation"], keys["unlabeled"]
    labeled = keys.get("labeled", gold[:0])
    by_chance = among(unlabeled, labeled)
    gold_in_labeled = leaked(np.isin(gold, labeled), by_chance)
    gold_in_unlabeled = leaked(np.isin(gold, unlabeled), by_itself(unlabeled))
    trained = np.concatenate([labeled, gold]) if gold_as_labeled else labeled
    test_in_labeled = leaked(np.isin(keys.get("test", gold[:0]), trained), among(unlabeled, trained))
    return Duplicates(
        gold_in_labeled=gold_in_labeled,
        labeled_in_gold=np.isin(labeled, gold[gold_in_labeled]),
        gold_in_unlabeled=int(gold_in_unlabeled.sum()),
        same=one_of_each(gold, unlabeled),
        test_in_labeled=int(test_in_labeled.sum()),
    )


def check_leak(labeled: Split, validation: Split, duplicates: Duplicates, *, by_id: bool) -> None:
    """Refuse validation rows that teacher and student are trained on: the paper's one assumption.

    Rows are the same if their ids are, where both splits have ids, and otherwise if their inputs are.
    """
    by_inputs = np.flatnonzero(duplicates.gold_in_labeled).tolist()
    shared = np.flatnonzero(np.isin(validation.ids, labeled.ids)).tolist() if by_id else by_inputs
    if shared:
        first = ", ".join(str(validation.ids[row]) for row in shared[:5])
        raise LeakError(
            "validation rows are among the labeled rows",
            where="validation",
            found=f"{len(shared)} of {len(validation)} rows, first ids {first}",
            expected="rows that neither teacher nor student was trained on",
            remedy="remove them from one of the two sets: a model's errors on rows it was trained on are not its errors on "
            "new rows. If they are different rows, give all rows ids of their own, as in Data(inputs, labels, ids)",
        )
    if by_inputs:
        checks.warn(f"{len(by_inputs)} validation rows have the same inputs as labeled rows, under other ids")


def drop_rows(split: Split, rows: NDArray[np.bool_]) -> Split:
    """A split without the rows of a mask (n,)."""
    return split if not rows.any() else take_rows(split, np.flatnonzero(~rows))


def take_rows(split: Split, rows: NDArray[np.int64]) -> Split:
    """Some rows of a split, by their numbers."""
    at = torch.from_numpy(rows)
    labels = None if split.labels is None else split.labels[at]
    design = GoldDesign(*(None if each is None else each[rows] for each in (split.design.weights, split.design.groups)))
    return Split(split.name, select(split.inputs, at), labels, split.ids[rows], design=design)


def _row_keys(inputs: Inputs) -> Keys:
    """(n,) hashes of the inputs; (0,) if they are not in memory or a file, or too large to compare."""
    if isinstance(inputs, Columns):
        keys = [_row_keys(column) for _, column in sorted(inputs.columns.items())]
        whole = all(len(column) == len(inputs) for column in keys)
        return keys_of(np.stack(keys, axis=1)) if whole else np.empty(0, "S16")
    base = inputs.inputs if isinstance(inputs, Subset) else inputs
    array: Any = base.values.detach().cpu().numpy() if isinstance(base, InMemory) else None
    if isinstance(base, MemoryMapped):
        array = base.array
    if array is None or len(inputs) * array[:1].nbytes > MAX_COMPARED:
        return np.empty(0, "S16")
    if isinstance(inputs, Subset):
        array = array[inputs.rows.numpy()]
    return keys_of(array)


def _as_data(given: Any) -> Data:
    if isinstance(given, Data):
        return given
    if isinstance(given, tuple | list) and len(given) == 2:
        return Data(*given)
    if isinstance(given, Mapping) and {"inputs", "ids", *LABELS} & {*given}:
        if set(given) - {each.name for each in fields(Data)} or "inputs" not in given:
            found = f"a mapping of {', '.join(map(str, given))}"
            remedy = "pass a pair (inputs, labels), or Data(…); inputs by name are a mapping of their own: ({…}, labels)"
            raise wrong_shape("not a split", "data", found, "inputs, labels and ids", remedy)
        return Data(**given)
    return Data(given)


def _as_inputs(name: str, given: Any, folder: Path) -> tuple[Inputs, NDArray[np.int64] | None]:
    """The inputs, and the labels of a Dataset whose items have them."""
    if isinstance(given, Mapping):
        return _as_columns(name, given), None
    if isinstance(given, Streamed):
        return given, _read_labels(name, given.dataset)
    inputs = _as_rows(name, given)
    if inputs is not None:
        return inputs, None
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, str | bytes | list | tuple):
        if _length(name, given) == 0:
            raise _no_rows(name)
        _check_repeatable(name, given)
        return materialise(given, folder / f"{name}.npy")
    raise _not_inputs(name, f"a {type(given).__name__}")


def _as_columns(name: str, given: Mapping[Any, Any]) -> Columns:
    check_names(given, f"{name} inputs")
    columns: dict[str, Inputs] = {}
    for column, values in given.items():
        rows = _as_rows(f"{name} {column}", values)
        if rows is None:
            raise _not_inputs(f"{name} {column}", f"a {type(values).__name__}", "a numeric tensor or array (rows, …)")
        columns[column] = rows
    checks.same_length({f"{name} {column}": len(rows) for column, rows in columns.items()})
    return Columns(columns)


def _read_labels(name: str, dataset: Any) -> NDArray[np.int64] | None:
    """The labels of a Dataset, whose items must be of one kind; None where an item has none."""
    _check_repeatable(name, dataset)
    labels, first = [], read_item(dataset, 0)[0]
    for row in range(len(dataset)):
        item, label = read_item(dataset, row)
        check_like_first(dataset, row, item, first)
        labels.append(label)
    return None if None in labels else np.array(labels, np.int64)


def _as_rows(name: str, given: Any) -> Inputs | None:
    """The inputs in a tensor, an array or a file; None where it is none of them."""
    if isinstance(given, MemoryMapped | InMemory | Subset):
        return given
    if hasattr(given, "to_numpy"):  # pandas, polars
        given = given.to_numpy()
    if isinstance(given, np.ma.MaskedArray):
        given = checks.array(given, name)
    if isinstance(given, np.memmap) and given.filename is not None and _is_whole_file(given):
        return MemoryMapped(Path(given.filename))
    if isinstance(given, Tensor):
        if given.layout != torch.strided or given.is_complex() or given.is_meta:
            raise _not_inputs(name, f"{given.layout} {given.dtype} on {given.device}".replace("torch.", ""))
        numbers = given.float() if given.dtype == torch.bfloat16 else given  # NumPy has no bfloat16
        return InMemory(_check_finite(name, numbers.detach()))
    if isinstance(given, np.ndarray):
        native = np.ascontiguousarray(given).astype(given.dtype.newbyteorder("="), copy=False)
        if native.dtype.kind not in "fiub" or native.dtype.itemsize > 8:  # torch has no longer numbers
            raise _not_inputs(name, f"dtype {given.dtype}")
        return InMemory(_check_finite(name, torch.from_numpy(native if native.flags.writeable else native.copy())))
    return None


def _to_file(inputs: Inputs, path: Path) -> Inputs:
    """The same with all that is in memory in files, for other processes to map."""
    if isinstance(inputs, Columns):
        named = enumerate(sorted(inputs.columns.items()))
        return Columns({name: _to_file(column, column_path(path, number)) for number, (name, column) in named})
    return write_npy(inputs, path) if isinstance(inputs, InMemory) else inputs


def _length(name: str, dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        found = f"a {type(dataset).__name__} whose length cannot be had: {error}"
        raise wrong_shape("not inputs", name, found, "a Dataset with a length of at least 1", "give it a __len__") from None


def _no_rows(name: str) -> InputError:
    remedies = {
        "labeled": "pass the rows that teacher and student are trained on",
        "validation": "pass gold rows: rows with a true label that neither model is trained on",
        "test": "pass some, or leave test out",
    }
    return empty(f"no {name} rows", name, "at least 1 row", remedies.get(name, "pass the rows that the teacher shall label"))


def _not_inputs(
    name: str, found: str, expected: str = "a numeric tensor or array (rows, …), or a map-style Dataset"
) -> InputError:
    return wrong_shape("not inputs", name, found, expected, "convert it with numpy.asarray or torch.as_tensor first")


def _check_finite(name: str, values: Tensor) -> Tensor:
    if values.ndim == 0:
        raise _not_inputs(name, "a single number")
    if not values.is_floating_point():
        return values
    rows = [values[part].flatten(1) if values.ndim > 1 else values[part, None] for part in blocks(len(values), 1 << 14)]
    bad = torch.nonzero(torch.cat([~torch.isfinite(part).all(1) for part in rows]))[:, 0] if rows else torch.empty(0)
    if len(bad):
        what, found, remedy = "inputs are not finite", f"NaN or infinite numbers in {len(bad)} rows", "remove those rows"
        first = bad[:5].tolist()
        raise InputError(what, where=name, found=found, expected="finite numbers", remedy=remedy, rows=first)
    return values


def _is_whole_file(given: np.memmap[Any, Any]) -> bool:
    """Whether a memory-mapped array is all of an .npy file: then other processes can map it too."""
    try:
        whole = npy.mapped(Path(str(given.filename)), "")
    except FileError:
        return False
    same = whole.shape == given.shape and whole.dtype == given.dtype and given.flags.c_contiguous
    return bool(same and given.mode != "c" and given.dtype.isnative)  # a private copy may hold other numbers


def _as_labels(name: str, given: Any) -> Tensor:
    return torch.from_numpy(checks.labels(given, None, f"{name} labels").astype(np.int64))


def _as_ids(name: str, given: Any) -> NDArray[Any]:
    try:
        ids = np.asarray(given)
        len(ids)
    except (TypeError, ValueError) as error:
        expected, remedy = "(rows,) whole numbers or strings", "give every row an id of its own"
        raise wrong_shape("not ids", f"{name} ids", str(error), expected, remedy) from None
    return ids


def _check_ids(name: str, ids: NDArray[Any]) -> None:
    where, remedy = f"{name} ids", "give every row an id of its own"
    if ids.ndim != 1 or (ids.dtype.kind not in "iuU" and not all(isinstance(value, str) for value in ids.tolist())):
        raise wrong_shape("not ids", where, f"{ids.dtype} {ids.shape}", "(rows,) whole numbers or strings", remedy)
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        repeated = ", ".join(map(str, values[counts > 1][:5]))
        raise wrong_shape("ids are repeated", where, repeated, "every id once", remedy)


def _check_repeatable(name: str, dataset: Any) -> None:
    """Warn of a Dataset that augments at random: its rows cannot be weighed, labeled and resumed as the same rows."""
    if not equal(read_item(dataset, 0)[0], read_item(dataset, 0)[0]):
        checks.warn(
            f"{name}: drawing an item twice gives two different inputs; leave random transforms to the recipe's "
            "augmentation, which is the same after a resume"
        )
