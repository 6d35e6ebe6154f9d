"""Core-hours that the full protocol of every item takes by itself, extrapolated from the speeds of single batches.

    python -m experiments.times

All labels, trials, arms and epochs count: rows that are trained on, and rows that are only read, for accuracies after every
epoch, for the teacher's labels and for weights. Left out as small: augmentation, the k-NN, files. No item of the paper was
run for so long. The first three arms of small-fashion with 500 labels were trained for 29 to 32 s each, where 30 are
foretold; where processes shared a core, others took up to twice as long as foretold.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from experiments.catalogue import ITEMS
from experiments.protocol import Experiment, Item, full_budget_of
from wdistill.arms import arms_of
from wdistill.datasets import DATASETS
from wdistill.recipe import Recipe


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
    size, recipe = experiment.size or DATASETS[experiment.dataset].size, experiment.recipe
    teacher, student = SPEEDS[experiment.teacher, size], SPEEDS[experiment.student, size]
    budget = full_budget_of(experiment, labels)
    validation, unlabeled, test = (int(budget[name]) for name in ("validation", "unlabeled", "test"))

    def arm(own: Recipe) -> float:
        """Epochs, each followed by accuracies, and the passes before weights are estimated."""
        rows = labels + unlabeled + (validation if own.validation_in_training == "yes" else 0)
        trained = VID[experiment.student, experiment.teacher, size] if own.vid else student.trained
        estimates = math.ceil(own.epochs / own.refresh) if own.refresh else 1
        read = own.epochs * (validation + test) + estimates * (validation + unlabeled)
        return own.epochs * rows / trained + read / student.read

    pretraining = labels * (recipe.teacher_epochs / teacher.trained + recipe.student_epochs / student.trained)
    labeling = (labels + validation + unlabeled + test) / teacher.read
    arms = sum(arm(each.recipe(recipe)) for each in arms_of(dict(experiment.arms), recipe).values())
    return pretraining * (experiment.trials if experiment.repeats else 1) + experiment.trials * (labeling + arms)


def main() -> None:
    print(f"{'item':<18}{'core-hours':>12}   experiments, each of which is run once for all items")
    for item in ITEMS:
        print(f"{item.name:<18}{rounded(hours_of(item)):>12}   {', '.join(each.name for each in item.experiments)}")


if __name__ == "__main__":
    main()
