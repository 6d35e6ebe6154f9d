"""The inputs of one split, from which batches are gathered by row number: in memory, memory-mapped, or from a DataLoader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wdistill.core import npy, store
from wdistill.core.errors import InputError, worker_died, wrong_shape
from wdistill.core.processes import spawning
from wdistill.training import input_files
from wdistill.training.batch import Batch, by_name, from_names
from wdistill.training.items import check_like_first, equal, read_item

MAX_IN_MEMORY = 1 << 30  # bytes of a memory-mapped file up to which training reads it into memory
SAVE_AGAIN = "save it again; remove it, if it is the run's own: it is written anew"
FINGERPRINT_ROWS = 256  # rows that the fingerprint of a file or a Dataset reads


class Inputs(Protocol):
    """Rows (n, …) in a fixed order."""

    def __len__(self) -> int: ...

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Batch]:
        """For every vector of row numbers, those rows as one tensor, or as one for each name."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """What identifies these rows, as JSON."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """Rows in one tensor, on any device."""

    values: Tensor  # (n, …)
    parts: Sequence[Inputs] = ()  # the files that they were read from: other processes read these

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        return (concatenate, (self.parts,)) if self.parts else (InMemory, (self.values,))

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
        return npy.mapped(self.path, SAVE_AGAIN)

    def check(self) -> None:
        """Raise where the file holds other numbers than torch has, or a single one."""
        dtype, axes = self.array.dtype, self.array.ndim
        if not axes or dtype.itemsize > 8 or not dtype.isnative:
            found, expected = f"shape {self.array.shape}, dtype {dtype}", "rows (n, …) of numbers of at most 8 bytes"
            raise wrong_shape("not inputs", str(self.path), found, expected, "save them with .astype('float32')")

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

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Batch]:
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
        rows = [by_name(read_item(self.dataset, int(row))[0]) for row in _evenly_spaced(len(self))]
        return _by_column({name: self._fingerprint([row[name] for row in rows]) for name in (rows[0] if rows else [""])})

    def _fingerprint(self, rows: Sequence[NDArray[Any]]) -> dict[str, Any]:
        content = b"".join(np.ascontiguousarray(row).tobytes() for row in rows)
        shape = (len(self), *(rows[0].shape if rows else ()))
        return _fingerprint(shape, str(rows[0].dtype) if rows else "", content, sampled=True)


@dataclass(frozen=True, eq=False)
class Columns:
    """Inputs by name, each with the same rows: a module takes a batch of them as keyword arguments."""

    columns: Mapping[str, Inputs]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Batch]:
        plan, names = list(orders), list(self.columns)
        batches: Any = zip(*(column.batches(plan) for column in self.columns.values()), strict=True)
        return (dict(zip(names, values, strict=True)) for values in batches)

    def fingerprint(self) -> dict[str, Any]:
        return _by_column({name: column.fingerprint() for name, column in self.columns.items()})


@dataclass(frozen=True, eq=False)
class Subset:
    """Some rows of other inputs, in a given order."""

    inputs: Inputs
    rows: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Batch]:
        return self.inputs.batches([self.rows[order] for order in orders])

    def fingerprint(self) -> dict[str, Any]:
        return {**self.inputs.fingerprint(), "rows": store.digest(self.rows.numpy().tobytes())}


@dataclass(frozen=True, eq=False)
class Concatenated:
    """The rows of several inputs, one after the other."""

    parts: Sequence[Inputs]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Batch]:
        plan = list(orders)
        streams, positions, first = [], [], 0  # of every part: its batches, and where their rows belong in the whole batch
        for part in self.parts:
            inside = [torch.nonzero((rows >= first) & (rows < first + len(part)))[:, 0] for rows in plan]
            positions.append(inside)
            streams.append(part.batches([rows[at] - first for rows, at in zip(plan, inside, strict=True) if len(at)]))
            first += len(part)
        for step, rows in enumerate(plan):
            pieces = [
                (inside[step], by_name(next(stream)))
                for inside, stream in zip(positions, streams, strict=True)
                if len(inside[step])
            ]
            names = pieces[0][1]
            yield from_names({name: _joined(len(rows), [(at, piece[name]) for at, piece in pieces]) for name in names})

    def fingerprint(self) -> dict[str, Any]:
        return {"parts": [part.fingerprint() for part in self.parts]}


def first_row(inputs: Inputs) -> Batch:
    """A batch of one row, for checks."""
    return first_rows(inputs, 1)


def first_rows(inputs: Inputs, count: int = 4) -> Batch:
    """A batch of the first rows, for checks."""
    (rows,) = inputs.batches([torch.arange(min(count, len(inputs)))])
    return rows


def _joined(rows: int, pieces: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """One tensor (rows, …) from pieces, each with the places of its rows."""
    _check_same_kind([values for _, values in pieces])
    whole = pieces[0][1].new_empty((rows, *pieces[0][1].shape[1:]))
    for at, values in pieces:
        whole[at.to(whole.device)] = values.to(whole.device)
    return whole


def select(inputs: Inputs, rows: Tensor) -> Inputs:
    """Some rows of other inputs, in a given order; of inputs by name, those of each."""
    if isinstance(inputs, Columns):
        return Columns({name: Subset(column, rows) for name, column in inputs.columns.items()})
    return Subset(inputs, rows)


def concatenate(parts: Sequence[Inputs]) -> Inputs:
    """Several inputs as one: in one tensor where they fit into memory, so that a batch is one gather."""
    named = [part.columns for part in parts if isinstance(part, Columns)]
    if named and len(named) == len(parts):
        return Columns({name: concatenate([columns[name] for columns in named]) for name in named[0]})
    tensors = [part.values for part in map(_in_memory, parts) if part is not None]
    if len(tensors) < len(parts):
        return Concatenated(parts)
    if len({values.dtype for values in tensors}) > 1 and all(values.is_floating_point() for values in tensors):
        tensors = [values.float() for values in tensors]  # the model gets float32 in any case
    _check_same_kind(tensors)
    return InMemory(torch.cat(tensors), tuple(parts) if all(map(_is_in_files, parts)) else ())


def _is_in_files(part: Inputs) -> bool:
    """Whether rows are, or were read from, files that other processes can read."""
    if isinstance(part, Subset):
        return _is_in_files(part.inputs)
    return isinstance(part, MemoryMapped) or (isinstance(part, InMemory) and bool(part.parts))


def _in_memory(part: Inputs) -> InMemory | None:
    """Rows that are in memory already, or small enough to be read into it."""
    if isinstance(part, InMemory):
        return part
    if isinstance(part, MemoryMapped) and part.path.stat().st_size <= MAX_IN_MEMORY:
        return InMemory(torch.from_numpy(npy.read(part.path, SAVE_AGAIN)), (part,))
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


def materialise(dataset: Any, path: Path) -> tuple[Inputs, NDArray[np.int64] | None]:
    """Read every item once into an .npy file, or one for each name; returns the rows and, where items have one, the labels.

    Files that an earlier start of the run has left are used again if evenly spaced items of the Dataset are equal to them.
    """
    size, labels_path = len(dataset), path.with_suffix(".labels.npy")
    first, first_label = read_item(dataset, 0)
    paths = {name: column_path(path, number) if name else path for number, name in enumerate(sorted(by_name(first)))}
    input_files.claim(path.parent)
    input_files.check_recorded(*paths.values(), labels_path)
    if _is_materialised(dataset, paths, labels_path):
        return _mapped(paths), None if first_label is None else npy.read(labels_path, SAVE_AGAIN)
    input_files.remove(*paths.values(), labels_path)
    headers = {name: store.npy_header((size, *values.shape), values.dtype) for name, values in by_name(first).items()}
    needed = sum(len(headers[name]) + size * values.nbytes for name, values in by_name(first).items())
    store.check_space(path.parent, needed, "the inputs")
    labels, digests = np.empty(size, np.int64), {name: hashlib.sha256(header) for name, header in headers.items()}
    with ExitStack() as stack:
        files = {name: stack.enter_context(store.writing(paths[name])) for name in paths}
        for name, file in files.items():
            file.write(headers[name])
        for row in range(size):
            item, label = read_item(dataset, row)
            check_like_first(dataset, row, item, first)
            for name, values in by_name(item).items():
                content = np.ascontiguousarray(values).tobytes()
                files[name].write(content)
                digests[name].update(content)
            labels[row] = -1 if label is None else label
        # files get their names when the block ends: by then the labels and the record of all must be there
        content = store.npy_header(labels.shape, labels.dtype) + labels.tobytes()
        recorded = {paths[name].name: digest.hexdigest() for name, digest in digests.items()}
        input_files.note(path.parent, {**recorded, labels_path.name: store.digest(content)})
        store.write_bytes(labels_path, content)
    _check_length(dataset, size)
    return _mapped(paths), None if first_label is None else labels


def column_path(path: Path, number: int) -> Path:
    """The file of a column: by its number, since a name may not be that of a file everywhere."""
    return path.with_suffix(f".{number}.npy")


def _mapped(paths: Mapping[str, Path]) -> Inputs:
    columns = {name: MemoryMapped(path) for name, path in paths.items()}
    return columns[""] if "" in columns else Columns(columns)


def _is_materialised(dataset: Any, paths: Mapping[str, Path], labels_path: Path) -> bool:
    """Whether files have the items of a Dataset, judged by some of them."""
    if not all(path.exists() for path in (*paths.values(), labels_path)):
        return False
    stored = {name: MemoryMapped(path).array for name, path in paths.items()}
    labels = npy.read(labels_path, SAVE_AGAIN)
    if {len(dataset)} != {len(rows) for rows in (*stored.values(), labels)}:
        return False
    for row in _evenly_spaced(len(dataset)).tolist():
        item, label = read_item(dataset, row)
        known = from_names({name: np.asarray(rows[row]) for name, rows in stored.items()})
        if not equal(item, known) or labels[row] != (-1 if label is None else label):
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

    def __getitem__(self, row: int) -> Batch:
        item = by_name(read_item(self.dataset, row)[0])
        return from_names({name: torch.from_numpy(np.array(values)) for name, values in item.items()})


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


def _by_column(fingerprints: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The fingerprint of inputs by name, or of those that have none."""
    return fingerprints[""] if "" in fingerprints else {"columns": dict(fingerprints)}
