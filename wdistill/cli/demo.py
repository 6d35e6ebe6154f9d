"""`wdistill demo`: its flag; what it runs is in digits.py, which needs PyTorch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """The command and its flag."""
    demo = commands.add_parser(
        "demo",
        help="what to train a student on: verdict and paired trials on real data, in less than two minutes",
        description="Advice, then paired trials of unweighted, labels alone, the paper's weights, best, a control and an\n"
        "oracle on scikit-learn's digits; then the paper's own story, with injected errors.",
        allow_abbrev=False,
    )
    where = "where runs and page go (default: demo)"
    demo.add_argument("--run", type=Path, default=Path("demo"), metavar="FOLDER", dest="folder", help=where)
    demo.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> None:
    from wdistill.methods.crossfit import need_sklearn

    need_sklearn("demo")
    from wdistill.cli.digits import demo

    demo(arguments.folder)
