"""The paper's arms with a smaller pair of models, on SVHN, CIFAR-10 and Fashion-MNIST: what two cores can do in some hours.

Not in the paper. A convolutional teacher (32, 64, 128 channels) and student (16, 32, 64), 1,000 to 5,000 labels, 500
validation rows and entropy as in §3.2 and Appendix C.3, 5,000 unlabeled rows; 40 epochs on the labels, 10 on the union;
batch 64, the first 4,000 test rows. Every one of the 5 trials has a labeled set, teacher and student of its own.

    wdistill reproduce small-svhn small-cifar10 small-fashion

Time: about 10 minutes a trial on one core, 45 trials.

All of this was fixed before the first trial was run. Sizes and epochs come from measured speeds and a budget of hours; one
trial that is not among the results (seed 1000) was looked at for its validation accuracies alone.
"""

from __future__ import annotations

from typing import Any

from experiments.protocol import Experiment
from wdistill import Recipe, compose, debiased, fidelity, oracle, shuffled, unweighted
from wdistill.arms import arm

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
    batch_size=64,
    augmentation=("flip", "translate"),
    confidence="entropy",
)


def small(dataset: str) -> Experiment:
    return Experiment(
        name=f"small-{dataset}",
        dataset=dataset,
        teacher="cnn:width=32",
        student="cnn:width=16",
        labels=(1000, 2500, 5000),
        validation=500,
        unlabeled=5000,
        test=4000,
        arms=ARMS,
        recipe=RECIPE,
        trials=5,
        repeats=True,
        in_paper=False,
    )


SVHN, CIFAR10, FASHION = small("svhn"), small("cifar10"), small("fashion")
