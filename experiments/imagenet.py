"""Figure 8 (tables) and Figure 15 (trajectories): ImageNet with soft and with hard targets, weights estimated once.

Command:  wdistill reproduce imagenet
Time:     about 740,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          no GPU was at hand
Expected: PAPER below, over 10 trials
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments import tables as made
from experiments.figures import best, each_budget, trajectories
from experiments.lines import Line
from experiments.protocol import Experiment, Item
from experiments.recipes import IMAGENET
from experiments.tables import Paper
from wdistill.arms import arm, shuffled
from wdistill.rules import debiased, oracle, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER: Paper = {
    "teacher": {64058: (36.74, None), 128116: (51.88, None)},
    "debiased": {64058: (38.60, 0.07), 128116: (53.59, 0.09)},
    "unweighted": {64058: (38.44, 0.06), 128116: (53.43, 0.08)},
    "debiased-hard": {64058: (38.56, 0.07), 128116: (53.34, 0.11)},
    "unweighted-hard": {64058: (38.42, 0.06), 128116: (53.18, 0.07)},
}
EXPERIMENT = Experiment(
    name="imagenet",
    dataset="imagenet",
    teacher="resnet:depth=50",
    student="resnet:depth=18",
    labels=(64058, 128116),  # 5 % and 10 %
    validation=10000,
    arms={
        "unweighted": unweighted,
        "debiased": debiased,
        "oracle": oracle,
        "shuffled": shuffled(),
        "unweighted-hard": arm(unweighted, targets="hard"),
        "debiased-hard": arm(debiased, targets="hard"),
    },
    recipe=IMAGENET,
    trials=10,
    size=224,
)
SOFT, HARD = ("unweighted", "debiased", "oracle", "shuffled"), ("unweighted-hard", "debiased-hard")


def tables(lines: Mapping[str, list[Line]]) -> str:
    return made.by_labels(lines.get("imagenet", []), EXPERIMENT.arms, PAPER, "Figure 8: ImageNet")


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    found = lines.get("imagenet", [])
    return {
        **each_budget("imagenet-trajectories", found, partial(trajectories, arms=SOFT, title="ImageNet, soft targets")),
        **each_budget("imagenet-trajectories-hard", found, partial(trajectories, arms=HARD, title="ImageNet, hard targets")),
        **each_budget("imagenet-best", found, partial(best, arms=SOFT, paper=PAPER, title="ImageNet, soft targets")),
        **each_budget("imagenet-best-hard", found, partial(best, arms=HARD, paper=PAPER, title="ImageNet, hard targets")),
    }


ITEM = Item("imagenet", "Figure 8, tables; Figure 15, trajectories: ImageNet", (EXPERIMENT,), tables, figures)
