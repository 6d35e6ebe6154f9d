"""Starting worker processes, which import nothing from the current folder: Python's own way puts it first on their path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import SpawnContext

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
