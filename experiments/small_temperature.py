"""The temperatures of Figure 16 with the small pair of models, on CIFAR-10 in place of CIFAR-100.

Not in the paper: 2,500 labels, 500 validation and 5,000 unlabeled rows, entropy, weights estimated once; models, epochs and
rate as in small.py. Every one of the 3 trials has a labeled set, teacher and student of its own: those of small-cifar10.

Command:  wdistill reproduce small-temperature
Time:     about 1.0 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times)

All of this was fixed before the first trial was run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from experiments import figures as drawn
from experiments import tables as made
from experiments import temperature
from experiments.lines import Line
from experiments.protocol import Item
from experiments.small import CIFAR10

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = 2500
EXPERIMENT = replace(CIFAR10, name="small-temperature", labels=(LABELS,), arms=temperature.EXPERIMENT.arms, trials=3)
TITLE = "Temperatures on CIFAR-10, a small pair of models"


def tables(lines: Mapping[str, list[Line]]) -> str:
    return made.by_temperature(lines.get(EXPERIMENT.name, []), list(temperature.PRINTED), {}, TITLE)


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    draw = partial(drawn.by_temperature, temperatures=list(temperature.PRINTED), paper={}, title=TITLE)
    return drawn.each_labels("small-temperature", lines.get(EXPERIMENT.name, []), LABELS, draw)


ITEM = Item("small-temperature", "not in the paper: Figure 16 with a small pair on CIFAR-10", (EXPERIMENT,), tables, figures)
