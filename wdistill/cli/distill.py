"""`wdistill distill`: train a student on a teacher's predictions, weighted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wdistill.core.errors import bad_value, printable, unreadable

PARAMETERS = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors")  # most of them run code when they are unpickled
EPILOG = """
data: an .npz with inputs, label and (optional) id; a folder with inputs.npy, label.npy, id.npy, whose inputs stay on the
disk; or a table (parquet, csv, jsonl) with the columns id, inputs (a list, or inputs_0, inputs_1, …) and label
models: package.module:function, found from the current folder; mlp:inputs=64,classes=10,hidden=32x32;
cnn:channels=1,classes=10,width=16; mobilenet:channels=3,classes=10,width=0.5 (and depth_multiplier=2);
resnet_cifar:channels=3,classes=10,depth=56 (11, 20, 29, …; with version=1 8, 14, 20, …);
resnet:channels=3,classes=1000,depth=50 (or 18); or text:classes=2, whose inputs are rows of hashed words
a teacher may also be its stored predictions: a table with the columns id and teacher, joined by id
the same command, started again after any end, resumes where it stopped
exit codes: 0 done, 2 bad input or options, 3 cannot write or damaged, 4 not a number, 5 another process is writing,
75 run again to go on, 130 interrupted, 143 terminated
"""


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.core.settings import add_flags
    from wdistill.runs.recipe import Recipe

    distill = commands.add_parser(
        "distill",
        help="train a student on what a teacher says, weighted",
        description="Train teacher and student on labeled rows, label the unlabeled ones, weigh them, train the student.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = distill.add_argument
    flag(
        "--teacher",
        action="append",
        required=True,
        metavar="T",
        help="a model, or stored predictions; repeat for more files",
    )
    flag("--student", required=True, metavar="S", help="a model")
    flag(
        "--labeled",
        type=Path,
        metavar="L",
        help="rows that teacher and student are trained on; without them, for a teacher that comes trained or as a table, "
        "the gold rows are in their place",
    )
    flag(
        "--validation", required=True, type=Path, metavar="V", help="gold rows, with a true label: only best trains on them"
    )
    flag("--unlabeled", required=True, type=Path, metavar="U", help="rows for the teacher to label")
    flag("--test", type=Path, metavar="X", help="rows to measure the student on")
    flag("--run", required=True, type=Path, metavar="FOLDER", dest="folder", help="where everything goes")
    flag("--recipe", action="append", default=[], type=Path, metavar="R", help="a TOML file with any of the settings below")
    flag(
        "--method",
        choices=["paper", "best"],
        help="paper: the arms that --rule names (default); best: one arm that is trained on the gold rows too, and "
        "on targets corrected by auxiliary models where the gold rows support them",
    )
    flag("--advise", action="store_true", help="with best: stop before the second stage, and print the verdict")
    flag("--details", action="store_true", help="with --advise: print all tables behind the verdict")
    add_flags(distill, Recipe)
    distill.set_defaults(run=run_distill)


def run_distill(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from wdistill.cli.advise import print_advice
    from wdistill.core.settings import flags_given
    from wdistill.report.tables import choices, terminal_table
    from wdistill.runs.folder import state_of
    from wdistill.runs.recipe import Recipe, read_recipe
    from wdistill.training.distill import advise, distill
    from wdistill.training.files import read_data

    recipe = read_recipe(arguments.recipe, _with_method(arguments.method, flags_given(arguments, Recipe)))
    names = ("labeled", "validation", "unlabeled", "test")
    data = {name: read_data(path) for name in names if (path := getattr(arguments, name)) is not None}
    teacher, student = _teacher(arguments.teacher), ModelByName(arguments.student)
    console = Console()
    if arguments.advise:
        advice = advise(teacher, student, **data, rule=None, recipe=recipe, run=arguments.folder)
        print_advice(advice, console, details=arguments.details)
        resumes = "keeps what was trained: the same command without --advise resumes from there"
        console.print(printable(f"{arguments.folder} {resumes}"), markup=False, highlight=False, soft_wrap=True)
        return
    finished = state_of(arguments.folder) == "finished"
    report = distill(teacher, student, **data, recipe=recipe, run=arguments.folder)
    console.print(terminal_table(str(arguments.folder), [report.outcome]))
    for name, why in choices([report.outcome]):
        console.print(printable(f"{name}: {why}"), markup=False, highlight=False, soft_wrap=True)
    status = "was finished before: nothing has changed" if finished else "written: look at report.html"
    console.print(printable(f"{arguments.folder} {status}"), markup=False, highlight=False, soft_wrap=True)


def _with_method(method: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """The arm of a method among the flags."""
    if method != "best":
        return flags
    if "rule" in flags:
        found, remedy = f"--rule {' --rule '.join(flags['rule'])}", "write --rule best beside the others"
        expected = "--method best alone, or arms by --rule, of which best may be one"
        raise bad_value("two ways to name the arms", "--method best", found, expected, remedy)
    return {**flags, "rule": ("best",)}


class ModelByName:
    """A model by its name; calling it builds one."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self) -> Any:
        from wdistill.training.models.networks import build

        return build(self.source)


def _teacher(sources: list[str]) -> Any:
    """A model by its name, or files of predictions."""
    paths = [Path(source) for source in sources]
    for path in paths:
        if path.suffix.lower() in PARAMETERS and path.is_file():
            expected = "a model by its name, or a table of stored predictions"
            remedy = "name a function that builds the module and loads them, package.module:function, and --teacher-epochs 0"
            raise unreadable("stored parameters alone are no teacher", path, f"a {path.suffix} file", expected, remedy)
    if all(path.suffix.lower() in (".parquet", ".npz", ".csv", ".jsonl") or path.exists() for path in paths):
        return sources
    if len(sources) > 1:
        expected = "one model, or files of stored predictions"
        raise bad_value("one teacher at a time", "--teacher", ", ".join(sources), expected, "name one model")
    return ModelByName(sources[0])
