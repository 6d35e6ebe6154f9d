"""Figure 10 (tables): our weights, fidelity weights and their product, on CIFAR-10 and CIFAR-100.

Command:  wdistill reproduce fidelity
Time:     about 6,100 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          no GPU was at hand
Expected: CIFAR10_PAPER and CIFAR100_PAPER below. As in Appendix C.3 the validation rows also train the student; our weights
          are estimated after every epoch on CIFAR-10 and once on CIFAR-100. The unweighted arm is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from experiments import cifar10, cifar100
from experiments import tables as made
from experiments.figures import best, each_budget, trajectories
from experiments.lines import Line
from experiments.protocol import Item
from experiments.tables import Paper
from wdistill.arms import arm, shuffled
from wdistill.rules import compose, debiased, fidelity, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CIFAR10_PAPER: Paper = {
    "teacher": {7500: (67.55, None), 10000: (72.85, None), 12500: (74.85, None), 15000: (77.63, None), 17500: (78.40, None)},
    "debiased-refresh": {
        7500: (70.59, 0.05),
        10000: (74.59, 0.07),
        12500: (75.75, 0.32),
        15000: (78.56, 0.14),
        17500: (79.21, 0.17),
    },
    "fidelity": {
        7500: (69.31, 0.41),
        10000: (73.39, 0.44),
        12500: (74.69, 0.31),
        15000: (77.10, 0.16),
        17500: (78.19, 0.19),
    },
    "composition": {
        7500: (71.20, 0.097),
        10000: (75.54, 0.21),
        12500: (76.80, 0.29),
        15000: (79.55, 0.22),
        17500: (80.28, 0.28),
    },
}
CIFAR100_PAPER: Paper = {
    "teacher": {7500: (44.70, None), 10000: (51.45, None), 12500: (56.00, None), 15000: (58.70, None), 17500: (61.82, None)},
    "debiased": {7500: (46.18, 0.25), 10000: (53.15, 0.16), 12500: (57.51, 0.4), 15000: (59.65, 0.4), 17500: (62.02, 0.25)},
    "fidelity": {
        7500: (46.32, 0.23),
        10000: (52.92, 0.20),
        12500: (57.40, 0.47),
        15000: (59.48, 0.17),
        17500: (61.39, 0.09),
    },
    "composition": {
        7500: (46.62, 0.44),
        10000: (53.39, 0.16),
        12500: (57.11, 0.41),
        15000: (59.63, 0.15),
        17500: (62.30, 0.26),
    },
}
CIFAR10 = replace(
    cifar10.EXPERIMENT,
    name="fidelity-cifar10",
    validation=500,
    arms={
        "unweighted": unweighted,
        "debiased-refresh": arm(debiased, refresh=1),
        "fidelity": fidelity,
        "composition": arm(compose(debiased, fidelity), refresh=1),
        "shuffled": shuffled(fidelity),  # a control that the paper has not: fidelity's weights, dealt out at random
    },
    recipe=replace(cifar10.EXPERIMENT.recipe, confidence="entropy", validation_in_training="yes"),
)
CIFAR100 = replace(
    cifar100.EXPERIMENT,
    name="fidelity-cifar100",
    validation=500,
    arms={
        "unweighted": unweighted,
        "debiased": debiased,
        "fidelity": fidelity,
        "composition": compose(debiased, fidelity),
        "shuffled": shuffled(fidelity),
    },
    recipe=replace(cifar100.EXPERIMENT.recipe, confidence="entropy", validation_in_training="yes"),
)
CIFAR10_ARMS, CIFAR100_ARMS = tuple(CIFAR10.arms), tuple(CIFAR100.arms)


def tables(lines: Mapping[str, list[Line]]) -> str:
    ten = made.by_labels(lines.get(CIFAR10.name, []), CIFAR10.arms, CIFAR10_PAPER, "Figure 10, top: CIFAR-10")
    hundred = made.by_labels(lines.get(CIFAR100.name, []), CIFAR100.arms, CIFAR100_PAPER, "Figure 10, bottom: CIFAR-100")
    return f"{ten}\n{hundred}"


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    ten, hundred = lines.get(CIFAR10.name, []), lines.get(CIFAR100.name, [])
    names = "CIFAR-10, with fidelity", "CIFAR-100, with fidelity"
    return {
        **each_budget("fidelity-cifar10-trajectories", ten, partial(trajectories, arms=CIFAR10_ARMS, title=names[0])),
        **each_budget("fidelity-cifar10-best", ten, partial(best, arms=CIFAR10_ARMS, paper=CIFAR10_PAPER, title=names[0])),
        **each_budget("fidelity-cifar100-trajectories", hundred, partial(trajectories, arms=CIFAR100_ARMS, title=names[1])),
        **each_budget(
            "fidelity-cifar100-best", hundred, partial(best, arms=CIFAR100_ARMS, paper=CIFAR100_PAPER, title=names[1])
        ),
    }


ITEM = Item("fidelity", "Figure 10, tables: our weights, fidelity and both", (CIFAR10, CIFAR100), tables, figures)
