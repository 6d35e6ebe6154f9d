"""The inputs of one split, from which batches are gathered by row number: in memory, memory-mapped, or from a DataLoader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wdistill.core import store
from wdistill.core.errors import InputError, worker_died, wrong_shape
from wdistill.core.processes import spawning
from wdistill.training import input_files

MAX_IN_MEMORY = 1 << 30  # bytes of a memory-mapped file up to which training reads it into memory
FINGERPRINT_ROWS = 256  # rows that the fingerprint of a file or a Dataset reads


class Inputs(Protocol):
    """Rows (n, …) in a fixed order."""

    def __len__(self) -> int: ...

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        """For every vector of row numbers, those rows as one tensor."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """What identifies these rows, as JSON."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """Rows in one tensor, on any device."""

    values: Tensor  # (n, …)

    def __len__(self) -> int:
        return len(self.values)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        device = self.values.device
        return (self.values.index_select(0, rows.to(device)) for rows in orders)

    def fingerprint(self) -> dict[str, Any]:
        array = self.values.detach().cpu().contiguous()
        content = array.view(torch.uint8).numpy().data if array.numel() else memoryview(b"")
        return _fingerprint(tuple(array.shape), str(array.dtype), content)


@dataclass(frozen=True)
class MemoryMapped:
    """Rows of an .npy file, read from the disk as they are used."""

    path: Path

    @property
    def array(self) -> NDArray[Any]:
        mapped: NDArray[Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return mapped

    def __len__(self) -> int:
        return len(self.array)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        array = self.array
        return (torch.from_numpy(array[rows.numpy()]) for rows in orders)

    def fingerprint(self) -> dict[str, Any]:
        """Of the shape and of evenly spaced rows: the file may be too large to read."""
        array = self.array
        rows = np.ascontiguousarray(array[_evenly_spaced(len(array))])
        return _fingerprint(array.shape, str(torch.from_numpy(rows[:1]).dtype), rows.tobytes(), sampled=True)


@dataclass(frozen=True, eq=False)
class Streamed:
    """A map-style Dataset that a DataLoader reads in every epoch, with `workers` processes.

    Pass Streamed(dataset) instead of the Dataset if its items should not be copied into one array.
    """

    dataset: Any
    workers: int = 0

    def __len__(self) -> int:
        return len(self.dataset)

    @cached_property
    def _loader(self) -> tuple[list[list[int]], Any]:
        """The row numbers of every batch of a pass, and a DataLoader with persistent workers that reads this list."""
        from torch.utils.data import DataLoader

        plan: list[list[int]] = []
        items: Any = _WithoutLabels(self.dataset)
        loader: Any = DataLoader(
            items,
            batch_sampler=plan,
            num_workers=self.workers,
            multiprocessing_context="spawn" if self.workers else None,
            persistent_workers=self.workers > 0,
            generator=torch.Generator(),  # leaves the global generator alone
        )
        return plan, loader

    def __reduce__(self) -> tuple[Any, ...]:
        return Streamed, (self.dataset, self.workers)  # without the DataLoader

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        """Only one pass at a time: a second one replaces the row numbers of the first."""
        plan, loader = self._loader
        size = len(self.dataset)
        plan[:] = [rows.tolist() for rows in orders]
        try:
            with spawning():
                batches = iter(loader)
            yield from batches
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            where = f"Streamed({type(self.dataset).__name__}, workers={self.workers})"
            raise worker_died(where, str(error).splitlines()[0]) from error
        _check_length(self.dataset, size)

    def fingerprint(self) -> dict[str, Any]:
        rows = [read_item(self.dataset, int(row))[0] for row in _evenly_spaced(len(self))]
        content = b"".join(np.ascontiguousarray(row).tobytes() for row in rows)
        shape = (len(self), *(rows[0].shape if rows else ()))
        return _fingerprint(shape, str(rows[0].dtype) if rows else "", content, sampled=True)


@dataclass(frozen=True, eq=False)
class Subset:
    """Some rows of other inputs, in a given order."""

    inputs: Inputs
    rows: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        return self.inputs.batches([self.rows[order] for order in orders])

    def fingerprint(self) -> dict[str, Any]:
        return {**self.inputs.fingerprint(), "rows": store.digest(self.rows.numpy().tobytes())}


@dataclass(frozen=True, eq=False)
class Concatenated:
    """The rows of several inputs, one after the other."""

    parts: Sequence[Inputs]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        plan = list(orders)
        streams, positions, first = [], [], 0  # of every part: its batches, and where their rows belong in the whole batch
        for part in self.parts:
            inside = [torch.nonzero((rows >= first) & (rows < first + len(part)))[:, 0] for rows in plan]
            positions.append(inside)
            streams.append(part.batches([rows[at] - first for rows, at in zip(plan, inside, strict=True) if len(at)]))
            first += len(part)
        for step, rows in enumerate(plan):
            pieces = [
                (inside[step], next(stream)) for inside, stream in zip(positions, streams, strict=True) if len(inside[step])
            ]
            _check_same_kind([values for _, values in pieces])
            batch = pieces[0][1].new_empty((len(rows), *pieces[0][1].shape[1:]))
            for at, values in pieces:
                batch[at.to(batch.device)] = values.to(batch.device)
            yield batch

    def fingerprint(self) -> dict[str, Any]:
        return {"parts": [part.fingerprint() for part in self.parts]}


def concatenate(parts: Sequence[Inputs]) -> Inputs:
    """Several inputs as one: in one tensor where they fit into memory, so that a batch is one gather."""
    tensors = [part.values for part in map(_in_memory, parts) if part is not None]
    if len(tensors) < len(parts):
        return Concatenated(parts)
    if len({values.dtype for values in tensors}) > 1 and all(values.is_floating_point() for values in tensors):
        tensors = [values.float() for values in tensors]  # the model gets float32 in any case
    _check_same_kind(tensors)
    return InMemory(torch.cat(tensors))


def _in_memory(part: Inputs) -> InMemory | None:
    """Rows that are in memory already, or small enough to be read into it."""
    if isinstance(part, InMemory):
        return part
    if isinstance(part, MemoryMapped) and part.path.stat().st_size <= MAX_IN_MEMORY:
        return InMemory(torch.from_numpy(np.load(part.path, allow_pickle=False)))
    if isinstance(part, Subset) and (whole := _in_memory(part.inputs)) is not None:
        return InMemory(whole.values.index_select(0, part.rows.to(whole.values.device)))
    return None


def _check_same_kind(tensors: Sequence[Tensor]) -> None:
    """Refuse rows of different shapes or types."""
    kinds = {(values.dtype, values.shape[1:]) for values in tensors}
    if len(kinds) > 1:
        found = " and ".join(f"{tuple(shape)} of {dtype}" for dtype, shape in kinds)
        expected, remedy = "rows of one shape and type", "prepare the inputs of all splits in the same way"
        raise wrong_shape("the splits have rows of different kinds", "inputs", found, expected, remedy)


def read_item(dataset: Any, row: int) -> tuple[NDArray[Any], int | None]:
    """One item of a map-style Dataset: an input, or a pair of input and label."""
    where, expected = f"{type(dataset).__name__}, item {row}", "numbers, or a pair of numbers and a class"
    try:
        item = dataset[row]
    except Exception as error:
        what, found, remedy = "an item cannot be read", f"{type(error).__name__}: {error}", "repair or remove it"
        raise InputError(what, where=where, found=found, expected=expected, remedy=remedy) from error
    pair = (*item, None)[:2] if isinstance(item, tuple | list) and len(item) in (1, 2) else (item, None)
    try:
        value = pair[0].detach().cpu().numpy() if isinstance(pair[0], Tensor) else np.asarray(pair[0])
        label = None if pair[1] is None else int(pair[1])
        if value.dtype.kind not in "fiub":
            raise TypeError(f"a {type(pair[0]).__name__}")
    except (TypeError, ValueError) as error:
        remedy = "wrap the Dataset in one whose items are such pairs"
        raise wrong_shape("an item of another kind", where, str(error), expected, remedy) from error
    return value, label


def materialise(dataset: Any, path: Path) -> tuple[MemoryMapped, NDArray[np.int64] | None]:
    """Read every item once into an .npy file; returns the rows and, where items are pairs, their labels.

    A file that an earlier start of the run has left is used again if evenly spaced items of the Dataset are equal to it.
    """
    size, labels_path = len(dataset), path.with_suffix(".labels.npy")
    first, first_label = read_item(dataset, 0)
    input_files.claim(path.parent)
    input_files.check_recorded(path, labels_path)
    if _is_materialised(dataset, path, labels_path):
        return MemoryMapped(path), None if first_label is None else np.load(labels_path, allow_pickle=False)
    input_files.remove(path, labels_path)
    header, digest = store.npy_header((size, *first.shape), first.dtype), hashlib.sha256()
    store.check_space(path.parent, len(header) + size * first.nbytes, "the inputs")
    labels = np.empty(size, np.int64)
    with store.writing(path) as file:
        file.write(header)
        digest.update(header)
        for row in range(size):
            value, label = read_item(dataset, row)
            if value.shape != first.shape or value.dtype != first.dtype:
                where, found = f"{type(dataset).__name__}, item {row}", f"{value.shape} of {value.dtype}"
                expected, remedy = f"{first.shape} of {first.dtype}, as item 0", "resize or pad all items to one shape"
                raise wrong_shape("an item of another kind", where, found, expected, remedy)
            content = np.ascontiguousarray(value).tobytes()
            file.write(content)
            digest.update(content)
            labels[row] = -1 if label is None else label
        # the file gets its name when the block ends: by then its labels and their record must be there
        content = store.npy_header(labels.shape, labels.dtype) + labels.tobytes()
        input_files.note(path.parent, {path.name: digest.hexdigest(), labels_path.name: store.digest(content)})
        store.write_bytes(labels_path, content)
    _check_length(dataset, size)
    return MemoryMapped(path), None if first_label is None else labels


def _is_materialised(dataset: Any, path: Path, labels_path: Path) -> bool:
    """Whether a file has the items of a Dataset, judged by some of them."""
    if not (path.exists() and labels_path.exists()):
        return False
    stored, labels = MemoryMapped(path).array, np.load(labels_path, allow_pickle=False)
    if not len(stored) == len(labels) == len(dataset):
        return False
    for row in _evenly_spaced(len(dataset)).tolist():
        value, label = read_item(dataset, row)
        equal = value.dtype == stored.dtype and np.array_equal(value, stored[row])
        if not equal or labels[row] != (-1 if label is None else label):
            return False
    return True


def write_npy(inputs: InMemory, path: Path) -> MemoryMapped:
    """Write rows in memory to an .npy file, for other processes to map."""
    array = np.ascontiguousarray(inputs.values.detach().cpu().numpy())
    header = store.npy_header(array.shape, array.dtype)
    input_files.claim(path.parent)
    input_files.check_recorded(path)
    input_files.remove(path)
    store.check_space(path.parent, len(header) + array.nbytes, "the inputs")
    digest = hashlib.sha256(header)
    digest.update(array.data)
    input_files.note(path.parent, {path.name: digest.hexdigest()})
    with store.writing(path) as file:
        file.write(header)
        file.write(array.data)
    return MemoryMapped(path)


class _WithoutLabels:
    """The inputs of a Dataset as tensors."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Tensor:
        return torch.from_numpy(np.array(read_item(self.dataset, row)[0]))


def _check_length(dataset: Any, size: int) -> None:
    if len(dataset) != size:
        found, expected = f"{len(dataset)} items", f"{size} items, as at the start"
        what, remedy = "the Dataset changed its length while it was read", "pass a Dataset of fixed length"
        raise InputError(what, where="dataset", found=found, expected=expected, remedy=remedy)


def _evenly_spaced(n: int) -> NDArray[np.int64]:
    """Row numbers evenly spaced over n rows, including the first and the last."""
    count = min(n, FINGERPRINT_ROWS)
    return np.unique(np.linspace(0, n - 1, count).round().astype(np.int64)) if n else np.empty(0, np.int64)


def _fingerprint(
    shape: tuple[int, ...], dtype: str, content: bytes | memoryview, *, sampled: bool = False
) -> dict[str, Any]:
    digest = store.digest(content)
    return {"shape": list(shape), "dtype": dtype.removeprefix("torch."), "sha256": digest, "sampled": sampled}
