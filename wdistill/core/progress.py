"""Progress of long work on standard error: a bar with its speed and the time left, or a plain line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from wdistill.core.errors import printable

QUIET = 5.0  # seconds between plain lines
FEW = 3  # calls before which no time is estimated: the first file says little of the others


class Progress(Protocol):
    def __call__(self, rows: int) -> None: ...


def on_terminal() -> bool:
    """Whether standard error is a terminal; a program may have none at all."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def progress(what: str, total: int | None, unit: str = "rows") -> Iterator[Progress]:
    """Call the result with the number of rows (or images, or bytes) just done; a total that was guessed may be passed."""
    if on_terminal():
        with _bar(what, total, unit) as tick:
            yield tick
    else:
        yield _lines(what, total, unit)


@contextmanager
def _bar(what: str, total: int | None, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    of = "" if total is None else " of {task.total:,}"
    rate = TextColumn(f"{{task.completed:,}}{of} {unit}, {{task.fields[rate]}} {unit}/s")
    columns = (TextColumn("{task.description}"), BarColumn(), rate, TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task, start, done = bar.add_task(what, total=total, rate=_speed(0.0)), time.monotonic(), 0

        def tick(rows: int) -> None:
            nonlocal done
            done += rows
            rate = done / max(1e-9, time.monotonic() - start)
            bar.update(task, advance=rows, total=None if total is None else max(total, done), rate=_speed(rate))

        yield tick


def _lines(what: str, total: int | None, unit: str) -> Progress:
    start = last = time.monotonic()
    done = calls = 0

    def tick(rows: int) -> None:
        nonlocal done, calls, last
        done, calls = done + rows, calls + 1
        now = time.monotonic()
        if now - last >= QUIET:
            last, rate = now, done / (now - start)
            of = f" of {max(total, done):,}" if total else ""
            left = f", {max(0, total - done) / rate:,.0f} s left" if total and calls >= FEW else ""
            say(f"{what}: {done:,}{of} {unit}, {_speed(rate)} {unit}/s{left}")

    return tick


def _speed(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.2g}"


def say(text: str) -> None:
    """A line on standard error; a reader that has gone is no reason to stop working."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(printable(text), file=sys.stderr, flush=True)
