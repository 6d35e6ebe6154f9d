"""`wdistill distill` and `wdistill export`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wdistill.errors import ConfigError

EPILOG = """
data: an .npz with inputs, label and (optional) id; a folder with inputs.npy, label.npy, id.npy, whose inputs stay on the
disk; or a table (parquet, csv, jsonl) with the columns id, inputs (a list, or inputs_0, inputs_1, …) and label
models: package.module:function, found from the current folder; mlp:inputs=64,classes=10,hidden=32x32;
cnn:channels=1,classes=10,width=16; mobilenet:channels=3,classes=10,width=0.5 (and depth_multiplier=2);
resnet_cifar:channels=3,classes=10,depth=56 (11, 20, 29, …; with version=1 8, 14, 20, …); or
resnet:channels=3,classes=1000,depth=50 (or 18)
a teacher may also be its stored predictions: a table with the columns id and teacher, joined by id
the same command, started again after any end, goes on where it stopped
exit codes: 0 done, 2 bad input or options, 3 cannot write or damaged, 4 not a number, 5 another process is writing,
75 run again to go on, 130 interrupted, 143 terminated
"""


def add(commands: Any) -> None:
    """Both commands and their flags."""
    from wdistill.recipe import add_flags

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
    flag("--labeled", required=True, type=Path, metavar="L", help="rows that teacher and student are trained on")
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
        help="paper: the arms that --rule names (default); best: one arm that is taught the gold rows as labels, and "
        "targets corrected by second opinions where the gold rows speak for them",
    )
    flag("--advise", action="store_true", help="with best: stop before the second stage, and print the verdict")
    add_flags(distill)
    distill.set_defaults(run=run_distill)

    export = commands.add_parser(
        "export",
        help="a trained student alone, to be used elsewhere",
        description="Write a student as safetensors, with a JSON that rebuilds it, and as a torch.export program.",
        allow_abbrev=False,
    )
    export.add_argument("folder", type=Path, metavar="RUN", help="a finished run")
    export.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="where the student goes")
    export.add_argument("--arm", metavar="A", help="whose student (default: the first arm that is not a control)")
    export.add_argument("--trust-code", action="store_true", help="let the run's own package.module:function be imported")
    export.set_defaults(run=run_export)


def run_distill(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from wdistill.commands.advising import print_advice
    from wdistill.distillation import advise, distill
    from wdistill.pages import terminal_table
    from wdistill.pages.tables import choices
    from wdistill.recipe import given, read_recipe
    from wdistill.runs import state_of
    from wdistill.training.files import read_data

    recipe = read_recipe(arguments.recipe, _with_method(arguments.method, given(arguments)))
    names = ("labeled", "validation", "unlabeled", "test")
    data = {name: read_data(path) for name in names if (path := getattr(arguments, name)) is not None}
    teacher, student = _teacher(arguments.teacher), Named(arguments.student)
    console = Console()
    if arguments.advise:
        print_advice(advise(teacher, student, **data, rule=None, recipe=recipe, run=arguments.folder), console)
        said = "keeps what was trained: the same command without --advise goes on"
        console.print(f"{arguments.folder} {said}", markup=False, highlight=False, soft_wrap=True)
        return
    finished = state_of(arguments.folder) == "finished"
    report = distill(teacher, student, **data, recipe=recipe, run=arguments.folder)
    console.print(terminal_table(str(arguments.folder), [report.outcome]))
    for name, why in choices([report.outcome]):
        console.print(f"{name}: {why}", markup=False, highlight=False, soft_wrap=True)
    said = "was finished before: nothing has changed" if finished else "written: look at report.html"
    console.print(f"{arguments.folder} {said}", markup=False, highlight=False, soft_wrap=True)


def _with_method(method: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """The arm of a method among the flags."""
    if method != "best":
        return flags
    if "rule" in flags:
        raise ConfigError(
            "two ways to name the arms",
            where="--method best",
            found=f"--rule {' --rule '.join(flags['rule'])}",
            expected="--method best alone, or arms by --rule, of which best may be one",
            remedy="write --rule best beside the others",
        )
    return {**flags, "rule": ("best",)}


class Named:
    """A model by its name; calling it makes one."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self) -> Any:
        from wdistill.training.networks import build

        return build(self.source)


def _teacher(given: list[str]) -> Any:
    """A model by its name, or files of predictions."""
    files = [Path(each).suffix.lower() in (".parquet", ".npz", ".csv", ".jsonl") or Path(each).exists() for each in given]
    if all(files):
        return given
    if len(given) > 1:
        raise ConfigError(
            "one teacher at a time",
            where="--teacher",
            found=", ".join(given),
            expected="one model, or files of stored predictions",
            remedy="name one model",
        )
    return Named(given[0])


def run_export(arguments: argparse.Namespace) -> None:
    from wdistill.exporting import export_run

    where = export_run(arguments.folder, arguments.output, arguments.arm, trust_code=arguments.trust_code)
    print(f"the student of {where['arm']} is in {arguments.output}: {', '.join(where['files'])}")
