"""`wdistill theory`: the paper's claims, each predicted, measured and judged, in a checkout of the repository."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wdistill.cli.checkout import from_checkout

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
    code: int = from_checkout("experiments.theory.measure").run(
        arguments.names, out=arguments.out, seed=arguments.seed, scale=arguments.scale, listing=arguments.list
    )
    return code


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
