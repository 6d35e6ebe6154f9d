"""`wdistill advise`: the verdict before training, printed."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.commands.weighing import EPILOG, add_experts, add_reading, best_options
from wdistill.errors import ConfigError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from wdistill.experts import Consulted
    from wdistill.inspection import Bin
    from wdistill.methods.advising import Advice
    from wdistill.methods.intervals import Interval

CLASSES = 10  # shown at most, those with the lowest accuracies
PLANNED = 1_000  # rows in a plan, for judging and as many for teaching


def add(commands: Any) -> None:
    """The command and its flags."""
    advise = commands.add_parser(
        "advise",
        help="a verdict before training: what your gold labels could win",
        description="How often the teacher is wrong, who finds it, what each method would change, what a student would\n"
        "gain, and which rows to label next: from your gold rows (--validation) and a sample of the unlabeled rows.\n"
        "It needs scikit-learn: pip install 'wdistill[methods]'.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = advise.add_argument
    gold = "your gold rows, with a true label; repeat to join tables by id"
    unlabeled = "rows that the student will be trained on; repeat to join tables by id"
    flag("--validation", action="append", required=True, metavar="V", help=gold)
    flag("--unlabeled", action="append", required=True, metavar="U", help=unlabeled)
    flag("--labeled", action="append", default=[], metavar="L", help="with --inputs: id, label and inputs of labeled rows")
    add_experts(advise)
    flag("--plan", type=Path, metavar="FILE", help="where the ids to label next go: .parquet or .csv")
    flag("--targets", choices=("soft", "hard"), help="what the student will be trained on (default: soft)")
    add_reading(advise)
    advise.set_defaults(run=run_advise)


def run_advise(arguments: argparse.Namespace) -> None:
    from dataclasses import replace

    from rich.console import Console

    from wdistill import checks
    from wdistill.experts import consult, panel
    from wdistill.job import hear, tell_scaling
    from wdistill.methods.advising import advise
    from wdistill.methods.forest import need_learning

    need_learning("advise")
    _check_plan(arguments.plan, [*arguments.validation, *arguments.unlabeled, *arguments.labeled])
    with warnings.catch_warnings():
        hear([])
        found = panel(arguments.validation, arguments.unlabeled, arguments.labeled, best_options(arguments))
        consulted = consult(found)
        tell_scaling(found.corrections)
        if len(consulted.ids) < consulted.drawn:
            checks.warn(f"{consulted.drawn - len(consulted.ids):,} unlabeled rows are not in all tables, and are left out")
        advice = replace(advise(consulted.case, consulted.findings), unlabeled=consulted.rows, sampled=consulted.drawn)
    if arguments.plan is not None:
        _write_plan(advice, consulted, found.ids, arguments.plan)
    planned = f"Rows to label next, written to {printable(str(arguments.plan))}" if arguments.plan is not None else ""
    print_advice(advice, Console(soft_wrap=False), found.evidence.classes, planned)


def print_advice(advice: Advice, console: Console, names: Sequence[str] | None = None, planned: str = "") -> None:
    """All of it, the verdict last."""
    for each in shown(advice, names):
        console.print(each, highlight=False)
    if planned:
        console.print(planned, highlight=False, markup=False)
    console.print(f"[bold]Verdict: {advice.verdict}[/bold]", highlight=False)


def _check_plan(plan: Path | None, sources: Sequence[str]) -> None:
    """Refuse a plan that could not be written, before any work is done."""
    from wdistill.job import keep_inputs

    if plan is None:
        return
    bad = plan.is_dir() or plan.suffix.lower() not in (".parquet", ".csv")
    if bad or not plan.parent.is_dir():
        what = "a folder" if plan.is_dir() else plan.suffix or "no extension"
        raise ConfigError(
            "not a file that could be written",
            where=f"--plan {plan}",
            found=what if bad else f"no folder {plan.parent}",
            expected="a .parquet or .csv file in a folder that exists",
            remedy="name it next.csv, for example" if bad else "make the folder first, or name another",
        )
    keep_inputs(plan, sources, "--plan")


def _write_plan(advice: Advice, consulted: Consulted, gold: Any, path: Path) -> None:
    """Ids to label next, no gold rows: for judging drawn at random, for teaching chosen, each in the order to label."""
    import numpy as np
    import pyarrow as pa

    from wdistill import outputs
    from wdistill.experts import is_in

    n = len(consulted.ids)
    labeled = np.flatnonzero(is_in(consulted.ids, gold)) if consulted.named else np.arange(0)
    order = np.random.default_rng(1).permutation(n)
    judging = order[~np.isin(order, labeled)][: min(PLANNED, n // 2)]
    teaching = advice.next[~np.isin(advice.next, np.concatenate([judging, labeled]))][:PLANNED]
    use = np.repeat(["judge", "teach"], [len(judging), len(teaching)])
    ids = consulted.ids.take(pa.array(np.concatenate([judging, teaching])))
    table = pa.table({"id": ids, "use": pa.array(use)})
    assembly = outputs.Assembly(table.schema, table.num_rows, lambda: iter(table.to_batches()))
    outputs.write(path, path.with_name(f".{path.name}.tmp"), assembly, {"rows": table.num_rows})


def shown(advice: Advice, names: Sequence[str] | None) -> Iterator[Any]:
    """What is printed before the verdict, piece by piece, in 80 columns."""
    from rich.text import Text

    sample = f", of which {advice.sampled:,} drawn at random were read" if advice.sampled < advice.unlabeled else ""
    yield Text(f"{advice.gold:,} gold rows, {advice.unlabeled:,} unlabeled rows{sample}. In brackets: 95 % intervals.\n")
    yield _teacher_table(advice, names)
    yield _finder_table(advice)
    counted = percent if sample else (lambda found: f"{100 * found.value:.1f} %")  # all rows are there: no interval
    yield _table(
        "What each method would change",
        ("method", "rows changed", "effective sample size"),
        [(each.name, counted(each.changed), f"{100 * each.effective:.1f} % of the rows") for each in advice.changes],
    )
    yield _table(
        "Expected accuracy of the targets",
        ("targets by", "accuracy"),
        [(name, percent(each)) for name, each in advice.accuracies.items()],
    )
    yield _table(
        "What more gold rows would do",
        ("rows more", "gain, standard error", "projected gain"),
        [(f"{each.more:,}", f"± {each.error:.2f} points", f"{_points(each.gain)} points") for each in advice.steps],
    )
    yield Text(f"{_next(advice)} Rows for judging must be drawn at random; rows for teaching may be chosen.\n")
    for each in advice.findings:
        yield Text(f"Look first: {printable(each.text)}.", style="bold")
    if advice.alone:
        yield Text(f"{_without_teacher(advice)}\n")
    known, predicted = advice.gain.known, advice.gain.predicted
    yield Text(
        f"Corrected targets would gain the student {_points(known.value)} points over the teacher's own, of the "
        f"{_points(advice.gain.targets)} that the targets gain: {_span(known)} by what the gold rows leave "
        f"open, {_span(predicted)} for a single student, who differs from what targets promise by "
        f"{advice.gain.reach.residual:.1f} points.\n"
    )
    yield Text(f"`--method best` would teach the gold rows as labels, and {printable(advice.choice.why)}.\n")


def _next(advice: Advice) -> str:
    """How many rows to label."""
    judging = [f"{advice.judging:,} more would tell whether other targets gain."] if advice.judging is not None else []
    step, last, now = advice.teaching, advice.steps[-1], advice.gain.points
    teaching = f"Even {last.more:,} more would hardly better the correction"
    if step is not None:
        part = f"{_points(step.gain - now)} of the {_points(last.gain - now)} points"
        teaching = f"{step.more:,} more bring {part} that {last.more:,} would"
    return " ".join([*judging, f"{teaching}, the experts as they are; those that learn from gold rows gain with them."])


def _without_teacher(advice: Advice) -> str:
    kind = {"forest": "forest", "second": "second student"}[advice.alone]
    own, teacher = (f"{100 * each.value:.1f} %" for each in (advice.accuracies[f"{advice.alone} alone"], advice.teacher))
    return (
        f"Labels alone do better than the teacher here: a {kind} trained on labeled and gold rows is right on {own} of "
        f"gold, the teacher on {teacher}. Train a student without the teacher too, and compare."
    )


def _teacher_table(advice: Advice, names: Sequence[str] | None) -> Any:
    order = [c for c in range(len(advice.by_class)) if advice.class_rows[c]]
    lowest = sorted(sorted(order, key=lambda c: advice.by_class[c].value)[:CLASSES])
    rows = [("all", f"{advice.gold:,}", percent(advice.teacher))]
    rows += [(names[c] if names else str(c), f"{advice.class_rows[c]:,}", percent(advice.by_class[c])) for c in lowest]
    title = "The teacher on gold" + (f", the {CLASSES} classes with the lowest accuracy" if len(order) > CLASSES else "")
    return _table(title, ("class", "rows", "accuracy"), rows)


def _finder_table(advice: Advice) -> Any:
    rows = []
    for each in advice.finders:
        auc = _area(each.auc, each.auc_error) if each.auc == each.auc else "no errors"
        rows.append((each.name, auc, f"{each.calibration_error:.3f}", _said_and_came(each.bins)))
    return _table(
        "Who finds the teacher's errors on gold, out of fold",
        ("evidence", "AUC", "off by", "% wrong, said/came"),
        rows,
    )


def _area(auc: float, error: float) -> str:
    """With its 95 % interval."""
    from wdistill.methods.intervals import Z

    low, high = max(0.0, auc - Z * error), min(1.0, auc + Z * error)
    return f"{auc:.2f} ({low:.2f}–{high:.2f})"


def _said_and_came(bins: Sequence[Bin]) -> str:
    """Of fifths of the gold rows, from the most trusted: the chance of an error that was given, and how many there were."""
    return " ".join(f"{100 * (1 - each.mean):.0f}/{100 * (1 - each.accuracy):.0f}" for each in reversed(bins))


def _points(value: float) -> str:
    """With its sign, to one digit."""
    from wdistill.pages.words import MINUS

    return f"{value:+.1f}".replace("-", MINUS)


def _span(found: Interval) -> str:
    return f"{_points(found.low)} to {_points(found.high)}"


def percent(found: Interval) -> str:
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f}–{100 * found.high:.1f})"


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(printable(each)) for each in row))  # Text: brackets of users are no markup
    return table
