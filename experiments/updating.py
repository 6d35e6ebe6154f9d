"""Figure 9: weights estimated once against weights estimated after every epoch, on CelebA, CIFAR-10 and CIFAR-100.

Command:  wdistill reproduce updating
Time:     about 17,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          no GPU was at hand
Expected: curves without numbers: updating is better on CelebA and CIFAR-10, no different on CIFAR-100
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments import celeba, cifar10, cifar100
from experiments import tables as made
from experiments.figures import Column, overview
from experiments.lines import Line
from experiments.protocol import Experiment, Item
from wdistill.arms import arm, shuffled
from wdistill.rules import debiased, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = {
    "unweighted": unweighted,
    "debiased": debiased,
    "debiased-refresh": arm(debiased, refresh=1),
    "shuffled": arm(shuffled(), refresh=1),  # a control that the paper has not: the updated weights, dealt out at random
}
ARMS = tuple(RULES)


def _updating(like: Experiment) -> Experiment:
    """As in §3.1, but for 500 validation rows and the entropy as confidence."""
    recipe = replace(like.recipe, confidence="entropy")
    return replace(like, name=f"updating-{like.name}", validation=500, arms=RULES, recipe=recipe)


EXPERIMENTS = {
    "CelebA": _updating(celeba.EXPERIMENT),
    "CIFAR-10": _updating(cifar10.EXPERIMENT),
    "CIFAR-100": _updating(cifar100.EXPERIMENT),
}


def tables(lines: Mapping[str, list[Line]]) -> str:
    return "\n".join(
        made.by_labels(lines.get(each.name, []), RULES, {}, f"Figure 9: {title}", against={"debiased-refresh": "debiased"})
        for title, each in EXPERIMENTS.items()
    )


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    columns = [Column(title, lines.get(each.name, []), ARMS) for title, each in EXPERIMENTS.items()]
    return {"figure9": overview(columns, "Figure 9: weights estimated once, or after every epoch", trajectory=True)}


ITEM = Item("updating", "Figure 9: weights updated during training", tuple(EXPERIMENTS.values()), tables, figures)
