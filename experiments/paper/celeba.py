"""Figure 7 (table) and Figure 14 (trajectories): male or female in CelebA, weights estimated once, with and without VID.

Command:  wdistill reproduce celeba
Time:     about 24,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: PAPER below. Its text also names 35,000 labels, its table does not.
"""

from __future__ import annotations

from experiments.lab.items import Item, by_labels
from experiments.lab.results import printed
from experiments.lab.trial import Experiment
from experiments.paper.recipes import RESNET
from wdistill.runs.arms import arm
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import oracle, shuffled, unweighted

VID_LAYERS = ("stages.0=stages.0", "stages.1=stages.1", "stages.2=stages.2")  # the paper names none: the ends of stages
PAPER = printed("""
labels        10000       15000       20000       25000       30000
teacher       91.59       93.76       94.41       94.86       94.92
debiased-vid  94.35±0.11  95.01±0.17  95.73±0.04  95.89±0.08  96.11±0.08
debiased      94.06±0.04  95.14±0.1   95.56±0.03  95.86±0.03  95.92±0.01
vid           94.11±0.11  94.76±0.14  95.46±0.11  95.69±0.05  95.88±0.03
unweighted    93.68±0.01  94.92±0.02  95.38±0.07  95.69±0.05  95.73±0.09
""")
EXPERIMENT = Experiment(
    name="celeba",
    dataset="celeba",
    teacher="mobilenet:width=2",
    student="resnet_cifar:depth=11",
    labels=(10000, 15000, 20000, 25000, 30000, 35000),
    validation=2000,
    arms={
        "unweighted": unweighted,
        "debiased": debiased,
        "oracle": oracle,
        "shuffled": shuffled(),
        "vid": arm(unweighted, vid=VID_LAYERS),
        "debiased-vid": arm(debiased, vid=VID_LAYERS),
    },
    recipe=RESNET,
    teacher_changes={"weight_decay": 0.0, "decayed": "all"},
    size=64,
)
VIEW = by_labels(EXPERIMENT, "Figure 7: CelebA", PAPER, {"celeba": ("CelebA", tuple(EXPERIMENT.arms))})
ITEM = Item("celeba", "Figure 7, table; Figure 14, trajectories: CelebA", (VIEW,))
