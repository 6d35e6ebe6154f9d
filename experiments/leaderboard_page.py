"""The leaderboard as one page: standings, goals, figures and what they rest on, all of it made of the lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments import boards
from experiments.boards import Plan
from experiments.figures import FIGURE_LOOK
from experiments.standings import BASE, NEAR, Gain, Line, coverage, gains, prediction
from wdistill.inspection import BLUE, GREY, INK, ORANGE, PALE
from wdistill.pages import svg
from wdistill.pages.figures import AMBER, GREEN, PURPLE, Key, Panel, Style, as_svg
from wdistill.pages.house import rendered
from wdistill.pages.words import listed, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "What a gold set is worth: the leaderboard"
PROTOCOL = (
    "Every trial has a labeled set, a teacher, a student and a split of its own, in which a smaller gold set is part of "
    "a larger one; all methods of a trial start from one student and see the same batches. A number is the accuracy on "
    "the test rows after the last epoch. Methods, settings and halves were fixed before the runs; settings are chosen, "
    "and how much of better targets reaches a student is learned, on the tuning half alone. Seen of the confirmation "
    "half before: that optdigits' first teacher was weaker than its student, on a split that is not among the trials "
    "(it was replaced); one trial of texture; and, in the earlier study that the design comes from, penbased and "
    "letter. Trials of small data sets share many rows, and all trials of a task its test rows, so that standard errors "
    "over trials are too small; what the test rows add is told with the second target. Second opinions and retrained "
    "teachers speak of unlabeled rows as the mean of five models, a teacher as one: part of what they gain may be that."
)
DRAWN = {  # methods of the figures: style of a line, and marker of a point
    "best": (Style(BLUE, ()), "o", "dot"),
    "corrected+gold": (Style(ORANGE, (3, 1.5)), "D", "diamond"),
    "retrained+gold": (Style(PURPLE, (6, 2)), "s", "square"),
    "paper+gold": (Style(AMBER, (1.5, 1.5)), "X", "cross"),
    "oracle": (Style(GREEN, (8, 2, 3, 2)), "^", "triangle"),
}
HALVES = ("confirmation", "tuning")


def page(plan: Plan, lines: Sequence[Line]) -> str:
    """The whole page; with no lines it says so."""
    template = Path(__file__).with_name("leaderboard.html.jinja").read_text("utf-8")
    found = {name: gains(lines, name) for name in DRAWN}
    so_far = boards.run_so_far(plan, lines)
    return rendered(
        template,
        TITLE,
        filters={"cells": boards.cells},
        base=BASE,
        protocol=PROTOCOL,
        meaning=boards.MEANING,
        so_far="" if so_far.startswith("All") else so_far,
        goals=boards.goals(plan, lines),
        boards={half: boards.boards(plan, lines, half) for half in HALVES} if lines else {},
        by_task={half: _by_task(plan, half, found) for half in HALVES},
        by_gold={half: _by_gold(plan, half, found, lines) for half in HALVES},
        keys=[style.key(name) for name, (style, _, _) in DRAWN.items()],
        predicted=_predicted(plan, lines),
        chosen=boards.choices(plan, lines),
        all_methods={targets: boards.all_methods(plan, lines, targets) for targets in ("soft", "hard")},
        trials=boards.trials(plan, lines),
        provenance=boards.provenance(lines),
    )


Gains = Mapping[str, Mapping[tuple[str, int], Gain]]  # method → task and gold rows → gain


def _by_gold(plan: Plan, half: str, found: Gains, lines: Sequence[Line]) -> list[Panel]:
    """One panel for every task of a half that has trials: gain against the number of gold rows."""
    panels = []
    for i, task in enumerate(plan.half(half)):
        mine = {name: _curve(plan, task.name, each) for name, each in found.items()}
        counts = [found["best"].get((task.name, gold)) for gold in plan.gold]
        if any(counts):
            rests = listed([str(each.trials if each else 0) for each in counts])
            drawn = _curves(plan, mine, f"{half}{i}", task.name)
            panels.append(Panel(drawn, task.name, f"{rests} of {plan.trials} trials.{_unlabeled(task.name, lines)}"))
    return panels


def _unlabeled(task: str, lines: Sequence[Line]) -> str:
    """Where gold rows are taken from the unlabeled ones, as in small data sets: what is left."""
    rows = {line["rows"]["unlabeled"] for line in lines if line["task"] == task}
    return f" {max(rows):,} unlabeled rows, {min(rows):,} where gold takes most." if len(rows) > 1 else ""


def _curve(plan: Plan, task: str, found: Mapping[tuple[str, int], Gain]) -> list[tuple[int, Gain]]:
    """Place on the axis and gain, of the numbers of gold rows that there are trials of."""
    return [(place, found[task, gold]) for place, gold in enumerate(plan.gold) if (task, gold) in found]


def _curves(plan: Plan, curves: Mapping[str, Sequence[tuple[int, Gain]]], mark: str, task: str) -> str:
    def draw(axes: Axes) -> None:
        axes.axhline(0, color=GREY, linewidth=1)
        for i, (name, points) in enumerate(curves.items()):
            style, marker, _ = DRAWN[name]
            places = [place + 0.05 * (i - (len(curves) - 1) / 2) for place, _ in points]  # bars stand beside each other
            axes.errorbar(
                places,
                [each.mean for _, each in points],
                [each.error or 0.0 for _, each in points],
                color=style.color,
                linestyle=style.line,
                linewidth=1.8,
                marker=marker,
                markersize=5,
                capsize=2,
            )
        axes.set_xticks(range(len(plan.gold)), [f"{gold:,}" for gold in plan.gold])
        axes.set_xlim(-0.4, len(plan.gold) - 0.6)
        axes.set_xlabel("gold rows")
        axes.set_ylabel("points")

    told = [f"{name} {listed([signed(each.mean) for _, each in points])}" for name, points in curves.items() if points]
    return as_svg(draw, mark, f"{task}, gain over {BASE} by number of gold rows: {'; '.join(told)}.")


def _by_task(plan: Plan, half: str, found: Gains) -> Panel | None:
    """Every task of a half at the middle number of gold rows: a point and its standard error for each method."""
    gold = plan.middle
    tasks = [task.name for task in plan.half(half) if any((task.name, gold) in each for each in found.values())]
    if not tasks:
        return None

    def draw(axes: Axes) -> None:
        _draw_tasks(axes, tasks, gold, found)

    best = [f"{task} {boards.points(found['best'].get((task, gold)))}" for task in tasks]
    missing = [task.name for task in plan.half(half) if task.name not in tasks]
    caption = f"Means over trials, bars are standard errors{f'; no trials yet of {listed(missing)}' if missing else ''}."
    keys = tuple(Key(name, svg.COLORS[style.color], shape) for name, (style, _, shape) in DRAWN.items())
    drawn = as_svg(draw, f"{half}-tasks", f"Gain of best over {BASE}: {listed(best)}.", 0.9 + 0.6 * len(tasks))
    return Panel(drawn, f"{gold:,} gold rows, soft targets", caption, keys)


def _draw_tasks(axes: Axes, tasks: Sequence[str], gold: int, found: Gains) -> None:
    axes.axvline(0, color=GREY, linewidth=1)
    for i, (name, each) in enumerate(found.items()):
        style, marker, _ = DRAWN[name]
        known = [(place, each[task, gold]) for place, task in enumerate(reversed(tasks)) if (task, gold) in each]
        axes.errorbar(
            [gain.mean for _, gain in known],
            [place + 0.15 * ((len(found) - 1) / 2 - i) for place, _ in known],
            xerr=[gain.error or 0.0 for _, gain in known],
            color=style.color,
            linestyle="none",
            marker=marker,
            markersize=6,
            markeredgecolor=INK,
            markeredgewidth=0.5,
            capsize=2,
            label=name,
        )
    for place in range(1, len(tasks)):
        axes.axhline(place - 0.5, color=PALE, linewidth=0.8)
    axes.set_yticks(range(len(tasks)), list(reversed(tasks)))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.55, len(tasks) - 0.45)
    axes.set_xlabel(f"points over {BASE}")


def overview(plan: Plan, lines: Sequence[Line]) -> Figure:
    """For documents: every task of the confirmation half, a panel for each number of gold rows."""
    import matplotlib.style
    from matplotlib.figure import Figure

    found = {name: gains(lines, name) for name in DRAWN}
    tasks = [task.name for task in plan.half("confirmation")]
    with matplotlib.style.context(["default", FIGURE_LOOK]):
        drawn = Figure(figsize=(3.2 * len(plan.gold), 0.9 + 0.55 * len(tasks)), layout="constrained")
        for axes, gold in zip(drawn.subplots(1, len(plan.gold), sharex=True, sharey=True), plan.gold, strict=True):
            _draw_tasks(axes, tasks, gold, found)
            axes.set_title(f"{gold:,} gold rows")
        drawn.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(DRAWN))
    return drawn


def _predicted(plan: Plan, lines: Sequence[Line]) -> Panel | None:
    """Predicted and realised gain of corrected targets, each task foretold by those of all other data sets."""
    found = prediction(lines)
    if found is None:
        return None
    confirming = {task.name for task in plan.half("confirmation")}
    keys = {
        "confirmation half": ([key for key in found.predicted if key[0] in confirming], BLUE, "o", "dot"),
        "tuning half": ([key for key in found.predicted if key[0] not in confirming], ORANGE, "X", "cross"),
    }

    def draw(axes: Axes) -> None:
        every = [*found.predicted.values(), *found.realised.values()]
        ends = np.array([min(every) - 0.5, max(every) + 0.5])
        axes.fill_between(ends, ends - NEAR, ends + NEAR, color=PALE, linewidth=0, alpha=0.6)
        axes.plot(ends, ends, color=GREY, linewidth=1)
        for names, color, marker, _ in keys.values():
            x, y = ([each[key] for key in names] for each in (found.predicted, found.realised))
            axes.plot(x, y, marker, color=color, markersize=6, markeredgecolor=INK, markeredgewidth=0.5, linestyle="none")
        axes.set_xlim(*ends)
        axes.set_ylim(*ends)
        axes.set_xlabel("predicted gain, points")
        axes.set_ylabel("realised gain, points")

    told, single = boards.foretelling(found), coverage(lines)
    caption = f"{told} (the band is ±{NEAR:g} point). Gain of corrected targets over the teacher's own, both with gold as "
    caption += f"labels, means over trials. {boards.foretelling_one(single)}." if single else "labels, means over trials."
    shown = tuple(Key(name, svg.COLORS[color], shape) for name, (names, color, _, shape) in keys.items() if names)
    return Panel(
        as_svg(draw, "predicted", f"{told}.", 3.8), "Each task foretold by those of all other data sets", caption, shown
    )
