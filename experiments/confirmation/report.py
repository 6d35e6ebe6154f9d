"""The confirmation as tables in Markdown and as a figure; all of it made of the lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.confirmation.judge import Forecasts, Line, board, forecasts, gaps, judged, rival_gaps
from experiments.confirmation.rivals import BASE, LABELS
from experiments.confirmation.widths import width_table
from experiments.lab.tables import MISSING, joined, markdown
from experiments.leaderboard.report import percent, points, provenance, tasks_figure
from experiments.leaderboard.statistics import gain_of
from experiments.leaderboard.tasks import Task
from wdistill.report.svg import AMBER, BLUE, GREEN, GREY, PURPLE
from wdistill.report.words import listed, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = {  # arms of the figure: color and marker
    "best": (BLUE, "o"),
    "recalibrated+gold": (AMBER, "D"),
    "retrained+gold": (PURPLE, "s"),
    LABELS: (GREY, "X"),
    "truth+gold": (GREEN, "^"),
}
MEANING = (
    f"Points of test accuracy over {BASE}, mean over tasks ± standard error over trials (tasks). "
    "Arms are trained on soft targets, but for those called hard."
)


WIDTHS = (
    "Set by these trials afterwards, as standard deviations in points; what speaks for new data is the last column: of each "
    "data set, with the width that all others need. Macro-F1: tasks with classes of uneven size."
)


def table(lines: Sequence[Line], tasks: Sequence[Task], wanted: int) -> str:
    """All numbers as Markdown; so many trials are there to be."""
    groups = {
        "All tasks": list(tasks),
        "Teachers that can be retrained": [task for task in tasks if not task.frozen],
        "Frozen teachers": [task for task in tasks if task.frozen],
    }
    parts = ["### Confirmation", so_far(lines, wanted), judged(lines), MEANING]
    for title, each in groups.items():
        parts += [f"#### {title}", f"{listed([task.name for task in each])}.", board(_of(lines, each))]
    uneven = [task for task in tasks if "macro_f1" in task.metrics]
    parts += ["#### Macro-F1, where classes are of uneven size", f"{listed([task.name for task in uneven])}."]
    parts += [board(_of(lines, uneven), "macro_f1")] if _of(lines, uneven) else []
    parts += ["#### Task by task", task_table(lines, tasks), "#### Forecasts", forecast_table(lines, uneven)]
    parts += ["#### Widths of the intervals", WIDTHS, width_table(lines, tasks)]
    return joined([*parts, provenance(lines)])


def brief(lines: Sequence[Line], tasks: Sequence[Task], wanted: int) -> str:
    """Goals, all arms over all tasks, and what came of every task, for documents."""
    parts = [so_far(lines, wanted), judged(lines), board(lines), MEANING, task_table(lines, tasks)]
    return joined([*parts, forecast_table(lines, [task for task in tasks if "macro_f1" in task.metrics]), provenance(lines)])


def widths(lines: Sequence[Line], tasks: Sequence[Task]) -> str:
    """How far students were from what was said of them, and the widths that this sets, for documents."""
    return joined([width_table(lines, tasks), WIDTHS])


def so_far(lines: Sequence[Line], wanted: int) -> str:
    return f"{len(lines):,} of {wanted:,} trials have been run."


def task_table(lines: Sequence[Line], tasks: Iterable[Task]) -> str:
    """Of every task and size: what `best` gains, over what, which rival was the best in hindsight, and the forecast."""
    over_base, over_labels = gaps(lines, "best", BASE), gaps(lines, "best", LABELS)
    told = forecasts(lines).cells
    rows = []
    for cell in [(task.name, gold) for task in tasks for gold in sorted({line["gold"] for line in lines})]:
        if cell not in over_base:
            continue
        rivals = {name: float(np.mean(values)) for name, values in rival_gaps(lines, cell).items()}
        first = max(rivals, key=lambda name: rivals[name])
        gains = [points(gain_of(each[cell])) for each in (over_base, over_labels)]
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
    header = ("task", "gold rows", f"over {BASE}", f"over {LABELS}", "best rival, over best", "forecast", "trials")
    return markdown(header, rows)


def forecast_table(lines: Sequence[Line], uneven: Sequence[Task]) -> str:
    """How well pilot students foretold the gain of `best`, with soft and hard targets, by accuracy and by macro-F1."""
    kinds = {
        "soft targets": forecasts(lines),
        "hard targets": forecasts(lines, "hard"),
        "soft targets, macro-F1": forecasts(_of(lines, uneven), metric="macro-f1"),
    }
    header = (
        "forecast",
        "within ±1 point",
        "trials inside",
        "root mean square error",
        "of a constant",
        "mean, forecast and observed",
    )
    return markdown(header, [[name, *_numbers(each)] for name, each in kinds.items()])


def _numbers(found: Forecasts) -> list[str]:
    if not found.cells:
        return [MISSING] * 5
    n, means = len(found.cells), np.mean(list(found.cells.values()), axis=0)
    within = f"{round(found.within * n)} of {n}"
    return [within, percent(found.held), f"{found.rms:.2f}", f"{found.constant_rms:.2f}", " and ".join(map(signed, means))]


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
