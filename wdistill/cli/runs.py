"""`wdistill runs`: the runs in a folder, and their state."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """The command and its argument."""
    runs = commands.add_parser("runs", help="the runs in a folder, and their state", allow_abbrev=False)
    runs.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="(default: this folder)")
    runs.set_defaults(run=run_runs)


def run_runs(arguments: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wdistill.core.errors import CheckpointError, printable
    from wdistill.core.progress import say
    from wdistill.runs.folder import damage_text, existing_runs, read_run

    damage: list[str] = []
    title = Text(printable(f"Runs in {arguments.folder}"))
    table = Table("run", "state", "arms", "epochs done", title=title, title_justify="left")
    for folder in existing_runs(arguments.folder):
        try:
            outcome = read_run(folder)
        except CheckpointError as error:
            damage.append(str(error))
            table.add_row(*map(Text, (printable(str(folder)), "damaged", "", "")))
            continue
        damage += [text] if (text := damage_text(folder)) else []
        done = [len(arm.epochs) for arm in outcome.arms.values()]
        epochs = (f"{min(done)}–{max(done)}" if len(set(done)) > 1 else f"{done[0]}") + f" of {outcome.recipe['epochs']}"
        table.add_row(*map(Text, map(printable, (str(folder), outcome.state, " ".join(outcome.arms), epochs))))
    Console().print(table)
    for text in damage:
        say(f"warning: {text}")
