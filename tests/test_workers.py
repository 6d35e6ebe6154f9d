"""Processes of a crew that die, or begin just as another dies."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace
from typing import Any

import pytest

from wdistill.core.errors import UnfinishedError
from wdistill.core.signals import Stop
from wdistill.training.stage import StoppedError
from wdistill.training.workers import _in_parallel


class Process:
    ended = False

    def terminate(self) -> None:
        self.ended = True


class Pool:
    """A pool that breaks: as work is handed in, or after all of it was."""

    def __init__(self, late: bool) -> None:
        self.late, self._processes = late, {1: Process(), 2: Process()}

    def submit(self, *_: Any) -> Future[None]:
        if not self.late:
            raise BrokenProcessPool
        future: Future[None] = Future()
        future.set_exception(BrokenProcessPool())
        return future


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(("signal", "error"), [(None, UnfinishedError), (15, StoppedError)])
def test_a_broken_pool_leaves_no_process_behind(late: bool, signal: int | None, error: type[Exception]) -> None:
    pool, stop = Pool(late), Stop()
    if signal:
        stop.signal = signal
    with pytest.raises(error):
        _in_parallel(pool, [SimpleNamespace(name="teacher"), SimpleNamespace(name="student")], stop)  # type: ignore[arg-type,list-item]
    assert all(process.ended for process in pool._processes.values())
