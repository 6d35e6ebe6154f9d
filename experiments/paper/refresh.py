"""Figure 9: weights estimated once against weights estimated after every epoch, on CelebA, CIFAR-10 and CIFAR-100.

Command:  wdistill reproduce refresh
Time:     about 17,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: curves without numbers: updating is better on CelebA and CIFAR-10, no different on CIFAR-100
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from experiments.lab.figures import Column, overview
from experiments.lab.items import Figures, Item, by_labels
from experiments.lab.results import Line
from experiments.lab.trial import Experiment
from experiments.paper import celeba, cifar10, cifar100
from wdistill.runs.arms import arm
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import shuffled, unweighted

ARMS = {
    "unweighted": unweighted,
    "debiased": debiased,
    "debiased-refresh": arm(debiased, refresh=1),
    "shuffled": arm(shuffled(), refresh=1),  # a control that the paper has not: the updated weights, shuffled
}


def _refreshed(like: Experiment) -> Experiment:
    """As in §3.1, but for 500 validation rows and the entropy as confidence."""
    recipe = replace(like.recipe, confidence="entropy")
    return replace(like, name=f"refresh-{like.name}", validation=500, arms=ARMS, recipe=recipe)


EXPERIMENTS = {
    "CelebA": _refreshed(celeba.EXPERIMENT),
    "CIFAR-10": _refreshed(cifar10.EXPERIMENT),
    "CIFAR-100": _refreshed(cifar100.EXPERIMENT),
}


def figure(lines: Mapping[str, list[Line]]) -> Figures:
    columns = [Column(title, lines.get(each.name, []), tuple(ARMS)) for title, each in EXPERIMENTS.items()]
    return {"figure9": overview(columns, "Figure 9: weights estimated once, or after every epoch", trajectory=True)}


OVER = {"debiased-refresh": "debiased"}
VIEWS = tuple(by_labels(each, f"Figure 9: {title}", {}, {}, OVER) for title, each in EXPERIMENTS.items())
ITEM = Item("refresh", "Figure 9: weights updated during training", VIEWS, figure)
