"""Figures in the look of the house, made of lines alone. Panels that there are no lines for say so."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from experiments.captions import short, varied
from experiments.lines import Line, accuracies, budgets, labels_of, trials
from experiments.tables import Number, Paper, of_labels
from wdistill.confidence import Floats
from wdistill.inspection import BLUE, GREY, INK, LOOK, ORANGE, PALE, standard_error
from wdistill.pages.figures import AMBER, GREEN, PURPLE, SKY, Style, draw_line, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 3.7, 2.8  # inches, of a panel
ACROSS = 3  # panels of one row
NARROW = 40  # letters of a line above one panel
STYLES = {
    "unweighted": Style(INK, (4, 1.5)),
    "debiased": Style(BLUE, ()),
    "oracle": Style(GREEN, (8, 2, 3, 2)),
    "shuffled": Style(GREY, (1.5, 1.5)),
    "debiased-refresh": Style(AMBER, (6, 2)),
    "fidelity": Style(PURPLE, (6, 2, 1.5, 2)),
    "composition": Style(ORANGE, (3, 1.5)),
    "vid": Style(SKY, (6, 2, 1.5, 2)),
    "debiased-vid": Style(ORANGE, (6, 2)),
}
MARKERS = {
    "unweighted": "s",
    "debiased": "o",
    "oracle": "^",
    "shuffled": "X",
    "debiased-refresh": "D",
    "fidelity": "v",
    "composition": "P",
    "vid": "<",
    "debiased-vid": ">",
}
FIGURE_LOOK = {
    **LOOK,
    "font.size": 10,
    "axes.titlesize": 10.5,
    "figure.titlesize": 11,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


@dataclass(frozen=True)
class Column:
    """What one column of an overview shows: the lines of one experiment, some of its arms, the paper's numbers of them."""

    title: str
    lines: Sequence[Line]
    arms: tuple[str, ...]
    paper: Paper | None = None


def rendered(figure: Figure, format: Literal["svg", "png"]) -> bytes:  # noqa: A002
    """The figure as a file: the same lines, the same bytes."""
    import matplotlib.style

    buffer = io.BytesIO()
    nameless: dict[str, Any] = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
    with matplotlib.style.context(["default", FIGURE_LOOK]):
        figure.savefig(buffer, format=format, dpi=150, metadata=nameless)
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
            _trajectory(axes, group, labels, arms)
            axes.set_title(f"{labels:,} labels")

    said = f"{title}\n{short(group)}{_spread(group, 'bands')}"
    return _figure(len(wanted), ACROSS, draw, _present(group, arms), said)


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
    said = f"{title}\n{short(group)}{_spread(group, 'bars')}"
    return _figure(2 if any(arm in paper for arm in arms) else 1, 2, draw, shown, said, drawn="points")


def overview(columns: Sequence[Column], title: str, *, trajectory: bool) -> Figure:
    """Experiments side by side: trajectories at the smallest number of labels, best accuracies, the paper's below."""
    groups = [next(iter(budgets(column.lines)), []) for column in columns]
    printed = any(column.paper for column in columns)

    def draw(panels: list[Axes]) -> None:
        rows = [panels[i : i + len(columns)] for i in range(0, len(panels), len(columns))]
        for axes, column, group in zip(rows[0], columns, groups, strict=True):
            told = f"{short(group)}{_spread(group, 'bars')}".replace("\n", "; ") if group else ""
            axes.set_title(f"{column.title}\n{fill(told, NARROW)}" if group else column.title)
        if trajectory:
            for axes, column, group in zip(rows.pop(0), columns, groups, strict=True):
                labels = min(labels_of(group), default=0)
                _trajectory(axes, group, labels, column.arms)
                if group:
                    axes.set_xlabel(f"epoch, {labels:,} labels")
        for axes, column, group in zip(rows.pop(0), columns, groups, strict=True):
            _best(axes, group, column.arms)
        for axes, column in zip(rows.pop(0) if rows else [], columns, strict=bool(rows)):
            _printed(axes, column.paper or {}, column.arms)
            axes.set_title(f"{column.title}, the paper's")

    arms = dict.fromkeys(arm for column in columns for arm in column.arms)
    count = len(columns) * (1 + trajectory + printed)
    return _figure(count, len(columns), draw, list(arms), title, drawn="both" if trajectory else "points")


def oracle_and_margin(group: Sequence[Line], labels: int, title: str) -> Figure:
    """What wrong labels cost, and where the teacher is wrong: Figure 1. For lines of one budget."""
    arms = ("unweighted", "oracle")

    def draw(panels: list[Axes]) -> None:
        _trajectory(panels[0], group, labels, arms)
        panels[0].set_title("only rows that the teacher labels rightly\n(oracle), and all rows")
        _margins(panels[1], trials(group, labels))
        panels[1].set_title("teacher's accuracy by margin\n(dotted: overall; grey: share of the rows)")

    return _figure(2, 2, draw, arms, f"{title}, {labels:,} labels\n{short(group)}{_spread(group, 'bands')}")


def by_temperature(group: Sequence[Line], labels: int, temperatures: Sequence[float], paper: Paper, title: str) -> Figure:
    """Best accuracy by temperature, and the paper's of these labels beside it: Figure 16 as points. For one budget."""
    arms = ("unweighted", "debiased")
    count = 2 if any(labels in paper.get(f"{arm}-T{at:g}", {}) for arm in arms for at in temperatures) else 1

    def draw(panels: list[Axes]) -> None:
        for arm in arms:
            names = [f"{arm}-T{at:g}" for at in temperatures]
            _points(panels[0], [_score(accuracies(group, labels, name)) for name in names], arm, arms)
            if count == 2:
                _points(panels[1], [paper.get(name, {}).get(labels) for name in names], arm, arms)
        for axes, name in zip(panels, ("ours", "the paper's"), strict=count == 2):
            axes.set_title(name if count == 2 else "")
            axes.set_xticks(range(len(temperatures)), [f"{at:g}" for at in temperatures])
            axes.set_xlabel("temperature")
            _finish(axes, "best test accuracy, %")

    said = f"{title}, {labels:,} labels\n{short(group)}{_spread(group, 'bars')}"
    return _figure(count, 2, draw, arms, said, drawn="points")


# -------------------------------------------------------------------------------------------------------------- panels


def _trajectory(axes: Axes, group: Sequence[Line], labels: int, arms: Sequence[str]) -> None:
    """Means over trials and bands of one standard deviation; the first steps may leave the axis, or they would fill it."""
    curves = {arm: values for arm in arms if (values := _curves(group, labels, arm)).size}
    bounds: list[float] = []
    for arm, values in curves.items():
        style, epochs = _style(arm), np.arange(1, values.shape[1] + 1)
        draw_line(axes, epochs, values, style.color, style.line)
        mean, std = spread(values[:, values.shape[1] // 8 :])
        bounds += [float((mean - std).min()), float((mean + std).max())]
    if curves:
        room = max(bounds) - min(bounds) or 1.0
        axes.set_ylim(min(bounds) - 0.06 * room, max(bounds) + 0.06 * room)
    axes.set_xlabel("epoch")
    _finish(axes, whole=True)


def _best(axes: Axes, group: Sequence[Line], arms: Sequence[str]) -> None:
    for arm in arms:
        _points(axes, [_score(accuracies(group, labels, arm)) for labels in labels_of(group)], arm, arms)
    _finish_labels(axes, labels_of(group), "best test accuracy, %")


def _printed(axes: Axes, paper: Paper, arms: Sequence[str]) -> None:
    """The paper's numbers as it prints them."""
    wanted = sorted({labels for arm in arms for labels in paper.get(arm, {})})
    for arm in arms:
        _points(axes, [paper.get(arm, {}).get(labels) for labels in wanted], arm, arms)
    _finish_labels(axes, wanted, "test accuracy, %")


def _margins(axes: Axes, lines: Sequence[Line]) -> None:
    """Accuracy of the teacher by margin, with its standard error, and beneath it a low skyline of the rows.

    Trials that share a teacher may share most of their rows: the standard error is then that of a single trial's rows.
    """
    known = [line for line in lines if line.get("margins")]
    found = [line["margins"] for line in known]
    if found:
        times = len(known) if known[0]["repeat"] is None else 1
        right, wrong = (np.sum([each[name] for each in found], axis=0) for name in ("right", "wrong"))
        every, edges = right + wrong, np.linspace(0, 1, len(right) + 1)
        filled = every > 0
        share = right[filled] / every[filled]
        single = [standard_error(a / times, b / times) for a, b in zip(right[filled], every[filled], strict=True)]
        rows = axes.twinx()
        rows.bar(edges[:-1], every / every.sum(), 1 / len(right), align="edge", color=PALE)
        rows.set_ylim(0, 4 * (every / every.sum()).max())
        rows.set_yticks([])
        rows.spines["right"].set_visible(False)
        axes.set_zorder(rows.get_zorder() + 1)
        axes.patch.set_visible(False)
        places = (edges[:-1] + edges[1:])[filled] / 2
        low, high = np.minimum(single, share), np.minimum(single, 1 - share)  # a bar ends where accuracies end
        axes.errorbar(
            places, 100 * share, 100 * np.stack([low, high]), color=BLUE, marker="o", markersize=4, linewidth=1.5, capsize=2
        )
        axes.axhline(100 * right.sum() / every.sum(), color=INK, linewidth=1, linestyle=":")
        axes.set_ylim(0, 103)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("teacher's margin")
    axes.set_ylabel("teacher's accuracy, %")
    _say_if_empty(axes)


def _points(axes: Axes, numbers: Sequence[Number | None], arm: str, arms: Sequence[str]) -> None:
    """Means with error bars at 0, 1, …; arms stand beside each other, and no line that joins them could cross another."""
    known = [(place, *number) for place, number in enumerate(numbers) if number is not None]
    if not known:
        return
    beside = (list(arms).index(arm) - (len(arms) - 1) / 2) * 0.7 / len(arms)
    places, means, bars = zip(*((place + beside, mean, std or 0.0) for place, mean, std in known), strict=True)
    color = _style(arm).color
    axes.errorbar(places, means, bars, color=color, linestyle="none", marker=_marker(arm), markersize=4.5, capsize=2)


def _finish_labels(axes: Axes, labels: Sequence[int], measure: str) -> None:
    axes.set_xticks(range(len(labels)), [f"{each:,}" for each in labels], rotation=30 if len(labels) > 4 else 0)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_xlabel("labels")
    _finish(axes, measure)


def _finish(axes: Axes, measure: str = "test accuracy, %", *, whole: bool = False) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_ylabel(measure)
    _say_if_empty(axes)


def _say_if_empty(axes: Axes) -> None:
    if not axes.lines and not axes.containers:
        axes.text(0.5, 0.5, "no results yet", transform=axes.transAxes, ha="center", va="center", color=GREY)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")


# --------------------------------------------------------------------------------------------------------------- parts


def _figure(
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
    said = "\n".join(fill(line, 30 * (1 + columns)) for line in title.splitlines())
    beside = min(len(arms), columns + 2 if drawn == "points" else 2 * columns) or 1
    texts = 1 + said.count("\n") + -(-len(arms) // beside)  # lines above and below the panels
    with matplotlib.style.context(["default", FIGURE_LOOK]):
        size = max(WIDTH * columns, 5.0), HEIGHT * rows + 0.1 + 0.2 * texts
        figure = Figure(figsize=size, layout="constrained")
        panels = [figure.add_subplot(rows, columns, place) for place in range(1, count + 1)]
        draw(panels)
        figure.suptitle(said)
        lines = [
            Line2D(
                [],
                [],
                color=_style(arm).color,
                linestyle="none" if drawn == "points" else _style(arm).line,
                linewidth=1.8,
                marker="none" if drawn == "lines" else _marker(arm),
                markersize=5,
            )
            for arm in arms
        ]
        width = 1.0 if drawn == "points" else 3.2
        figure.legend(lines, list(arms), loc="outside lower center", ncols=beside, handlelength=width)
    return figure


def _style(arm: str) -> Style:
    """Of an arm: with hard targets as with soft ones, since they never share a panel."""
    return STYLES.get(arm.removesuffix("-hard"), Style(GREY, (10, 3)))


def _marker(arm: str) -> str:
    return MARKERS.get(arm.removesuffix("-hard"), ".")


def _spread(group: Sequence[Line], marks: str) -> str:
    """A line that says what bars or bands show, where there are any: differences of arms in a trial vary less."""
    several = any(len(trials(group, labels)) > 1 for labels in labels_of(group))
    return f"\n{marks}: standard deviation between {varied(group)}; arms are paired" if several else ""


def _numbered(stem: str, figures: Sequence[Figure]) -> dict[str, Figure]:
    return {stem if i == 1 else f"{stem}-{i}": figure for i, figure in enumerate(figures, 1)}


def _present(group: Sequence[Line], arms: Sequence[str]) -> list[str]:
    return [arm for arm in arms if any(arm in line["arms"] for line in group)]


def _curves(group: Sequence[Line], labels: int, arm: str) -> Floats:
    """Test accuracies in %, (trials, epochs), of the trials that have come as far as any."""
    found = [
        line["arms"][arm]["trajectory"] for line in trials(group, labels) if line["arms"].get(arm, {}).get("trajectory")
    ]
    length = max(map(len, found), default=0)
    return 100 * np.array([each for each in found if len(each) == length], dtype=float)


def _score(values: Sequence[float | None]) -> Number | None:
    """Mean and standard deviation in %; no deviation of one trial."""
    known = [100 * value for value in values if value is not None]
    return (float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None) if known else None
