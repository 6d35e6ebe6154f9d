"""The command `wdistill`: parse, call, print. Nothing is imported before it is needed, so that --help is instant."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from wdistill.errors import ConfigError, WdistillError, printable

EPILOG = """
tables: parquet (a file, a folder or a 'glob*'), npz, csv or jsonl; npy for bare arrays, as teacher=PATH.npy
columns: id, teacher, student (lists, or teacher_0, teacher_1, …) and, in the validation table, label
exit codes: 0 done, 2 bad input or options, 3 cannot write, 5 another process is writing, 130 interrupted
"""


class Parser(argparse.ArgumentParser):
    """One clear line instead of the whole usage; an unknown option is named first, with the nearest known one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        if self.get_default("run"):  # a command, not the parser of commands
            known = [text for action in self._actions for text in action.option_strings]
            for word in given:
                name = word.partition("=")[0]
                if name.startswith("--") and name not in (*known, "--"):
                    close = difflib.get_close_matches(name, known, 1)
                    self.error(f"unknown option {name}" + (f": did you mean {close[0]}?" if close else ""))
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {printable(message)}\n  to do: see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every error becomes a message and an exit code."""
    try:
        arguments = parser().parse_args(argv)
        arguments.run(arguments)
    except WdistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: nothing was written; finished parts are kept and the same command goes on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("WDISTILL_DEBUG"):
            raise
        print(f"error: this is a defect of wdistill: {type(error).__name__}: {printable(str(error))}", file=sys.stderr)
        print("  to do: run it again with WDISTILL_DEBUG=1 and report what it prints", file=sys.stderr)
        return 1
    return 0


def parser() -> Parser:
    """All commands and their flags; the defaults are those of `Options`."""
    from wdistill import __version__

    top = Parser(prog="wdistill", description="Weighted distillation with unlabeled examples.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"wdistill {__version__}")
    commands = top.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")

    weigh = commands.add_parser(
        "weigh",
        help="one weight for every unlabeled row",
        description="Estimate, on the validation rows, where the teacher is wrong, and weigh every unlabeled row.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    weigh.add_argument(
        "--validation",
        action="append",
        required=True,
        metavar="V",
        help="rows with a true label; repeat to join tables by id",
    )
    weigh.add_argument(
        "--unlabeled", action="append", required=True, metavar="U", help="rows to weigh; repeat to join tables by id"
    )
    weigh.add_argument(
        "--output", required=True, type=Path, metavar="W", help="where the weights go: .parquet, .csv or .npz"
    )
    _add_options(weigh)
    weigh.set_defaults(run=run_weigh)

    inspect = commands.add_parser(
        "inspect",
        help="look at a file of weights, or at the tables before weighing",
        description="Teacher accuracy against margin, reliability, weights, and the plane of the two confidences.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    inspect.add_argument("weights", nargs="?", type=Path, metavar="W", help="a file that `wdistill weigh` wrote")
    inspect.add_argument(
        "--validation", action="append", default=[], metavar="V", help="instead of W: rows with a true label"
    )
    inspect.add_argument("--unlabeled", action="append", default=[], metavar="U", help="with --validation: rows to weigh")
    inspect.add_argument(
        "--picture", type=Path, metavar="P", help="where the picture goes: .png or .svg (default: W.png or inspect.png)"
    )
    _add_options(inspect)
    inspect.set_defaults(run=run_inspect)
    return top


def _add_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--confidence", choices=("margin", "entropy"), default="margin", help="of teacher and student (default: margin)")
    add("--targets", choices=("soft", "hard"), default="soft", help="what the student will be trained on (default: soft)")
    add(
        "--estimate",
        choices=("paper", "conditional", "ratio"),
        default="paper",
        help="how neighbours are averaged (default: paper)",
    )
    add(
        "--rule",
        default="debiased",
        metavar="RULE[,RULE…]",
        help="debiased, unweighted, fidelity, threshold, oracle; several are multiplied",
    )
    add("--kind", choices=("probabilities", "logits", "logprobs"), default="probabilities", help="what the predictions are")
    add("--neighbors", type=int, metavar="K", help="neighbours to average (default: ceil(sqrt(validation rows) / 2))")
    add("--threshold", type=float, metavar="T", help="of the rule threshold: smallest margin (or largest entropy) kept")
    add("--classes", metavar="A,B,… | FILE", help="class names, where labels are strings: a list, or a file with one a line")
    add("--truth", metavar="COLUMN", help="column of U with true labels, for the rule oracle")
    add(
        "--labeled",
        action="append",
        default=[],
        metavar="L",
        help="table with the teacher's predictions on labeled rows, for fidelity",
    )
    add("--soft-labels", action="store_true", help="labels in V are one-hot or distributions")
    add("--renormalize", action="store_true", help="scale rows of probabilities to sum to 1")
    add("--allow-subset", action="store_true", help="weigh only the ids that all tables have")


def run_weigh(arguments: argparse.Namespace) -> None:
    from wdistill.job import weigh_files

    record = weigh_files(arguments.validation, arguments.unlabeled, arguments.output, arguments.labeled, _options(arguments))
    _print_record(record, {"written to": str(arguments.output)}, brief=True)


def run_inspect(arguments: argparse.Namespace) -> None:
    if arguments.weights is None and not arguments.validation:
        raise ConfigError("nothing to inspect", where="inspect", found="no table", expected="W, or --validation V")
    if arguments.weights is not None and arguments.validation:
        raise ConfigError("W and --validation exclude each other", where="inspect", found="both", expected="one of them")
    if arguments.unlabeled and not arguments.validation:
        raise ConfigError("--unlabeled needs --validation", where="inspect", found="only one", expected="both, or W alone")
    picture = arguments.picture or (arguments.weights.with_suffix(".png") if arguments.weights else Path("inspect.png"))
    if picture.suffix not in (".png", ".svg"):
        raise ConfigError("unknown kind of picture", where="--picture", found=picture.suffix, expected=".png or .svg")
    if arguments.weights is not None:
        _show(_read_weights(arguments.weights), str(arguments.weights), picture)
    elif arguments.unlabeled:
        from wdistill.job import weigh_files

        with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
            output = Path(folder) / "weights.parquet"
            record = weigh_files(arguments.validation, arguments.unlabeled, output, arguments.labeled, _options(arguments))
        _show(record, ", ".join(arguments.unlabeled), picture)
    else:
        from wdistill.job import describe_validation

        _show(describe_validation(arguments.validation, _options(arguments)), ", ".join(arguments.validation), picture)


def _options(arguments: argparse.Namespace) -> Any:
    from wdistill.options import Options

    return Options(
        rule=tuple(arguments.rule.split(",")),
        confidence=arguments.confidence,
        targets=arguments.targets,
        estimate=arguments.estimate,
        neighbors=arguments.neighbors,
        threshold=arguments.threshold,
        kind=arguments.kind,
        classes=_class_names(arguments.classes),
        truth=arguments.truth,
        soft_labels=arguments.soft_labels,
        renormalize=arguments.renormalize,
        allow_subset=arguments.allow_subset,
    )


def _class_names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    path = Path(text)
    if "," not in text and path.is_file():
        return tuple(path.read_text(encoding="utf-8").splitlines())
    return tuple(text.split(","))


def _read_weights(path: Path) -> dict[str, Any]:
    """The record of a file of weights; without one, at least the histogram of its weights."""
    from dataclasses import asdict

    from wdistill.inspection import Histogram
    from wdistill.outputs import read_record
    from wdistill.readers import open_tables

    (table,) = open_tables([str(path)], option="inspect")
    found = read_record(path)
    if found is not None:
        return found
    histogram = Histogram()
    for chunk in table.chunks(vectors=["weight"]):
        histogram = histogram.plus(chunk.columns["weight"])
    return {"histogram": asdict(histogram), "warnings": ["this file carries no record: only its weights can be shown"]}


def _show(record: dict[str, Any], title: str, picture: Path) -> None:
    from wdistill import inspection, store

    fitted, histogram = _known(record)
    content = inspection.picture(fitted, histogram, title, "svg" if picture.suffix == ".svg" else "png")
    store.write_bytes(picture, content)
    _print_record(record, {"picture": str(picture)})


def _known(record: dict[str, Any]) -> tuple[Any, Any]:
    """The fitted debiasing rule and the histogram of weights in a record, as far as they are there."""
    import base64

    from wdistill.inspection import Histogram
    from wdistill.rules import Debiased, Product
    from wdistill.states import from_bytes

    state = from_bytes(base64.b64decode(record["state"]), "its record") if "state" in record else None
    parts = state.parts if isinstance(state, Product) else (state,)
    fitted = next((part for part in parts if isinstance(part, Debiased)), None)
    fields = record.get("histogram")
    return fitted, Histogram(**{**fields, "counts": tuple(fields["counts"])}) if fields else None


def _print_record(record: dict[str, Any], notes: dict[str, str], *, brief: bool = False) -> None:
    from rich.console import Console

    from wdistill.inspection import tables

    fitted, histogram = _known(record)
    if "options" in record:
        notes = {"rule": ",".join(record["options"]["rule"]), **notes}
    if record.get("clipped"):
        notes = {"weights that would exceed 1": f"{record['clipped']:,}", **notes}
    console = Console(soft_wrap=False)
    for table in tables(fitted, histogram, notes)[: 1 if brief else None]:
        console.print(table)
    for text in () if brief else record.get("warnings", []):
        console.print(f"warning: {text}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
