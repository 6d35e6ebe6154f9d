"""What a person sees of a run while it goes: a bar for every training on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from wdistill.progress import QUIET

Say = Callable[[Mapping[str, Any]], None]


@contextmanager
def display() -> Iterator[Say]:
    """Call the result with every message of a training."""
    if sys.stderr.isatty():
        with _bars() as say:
            yield say
    else:
        yield _lines()


def described(message: Mapping[str, Any]) -> str:
    """One epoch in words: loss, accuracies, examples per second."""
    parts = [f"loss {message['loss']:.4f}"]
    parts += [f"{name} {100 * message[name]:.2f} %" for name in ("validation", "test") if message[name] is not None]
    parts.append(f"{message['examples'] / max(message['seconds'], 1e-9):,.0f} rows/s")
    return ", ".join(parts)


@contextmanager
def _bars() -> Iterator[Say]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[place]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[text]}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=Console(stderr=True), expand=True) as bars:
        tasks: dict[str, TaskID] = {}
        seen = 0.0

        def say(message: Mapping[str, Any]) -> None:
            nonlocal seen
            name, now = message["stage"], time.monotonic()
            if message["what"] == "training" and now - seen < 0.1:
                return
            seen = now
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=None, place="", text="")
            if message["what"] == "labels":
                place = f"{message['rows']:,}/{message['total']:,} rows"
                bars.update(tasks[name], completed=message["rows"], total=message["total"], place=place)
            elif message["what"] == "training":
                done = message["epoch"] + message["step"] / message["steps"]
                place = f"epoch {message['epoch'] + 1}/{message['epochs']}"
                bars.update(tasks[name], completed=done, total=message["epochs"], place=place)
            elif message["what"] == "epoch":
                place = f"epoch {message['epoch']}/{message['epochs']}"
                bars.update(
                    tasks[name], completed=message["epoch"], total=message["epochs"], place=place, text=described(message)
                )
            elif message["what"] == "weights":
                bars.update(tasks[name], text=f"weights: mean {message['mean']:.3f}, {message['share']:.1%} below 1")

        yield say


def _lines() -> Say:
    """A line for the last epoch of every training, and for others now and then."""
    started: dict[str, tuple[float, float]] = {}  # when, and after how many epochs, with their fraction
    last = 0.0

    def say(message: Mapping[str, Any]) -> None:
        nonlocal last
        name, now = message["stage"], time.monotonic()
        if message["what"] in ("training", "weights"):
            started.setdefault(name, (now, message["epoch"] + message.get("step", 0) / message.get("steps", 1)))
        if message["what"] == "epoch":
            final = message["epoch"] == message["epochs"]
            if final or now - last >= QUIET:
                last = now
                begun, before = started.setdefault(name, (now - message["seconds"], message["epoch"] - 1))
                each = (now - begun) / (message["epoch"] - before) if message["epoch"] > before else message["seconds"]
                left = each * (message["epochs"] - message["epoch"])
                rest = "" if final else f", {left:,.0f} s left"
                _print(f"{name}: epoch {message['epoch']}/{message['epochs']}, {described(message)}{rest}")
        elif message["what"] == "weights" and (message["epoch"] == 0 or now - last >= QUIET):
            weights = f"mean {message['mean']:.3f}, {message['share']:.1%} below 1"
            _print(f"{name}: weights estimated, {weights}")
        elif message["what"] == "labels" and (now - last >= QUIET or message["rows"] == message["total"]):
            last = now
            _print(f"{name}: {message['rows']:,} of {message['total']:,} rows")

    return say


def _print(text: str) -> None:
    with suppress(OSError):  # a reader that has gone is no reason to stop training
        print(text, file=sys.stderr, flush=True)
