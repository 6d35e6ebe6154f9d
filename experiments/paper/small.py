"""The paper's arms with a smaller pair of models, on SVHN, CIFAR-10 and Fashion-MNIST: what two cores can do in some hours.

Not in the paper. A convolutional teacher (32, 64, 128 channels) and student (16, 32, 64); 500 validation rows and entropy
as in §3.2 and Appendix C.3; 5,000 unlabeled rows; 40 epochs on the labels, 10 on the union; Adam at 0.003, batch 32, the
first 4,000 test rows. Every one of the 5 trials has a labeled set, teacher and student of its own.

Command:  wdistill reproduce small-svhn small-cifar10 small-fashion
Time:     about 5.3, 3.5 and 2.2 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times,
          which also prints what the lines took: more, where processes shared a core)

All of this was fixed before the first trial was run. Sizes and epochs come from measured speeds and a budget of hours; rate
and batch from the validation accuracy of four teachers on a split that is not among the trials (seed 1000).
"""

from __future__ import annotations

from typing import Any

from experiments.lab.items import Item, by_labels
from experiments.lab.trial import Experiment
from wdistill import Recipe, compose, debiased, fidelity, oracle, shuffled, unweighted
from wdistill.runs.arms import arm

ARMS: dict[str, Any] = {
    "unweighted": unweighted,
    "debiased": debiased,
    "debiased-refresh": arm(debiased, refresh=1),
    "fidelity": fidelity,
    "composition": arm(compose(debiased, fidelity), refresh=1),
    "oracle": oracle,
    "shuffled": shuffled(),
    "unweighted-hard": arm(unweighted, targets="hard"),
    "debiased-hard": arm(debiased, targets="hard"),
}
RECIPE = Recipe(
    teacher_epochs=40,
    student_epochs=40,
    epochs=10,
    batch_size=32,
    rate=0.003,
    augmentation=("flip", "translate"),
    confidence="entropy",
)
GROUPS = {
    "soft targets": ("unweighted", "debiased", "debiased-refresh", "fidelity", "composition", "oracle", "shuffled"),
    "hard targets": ("unweighted-hard", "debiased-hard"),
}


def small(dataset: str, labels: tuple[int, ...]) -> Experiment:
    return Experiment(
        name=f"small-{dataset}",
        dataset=dataset,
        teacher="cnn:width=32",
        student="cnn:width=16",
        labels=labels,
        validation=500,
        unlabeled=5000,
        test=4000,
        arms=ARMS,
        recipe=RECIPE,
        trials=5,
        repeats=True,
        in_paper=False,
    )


def item(experiment: Experiment, title: str) -> Item:
    """Table, trajectories and accuracies of one data set."""
    groups = {
        f"{experiment.name}-{kind.partition(' ')[0]}": (f"{title}, small pair, {kind}", arms)
        for kind, arms in GROUPS.items()
    }
    view = by_labels(experiment, f"{title}, a small pair of models", {}, groups)
    return Item(experiment.name, f"not in the paper: all arms with a small pair of models on {title}", (view,))


SVHN = small("svhn", (2500, 5000, 10000))
CIFAR10 = small("cifar10", (1000, 2500, 5000))
FASHION = small("fashion", (500, 1000, 2500))
ITEMS = (item(SVHN, "SVHN"), item(CIFAR10, "CIFAR-10"), item(FASHION, "Fashion-MNIST"))
