"""Why a verdict is what it is, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from wdistill.report.words import MINUS

if TYPE_CHECKING:
    from wdistill.methods.advice import Advice
    from wdistill.methods.statistics import Interval

KINDS = {"forest": "forest", "second": "second student", "student": "student"}  # models trained on labels alone
REASONS = 5  # lines after the verdict, at most


def reasons(advice: Advice) -> list[str]:
    """Why, in at most five lines: first what would change the verdict, then teacher, targets, student and gold."""
    warnings = [f"Look first: {concern.text}." for concern in advice.concerns]
    if len(warnings) > REASONS:
        hidden = len(warnings) - REASONS + 1
        warnings[REASONS - 1 :] = [f"Look first: {hidden} more findings, which --details lists."]
    return [*warnings, *_why(advice)][:REASONS]


def _why(advice: Advice) -> Iterator[str]:
    targets, changed = advice.accuracies["corrected, expected"], advice.changes[-1].changed
    if advice.alone:
        right = f"{100 * advice.accuracies[f'{advice.alone} alone'].value:.1f} %"
        yield f"Labels alone beat the teacher ({KINDS[advice.alone]}: {right}). Train without it, too."
    yield f"{rows_read(advice)}; intervals are 95 %."
    yield _teacher_right(advice)
    yield f"Corrected targets: {targets.percent} expected; {100 * changed.value:.1f} % of rows change class."
    yield student_gain(advice)
    if not advice.alone:
        yield f"To teach: {_taught(advice)}."


def _teacher_right(advice: Advice) -> str:
    """On gold; and on the pool, where that is known better."""
    found = advice.pool.teacher
    if found.tuning == 0 or found.error >= found.gold_error:
        return f"The teacher is right on {advice.teacher.percent} of the gold rows."
    return f"Teacher: right on {advice.teacher.percent} of gold, {found.estimate.percent} of the pool."


def beyond(advice: Advice) -> list[str]:
    """After the reasons: gold rows for an interval of so many points, and costs where prices are known."""
    costs = [] if advice.costs is None else [f"Costs: {advice.costs.sentence}."]
    return [_rows_for_points(advice), *costs]


def _rows_for_points(advice: Advice) -> str:
    """How many gold rows the teacher's metric needs to be known so well."""
    needed, width = advice.needed, advice.needed.width
    pool = "" if width.with_pool is None else f", {width.with_pool:,} with the pool"
    rows = "more gold rows than anybody has" if width.gold is None else f"{width.gold:,} gold rows{pool}"
    return f"For ± {_of_metric(advice)} of {needed.metric}: {rows}; you have {advice.gold:,}."


def _of_metric(advice: Advice) -> str:
    """The width that was asked for: in points, or of a loss as it is."""
    points = advice.needed.points
    return f"{points / 100:g}" if advice.needed.loss else f"{points:g} point{'' if points == 1 else 's'}"


def student_gain(advice: Advice) -> str:
    """What targets gain, and what pilot students made of it."""
    interval = advice.gain.interval
    targets = f"Targets gain {points_of(interval.value)} points ({span(interval)})"
    if advice.forecast is None:
        return f"{targets}; a student's gain is not foretold."
    return f"{targets}; pilot students {points_of(advice.forecast.value)} ({span(advice.forecast)})."


def rows_read(advice: Advice) -> str:
    sample = f", of which {advice.sampled:,} drawn at random were read" if advice.sampled < advice.unlabeled else ""
    return f"{advice.gold:,} gold rows, {advice.unlabeled:,} unlabeled rows{sample}"


def what_next(advice: Advice) -> str:
    """How many rows to label: to judge, which tells how good something is, and to teach, which makes it better."""
    apart, width = advice.needed.apart, _of_metric(advice)
    told = "a difference of {} between teacher and corrected targets is found in four of five cases with {:,} gold rows"
    judging = [] if apart is None else [f"{told.format(width, apart)} in all"]
    if advice.judging is not None:
        judging.append(f"{advice.judging:,} more would tell whether the targets gain, if they gain as much as it seems")
    of_judging = [f"To judge: {'; '.join(judging)}. Such rows must be drawn at random."] if judging else []
    experts = "with the experts as they are; experts that learn from gold rows gain too. Such rows may be chosen."
    return "\n".join([*of_judging, f"To teach: {_taught(advice)}, {experts}"])


def _taught(advice: Advice) -> str:
    """What the targets would gain by more gold rows."""
    last, now, step = advice.steps[-1], advice.gain.points, advice.teaching
    if step is None:
        return f"even {last.more:,} more gold rows would hardly make the targets better"
    part = f"{points_of(step.gain - now)} of the {points_of(last.gain - now)} points"
    return f"{step.more:,} more gold rows bring {part} that {last.more:,} would"


def without_teacher(advice: Advice) -> str:
    own, teacher = (f"{100 * x.value:.1f} %" for x in (advice.accuracies[f"{advice.alone} alone"], advice.teacher))
    return (
        f"Labels alone do better than the teacher here: a {KINDS[advice.alone]} trained on labeled and gold rows is right "
        f"on {own} of gold, the teacher on {teacher}. Train a student without the teacher too, and compare."
    )


def points_of(value: float) -> str:
    """With its sign, to one digit."""
    return f"{value:+.1f}".replace("-", MINUS)


def span(interval: Interval) -> str:
    return f"{points_of(interval.low)} to {points_of(interval.high)}"
