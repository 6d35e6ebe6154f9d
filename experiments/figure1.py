"""Figure 1: CIFAR-10 with 7,500 labels, without the rows that the teacher labels wrongly; its accuracy by margin.

Command:  wdistill reproduce figure1
Time:     about 140 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          none where `cifar10` has been run; no GPU was at hand
Expected: curves without numbers: the oracle above unweighted, accuracy rising with the margin
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from experiments import cifar10
from experiments import tables as made
from experiments.figures import each_labels, oracle_and_margin
from experiments.lines import Line
from experiments.protocol import Item

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = 7500  # of the paper; where only other numbers have been run, these are shown
EXPERIMENT = replace(cifar10.EXPERIMENT, labels=(LABELS,))  # the same lines
ARMS = {name: EXPERIMENT.arms[name] for name in ("unweighted", "oracle")}


def tables(lines: Mapping[str, list[Line]]) -> str:
    found = made.of_labels(lines.get("cifar10", []), LABELS)
    return made.by_labels(found, ARMS, {}, "Figure 1, left: CIFAR-10")


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    draw = partial(oracle_and_margin, title="Figure 1: CIFAR-10")
    return each_labels("figure1", lines.get("cifar10", []), LABELS, draw)


ITEM = Item("figure1", "Figure 1: an oracle, and the teacher's accuracy by margin", (EXPERIMENT,), tables, figures)
