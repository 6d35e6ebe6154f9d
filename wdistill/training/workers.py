"""Training jobs run one after the other in this process, or in parallel in worker processes that end with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from types import FrameType
from typing import Any

from wdistill.core import checks
from wdistill.core.errors import worker_died
from wdistill.core.processes import process_pool
from wdistill.core.signals import Stop, die_with_parent
from wdistill.training.jobs import TrainingJob, run_job
from wdistill.training.packing import packed, unpacked
from wdistill.training.stage import Callbacks, StoppedError

OnEvent = Callable[[Mapping[str, Any]], None]


@contextmanager
def worker_pool(workers: int, stop: Stop, on_event: OnEvent) -> Iterator[Callable[[Sequence[TrainingJob]], None]]:
    """A function that runs jobs; the first error ends all of them, and each keeps what it has committed."""
    if workers == 1:

        def sequentially(jobs: Sequence[TrainingJob]) -> None:
            for job in jobs:
                run_job(job, Callbacks(stop, on_event))

        yield sequentially
        return
    receiver, sender = Pipe(duplex=False)
    with _listening(receiver, sender, on_event), process_pool(workers, _begin, sender, tuple(sys.path)) as pool:
        yield lambda jobs: _in_parallel(pool, jobs, stop)


def _in_parallel(pool: Executor, jobs: Sequence[TrainingJob], stop: Stop) -> None:
    try:
        pending = {pool.submit(_run_packed, packed(job, job.name)) for job in jobs}
        while pending:
            done, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            if stop():
                raise StoppedError("stopped")
    except BrokenProcessPool:
        if stop():
            raise StoppedError("stopped") from None
        guard = 'a script that uses workers calls distill below the line: if __name__ == "__main__":'
        raise worker_died("workers", more=guard) from None


@contextmanager
def _listening(receiver: Any, sender: Any, on_event: OnEvent) -> Iterator[None]:
    """Pass on the workers' messages, until the block ends and they are gone.

    A pipe instead of a queue: a message is one write, so that a worker killed at any moment leaves no lock behind.
    """

    def listen() -> None:
        with suppress(EOFError):
            while True:
                message = receiver.recv()
                with suppress(Exception):  # whatever a message causes, the pipe must be read, or its writers block
                    checks.warn(message["text"]) if message["what"] == "warning" else on_event(message)

    thread = threading.Thread(target=listen, name="wdistill-listener", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sender.close()
        thread.join()


LONGEST = 800  # characters of a warning: a single write to a pipe must be short
_messages: Any = None
_stop = Stop()
_busy = False


def _begin(messages: Any, path: Sequence[str]) -> None:
    """Set up a worker: end with the parent, save on SIGTERM, and use the parent's module path."""
    global _messages
    _messages = messages
    sys.path[:] = path
    die_with_parent()
    signal.signal(signal.SIGTERM, _on_sigterm)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which passes it on


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM, sent by the parent or to the whole group: exit once the current work is saved."""
    _stop.signal = number
    if not _busy:
        os._exit(128 + number)


def _run_packed(job: bytes) -> None:
    global _busy
    _busy = True

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _messages.send({"what": "warning", "text": str(message)[:LONGEST]})

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            run_job(unpacked(job), Callbacks(_stop, _messages.send))
    except StoppedError:
        os._exit(128 + _stop.signal)  # all is saved; a dead process may hold the pool's locks, so no result is sent
    finally:
        _busy = False
        if _stop():  # the job ended before it saw that: the same holds
            os._exit(128 + _stop.signal)
