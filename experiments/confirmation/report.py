"""The confirmation as tables in Markdown and as a figure; all of it made of the lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from experiments.confirmation.judge import (
    BROKEN,
    Forecasts,
    Line,
    MeanGain,
    Verdict,
    forecast_verdicts,
    forecasts,
    gaps,
    losses,
    mean_gain,
    rival_gaps,
    sizes_of,
    target_forecasts,
    verdicts,
    without_broken,
)
from experiments.confirmation.kinds import MEANING as MEANING_OF_KINDS
from experiments.confirmation.kinds import data_table, kind_table
from experiments.confirmation.rivals import BASE, LABELS
from experiments.confirmation.widths import width_table
from experiments.lab.tables import MISSING, joined, markdown
from experiments.leaderboard.report import percent, points, provenance, tasks_figure
from experiments.leaderboard.statistics import gain_of
from experiments.leaderboard.tasks import Task
from wdistill.report.svg import AMBER, BLUE, GREEN, GREY, PURPLE
from wdistill.report.words import chance, listed, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = {  # arms of the figure: color and marker
    "best": (BLUE, "o"),
    "recalibrated+gold": (AMBER, "D"),
    "retrained+gold": (PURPLE, "s"),
    LABELS: (GREY, "X"),
    "truth+gold": (GREEN, "^"),
}
Row = Callable[[Sequence[Line], int], str]  # what a row says of lines, with a number of gold rows
MEANING = (
    f"Points of test accuracy over {BASE}, mean over tasks ± standard error over trials (tasks). "
    "Arms are trained on soft targets, but for those called hard."
)


WIDTHS = (
    "Widths are what these trials need, afterwards, as standard deviations in points; what speaks for new data is the last "
    "column: of each data set, with the width that all others need. Macro-F1: tasks with classes of uneven size."
)


def table(lines: Sequence[Line], tasks: Sequence[Task], wanted: int) -> str:
    """All numbers as Markdown; so many trials are there to be."""
    groups = {
        "All tasks": list(tasks),
        "Teachers that can be retrained": [task for task in tasks if not task.frozen],
        "Frozen teachers": [task for task in tasks if task.frozen],
    }
    uneven = uneven_of(tasks)
    parts = ["### Confirmation", so_far(lines, wanted), *_goals(lines, uneven), MEANING]
    for title, each in groups.items():
        parts += [f"#### {title}", f"{listed([task.name for task in each])}.", board(_of(lines, each))]
    parts += ["#### Macro-F1, where classes are of uneven size", f"{listed([task.name for task in uneven])}."]
    parts += [board(_of(lines, uneven), "macro_f1")] if _of(lines, uneven) else []
    parts += ["#### Task by task", task_table(lines, tasks), "#### Forecasts", forecast_table(lines, uneven)]
    parts += ["#### Forecasts by kind of student", kinds(lines), "#### Forecasts by data set", data_table(lines)]
    parts += ["#### Widths of the intervals", WIDTHS, width_table(lines, tasks)]
    return joined([*parts, provenance(lines)])


def brief(lines: Sequence[Line], tasks: Sequence[Task], wanted: int) -> str:
    """Goals, all arms over all tasks, and what came of every task, for documents."""
    uneven = uneven_of(tasks)
    parts = [so_far(lines, wanted), *_goals(lines, uneven), board(lines), MEANING]
    return joined([*parts, task_table(lines, tasks), forecast_table(lines, uneven), provenance(lines)])


def _goals(lines: Sequence[Line], uneven: Sequence[Task]) -> list[str]:
    by_f1 = [f"By macro-F1: {lost(theirs, 'macro_f1')}"] if (theirs := _of(lines, uneven)) else []
    return [judged(lines), f"By accuracy: {lost(lines)}", beside(lines, uneven), *by_f1]


def uneven_of(tasks: Iterable[Task]) -> list[Task]:
    """The tasks that are judged by macro-F1 too."""
    return [task for task in tasks if "macro_f1" in task.metrics]


def judged(lines: Sequence[Line]) -> str:
    """The goals as a table in Markdown."""
    return _verdict_table(("goal, set before the runs", "required", "observed", "verdict"), lines, verdicts)


def lost(lines: Sequence[Line], metric: str = "accuracy") -> str:
    """What `best` is significantly below, and where."""
    places = [
        f"{each.rival} on {each.task} with {each.gold:,} gold rows, by {each.points:.2f} points ({chance(each.p)})"
        for each in losses(lines, metric)
    ]
    return f"significantly below {'; '.join(places) or 'no rival'}."


def beside(lines: Sequence[Line], uneven: Sequence[Task]) -> str:
    """What no goal was set for, held to the bounds of the goals: macro-F1, and both students as judged after training."""

    def found(some: Sequence[Line]) -> list[Verdict]:
        theirs = _of(some, uneven)
        by_f1 = [replace(each, goal=f"macro-F1: {each.goal}") for each in verdicts(theirs, "macro_f1")] if theirs else []
        return [*by_f1, *forecast_verdicts("judged after training", forecasts(some, "after"))]

    return _verdict_table(("beside the goals", "their bound", "observed", "by that bound"), lines, found)


def _verdict_table(
    header: Sequence[str], lines: Sequence[Line], found: Callable[[Sequence[Line]], Sequence[Verdict]]
) -> str:
    """Verdicts on these lines; and in one more column without the task whose teacher broke down."""
    rows, others = [[each.goal, each.target, each.value, each.word] for each in found(lines)], without_broken(lines)
    if not others:
        return markdown(header, rows)
    more = [f"{each.value}: {each.word}" for each in found(others)]
    return markdown([*header, f"without {BROKEN}"], [[*row, each] for row, each in zip(rows, more, strict=True)])


def board(lines: Sequence[Line], metric: str = "accuracy") -> str:
    """Every arm over unweighted + gold, mean over tasks ± standard error over trials, by number of gold rows."""
    names = list(dict.fromkeys(name for line in lines for name in line[metric]))
    largest = {name: mean_gain(lines, name, BASE, sizes_of(lines)[-1], metric) for name in names}
    order = sorted(names, key=lambda name: -found.mean if (found := largest[name]) else np.inf)

    def cell(name: str) -> Row:
        return lambda some, gold: gain_text(mean_gain(some, name, BASE, gold, metric), tasks=True)

    return by_columns("arm", {name: cell(name) for name in order}, lines)


def by_columns(title: str, rows: Mapping[str, Row], lines: Sequence[Line]) -> str:
    """A table with a column for each number of gold rows; and for each without the task whose teacher broke down."""
    others = without_broken(lines)
    columns = {f"{gold:,} gold rows": (lines, gold) for gold in sizes_of(lines)}
    columns |= {f"{gold:,}, without {BROKEN}": (others, gold) for gold in sizes_of(others)}
    return markdown((title, *columns), [[name, *(row(*each) for each in columns.values())] for name, row in rows.items()])


def gain_text(found: MeanGain | None, tasks: bool = False) -> str:
    """With its standard error, where there is one, and with the number of tasks, where that is asked for."""
    if found is None:
        return MISSING
    error = f" ± {found.error:.2f}" if found.error is not None else ""
    return signed(found.mean) + error + (f" ({found.tasks})" if tasks else "")


def widths(lines: Sequence[Line], tasks: Sequence[Task]) -> str:
    """How far students were from what was said of them, and the widths that this sets, for documents."""
    return joined([width_table(lines, tasks), WIDTHS])


def kinds(lines: Sequence[Line]) -> str:
    """How the forecast did by kind of student, for documents."""
    return joined([kind_table(lines), MEANING_OF_KINDS])


def so_far(lines: Sequence[Line], wanted: int) -> str:
    return f"{len(lines):,} of {wanted:,} trials have been run."


def task_table(lines: Sequence[Line], tasks: Iterable[Task]) -> str:
    """Of every task and size: what `best` gains, over what, which rival was the best in hindsight, and the forecast."""
    over_base, over_labels, hard = (
        gaps(lines, *arms) for arms in (("best", BASE), ("best", LABELS), ("best, hard", "best"))
    )
    told = forecasts(lines).cells
    rows = []
    for cell in [(task.name, gold) for task in tasks for gold in sizes_of(lines)]:
        if cell not in over_base:
            continue
        rivals = {name: float(np.mean(values)) for name, values in rival_gaps(lines, cell).items()}
        first = max(rivals, key=lambda name: rivals[name])
        gains = [points(gain_of(each[cell])) if cell in each else MISSING for each in (over_base, over_labels, hard)]
        rows.append(
            [
                cell[0],
                f"{cell[1]:,}",
                *gains,
                f"{first}, {signed(rivals[first])}",
                signed(told[cell][0]),
                f"{_trials(lines, cell)}",
            ]
        )
    gained = f"over {BASE}", f"over {LABELS}", "best, hard, over best"
    return markdown(("task", "gold rows", *gained, "best rival, over best", "forecast", "trials"), rows)


def forecast_table(lines: Sequence[Line], uneven: Sequence[Task]) -> str:
    """How well pilot students foretold the gain of `best`, and how well the trained students themselves are judged."""
    kinds = {
        "soft targets": forecasts(lines),
        "hard targets": forecasts(lines, "hard"),
        "soft targets, macro-F1": forecasts(_of(lines, uneven), metric="macro_f1"),
        "judged after training": forecasts(lines, "after"),
        "judged after training, macro-F1": forecasts(_of(lines, uneven), "after", "macro_f1"),
        "accuracy of the targets, no students": target_forecasts(lines),
    }
    header = (
        "forecast",
        "within ±1 point",
        "too low, too high",
        "trials inside",
        "root mean square error",
        "of a constant",
        "mean, forecast and observed",
    )
    return markdown(header, [[name, *_numbers(each)] for name, each in kinds.items()])


def _numbers(found: Forecasts) -> list[str]:
    if not found.cells:
        return [MISSING] * 6
    n, means = len(found.cells), np.mean(list(found.cells.values()), axis=0)
    within, missed = f"{found.near} of {n}", "{}, {}".format(*found.missed)
    errors = f"{found.rms:.2f}", f"{found.constant_rms:.2f}"
    return [within, missed, percent(found.held), *errors, " and ".join(map(signed, means))]


def figure(lines: Sequence[Line], tasks: Sequence[Task]) -> Figure:
    """What some arms gain on every task, a panel for each number of gold rows."""
    by_arm = {name: {cell: gain_of(values) for cell, values in gaps(lines, name, BASE).items()} for name in DRAWN}
    sizes = sorted({line["gold"] for line in lines})
    return tasks_figure([task.name for task in tasks], sizes, by_arm, DRAWN)


def _of(lines: Sequence[Line], tasks: Iterable[Task]) -> list[Line]:
    names = {task.name for task in tasks}
    return [line for line in lines if line["task"] in names]


def _trials(lines: Sequence[Line], cell: tuple[str, int]) -> int:
    return sum((line["task"], line["gold"]) == cell for line in lines)
