"""Inputs of one split, as rows that a batch is gathered from: held in memory, mapped from a file, or by a DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wdistill import store
from wdistill.errors import InputError, UnfinishedError

READ = 1 << 30  # bytes of a mapped file up to which a training reads it into memory
SAMPLED = 256  # rows of a mapped file or of a stream that its fingerprint looks at


class Inputs(Protocol):
    """Rows (n, …) in a fixed order."""

    def __len__(self) -> int: ...

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        """For every vector of row numbers, those rows as one tensor."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """What tells these rows from others, as JSON."""
        ...


@dataclass(frozen=True, eq=False)
class Held:
    """Rows in memory, on any device."""

    values: Tensor  # (n, …)

    def __len__(self) -> int:
        return len(self.values)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        device = self.values.device
        return (self.values.index_select(0, rows.to(device)) for rows in orders)

    def fingerprint(self) -> dict[str, Any]:
        array = self.values.detach().cpu().contiguous()
        content = array.view(torch.uint8).numpy().data if array.numel() else memoryview(b"")
        return _described(tuple(array.shape), str(array.dtype), store.digest(content))


@dataclass(frozen=True)
class Mapped:
    """Rows of an .npy file, read from the disk as they are needed."""

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
        """Of the shape and of rows spread over the file: a file may be larger than one wants to read."""
        array = self.array
        rows = np.ascontiguousarray(array[_spread(len(array))])
        return _described(array.shape, str(torch.from_numpy(rows[:1]).dtype), store.digest(rows.tobytes()), sampled=True)


@dataclass(frozen=True, eq=False)
class Streamed:
    """A map-style Dataset read by a DataLoader in every epoch, with `workers` processes that load ahead.

    Pass it in place of a Dataset to say that its items shall not be kept in one array.
    """

    dataset: Any
    workers: int = 0

    def __len__(self) -> int:
        return len(self.dataset)

    @cached_property
    def _loader(self) -> tuple[list[list[int]], Any]:
        """A list for the rows of every batch of a pass, and a DataLoader that reads them, whose processes stay."""
        from torch.utils.data import DataLoader

        plan: list[list[int]] = []
        items: Any = _Items(self.dataset)
        loader: Any = DataLoader(
            items,
            batch_sampler=plan,
            num_workers=self.workers,
            multiprocessing_context="spawn" if self.workers else None,
            persistent_workers=self.workers > 0,
            generator=torch.Generator(),  # of its own: the global one is not touched
        )
        return plan, loader

    def __reduce__(self) -> tuple[Any, ...]:
        return Streamed, (self.dataset, self.workers)  # another process starts its own

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        """One pass at a time: a second one would take the rows of the first."""
        plan, loader = self._loader
        size = len(self.dataset)
        plan[:] = [rows.tolist() for rows in orders]
        try:
            yield from loader
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise UnfinishedError(
                "a process that loads ahead died",
                where=f"Streamed({type(self.dataset).__name__}, workers={self.workers})",
                found=str(error).splitlines()[0],
                expected="processes that live until their work is done",
                remedy="run again to go on; with fewer workers if memory was short",
            ) from error
        if len(self.dataset) != size:
            raise _changed_length(size, len(self.dataset))

    def fingerprint(self) -> dict[str, Any]:
        rows = [read_item(self.dataset, int(row))[0] for row in _spread(len(self))]
        content = b"".join(np.ascontiguousarray(row).tobytes() for row in rows)
        shape = (len(self), *(rows[0].shape if rows else ()))
        return _described(shape, str(rows[0].dtype) if rows else "", store.digest(content), sampled=True)


@dataclass(frozen=True, eq=False)
class Picked:
    """Some rows of a split, in a given order."""

    inputs: Inputs
    rows: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        return self.inputs.batches([self.rows[order] for order in orders])

    def fingerprint(self) -> dict[str, Any]:
        return {**self.inputs.fingerprint(), "rows": store.digest(self.rows.numpy().tobytes())}


@dataclass(frozen=True, eq=False)
class Union:
    """Several splits one after the other."""

    parts: Sequence[Inputs]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def batches(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        plan = list(orders)
        ends = np.cumsum([len(part) for part in self.parts])
        streams, places = [], []
        for part, end in zip(self.parts, ends, strict=True):
            inside = [torch.nonzero((rows >= end - len(part)) & (rows < end))[:, 0] for rows in plan]
            places.append(inside)
            first = int(end) - len(part)
            streams.append(part.batches([rows[at] - first for rows, at in zip(plan, inside, strict=True) if len(at)]))
        for step, rows in enumerate(plan):
            found = [
                (inside[step], next(stream)) for inside, stream in zip(places, streams, strict=True) if len(inside[step])
            ]
            batch = found[0][1].new_empty((len(rows), *found[0][1].shape[1:]))
            for at, values in found:
                if (values.dtype, values.shape[1:]) != (batch.dtype, batch.shape[1:]):
                    raise _different_kinds({(each.dtype, each.shape[1:]) for each in (batch, values)})
                batch[at.to(batch.device)] = values.to(batch.device)
            yield batch

    def fingerprint(self) -> dict[str, Any]:
        return {"parts": [part.fingerprint() for part in self.parts]}


def union(parts: Sequence[Inputs]) -> Inputs:
    """Several splits as one: one tensor where they fit into memory, so that a batch is one gather."""
    held = [found.values for part in parts if (found := _in_memory(part)) is not None]
    if len(held) < len(parts):
        return Union(parts)
    if len({values.dtype for values in held}) > 1 and all(values.is_floating_point() for values in held):
        held = [values.float() for values in held]  # as they are used
    kinds = {(values.dtype, values.shape[1:]) for values in held}
    if len(kinds) > 1:
        raise _different_kinds(kinds)
    return Held(torch.cat(held))


def _in_memory(part: Inputs) -> Held | None:
    """Rows that are in memory already, or small enough to be read into it."""
    if isinstance(part, Held):
        return part
    if isinstance(part, Mapped) and part.path.stat().st_size <= READ:
        return Held(torch.from_numpy(np.load(part.path, allow_pickle=False)))
    if isinstance(part, Picked) and (whole := _in_memory(part.inputs)) is not None:
        return Held(whole.values.index_select(0, part.rows.to(whole.values.device)))
    return None


def read_item(dataset: Any, row: int) -> tuple[NDArray[Any], int | None]:
    """One item of a map-style Dataset: an input, or a pair of input and label."""
    try:
        item = dataset[row]
    except Exception as error:
        raise InputError(
            "an item cannot be read",
            where=f"{type(dataset).__name__}, item {row}",
            found=f"{type(error).__name__}: {error}",
            expected="an input, or a pair of input and label",
            remedy="mend or leave out that item",
        ) from error
    pair = (*item, None)[:2] if isinstance(item, tuple | list) and len(item) in (1, 2) else (item, None)
    try:
        value = pair[0].detach().cpu().numpy() if isinstance(pair[0], Tensor) else np.asarray(pair[0])
        label = None if pair[1] is None else int(pair[1])
    except (TypeError, ValueError) as error:
        raise _not_an_item(dataset, row, str(error)) from error
    if value.dtype.kind not in "fiub":
        raise _not_an_item(dataset, row, f"a {type(pair[0]).__name__}")
    return value, label


def _not_an_item(dataset: Any, row: int, found: str) -> InputError:
    return InputError(
        "an item of another kind",
        where=f"{type(dataset).__name__}, item {row}",
        found=found,
        expected="a tensor or array of numbers, or a pair of it and a class number",
        remedy="wrap the Dataset in one whose items are such pairs",
    )


def _different_kinds(kinds: Iterable[tuple[torch.dtype, torch.Size]]) -> InputError:
    return InputError(
        "the splits have rows of different kinds",
        where="inputs",
        found=" and ".join(f"{tuple(shape)} of {dtype}" for dtype, shape in kinds),
        expected="rows of one shape and type in all splits",
        remedy="prepare labeled, validation and unlabeled inputs in the same way",
    )


def materialise(dataset: Any, path: Path) -> tuple[Mapped, NDArray[np.int64] | None]:
    """Read every item once into an .npy file; returns the rows and, where items are pairs, their labels.

    A file that an earlier start of the run has left is taken as it is, if items spread over the Dataset are those in it.
    """
    size, beside = len(dataset), path.with_suffix(".labels.npy")
    first, label = read_item(dataset, 0)
    if _is_read(dataset, path, beside):
        return Mapped(path), None if label is None else np.load(beside, allow_pickle=False)
    header = _npy_header((size, *first.shape), first.dtype)
    store.check_space(path.parent, len(header) + size * first.nbytes, "the inputs")
    labels = np.empty(size, np.int64)
    with store.writing(path) as file:
        file.write(header)
        for row in range(size):  # it is renamed to its place when the block ends: the labels are there before
            value, found = read_item(dataset, row)
            if value.shape != first.shape or value.dtype != first.dtype:
                raise InputError(
                    "an item of another kind",
                    where=f"{type(dataset).__name__}, item {row}",
                    found=f"{value.shape} of {value.dtype}",
                    expected=f"{first.shape} of {first.dtype}, as item 0",
                    remedy="resize or pad items to one shape inside the Dataset",
                )
            file.write(np.ascontiguousarray(value).tobytes())
            labels[row] = -1 if found is None else found
        store.write_bytes(beside, _npy_header(labels.shape, labels.dtype) + labels.tobytes())
    if len(dataset) != size:
        raise _changed_length(size, len(dataset))
    return Mapped(path), None if label is None else labels


def _is_read(dataset: Any, path: Path, beside: Path) -> bool:
    """Whether a file holds the items of a Dataset, by the look of some."""
    if not (path.exists() and beside.exists()):
        return False
    stored, labels = Mapped(path).array, np.load(beside, allow_pickle=False)
    if not len(stored) == len(labels) == len(dataset):
        return False
    for row in _spread(len(dataset)).tolist():
        value, label = read_item(dataset, row)
        same = value.dtype == stored.dtype and np.array_equal(value, stored[row])
        if not same or labels[row] != (-1 if label is None else label):
            return False
    return True


def spill(inputs: Held, path: Path) -> Mapped:
    """Rows in memory written to an .npy file, for other processes to map."""
    array = np.ascontiguousarray(inputs.values.detach().cpu().numpy())
    header = _npy_header(array.shape, array.dtype)
    store.check_space(path.parent, len(header) + array.nbytes, "the inputs")
    with store.writing(path) as file:
        file.write(header)
        file.write(array.data)
    return Mapped(path)


class _Items:
    """The inputs of a Dataset, without labels."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Tensor:
        return torch.from_numpy(np.array(read_item(self.dataset, row)[0]))


def _npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    import io

    buffer = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


def _changed_length(then: int, now: int) -> InputError:
    return InputError(
        "the Dataset changed its length while it was read",
        where="dataset",
        found=f"{now} items",
        expected=f"{then} items, as at the start",
        remedy="pass a Dataset of fixed length",
    )


def _spread(n: int) -> NDArray[np.int64]:
    """Row numbers spread evenly over n rows, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, SAMPLED)).round().astype(np.int64)) if n else np.empty(0, np.int64)


def _described(shape: tuple[int, ...], dtype: str, sha256: str, *, sampled: bool = False) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype.removeprefix("torch."), "sha256": sha256, "sampled": sampled}
