"""What a person looks at before trusting weights: numbers, one picture, and the same as tables.

The validation rows show how far the teacher can be trusted at which confidence (the paper's Figure 1, right), and what the
rule makes of that over the plane of the two confidences; a histogram shows the weights that came out.
Only `picture` and `tables` need Matplotlib and Rich; nothing here writes a file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wdistill import checks
from wdistill.confidence import Floats, entropy, margin
from wdistill.errors import ConfigError, InputError, printable
from wdistill.evidence import Scores
from wdistill.rules import Debiased

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure
    from rich.table import Table

BINS = 20  # of a histogram of weights
_EDGES = np.arange(BINS + 1) / BINS
_ONE = 60  # sums of weights are kept in quanta of 2^-60


@dataclass(frozen=True)
class Bin:
    """Validation rows of similar confidence, and how often the teacher is right on them."""

    low: float  # smallest confidence
    high: float  # largest confidence
    mean: float  # mean confidence
    rows: int
    accuracy: float
    standard_error: float  # of the accuracy; see `standard_error`


@dataclass(frozen=True)
class Reliability:
    """Whether the teacher's largest probability means what it says."""

    bins: tuple[Bin, ...]
    error: float  # expected calibration error: mean over the rows of |mean probability − accuracy| of their bin


def accuracy_by_margin(margins: Floats, wrong: NDArray[np.bool_], bins: int = 10) -> tuple[Bin, ...]:
    """The teacher's accuracy against its margin, margins (m,) and wrong (m,): the paper's Figure 1, right.

    Bins hold equally many rows as far as ties allow: equal margins share a bin, so the order of rows never matters, and
    there are fewer bins where there are fewer distinct margins.
    """
    if bins < 1:
        raise ConfigError("not a number of bins", where="bins", found=str(bins), expected="1, 2, 3 …")
    margins, wrong = checks.scores(margins, "margins"), np.asarray(wrong, bool)
    m = checks.same_length({"margins": len(margins), "wrong": len(wrong)})
    if m == 0:
        raise InputError("no validation rows", where="margins", found="0 rows", expected="at least 1 row")
    ordered = np.sort(margins)
    middle = np.searchsorted(ordered, margins, "left") + np.searchsorted(ordered, margins, "right")  # twice the mean rank
    place = middle * bins // (2 * m)
    return tuple(_bin(margins[place == each], wrong[place == each]) for each in np.unique(place))


def _bin(values: Floats, wrong: NDArray[np.bool_]) -> Bin:
    right, rows = int(np.count_nonzero(~wrong)), len(values)
    mean = float(np.clip(np.sort(values).mean(), values.min(), values.max()))  # sorted: one sum, whatever the order
    return Bin(float(values.min()), float(values.max()), mean, rows, right / rows, standard_error(right, rows))


def standard_error(right: float, rows: float) -> float:
    """Of the accuracy `right / rows`: the posterior's standard deviation under a flat prior.

    For many rows it is the usual √(a(1 − a) / rows); unlike that, it never claims certainty from a few rows all right.
    """
    a = (right + 1) / (rows + 2)
    return float(np.sqrt(a * (1 - a) / (rows + 3)))


def reliability(certainty: Floats, wrong: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """Mean largest probability against accuracy, certainty (m,) and wrong (m,), in bins of equally many rows."""
    found = accuracy_by_margin(certainty, wrong, bins)
    gaps = sum(each.rows * abs(each.mean - each.accuracy) for each in found)
    return Reliability(found, gaps / sum(each.rows for each in found))


@dataclass(frozen=True)
class Histogram:
    """Weights counted in 20 equal bins over [0, 1), those of exactly 1 apart, and their sums.

    All fields are whole numbers, so chunks give the same record as the whole, in any order.
    """

    counts: tuple[int, ...] = (0,) * BINS  # bin i holds i/20 ≤ weight < (i + 1)/20
    ones: int = 0  # weights of exactly 1
    total: int = 0  # Σ w in quanta of 2^-60
    squares: int = 0  # Σ w² in quanta of 2^-60

    def plus(self, weights: ArrayLike) -> Histogram:
        """The histogram with another chunk of weights (n,) counted in."""
        found = checks.scores(weights, "weights")
        if len(found) and not (found.min() >= 0 and found.max() <= 1):
            found_range = f"from {found.min():.6g} to {found.max():.6g}"
            raise InputError("not weights", where="weights", found=found_range, expected="numbers within [0, 1]")
        below = found[found < 1]
        counts = np.bincount(np.searchsorted(_EDGES, below, "right") - 1, minlength=BINS)
        return self + Histogram(tuple(counts.tolist()), len(found) - len(below), _quanta(found), _quanta(found * found))

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(
            tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)),
            self.ones + other.ones,
            self.total + other.total,
            self.squares + other.squares,
        )

    @property
    def rows(self) -> int:
        return sum(self.counts) + self.ones

    @property
    def mean(self) -> float:
        return self.total / (self.rows << _ONE) if self.rows else 0.0

    @property
    def effective_sample_size(self) -> float:
        """(Σ w)² / Σ w²."""
        return self.total**2 / (self.squares << _ONE) if self.squares else 0.0

    @property
    def share_below_one(self) -> float:
        return sum(self.counts) / self.rows if self.rows else 0.0


def _quanta(values: Floats) -> int:
    """The sum of numbers within [0, 1], exact in quanta of 2^-60; the halves are summed apart, so neither overflows."""
    whole = np.rint(values * 2.0**_ONE).astype(np.int64)
    return (int((whole >> 30).sum()) << 30) + int((whole & (2**30 - 1)).sum())


@dataclass(frozen=True, eq=False)
class Plane:
    """A fitted rule's estimates over the plane of the two confidences, and the validation rows they come from."""

    teacher: Floats  # (size,) the teacher's confidence, ascending
    student: Floats  # (size,) the student's
    error: Floats  # (size, size), student by teacher: estimated chance that the teacher is wrong
    distortion: Floats  # (size, size)
    weight: Floats  # (size, size)
    points: Floats  # (m, 2)
    wrong: NDArray[np.bool_]  # (m,)


def plane(fitted: Debiased, size: int = 120) -> Plane:
    """Error, distortion and weight on a grid over the box of the validation points."""
    if size < 2:
        raise ConfigError("not a size of a grid", where="size", found=str(size), expected="2 or more points a side")
    teacher, student = (_stretch(column, size) for column in fitted.points.T)
    queries = np.stack(np.meshgrid(teacher, student), axis=-1).reshape(-1, 2)
    weight, error, seen, _ = fitted.estimates(queries)
    square = (size, size)
    return Plane(
        teacher, student, error.reshape(square), seen.reshape(square), weight.reshape(square), fitted.points, fitted.wrong
    )


def _stretch(column: Floats, size: int) -> Floats:
    """Equally spaced from the least to the largest; around the one value there is, where all are (nearly) equal."""
    low, high = float(column.min()), float(column.max())
    scale = max(abs(low), abs(high), 1.0)
    if high - low < 1e-6 * scale:
        low, high = low - 0.05 * scale, high + 0.05 * scale
    return np.linspace(low, high, size)


# ------------------------------------------------------------------------------------------------------------- picture

_PIXELS = 1600  # a picture's width
DRAWN = 1500  # validation points drawn at most
Map = Literal["error", "distortion", "weight"]
MAPS: dict[Map, str] = {
    "error": "Estimated error of the teacher",
    "distortion": "Estimated distortion (1: none)",
    "weight": "Weight",
}
INK, GREY, PALE = "#333333", "#6b7280", "#d3d7de"
BLUE, ORANGE = "#0072b2", "#d55e00"  # of Okabe and Ito's palette, safe for the colour-blind
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
    """One figure of all that is known: the teacher, the weights, and the rule over the plane of the two confidences."""
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if format not in ("png", "svg"):
        raise ConfigError("unknown format", where="format", found=repr(format), expected="'png' or 'svg'")
    known = histogram if histogram is not None and histogram.rows else None
    if fitted is None and known is None:
        raise InputError(
            "nothing to show",
            where="picture",
            found="neither a fitted rule nor weights",
            expected="at least one of them",
            remedy="pass the fitted rule, or a histogram of its weights",
        )
    with matplotlib.style.context(["default", LOOK]):
        width, height = (16.0, 10.8) if fitted else (11.0, 5.5)
        roomy = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.1)
        figure = Figure(figsize=(width, height), dpi=_PIXELS / width, layout=roomy)
        figure.suptitle(drawable(title), fontsize=17 if fitted else 12, parse_math=False)
        if fitted:
            above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.12])[:, 0]
            accuracy, calibration, *rest = above.subplots(1, 3 if known else 2)
            draw_accuracy(accuracy, fitted)
            _draw_reliability(calibration, fitted)
            _draw_planes(below, fitted)
        else:
            rest = [figure.subplots()]
        if known:
            draw_histogram(rest[0], known)
        buffer = io.BytesIO()
        nameless: dict[str, Any] = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
        figure.savefig(buffer, format=format, metadata=nameless)
    return buffer.getvalue()


def draw_accuracy(axes: Axes, fitted: Debiased) -> None:
    """Accuracy by margin, and beneath it a low skyline of how many rows there are."""
    bins = accuracy_by_margin(fitted.margins, fitted.wrong, _bins_for(len(fitted.wrong)))
    right, m = int(np.count_nonzero(~fitted.wrong)), len(fitted.wrong)
    means = np.array([each.mean for each in bins])
    crowded = np.count_nonzero(np.diff(means) < 0.02) > len(bins) / 3
    places = np.arange(len(bins)) if crowded else means
    rows = axes.twinx()
    if crowded:
        counts = np.array([each.rows for each in bins])
        rows.bar(places, counts, color=PALE)
        axes.set_xticks(places, [_near_one(mean) for mean in means], rotation=40, ha="right", rotation_mode="anchor")
        axes.set_xlabel("mean of the teacher's margin, bins equally spaced")
    else:
        counts = np.histogram(fitted.margins, _EDGES)[0]
        rows.bar(_EDGES[:-1], counts, 1 / BINS, align="edge", color=PALE)
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
    axes.set_ylim(_floor([each.accuracy - each.standard_error for each in bins]), 1.03)
    axes.set_ylabel("teacher's accuracy")
    least, most = min(each.rows for each in bins), max(each.rows for each in bins)
    a_point = f"{least:,}" if least == most else f"{least:,}–{most:,}"
    overall = f"overall {right / m:.3f} ± {standard_error(right, m):#.2g} (dotted)"
    axes.set_title(f"Teacher's accuracy by margin\n{overall}; {a_point} rows a point")


def _draw_reliability(axes: Axes, fitted: Debiased) -> None:
    found = reliability(fitted.certainty, fitted.wrong, _bins_for(len(fitted.wrong)))
    low = _floor([x for each in found.bins for x in (each.accuracy - each.standard_error, each.mean)])
    axes.plot([low, 1], [low, 1], color=INK, linewidth=1, linestyle=":")
    _draw_bins(axes, np.array([each.mean for each in found.bins]), found.bins)
    axes.set_xlim(low, 1.03)
    axes.set_ylim(low, 1.03)
    axes.set_xlabel("teacher's largest probability")
    axes.set_ylabel("teacher's accuracy")
    axes.set_title(f"Reliability (dotted: perfect)\nexpected calibration error {found.error:.3f}")


def _draw_bins(axes: Axes, places: NDArray[Any], bins: Sequence[Bin]) -> None:
    y, error = np.array([(each.accuracy, each.standard_error) for each in bins]).T
    spread = np.stack([np.minimum(error, y), np.minimum(error, 1 - y)])  # a bar ends where accuracies end
    axes.errorbar(places, y, spread, color=BLUE, marker="o", markersize=7, linewidth=1.5, capsize=4)


def draw_histogram(axes: Axes, histogram: Histogram) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    counts = np.array([*histogram.counts, histogram.ones])
    skewed = bool(counts.max() > 100 * counts[counts > 0].min())
    axes.bar(_EDGES[:-1], histogram.counts, 1 / BINS, align="edge", color=BLUE, edgecolor="white")
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
    found, word, m = plane(fitted), confidence_word(fitted), len(fitted.wrong)
    for axes, (which, name) in zip(figure.subplots(1, 3), MAPS.items(), strict=True):
        draw_map(axes, found, which, word)
        axes.set_title(name)
    crosses, dots = axes.collections
    faults, some = int(np.count_nonzero(fitted.wrong)), f"; {DRAWN:,} rows drawn" if m > DRAWN else ""
    names = [f"teacher right on {m - faults:,} validation rows", f"teacher wrong on {faults:,}{some}"]
    figure.legend([dots, crosses], names, loc="outside lower center", ncols=2, markerscale=1.5)
    options = f"estimate {fitted.estimate}, {fitted.targets} targets, k = {fitted.k} of {m:,} validation rows"
    figure.suptitle(f"What the rule makes of it: {options}", fontsize=14)


def draw_map(axes: Axes, found: Plane, which: Map, word: str, drawn: int = DRAWN) -> None:
    """One map over the plane with its colour bar, and some of the validation rows on top; `word` names the confidence."""
    from matplotlib.colors import LogNorm, Normalize

    figure = axes.figure
    if which == "distortion":
        values = np.maximum(found.distortion, 1e-12)
        reach = float(np.clip(max(values.max(), 1 / values.min()), 2, 1000))  # as far below 1 as above: white is 1
    else:
        values = found.error if which == "error" else found.weight
    (left, *_, right), (low, *_, high) = found.teacher, found.student
    dx, dy = (right - left) / (len(found.teacher) - 1) / 2, (high - low) / (len(found.student) - 1) / 2
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
    shown = np.unique(np.linspace(0, len(found.wrong) - 1, drawn).astype(int))
    (x, y), wrong = found.points[shown].T, found.wrong[shown]
    size = 14 * max(0.6, min(1, 400 / len(shown)))
    # the small dots lie over the large crosses, so that both are seen where they coincide
    axes.scatter(x[wrong], y[wrong], s=4.5 * size, c=ORANGE, marker="X", edgecolors="black", linewidths=0.7)
    axes.scatter(x[~wrong], y[~wrong], s=size, c="white", edgecolors="black", linewidths=0.7)
    axes.set_xlim(left - 6 * dx, right + 6 * dx)
    axes.set_ylim(low - 6 * dy, high + 6 * dy)
    axes.set_xlabel(f"teacher's {word}")
    axes.set_ylabel(f"student's {word}")


def _ticks(reach: float) -> Floats:
    """Round numbers from 0.001 to 1000: few where the scale reaches far."""
    steps = (1,) if reach > 30 else (1, 2, 5) if reach > 3 else (1, 1.2, 1.5, 2, 2.5, 5, 6, 7, 8)
    return np.array([step * 10.0**power for power in range(-3, 4) for step in steps])


def _near_one(value: float) -> str:
    """A margin in few letters, however close to 1."""
    return f"{value:.2f}" if value < 0.985 else "1" if value == 1 else f"1 − {1 - value:.0e}".replace("e-0", "e-")


def _bins_for(m: int) -> int:
    """Ten bins, fewer where they would hold fewer than ten rows."""
    return min(10, max(1, m // 10))


def _floor(values: Sequence[float]) -> float:
    """A tenth below all values, for an axis that ends at 1; never so near to 1 that noise looks large."""
    return float(np.clip(np.floor(10 * min(values)) / 10, 0, 0.7))


def percent(share: float) -> str:
    """A percentage that says 0 % and 100 % only where they are exact."""
    if share in (0, 1):
        return f"{share:.0%}"
    return "under 0.1%" if share < 0.001 else "over 99.9%" if share > 0.999 else f"{share:.1%}"


def confidence_word(fitted: Debiased) -> str:
    if isinstance(fitted.confidence, Scores):
        return "score"
    if fitted.confidence is margin:
        return "margin"
    return "entropy (nats)" if fitted.confidence is entropy else "confidence"


def drawable(text: str) -> str:
    """One line that the font can draw: control characters spelled out, unknown letters as boxes, a long middle cut."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont("DejaVu Sans"))
    line = "".join(c if known.get_char_index(ord(c)) else "□" for c in printable(text.replace("\n", " ")))
    return line if len(line) <= 110 else f"{line[:54]} … {line[-54:]}"


# -------------------------------------------------------------------------------------------------------------- tables


def tables(fitted: Debiased | None, histogram: Histogram | None, notes: Mapping[str, str]) -> list[Table]:
    """The picture as numbers: a summary, which ends with the notes, then one table for each panel."""
    found = [_table("Summary", {**_summary(fitted, histogram), **notes})]
    if fitted:
        bins = _bins_for(len(fitted.wrong))
        calibration = reliability(fitted.certainty, fitted.wrong, bins)
        found += [
            _bin_table("Teacher's accuracy by margin", "margin", accuracy_by_margin(fitted.margins, fitted.wrong, bins)),
            _bin_table("Reliability of the teacher's largest probability", "probability", calibration.bins),
        ]
    if histogram and histogram.rows:
        found.append(_weight_table(histogram))
    return found


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
        table.add_row(Text(printable(name)), Text(printable(value)))  # Text: brackets of users are no markup
    return table


def _bin_table(title: str, measure: str, bins: Sequence[Bin]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("from", "to", f"mean {measure}", "rows", "accuracy", "standard error"):
        table.add_column(name, justify="right")
    for each in bins:
        numbers = (f"{x:.4f}" for x in (each.low, each.high, each.mean))
        table.add_row(*numbers, f"{each.rows:,}", f"{each.accuracy:.4f}", f"{each.standard_error:.4f}")
    return table


def _weight_table(histogram: Histogram) -> Table:
    from rich.bar import Bar
    from rich.table import Table

    table = Table("weight", title="Weights", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("share", justify="right")
    table.add_column("", width=20)
    names = [f"{low:.2f} – {low + 1 / BINS:.2f}" for low in _EDGES[:-1]] + ["exactly 1"]
    counts = [*histogram.counts, histogram.ones]
    for name, count in list(zip(names, counts, strict=True))[next(i for i, count in enumerate(counts) if count) :]:
        length = max(count / max(counts), 1 / 160) if count else 0.0  # what is there is seen: an eighth of a letter
        table.add_row(name, f"{count:,}", percent(count / histogram.rows), Bar(1, 0, length, width=20))
    return table
