"""Pieces of a run done one after the other here, or side by side in processes of their own that die with this one."""

from __future__ import annotations

import os
import pickle  # between our own processes, through their pipe; never from a file
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from types import FrameType
from typing import Any

from wdistill import checks
from wdistill.errors import ConfigError, UnfinishedError
from wdistill.signals import Stop, die_with_parent
from wdistill.training.stage import StoppedError, Watch
from wdistill.training.work import Work, do

Say = Callable[[Mapping[str, Any]], None]


@contextmanager
def crew(workers: int, stop: Stop, say: Say) -> Iterator[Callable[[Sequence[Work]], None]]:
    """A function that does pieces of work; the first error ends all of them, each having kept what it had committed."""
    if workers == 1:

        def one_after_the_other(works: Sequence[Work]) -> None:
            for work in works:
                do(work, Watch(stop, say))

        yield one_after_the_other
        return
    context = get_context("spawn")
    heard, messages = context.Pipe(duplex=False)
    with _listening(heard, messages, say):
        pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(messages, tuple(sys.path)))
        with pool:
            yield lambda works: _side_by_side(pool, works, stop)


def _side_by_side(pool: ProcessPoolExecutor, works: Sequence[Work], stop: Stop) -> None:
    try:
        pending = {pool.submit(_do, packed(work, work.name)) for work in works}
        while pending:
            done, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
            for each in done:
                each.result()
            if stop():
                raise StoppedError("stopped")
    except BaseException as error:
        end(pool)  # they save and leave
        if not isinstance(error, BrokenProcessPool):
            raise
        if stop():
            raise StoppedError("stopped") from None
        raise UnfinishedError(
            "a worker process died",
            where="workers",
            found="it was killed, or ran out of memory, or could not begin",
            expected="processes that live until their work is done",
            remedy="run again to go on; with fewer workers if memory was short. A script that uses workers calls distill "
            'below the line: if __name__ == "__main__":',
        ) from None


def end(pool: ProcessPoolExecutor) -> None:
    """Ask every process of a pool to leave: also one that began just as another died, which a broken pool forgets."""
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.terminate()


@contextmanager
def _listening(heard: Any, messages: Any, say: Say) -> Iterator[None]:
    """Hand on what the workers say, until the block ends and they are gone.

    A pipe and no queue: a message is one write, so that a worker killed at any moment leaves no lock behind.
    """

    def listen() -> None:
        with suppress(EOFError):
            while True:
                message = heard.recv()
                with suppress(Exception):  # whatever becomes of a message, the pipe must be read, or its writers wait
                    checks.warn(message["text"]) if message["what"] == "warning" else say(message)

    thread = threading.Thread(target=listen, name="wdistill-listener", daemon=True)
    thread.start()
    try:
        yield
    finally:
        messages.close()
        thread.join()


def packed(thing: Any, name: str) -> bytes:
    """What goes to a worker, as bytes."""
    try:
        return pickle.dumps(thing)
    except Exception as error:
        raise ConfigError(
            "this cannot be sent to another process",
            where=f"workers: {name}",
            found=f"{type(error).__name__}: {error}",
            expected="modules, rules and Datasets that are defined at the top of an importable module",
            remedy="define them there, or use workers=1",
        ) from None


LONGEST = 800  # letters of a warning: what is written at once to a pipe must be short
_messages: Any = None
_stop = Stop()
_busy = False


def _begin(messages: Any, path: Sequence[str]) -> None:
    """A worker's first act: die with the parent, save on SIGTERM, and find the modules that the parent found."""
    global _messages
    _messages = messages
    sys.path[:] = path
    die_with_parent()
    signal.signal(signal.SIGTERM, _asked)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which passes it on


def _asked(number: int, frame: FrameType | None) -> None:
    """SIGTERM, from the parent or from whoever ends a whole group: leave, but not before the work at hand is saved."""
    _stop.signal = number
    if not _busy:
        os._exit(128 + number)


def _do(packed: bytes) -> None:
    global _busy
    _busy = True

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _messages.send({"what": "warning", "text": str(message)[:LONGEST]})

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            do(pickle.loads(packed), Watch(_stop, _messages.send))
    except StoppedError:
        os._exit(128 + _stop.signal)  # all is saved; the pool's locks may be a dead process's, so no answer is tried
    finally:
        _busy = False
