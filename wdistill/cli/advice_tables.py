"""The tables behind a verdict, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from wdistill.cli.reasons import REASONS, points_of, rows_read, student_gain, what_next, without_teacher
from wdistill.core.errors import printable
from wdistill.methods.pilots import UNFORESEEN
from wdistill.methods.statistics import Interval, Z

if TYPE_CHECKING:
    from wdistill.answers.verdict import AnswersAdvice, Example
    from wdistill.methods.advice import Advice
    from wdistill.methods.costs import CostComparison
    from wdistill.methods.judged import JudgedTargets
    from wdistill.methods.on_pool import PoolEstimates
    from wdistill.weights.diagnostics import Bin

CLASSES = 10  # shown at most, those with the lowest accuracies
TEXT = 60  # characters of a text that are shown
PILOTS = (
    "Two pilot students learned three quarters of the unlabeled rows, one the teacher's targets and one the corrected ones; "
    "the corrected targets judged both on the last quarter. It is a rough forecast: over tasks that tried it, about half of "
    "such forecasts were off by more than a point, nearly all of them too low."
)
UNTRIED = (
    "How far a student's {} is from what its pilot gains was never tried: the gain has no interval. The rows that judge the "
    "pilots leave open {}."
)
NO_PILOTS = "What a student makes of better targets only pilot students tell: name the inputs (--inputs) to train them."


def tables(advice: Advice, names: Sequence[str] | None) -> Iterator[Any]:
    """All numbers behind the verdict, table by table, in 80 columns."""
    from rich.text import Text

    for concern in advice.concerns if len(advice.concerns) > REASONS else ():
        yield Text(f"Look first: {printable(concern.text)}.", style="bold")
    yield Text(f"\n{rows_read(advice)}. In brackets: 95 % intervals.\n")
    yield _teacher_table(advice, names)
    yield _pool_table(advice.pool)
    for expert in advice.pool.classes:
        yield _pool_classes(advice, expert, names)
    yield _finder_table(advice)
    whole = advice.sampled == advice.unlabeled  # all rows were counted: no interval
    yield _table(
        "What each method would change",
        ("method", "rows changed", "effective sample size"),
        [
            (
                change.name,
                f"{100 * change.changed.value:.1f} %" if whole else change.changed.percent,
                f"{100 * change.effective:.1f} % of the rows",
            )
            for change in advice.changes
        ],
    )
    yield _table(
        "Expected accuracy of the targets",
        ("targets by", "accuracy"),
        [(name, accuracy.percent) for name, accuracy in advice.accuracies.items()],
    )
    yield _table(
        "What more gold rows would do",
        ("more rows", "gain, standard error", "projected gain"),
        [(f"{step.more:,}", f"± {step.error:.2f} points", f"{points_of(step.gain)} points") for step in advice.steps],
    )
    yield Text(f"{what_next(advice)}\n")
    if advice.alone:
        yield Text(f"{without_teacher(advice)}\n")
    yield Text(f"{student_gain(advice)} {PILOTS if advice.forecast else NO_PILOTS}\n")
    yield Text(
        f"`--method best` would teach the gold rows as labels, and for the others {printable(advice.correction.why)}."
    )


def _teacher_table(advice: Advice, names: Sequence[str] | None) -> Any:
    order = [c for c in range(len(advice.by_class)) if advice.class_rows[c]]
    lowest = sorted(sorted(order, key=lambda c: advice.by_class[c].value)[:CLASSES])
    rows = [("all", f"{advice.gold:,}", advice.teacher.percent)]
    rows += [(names[c] if names else str(c), f"{advice.class_rows[c]:,}", advice.by_class[c].percent) for c in lowest]
    title = "The teacher on gold" + (f", the {CLASSES} classes with the lowest accuracy" if len(order) > CLASSES else "")
    return _table(title, ("class", "rows", "accuracy"), rows)


def _pool_table(pool: PoolEstimates) -> Any:
    """Teacher and students on the unlabeled rows, beside gold alone."""
    rows = [(f"{name}, accuracy", found.gold.percent, found.estimate.percent) for name, found in pool.accuracy.items()]
    if pool.pilot is not None:
        rows.append(("pilot student, by corrected targets", "", pool.pilot.percent))
    for name, found in pool.by_metric.items():
        rows.append((f"{name}, {pool.metric}", _number(found.gold), _number(found.estimate)))
    return _table("What is known of the unlabeled rows", ("", "from gold alone", "from gold and pool"), rows)


def _pool_classes(advice: Advice, expert: str, names: Sequence[str] | None) -> Any:
    """Teacher or student class by class on the unlabeled rows, below the same from gold alone."""
    rows, classes = [], advice.pool.classes[expert]
    for each in classes:
        found = (each.share, each.recall, each.f1)
        name = names[each.number] if names else str(each.number)
        rows.append((name, "gold", *(_percent(part.gold) for part in found)))
        rows.append(("", "and pool", *(_percent(part.estimate) for part in found)))
    some = len(classes) < sum(count > 0 for count in advice.class_rows)
    title = f"The same, class by class: the {expert}" + (", where it is right least often" if some else "")
    return _table(title, ("class", "from", "share, %", "recall, %", "F1, %"), rows)


def _percent(share: Interval) -> str:
    return share.percent.replace(" %", "")


def costs_table(costs: CostComparison) -> Any:
    """What each way to serve rows costs, the cheapest first."""
    rows = [
        (
            each.name,
            f"{each.way.errors.percent}\n{each.way.known_from}",
            _money(each.before),
            f"{each.each.value:.3g}",
            f"{_money(each.total.value)}\n({_money(each.total.low)}–{_money(each.total.high)})",
        )
        for each in costs.totals
    ]
    header = ("served by", "wrong,\nas known from", "before", "a row", f"for {costs.served:,} rows")
    return _table("What it costs; labels and answers that you have are paid for", header, rows)


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 1_000 else f"{amount:,.0f}"


def judged_table(judged: JudgedTargets, names: Sequence[str] | None) -> Any:
    """Teacher and corrected targets by the user's metric, overall and by class."""
    shown = sorted(range(len(judged.by_class)), key=lambda c: judged.by_class[c][0].value)[:CLASSES]
    rows = [("all", _number(judged.teacher), _number(judged.corrected))]
    for c in sorted(shown):
        teacher, corrected = judged.by_class[c]
        rows.append((names[c] if names else str(c), _number(teacher), _number(corrected)))
    rows.append(("gain of the targets", "", _number(judged.gain, "+")))
    caption = None
    if judged.forecast is not None:
        tried, number = judged.metric in UNFORESEEN, _number(judged.forecast, "+")
        rows.append(("gain of pilot students", "", number if tried else number.partition(" ")[0]))
        caption = None if tried else UNTRIED.format(judged.metric, number.partition(" ")[2].strip("()"))
    title = f"By {judged.metric}, on gold, out of fold; 95 % intervals"
    return _table(title, ("class", "teacher", "corrected targets"), rows, caption)


def _number(interval: Interval, sign: str = "") -> str:
    """To three digits, with its interval."""
    return f"{interval.value:{sign}.3f} ({interval.low:{sign}.3f} to {interval.high:{sign}.3f})".replace("-", "−")


def _finder_table(advice: Advice) -> Any:
    rows = []
    for finder in advice.detectors:
        auc = _area(finder.auc, finder.auc_error) if finder.auc == finder.auc else "no errors"
        rows.append((finder.name, auc, f"{finder.calibration_error:.3f}", _predicted_and_observed(finder.bins)))
    return _table(
        "Who finds the teacher's errors on gold, out of fold",
        ("evidence", "AUC", "calibration\nerror", "% wrong,\npredicted/observed"),
        rows,
    )


def _area(auc: float, error: float) -> str:
    """With its 95 % interval."""
    low, high = max(0.0, auc - Z * error), min(1.0, auc + Z * error)
    return f"{auc:.2f} ({low:.2f}–{high:.2f})"


def _predicted_and_observed(bins: Sequence[Bin]) -> str:
    """Percentages of errors in fifths of the gold rows, from the most trusted."""
    return " ".join(f"{100 * (1 - fifth.mean):.0f}/{100 * (1 - fifth.accuracy):.0f}" for fifth in reversed(bins))


def class_table(found: AnswersAdvice) -> Any:
    shown = sorted(found.figures, key=lambda each: each.f1.value if each.f1.value == each.f1.value else 2.0)[:CLASSES]
    rows = [(each.name, f"{each.rows:,}", each.precision.percent, each.recall.percent, each.f1.percent) for each in shown]
    title = "The teacher on gold, class by class" + (f": the {CLASSES} lowest" if len(found.figures) > CLASSES else "")
    return _table(title, ("class", "rows", "precision", "recall", "F1"), rows)


def confusion_table(found: AnswersAdvice) -> Any:
    rows = [(each.truth, each.answered, f"{each.rows:,}") for each in found.confusions[:5]]
    return _table("What it confuses", ("is", "was taken for", "gold rows"), rows)


def example_table(title: str, examples: Sequence[Example]) -> Any:
    rows = [
        (each.id, each.text[:TEXT].replace("\n", " "), f"{each.teacher} → {each.target}", f"{100 * each.confidence:.0f} %")
        for each in examples
    ]
    return _table(title, ("id", "text", "teacher → target", "sure"), rows)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None) -> Any:
    from rich.table import Table
    from rich.text import Text

    below = None if caption is None else Text(printable(caption))
    table = Table(*header, title=title, title_justify="left", caption=below, caption_justify="left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: brackets of users are no markup
    return table
