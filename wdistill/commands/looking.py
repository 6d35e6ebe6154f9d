"""`wdistill runs`, `wdistill show` and `wdistill report`: what runs there are, and what they came to."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wdistill.errors import FileError


def add(commands: Any) -> None:
    """The three commands and their flags."""
    runs = commands.add_parser("runs", help="the runs in a folder, and their state", allow_abbrev=False)
    runs.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="(default: this folder)")
    runs.set_defaults(run=run_runs)

    show = commands.add_parser(
        "show",
        help="what a run came to, as a table",
        description="Test accuracies of every arm. A folder of several runs is taken as trials of one setting.",
        allow_abbrev=False,
    )
    show.add_argument("folder", type=Path, metavar="RUN", help="a run, or a folder of runs")
    show.set_defaults(run=run_show)

    report = commands.add_parser(
        "report",
        help="what a run came to, as a page",
        description="One HTML page with tables and figures, made anew. Folders below are settings, the runs in them trials.",
        allow_abbrev=False,
    )
    report.add_argument("folder", type=Path, metavar="RUN", help="a run, or a folder of runs")
    report.add_argument("--output", type=Path, metavar="PAGE", help="where the page goes (default: RUN/report.html)")
    report.set_defaults(run=run_report)


def run_runs(arguments: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wdistill.runs import read_run

    table = Table("run", "state", "arms", "epochs done", title=f"Runs in {arguments.folder}", title_justify="left")
    for folder in _found(arguments.folder):
        outcome = read_run(folder)
        done = [len(arm.epochs) for arm in outcome.arms.values()]
        epochs = (f"{min(done)}–{max(done)}" if len(set(done)) > 1 else f"{done[0]}") + f" of {outcome.recipe['epochs']}"
        table.add_row(*map(Text, (str(folder), outcome.state, " ".join(outcome.arms), epochs)))
    Console().print(table)


def run_show(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from wdistill.pages import terminal_table

    console = Console()
    for name, outcomes in grouped(arguments.folder).items():
        console.print(terminal_table(name or str(arguments.folder), outcomes))


def run_report(arguments: argparse.Namespace) -> None:
    from wdistill import store
    from wdistill.pages import page

    output = arguments.output or arguments.folder / "report.html"
    title = f"wdistill: {arguments.folder.resolve().name}"
    store.write_bytes(output, page(grouped(arguments.folder), title).encode())
    print(f"written to {output}")


def grouped(folder: Path) -> Mapping[str, Sequence[Any]]:
    """The runs at or below a folder, as trials by the folder they lie in."""
    from wdistill.runs import read_run

    groups: dict[str, list[Any]] = {}
    for run in _found(folder):
        name = "" if run == folder or run.parent == folder else run.parent.relative_to(folder).as_posix()
        groups.setdefault(name, []).append(read_run(run))
    return groups


def _found(folder: Path) -> list[Path]:
    from wdistill.runs import find_runs

    found = find_runs(folder)
    if not found:
        raise FileError(
            "no run",
            where=str(folder),
            found="no run in or below this folder" if folder.is_dir() else "no such folder",
            expected="a folder that `wdistill distill` or wdistill.distill(run=…) wrote",
            remedy="correct the path",
        )
    return found
