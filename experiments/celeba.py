"""Figure 7 (table) and Figure 14 (trajectories): male or female in CelebA, weights estimated once, with and without VID.

Command:  wdistill reproduce celeba
Time:     about 24,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          no GPU was at hand
Expected: PAPER below. Its text also names 35,000 labels, its table does not.
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
from wdistill.arms import arm, shuffled
from wdistill.rules import debiased, oracle, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VID_LAYERS = ("stages.0=stages.0", "stages.1=stages.1", "stages.2=stages.2")  # the paper names none: the ends of stages
PAPER: Paper = {
    "teacher": {
        10000: (91.59, None),
        15000: (93.76, None),
        20000: (94.41, None),
        25000: (94.86, None),
        30000: (94.92, None),
    },
    "debiased-vid": {
        10000: (94.35, 0.11),
        15000: (95.01, 0.17),
        20000: (95.73, 0.04),
        25000: (95.89, 0.08),
        30000: (96.11, 0.08),
    },
    "debiased": {
        10000: (94.06, 0.04),
        15000: (95.14, 0.1),
        20000: (95.56, 0.03),
        25000: (95.86, 0.03),
        30000: (95.92, 0.01),
    },
    "vid": {10000: (94.11, 0.11), 15000: (94.76, 0.14), 20000: (95.46, 0.11), 25000: (95.69, 0.05), 30000: (95.88, 0.03)},
    "unweighted": {
        10000: (93.68, 0.01),
        15000: (94.92, 0.02),
        20000: (95.38, 0.07),
        25000: (95.69, 0.05),
        30000: (95.73, 0.09),
    },
}
EXPERIMENT = Experiment(
    name="celeba",
    dataset="celeba",
    teacher="mobilenet:width=2",
    student="resnet_cifar:depth=11",
    labels=(10000, 15000, 20000, 25000, 30000, 35000),
    validation=2000,
    arms={
        "unweighted": unweighted,
        "debiased": debiased,
        "oracle": oracle,
        "shuffled": shuffled(),
        "vid": arm(unweighted, vid=VID_LAYERS),
        "debiased-vid": arm(debiased, vid=VID_LAYERS),
    },
    recipe=RESNET,
    teacher_changes={"weight_decay": 0.0, "decayed": "all"},
    size=64,
)
ARMS = tuple(EXPERIMENT.arms)


def tables(lines: Mapping[str, list[Line]]) -> str:
    return made.by_labels(lines.get("celeba", []), EXPERIMENT.arms, PAPER, "Figure 7: CelebA")


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    found = lines.get("celeba", [])
    return {
        **each_budget("celeba-trajectories", found, partial(trajectories, arms=ARMS, title="CelebA")),
        **each_budget("celeba-best", found, partial(best, arms=ARMS, paper=PAPER, title="CelebA")),
    }


ITEM = Item("celeba", "Figure 7, table; Figure 14, trajectories: CelebA", (EXPERIMENT,), tables, figures)
