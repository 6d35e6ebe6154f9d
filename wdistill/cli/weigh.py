"""`wdistill weigh`: weights or corrected targets for tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wdistill.cli.engine_flags import add_engine_flags, engine_of
from wdistill.core.errors import FileError, printable, unreadable

EPILOG = """
tables: parquet (a file, a folder or a 'glob*'), npz, csv or jsonl; npy for bare arrays, as teacher=PATH.npy
files: with --engine, each file of --unlabeled becomes one of the output folder; the first file of one table belongs to the
  first of another; files may be remote (s3://…, gs://…), and go on where they were when the command is run again
columns: id, teacher, student (lists, or teacher_0, teacher_1, …) and, in the validation table, label
exit codes: 0 done, 2 bad input or options, 3 cannot write, 5 another process is writing, 75 a worker died
  or a store does not answer (run again to resume), 130 interrupted, 143 terminated
"""

OURS = "a file that `wdistill weigh` wrote"


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.core.settings import add_flags
    from wdistill.tables.options import Options

    weigh = commands.add_parser(
        "weigh",
        help="one weight, or a corrected target, for every unlabeled row",
        description="Estimate, on the validation rows, where the teacher is wrong, and weigh every unlabeled row;\n"
        "or, with --method best, write the targets that all experts together support.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = weigh.add_argument
    flag(
        "--validation",
        action="append",
        required=True,
        metavar="V",
        help="rows with a true label; repeat to join tables by id",
    )
    flag("--unlabeled", action="append", required=True, metavar="U", help="rows to weigh; repeat to join tables by id")
    flag(
        "--output",
        required=True,
        metavar="W",
        help="where weights (and targets) go: .parquet, .csv or .npz; with --engine, a folder or an address such as s3://…",
    )
    flag(
        "--labeled",
        action="append",
        default=[],
        metavar="L",
        help="labeled rows: the teacher's predictions, for fidelity; with --inputs, label and inputs",
    )
    add_engine_flags(weigh)
    add_flags(weigh, Options)
    weigh.set_defaults(run=run_weigh)


def run_weigh(arguments: argparse.Namespace) -> None:
    from wdistill.core.settings import flags_given
    from wdistill.tables.options import Options, Paths, files_of_settings, read_options
    from wdistill.tables.weigh import weigh_files

    flags = flags_given(arguments, Options)
    paths = Paths(arguments.validation, arguments.unlabeled, arguments.labeled, files_of_settings(flags))
    engine = engine_of(arguments)
    if engine is None:
        record = weigh_files(paths, Path(arguments.output), read_options(flags))
    else:
        from wdistill.engines.weigh import weigh_partitions

        record = weigh_partitions(paths, arguments.output, read_options(flags), engine)
    print_record(record, {"output": arguments.output}, brief=True)


def fitted_and_histogram(record: dict[str, Any]) -> tuple[Any, Any]:
    """The fitted debiased rule and the histogram of weights in a record, or None where it has none."""
    import base64

    from wdistill.weights.debiased import Debiased
    from wdistill.weights.diagnostics import Histogram
    from wdistill.weights.rule import Product
    from wdistill.weights.saved import from_bytes

    try:
        state = from_bytes(base64.b64decode(record["state"]), "its record") if "state" in record else None
        counts = record.get("histogram")
        histogram = Histogram(**{**counts, "counts": tuple(counts["counts"])}) if counts else None
        if histogram is not None and len(histogram.counts) != len(Histogram().counts):
            raise ValueError(f"{len(histogram.counts)} bins")
    except (KeyError, TypeError, ValueError, FileError) as error:
        found = error.found if isinstance(error, FileError) else error
        what = "its record is damaged, or of another version"
        raise unreadable(what, "inspect", found, OURS, "weigh again") from None
    parts = state.parts if isinstance(state, Product) else (state,)
    return next((part for part in parts if isinstance(part, Debiased)), None), histogram


def print_record(record: dict[str, Any], notes: dict[str, str], *, brief: bool = False) -> None:
    """What a record says, as tables: the first of them alone if `brief`."""
    from rich.console import Console

    from wdistill.report.inspect import tables

    fitted, histogram = fitted_and_histogram(record)
    if record.get("method") == "best":
        changed = f"{record['changed']:,} of {record['rows']:,}"
        notes = {"method": "best", "why": record["why"], "rows with another class": changed, **notes}
    elif "options" in record:
        notes = {"rule": ",".join(record["options"]["rule"]), **notes}
    if "class_names" in record:
        refused = record["answers"]["refused"]
        told = ", ".join(f"{count:,} {reason}" for reason, count in refused.items())
        notes = {"classes, in order": ", ".join(record["class_names"]), "refused answers": told or "none", **notes}
    counts = {"clipped to 1": record.get("clipped"), "rows with two equal largest classes": record.get("tied")}
    notes = {**{name: f"{count:,}" for name, count in counts.items() if count}, **notes}
    console = Console(soft_wrap=False)
    weights = None if record.get("method") == "best" else histogram  # all are 1
    for table in tables(fitted, weights, notes)[: 1 if brief else None]:
        console.print(table)
    for text in () if brief else record.get("warnings", []):
        console.print(printable(f"warning: {text}"), markup=False, highlight=False)
