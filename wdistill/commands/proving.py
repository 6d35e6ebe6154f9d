"""`wdistill theory`: the paper's claims, each predicted, measured and judged."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.errors import ConfigError

if TYPE_CHECKING:
    from wdistill.theory.catalogue import Experiment
    from wdistill.theory.claims import Finding
    from wdistill.theory.page import Run

EPILOG = """
with --out, FOLDER/theory.html has the figures, and FOLDER/findings.json all numbers
exit codes: 0 every claim holds, 1 a claim or a contrast fails, 2 bad options, 3 cannot write
"""


def add(commands: Any) -> None:
    """The command and its flags."""
    theory = commands.add_parser(
        "theory",
        help="the paper's claims, measured",
        description="Run the experiments on §2.2, §4 and Appendices D and E of the paper: prediction, measurement, verdict.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = theory.add_argument
    flag("names", nargs="*", metavar="NAME", help="experiments, as --list names them, or all")
    flag("--list", action="store_true", help="print them all, and what each of them is about")
    flag("--out", type=Path, metavar="FOLDER", help="where the page and the numbers go (default: nowhere)")
    flag("--seed", type=_seed, default=0, metavar="N", help="of all that is random (default: 0)")
    flag(
        "--scale", type=_scale, default=1.0, metavar="X", help="times the samples, no fewer than verdicts need (default: 1)"
    )
    theory.set_defaults(run=run_theory)


def run_theory(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from wdistill import store
    from wdistill.pages.words import count

    if arguments.list or not arguments.names:
        _show()
        return 0
    chosen = _find(arguments.names)
    if arguments.out is not None:
        store.make_folder(arguments.out, parents=True)
    console = Console()
    runs: list[Run] = []
    try:
        for run in _run(chosen, arguments.seed, arguments.scale):
            runs.append(run)
            _print(console, run)
            if arguments.out is not None:
                _write(arguments.out, runs, arguments.seed, arguments.scale)
    except KeyboardInterrupt:
        there = f"; {arguments.out} has {count(len(runs), 'finished experiment')}" if arguments.out and runs else ""
        print(f"interrupted{there}", file=sys.stderr)
        return 130
    failed = [run.finding.name for run in runs if not run.finding.holds]
    said = f"{', '.join(failed)}: not as the paper says" if failed else "every claim holds"
    console.print(said, markup=False, highlight=False)
    if arguments.out is not None:
        console.print(f"the page with all figures: {arguments.out / 'theory.html'}", highlight=False, soft_wrap=True)
    return 1 if failed else 0


def _find(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, in the order of the catalogue; "all" is every one."""
    import difflib
    from importlib.util import find_spec

    from wdistill.theory.catalogue import EXPERIMENTS

    known = [each.name for each in EXPERIMENTS]
    for name in names:
        if name not in ("all", *known):
            close = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                "no such experiment",
                where="wdistill theory",
                found=repr(name),
                expected=", ".join(["all", *known]),
                remedy=f"did you mean {close[0]}?" if close else "wdistill theory --list says what each of them is about",
            )
    if find_spec("torch") is None:
        raise ConfigError(
            "torch is not installed",
            where="wdistill theory",
            found="no module torch",
            expected="torch, for gradients and minimisers",
            remedy="pip install 'wdistill[torch]'",
        )
    return [each for each in EXPERIMENTS if each.name in names or "all" in names]


def _run(chosen: Sequence[Experiment], seed: int, scale: float) -> Iterator[Run]:
    """One after the other on one core, each said before it begins, with the time that is left."""
    import torch

    from wdistill.pages.words import duration
    from wdistill.theory.page import Run

    torch.set_num_threads(1)  # many small operations: more threads are slower
    expected, taken = 0.0, 0.0  # seconds of what is done: as the catalogue has them, and as they were
    for number, each in enumerate(chosen, 1):
        pace = taken / expected if expected else 1.0
        left = duration(pace * sum(one.takes(scale) for one in chosen[number - 1 :]))
        started = time.monotonic()
        with _saying(f"{each.name} ({number} of {len(chosen)}): about {left} left"):
            finding = each.run(seed=seed, scale=scale)
        seconds = time.monotonic() - started
        expected, taken = expected + each.takes(scale), taken + seconds
        yield Run(finding, seconds)


@contextmanager
def _saying(text: str) -> Iterator[None]:
    """On a terminal for as long as it is true, elsewhere as a line."""
    from rich.console import Console

    if sys.stderr.isatty():
        with Console(stderr=True).status(text):
            yield
    else:
        print(text, file=sys.stderr, flush=True)
        yield


def _print(console: Any, run: Run) -> None:
    from rich.table import Table
    from rich.text import Text

    from wdistill.pages.words import duration
    from wdistill.theory.wording import measured, summary, verdict

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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wdistill.pages.words import duration
    from wdistill.theory.catalogue import EXPERIMENTS

    table = Table("name", "about", "takes", box=None, pad_edge=False)
    for each in EXPERIMENTS:
        table.add_row(Text(each.name), Text(each.about), Text(duration(each.seconds)))
    Console().print(table)


def _write(folder: Path, runs: Sequence[Run], seed: int, scale: float) -> None:
    """The page, and all numbers."""
    import json

    from wdistill import store
    from wdistill.environment import environment
    from wdistill.theory.page import page

    made = {"seed": seed, "scale": scale, **environment("cpu", 1)}
    record = {**made, "findings": [{**_numbers(run.finding), "seconds": run.seconds} for run in runs]}
    store.write_bytes(folder / "findings.json", json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False).encode())
    store.write_bytes(folder / "theory.html", page(runs, {name: str(value) for name, value in made.items()}).encode())


def _numbers(finding: Finding) -> dict[str, Any]:
    """A finding without its figures; what is not a finite number is null."""
    import math
    from dataclasses import asdict

    checks = [asdict(check) for check in finding.checks]
    for check in checks:
        for name in ("measured", "error"):
            if check[name] is not None and not math.isfinite(check[name]):
                check[name] = None
    told = {name: getattr(finding, name) for name in ("name", "title", "place", "holds", "settings", "notes")}
    return {**told, "checks": checks}


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
