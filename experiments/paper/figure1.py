"""Figure 1: CIFAR-10 with 7,500 labels, without the rows that the teacher labels wrongly; its accuracy by margin.

Command:  wdistill reproduce figure1
Time:     about 140 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          none where `cifar10` has been run; no GPU was at hand
Expected: curves without numbers: the oracle above unweighted, accuracy rising with the margin
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from experiments.lab.figures import budget_note, draw_trajectory, each_labels, panels_figure, say_if_empty
from experiments.lab.items import Figures, Item, View
from experiments.lab.results import Line, of_labels, trials
from experiments.lab.tables import by_labels
from experiments.paper import cifar10
from wdistill.report.svg import BLUE, INK, PALE
from wdistill.weights.diagnostics import standard_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 7500  # of the paper; where only other numbers have been run, these are shown
EXPERIMENT = replace(cifar10.EXPERIMENT, labels=(LABELS,))  # the same lines
ARMS = {name: EXPERIMENT.arms[name] for name in ("unweighted", "oracle")}


def oracle_and_margin(group: Sequence[Line], labels: int, title: str) -> Figure:
    """What wrong labels cost, and where the teacher is wrong: Figure 1. For lines of one budget."""
    arms = ("unweighted", "oracle")

    def draw(panels: list[Axes]) -> None:
        draw_trajectory(panels[0], group, labels, arms)
        panels[0].set_title("only rows that the teacher labels rightly\n(oracle), and all rows")
        _draw_margins(panels[1], trials(group, labels))
        panels[1].set_title("teacher's accuracy by margin\n(dotted: overall; grey: share of the rows)")

    return panels_figure(2, 2, draw, arms, f"{title}, {labels:,} labels\n{budget_note(group, 'bands')}")


def _draw_margins(axes: Axes, lines: Sequence[Line]) -> None:
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
    say_if_empty(axes)


def table(lines: list[Line]) -> str:
    return by_labels(of_labels(lines, LABELS), ARMS, {}, "Figure 1, left: CIFAR-10")


def figures(lines: list[Line]) -> Figures:
    return each_labels("figure1", lines, LABELS, partial(oracle_and_margin, title="Figure 1: CIFAR-10"))


VIEW = View(EXPERIMENT, table, figures)
ITEM = Item("figure1", "Figure 1: an oracle, and the teacher's accuracy by margin", (VIEW,))
