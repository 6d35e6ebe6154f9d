"""Figure 3: VID with and without our weights on CelebA; our weights, fidelity and both together on CIFAR-10.

Command:  wdistill reproduce figure3
Time:     about 25,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          none where `celeba` and `fidelity` have been run; no GPU was at hand
Expected: the numbers of Figures 7 and 10
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments import celeba, fidelity
from experiments import tables as made
from experiments.figures import Column, overview
from experiments.lines import Line
from experiments.protocol import Item

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VID = ("unweighted", "debiased", "vid", "debiased-vid")


def tables(lines: Mapping[str, list[Line]]) -> str:
    weighted = made.by_labels(
        lines.get("fidelity-cifar10", []), fidelity.CIFAR10.arms, fidelity.CIFAR10_PAPER, "Figure 10, top: CIFAR-10"
    )
    return f"{celeba.tables(lines)}\n{weighted}"


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    columns = [
        Column("CelebA", lines.get("celeba", []), VID, celeba.PAPER),
        Column("CIFAR-10", lines.get("fidelity-cifar10", []), fidelity.CIFAR10_ARMS, fidelity.CIFAR10_PAPER),
    ]
    return {"figure3": overview(columns, "Figure 3: with VID, and with fidelity", trajectory=False)}


ITEM = Item(
    "figure3", "Figure 3: VID on CelebA, fidelity on CIFAR-10", (celeba.EXPERIMENT, fidelity.CIFAR10), tables, figures
)
