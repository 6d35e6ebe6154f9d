"""One pool of threads for the compiled kernels, which release the interpreter's lock. No result depends on its size.

`one_thread` is for the opposite: work on small matrices, which the threads of a matrix library make slower."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from wdistill.core.errors import bad_value

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def threads() -> int:
    """How many threads to use: WDISTILL_THREADS, or as many as this process may run on."""
    wanted = os.environ.get("WDISTILL_THREADS", "")
    if not wanted:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not wanted.isdecimal() or int(wanted) < 1:
        remedy = "set it to a whole number, or unset it to use every core"
        raise bad_value("not a number of threads", "WDISTILL_THREADS", wanted, "1, 2, 3 …", remedy)
    return int(wanted)


def blocks(rows: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows."""
    return (slice(first, min(first + size, rows)) for first in range(0, rows, size))


def parallel(function: Callable[[slice], None], rows: int, size: int) -> None:
    """Call `function` on every block of rows, several at a time; the error of the first block that has one is raised."""
    waiting = list(blocks(rows, size))
    helpers = min(threads(), len(waiting)) - 1
    if helpers <= 0:
        for part in waiting:
            function(part)
        return
    waiting.reverse()
    errors: list[tuple[int, BaseException]] = []

    def work() -> None:
        while waiting and not errors:
            try:
                part = waiting.pop()
            except IndexError:  # another thread was faster
                return
            try:
                function(part)
            except BaseException as error:  # raised below, in the caller's thread
                errors.append((part.start, error))

    pool = _pool(threads(), os.getpid())
    futures = [pool.submit(work) for _ in range(helpers)]
    work()
    for future in futures:
        future.result()
    if errors:
        raise min(errors, key=lambda error: error[0])[1]


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrix libraries use one thread inside the block.

    scipy's L-BFGS-B wakes all of them in every step, for triangles of ten rows: on a busy machine it waits longer than it
    works (https://github.com/OpenMathLib/OpenBLAS/issues/5383).
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


@cache
def _pool(size: int, process: int) -> ThreadPoolExecutor:
    """One pool per size and process: threads do not survive a fork."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(size, thread_name_prefix="wdistill")
