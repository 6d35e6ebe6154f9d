"""Figure 5 (table) and Figure 12 (trajectories): CIFAR-10, weights estimated once.

Command:  wdistill reproduce cifar10
Time:     about 740 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
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
from experiments.recipes import MOBILENET
from experiments.tables import Paper
from wdistill.arms import shuffled
from wdistill.rules import debiased, oracle, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER: Paper = {
    "teacher": {7500: (67.17, None), 10000: (71.39, None), 12500: (74.69, None), 15000: (77.0, None), 17500: (78.46, None)},
    "debiased": {7500: (69.01, 0.25), 10000: (72.96, 0.1), 12500: (75.33, 0.43), 15000: (77.69, 0.35), 17500: (78.34, 0.16)},
    "unweighted": {
        7500: (68.27, 0.22),
        10000: (72.48, 0.26),
        12500: (74.95, 0.2),
        15000: (76.85, 0.32),
        17500: (77.92, 0.06),
    },
}
EXPERIMENT = Experiment(
    name="cifar10",
    dataset="cifar10",
    teacher="mobilenet:width=2",
    student="mobilenet:width=1",
    labels=(7500, 10000, 12500, 15000, 17500),
    validation=2000,
    arms={"unweighted": unweighted, "debiased": debiased, "oracle": oracle, "shuffled": shuffled()},
    recipe=MOBILENET,
)
ARMS = tuple(EXPERIMENT.arms)


def tables(lines: Mapping[str, list[Line]]) -> str:
    return made.by_labels(lines.get("cifar10", []), EXPERIMENT.arms, PAPER, "Figure 5: CIFAR-10")


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    found = lines.get("cifar10", [])
    return {
        **each_budget("cifar10-trajectories", found, partial(trajectories, arms=ARMS, title="CIFAR-10")),
        **each_budget("cifar10-best", found, partial(best, arms=ARMS, paper=PAPER, title="CIFAR-10")),
    }


ITEM = Item("cifar10", "Figure 5, table; Figure 12, trajectories: CIFAR-10", (EXPERIMENT,), tables, figures)
