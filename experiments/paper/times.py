"""Core-hours that the full protocol of every item takes by itself, extrapolated from the speeds of single batches.

    python -m experiments.paper.times

All labels, trials, arms and epochs count: rows that are trained on, and rows that are only read, for accuracies after every
epoch, for the teacher's labels and for weights. Left out as small: augmentation, the k-NN, files. No item of the paper was
run for so long; what was run is printed too, predicted and measured. On an idle core the two agree (the first three arms of
small-fashion with 500 labels: 29 to 32 s each, where 30 are predicted); most trials had to share theirs, and took longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from experiments.lab.items import Item
from experiments.lab.results import Line
from experiments.lab.trial import Experiment, full_budget_of
from experiments.paper.catalogue import ITEMS
from experiments.paper.reproduce import HERE, read_lines
from wdistill.datasets import DATASETS
from wdistill.runs.arms import arms_of
from wdistill.runs.recipe import Recipe


class Speed(NamedTuple):
    """Images a second of one thread."""

    trained: float  # forward, backward and a step, batches of 32; 224 × 224: of 8
    read: float  # forward alone


# By network and size, on one of two cores of a 2.8 GHz Xeon (Ice Lake) that other work was loading: images in a second of
# processor time, the best of three or four repeats of about a second; torch 2.13, float32, random images.
SPEEDS = {
    ("mobilenet:width=2", 32): Speed(74, 310),
    ("mobilenet:width=2", 64): Speed(39, 120),
    ("mobilenet:width=1", 32): Speed(250, 1060),
    ("resnet_cifar:depth=110", 32): Speed(24, 73),
    ("resnet_cifar:depth=56", 32): Speed(46, 140),
    ("resnet_cifar:depth=29", 32): Speed(71, 240),
    ("resnet_cifar:depth=11", 32): Speed(220, 720),
    ("resnet_cifar:depth=11", 64): Speed(66, 220),
    ("resnet:depth=50", 224): Speed(2.5, 7.5),
    ("resnet:depth=18", 224): Speed(5.9, 18),
    ("cnn:width=32", 28): Speed(830, 2570),
    ("cnn:width=32", 32): Speed(790, 2350),
    ("cnn:width=16", 28): Speed(1820, 5080),
    ("cnn:width=16", 32): Speed(1430, 4290),
}
VID = {  # images a second that train a student with VID, whose teacher reads them too; by size (64: measured earlier)
    ("resnet_cifar:depth=11", "mobilenet:width=2", 64): 24,
    ("resnet_cifar:depth=11", "resnet_cifar:depth=29", 32): 69,
}


def hours_of(item: Item) -> float:
    """On one core, nothing having been run before."""
    return sum(_seconds(each, labels) for each in item.experiments for labels in each.labels) / 3600


def rounded(hours: float) -> str:
    """To two digits: the speeds tell no more."""
    digits = 1 - math.floor(math.log10(hours))
    return f"{round(hours, digits):,.{max(0, digits)}f}"


def _seconds(experiment: Experiment, labels: int) -> float:
    models = models_seconds(experiment, labels) * (experiment.trials if experiment.repeats else 1)
    return models + experiment.trials * arms_seconds(experiment, labels)


def models_seconds(experiment: Experiment, labels: int) -> float:
    """Of teacher and student on the labels."""
    recipe, (teacher, student) = experiment.recipe, _speeds(experiment)
    return labels * (recipe.teacher_epochs / teacher.trained + recipe.student_epochs / student.trained)


def arms_seconds(experiment: Experiment, labels: int) -> float:
    """Of one trial: the teacher's labels, and every arm."""
    teacher, student = _speeds(experiment)
    budget, recipe = full_budget_of(experiment, labels), experiment.recipe
    validation, unlabeled, test = (int(budget[name]) for name in ("validation", "unlabeled", "test"))

    def arm(own: Recipe) -> float:
        """Epochs, each followed by accuracies, and the passes before weights are estimated."""
        rows = labels + unlabeled + (validation if own.validation_in_training == "yes" else 0)
        trained = VID[experiment.student, experiment.teacher, _size(experiment)] if own.vid else student.trained
        estimates = math.ceil(own.epochs / own.refresh) if own.refresh else 1
        read = own.epochs * (validation + test) + estimates * (validation + unlabeled)
        return own.epochs * rows / trained + read / student.read

    labeling = (labels + validation + unlabeled + test) / teacher.read
    return labeling + sum(arm(each.recipe(recipe)) for each in arms_of(dict(experiment.arms), recipe).values())


def _speeds(experiment: Experiment) -> tuple[Speed, Speed]:
    return SPEEDS[experiment.teacher, _size(experiment)], SPEEDS[experiment.student, _size(experiment)]


def _size(experiment: Experiment) -> int:
    return experiment.size or DATASETS[experiment.dataset].size


def as_run(experiment: Experiment, line: Line) -> Experiment:
    """The experiment on the budget of a line, with the arms that the line has."""
    budget, arms = line["budget"], {name: each for name, each in experiment.arms.items() if name in line["arms"]}
    sizes = {name: budget[name] for name in ("validation", "unlabeled", "test")}
    epochs = {name: budget[name] for name in ("teacher_epochs", "student_epochs", "epochs")}
    return replace(experiment, arms=arms, recipe=replace(experiment.recipe, **epochs), **sizes)


@dataclass(frozen=True)
class Hours:
    """What the lines of an experiment took, and what is predicted for them, in hours of one thread."""

    trials: int
    models: float  # predicted; those that trials share once
    arms: float  # predicted
    took: float  # by the arms, measured


def run_of(experiment: Experiment, lines: Sequence[Line]) -> Hours:
    models = {(line["labels"], line["repeat"]): models_seconds(as_run(experiment, line), line["labels"]) for line in lines}
    arms = sum(arms_seconds(as_run(experiment, line), line["labels"]) for line in lines)
    took = sum(seconds for line in lines for arm in line["arms"].values() for seconds in arm["seconds"].values())
    return Hours(len(lines), sum(models.values()) / 3600, arms / 3600, took / 3600)


def main() -> None:
    print(f"{'item':<18}{'core-hours':>12}   experiments, each of which is run once for all items")
    for item in ITEMS:
        print(f"{item.name:<18}{rounded(hours_of(item)):>12}   {', '.join(each.name for each in item.experiments)}")
    print(f"\n{'run':<18}{'trials':>12}{'models':>10}{'arms':>10}{'arms took':>12}   hours: two predicted, one measured")
    experiments = {each.name: (each, known) for item in ITEMS for each in item.experiments if (known := _lines(item, each))}
    runs = {name: run_of(*each) for name, each in experiments.items()}
    runs["all"] = Hours(*(sum(getattr(run, name) for run in runs.values()) for name in ("trials", "models", "arms", "took")))
    for name, run in runs.items():
        hours = f"{run.models:>10.1f}{run.arms:>10.1f}{run.took:>12.1f}"
        print(f"{name:<18}{run.trials:>12}{hours}")


def _lines(item: Item, experiment: Experiment) -> list[Line]:
    return read_lines(item, HERE)[experiment.name]


if __name__ == "__main__":
    main()
