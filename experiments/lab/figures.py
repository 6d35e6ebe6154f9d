"""Figures of experiments, made of lines alone. Panels that there are no lines for say so."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from experiments.lab.results import Line, Number, Paper, accuracies, budgets, labels_of, of_labels, trials
from experiments.lab.tables import short, varied
from wdistill.report.figures import Style, draw_line, spread
from wdistill.report.inspect import LOOK
from wdistill.report.svg import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY
from wdistill.weights.confidence import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 3.7, 2.8  # inches, of a panel
ACROSS = 3  # panels of one row
NARROW = 40  # letters of a line above one panel
LOOKS = {  # of an arm: style of its lines, and marker of its points
    "unweighted": (Style(INK, (4, 1.5)), "s"),
    "debiased": (Style(BLUE, ()), "o"),
    "oracle": (Style(GREEN, (8, 2, 3, 2)), "^"),
    "shuffled": (Style(GREY, (1.5, 1.5)), "X"),
    "debiased-refresh": (Style(AMBER, (6, 2)), "D"),
    "fidelity": (Style(PURPLE, (6, 2, 1.5, 2)), "v"),
    "composition": (Style(ORANGE, (3, 1.5)), "P"),
    "vid": (Style(SKY, (6, 2, 1.5, 2)), "<"),
    "debiased-vid": (Style(ORANGE, (6, 2)), ">"),
}
FIGURE_LOOK: dict[str, Any] = {
    **LOOK,
    "font.size": 10,
    "axes.titlesize": 10.5,
    "figure.titlesize": 11,
    "axes.linewidth": 0.8,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 9),
}


@dataclass(frozen=True)
class Column:
    """What one column of an overview shows: the lines of one experiment, some of its arms, the paper's numbers of them."""

    title: str
    lines: Sequence[Line]
    arms: tuple[str, ...]
    paper: Paper | None = None


def rendered(figure: Figure) -> bytes:
    """The figure as an SVG file: the same lines, the same bytes."""
    import matplotlib.style

    buffer = io.BytesIO()
    with matplotlib.style.context(["default", FIGURE_LOOK]):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def each_budget(stem: str, lines: Sequence[Line], draw: Callable[[list[Line]], Figure | None]) -> dict[str, Figure]:
    """One figure for every budget that has something to draw: STEM of the first, then STEM-2, …"""
    drawn = [draw(group) for group in budgets(lines)]
    return _numbered(stem, [figure for figure in drawn if figure is not None])


def each_labels(
    stem: str, lines: Sequence[Line], labels: int, draw: Callable[[list[Line], int], Figure]
) -> dict[str, Figure]:
    """One figure for every budget of this number of labels; where it has no lines, of all numbers that have some."""
    groups = budgets(of_labels(lines, labels))
    return _numbered(stem, [draw(group, found) for group in groups for found in labels_of(group)])


def trajectories(group: Sequence[Line], arms: Sequence[str], title: str) -> Figure | None:
    """Test accuracy after every epoch, one panel for every number of labels: Figures 11 to 15. For lines of one budget.

    None where none of these arms was run.
    """
    wanted = labels_of(group)
    if not _present(group, arms):
        return None

    def draw(panels: list[Axes]) -> None:
        for axes, labels in zip(panels, wanted, strict=True):
            draw_trajectory(axes, group, labels, arms)
            axes.set_title(f"{labels:,} labels")

    return panels_figure(len(wanted), ACROSS, draw, _present(group, arms), f"{title}\n{budget_note(group, 'bands')}")


def best(group: Sequence[Line], arms: Sequence[str], paper: Paper, title: str) -> Figure | None:
    """Best accuracy against the number of labels, and the paper's beside it: Figure 2, second row. For one budget.

    None where none of these arms was run.
    """
    if not _present(group, arms):
        return None

    def draw(panels: list[Axes]) -> None:
        _best(panels[0], group, arms)
        if len(panels) > 1:
            panels[0].set_title("ours")
            _printed(panels[1], paper, arms)
            panels[1].set_title("the paper's")

    shown = [arm for arm in arms if arm in paper or arm in _present(group, arms)]
    count = 2 if any(arm in paper for arm in arms) else 1
    return panels_figure(count, 2, draw, shown, f"{title}\n{budget_note(group, 'bars')}", drawn="points")


def overview(columns: Sequence[Column], title: str, *, trajectory: bool) -> Figure:
    """Experiments side by side: trajectories at the smallest number of labels, best accuracies, the paper's below."""
    groups = [next(iter(budgets(column.lines)), []) for column in columns]
    printed = any(column.paper for column in columns)

    def draw(panels: list[Axes]) -> None:
        rows = [panels[i : i + len(columns)] for i in range(0, len(panels), len(columns))]
        for axes, column, group in zip(rows[0], columns, groups, strict=True):
            budget = fill(budget_note(group, "bars").replace("\n", "; "), NARROW) if group else ""
            axes.set_title(f"{column.title}\n{budget}" if group else column.title)
        if trajectory:
            for axes, column, group in zip(rows.pop(0), columns, groups, strict=True):
                labels = min(labels_of(group), default=0)
                draw_trajectory(axes, group, labels, column.arms)
                if group:
                    axes.set_xlabel(f"epoch, {labels:,} labels")
        for axes, column, group in zip(rows.pop(0), columns, groups, strict=True):
            _best(axes, group, column.arms)
        for axes, column in zip(rows.pop(0) if rows else [], columns, strict=bool(rows)):
            _printed(axes, column.paper or {}, column.arms)
            axes.set_title(f"{column.title}, the paper's")

    arms = dict.fromkeys(arm for column in columns for arm in column.arms)
    count = len(columns) * (1 + trajectory + printed)
    return panels_figure(count, len(columns), draw, list(arms), title, drawn="both" if trajectory else "points")


# -------------------------------------------------------------------------------------------------------------- panels


def draw_trajectory(axes: Axes, group: Sequence[Line], labels: int, arms: Sequence[str]) -> None:
    """Means over trials and bands of one standard deviation; the first steps may leave the axis, or they would fill it."""
    curves = {arm: values for arm in arms if (values := _curves(group, labels, arm)).size}
    bounds: list[float] = []
    for arm, values in curves.items():
        (style, _), epochs = _look(arm), np.arange(1, values.shape[1] + 1)
        draw_line(axes, epochs, values, style.color, style.line)
        mean, std = spread(values[:, values.shape[1] // 8 :])
        bounds += [float((mean - std).min()), float((mean + std).max())]
    if curves:
        room = max(bounds) - min(bounds) or 1.0
        axes.set_ylim(min(bounds) - 0.06 * room, max(bounds) + 0.06 * room)
    axes.set_xlabel("epoch")
    finish(axes, whole=True)


def _best(axes: Axes, group: Sequence[Line], arms: Sequence[str]) -> None:
    for arm in arms:
        draw_points(axes, [score(accuracies(group, labels, arm)) for labels in labels_of(group)], arm, arms)
    _finish_labels(axes, labels_of(group), "max on test, %")


def _printed(axes: Axes, paper: Paper, arms: Sequence[str]) -> None:
    """The paper's numbers as it prints them."""
    wanted = sorted({labels for arm in arms for labels in paper.get(arm, {})})
    for arm in arms:
        draw_points(axes, [paper.get(arm, {}).get(labels) for labels in wanted], arm, arms)
    _finish_labels(axes, wanted, "test accuracy, %")


def draw_points(axes: Axes, numbers: Sequence[Number | None], arm: str, arms: Sequence[str]) -> None:
    """Means with error bars at 0, 1, …; arms stand beside each other, and no line that joins them could cross another."""
    known = [(place, *number) for place, number in enumerate(numbers) if number is not None]
    if not known:
        return
    beside = (list(arms).index(arm) - (len(arms) - 1) / 2) * 0.7 / len(arms)
    places, means, bars = zip(*((place + beside, mean, std or 0.0) for place, mean, std in known), strict=True)
    style, marker = _look(arm)
    axes.errorbar(places, means, bars, color=style.color, linestyle="none", marker=marker, markersize=4.5, capsize=2)


def _finish_labels(axes: Axes, labels: Sequence[int], measure: str) -> None:
    axes.set_xticks(range(len(labels)), [f"{each:,}" for each in labels], rotation=30 if len(labels) > 4 else 0)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_xlabel("labels")
    finish(axes, measure)


def finish(axes: Axes, measure: str = "test accuracy, %", *, whole: bool = False) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_ylabel(measure)
    say_if_empty(axes)


def say_if_empty(axes: Axes) -> None:
    if not axes.lines and not axes.containers:
        axes.text(0.5, 0.5, "no results yet", transform=axes.transAxes, ha="center", va="center", color=GREY)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")


# --------------------------------------------------------------------------------------------------------------- parts


def panels_figure(
    count: int,
    across: int,
    draw: Callable[[list[Axes]], None],
    arms: Sequence[str],
    title: str,
    *,
    drawn: Literal["lines", "points", "both"] = "lines",
) -> Figure:
    """A figure of `count` panels, `across` in a row, with one legend for all of how arms are drawn."""
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(count, across)
    rows = -(-count // columns)
    title = "\n".join(fill(line, 30 * (1 + columns)) for line in title.splitlines())
    beside = min(len(arms), columns + 2 if drawn == "points" else 2 * columns) or 1
    texts = 1 + title.count("\n") + -(-len(arms) // beside)  # lines above and below the panels
    with matplotlib.style.context(["default", FIGURE_LOOK]):
        size = max(WIDTH * columns, 5.0), HEIGHT * rows + 0.1 + 0.2 * texts
        figure = Figure(figsize=size, layout="constrained")
        panels = [figure.add_subplot(rows, columns, place) for place in range(1, count + 1)]
        draw(panels)
        figure.suptitle(title)
        lines = []
        for style, marker in map(_look, arms):
            look: dict[str, Any] = {"color": style.color, "linewidth": 1.8, "markersize": 5}
            look |= {"linestyle": "none"} if drawn == "points" else {"linestyle": style.line}
            lines.append(Line2D([], [], marker="none" if drawn == "lines" else marker, **look))
        width = 1.0 if drawn == "points" else 3.2
        figure.legend(lines, list(arms), loc="outside lower center", ncols=beside, handlelength=width)
    return figure


def _look(arm: str) -> tuple[Style, str]:
    """Of an arm: with hard targets as with soft ones, since they never share a panel."""
    return LOOKS.get(arm.removesuffix("-hard"), (Style(GREY, (10, 3)), "."))


def budget_note(group: Sequence[Line], marks: str) -> str:
    """The budget, and a line that says what bars or bands show, where there are any."""
    several = any(len(trials(group, labels)) > 1 for labels in labels_of(group))
    return short(group) + (f"\n{marks}: standard deviation between {varied(group)}; arms are paired" if several else "")


def _numbered(stem: str, figures: Sequence[Figure]) -> dict[str, Figure]:
    return {stem if i == 1 else f"{stem}-{i}": figure for i, figure in enumerate(figures, 1)}


def _present(group: Sequence[Line], arms: Sequence[str]) -> list[str]:
    return [arm for arm in arms if any(arm in line["arms"] for line in group)]


def _curves(group: Sequence[Line], labels: int, arm: str) -> Floats:
    """Test accuracies in %, (trials, epochs), of the trials that have come as far as any."""
    curves = [line["arms"].get(arm, {}).get("trajectory") or [] for line in trials(group, labels)]
    length = max(map(len, curves), default=0)
    return 100 * np.array([curve for curve in curves if curve and len(curve) == length], dtype=float)


def score(values: Sequence[float | None]) -> Number | None:
    """Mean and standard deviation in %; no deviation of one trial."""
    known = [100 * value for value in values if value is not None]
    return (float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None) if known else None
