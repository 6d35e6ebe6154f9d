"""The temperatures of Figure 16 with the small pair of models, on CIFAR-10 in place of CIFAR-100.

Not in the paper: 2,500 labels, 500 validation and 5,000 unlabeled rows, entropy, weights estimated once; models, epochs and
rate as in small.py. Every one of the 3 trials has a labeled set, teacher and student of its own: those of small-cifar10.

Command:  wdistill reproduce small-temperature
Time:     about 1.0 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times)

All of this was fixed before the first trial was run.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.lab.items import Item
from experiments.paper import temperature
from experiments.paper.small import CIFAR10

LABELS = 2500
EXPERIMENT = replace(CIFAR10, name="small-temperature", labels=(LABELS,), arms=temperature.EXPERIMENT.arms, trials=3)
VIEW = temperature.view(EXPERIMENT, LABELS, {}, "Temperatures on CIFAR-10, a small pair of models")
ITEM = Item("small-temperature", "not in the paper: Figure 16 with a small pair on CIFAR-10", (VIEW,))
