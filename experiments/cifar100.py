"""Figure 6 (table) and Figure 13 (trajectories): CIFAR-100, weights estimated once.

Command:  wdistill reproduce cifar100
Time:     about 4,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          no GPU was at hand
Expected: PAPER below
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments import tables as made
from experiments.figures import best, each_budget, trajectories
from experiments.lines import Line
from experiments.protocol import Experiment, Item
from experiments.recipes import RESNET
from experiments.tables import Paper
from wdistill.arms import shuffled
from wdistill.rules import debiased, oracle, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER: Paper = {
    "teacher": {7500: (44.1, None), 10000: (51.31, None), 12500: (55.54, None), 15000: (59.05, None), 17500: (62.17, None)},
    "debiased": {7500: (46.81, 0.34), 10000: (53.31, 0.66), 12500: (57.5, 0.3), 15000: (60.94, 0.32), 17500: (62.86, 0.41)},
    "unweighted": {
        7500: (46.29, 0.04),
        10000: (52.83, 0.53),
        12500: (56.89, 0.65),
        15000: (60.73, 0.03),
        17500: (62.79, 0.09),
    },
}
EXPERIMENT = Experiment(
    name="cifar100",
    dataset="cifar100",
    teacher="resnet_cifar:depth=110",
    student="resnet_cifar:depth=56",
    labels=(7500, 10000, 12500, 15000, 17500),
    validation=2000,
    arms={"unweighted": unweighted, "debiased": debiased, "oracle": oracle, "shuffled": shuffled()},
    recipe=RESNET,
)
ARMS = tuple(EXPERIMENT.arms)


def tables(lines: Mapping[str, list[Line]]) -> str:
    return made.by_labels(lines.get("cifar100", []), EXPERIMENT.arms, PAPER, "Figure 6: CIFAR-100")


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    found = lines.get("cifar100", [])
    return {
        **each_budget("cifar100-trajectories", found, partial(trajectories, arms=ARMS, title="CIFAR-100")),
        **each_budget("cifar100-best", found, partial(best, arms=ARMS, paper=PAPER, title="CIFAR-100")),
    }


ITEM = Item("cifar100", "Figure 6, table; Figure 13, trajectories: CIFAR-100", (EXPERIMENT,), tables, figures)
