"""Figure 4 (table) and Figure 11 (trajectories): SVHN, weights estimated once.

Command:  wdistill reproduce svhn
Time:     about 2,000 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.times);
          no GPU was at hand
Expected: PAPER below. §3 speaks of soft labels, the caption of Figure 11 of hard ones, so the paper's numbers stand beside
          both. Its text also names 20,000 labels, its table does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments import tables as made
from experiments.figures import best, each_budget, trajectories
from experiments.lines import Line
from experiments.protocol import Experiment, Item
from experiments.recipes import MOBILENET
from experiments.tables import Paper
from wdistill.arms import arm, shuffled
from wdistill.rules import debiased, oracle, unweighted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEIGHTED = {7500: (90.41, 0.12), 10000: (91.21, 0.09), 12500: (92.4, 0.12), 15000: (92.64, 0.14), 17500: (92.85, 0.1)}
UNWEIGHTED = {7500: (89.89, 0.09), 10000: (90.86, 0.11), 12500: (91.99, 0.1), 15000: (92.51, 0.07), 17500: (92.45, 0.07)}
PAPER: Paper = {
    "teacher": {7500: (87.31, None), 10000: (88.5, None), 12500: (88.45, None), 15000: (91.38, None), 17500: (91.32, None)},
    "debiased": WEIGHTED,
    "unweighted": UNWEIGHTED,
    "debiased-hard": WEIGHTED,
    "unweighted-hard": UNWEIGHTED,
}
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
UNSURE = (
    "The same numbers of the paper stand beside soft and hard targets: its §3 speaks of soft labels, the caption of its "
    "Figure 11 of hard ones."
)
SOFT, HARD = ("unweighted", "debiased", "oracle", "shuffled"), ("unweighted-hard", "debiased-hard")


def tables(lines: Mapping[str, list[Line]]) -> str:
    return f"{made.by_labels(lines.get('svhn', []), EXPERIMENT.arms, PAPER, 'Figure 4: SVHN')}\n{UNSURE}\n"


def figures(lines: Mapping[str, list[Line]]) -> dict[str, Figure]:
    found = lines.get("svhn", [])
    return {
        **each_budget("svhn-trajectories", found, partial(trajectories, arms=SOFT, title="SVHN, soft targets")),
        **each_budget("svhn-trajectories-hard", found, partial(trajectories, arms=HARD, title="SVHN, hard targets")),
        **each_budget("svhn-best", found, partial(best, arms=SOFT, paper=PAPER, title="SVHN, soft targets")),
        **each_budget("svhn-best-hard", found, partial(best, arms=HARD, paper=PAPER, title="SVHN, hard targets")),
    }


ITEM = Item("svhn", "Figure 4, table; Figure 11, trajectories: SVHN", (EXPERIMENT,), tables, figures)
