"""Progress of a run: a bar for every training on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wdistill.core.errors import printable
from wdistill.core.progress import QUIET, on_terminal, say

OnEvent = Callable[[Mapping[str, Any]], None]


@contextmanager
def display() -> Iterator[OnEvent]:
    """Call the result with every event of a training."""
    if on_terminal():
        with _bars() as on_event:
            yield on_event
    else:
        yield _lines()


def described(event: Mapping[str, Any]) -> str:
    """One epoch as text: loss, accuracies, examples per second."""
    parts = [f"loss {event['loss']:.4f}"]
    parts += [f"{name} {100 * event[name]:.2f} %" for name in ("validation", "test") if event[name] is not None]
    parts.append(f"{event['examples'] / max(event['seconds'], 1e-9):,.0f} rows/s")
    return ", ".join(parts)


@contextmanager
def _bars() -> Iterator[OnEvent]:
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
        last_shown = 0.0

        def on_event(event: Mapping[str, Any]) -> None:
            nonlocal last_shown
            name, now = event["stage"], time.monotonic()
            if event["what"] == "training" and now - last_shown < 0.1:
                return
            last_shown = now
            if name not in tasks:
                tasks[name] = bars.add_task(printable(name), total=None, place="", text="")
            if event["what"] == "labels":
                place = f"{event['rows']:,}/{event['total']:,} rows"
                bars.update(tasks[name], completed=event["rows"], total=event["total"], place=place)
            elif event["what"] == "training":
                done = event["epoch"] + event["step"] / event["steps"]
                place = f"epoch {event['epoch'] + 1}/{event['epochs']}"
                bars.update(tasks[name], completed=done, total=event["epochs"], place=place)
            elif event["what"] == "epoch":
                place = f"epoch {event['epoch']}/{event['epochs']}"
                bars.update(tasks[name], completed=event["epoch"], total=event["epochs"], place=place, text=described(event))
            elif event["what"] == "weights":
                bars.update(tasks[name], text=f"weights: mean {event['mean']:.3f}, {event['share']:.1%} below 1")

        yield on_event


def _lines() -> OnEvent:
    """A line for the last epoch of every training, and for others every few seconds."""
    started: dict[str, tuple[float, float]] = {}  # when, and after how many epochs, with their fraction
    last = 0.0

    def on_event(event: Mapping[str, Any]) -> None:
        nonlocal last
        name, now = event["stage"], time.monotonic()
        if event["what"] in ("training", "weights"):
            started.setdefault(name, (now, event["epoch"] + event.get("step", 0) / event.get("steps", 1)))
        if event["what"] == "epoch":
            final = event["epoch"] == event["epochs"]
            if final or now - last >= QUIET:
                last = now
                begun, before = started.setdefault(name, (now - event["seconds"], event["epoch"] - 1))
                seconds = (now - begun) / (event["epoch"] - before) if event["epoch"] > before else event["seconds"]
                left = seconds * (event["epochs"] - event["epoch"])
                remaining = "" if final else f", {left:,.0f} s left"
                say(f"{name}: epoch {event['epoch']}/{event['epochs']}, {described(event)}{remaining}")
        elif event["what"] == "weights" and (event["epoch"] == 0 or now - last >= QUIET):
            weights = f"mean {event['mean']:.3f}, {event['share']:.1%} below 1"
            say(f"{name}: weights estimated, {weights}")
        elif event["what"] == "labels" and (now - last >= QUIET or event["rows"] == event["total"]):
            last = now
            say(f"{name}: {event['rows']:,} of {event['total']:,} rows")

    return on_event
