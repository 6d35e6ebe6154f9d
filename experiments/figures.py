"""Figures in the look of the house, made of lines alone. Panels that there are no lines for say so."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from experiments.captions import short
from experiments.lines import Line, accuracies, budgets, labels_of, trials
from experiments.tables import Number, Paper
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
_LOOK = {
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
    with matplotlib.style.context(["default", _LOOK]):
        figure.savefig(buffer, format=format, dpi=150, metadata=nameless)
    return buffer.getvalue()


def each_budget(stem: str, lines: Sequence[Line], draw: Callable[[list[Line]], Figure]) -> dict[str, Figure]:
    """One figure for every budget: STEM of the one with the most trials, then STEM-2, …"""
    return {stem if i == 1 else f"{stem}-{i}": draw(group) for i, group in enumerate(budgets(lines), 1)}


def trajectories(group: Sequence[Line], arms: Sequence[str], title: str) -> Figure:
    """Test accuracy after every epoch, one panel for every number of labels: Figures 11 to 15. For lines of one budget."""
    wanted = labels_of(group)

    def draw(panels: list[Axes]) -> None:
        for axes, labels in zip(panels, wanted, strict=True):
            _trajectory(axes, group, labels, arms)
            axes.set_title(f"{labels:,} labels")

    return _figure(len(wanted), ACROSS, draw, _present(group, arms), f"{title}\n{short(group)}")


def best(group: Sequence[Line], arms: Sequence[str], paper: Paper, title: str) -> Figure:
    """Best accuracy against the number of labels, and the paper's beside it: Figure 2, second row. For one budget."""

    def draw(panels: list[Axes]) -> None:
        _best(panels[0], group, arms)
        if len(panels) > 1:
            panels[0].set_title("ours")
            _printed(panels[1], paper, arms)
            panels[1].set_title("the paper's")

    shown = [arm for arm in arms if arm in paper or arm in _present(group, arms)]
    return _figure(2 if any(arm in paper for arm in arms) else 1, 2, draw, shown, f"{title}\n{short(group)}")


def overview(columns: Sequence[Column], title: str, *, trajectory: bool) -> Figure:
    """Experiments side by side: trajectories at the smallest number of labels, best accuracies, the paper's below."""
    groups = [next(iter(budgets(column.lines)), []) for column in columns]
    printed = any(column.paper for column in columns)

    def draw(panels: list[Axes]) -> None:
        rows = [panels[i : i + len(columns)] for i in range(0, len(panels), len(columns))]
        for axes, column, group in zip(rows[0], columns, groups, strict=True):
            axes.set_title(f"{column.title}\n{fill(short(group), NARROW)}" if group else column.title)
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
    return _figure(len(columns) * (1 + trajectory + printed), len(columns), draw, list(arms), title)


def oracle_and_margin(lines: Sequence[Line], labels: int, title: str) -> Figure:
    """What wrong labels cost, and where the teacher is wrong: Figure 1. Of the budget with the most trials."""
    group = next(iter(budgets([line for line in lines if line["labels"] == labels])), [])
    arms = ("unweighted", "oracle")

    def draw(panels: list[Axes]) -> None:
        _trajectory(panels[0], group, labels, arms)
        panels[0].set_title("only rows that the teacher labels rightly\n(oracle), and all rows")
        _margins(panels[1], trials(group, labels))
        panels[1].set_title("teacher's accuracy by margin\n(dotted: overall; grey: share of the rows)")

    return _figure(2, 2, draw, arms, f"{title}, {labels:,} labels\n{short(group)}" if group else title)


def by_temperature(group: Sequence[Line], labels: int, temperatures: Sequence[float], paper: Paper, title: str) -> Figure:
    """Best accuracy against the temperature, and the paper's beside it: Figure 16 as a curve. For lines of one budget."""
    arms = ("unweighted", "debiased")

    def draw(panels: list[Axes]) -> None:
        for arm in arms:
            names = [f"{arm}-T{at:g}" for at in temperatures]
            _points(panels[0], dict(enumerate(_score(accuracies(group, labels, name)) for name in names)), arm, arms)
            _points(panels[1], dict(enumerate(paper.get(name, {}).get(labels) for name in names)), arm, arms)
        for axes, name in zip(panels, ("ours", "the paper's"), strict=True):
            axes.set_title(name)
            axes.set_xticks(range(len(temperatures)), [f"{at:g}" for at in temperatures])
            axes.set_xlabel("temperature")
            _finish(axes, "best test accuracy, %")

    return _figure(2, 2, draw, arms, f"{title}, {labels:,} labels\n{short(group)}")


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
        _points(axes, {labels: _score(accuracies(group, labels, arm)) for labels in labels_of(group)}, arm, arms)
    _finish_labels(axes, labels_of(group), "best test accuracy, %")


def _printed(axes: Axes, paper: Paper, arms: Sequence[str]) -> None:
    """The paper's numbers as it prints them."""
    for arm in arms:
        _points(axes, paper.get(arm, {}), arm, arms)
    _finish_labels(axes, sorted({labels for arm in arms for labels in paper.get(arm, {})}), "test accuracy, %")


def _margins(axes: Axes, lines: Sequence[Line]) -> None:
    """Accuracy of the teacher by margin, with its standard error, and beneath it a low skyline of the rows.

    Trials that share a teacher share most rows too, so that only the first of them counts.
    """
    known = [line for line in lines if line.get("margins")]
    found = [line["margins"] for line in (known[:1] if known and known[0]["repeat"] is None else known)]
    if found:
        right, wrong = (np.sum([each[name] for each in found], axis=0) for name in ("right", "wrong"))
        every, edges = right + wrong, np.linspace(0, 1, len(right) + 1)
        filled = every > 0
        share = right[filled] / every[filled]
        error = [standard_error(int(a), int(b)) for a, b in zip(right[filled], every[filled], strict=True)]
        rows = axes.twinx()
        rows.bar(edges[:-1], every / every.sum(), 1 / len(right), align="edge", color=PALE)
        rows.set_ylim(0, 4 * (every / every.sum()).max())
        rows.set_yticks([])
        rows.spines["right"].set_visible(False)
        axes.set_zorder(rows.get_zorder() + 1)
        axes.patch.set_visible(False)
        places = (edges[:-1] + edges[1:])[filled] / 2
        low, high = np.minimum(error, share), np.minimum(error, 1 - share)  # a bar ends where accuracies end
        axes.errorbar(
            places, 100 * share, 100 * np.stack([low, high]), color=BLUE, marker="o", markersize=4, linewidth=1.5, capsize=2
        )
        axes.axhline(100 * right.sum() / every.sum(), color=INK, linewidth=1, linestyle=":")
        axes.set_ylim(0, 103)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("teacher's margin")
    axes.set_ylabel("teacher's accuracy, %")
    _say_if_empty(axes)


def _points(axes: Axes, numbers: Mapping[int, Number | None], arm: str, arms: Sequence[str]) -> None:
    """Means with error bars; arms stand a little beside each other, so that bars do not cover bars."""
    known = {place: number for place, number in sorted(numbers.items()) if number is not None}
    if not known:
        return
    style, step = _style(arm), list(arms).index(arm) - (len(arms) - 1) / 2
    x = np.array(list(known), dtype=float)
    x += 0.008 * step * (np.ptp(x) or x[0])
    means = [mean for mean, _ in known.values()]
    bars = [std or 0.0 for _, std in known.values()]
    axes.errorbar(
        x, means, bars, color=style.color, linestyle=style.line, linewidth=1.6, marker="o", markersize=4, capsize=2
    )


def _finish_labels(axes: Axes, labels: Sequence[int], measure: str) -> None:
    axes.set_xticks(labels, [f"{each:,}" for each in labels], rotation=30 if len(labels) > 4 else 0)
    if len(labels) == 1:
        axes.set_xlim(0.8 * labels[0], 1.2 * labels[0])
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


def _figure(count: int, across: int, draw: Callable[[list[Axes]], None], arms: Sequence[str], title: str) -> Figure:
    """A figure of `count` panels, `across` in a row, with one legend for all."""
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(count, across)
    rows = -(-count // columns)
    with matplotlib.style.context(["default", _LOOK]):
        figure = Figure(figsize=(max(WIDTH * columns, 5.0), HEIGHT * rows + 0.7), layout="constrained")
        panels = [figure.add_subplot(rows, columns, place) for place in range(1, count + 1)]
        draw(panels)
        figure.suptitle("\n".join(fill(line, 30 * (1 + columns)) for line in title.splitlines()))
        looks = {arm: _style(arm) for arm in arms}
        lines = [Line2D([], [], color=look.color, linestyle=look.line, linewidth=1.8) for look in looks.values()]
        figure.legend(
            lines, list(looks), loc="outside lower center", ncols=min(len(looks), 2 * columns) or 1, handlelength=3.2
        )
    return figure


def _style(arm: str) -> Style:
    """Of an arm: with hard targets as with soft ones, since they never share a panel."""
    return STYLES.get(arm.removesuffix("-hard"), Style(GREY, (10, 3)))


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
