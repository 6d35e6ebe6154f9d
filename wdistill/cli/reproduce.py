"""`wdistill reproduce`: the paper's tables and figures. The experiments are files of the repository, not of the library."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wdistill.cli.checkout import from_checkout

EPILOG = """
results are JSON lines in results/, one a trial; tables/ and figures/ are made from them. What has a line is not run again:
the same command, started again after any end, resumes where it stopped. --trials 0 only draws what there is
"""


def add(commands: Any) -> None:
    """The command and its flags."""
    reproduce = commands.add_parser(
        "reproduce",
        help="the paper's tables and figures",
        description="Run the experiments behind a table or figure of the paper, on the paper's budget or a smaller one.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = reproduce.add_argument
    flag("names", nargs="*", metavar="NAME", help="tables and figures, as --list names them, or all")
    flag("--list", action="store_true", help="print them all, and what has been run of each")
    flag("--labels", type=_numbers, metavar="N[,N…]", help="numbers of labeled rows (default: the paper's)")
    flag("--trials", type=_count, metavar="N", help="trials for each of them (default: the paper's)")
    flag("--epochs", type=_positive, metavar="N", help="of the last stage; the other stages and the schedule in proportion")
    flag("--pretraining", type=_positive, metavar="N", help="of teacher and student on the labels (default: in proportion)")
    flag("--unlabeled", type=_positive, metavar="N", help="unlabeled rows (default: all that are left)")
    flag("--validation", type=_positive, metavar="N", help="validation rows (default: the paper's)")
    flag("--test", type=_positive, metavar="N", help="test rows, the first (default: all)")
    flag("--arms", type=_words, metavar="ARM[,ARM…]", help="some of its arms (default: all)")
    flag("--batch-size", type=_positive, metavar="N", help="rows of a step (default: the recipe's)")
    flag("--precision", choices=["float32", "bfloat16", "float16"], help="of training (default: float32)")
    flag("--size", type=_positive, metavar="N", help="of images that have no size of their own")
    flag("--workers", type=_positive, default=1, metavar="N", help="trials side by side, one thread each (default: 1)")
    flag("--root", type=Path, metavar="ROOT", help="where the data sets are, as for wdistill data")
    flag("--results", type=Path, metavar="FOLDER", help="where lines, tables and figures go (default: experiments/)")
    flag("--runs", type=Path, metavar="FOLDER", help="where models and checkpoints go (default: experiments/runs)")
    reproduce.set_defaults(run=run_reproduce)


def run_reproduce(arguments: argparse.Namespace) -> None:
    experiments = from_checkout("experiments.paper.reproduce")
    folder = arguments.results or experiments.HERE
    if arguments.list or not arguments.names:
        experiments.show(folder)
        return
    items = experiments.find(arguments.names)
    sizes = ("labels", "trials", "epochs", "pretraining", "unlabeled", "validation", "test", "arms", "batch_size")
    budget = {name: value for name in (*sizes, "precision", "size") if (value := getattr(arguments, name)) is not None}
    runs = arguments.runs or folder / "runs"
    experiments.reproduce(items, budget, folder=folder, runs=runs, root=arguments.root, workers=arguments.workers)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _count(text: str) -> int:
    return 0 if text == "0" else _positive(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_positive(word.strip()) for word in text.split(",")))


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
