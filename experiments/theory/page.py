"""The page of what the experiments came to, and the parts that their figures share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from experiments.theory.claims import Finding, measured, summary, verdict
from wdistill.report import svg
from wdistill.report.figures import HEIGHT, WIDTH, Panel, look
from wdistill.report.page import rendered
from wdistill.report.words import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class MeasuredClaim:
    """A finding, and how long it took."""

    finding: Finding
    seconds: float

    @cached_property
    def panels(self) -> list[Panel]:
        """Its figures in the look of the page, drawn once however often the page is written."""
        with look():
            drawn = self.finding.draw()
            return [
                Panel(svg.inline(figure, f"{self.finding.name}-{number}", f"{self.finding.title}: {title}."), title)
                for number, (title, figure) in enumerate(drawn.items())
            ]


def page(runs: Sequence[MeasuredClaim], made: Mapping[str, str]) -> str:
    """One HTML page that needs nothing else; `made` says with what seed, scale, versions and hardware."""
    template = files("experiments.theory").joinpath("theory.html.jinja").read_text("utf-8")
    words: list[Callable[..., Any]] = [measured, verdict, summary, duration]
    filters = {word.__name__: word for word in words}
    return rendered(template, "The paper's claims, measured", filters=filters, runs=runs, made=made)


def panel(height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def legend(figure: Figure, columns: int = 2) -> None:
    """What has a label, below the axes."""
    figure.legend(loc="outside lower center", ncols=columns, fontsize=10, handlelength=2.2)


def plain(axes: Axes, which: str = "both") -> None:
    """Logarithmic axes whose ticks are plain numbers, or powers of ten where those are long."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if which in (name, "both"):
            axes.set(**{f"{name}scale": "log"})
            axis.set_major_locator(LogLocator(10.0, numticks=7))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(_decade))


def _decade(value: float, _: object) -> str:
    """A power of ten as it stands beside an axis: 0.001, 10,000, 10⁶."""
    exponent = round(math.log10(value))
    if -4 <= exponent <= 4:
        return f"{value:,.12g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
