"""Files read in a process of their own, with its memory and time measured: for files that mean harm."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import wdistill
from wdistill.answers.gold_labels import read_gold_labels
from wdistill.answers.read import open_answers
from wdistill.cli.entry import parser
from wdistill.core.errors import FileError, WdistillError
from wdistill.methods.metric_text import read_costs
from wdistill.report.verify import verify
from wdistill.tables.formats.table import open_tables

Read = Callable[[list[str]], int]  # what the paths are; a function of a module, so that another process finds it
BEYOND = 256 << 20  # bytes that reading may need beyond the size of the file
SECONDS = 5.0
CEILING = 2 << 30  # bytes of addresses beyond those at the start; the machine is not to suffer


@dataclass(frozen=True)
class Outcome:
    """How the reading ended: rows, or the message of an error, or neither where the process died."""

    rows: int | None
    error: str  # class and message of a declared error, of any other one with "undeclared" before it
    memory: int  # bytes at the peak beyond those at the start
    seconds: float
    exit: int | None  # of the process: a signal as a negative number


def outcome(sources: Sequence[object], read: Read) -> Outcome:
    """Read what the sources are, and keep nothing of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.hostile"])
    ours, theirs = context.Pipe(duplex=False)
    start = time.monotonic()
    child = context.Process(target=_child, args=(theirs, [str(source) for source in sources], read))
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
    *sources: Path,
    words: Sequence[str] = (),
    matrices: Sequence[str] = ("teacher",),
    vectors: Sequence[str] = (),
    read: Read | None = None,
) -> Outcome:
    """Check that a table, or what `read` reads, is read, or refused with these words, within bounds of memory and time."""
    got = outcome(sources, read or partial(rows_of, matrices=matrices, vectors=vectors))
    size = sum(each.stat().st_size for source in sources for each in ([source] if source.is_file() else source.iterdir()))
    assert got.exit == 0, f"the process ended with {got.exit} after {got.seconds:.1f} s"
    assert not got.error.startswith("undeclared"), got.error
    assert got.memory <= BEYOND + size, f"{got.memory >> 20} MB for a file of {size} bytes: {got.error or got.rows}"
    assert got.seconds <= SECONDS, f"{got.seconds:.1f} s: {got.error or got.rows}"
    assert bool(got.error) == bool(words), got.error or f"{got.rows} rows were read"
    for word in words:
        assert word in got.error, f"{word!r} is not in: {got.error}"
    return got


# ways of reading: from paths to how much was read ---------------------------------------------------------------------


def rows_of(sources: list[str], matrices: Sequence[str], vectors: Sequence[str]) -> int:
    """The one table that the sources are."""
    (table,) = open_tables(sources, option="--unlabeled")
    return sum(len(chunk.ids) for chunk in table.chunks(matrices, vectors))


def verified(sources: list[str]) -> int:
    """A file of weights, by `wdistill verify`."""
    _, states = verify(Path(sources[0]))
    if any(state.is_bad for state in states):
        raise FileError("damaged", where=sources[0])
    return len(states)


def inspected(sources: list[str]) -> int:
    """A file of weights, by `wdistill inspect`."""
    arguments = parser().parse_args(["inspect", sources[0], "--picture", f"{sources[0]}.png"])
    arguments.run(arguments)
    return 1


def loaded(sources: list[str]) -> int:
    """A saved rule."""
    wdistill.load(sources[0])
    return 1


def costs(sources: list[str]) -> int:
    """A matrix of costs."""
    return len(read_costs(Path(sources[0])))


def answers(sources: list[str]) -> int:
    """The first look at a file of answers."""
    return open_answers(sources[0]).rows_about


def gold_labels(sources: list[str]) -> int:
    """A file of gold labels."""
    return len(read_gold_labels(sources[0]).labels)


def status(field: str) -> int:
    """A figure of this process in bytes: VmHWM, VmRSS, VmSize."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def _child(pipe: Connection, sources: list[str], read: Read) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + CEILING, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, start, rows, error = status("VmRSS"), time.process_time(), None, ""
    try:
        rows = read(sources)
    except WdistillError as declared:
        error = f"{type(declared).__name__}: {declared}"
    except Exception as other:
        error = f"undeclared {type(other).__name__}: {other}"
    pipe.send((rows, error, status("VmHWM") - before, time.process_time() - start))
