"""Data: the rows of one split with their labels and ids, in whatever form the caller has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wdistill import checks, store
from wdistill.errors import InputError, LeakError
from wdistill.methods.repeats import Keys, among, by_itself, keys_of, leaked, one_of_each
from wdistill.threads import blocks
from wdistill.training.inputs import Held, Inputs, Mapped, Picked, Streamed, materialise, read_item, spill

HASHED = 1 << 30  # bytes of inputs up to which rows are compared by their content


@dataclass(frozen=True, eq=False)
class Data:
    """One split. `inputs`: a tensor, an array, a memory-mapped array, a map-style Dataset, or Streamed(dataset).

    Inputs of type uint8 are scaled to [0, 1] as they are used; other floating inputs become float32.
    """

    inputs: Any  # (n, …)
    labels: Any = None  # (n,) the truth; of unlabeled rows only where it is known, for the oracle and for the report
    ids: Any = None  # (n,) numbers or strings; the row's number unless given


@dataclass(frozen=True, eq=False)
class Split:
    """The same, checked: what training works on."""

    name: str
    inputs: Inputs
    labels: Tensor | None  # (n,) int64
    ids: NDArray[Any]  # (n,) int64 or strings
    known: Mapping[str, Any] | None = None  # the fingerprint of inputs that were in memory before they went to a file
    same: NDArray[np.int64] | None = None  # (n,) of every row the first that is the same, where that matters

    def __len__(self) -> int:
        return len(self.inputs)

    def fingerprint(self) -> dict[str, Any]:
        labels = "" if self.labels is None else store.digest(self.labels.numpy().tobytes())
        ids = store.digest("\n".join(map(str, self.ids.tolist())).encode())
        same = {} if self.same is None else {"same": store.digest(self.same.tobytes())}
        return {**(self.known or self.inputs.fingerprint()), "labels": labels, "ids": ids, **same}


def split_of(name: str, given: Any, *, labels: bool, folder: Path, spilled: bool = False) -> Split:
    """Check one split, which must have `labels` or not. Datasets, and with `spilled` arrays, go to files in `folder`."""
    data = _data(given)
    inputs, found = _inputs(name, data.inputs, folder)
    known = inputs.fingerprint() if isinstance(inputs, Held) else None
    if spilled and isinstance(inputs, Held):
        store.make_folder(folder, parents=True)
        inputs = spill(inputs, folder / f"{name}.npy")
    given_labels = data.labels if data.labels is not None else found
    if labels and given_labels is None:
        raise InputError(
            "no labels",
            where=name,
            found="inputs alone",
            expected="a pair (inputs, labels)",
            remedy=f"pass {name}=(inputs, labels)",
        )
    n = len(inputs)
    if n == 0:
        raise checks.no_rows(name)
    truth = None if given_labels is None else _labels(name, given_labels)
    ids = np.arange(n) if data.ids is None else np.asarray(data.ids)
    lengths = {f"{name} inputs": n, f"{name} ids": len(ids)}
    checks.same_length(lengths if truth is None else {**lengths, f"{name} labels": len(truth)})
    _check_ids(name, ids)
    return Split(name, inputs, truth, ids, known)


def on_device(split: Split, device: torch.device) -> Split:
    """Rows that are held in memory, moved to where the model is."""
    return replace(split, inputs=_moved(split.inputs, device)) if device.type != "cpu" else split


def _moved(inputs: Inputs, device: torch.device) -> Inputs:
    if isinstance(inputs, Picked):
        return replace(inputs, inputs=_moved(inputs.inputs, device))
    return Held(inputs.values.to(device)) if isinstance(inputs, Held) else inputs


def has_ids(given: Any) -> bool:
    """Whether the caller says what his rows are called."""
    return _data(given).ids is not None


@dataclass(frozen=True, eq=False)
class Repeats:
    """Validation rows that stand elsewhere too, or twice, by their inputs; as far as that could be looked at."""

    labeled: NDArray[np.bool_]  # (m,) validation rows that are among the labeled ones; (0,) if not looked at
    again: NDArray[np.bool_]  # labeled rows that these are, likewise
    unlabeled: int  # validation rows that are among the unlabeled ones
    same: NDArray[np.int64] | None  # (m,) of every validation row the first that is the same, where some are repeated
    tested: int  # test rows that are among the labeled ones


def repeats_of(splits: Mapping[str, Split]) -> Repeats:
    """Look at the inputs of all rows that are in memory or in a file."""
    keys = {name: _row_keys(split) for name, split in splits.items()}
    known, gold, rest = (keys[name] for name in ("labeled", "validation", "unlabeled"))
    by_chance = among(rest, known)
    learned = leaked(np.isin(gold, known), by_chance)
    pooled = leaked(np.isin(gold, rest), by_itself(rest))
    tested = leaked(np.isin(keys.get("test", gold[:0]), known), by_chance)
    return Repeats(
        labeled=learned,
        again=np.isin(known, gold[learned]),
        unlabeled=int(pooled.sum()),
        same=one_of_each(gold, rest),
        tested=int(tested.sum()),
    )


def check_leak(labeled: Split, validation: Split, found: Repeats, *, by_id: bool) -> None:
    """Refuse validation rows that teacher and student are trained on: the paper's one assumption.

    Rows are the same if their ids are, where both splits have ids, and otherwise if their inputs are.
    """
    alike = np.flatnonzero(found.labeled).tolist()
    shared = np.flatnonzero(np.isin(validation.ids, labeled.ids)).tolist() if by_id else alike
    if shared:
        first = ", ".join(str(validation.ids[row]) for row in shared[:5])
        raise LeakError(
            "validation rows are among the labeled rows",
            where="validation",
            found=f"{len(shared)} of {len(validation)} rows, first ids {first}",
            expected="rows that neither teacher nor student was trained on",
            remedy="take them out of one of the two sets: errors on rows a model has seen say nothing about others. "
            "If they are other rows, give all rows ids of their own, as in Data(inputs, labels, ids): ids hold across sets",
        )
    if alike:
        checks.warn(f"{len(alike)} validation rows have the same inputs as labeled rows, under other ids")


def without(split: Split, rows: NDArray[np.bool_]) -> Split:
    """A split without some of its rows."""
    return split if not rows.any() else picked(split, np.flatnonzero(~rows))


def picked(split: Split, rows: NDArray[np.int64]) -> Split:
    """Some rows of a split."""
    at = torch.from_numpy(rows)
    labels = None if split.labels is None else split.labels[at]
    return Split(split.name, Picked(split.inputs, at), labels, split.ids[rows])


def _row_keys(split: Split) -> Keys:
    """One for every row; none for rows that are not in memory, or too many to read at once."""
    inputs = split.inputs.inputs if isinstance(split.inputs, Picked) else split.inputs
    array: Any = inputs.values.detach().cpu().numpy() if isinstance(inputs, Held) else None
    if isinstance(inputs, Mapped):
        array = inputs.array
    if array is None or len(split) * array[:1].nbytes > HASHED:
        return np.empty(0, "S16")
    if isinstance(split.inputs, Picked):
        array = array[split.inputs.rows.numpy()]
    return keys_of(array)


def _data(given: Any) -> Data:
    if isinstance(given, Data):
        return given
    if isinstance(given, tuple | list) and len(given) == 2:
        return Data(*given)
    if isinstance(given, Mapping):
        unknown = set(given) - {"inputs", "labels", "ids"}
        if unknown or "inputs" not in given:
            raise InputError(
                "not a split",
                where=", ".join(map(str, given)),
                found="a mapping of these keys",
                expected="inputs, labels and ids",
                remedy="pass a pair (inputs, labels), or Data(inputs, labels, ids)",
            )
        return Data(**given)
    return Data(given)


def _inputs(name: str, given: Any, folder: Path) -> tuple[Inputs, NDArray[np.int64] | None]:
    """Inputs as rows, and the labels that came with a Dataset's items."""
    if isinstance(given, Mapped | Held | Picked):
        return given, None
    if isinstance(given, Streamed):
        _check_repeatable(name, given.dataset)
        labels = [read_item(given.dataset, row)[1] for row in range(len(given))]
        return given, None if None in labels else np.array(labels, np.int64)
    if hasattr(given, "to_numpy"):  # pandas, polars
        given = given.to_numpy()
    if isinstance(given, np.memmap) and given.filename is not None and _is_whole_file(given):
        return Mapped(Path(given.filename)), None
    if isinstance(given, Tensor):
        numbers = given.float() if given.dtype == torch.bfloat16 else given  # which NumPy does not know
        return Held(_no_nan(name, numbers.detach())), None
    if isinstance(given, np.ndarray):
        native = np.ascontiguousarray(given).astype(given.dtype.newbyteorder("="), copy=False)
        if native.dtype.kind not in "fiub":
            raise _not_inputs(name, given, f"dtype {given.dtype}")
        return Held(_no_nan(name, torch.from_numpy(native if native.flags.writeable else native.copy()))), None
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, str | bytes | list | tuple):
        if len(given) == 0:
            raise checks.no_rows(name)
        _check_repeatable(name, given)
        store.make_folder(folder, parents=True)
        return materialise(given, folder / f"{name}.npy")
    raise _not_inputs(name, given, f"a {type(given).__name__}")


def _not_inputs(name: str, given: Any, found: str) -> InputError:
    return InputError(
        "not inputs",
        where=name,
        found=found,
        expected="a numeric tensor or array (rows, …), or a map-style Dataset",
        remedy="convert it with numpy.asarray or torch.as_tensor first",
    )


def _no_nan(name: str, values: Tensor) -> Tensor:
    if values.ndim == 0:
        raise _not_inputs(name, values, "a single number")
    if not values.is_floating_point():
        return values
    rows = [values[part].flatten(1) if values.ndim > 1 else values[part, None] for part in blocks(len(values), 1 << 14)]
    bad = torch.nonzero(torch.cat([~torch.isfinite(part).all(1) for part in rows]))[:, 0] if rows else torch.empty(0)
    if len(bad):
        raise InputError(
            "inputs are not finite",
            where=name,
            found=f"NaN or infinite numbers in {len(bad)} rows",
            expected="finite numbers",
            remedy="mend or leave out those rows",
            rows=bad[:5].tolist(),
        )
    return values


def _is_whole_file(given: np.memmap[Any, Any]) -> bool:
    """Whether a memory-mapped array is all of an .npy file: then other processes can map it too."""
    try:
        whole = np.load(str(given.filename), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return False
    same = whole.shape == given.shape and whole.dtype == given.dtype and given.flags.c_contiguous
    return bool(same and given.mode != "c" and given.dtype.isnative)  # a private copy may hold other numbers


def _labels(name: str, given: Any) -> Tensor:
    values = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    return torch.from_numpy(checks.labels(values, None, f"{name} labels").astype(np.int64))


def _check_ids(name: str, ids: NDArray[Any]) -> None:
    if ids.ndim != 1 or (ids.dtype.kind not in "iuU" and not all(isinstance(each, str) for each in ids.tolist())):
        raise InputError(
            "not ids", where=f"{name} ids", found=f"{ids.dtype} {ids.shape}", expected="(rows,) whole numbers or strings"
        )
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        raise InputError(
            "ids are repeated",
            where=f"{name} ids",
            found=", ".join(map(str, values[counts > 1][:5])),
            expected="every id once",
            remedy="give every row an id of its own",
        )


def _check_repeatable(name: str, dataset: Any) -> None:
    """Draw an item twice: a Dataset that augments at random cannot be weighed, labeled and resumed as one thing."""
    once, again = read_item(dataset, 0)[0], read_item(dataset, 0)[0]
    if once.shape != again.shape or not np.array_equal(once, again):
        checks.warn(
            f"{name}: drawing an item twice gives two different inputs; leave random transforms to the recipe's "
            "augmentation, which is the same after a resume"
        )
