"""`wdistill correct`: one table to train on, from answers and gold labels."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.cli.engine_flags import add_engine_flags, engine_of

if TYPE_CHECKING:
    from wdistill.answers.request import AnswerOptions, Sources

EPILOG = """
answers: a label, with a stated confidence or without; class → probability; lists or columns of probabilities; votes; the
  output of OpenAI, vLLM and Anthropic batches. What was found is said in one line.
gold: csv, jsonl or parquet with id and label; exports of Label Studio, doccano and Argilla
files: with --engine, each file of --answers becomes one of the output folder, and the gold rows another; the first file of
  --pool belongs to the first of --answers; files may be remote (s3://…, gs://…)
exit codes: 0 done, 2 bad input or options, 3 cannot write, 5 another process is writing, 75 a worker died
  or a store does not answer (run again to resume), 130 interrupted, 143 terminated
"""


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.answers.request import AnswerOptions
    from wdistill.core.settings import add_flags

    correct = commands.add_parser(
        "correct",
        help="an LLM's answers and your gold labels to one table to train on",
        description="Write one table to train on: id, targets, label, weight and source of every row, gold rows included.\n"
        "Targets are the teacher's recalibrated on gold, or corrected by models of the rows, where gold supports it.\n"
        "It needs scikit-learn: pip install 'wdistill[methods]'.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_sources(correct, required=True)
    correct.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="where it goes: .parquet, .csv or .npz; with --engine, a folder or an address such as s3://…",
    )
    add_engine_flags(correct)
    add_flags(correct, AnswerOptions)
    correct.set_defaults(run=run_correct)


def add_sources(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The flags that name files of answers, gold labels and rows."""
    flag = parser.add_argument
    flag(
        "--answers",
        action="append",
        required=required,
        metavar="FILE",
        help="the teacher's answers; repeat for several files",
    )
    flag("--gold", metavar="FILE", help="gold labels, by the ids of the answers")
    flag("--pool", metavar="FILE", help="the rows themselves, by id, where the answers do not carry them")


def sources_of(arguments: argparse.Namespace) -> Sources:
    from wdistill.answers.request import Sources
    from wdistill.tables.options import files_of_settings

    return Sources(arguments.answers, arguments.gold, arguments.pool, files_of_settings(vars(arguments)))


def options_of(arguments: argparse.Namespace) -> AnswerOptions:
    from wdistill.answers.request import AnswerOptions
    from wdistill.core.settings import flags_given, read_settings

    return read_settings(AnswerOptions, flags_given(arguments, AnswerOptions))


def run_correct(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from wdistill.methods.crossfit import need_sklearn

    need_sklearn("correct")
    sources, options, engine = sources_of(arguments), options_of(arguments), engine_of(arguments)
    if engine is None:
        from wdistill.answers.targets import correct_files

        record = correct_files(sources, Path(arguments.output), options)
    else:
        from wdistill.engines.correct import correct_partitions

        record = correct_partitions(sources, arguments.output, options, engine)
    console = Console(soft_wrap=True)
    refused = sum(record["answers"]["refused"].values())
    gold = record["gold"]
    recorded = "" if arguments.output.endswith(".csv") else "; the first by id are in its record"  # csv has none
    lines = [
        f"{arguments.output} has {record['rows']:,} rows of the pool and {gold:,} gold rows, to be joined by id.",
        f"Targets: {record['why']}.",
        f"{record['changed']:,} rows get another class than the teacher's.",
        *([f"{refused:,} rows without a usable answer{recorded}."] if refused else []),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False)
