"""Figure 5 (table) and Figure 12 (trajectories): CIFAR-10, weights estimated once.

Command:  wdistill reproduce cifar10
Time:     about 740 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: PAPER below
"""

from __future__ import annotations

from experiments.lab.items import Item, by_labels
from experiments.lab.results import printed
from experiments.lab.trial import Experiment
from experiments.paper.recipes import MOBILENET
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import oracle, shuffled, unweighted

PAPER = printed("""
labels      7500        10000       12500       15000       17500
teacher     67.17       71.39       74.69       77.0        78.46
debiased    69.01±0.25  72.96±0.1   75.33±0.43  77.69±0.35  78.34±0.16
unweighted  68.27±0.22  72.48±0.26  74.95±0.2   76.85±0.32  77.92±0.06
""")
EXPERIMENT = Experiment(
    name="cifar10",
    dataset="cifar10",
    teacher="mobilenet:width=2",
    student="mobilenet:width=1",
    labels=(7500, 10000, 12500, 15000, 17500),
    validation=2000,
    arms={"unweighted": unweighted, "debiased": debiased, "oracle": oracle, "shuffled": shuffled()},
    recipe=MOBILENET,
)
VIEW = by_labels(EXPERIMENT, "Figure 5: CIFAR-10", PAPER, {"cifar10": ("CIFAR-10", tuple(EXPERIMENT.arms))})
ITEM = Item("cifar10", "Figure 5, table; Figure 12, trajectories: CIFAR-10", (VIEW,))
