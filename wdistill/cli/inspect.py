"""`wdistill inspect`: look at a file of weights, or at the tables before weighing."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.cli.weigh import EPILOG, OURS, fitted_and_histogram, print_record
from wdistill.core.errors import InputError, WdistillError, bad_value, empty, unreadable, wrong_extension

if TYPE_CHECKING:
    from wdistill.tables.options import Options, Paths


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.core.settings import add_flags
    from wdistill.tables.options import OF_METHOD, READING, Options

    inspect = commands.add_parser(
        "inspect",
        help="look at a file of weights, or at the tables before weighing",
        description="Teacher accuracy against margin, reliability, weights, and the plane of the two confidences.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = inspect.add_argument
    flag("weights", nargs="?", type=Path, metavar="W", help=OURS)
    flag("--validation", action="append", default=[], metavar="V", help="instead of W: rows with a true label")
    flag("--unlabeled", action="append", default=[], metavar="U", help="with --validation: rows to weigh")
    flag("--labeled", action="append", default=[], metavar="L", help="labeled rows: the teacher's predictions, for fidelity")
    flag("--picture", type=Path, metavar="P", help="where the picture goes: .png or .svg (default: W.png or inspect.png)")
    add_flags(inspect, Options, (*OF_METHOD["paper"], *READING))
    inspect.set_defaults(run=run_inspect)


def run_inspect(arguments: argparse.Namespace) -> None:
    from wdistill.core.settings import flags_given
    from wdistill.tables.options import Options, Paths, read_options

    paths = Paths(arguments.validation, arguments.unlabeled, arguments.labeled)
    flags = flags_given(arguments, Options)
    options = read_options(flags)
    picture = arguments.picture or (arguments.weights.with_suffix(".png") if arguments.weights else Path("inspect.png"))
    _check(arguments.weights, paths, list(flags), options)
    if picture.suffix.lower() not in (".png", ".svg"):
        raise wrong_extension("unknown kind of picture", f"--picture {picture}", picture, (".png", ".svg"))
    if arguments.weights is not None:
        record = _read_weights(arguments.weights)
        try:
            _show(record, str(arguments.weights), picture)
        except WdistillError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # it need not be ours
            what = "its record is damaged, or of another version"
            raise unreadable(what, arguments.weights, error, OURS, "weigh again") from None
    else:
        record = _weigh(paths, options)
        _show({**record, "warnings": []}, ", ".join(paths.unlabeled or paths.validation), picture)  # they have been printed


def _check(weights: Path | None, paths: Paths, flags: list[str], options: Options) -> None:
    """Either a file of weights and nothing else, or tables and options."""
    from wdistill.core.settings import settings_of

    if weights is not None:
        tables = [f"--{name}" for name in ("validation", "unlabeled", "labeled") if getattr(paths, name)]
        known = settings_of(type(options))
        extra = ", ".join([*(known[name].flag for name in flags), *tables])
        if extra:
            expected, remedy = "W alone, or --validation and options", "leave out either W or the options"
            raise bad_value("a file of weights has its own options", f"inspect {weights}", extra, expected, remedy)
    elif not paths.validation:
        remedy = "name a file that `wdistill weigh` wrote, or the tables it would read"
        raise bad_value("nothing to inspect", "inspect", "no table", "W, or --validation V", remedy)
    elif not paths.unlabeled and (paths.labeled or options.rule != ("debiased",)):
        found, expected = f"--rule {','.join(options.rule)}", "--rule debiased, or --unlabeled too"
        raise bad_value("this rule needs unlabeled rows", "inspect --validation", found, expected, "add --unlabeled U")


def _weigh(paths: Paths, options: Options) -> dict[str, Any]:
    """The record that weighing these tables would write; without unlabeled rows, what the validation rows tell."""
    from wdistill.tables.weigh import describe_validation, weigh_files

    if not paths.unlabeled:
        return describe_validation(paths, options)
    with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
        return weigh_files(paths, Path(folder) / "weights.parquet", options)


def _read_weights(path: Path) -> dict[str, Any]:
    """The record of a file of weights; without one, at least the histogram of its weights."""
    from dataclasses import asdict

    from wdistill.core.places import place_of
    from wdistill.tables.formats.table import open_tables
    from wdistill.tables.gold import located_errors
    from wdistill.tables.manifest import differences, is_finished, read_manifest
    from wdistill.tables.output import read_record
    from wdistill.weights.diagnostics import Histogram

    if is_finished(path):
        manifest = read_manifest(place_of(str(path)), str(path)) or {}
        missing, foreign = differences(path, manifest)
        if missing or foreign:
            found = "; ".join(
                f"{', '.join(names[:5])} {said}"
                for names, said in ((missing, "missing or cut off"), (foreign, "not of the job"))
                if names
            )
            remedy = f"wdistill verify {path}"
            raise unreadable("the folder does not hold what its manifest lists", path, found, "its parts alone", remedy)
        return manifest
    (table,) = open_tables([str(path)], option="inspect")
    if table.has("teacher") and not table.has("weight"):
        found, remedy = ", ".join(table.columns[:10]), "inspect tables with --validation V and --unlabeled U"
        raise InputError(
            "a table of predictions, not of weights", where=f"inspect {path}", found=found, expected=OURS, remedy=remedy
        )
    record = read_record(path)
    if record is not None and "histogram" in record:
        return record
    histogram = Histogram()
    for chunk in table.chunks(vectors=["weight"]):
        with located_errors(table, chunk, "weight"):
            histogram = histogram.plus(chunk.columns["weight"])
    if histogram.rows == 0:
        raise empty("no weights", f"inspect {path}", "at least 1 row", "weigh some rows first")
    left = ", and not its targets, which are what --method best made" if table.has("targets") else ""
    warning = f"this file carries no record: only its weights can be shown{left}"
    return {"histogram": asdict(histogram), "warnings": [warning]}


def _show(record: dict[str, Any], title: str, picture: Path) -> None:
    from wdistill.core import store
    from wdistill.report.inspect import picture as draw

    fitted, histogram = fitted_and_histogram(record)
    content = draw(fitted, histogram, title, "svg" if picture.suffix == ".svg" else "png")
    store.write_bytes(picture, content)
    print_record(record, {"picture": str(picture)})
