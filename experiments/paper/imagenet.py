"""Figure 8 (tables) and Figure 15 (trajectories): ImageNet with soft and with hard targets, weights estimated once.

Command:  wdistill reproduce imagenet
Time:     about 740,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: PAPER below, over 10 trials
"""

from __future__ import annotations

from experiments.lab.items import Item, by_labels
from experiments.lab.results import printed
from experiments.lab.trial import Experiment
from experiments.paper.recipes import IMAGENET
from experiments.paper.svhn import EXPERIMENT as SVHN
from experiments.paper.svhn import HARD, SOFT

PAPER = printed("""
labels           64058       128116
teacher          36.74       51.88
debiased         38.60±0.07  53.59±0.09
unweighted       38.44±0.06  53.43±0.08
debiased-hard    38.56±0.07  53.34±0.11
unweighted-hard  38.42±0.06  53.18±0.07
""")
EXPERIMENT = Experiment(
    name="imagenet",
    dataset="imagenet",
    teacher="resnet:depth=50",
    student="resnet:depth=18",
    labels=(64058, 128116),  # 5 % and 10 %
    validation=10000,
    arms=SVHN.arms,
    recipe=IMAGENET,
    trials=10,
    size=224,
)
GROUPS = {"imagenet": ("ImageNet, soft targets", SOFT), "imagenet-hard": ("ImageNet, hard targets", HARD)}
VIEW = by_labels(EXPERIMENT, "Figure 8: ImageNet", PAPER, GROUPS)
ITEM = Item("imagenet", "Figure 8, tables; Figure 15, trajectories: ImageNet", (VIEW,))
