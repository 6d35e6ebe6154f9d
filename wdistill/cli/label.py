"""`wdistill label`: a teacher's predictions of unlabeled rows, stored in a table."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.cli.engine_flags import add_engine_flags, engine_of
from wdistill.core.errors import bad_value, printable

if TYPE_CHECKING:
    from wdistill.tables.label_options import LabelOptions

SIZE = 224  # of pictures
EPILOG = """
teacher: package.module:name, found from the current folder: a torch.nn.Module (in eval mode); a function of one argument,
a batch of inputs → one row of K numbers for each; or a function without arguments that returns one of these, called once
a batch: one input by itself (an array (b, …), a list of texts, or pictures (b, 3, N, N) of uint8), several as a mapping of
their names, to a module as keyword arguments. Batches are counted from the first row, whatever the number of files; with
--engine, from the first row of every file, and of every 4,096 pictures
unlabeled: parquet (a file, a folder or a 'glob*'), npz, csv or jsonl with ids and inputs (also as inputs_0, inputs_1, …);
or a folder of pictures (jpg, png; also in folders below), whose ids are their paths; with --engine, also an address
the same command, started again after any end, resumes after the last group of files that was finished
exit codes: 0 done, 2 bad input or options, 3 cannot write, 5 another process is writing, 75 a worker died
  or a store does not answer (run again to resume), 130 interrupted, 143 terminated
"""


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.core.settings import add_flags
    from wdistill.tables.label_options import LabelOptions

    label = commands.add_parser(
        "label",
        help="a teacher's predictions of unlabeled rows, stored in a table",
        description="Let a teacher, a PyTorch module or any Python function, predict rows of tables or pictures, and store\n"
        "its probabilities: of all classes, or of the most likely ones. weigh, advise and distill read them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = label.add_argument
    flag("--teacher", required=True, metavar="MODULE:NAME", help="a module, or a function of a batch")
    flag("--unlabeled", required=True, metavar="U", help="a table, or a folder of pictures")
    flag(
        "--output",
        required=True,
        metavar="P",
        help="where the predictions go: .parquet; with --engine, a folder or an address such as s3://…",
    )
    add_engine_flags(label)
    add_flags(label, LabelOptions)
    label.set_defaults(run=run_label)


def run_label(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from wdistill.core.settings import flags_given, read_settings
    from wdistill.tables.label_options import LabelOptions, check_label_options

    flags = flags_given(arguments, LabelOptions)
    options, engine = read_settings(LabelOptions, flags), engine_of(arguments)
    check_label_options(options)
    if engine is None:
        record = _label_here(arguments, options, flags)
    else:
        from wdistill.engines.inputs import has_pictures
        from wdistill.engines.label import label_partitions

        pictures = has_pictures(arguments.unlabeled)
        options = _fitting(pictures, options, flags)
        record = label_partitions(arguments.teacher, arguments.unlabeled, pictures, arguments.output, options, engine)
    kept = "all" if options.top_k is None else f"the {options.top_k} largest"
    stored = f"{kept} of {record['classes']:,} classes as {options.precision}"
    text = f"{arguments.output} has {record['rows']:,} rows, {stored}, in the column {options.column}"
    Console().print(printable(text), markup=False, highlight=False, soft_wrap=True)


def _label_here(arguments: argparse.Namespace, options: LabelOptions, flags: dict[str, Any]) -> dict[str, Any]:
    """Into one file, by this process."""
    from wdistill.core.named import current_folder_importable
    from wdistill.datasets.image_folder import is_image_folder, open_image_folder
    from wdistill.tables.label import InputSource, label_files
    from wdistill.tables.label_inputs import TableInputs
    from wdistill.tables.label_options import check_label_output
    from wdistill.tables.labeler import Labeler
    from wdistill.training.named_teacher import load_teacher

    output, unlabeled = Path(arguments.output), arguments.unlabeled
    check_label_output(output, unlabeled)
    pictures = is_image_folder(Path(unlabeled))
    options = _fitting(pictures, options, flags)
    source: InputSource = (
        TableInputs.of(unlabeled, options) if not pictures else open_image_folder(Path(unlabeled), options.size or SIZE)
    )
    with current_folder_importable():
        return label_files(source, Labeler(load_teacher(arguments.teacher), options), output)


def _fitting(pictures: bool, options: LabelOptions, flags: dict[str, Any]) -> LabelOptions:
    """The options that fit what is labeled."""
    from wdistill.datasets.image_folder import COLUMN

    unused = [name for name in (("inputs", "id") if pictures else ("size",)) if name in flags]
    if unused:
        found = "a folder of pictures" if pictures else "a table"
        expected = "a table" if pictures else "a folder of pictures"
        raise bad_value("has no meaning here", f"--{unused[0]}", found, expected, "leave it out")
    return replace(options, inputs=(COLUMN,), size=options.size or SIZE) if pictures else options
