"""Figure 2: trajectories and best accuracies on SVHN, CIFAR-10 and CelebA, weights estimated once.

Command:  wdistill reproduce figure2
Time:     about 27,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          none where `svhn`, `cifar10` and `celeba` have been run; no GPU was at hand
Expected: the numbers of Figures 4, 5 and 7
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments import celeba, cifar10, svhn
from experiments.figures import Column, overview
from experiments.lines import Line
from experiments.protocol import Item

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = ("unweighted", "debiased")


def tables(lines: Mapping[str, list[Line]]) -> str:
    return "\n".join(each.tables(lines) for each in (svhn, cifar10, celeba))


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    columns = [
        Column("SVHN", lines.get("svhn", []), ARMS, svhn.PAPER),
        Column("CIFAR-10", lines.get("cifar10", []), ARMS, cifar10.PAPER),
        Column("CelebA", lines.get("celeba", []), ARMS, celeba.PAPER),
    ]
    return {"figure2": overview(columns, "Figure 2: weights estimated once", trajectory=True)}


ITEM = Item(
    "figure2",
    "Figure 2: trajectories and best accuracies on SVHN, CIFAR-10 and CelebA",
    (svhn.EXPERIMENT, cifar10.EXPERIMENT, celeba.EXPERIMENT),
    tables,
    figures,
)
