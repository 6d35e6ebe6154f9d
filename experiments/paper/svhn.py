"""Figure 4 (table) and Figure 11 (trajectories): SVHN, weights estimated once.

Command:  wdistill reproduce svhn
Time:     about 2,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: PAPER below. §3 speaks of soft labels, the caption of Figure 11 of hard ones, so the paper's numbers stand beside
          both. Its text also names 20,000 labels, its table does not.
"""

from __future__ import annotations

from experiments.lab.items import Item, by_labels
from experiments.lab.results import printed
from experiments.lab.trial import Experiment
from experiments.paper.recipes import MOBILENET
from wdistill.runs.arms import arm
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import oracle, shuffled, unweighted

SOFT, HARD = ("unweighted", "debiased", "oracle", "shuffled"), ("unweighted-hard", "debiased-hard")
PAPER = printed("""
labels           7500        10000       12500       15000       17500
teacher          87.31       88.5        88.45       91.38       91.32
debiased         90.41±0.12  91.21±0.09  92.4±0.12   92.64±0.14  92.85±0.1
unweighted       89.89±0.09  90.86±0.11  91.99±0.1   92.51±0.07  92.45±0.07
debiased-hard    90.41±0.12  91.21±0.09  92.4±0.12   92.64±0.14  92.85±0.1
unweighted-hard  89.89±0.09  90.86±0.11  91.99±0.1   92.51±0.07  92.45±0.07
""")
EXPERIMENT = Experiment(
    name="svhn",
    dataset="svhn",
    teacher="mobilenet:width=2",
    student="mobilenet:width=1",
    labels=(7500, 10000, 12500, 15000, 17500, 20000),
    validation=2000,
    arms={
        "unweighted": unweighted,
        "debiased": debiased,
        "oracle": oracle,
        "shuffled": shuffled(),
        "unweighted-hard": arm(unweighted, targets="hard"),
        "debiased-hard": arm(debiased, targets="hard"),
    },
    recipe=MOBILENET,
)
VIEW = by_labels(
    EXPERIMENT,
    "Figure 4: SVHN (soft targets in §3, hard ones in the caption of Figure 11: the paper's numbers stand beside both)",
    PAPER,
    {"svhn": ("SVHN, soft targets", SOFT), "svhn-hard": ("SVHN, hard targets", HARD)},
)
ITEM = Item("svhn", "Figure 4, table; Figure 11, trajectories: SVHN", (VIEW,))
