"""Figure 6 (table) and Figure 13 (trajectories): CIFAR-100, weights estimated once.

Command:  wdistill reproduce cifar100
Time:     about 4,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: PAPER below
"""

from __future__ import annotations

from experiments.lab.items import Item, by_labels
from experiments.lab.results import printed
from experiments.lab.trial import Experiment
from experiments.paper.recipes import RESNET
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import oracle, shuffled, unweighted

PAPER = printed("""
labels      7500        10000       12500       15000       17500
teacher     44.1        51.31       55.54       59.05       62.17
debiased    46.81±0.34  53.31±0.66  57.5±0.3    60.94±0.32  62.86±0.41
unweighted  46.29±0.04  52.83±0.53  56.89±0.65  60.73±0.03  62.79±0.09
""")
EXPERIMENT = Experiment(
    name="cifar100",
    dataset="cifar100",
    teacher="resnet_cifar:depth=110",
    student="resnet_cifar:depth=56",
    labels=(7500, 10000, 12500, 15000, 17500),
    validation=2000,
    arms={"unweighted": unweighted, "debiased": debiased, "oracle": oracle, "shuffled": shuffled()},
    recipe=RESNET,
)
VIEW = by_labels(EXPERIMENT, "Figure 6: CIFAR-100", PAPER, {"cifar100": ("CIFAR-100", tuple(EXPERIMENT.arms))})
ITEM = Item("cifar100", "Figure 6, table; Figure 13, trajectories: CIFAR-100", (VIEW,))
