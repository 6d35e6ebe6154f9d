"""Measure the paper's claims one after the other, print each verdict, and write the page and the numbers."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.theory.bias import debiasing
from experiments.theory.claims import Finding, measured, summary, verdict
from experiments.theory.convergence import convergence
from experiments.theory.halfspaces import halfspaces
from experiments.theory.multi_pass import multi_pass
from experiments.theory.page import MeasuredClaim, page
from experiments.theory.single_pass import single_pass
from experiments.theory.smoothness import smoothness
from experiments.theory.squares import squares
from wdistill.core import store
from wdistill.core.environment import environment
from wdistill.core.errors import ConfigError, not_one_of
from wdistill.report.words import count, duration


class Measure(Protocol):
    def __call__(self, seed: int = ..., scale: float = ...) -> Finding: ...


@dataclass(frozen=True)
class TheoryExperiment:
    """One experiment, as it is called on the command line."""

    name: str
    run: Measure
    seconds: float  # that it takes on one core, about
    least: float  # that it takes however small the scale, as verdicts need samples

    @property
    def about(self) -> str:
        """The first line of what it says of itself."""
        return (self.run.__doc__ or "").partition("\n")[0]

    def takes(self, scale: float) -> float:
        """Seconds, about."""
        return max(self.least, scale * self.seconds)


EXPERIMENTS: tuple[TheoryExperiment, ...] = (
    TheoryExperiment("debiasing", debiasing, 1.0, 0.3),
    TheoryExperiment("convergence", convergence, 2.0, 0.1),
    TheoryExperiment("squares", squares, 0.1, 0.05),
    TheoryExperiment("halfspaces", halfspaces, 6.0, 2.0),
    TheoryExperiment("single_pass", single_pass, 25.0, 12.0),
    TheoryExperiment("multi_pass", multi_pass, 50.0, 22.0),
    TheoryExperiment("smoothness", smoothness, 1.5, 0.3),
)


def run(names: Sequence[str], *, out: Path | None, seed: int, scale: float, listing: bool) -> int:
    """All of the command; returns its exit code."""
    if listing or not names:
        _show()
        return 0
    chosen = _find(names)
    if out is not None:
        store.make_folder(out, parents=True)
    console = Console()
    runs: list[MeasuredClaim] = []
    try:
        for run in _run(chosen, seed, scale):
            runs.append(run)
            _print(console, run)
            if out is not None:
                _write(out, runs, seed, scale)
    except KeyboardInterrupt:
        there = f"; {out} has {count(len(runs), 'finished experiment')}" if out and runs else ""
        print(f"interrupted{there}", file=sys.stderr)
        return 130
    failed = [run.finding.name for run in runs if not run.finding.holds]
    result = f"{', '.join(failed)}: not as the paper says" if failed else "every claim holds"
    console.print(result, markup=False, highlight=False)
    if out is not None:
        console.print(f"the page with all figures: {out / 'theory.html'}", highlight=False, soft_wrap=True)
    return 1 if failed else 0


def _find(names: Sequence[str]) -> list[TheoryExperiment]:
    """The experiments of these names, in the order of the catalogue; "all" is every one."""
    known = [each.name for each in EXPERIMENTS]
    for name in names:
        if name not in ("all", *known):
            remedy = "wdistill theory --list says what each of them is about"
            raise not_one_of("no such experiment", "wdistill theory", name, ["all", *known], remedy)
    if find_spec("torch") is None:
        raise ConfigError(
            "torch is not installed",
            where="wdistill theory",
            found="no module torch",
            expected="torch, for gradients and minimisers",
            remedy="pip install 'wdistill[torch]'",
        )
    return [each for each in EXPERIMENTS if each.name in names or "all" in names]


def _run(chosen: Sequence[TheoryExperiment], seed: int, scale: float) -> Iterator[MeasuredClaim]:
    """One after the other on one core, each said before it begins, with the time that is left."""
    import torch

    torch.set_num_threads(1)  # many small operations: more threads are slower
    expected, taken = 0.0, 0.0  # seconds of what is done: as the catalogue has them, and as they were
    for number, each in enumerate(chosen, 1):
        pace = taken / expected if expected else 1.0
        left = duration(pace * sum(one.takes(scale) for one in chosen[number - 1 :]))
        started = time.monotonic()
        with _status(f"{each.name} ({number} of {len(chosen)}): about {left} left"):
            finding = each.run(seed=seed, scale=scale)
        seconds = time.monotonic() - started
        expected, taken = expected + each.takes(scale), taken + seconds
        yield MeasuredClaim(finding, seconds)


@contextmanager
def _status(text: str) -> Iterator[None]:
    """On a terminal for as long as it is true, elsewhere as a line."""
    if sys.stderr.isatty():
        with Console(stderr=True).status(text):
            yield
    else:
        print(text, file=sys.stderr, flush=True)
        yield


def _print(console: Any, run: MeasuredClaim) -> None:
    finding = run.finding
    title = f"{finding.name}: {finding.title} ({finding.place})"
    caption = f"{summary(finding)}; {duration(run.seconds)}"
    table = Table("claim", "predicted", "measured", "verdict", title=title, title_justify="left", caption=Text(caption))
    table.caption_justify = "left"
    for check in finding.checks:
        claim = f"beside it: {check.claim}" if check.contrast else check.claim
        table.add_row(*map(Text, (claim, check.predicted, measured(check), verdict(check))))
    console.print(table)
    for note in finding.notes:
        console.print(Text(f"note: {note}"))
    console.print()


def _show() -> None:
    table = Table("name", "about", "takes", box=None, pad_edge=False)
    for each in EXPERIMENTS:
        table.add_row(Text(each.name), Text(each.about), Text(duration(each.seconds)))
    Console().print(table)


def _write(folder: Path, runs: Sequence[MeasuredClaim], seed: int, scale: float) -> None:
    """The page, and all numbers."""
    made = {"seed": seed, "scale": scale, **environment("cpu", 1)}
    record = {**made, "findings": [{**_numbers(run.finding), "seconds": run.seconds} for run in runs]}
    store.write_bytes(folder / "findings.json", json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False).encode())
    store.write_bytes(folder / "theory.html", page(runs, {name: str(value) for name, value in made.items()}).encode())


def _numbers(finding: Finding) -> dict[str, Any]:
    """A finding without its figures; what is not a finite number is null."""
    checks = [asdict(check) for check in finding.checks]
    for check in checks:
        for name in ("measured", "error"):
            if check[name] is not None and not math.isfinite(check[name]):
                check[name] = None
    record = {name: getattr(finding, name) for name in ("name", "title", "place", "holds", "settings", "notes")}
    return {**record, "checks": checks}
