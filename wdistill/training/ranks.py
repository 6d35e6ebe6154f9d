"""The ranks of a run: the processes that torchrun has started for it. Rank 0 leads, the others follow (followers.py).

The leader does all that a run of one process does: it reads, decides, writes and prints. The followers compute what it asks
of them: a share of a batch's gradients, of predictions, or whole trainings. So one process writes (but for shards, which
each writes and the leader lists: sharded.py), and none can disagree with another about what comes next. What is sent
between them is pickled; nothing that comes from a file is.
"""

from __future__ import annotations

import atexit
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from wdistill.core.errors import UnfinishedError, WdistillError, from_words, in_words
from wdistill.training.packing import packed, unpacked

PARTING = 0.2  # seconds that gloo's threads have at the end
WAIT = timedelta(days=30)  # a follower waits while the leader reads; a process that dies is noticed at once
GONE = re.compile("gloo|NCCL|[Cc]onnection")  # in what torch raises where another process is gone


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int = 0
    size: int = 1
    group: Any = None

    def tell(self, order: str, *values: Any) -> None:
        """The leader: an order for all followers."""
        if self.size > 1:
            content = np.frombuffer(bytearray(packed((order, *values), order)), np.uint8)
            with self.alive():
                dist.broadcast(torch.tensor([len(content)]), 0, group=self.group)
                dist.broadcast(torch.from_numpy(content), 0, group=self.group)

    def hear(self) -> tuple[Any, ...]:
        """A follower: the leader's next order, and its values."""
        length = torch.zeros(1, dtype=torch.int64)
        with self.alive():
            dist.broadcast(length, 0, group=self.group)
            content = torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(content, 0, group=self.group)
        order: tuple[Any, ...] = unpacked(content.numpy().data)
        return order

    def agree(self, value: Any) -> list[Any]:
        """What every rank says, in their order, known to all."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self.alive():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def exchange(self, rows: Tensor) -> Tensor:
        """Row i of every rank to rank i: (size, s) → (size, s), of rank j in row j."""
        received = torch.empty_like(rows)
        with self.alive():
            dist.all_to_all_single(received, rows, group=self.group)
        return received

    def gather(self, shard: Tensor) -> Tensor:
        """(s,) of every rank, one after the other, known to all: (size · s,)."""
        shards = [torch.empty_like(shard) for _ in range(self.size)]
        with self.alive():
            dist.all_gather(shards, shard, group=self.group)
        return torch.cat(shards)

    def send(self, values: NDArray[np.float32]) -> None:
        """A follower: an array for the leader."""
        with self.alive():
            dist.send(torch.tensor([values.ndim, *values.shape, *[0] * (4 - values.ndim)]), 0, group=self.group)
            dist.send(torch.from_numpy(np.ascontiguousarray(values)), 0, group=self.group)

    def receive(self, rank: int) -> NDArray[np.float32]:
        """The leader: the array of a follower."""
        described = torch.zeros(5, dtype=torch.int64)
        with self.alive():
            dist.recv(described, rank, group=self.group)
            ndim, *shape = described.tolist()
            values = torch.empty(shape[:ndim])
            dist.recv(values, rank, group=self.group)
        return values.numpy()

    @contextmanager
    def alive(self) -> Iterator[None]:
        """While the block exchanges something: where another process is gone, or this one has left, an error of ours."""
        if _left is not None:
            raise _left
        try:
            yield
        except torch.OutOfMemoryError as error:
            lack = UnfinishedError(
                "memory ran out",
                where=f"process {self.rank} of {self.size} (from 0)",
                found=str(error).splitlines()[0][:200],
                expected="room for what the processes send each other",
                remedy="start it again with more processes, or smaller batches; the same command resumes",
            )
            raise self.leave(lack) from None
        except RuntimeError as error:
            raise UnfinishedError(
                "another process of this run is gone",
                where=f"process {self.rank} of {self.size} (from 0)",
                found=str(error).splitlines()[0][:200],
                expected=f"all {self.size} processes that torchrun started",
                remedy="start it again: the same command resumes, on any number of processes",
            ) from None

    def leave(self, error: Exception) -> Exception:
        """This process has failed where the others cannot be told, since they wait for its part: it says nothing more.

        They notice when it ends. Returns its error, or that another process is gone, where that was the reason.
        """
        global _left
        cause = error.__cause__ or error
        if isinstance(cause, RuntimeError) and GONE.search(str(cause)):
            try:
                with self.alive():
                    raise cause
            except UnfinishedError as gone:
                error = gone
        words = in_words(error)
        _left = from_words({**words, "kind": UnfinishedError.__name__})
        return error


ALONE = Ranks()
_connected: Ranks | None = None
_left: WdistillError | None = None
_apart = False


def ranks() -> Ranks:
    """The ranks of this run: the processes that torchrun has started, or this one alone."""
    global _connected
    if _apart or not is_launched():
        return ALONE
    if _connected is None:
        _connected = _connect()
    return _connected


def is_launched() -> bool:
    """Whether torchrun has started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_follower() -> bool:
    """Whether torchrun has started this process, and it is not the leader."""
    return is_launched() and os.environ.get("RANK", "0") != "0"


def local_rank() -> int:
    """The number of this process among those of this machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if is_launched() else 0


@contextmanager
def apart() -> Iterator[None]:
    """While the block runs, this process works by itself."""
    global _apart
    before, _apart = _apart, True
    try:
        yield
    finally:
        _apart = before


def _connect() -> Ranks:
    if dist.is_initialized():  # by the program that calls us
        group = dist.new_group(backend="gloo", timeout=WAIT)
    else:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=WAIT)
        atexit.register(_disconnect)
        group = None
    return Ranks(dist.get_rank(group), dist.get_world_size(group), group)


def _disconnect() -> None:
    """Leave the others, and let gloo's threads drop what they hold of Python: one that does so later aborts the process."""
    dist.destroy_process_group()
    time.sleep(PARTING)
