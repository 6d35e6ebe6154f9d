"""Worker processes, which import nothing from the current folder (Python's own way puts it first on their path)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import SpawnContext
from typing import Any

VARIABLE = "PYTHONSAFEPATH"  # read by a Python as it starts


@contextmanager
def spawning() -> Iterator[SpawnContext]:
    """The context for worker processes that are started inside the block; they then have the module path of this one."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield get_context("spawn")
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@contextmanager
def process_pool(workers: int, initializer: Callable[..., None], *arguments: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool of so many processes. If the block raises, each is sent SIGTERM and waited for: it may save what it has."""
    with spawning() as context, ProcessPoolExecutor(workers, context, initializer, arguments) as pool:
        # All start with the first job: one that started later, just as another died, would crash the pool's own thread.
        pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]  # private: tests/test_dependencies.py
        try:
            yield pool
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
