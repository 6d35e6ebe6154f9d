"""Figure 16 (table): temperatures on CIFAR-100 with 12,500 labels, weights estimated once.

Command:  wdistill reproduce temperature
Time:     about 3,100 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          no GPU was at hand
Expected: PAPER below
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from experiments import cifar100
from experiments import figures as drawn
from experiments import tables as made
from experiments.lines import Line
from experiments.protocol import Item
from experiments.tables import Number, Paper
from wdistill.arms import arm
from wdistill.rules import debiased, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = 12500  # of the paper; where only other numbers have been run, these are drawn
PRINTED: dict[float, tuple[Number, Number]] = {  # temperature → unweighted, weighted
    0.01: ((52.84, 0.08), (53.73, 0.11)),
    0.1: ((54.63, 0.09), (54.84, 0.12)),
    0.5: ((56.45, 0.12), (57.01, 0.1)),
    0.8: ((56.67, 0.12), (57.60, 0.15)),
    1.0: ((57.17, 0.15), (57.56, 0.09)),
    2.0: ((57.54, 0.11), (57.8, 0.21)),
    3.0: ((57.20, 0.18), (57.09, 0.25)),
    5.0: ((56.92, 0.11), (57.01, 0.2)),
}
PAPER: Paper = {
    "teacher": {LABELS: (56.0, None)},
    **{f"unweighted-T{at:g}": {LABELS: numbers[0]} for at, numbers in PRINTED.items()},
    **{f"debiased-T{at:g}": {LABELS: numbers[1]} for at, numbers in PRINTED.items()},
}
EXPERIMENT = replace(
    cifar100.EXPERIMENT,
    name="temperature",
    labels=(LABELS,),
    validation=500,
    arms={
        f"{name}-T{at:g}": arm(rule, temperature=at)
        for at in PRINTED
        for name, rule in (("unweighted", unweighted), ("debiased", debiased))
    },
    recipe=replace(cifar100.EXPERIMENT.recipe, confidence="entropy"),
)


def tables(lines: Mapping[str, list[Line]]) -> str:
    return made.by_temperature(lines.get("temperature", []), list(PRINTED), PAPER, "Figure 16: temperatures on CIFAR-100")


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    title = "Figure 16: temperatures on CIFAR-100"
    draw = partial(drawn.by_temperature, temperatures=list(PRINTED), paper=PAPER, title=title)
    return drawn.each_labels("temperature", lines.get("temperature", []), LABELS, draw)


ITEM = Item("temperature", "Figure 16, table: temperatures on CIFAR-100", (EXPERIMENT,), tables, figures)
