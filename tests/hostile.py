"""A table read in a process of its own, with its memory and time measured: for files that mean harm."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from wdistill.core.errors import WdistillError
from wdistill.tables.formats.table import open_tables

BEYOND = 256 << 20  # bytes that reading may need beyond the size of the file
SECONDS = 5.0
CEILING = 2 << 30  # bytes of addresses beyond those at the start; the machine is not to suffer


@dataclass(frozen=True)
class Outcome:
    """How the reading of a table ended: rows, or the message of an error, or neither where the process died."""

    rows: int | None
    error: str  # class and message of a declared error, of any other one with "undeclared" before it
    memory: int  # bytes at the peak beyond those at the start
    seconds: float
    exit: int | None  # of the process: a signal as a negative number


def outcome(sources: Sequence[object], matrices: Sequence[str] = ("teacher",), vectors: Sequence[str] = ()) -> Outcome:
    """Read the one table that the sources are, and keep nothing of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.hostile"])
    ours, theirs = context.Pipe(duplex=False)
    start = time.monotonic()
    child = context.Process(target=_child, args=(theirs, [str(source) for source in sources], matrices, vectors))
    child.start()
    theirs.close()
    child.join(4 * SECONDS)
    if child.is_alive():
        child.kill()
        child.join()
    try:
        rows, error, memory, seconds = ours.recv()
    except EOFError:
        rows, error, memory, seconds = None, "", 0, time.monotonic() - start
    return Outcome(rows, error, memory, seconds, child.exitcode)


def harmless(
    *sources: Path, words: Sequence[str] = (), matrices: Sequence[str] = ("teacher",), vectors: Sequence[str] = ()
) -> Outcome:
    """Check that a table is read, or refused with these words, within the bounds of memory and time."""
    got = outcome(sources, matrices, vectors)
    size = sum(source.stat().st_size for source in sources)
    assert got.exit == 0, f"the process ended with {got.exit} after {got.seconds:.1f} s"
    assert not got.error.startswith("undeclared"), got.error
    assert got.memory <= BEYOND + size, f"{got.memory >> 20} MB for a file of {size} bytes: {got.error or got.rows}"
    assert got.seconds <= SECONDS, f"{got.seconds:.1f} s: {got.error or got.rows}"
    assert bool(got.error) == bool(words), got.error or f"{got.rows} rows were read"
    for word in words:
        assert word in got.error, f"{word!r} is not in: {got.error}"
    return got


def status(field: str) -> int:
    """A figure of this process in bytes: VmHWM, VmRSS, VmSize."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def _child(pipe: Connection, sources: list[str], matrices: Sequence[str], vectors: Sequence[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + CEILING, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, start, rows, error = status("VmRSS"), time.process_time(), None, ""
    try:
        (table,) = open_tables(sources, option="--unlabeled")
        rows = sum(len(chunk.ids) for chunk in table.chunks(matrices, vectors))
    except WdistillError as declared:
        error = f"{type(declared).__name__}: {declared}"
    except Exception as other:
        error = f"undeclared {type(other).__name__}: {other}"
    pipe.send((rows, error, status("VmHWM") - before, time.process_time() - start))
