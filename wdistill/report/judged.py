"""Students by the user's metric, their decisions, and what the pool says of them, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from wdistill.core.errors import printable
from wdistill.methods.pilots import UNFORESEEN_AFTER
from wdistill.methods.statistics import Interval
from wdistill.report.tables import Grid
from wdistill.report.words import MINUS, count, listed
from wdistill.runs.judgement import JudgedStudent, Measured, PoolGain
from wdistill.runs.outcome import Outcome

if TYPE_CHECKING:
    from rich.table import Table

NAMED = 10  # classes whose offsets are listed


def pool_sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """What arms with corrected targets gain on the pool, one sentence for each arm."""
    found: dict[tuple[str, str], dict[str, list[PoolGain]]] = {}
    for outcome in outcomes:
        for gain in outcome.judgement.pool:
            found.setdefault((gain.arm, gain.base), {}).setdefault(gain.metric, []).append(gain)
    return [
        f"Judged by the corrected targets on {next(iter(by_metric.values()))[0].rows:,} rows of the pool, which both were "
        f"trained on, {arm} gains {listed([_gained(*each) for each in by_metric.items()])} over "
        f"{base}{_without_gold(outcomes, base)}."
        for (arm, base), by_metric in found.items()
    ]


def _without_gold(outcomes: Sequence[Outcome], base: str) -> str:
    """What is to be known of an interval whose width was measured with gold rows in both trainings."""
    with_gold = any(outcome.arms[base].gold for outcome in outcomes if base in outcome.arms)
    return (
        "" if with_gold else ", which was not trained on the gold rows (where the interval's width was measured, both were)"
    )


def without_base(outcomes: Sequence[Outcome]) -> list[str]:
    """Of finished runs whose arms have corrected targets alone: which arm would tell what they gain."""
    finished = [outcome for outcome in outcomes if outcome.state == "finished"]
    taught_plainly = any(not arm.why for outcome in finished for arm in outcome.arms.values())
    if not finished or taught_plainly or any(outcome.recipe.get("targets_from") == "teacher" for outcome in finished):
        return []
    return [
        "No arm was taught the teacher's own targets, so that nothing is known of what the corrected ones gained: a run "
        "of its own with --rule unweighted --rule best --validation-in-training yes tells."
    ]


def _gained(metric: str, gains: Sequence[PoolGain]) -> str:
    intervals = [each.gain for each in gains]
    if metric == "accuracy":
        return f"{_number(intervals, 100.0, '+', 1)} points"
    if metric in UNFORESEEN_AFTER or len(gains) > 1:
        return f"{_number(intervals, 1.0, '+')} of {metric}"
    value, low, high = (_text(each, 1.0, "+", 3) for each in (intervals[0].value, intervals[0].low, intervals[0].high))
    return f"{value} of {metric} (these rows alone leave open {low} to {high}; how far students are from it was never tried)"


def decisions(outcomes: Sequence[Outcome]) -> list[str]:
    """How the student of every arm decides, one sentence for each; where trials differ, those of the first."""
    first: dict[str, JudgedStudent] = {}
    for outcome in outcomes:
        first = {**outcome.judgement.students, **first}
    which = "In the first trial, " if len(outcomes) > 1 else ""
    return [f"{which}{arm} decides {_decision(student)}." for arm, student in first.items()]


def _decision(student: JudgedStudent) -> str:
    where = {
        "gold": "on the gold rows, which it was not trained on",
        "pool": "on the pool with the corrected targets as its truth, since it knows the gold rows by heart",
        "": "",
    }[student.fitted_on]
    if student.costs is not None:
        return "for the class of least expected cost" + (f", its probabilities recalibrated {where}" if where else "")
    if not student.accepted:
        if student.metric == "cost":
            return f"for the most likely class: that of least expected cost cost more, {where}"
        return f"for the most likely class: {_why_no_other(student)}"
    if len(student.classes) == 2:
        above = float(student.decision.thresholds[1])
        return f"for class {student.classes[1]} from a probability of {above:.3g} on: found {where}"
    largest = sorted(np.argsort(np.abs(student.offsets), kind="stable")[::-1][:NAMED])
    offsets = ", ".join(f"{student.classes[c]} {student.offsets[c]:+.2f}".replace("-", MINUS) for c in largest)
    return f"for the largest log-probability plus offset ({offsets}): found {where}"


def _why_no_other(student: JudgedStudent) -> str:
    """Why the most likely class is decided."""
    if student.metric.startswith("recall@"):
        rows = "the pool, with the corrected targets as its truth" if student.fitted_on == "pool" else "the gold rows"
        return f"no threshold reaches the precision of {student.metric} on {rows}"
    return "other decisions gained nothing" if student.fitted_on else f"{student.metric} needs no other decision"


def grids(outcomes: Sequence[Outcome]) -> list[Grid]:
    """The metric and what belongs to it, and the metric by class, of every arm."""
    some = next((each for outcome in outcomes for each in outcome.judgement.students.values() if each.measured_on), None)
    if some is None:
        return []
    on = f"{count(some.rows, f'{some.measured_on} row')}{', out of fold' if some.measured_on == 'gold' else ''}"
    overall = _grid(outcomes, f"on {on}", lambda student: student.overall, "")
    return [
        overall,
        _grid(outcomes, f"{some.metric.partition(':')[0]} by class", lambda student: student.by_class, "class "),
    ]


def _grid(outcomes: Sequence[Outcome], title: str, part: Callable[[JudgedStudent], Sequence[Measured]], before: str) -> Grid:
    found: dict[tuple[str, str], list[Measured]] = {}
    for outcome in outcomes:
        for arm, student in outcome.judgement.students.items():
            for each in part(student):
                found.setdefault((arm, each.name), []).append(each)
    lines = [
        (f"{arm}: {before}{name}", _cell(measured, "likely"), _cell(measured, "decided"))
        for (arm, name), measured in found.items()
    ]
    return Grid((title, "most likely class", "its decision"), tuple(lines))


def _cell(measured: Sequence[Measured], which: Literal["likely", "decided"]) -> str:
    known = [interval for each in measured if (interval := getattr(each, which)) is not None]
    if not known and all(each.likely is None and each.decided is None for each in measured):
        return "no row tells"  # such as the precision of a class that is never decided
    return _number(known) if known else ""


def _number(intervals: Sequence[Interval], scale: float = 1.0, sign: str = "", digits: int = 3) -> str:
    """The value with its 95 % interval; of several trials, their mean and standard deviation."""

    values = [each.value for each in intervals]
    if len(values) > 1:
        spread = scale * float(np.std(values, ddof=1))
        return f"{_text(float(np.mean(values)), scale, sign, digits)} ± {spread:.{digits}f}"
    value, low, high = (_text(each, scale, sign, digits) for each in (values[0], intervals[0].low, intervals[0].high))
    return f"{value} ({low} to {high})"


def _text(value: float, scale: float, sign: str, digits: int) -> str:
    return f"{scale * value:{sign}.{digits}f}".replace("-", MINUS)


def terminal_lines(outcomes: Sequence[Outcome]) -> Iterator[Table | str]:
    """All of it for the terminal: tables, then sentences."""
    from rich.table import Column, Table
    from rich.text import Text

    for grid in grids(outcomes):
        table = Table(*(Column(Text(printable(column))) for column in grid.columns))
        for line in grid.lines:
            table.add_row(*(Text(printable(cell)) for cell in line))
        yield table
    yield from (
        printable(sentence) for sentence in (*decisions(outcomes), *pool_sentences(outcomes), *without_base(outcomes))
    )
