"""Empty figures of the size that a page shows them in, and legends that cover nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wdistill.pages.figures import HEIGHT, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
