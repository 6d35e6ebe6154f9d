"""`wdistill weigh` and `wdistill inspect`."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.errors import ConfigError, FileError, InputError

if TYPE_CHECKING:
    from wdistill.options import BestOptions, Options

EPILOG = """
tables: parquet (a file, a folder or a 'glob*'), npz, csv or jsonl; npy for bare arrays, as teacher=PATH.npy
columns: id, teacher, student (lists, or teacher_0, teacher_1, …) and, in the validation table, label
exit codes: 0 done, 2 bad input or options, 3 cannot write, 5 another process is writing, 130 interrupted, 143 terminated
"""


def add(commands: Any) -> None:
    """Both commands and their flags."""
    weigh = commands.add_parser(
        "weigh",
        help="one weight, or a corrected target, for every unlabeled row",
        description="Estimate, on the validation rows, where the teacher is wrong, and weigh every unlabeled row;\n"
        "or, with --method best, write the targets that all experts together support.",
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
        "--output", required=True, type=Path, metavar="W", help="where weights (and targets) go: .parquet, .csv or .npz"
    )
    weigh.add_argument(
        "--method",
        choices=("paper", "best"),
        default="paper",
        help="paper: weights by --rule (default); best: corrected targets, where the validation rows speak for them",
    )
    _add_options(weigh)
    add_experts(weigh)
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


def add_experts(command: argparse.ArgumentParser) -> None:
    """The fields that `BestOptions` has besides."""
    command.add_argument(
        "--opinions",
        type=_words,
        metavar="COLUMN[,COLUMN…]",
        help="in V and U: predictions of models that never saw the validation rows, such as a second LLM",
    )
    command.add_argument(
        "--inputs", metavar="COLUMN", help="in V, U and L: numbers that a random forest learns from, as a second opinion"
    )


def _add_options(command: argparse.ArgumentParser) -> None:
    """The fields of `Options`; a flag that is not given stays None, and `Options` has the default."""
    add = command.add_argument
    add("--confidence", choices=("margin", "entropy"), help="of teacher and student (default: margin)")
    add("--targets", choices=("soft", "hard"), help="what the student will be trained on (default: soft)")
    add("--estimate", choices=("paper", "conditional", "ratio"), help="how neighbours are averaged (default: paper)")
    add(
        "--rule",
        type=_words,
        metavar="RULE[,RULE…]",
        help="debiased (default), unweighted, fidelity, threshold, oracle; several are multiplied",
    )
    add("--neighbors", type=int, metavar="K", help="neighbours to average (default: ceil(sqrt(validation rows) / 2))")
    add("--threshold", type=float, metavar="T", help="of the rule threshold: smallest margin (or largest entropy) kept")
    add("--truth", metavar="COLUMN", help="column of U with true labels, for the rule oracle")
    add(
        "--labeled",
        action="append",
        default=[],
        metavar="L",
        help="labeled rows: the teacher's predictions, for fidelity; with --inputs, label and inputs",
    )
    add_reading(command)


def add_reading(command: argparse.ArgumentParser) -> None:
    """How tables are read."""
    add = command.add_argument
    add("--kind", choices=("probabilities", "logits", "logprobs"), help="what the predictions are (default: probabilities)")
    add(
        "--classes",
        type=_classes,
        metavar="A,B,… | FILE",
        help="class names for string labels: a list, or a file, one a line",
    )
    add("--soft-labels", action="store_true", default=None, help="labels in V are one-hot or distributions")
    add("--renormalize", action="store_true", default=None, help="scale rows of probabilities to sum to 1")
    add("--allow-subset", action="store_true", default=None, help="use only the ids that all tables have")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _classes(text: str) -> tuple[str, ...]:
    """Class names from a list, or from a file with one a line."""
    if "," in text:
        return _words(text)
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(
            "the file of class names cannot be read",
            where=f"--classes {text}",
            found=str(error),
            expected="a text file with one name a line, or names separated by commas",
            remedy="correct the path, or list the names: --classes cat,dog",
        ) from None
    return tuple(line.strip() for line in lines if line.strip())


def run_weigh(arguments: argparse.Namespace) -> None:
    from wdistill.job import weigh_files
    from wdistill.options import check_method

    check_method(arguments.method == "best", [name for name in ("opinions", "inputs") if getattr(arguments, name)])
    tables = arguments.validation, arguments.unlabeled, arguments.output, arguments.labeled
    if arguments.method == "best":
        from wdistill.correcting import prepare_best

        record = weigh_files(*tables, best_options(arguments), prepare_best)
    else:
        record = weigh_files(*tables, _options(arguments))
    _print_record(record, {"written to": str(arguments.output)}, brief=True)


def run_inspect(arguments: argparse.Namespace) -> None:
    _check_inspect(arguments)
    picture = arguments.picture or (arguments.weights.with_suffix(".png") if arguments.weights else Path("inspect.png"))
    if picture.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(
            "unknown kind of picture",
            where=f"--picture {picture}",
            found=picture.suffix or "no extension",
            expected=".png or .svg",
            remedy="name it inspect.png, for example",
        )
    if arguments.weights is not None:
        _show(_read_weights(arguments.weights), str(arguments.weights), picture)
    elif arguments.unlabeled:
        from wdistill.job import weigh_files

        with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
            output = Path(folder) / "weights.parquet"
            record = weigh_files(arguments.validation, arguments.unlabeled, output, arguments.labeled, _options(arguments))
        _show({**record, "warnings": []}, ", ".join(arguments.unlabeled), picture)  # they have been printed
    else:
        from wdistill.job import describe_validation

        record = describe_validation(arguments.validation, _options(arguments))
        _show({**record, "warnings": []}, ", ".join(arguments.validation), picture)


def _check_inspect(arguments: argparse.Namespace) -> None:
    """Either a file of weights and nothing else, or tables and options."""
    alone = arguments.weights is not None
    extra = [*_given(arguments), *(name for name in ("validation", "unlabeled", "labeled") if getattr(arguments, name))]
    if alone and extra:
        names = ", ".join("--" + name.replace("_", "-") for name in extra)
        raise ConfigError(
            "a file of weights has its own options",
            where=f"inspect {arguments.weights}",
            found=names,
            expected="W alone, or --validation and options",
            remedy="leave out either W or the options",
        )
    if not alone and not arguments.validation:
        raise ConfigError(
            "nothing to inspect",
            where="inspect",
            found="no table",
            expected="W, or --validation V",
            remedy="name a file that `wdistill weigh` wrote, or the tables it would read",
        )
    rules = set(arguments.rule or ["debiased"])
    if not alone and not arguments.unlabeled and (arguments.labeled or rules != {"debiased"}):
        raise ConfigError(
            "this rule needs unlabeled rows",
            where="inspect --validation",
            found=f"--rule {','.join(rules)}",
            expected="--rule debiased, or --unlabeled too",
            remedy="add --unlabeled U",
        )


def _options(arguments: argparse.Namespace) -> Options:
    from wdistill.options import Options

    return Options(**_given(arguments))


def best_options(arguments: argparse.Namespace) -> BestOptions:
    from wdistill.options import BestOptions

    return BestOptions(**_given(arguments, BestOptions))


def _given(arguments: argparse.Namespace, options: type[Options] | None = None) -> dict[str, Any]:
    """The options that stand on the command line."""
    from wdistill.options import Options

    values = {field.name: getattr(arguments, field.name, None) for field in fields(options or Options)}
    return {name: value for name, value in values.items() if value is not None}


def _read_weights(path: Path) -> dict[str, Any]:
    """The record of a file of weights; without one, at least the histogram of its weights."""
    from dataclasses import asdict

    from wdistill.inspection import Histogram
    from wdistill.outputs import read_record
    from wdistill.readers import open_tables
    from wdistill.validation import naming_place

    (table,) = open_tables([str(path)], option="inspect")
    if table.has("teacher") and not table.has("weight"):
        raise InputError(
            "a table of predictions, not of weights",
            where=f"inspect {path}",
            found=", ".join(table.columns[:10]),
            expected="a file that `wdistill weigh` wrote",
            remedy="inspect tables with --validation V and --unlabeled U",
        )
    found = read_record(path)
    if found is not None and "histogram" in found:
        return found
    histogram = Histogram()
    for chunk in table.chunks(vectors=["weight"]):
        with naming_place(table, chunk, "weight"):
            histogram = histogram.plus(chunk.columns["weight"])
    if histogram.rows == 0:
        raise InputError(
            "no weights", where=f"inspect {path}", found="0 rows", expected="at least 1 row", remedy="weigh some rows first"
        )
    left = ", and not its targets, which are what --method best made" if table.has("targets") else ""
    warning = f"this file carries no record: only its weights can be shown{left}"
    return {"histogram": asdict(histogram), "warnings": [warning]}


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

    try:
        state = from_bytes(base64.b64decode(record["state"]), "its record") if "state" in record else None
        counted = record.get("histogram")
        histogram = Histogram(**{**counted, "counts": tuple(counted["counts"])}) if counted else None
        if histogram is not None and len(histogram.counts) != len(Histogram().counts):
            raise ValueError(f"{len(histogram.counts)} bins")
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            "its record is damaged",
            where="inspect",
            found=f"{type(error).__name__}: {error}",
            expected="a file that `wdistill weigh` wrote",
            remedy="weigh again",
        ) from None
    parts = state.parts if isinstance(state, Product) else (state,)
    return next((part for part in parts if isinstance(part, Debiased)), None), histogram


def _print_record(record: dict[str, Any], notes: dict[str, str], *, brief: bool = False) -> None:
    from rich.console import Console

    from wdistill.inspection import tables

    fitted, histogram = _known(record)
    if record.get("method") == "best":
        changed = f"{record['changed']:,} of {record['rows']:,}"
        notes = {"method": "best", "why": record["why"], "rows with another class": changed, **notes}
    elif "options" in record:
        notes = {"rule": ",".join(record["options"]["rule"]), **notes}
    counts = {"clipped to 1": record.get("clipped"), "rows with two equal largest classes": record.get("tied")}
    notes = {**{name: f"{count:,}" for name, count in counts.items() if count}, **notes}
    console = Console(soft_wrap=False)
    weights = None if record.get("method") == "best" else histogram  # all are 1
    for table in tables(fitted, weights, notes)[: 1 if brief else None]:
        console.print(table)
    for text in () if brief else record.get("warnings", []):
        console.print(f"warning: {text}", markup=False, highlight=False)
