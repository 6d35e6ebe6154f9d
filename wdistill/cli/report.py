"""`wdistill report`: the results of a run, as an HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """The command and its flags."""
    report = commands.add_parser(
        "report",
        help="the results of a run, as an HTML page",
        description="One HTML page with tables and figures, made anew. Folders below are settings, the runs in them trials.",
        allow_abbrev=False,
    )
    report.add_argument("folder", type=Path, metavar="RUN", help="a run, or a folder of runs")
    report.add_argument("--output", type=Path, metavar="PAGE", help="where the page goes (default: RUN/report.html)")
    report.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> None:
    from wdistill.core.checks import collect_warnings
    from wdistill.core.errors import printable
    from wdistill.core.progress import say
    from wdistill.report.page import page
    from wdistill.report.seal import write_page
    from wdistill.runs.folder import damage_text, read_trials

    output = arguments.output or arguments.folder / "report.html"
    with collect_warnings():
        trials = read_trials(arguments.folder)
    write_page(output, page(trials, f"wdistill: {arguments.folder.resolve().name}"))
    for text in filter(None, (damage_text(outcome.folder) for outcomes in trials.values() for outcome in outcomes)):
        say(f"warning: {text}")
    print(printable(f"written to {output}"))
