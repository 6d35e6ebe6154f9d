"""Shards as safetensors files: where torch's distributed checkpoints (DCP) are written to and read from.

DCP says which process keeps which piece of which tensor, and finds the pieces again whatever their number then. Its own
files hold pickles; these hold the pieces by name and place, and the sizes of the whole tensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as serialise
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

Place = tuple[int, ...]  # where a piece begins in its tensor
SIZES = "sizes"  # of the tensors that a file has pieces of: name → shape and type, as JSON


class ShardWriter(StorageWriter):
    """Keeps this process' shard of a checkpoint as the content of a safetensors file."""

    content = b""

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept from one checkpoint to the next."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is needed."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        pieces: dict[str, Tensor] = {}
        sizes: dict[str, Any] = {}
        for item in plan.items:
            assert item.tensor_data is not None
            name, value = item.index.fqn, planner.resolve_data(item)
            assert isinstance(value, Tensor)
            pieces[_key(name, tuple(item.tensor_data.chunk.offsets))] = value.detach().cpu().contiguous().clone()
            sizes[name] = [list(item.tensor_data.size), str(value.dtype).removeprefix("torch.")]
        self.content = serialise(pieces, {SIZES: json.dumps(sizes)})
        written: Future[list[WriteResult]] = Future()
        written.set_result([WriteResult(item.index, 0, None) for item in plan.items])
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """All that is to be known is in the files."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return checkpoint_id is None


class ShardReader(StorageReader):
    """Reads the pieces that this process needs from the shards of a checkpoint."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.places: dict[tuple[str, Place], Path] = {}

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept from one checkpoint to the next."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        described: dict[str, Any] = {}
        for path, file in self._files():
            sizes = json.loads(file.metadata()[SIZES])
            for key in file.keys():  # noqa: SIM118 (it is no mapping)
                name, place = _parse(key)
                size, kind = sizes[name]
                properties = TensorProperties(dtype=getattr(torch, kind))
                whole = described.setdefault(name, TensorStorageMetadata(properties, torch.Size(size), []))
                shape = torch.Size(file.get_slice(key).get_shape())
                if shape.numel():
                    whole.chunks.append(ChunkStorageMetadata(torch.Size(place), shape))
                    self.places[name, place] = path
        return Metadata(described)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is needed."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        with ExitStack() as resources:
            opened = {path: resources.enter_context(safe_open(path, "pt")) for path in self.paths}
            for item in plan.items:
                name, place = item.storage_index.fqn, tuple(item.storage_index.offset or ())
                piece = opened[self.places[name, place]].get_slice(_key(name, place))
                inside = zip(item.storage_offsets, item.lengths, strict=True)
                target = planner.resolve_tensor(item).detach()
                target.copy_(piece[tuple(slice(first, first + length) for first, length in inside)])
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return checkpoint_id is None

    def _files(self) -> Iterator[tuple[Path, Any]]:
        for path in self.paths:
            with safe_open(path, "pt") as file:
                yield path, file


def _key(name: str, place: Place) -> str:
    return f"{name}@{','.join(map(str, place))}"


def _parse(key: str) -> tuple[str, Place]:
    name, _, place = key.rpartition("@")
    return name, tuple(map(int, filter(None, place.split(","))))
