"""Figure 2: trajectories and best accuracies on SVHN, CIFAR-10 and CelebA, weights estimated once.

Command:  wdistill reproduce figure2
Time:     about 27,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          none where `svhn`, `cifar10` and `celeba` have been run; no GPU was at hand
Expected: the numbers of Figures 4, 5 and 7
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.lab.figures import Column, overview
from experiments.lab.items import Figures, Item
from experiments.lab.results import Line
from experiments.paper import celeba, cifar10, svhn

ARMS = ("unweighted", "debiased")


def figure(lines: Mapping[str, list[Line]]) -> Figures:
    columns = [
        Column("SVHN", lines.get("svhn", []), ARMS, svhn.PAPER),
        Column("CIFAR-10", lines.get("cifar10", []), ARMS, cifar10.PAPER),
        Column("CelebA", lines.get("celeba", []), ARMS, celeba.PAPER),
    ]
    return {"figure2": overview(columns, "Figure 2: weights estimated once", trajectory=True)}


SHOWS = "Figure 2: trajectories and best accuracies on SVHN, CIFAR-10 and CelebA"
ITEM = Item("figure2", SHOWS, (svhn.VIEW, cifar10.VIEW, celeba.VIEW), figure)
