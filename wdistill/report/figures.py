"""The figures of a page, each small enough for a phone. Most names given by users are in the page's text instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wdistill.report import svg
from wdistill.report.accuracies import Row, arm_names, baseline, longest
from wdistill.report.inspect import (
    LOOK,
    MAPS,
    Map,
    confidence_name,
    draw_accuracy,
    draw_histogram,
    draw_map,
    drawable,
    percent,
)
from wdistill.report.svg import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY
from wdistill.report.words import accuracy, duration, listed
from wdistill.runs.outcome import Outcome, Refresh, Training
from wdistill.weights.confidence import Floats
from wdistill.weights.debiased import Debiased
from wdistill.weights.diagnostics import BINS, Histogram, Plane, plane
from wdistill.weights.rule import Fitted, Product

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 5.0, 3.1  # inches: 360 points across, as wide as a phone
DRAWN = 200  # validation points on a map
NAME = 22  # characters of a name that fit an axis
KINDS = {"train": BLUE, "evaluate": SKY, "forward": AMBER, "estimate": ORANGE, "store": GREEN, "other": PALE}
_LOOK = {
    **LOOK,
    "font.size": 11,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    name: str
    color: str  # in CSS
    shape: str = "line"  # "line", "box", "hatched", "dot", "cross", "square", "diamond" or "triangle"
    dash: str = ""  # of a line, in SVG


@dataclass(frozen=True)
class Panel:
    """One figure: its SVG, title, caption and legend."""

    svg: str
    title: str
    caption: str = ""
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Style:
    """How an arm looks in every figure: never by colour alone."""

    color: str
    dash: tuple[float, ...]  # points on and off; () is solid

    def key(self, name: str) -> Key:
        return Key(name, svg.COLORS[self.color], "line", " ".join(f"{x:g}" for x in self.dash))

    @property
    def line(self) -> Any:
        return (0, self.dash) if self.dash else "solid"


def styles(rows: Sequence[Row]) -> dict[str, Style]:
    """The style of every arm: the baseline in ink, the others in colours; dashes differ too, for when colours repeat."""
    colors = [BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY]
    dashes: list[tuple[float, ...]] = [(), (6, 2), (1.5, 1.5), (6, 2, 1.5, 2), (3, 1.5), (8, 2, 3, 2), (10, 3)]
    names = [row.name for row in rows if row.role == "arm"]
    others = [name for name in names if name != baseline(rows)]
    styled = {name: Style(colors[i % len(colors)], dashes[i % len(dashes)]) for i, name in enumerate(others)}
    return {name: styled.get(name, Style(INK, (4, 1.5))) for name in names}


def look() -> AbstractContextManager[None]:
    """The look of a page's figures, while they are drawn and written."""
    import matplotlib.style

    return matplotlib.style.context(["default", _LOOK])


def as_svg(draw: Callable[[Axes], None], mark: str, label: str, height: float = HEIGHT) -> str:
    """One pair of axes in the look of a page, as SVG inside a page; `mark` and `label` as for `svg.inline`."""
    from matplotlib.figure import Figure

    with look():
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure.subplots())
        return svg.inline(figure, mark, label)


def spread(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation over trials of (trials, points); of one trial, none."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def draw_line(axes: Axes, x: NDArray[Any], values: Floats, color: str, line: Any = "solid", marker: str = "") -> None:
    """The mean over trials of values (trials, points), and a band of one standard deviation."""
    mean, std = spread(values)
    if len(values) > 1:
        axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.16, linewidth=0)
    axes.plot(
        x, mean, color=color, linewidth=1.8, linestyle=line, marker=marker or ("o" if len(x) == 1 else ""), markersize=4
    )


# ------------------------------------------------------------------------------------------------------------ accuracy


def trajectory(outcomes: Sequence[Outcome], rows: Sequence[Row], mark: str) -> Panel | None:
    """Accuracy after every epoch of every arm, on the test rows or, where there are none, on the validation rows."""
    names = arm_names(outcomes)
    look, curves, fewer = styles(rows), {}, False
    tested = any(epoch.test is not None for outcome in outcomes for arm in outcome.arms.values() for epoch in arm.epochs)
    measure = "test" if tested else "validation"
    for name in names:
        arms = [outcome.arms.get(name) for outcome in outcomes]
        whole = [arm for arm in arms if arm and arm.epochs and len(arm.epochs) == longest(arms)]
        values = np.array([[getattr(epoch, measure) for epoch in arm.epochs] for arm in whole], dtype=float)
        if values.size and (measured := ~np.isnan(values).any(axis=0)).any():
            epochs = np.array([epoch.epoch for epoch in whole[0].epochs])
            curves[name] = epochs[measured], 100 * values[:, measured]
            fewer |= len(whole) < len(outcomes)
    if not curves:
        return None
    settled = [v[:, len(x) // 8 :] for x, v in curves.values()]  # the first epochs would compress the scale
    bounds = [b for v in settled for mean, std in [spread(v)] for b in ((mean - std).min(), (mean + std).max())]
    low, high = min(bounds), max(bounds)
    references = [row for row in rows if row.role != "arm" and row.final and tested]
    levels = {row.name: 100 * row.final.mean for row in references if row.final}
    room = max(high - low, 1.0)
    near = {name: level for name, level in levels.items() if low - room < level < high + room}
    low, high = min([low, *near.values()]), max([high, *near.values()])
    lines = {"teacher": (GREY, (1, 2)), "student": (GREY, (8, 4))}

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for name, level in near.items():
            color, dash = lines[name]
            axes.axhline(level, color=color, linewidth=1.2, linestyle=(0, dash))
        for name, (x, values) in curves.items():
            draw_line(axes, x, values, look[name].color, look[name].line)
        axes.set_ylim(max(0, low - 0.06 * room), min(100, high + 0.06 * room) + 0.02 * room)
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{measure} accuracy, %")

    several = max(len(values) for _, values in curves.values()) > 1
    caption = "Lines are means over trials, bands one standard deviation. " if several else ""
    caption += "Trials that have not come as far as others are left out. " if fewer else ""
    far = [f"The {name}, at {level:.2f} %, is off the axis. " for name, level in levels.items() if name not in near]
    keys = [look[name].key(name) for name in curves]
    for name in near:
        color, dash = lines[name]
        called = "pretrained student" if name == "student" else name
        keys.append(Key(f"{called}, {levels[name]:.2f} %", svg.COLORS[color], "line", " ".join(map(str, dash))))
    ends = [f"{name} {values[:, -1].mean():.2f} %" for name, (_, values) in curves.items()]
    title = f"{measure.capitalize()} accuracy over the training"
    return Panel(
        as_svg(draw, mark, f"{title}. At the end: {listed(ends)}."), title, (caption + "".join(far)).strip(), tuple(keys)
    )


def max_on_test(rows: Sequence[Row], mark: str) -> Panel | None:
    """The maximum test accuracy over epochs of every arm: each trial, mean and standard deviation."""
    arms = [(row, row.max_on_test) for row in rows if row.role == "arm" and row.max_on_test and not row.behind]
    if not arms:
        return None
    look, places = styles(rows), np.arange(len(arms))[::-1]
    trials = 100 * np.array([[np.nan if v is None else v for v in score.values] for _, score in arms])  # (arms, trials)

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        several = trials.shape[1] > 1
        if several:
            axes.plot(trials, places, color=PALE, linewidth=1, zorder=1)
        for place, (row, score), values in zip(places, arms, trials, strict=True):
            color = look[row.name].color
            if several:
                axes.plot(values, [place] * len(values), "o", color=color, markersize=3.5, alpha=0.45, markeredgewidth=0)
            std = 100 * score.std if score.std is not None else None
            axes.errorbar(
                100 * score.mean, place, xerr=std, color=color, marker="o", markersize=7, linewidth=1.8, capsize=4, zorder=3
            )
        names = axes.set_yticks(places, [_short(row.name) for row, _ in arms])
        for tick in names:
            tick.label1.set_parse_math(False)
        values_axis = axes.secondary_yaxis("right")
        values_axis.set_yticks(places, [f"{100 * score.mean:.2f}" for _, score in arms])
        for side in (axes, values_axis):
            side.tick_params(axis="y", length=0)
        values_axis.spines["right"].set_visible(False)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-0.6, len(arms) - 0.4)
        axes.margins(x=0.08)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.set_xlabel("max test accuracy, %")

    summary = listed([f"{row.name} {accuracy(score)} %" for row, score in arms])
    several = "Small dots are trials, joined across arms; large dots their means, bars one standard deviation. "
    caption = (several if trials.shape[1] > 1 else "") + "Selected on the test rows, as in the paper, and so biased upwards."
    height = max(1.7, 0.95 + 0.42 * len(arms))
    return Panel(
        as_svg(draw, mark, f"Max test accuracy of every arm: {summary}.", height), "Max on test of every arm", caption
    )


def _short(name: str) -> str:
    line = drawable(name)
    return line if len(line) <= NAME else f"{line[: NAME - 1]}…"


# -------------------------------------------------------------------------------------------------- teacher and planes


def debiased_in(fitted: Fitted) -> Debiased | None:
    """The debiased rule, or the first one of a composition."""
    if isinstance(fitted, Debiased):
        return fitted
    parts = fitted.parts if isinstance(fitted, Product) else ()
    return next((found for part in parts if (found := debiased_in(part)) is not None), None)


def teacher(outcomes: Sequence[Outcome], mark: str) -> Panel | None:
    """The teacher's accuracy against its margin, on the validation rows of the first trial that stored them.

    An arm that uses all of them at the recipe's temperature is preferred; the caption names any other.
    """
    for trial, outcome in enumerate(outcomes, 1):
        which = [f"trial {trial} of {len(outcomes)}"] if len(outcomes) > 1 else []
        for arm in sorted(outcome.arms.values(), key=lambda arm: bool(_reading(arm))):
            debiased = next((state for fitted in arm.fitted if (state := debiased_in(fitted)) is not None), None)
            if debiased is not None:
                reading = [f"as {arm.name} reads them, with {' and '.join(_reading(arm))}"] if _reading(arm) else []
                return _teacher(debiased, "; ".join([*which, *reading]), mark)
    return None


def _reading(arm: Training) -> list[str]:
    """Settings of an arm that change the teacher's predictions on its validation rows."""
    return [f"{name} = {arm.settings[name]}" for name in ("temperature", "validation_in_training") if name in arm.settings]


def _teacher(fitted: Debiased, which: str, mark: str) -> Panel:
    titles: list[str] = []

    def draw(axes: Axes) -> None:
        draw_accuracy(axes, fitted)
        titles.append(_untitled(axes))

    drawn = as_svg(draw, mark, "The teacher's accuracy on validation rows against its margin.")
    caption = titles[0].partition("\n")[2]
    bars = "bars are standard errors"
    return Panel(
        drawn,
        "Teacher's accuracy by margin",
        _sentence(f"{caption}; {bars}; {which}" if which else f"{caption}; {bars}"),
    )


def maps(training: Training, mark: str, which: str = "") -> list[Panel]:
    """Error, distortion and weight over the plane of the two confidences; the weight also as it was at first."""
    states = [state for fitted in training.fitted if (state := debiased_in(fitted)) is not None]
    if not states:
        return []
    last, planes = states[-1], [plane(fitted) for fitted in states]
    factor = "the debiased factor; " if isinstance(training.fitted[-1], Product) else ""
    m, wrong = len(last.wrong), int(np.count_nonzero(last.wrong))
    some = f"; {DRAWN} of {m:,} rows drawn" if m > DRAWN else ""
    options = f"estimate {last.estimate}, {last.targets} targets, k = {last.k}{some}"
    panels = [_map(planes[-1], name, last, f"{mark}{name[0]}") for name in MAPS]
    if len(states) > 1:
        first = _map(planes[0], "weight", states[0], f"{mark}f")
        panels[-1] = _with(panels[-1], "Weight at the last refresh")
        panels.insert(2, _with(first, "Weight at the first refresh"))
    keys = (
        Key(f"teacher right on {m - wrong:,} validation rows", "#ffffff", "dot"),
        Key(f"teacher wrong on {wrong:,}", svg.COLORS[ORANGE], "cross"),
    )
    return [*panels[:-1], _with(panels[-1], panels[-1].title, _sentence(f"{factor}{which}{options}"), keys)]


def _with(panel: Panel, title: str, caption: str = "", keys: tuple[Key, ...] = ()) -> Panel:
    return Panel(panel.svg, title, caption, keys)


def _map(grid: Plane, which: Map, fitted: Debiased, mark: str) -> Panel:
    def draw(axes: Axes) -> None:
        draw_map(axes, grid, which, confidence_name(fitted), DRAWN)

    label = f"{MAPS[which]} over the plane of the teacher's and the student's confidence."
    return Panel(as_svg(draw, mark, label, 3.6), MAPS[which])


def _untitled(axes: Axes) -> str:
    """Remove and return the title: the page shows it beneath the figure."""
    title = axes.get_title("left")
    axes.set_title("", loc="left")
    return title


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# ------------------------------------------------------------------------------------------------------------- weights


def weights(trainings: Sequence[Training], mark: str) -> Panel | None:
    """Weights of the last refresh, all trials together: of right and wrong rows where the truth is known, else of all."""
    last = [training.refreshes[-1] for training in trainings if training.refreshes]
    if not last:
        return None
    right, wrong = _sum([refresh.right for refresh in last]), _sum([refresh.wrong for refresh in last])
    every = _sum([refresh.weights for refresh in last])
    if right and wrong and right.rows + wrong.rows:
        return _right_and_wrong(right, wrong, len(last), mark)
    return _all(every, len(last), mark) if every and every.rows else None


def _sum(histograms: Sequence[Histogram | None]) -> Histogram | None:
    counted = [histogram for histogram in histograms if histogram is not None]
    return reduce(add, counted) if len(counted) == len(histograms) else None


def _all(histogram: Histogram, trials: int, mark: str) -> Panel:
    titles: list[str] = []

    def draw(axes: Axes) -> None:
        draw_histogram(axes, histogram)
        titles.append(_untitled(axes))

    drawn = as_svg(draw, mark, f"Histogram of the weights: mean {histogram.mean:.4f}.")
    title, _, details = titles[0].partition("\n")
    details = details.replace("%", " %")
    return Panel(drawn, title, _sentence(f"{details}; at the last refresh{_of(trials)}"))


def _of(trials: int) -> str:
    return f" of {trials} trials together" if trials > 1 else ""


def _right_and_wrong(right: Histogram, wrong: Histogram, trials: int, mark: str) -> Panel:
    halves = [(right, -0.5, BLUE, ""), (wrong, 0.5, ORANGE, "////")]
    shares = [100 * _tenths(histogram) / max(1, histogram.rows) for histogram, *_ in halves]
    both = np.concatenate(shares)
    skewed = bool(both.max() > 50 * both[both > 0].min())

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import StrMethodFormatter

        places = np.append(np.arange(BINS // 2) + 0.5, BINS // 2 + 0.9)
        for (_, side, color, hatch), share in zip(halves, shares, strict=True):
            axes.bar(places + 0.42 * side, share, 0.42, color=color, edgecolor="white", linewidth=0.5, hatch=hatch)
        if skewed:
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.set_ylim(bottom=max(1e-4, 0.5 * float(both[both > 0].min())))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xticks([0, 2, 4, 6, 8, 10.9], ["0", "0.2", "0.4", "0.6", "0.8", "= 1"])
        axes.set_xlabel("weight")
        axes.set_ylabel("share of the rows, %" + (" (log)" if skewed else ""))

    label = f"Weights of rightly labeled rows, mean {right.mean:.4f}, and of wrongly labeled rows, mean {wrong.mean:.4f}."
    caption = f"At the last refresh{_of(trials)}; {_share(right)} of the right and"
    caption += f" {_share(wrong)} of the wrong weights are exactly 1."
    keys = (
        Key(f"rightly labeled: {right.rows:,} rows, mean weight {right.mean:.3f}", svg.COLORS[BLUE], "box"),
        Key(f"wrongly labeled: {wrong.rows:,} rows, mean weight {wrong.mean:.3f}", svg.COLORS[ORANGE], "hatched"),
    )
    return Panel(as_svg(draw, mark, label), "Weights of rightly and wrongly labeled rows", caption, keys)


def _share(histogram: Histogram) -> str:
    return percent(histogram.ones / max(1, histogram.rows)).replace("%", " %")


def _tenths(histogram: Histogram) -> NDArray[np.float64]:
    """Counts in ten bins, and of the weights of exactly 1."""
    return np.append(np.array(histogram.counts, float).reshape(-1, 2).sum(axis=1), histogram.ones)


def movement(trainings: Sequence[Training], mark: str) -> Panel | None:
    """Mean weights at every refresh: how they change during training."""
    most = max((len(training.refreshes) for training in trainings), default=0)
    whole = [training.refreshes for training in trainings if len(training.refreshes) == most]
    if most < 2:
        return None
    after = np.array([refresh.after for refresh in whole[0]])
    kinds: dict[str, tuple[str, tuple[float, ...], Callable[[Refresh], Histogram | None]]] = {
        "rightly labeled rows": (BLUE, (), lambda refresh: refresh.right),
        "all rows": (INK, (4, 1.5), lambda refresh: refresh.weights),
        "wrongly labeled rows": (ORANGE, (1.5, 1.5), lambda refresh: refresh.wrong),
    }
    curves = {}
    for name, (color, dash, read) in kinds.items():
        histograms = [[read(refresh) for refresh in refreshes] for refreshes in whole]
        if all(histogram is not None and histogram.rows for row in histograms for histogram in row):
            values = np.array([[histogram.mean for histogram in row if histogram is not None] for row in histograms])
            curves[name] = values, Style(color, dash)

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for values, style in curves.values():
            draw_line(axes, after, values, style.color, style.line, marker="o" if most <= 12 else "")
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_xlabel("epochs of training before the refresh")
        axes.set_ylabel("mean weight")

    if not curves:
        return None
    ends = [f"{name} from {values[:, 0].mean():.3f} to {values[:, -1].mean():.3f}" for name, (values, _) in curves.items()]
    caption = f"{most} refreshes" + ("; bands are one standard deviation over trials." if len(whole) > 1 else ".")
    keys = tuple(style.key(name) for name, (_, style) in curves.items())
    return Panel(as_svg(draw, mark, f"Mean weights: {listed(ends)}."), "How the weights move", caption, keys)


# ---------------------------------------------------------------------------------------------------------------- time


def times(stages: dict[str, dict[str, float]], trials: int, mark: str) -> Panel | None:
    """Seconds of every stage by kind of work, as stacked bars."""
    if not stages or not any(sum(kinds.values()) for kinds in stages.values()):
        return None
    places = np.arange(len(stages))[::-1]
    used = [kind for kind in KINDS if any(kinds.get(kind, 0) > 0 for kinds in stages.values())]
    longest_stage = max(sum(kinds.values()) for kinds in stages.values())
    size, unit = (3600, "hours") if longest_stage > 7200 else (60, "minutes") if longest_stage > 180 else (1, "seconds")

    def draw(axes: Axes) -> None:
        start = np.zeros(len(stages))
        for kind in used:
            length = np.array([kinds.get(kind, 0.0) for kinds in stages.values()]) / size
            axes.barh(places, length, 0.62, start, color=KINDS[kind])
            start += length
        for tick in axes.set_yticks(places, [_short(name) for name in stages]):
            tick.label1.set_parse_math(False)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.6, len(stages) - 0.4)
        axes.set_xlabel(unit)

    total = [f"{name} {duration(sum(kinds.values()))}" for name, kinds in stages.items()]
    keys = tuple(Key(kind, svg.COLORS[KINDS[kind]], "box") for kind in used)
    caption = f"Means over {trials} trials." if trials > 1 else ""
    height = max(1.7, 0.85 + 0.32 * len(stages))
    return Panel(as_svg(draw, mark, f"Time of every stage: {listed(total)}.", height), "Time by stage", caption, keys)
