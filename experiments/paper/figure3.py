"""Figure 3: VID with and without our weights on CelebA; our weights, fidelity and both together on CIFAR-10.

Command:  wdistill reproduce figure3
Time:     about 25,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          none where `celeba` and `fidelity` have been run; no GPU was at hand
Expected: the numbers of Figures 7 and 10
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.lab.figures import Column, overview
from experiments.lab.items import Figures, Item
from experiments.lab.results import Line
from experiments.paper import celeba, fidelity

VID = ("unweighted", "debiased", "vid", "debiased-vid")


def figure(lines: Mapping[str, list[Line]]) -> Figures:
    columns = [
        Column("CelebA", lines.get("celeba", []), VID, celeba.PAPER),
        Column("CIFAR-10", lines.get("fidelity-cifar10", []), tuple(fidelity.CIFAR10.arms), fidelity.CIFAR10_PAPER),
    ]
    return {"figure3": overview(columns, "Figure 3: with VID, and with fidelity", trajectory=False)}


ITEM = Item("figure3", "Figure 3: VID on CelebA, fidelity on CIFAR-10", (celeba.VIEW, fidelity.TEN), figure)
