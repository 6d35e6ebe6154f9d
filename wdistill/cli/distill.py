"""`wdistill distill`: train a student on a teacher's predictions, weighted."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.cli.correct import add_sources
from wdistill.cli.question_flags import QuestionFlags, questions_of
from wdistill.core.errors import UnfinishedError, WdistillError, bad_value, printable, unreadable
from wdistill.core.settings import settings_of

if TYPE_CHECKING:
    from rich.console import Console

    from wdistill.runs.recipe import Recipe
    from wdistill.training.run import Report

PARAMETERS = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors")  # most of them run code when they are unpickled
OF_ANSWERS = ("text", "inputs", "label", "id", "gold_id", "answer", "stated", "alias", "refusals")  # options of answers
DESIGN = ("group", "inclusion")  # how gold rows were drawn, in answers and in splits
OF_ADVICE = ("advise", "details", *settings_of(QuestionFlags))
EPILOG = """
data: an .npz with inputs, label and (optional) id; a folder with inputs.npy, label.npy, id.npy, whose inputs stay on the
disk; or a table (parquet, csv, jsonl) with the columns id, inputs (a list, or inputs_0, inputs_1, …) and label; V may also
have the columns (or group.npy, inclusion.npy) that --group and --inclusion name
models: package.module:function, found from the current folder; mlp:inputs=64,classes=10,hidden=32x32;
cnn:channels=1,classes=10,width=16; mobilenet:channels=3,classes=10,width=0.5 (and depth_multiplier=2);
resnet_cifar:channels=3,classes=10,depth=56 (11, 20, 29, …; with version=1 8, 14, 20, …);
resnet:channels=3,classes=1000,depth=50 (or 18); or text:classes=2, whose inputs are rows of hashed words
answers and gold: as for `wdistill correct`; the student is text (with --text), table (with --inputs; table:hidden=32x32), or
a package.module:function that reads such rows; by default one arm, best, and other settings than those below, which suit
such a student and the number of rows
a teacher may also be its stored predictions: a table with the columns id and teacher, joined by id
the same command, started again after any end, resumes where it stopped
exit codes: 0 done, 2 bad input or options, 3 cannot write or damaged, 4 not a number, 5 another process is writing,
75 run again to go on, 130 interrupted, 143 terminated
"""


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.answers.request import AnswerOptions
    from wdistill.core.settings import add_flags
    from wdistill.runs.recipe import Recipe

    distill = commands.add_parser(
        "distill",
        help="train a student on what a teacher says, weighted",
        description="Train teacher and student on labeled rows, label the unlabeled ones, weigh them, train the student.\n"
        "Or from an LLM's answers and your gold labels: --answers, --gold, and --text or --inputs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = distill.add_argument
    flag("--teacher", action="append", metavar="T", help="a model, or stored predictions; repeat for more files")
    flag("--student", metavar="S", help="a model; with --answers text or table, unless given")
    flag(
        "--labeled",
        type=Path,
        metavar="L",
        help="rows that teacher and student are trained on; without them, for a teacher that comes trained or as a table, "
        "the gold rows are in their place",
    )
    flag(
        "--validation",
        type=Path,
        metavar="V",
        help="gold rows, with a true label: trained on by best, and without --labeled",
    )
    flag("--unlabeled", type=Path, metavar="U", help="rows for the teacher to label")
    add_sources(distill, required=False)
    flag("--test", type=Path, metavar="X", help="rows to measure the student on; with --answers by id and label, as --gold")
    flag("--run", required=True, type=Path, metavar="FOLDER", dest="folder", help="where everything goes")
    flag("--recipe", action="append", default=[], type=Path, metavar="R", help="a TOML file with any of the settings below")
    flag(
        "--method",
        choices=["paper", "best"],
        help="paper: the arms that --rule names (default); best: one arm that is trained on the gold rows too, and "
        "on targets that auxiliary models and the gold rows have corrected",
    )
    flag("--advise", action="store_true", help="with best: stop before the second stage, and print the verdict")
    flag("--details", action="store_true", help="with --advise: print all tables behind the verdict")
    add_flags(distill, QuestionFlags)
    add_flags(distill, Recipe, [name for name in settings_of(Recipe) if name != "classes"])
    add_flags(distill, AnswerOptions, OF_ANSWERS)
    flag(
        "--group",
        metavar="COLUMN",
        help="with best or a metric, in V, L and X: documents, users or queries whose rows belong together; by default "
        "'group', where V has it; with --answers as for `correct`",
    )
    flag(
        "--inclusion",
        metavar="COLUMN",
        help="with best or a metric, in V: the probability with which a row was drawn; by default 'inclusion', where V has "
        "it; with --answers in --gold",
    )
    flag("--classes", metavar="N | A,B,… | FILE", help="how many classes; with --answers their names, as for `correct`")
    distill.set_defaults(run=run_distill)


def run_distill(arguments: argparse.Namespace) -> None:
    from wdistill.training.ranks import is_follower

    if is_follower():
        _follow()
    else:
        _lead(arguments)


def _lead(arguments: argparse.Namespace) -> None:
    """The run, by this process alone or with others that follow it."""
    from rich.console import Console

    from wdistill.report.judged import terminal_lines
    from wdistill.report.tables import choices, terminal_table
    from wdistill.runs.folder import state_of

    console = Console()
    finished = state_of(arguments.folder) == "finished"
    report = _from_answers(arguments) if arguments.answers else _from_splits(arguments, console)
    if report is None:
        return
    console.print(terminal_table(str(arguments.folder), [report.outcome]))
    for line in terminal_lines([report.outcome]):
        console.print(line, markup=False, highlight=False, soft_wrap=isinstance(line, str))
    for name, why in choices([report.outcome]):
        console.print(printable(f"{name}: {why}"), markup=False, highlight=False, soft_wrap=True)
    status = "was finished before: nothing has changed" if finished else "written: look at report.html"
    console.print(printable(f"{arguments.folder} {status}"), markup=False, highlight=False, soft_wrap=True)


def _follow() -> None:
    """As another process of torchrun than the first: do what that one says, which also prints all there is to say."""
    from wdistill.training.followers import follow

    try:
        follow()
    except UnfinishedError:  # also where the first process is gone, and cannot say so
        raise
    except WdistillError as error:
        raise SystemExit(error.exit_code) from None


def _from_splits(arguments: argparse.Namespace, console: Console) -> Report | None:
    """Train on models and splits that files hold; with --advise print the verdict, and train no arm."""
    from wdistill.cli.advise import print_advice
    from wdistill.core.settings import flags_given
    from wdistill.runs.recipe import Recipe, read_recipe
    from wdistill.training.distill import advise, distill
    from wdistill.training.models.networks import NamedNetwork

    _check_flags(arguments, needed=("teacher", "student", "validation", "unlabeled"), others=(*OF_ANSWERS, "gold", "pool"))
    questions = questions_of(arguments)
    if not arguments.advise and (of_advice := list(flags_given(arguments, QuestionFlags))):
        flag, remedy = f"--{of_advice[0].replace('_', '-')}", "add --advise, or leave it out"
        raise bad_value("needs --advise", flag, "no --advise", "options that belong together", remedy)
    flags = {**flags_given(arguments, Recipe), **_class_count(arguments.classes)}
    recipe = read_recipe(arguments.recipe, _with_method(arguments.method, flags))
    data = _read_splits(arguments, recipe)
    teacher, student = _teacher(arguments.teacher), NamedNetwork(arguments.student)
    if not arguments.advise:
        return distill(teacher, student, **data, recipe=recipe, run=arguments.folder)
    asked = {"metric": arguments.metric, **vars(questions)}
    advice = advise(teacher, student, **data, **asked, rule=None, recipe=recipe, run=arguments.folder)
    print_advice(advice, console, details=arguments.details)
    resumes = "keeps what was trained: the same command without --advise resumes from there"
    console.print(printable(f"{arguments.folder} {resumes}"), markup=False, highlight=False, soft_wrap=True)
    return None


def _read_splits(arguments: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
    """The splits; where gold tells more than weights, with the columns that say how its rows were drawn.

    The paper's rules look at neither.
    """
    from wdistill.methods.gold_design import GROUP, INCLUSION
    from wdistill.training.files import DesignColumn, read_data

    named = [name for name in DESIGN if getattr(arguments, name) is not None]
    if "best" not in recipe.rule and recipe.metric == "accuracy":
        if named:
            found, remedy = f"--rule {' --rule '.join(recipe.rule)}", "add --method best, or leave it out"
            expected = "an arm best, or a --metric other than accuracy: the rules do not look at how gold was drawn"
            raise bad_value("no arm takes it", f"--{named[0]}", found, expected, remedy)
        group = inclusion = None
    else:
        group = DesignColumn(arguments.group or GROUP, needed="group" in named)
        inclusion = DesignColumn(arguments.inclusion or INCLUSION, needed="inclusion" in named)
    others = None if group is None else replace(group, needed=False)  # groups that gold shares with them are told
    columns = {"labeled": (others,), "validation": (group, inclusion), "unlabeled": (), "test": (others,)}
    paths = {name: path for name in columns if (path := getattr(arguments, name)) is not None}
    return {name: read_data(path, *columns[name]) for name, path in paths.items()}


def _from_answers(arguments: argparse.Namespace) -> Report:
    """Train a student on answers and gold labels."""
    from wdistill.answers.request import AnswerOptions
    from wdistill.cli.correct import sources_of
    from wdistill.core.settings import flags_given, read_settings
    from wdistill.methods.crossfit import need_sklearn
    from wdistill.runs.recipe import Recipe, read_recipe
    from wdistill.tables.options import read_class_names
    from wdistill.training.answers import distill_files
    from wdistill.training.followers import led

    need_sklearn("distill --answers")
    others = ("teacher", "labeled", "validation", "unlabeled", "kind", "teacher_epochs")
    _check_flags(arguments, others=(*others, *OF_ADVICE))
    names = None if arguments.classes is None else read_class_names(arguments.classes)
    flags = {name: value for name, value in flags_given(arguments, AnswerOptions).items() if name in (*OF_ANSWERS, *DESIGN)}
    options = read_settings(AnswerOptions, {**flags, "classes": names})
    of_recipe = {name: value for name, value in flags_given(arguments, Recipe).items() if name != "classes"}
    of_arms = {"rule": ("debiased",)} if arguments.method == "paper" else {}

    def complete(defaults: Mapping[str, Any]) -> Recipe:
        return read_recipe(arguments.recipe, _with_method(arguments.method, of_recipe), {**defaults, **of_arms})

    test = None if arguments.test is None else str(arguments.test)
    sources, folder = sources_of(arguments), arguments.folder
    return led(distill_files)(sources, options, test, arguments.student, None, complete, folder)


def _check_flags(arguments: argparse.Namespace, *, needed: Sequence[str] = (), others: Sequence[str]) -> None:
    """Raise where a flag is missing, or belongs to the other way of naming the data."""
    of_answers = "from answers: --answers, --gold, and --text or --inputs"
    of_splits = "from models and splits: --teacher, --student, --validation, --unlabeled"
    for name in others:
        if getattr(arguments, name) not in (None, False):
            here, there = (of_answers, of_splits) if arguments.answers else (of_splits, of_answers)
            remedy = "use wdistill advise --answers" if name in OF_ADVICE else "leave it out"
            raise bad_value("does not belong here", f"--{name.replace('_', '-')}", here, there, remedy)
    missing = [f"--{name}" for name in needed if getattr(arguments, name) is None]
    if missing:
        found = f"no {', '.join(missing)}"
        raise bad_value("flags are missing", "distill", found, f"{of_splits}; or {of_answers}", "name your files")


def _class_count(text: str | None) -> dict[str, Any]:
    """The number of classes as a setting of the recipe."""
    if text is not None and not text.isdecimal():
        expected = "a whole number; names of classes only with --answers"
        raise bad_value("not a number of classes", "--classes", repr(text), expected, "write how many there are")
    return {} if text is None else {"classes": int(text)}


def _with_method(method: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """The arm of a method among the flags."""
    if method != "best":
        return flags
    if "rule" in flags:
        found, remedy = f"--rule {' --rule '.join(flags['rule'])}", "write --rule best beside the others"
        expected = "--method best alone, or arms by --rule, of which best may be one"
        raise bad_value("two ways to name the arms", "--method best", found, expected, remedy)
    return {**flags, "rule": ("best",)}


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
    from wdistill.training.models.networks import NamedNetwork

    return NamedNetwork(sources[0])
