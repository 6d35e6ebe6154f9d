"""Worker processes that die, or start just as another dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.killing import child
from wdistill.core import store
from wdistill.core.errors import UnfinishedError
from wdistill.core.processes import process_pool
from wdistill.core.signals import Stop
from wdistill.training import workers
from wdistill.training.packing import packed
from wdistill.training.stage import StoppedError
from wdistill.training.workers import _in_parallel


class BrokenPool:
    """A pool that breaks: as a job is handed in, or after all of them were."""

    def __init__(self, late: bool) -> None:
        self.late = late

    def submit(self, *_: Any) -> Future[None]:
        if not self.late:
            raise BrokenProcessPool
        future: Future[None] = Future()
        future.set_exception(BrokenProcessPool())
        return future


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(("number", "error"), [(None, UnfinishedError), (15, StoppedError)])
def test_a_broken_pool_is_an_unfinished_run(late: bool, number: int | None, error: type[Exception]) -> None:
    stop = Stop()
    if number:
        stop.signal = number
    with pytest.raises(error):
        _in_parallel(BrokenPool(late), [SimpleNamespace(name="teacher"), SimpleNamespace(name="student")], stop)  # type: ignore[arg-type,list-item]


@pytest.mark.kill
@pytest.mark.parametrize("ends", [lambda: None, lambda: 1 / 0], ids=["well", "badly"])
def test_a_worker_that_is_stopped_as_its_job_ends_waits_for_no_other(ends: Callable[[], object], tmp_path: Path) -> None:
    def run(folder: Path) -> None:
        def stopped_at_the_end(*_: object) -> None:
            workers._on_sigterm(signal.SIGTERM, None)
            ends()

        workers.run_job, workers._messages = stopped_at_the_end, SimpleNamespace(send=print)
        workers._run_packed(packed(None, "a job"))

    assert child(tmp_path, store.before, run) == 128 + signal.SIGTERM


def nothing() -> None: ...


@pytest.mark.kill
@pytest.mark.parametrize("breaks", [lambda pid: os.kill(pid, signal.SIGKILL), lambda pid: 1 / 0], ids=["killed", "raises"])
def test_whatever_breaks_a_block_no_process_is_left(breaks: Callable[[int], object]) -> None:
    with pytest.raises((BrokenProcessPool, ZeroDivisionError)), process_pool(2, nothing) as pool:
        first = pool.submit(os.getpid)
        started = list(pool._processes.values())
        assert len(started) == 2, "all start with the first job: one that starts later may crash the pool's thread"
        first.result()
        breaks(started[0].pid)
        while True:
            pool.submit(os.getpid).result()
    assert not any(process.is_alive() for process in started)
