"""Figure 16 (table): temperatures on CIFAR-100 with 12,500 labels, weights estimated once.

Command:  wdistill reproduce temperature
Time:     about 3,100 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: PAPER below
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from experiments.lab import tables
from experiments.lab.figures import budget_note, draw_points, each_labels, finish, panels_figure, score
from experiments.lab.items import Item, View
from experiments.lab.results import Line, Number, Paper, accuracies
from experiments.lab.trial import Experiment
from experiments.paper import cifar100
from wdistill.runs.arms import arm
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import unweighted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 12500  # of the paper; where only other numbers have been run, these are drawn
PRINTED: dict[float, tuple[Number, Number]] = {  # temperature → unweighted, weighted
    0.01: ((52.84, 0.08), (53.73, 0.11)),
    0.1: ((54.63, 0.09), (54.84, 0.12)),
    0.5: ((56.45, 0.12), (57.01, 0.1)),
    0.8: ((56.67, 0.12), (57.60, 0.15)),
    1.0: ((57.17, 0.15), (57.56, 0.09)),
    2.0: ((57.54, 0.11), (57.8, 0.21)),
    3.0: ((57.20, 0.18), (57.09, 0.25)),
    5.0: ((56.92, 0.11), (57.01, 0.2)),
}
PAPER: Paper = {
    "teacher": {LABELS: (56.0, None)},
    **{f"unweighted-T{at:g}": {LABELS: numbers[0]} for at, numbers in PRINTED.items()},
    **{f"debiased-T{at:g}": {LABELS: numbers[1]} for at, numbers in PRINTED.items()},
}
EXPERIMENT = replace(
    cifar100.EXPERIMENT,
    name="temperature",
    labels=(LABELS,),
    validation=500,
    arms={
        f"{name}-T{at:g}": arm(rule, temperature=at)
        for at in PRINTED
        for name, rule in (("unweighted", unweighted), ("debiased", debiased))
    },
    recipe=replace(cifar100.EXPERIMENT.recipe, confidence="entropy"),
)


def by_temperature(group: Sequence[Line], labels: int, paper: Paper, title: str) -> Figure:
    """Best accuracy by temperature, and the paper's of these labels beside it: Figure 16 as points. For one budget."""
    arms = ("unweighted", "debiased")
    count = 2 if any(labels in paper.get(f"{name}-T{at:g}", {}) for name in arms for at in PRINTED) else 1

    def draw(panels: list[Axes]) -> None:
        for rule in arms:
            names = [f"{rule}-T{at:g}" for at in PRINTED]
            draw_points(panels[0], [score(accuracies(group, labels, name)) for name in names], rule, arms)
            if count == 2:
                draw_points(panels[1], [paper.get(name, {}).get(labels) for name in names], rule, arms)
        for axes, name in zip(panels, ("ours", "the paper's"), strict=count == 2):
            axes.set_title(name if count == 2 else "")
            axes.set_xticks(range(len(PRINTED)), [f"{at:g}" for at in PRINTED])
            axes.set_xlabel("temperature")
            finish(axes, "max on test, %")

    return panels_figure(count, 2, draw, arms, f"{title}, {labels:,} labels\n{budget_note(group, 'bars')}", drawn="points")


def view(experiment: Experiment, labels: int, paper: Paper, title: str) -> View:
    """Both arms at every temperature."""
    alone = {f"unweighted-T{at:g}": None for at in PRINTED}  # compared to nothing
    table = partial(tables.by_labels, arms=experiment.arms, paper=paper, title=title, against=alone)
    draw = partial(by_temperature, paper=paper, title=title)
    return View(experiment, table, partial(each_labels, experiment.name, labels=labels, draw=draw))


VIEW = view(EXPERIMENT, LABELS, PAPER, "Figure 16: temperatures on CIFAR-100")
ITEM = Item("temperature", "Figure 16, table: temperatures on CIFAR-100", (VIEW,))
