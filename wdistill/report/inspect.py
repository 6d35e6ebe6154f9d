"""What `wdistill inspect` shows: one picture of teacher, rule and weights, and the same numbers as tables. Nothing here
writes files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_input, not_one_of, printable
from wdistill.report.svg import BLUE, GREY, INK, ORANGE, PALE
from wdistill.weights.confidence import Floats, entropy, margin
from wdistill.weights.debiased import Debiased
from wdistill.weights.diagnostics import (
    BINS,
    EDGES,
    Bin,
    Histogram,
    Plane,
    accuracy_by_margin,
    plane,
    reliability,
    standard_error,
)
from wdistill.weights.evidence import Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure
    from rich.table import Table

_PIXELS = 1600  # a picture's width
DRAWN = 1500  # validation points drawn at most
Map = Literal["error", "distortion", "weight"]
MAPS: dict[Map, str] = {
    "error": "Estimated error of the teacher",
    "distortion": "Estimated distortion (1: none)",
    "weight": "Weight",
}
LOOK = {
    "font.size": 13,
    "axes.titlesize": 13.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "legend.frameon": False,
    "svg.hashsalt": "wdistill",  # the same picture, the same bytes
}


def picture(
    fitted: Debiased | None,
    histogram: Histogram | None,
    title: str,
    format: Literal["png", "svg"] = "png",  # noqa: A002
) -> bytes:
    """One figure: the teacher, the weights, and the rule over the plane of the two confidences, as far as given."""
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if format not in ("png", "svg"):
        raise not_one_of("unknown format", "format", format, ("png", "svg"))
    weights = histogram if histogram is not None and histogram.rows else None
    if fitted is None and weights is None:
        remedy = "pass the fitted rule, or a histogram of its weights"
        raise bad_input("nothing to show", "picture", "neither a fitted rule nor weights", "at least one of them", remedy)
    with matplotlib.style.context(["default", LOOK]):
        width, height = (16.0, 10.8) if fitted else (11.0, 5.5)
        roomy = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.1)
        figure = Figure(figsize=(width, height), dpi=_PIXELS / width, layout=roomy)
        figure.suptitle(drawable(title), fontsize=17 if fitted else 12, parse_math=False)
        if fitted:
            above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.12])[:, 0]
            accuracy, calibration, *others = above.subplots(1, 3 if weights else 2)
            draw_accuracy(accuracy, fitted)
            _draw_reliability(calibration, fitted)
            _draw_planes(below, fitted)
        else:
            others = [figure.subplots()]
        if weights:
            draw_histogram(others[0], weights)
        buffer = io.BytesIO()
        nameless: dict[str, Any] = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
        figure.savefig(buffer, format=format, metadata=nameless)
    return buffer.getvalue()


def draw_accuracy(axes: Axes, fitted: Debiased) -> None:
    """Accuracy by margin, with a low histogram of the rows beneath."""
    bins = accuracy_by_margin(fitted.margins, fitted.wrong, _bins_for(len(fitted.wrong)))
    right, m = int(np.count_nonzero(~fitted.wrong)), len(fitted.wrong)
    means = np.array([point.mean for point in bins])
    crowded = np.count_nonzero(np.diff(means) < 0.02) > len(bins) / 3
    places = np.arange(len(bins)) if crowded else means
    rows = axes.twinx()
    if crowded:
        counts = np.array([point.rows for point in bins])
        rows.bar(places, counts, color=PALE)
        axes.set_xticks(places, [_near_one(mean) for mean in means], rotation=40, ha="right", rotation_mode="anchor")
        axes.set_xlabel("mean of the teacher's margin, bins equally spaced")
    else:
        counts = np.histogram(fitted.margins, EDGES)[0]
        rows.bar(EDGES[:-1], counts, 1 / BINS, align="edge", color=PALE)
        axes.set_xlim(-0.03, 1.03)
        axes.set_xlabel("teacher's margin")
    rows.set_ylim(0, 4 * counts.max())
    rows.set_yticks([0, int(counts.max())], ["0", f"{counts.max():,}"])
    rows.set_ylabel("validation rows (grey)", loc="bottom", color=GREY, fontsize=11)
    rows.tick_params(axis="y", colors=GREY, labelsize=11)
    axes.set_zorder(rows.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.axhline(right / m, color=INK, linewidth=1, linestyle=":")
    _draw_bins(axes, places, bins)
    axes.set_ylim(_floor([point.accuracy - point.standard_error for point in bins]), 1.03)
    axes.set_ylabel("teacher's accuracy")
    least, most = min(point.rows for point in bins), max(point.rows for point in bins)
    a_point = f"{least:,}" if least == most else f"{least:,}–{most:,}"
    overall = f"overall {right / m:.3f} ± {standard_error(right, m):#.2g} (dotted)"
    axes.set_title(f"Teacher's accuracy by margin\n{overall}; {a_point} rows a point")


def _draw_reliability(axes: Axes, fitted: Debiased) -> None:
    calibration = reliability(fitted.certainty, fitted.wrong, _bins_for(len(fitted.wrong)))
    low = _floor([x for point in calibration.bins for x in (point.accuracy - point.standard_error, point.mean)])
    axes.plot([low, 1], [low, 1], color=INK, linewidth=1, linestyle=":")
    _draw_bins(axes, np.array([point.mean for point in calibration.bins]), calibration.bins)
    axes.set_xlim(low, 1.03)
    axes.set_ylim(low, 1.03)
    axes.set_xlabel("teacher's largest probability")
    axes.set_ylabel("teacher's accuracy")
    axes.set_title(f"Reliability (dotted: perfect)\nexpected calibration error {calibration.error:.3f}")


def _draw_bins(axes: Axes, places: NDArray[Any], bins: Sequence[Bin]) -> None:
    y, error = np.array([(point.accuracy, point.standard_error) for point in bins]).T
    spread = np.stack([np.minimum(error, y), np.minimum(error, 1 - y)])  # a bar ends where accuracies end
    axes.errorbar(places, y, spread, color=BLUE, marker="o", markersize=7, linewidth=1.5, capsize=4)


def draw_histogram(axes: Axes, histogram: Histogram) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    counts = np.array([*histogram.counts, histogram.ones])
    skewed = bool(counts.max() > 100 * counts[counts > 0].min())
    axes.bar(EDGES[:-1], histogram.counts, 1 / BINS, align="edge", color=BLUE, edgecolor="white")
    axes.bar([1.03], [histogram.ones], 1 / BINS, align="edge", color=ORANGE, edgecolor="white", hatch="//")
    if skewed:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlim(-0.02, 1.1)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.055], ["0", "0.2", "0.4", "0.6", "0.8", "= 1"])
    axes.set_xlabel("weight")
    axes.set_ylabel("unlabeled rows" + (" (log scale)" if skewed else ""))
    ones = percent(histogram.ones / histogram.rows)
    axes.set_title(f"Weights of {histogram.rows:,} unlabeled rows\nmean {histogram.mean:.4f}; {ones} exactly 1 (hatched)")


def _draw_planes(figure: SubFigure, fitted: Debiased) -> None:
    """Three maps over the plane of the two confidences, the validation rows on top."""
    grid, confidence, m = plane(fitted), confidence_name(fitted), len(fitted.wrong)
    for axes, (which, name) in zip(figure.subplots(1, 3), MAPS.items(), strict=True):
        draw_map(axes, grid, which, confidence)
        axes.set_title(name)
    crosses, dots = axes.collections
    faults, some = int(np.count_nonzero(fitted.wrong)), f"; {DRAWN:,} rows drawn" if m > DRAWN else ""
    names = [f"teacher right on {m - faults:,} validation rows", f"teacher wrong on {faults:,}{some}"]
    figure.legend([dots, crosses], names, loc="outside lower center", ncols=2, markerscale=1.5)
    options = f"estimate {fitted.estimate}, {fitted.targets} targets, k = {fitted.k} of {m:,} validation rows"
    figure.suptitle(f"What the rule makes of it: {options}", fontsize=14)


def draw_map(axes: Axes, grid: Plane, which: Map, confidence: str, drawn: int = DRAWN) -> None:
    """One map over the plane with its colour bar, and some of the validation rows on top; `confidence` is its name."""
    from matplotlib.colors import LogNorm, Normalize

    figure = axes.figure
    if which == "distortion":
        values = np.maximum(grid.distortion, 1e-12)
        reach = float(np.clip(max(values.max(), 1 / values.min()), 2, 1000))  # as far below 1 as above: white is 1
    else:
        values = grid.error if which == "error" else grid.weight
    (left, *_, right), (low, *_, high) = grid.teacher, grid.student
    dx, dy = (right - left) / (len(grid.teacher) - 1) / 2, (high - low) / (len(grid.student) - 1) / 2
    extent = (left - dx, right + dx, low - dy, high + dy)  # a cell around every point of the grid
    cells: dict[str, Any] = {"origin": "lower", "extent": extent, "aspect": "auto", "interpolation": "nearest"}
    if which == "distortion":
        image = axes.imshow(values, "PuOr_r", LogNorm(1 / reach, reach), **cells)
        ends = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
        beyond = ends[bool(values.min() * reach < 1 - 1e-9), bool(values.max() > reach * (1 + 1e-9))]
        bar = figure.colorbar(image, ax=axes, extend=beyond, pad=0.02)
        bar.set_ticks([tick for tick in _ticks(reach) if 1 / reach <= tick <= reach], minor=False)
        bar.ax.minorticks_off()
        bar.ax.yaxis.set_major_formatter("{x:g}")
    elif which == "error":
        image = axes.imshow(values, "Blues", Normalize(0, max(0.1, values.max())), **cells)
        figure.colorbar(image, ax=axes, pad=0.02)
    else:
        image = axes.imshow(values, "viridis", Normalize(min(0.9, values.min()), 1), **cells)
        figure.colorbar(image, ax=axes, pad=0.02)
    shown = np.unique(np.linspace(0, len(grid.wrong) - 1, drawn).astype(int))
    (x, y), wrong = grid.points[shown].T, grid.wrong[shown]
    size = 14 * max(0.6, min(1, 400 / len(shown)))
    # the small dots are drawn over the large crosses, so that both are visible where they coincide
    axes.scatter(x[wrong], y[wrong], s=4.5 * size, c=ORANGE, marker="X", edgecolors="black", linewidths=0.7)
    axes.scatter(x[~wrong], y[~wrong], s=size, c="white", edgecolors="black", linewidths=0.7)
    axes.set_xlim(left - 6 * dx, right + 6 * dx)
    axes.set_ylim(low - 6 * dy, high + 6 * dy)
    axes.set_xlabel(f"teacher's {confidence}")
    axes.set_ylabel(f"student's {confidence}")


def _ticks(reach: float) -> Floats:
    """Round numbers from 0.001 to 1000: few where the scale is wide."""
    steps = (1,) if reach > 30 else (1, 2, 5) if reach > 3 else (1, 1.2, 1.5, 2, 2.5, 5, 6, 7, 8)
    return np.array([step * 10.0**power for power in range(-3, 4) for step in steps])


def _near_one(value: float) -> str:
    """A margin in few characters, however close to 1."""
    return f"{value:.2f}" if value < 0.985 else "1" if value == 1 else f"1 − {1 - value:.0e}".replace("e-0", "e-")


def _bins_for(m: int) -> int:
    """Ten bins, fewer where they would hold fewer than ten rows."""
    return min(10, max(1, m // 10))


def _floor(values: Sequence[float]) -> float:
    """The lower end of an axis that ends at 1: a tenth below all values, at most 0.7 so that noise does not look large."""
    return float(np.clip(np.floor(10 * min(values)) / 10, 0, 0.7))


def percent(share: float) -> str:
    """A percentage that is 0 % or 100 % only where that is exact."""
    if share in (0, 1):
        return f"{share:.0%}"
    return "under 0.1%" if share < 0.001 else "over 99.9%" if share > 0.999 else f"{share:.1%}"


def confidence_name(fitted: Debiased) -> str:
    if isinstance(fitted.confidence, Scores):
        return "score"
    if fitted.confidence is margin:
        return "margin"
    return "entropy (nats)" if fitted.confidence is entropy else "confidence"


def drawable(text: str) -> str:
    """One line that the font can draw: control characters escaped, unknown characters as boxes, a long middle cut."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont("DejaVu Sans"))
    line = "".join(c if font.get_char_index(ord(c)) else "□" for c in printable(text.replace("\n", " ")))
    return line if len(line) <= 110 else f"{line[:54]} … {line[-54:]}"


# -------------------------------------------------------------------------------------------------------------- tables


def tables(fitted: Debiased | None, histogram: Histogram | None, notes: Mapping[str, str]) -> list[Table]:
    """The picture as numbers: a summary, which ends with the notes, then one table for each panel."""
    shown = [_table("Summary", {**_summary(fitted, histogram), **notes})]
    if fitted:
        bins = _bins_for(len(fitted.wrong))
        calibration = reliability(fitted.certainty, fitted.wrong, bins)
        shown += [
            _bin_table("Teacher's accuracy by margin", "margin", accuracy_by_margin(fitted.margins, fitted.wrong, bins)),
            _bin_table("Reliability of the teacher's largest probability", "probability", calibration.bins),
        ]
    if histogram and histogram.rows:
        shown.append(_weight_table(histogram))
    return shown


def _summary(fitted: Debiased | None, histogram: Histogram | None) -> dict[str, str]:
    lines: dict[str, str] = {}
    if fitted:
        right, m = int(np.count_nonzero(~fitted.wrong)), len(fitted.wrong)
        calibration = reliability(fitted.certainty, fitted.wrong, _bins_for(m))
        lines |= {
            "validation rows": f"{m:,}",
            "neighbours": str(fitted.k),
            "teacher's accuracy": f"{right / m:.4f} ± {standard_error(right, m):.4f}",
            "expected calibration error": f"{calibration.error:.4f}",
            "largest distortion": f"{fitted.distortion.max():.4g}",
            "floored losses": f"{fitted.floored:,}",
        }
    if histogram:
        rows = histogram.rows
        size = histogram.effective_sample_size
        lines["weighed rows"] = f"{rows:,}"
        if rows:
            lines |= {
                "mean weight": f"{histogram.mean:.4f}",
                "effective sample size": f"{size:,.1f} ({size / rows:.1%} of the rows)",
                "weights below 1": f"{sum(histogram.counts):,} ({percent(histogram.share_below_one)})",
            }
    return lines


def _table(title: str, lines: Mapping[str, str]) -> Table:
    from rich.table import Column, Table
    from rich.text import Text

    table = Table("", Column(overflow="fold"), title=title, title_justify="left", show_header=False)
    for name, value in lines.items():
        table.add_row(Text(printable(name)), Text(printable(value)))  # Text: brackets in users' names are not markup
    return table


def _bin_table(title: str, measure: str, bins: Sequence[Bin]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("from", "to", f"mean {measure}", "rows", "accuracy", "standard error"):
        table.add_column(name, justify="right")
    for point in bins:
        numbers = (f"{x:.4f}" for x in (point.low, point.high, point.mean))
        table.add_row(*numbers, f"{point.rows:,}", f"{point.accuracy:.4f}", f"{point.standard_error:.4f}")
    return table


def _weight_table(histogram: Histogram) -> Table:
    from rich.bar import Bar
    from rich.table import Table

    table = Table("weight", title="Weights", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("share", justify="right")
    table.add_column("", width=20)
    names = [f"{low:.2f} – {low + 1 / BINS:.2f}" for low in EDGES[:-1]] + ["exactly 1"]
    counts = [*histogram.counts, histogram.ones]
    for name, count in list(zip(names, counts, strict=True))[next(i for i, count in enumerate(counts) if count) :]:
        length = (
            max(count / max(counts), 1 / 160) if count else 0.0
        )  # any count is visible: an eighth of a character at least
        table.add_row(name, f"{count:,}", percent(count / histogram.rows), Bar(1, 0, length, width=20))
    return table
