"""`wdistill show`: the results of a run, as a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """The command and its argument."""
    show = commands.add_parser(
        "show",
        help="the results of a run, as a table",
        description="Test accuracies of every arm. A folder of several runs is taken as trials of one setting.",
        allow_abbrev=False,
    )
    show.add_argument("folder", type=Path, metavar="RUN", help="a run, or a folder of runs")
    show.set_defaults(run=run_show)


def run_show(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from wdistill.core.checks import collect_warnings
    from wdistill.core.progress import say
    from wdistill.report.judged import terminal_lines
    from wdistill.report.tables import terminal_table
    from wdistill.report.words import unfinished
    from wdistill.runs.folder import damage_text, read_trials

    console = Console()
    with collect_warnings():
        trials = read_trials(arguments.folder)
    for name, outcomes in trials.items():
        console.print(terminal_table(name or str(arguments.folder), outcomes))
        for text in unfinished(outcomes):
            console.print(f"{text} Final is the accuracy so far; the same command resumes.", markup=False, highlight=False)
        for line in terminal_lines(outcomes):
            console.print(line, markup=False, highlight=False, soft_wrap=isinstance(line, str))
        for text in filter(None, (damage_text(outcome.folder) for outcome in outcomes)):
            say(f"warning: {text}")
