"""Stopping a run, so that it saves and exits: SIGTERM and Ctrl-C set a flag that is checked between steps."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait as wait_for
from types import FrameType


class Stop:
    """Whether a signal to stop was received, and which one. A second one exits at once."""

    def __init__(self, *, of_several: bool = False) -> None:
        self.signal = 0
        self.of_several = of_several  # processes that wait for each other: none may leave in the middle of an exchange

    def __call__(self) -> bool:
        return self.signal != 0

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        if self.signal and number == signal.SIGINT and not self.of_several:
            raise KeyboardInterrupt  # so that a notebook keeps running
        if self.signal:
            os._exit(128 + number)  # what is committed is kept
        self.signal = number

    def leave(self) -> None:
        """Exit as the signal demands, once all is saved."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SystemExit(128 + self.signal) from None


@contextmanager
def stopping() -> Iterator[Stop]:
    """Listen for SIGTERM and SIGINT while the block runs; only the main thread can."""
    stop = Stop(of_several="TORCHELASTIC_RUN_ID" in os.environ)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def die_with_parent() -> None:
    """Start a thread that ends this process when its parent is gone."""
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait_for([parent.sentinel]), os._exit(1)), daemon=True).start()
