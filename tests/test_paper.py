"""The paper's numbers and recipes, typed a second time: its tables of §3 and Appendix B, its recipes of Appendix C."""

from __future__ import annotations

import re
from typing import Any

import pytest

from experiments.lab.results import Paper
from experiments.lab.trial import Experiment
from experiments.paper import celeba, cifar10, cifar100, fidelity, imagenet, refresh, svhn, temperature
from wdistill.runs.arms import Arm
from wdistill.runs.recipe import Recipe

# by number of labels, in the order of the experiment's
PRINTED = """
svhn teacher: 87.31, 88.5, 88.45, 91.38, 91.32
svhn debiased: 90.41 ± 0.12, 91.21 ± 0.09, 92.4 ± 0.12, 92.64 ± 0.14, 92.85 ± 0.1
svhn unweighted: 89.89 ± 0.09, 90.86 ± 0.11, 91.99 ± 0.1, 92.51 ± 0.07, 92.45 ± 0.07
cifar10 teacher: 67.17, 71.39, 74.69, 77, 78.46
cifar10 debiased: 69.01 ± 0.25, 72.96 ± 0.1, 75.33 ± 0.43, 77.69 ± 0.35, 78.34 ± 0.16
cifar10 unweighted: 68.27 ± 0.22, 72.48 ± 0.26, 74.95 ± 0.2, 76.85 ± 0.32, 77.92 ± 0.06
cifar100 teacher: 44.1, 51.31, 55.54, 59.05, 62.17
cifar100 debiased: 46.81 ± 0.34, 53.31 ± 0.66, 57.5 ± 0.3, 60.94 ± 0.32, 62.86 ± 0.41
cifar100 unweighted: 46.29 ± 0.04, 52.83 ± 0.53, 56.89 ± 0.65, 60.73 ± 0.03, 62.79 ± 0.09
celeba teacher: 91.59, 93.76, 94.41, 94.86, 94.92
celeba debiased-vid: 94.35 ± 0.11, 95.01 ± 0.17, 95.73 ± 0.04, 95.89 ± 0.08, 96.11 ± 0.08
celeba debiased: 94.06 ± 0.04, 95.14 ± 0.1, 95.56 ± 0.03, 95.86 ± 0.03, 95.92 ± 0.01
celeba vid: 94.11 ± 0.11, 94.76 ± 0.14, 95.46 ± 0.11, 95.69 ± 0.05, 95.88 ± 0.03
celeba unweighted: 93.68 ± 0.01, 94.92 ± 0.02, 95.38 ± 0.07, 95.69 ± 0.05, 95.73 ± 0.09
imagenet teacher: 36.74, 51.88
imagenet debiased: 38.60 ± 0.07, 53.59 ± 0.09
imagenet unweighted: 38.44 ± 0.06, 53.43 ± 0.08
imagenet debiased-hard: 38.56 ± 0.07, 53.34 ± 0.11
imagenet unweighted-hard: 38.42 ± 0.06, 53.18 ± 0.07
fidelity-cifar10 teacher: 67.55, 72.85, 74.85, 77.63, 78.40
fidelity-cifar10 debiased-refresh: 70.59 ± 0.05, 74.59 ± 0.07, 75.75 ± 0.32, 78.56 ± 0.14, 79.21 ± 0.17
fidelity-cifar10 fidelity: 69.31 ± 0.41, 73.39 ± 0.44, 74.69 ± 0.31, 77.10 ± 0.16, 78.19 ± 0.19
fidelity-cifar10 composition: 71.20 ± 0.097, 75.54 ± 0.21, 76.80 ± 0.29, 79.55 ± 0.22, 80.28 ± 0.28
fidelity-cifar100 teacher: 44.70, 51.45, 56.00, 58.70, 61.82
fidelity-cifar100 debiased: 46.18 ± 0.25, 53.15 ± 0.16, 57.51 ± 0.4, 59.65 ± 0.4, 62.02 ± 0.25
fidelity-cifar100 fidelity: 46.32 ± 0.23, 52.92 ± 0.20, 57.40 ± 0.47, 59.48 ± 0.17, 61.39 ± 0.09
fidelity-cifar100 composition: 46.62 ± 0.44, 53.39 ± 0.16, 57.11 ± 0.41, 59.63 ± 0.15, 62.30 ± 0.26
temperature unweighted-T0.01: 52.84 ± 0.08
temperature debiased-T0.01: 53.73 ± 0.11
temperature unweighted-T0.1: 54.63 ± 0.09
temperature debiased-T0.1: 54.84 ± 0.12
temperature unweighted-T0.5: 56.45 ± 0.12
temperature debiased-T0.5: 57.01 ± 0.1
temperature unweighted-T0.8: 56.67 ± 0.12
temperature debiased-T0.8: 57.60 ± 0.15
temperature unweighted-T1: 57.17 ± 0.15
temperature debiased-T1: 57.56 ± 0.09
temperature unweighted-T2: 57.54 ± 0.11
temperature debiased-T2: 57.8 ± 0.21
temperature unweighted-T3: 57.20 ± 0.18
temperature debiased-T3: 57.09 ± 0.25
temperature unweighted-T5: 56.92 ± 0.11
temperature debiased-T5: 57.01 ± 0.2
"""
EXPERIMENTS: dict[str, tuple[Experiment, Paper]] = {
    "svhn": (svhn.EXPERIMENT, svhn.PAPER),
    "cifar10": (cifar10.EXPERIMENT, cifar10.PAPER),
    "cifar100": (cifar100.EXPERIMENT, cifar100.PAPER),
    "celeba": (celeba.EXPERIMENT, celeba.PAPER),
    "imagenet": (imagenet.EXPERIMENT, imagenet.PAPER),
    "fidelity-cifar10": (fidelity.CIFAR10, fidelity.CIFAR10_PAPER),
    "fidelity-cifar100": (fidelity.CIFAR100, fidelity.CIFAR100_PAPER),
    "temperature": (temperature.EXPERIMENT, temperature.PAPER),
}


def test_every_number_of_the_paper_stands_where_it_belongs() -> None:
    seen = set()
    for line in PRINTED.strip().splitlines():
        name, arm, numbers = re.fullmatch(r"(\S+) (\S+): (.*)", line).groups()  # type: ignore[union-attr]
        experiment, paper = EXPERIMENTS[name]
        cells = [tuple(float(each) for each in cell.split(" ± ")) for cell in numbers.split(", ")]
        wanted = {labels: (*cell, None)[:2] for labels, cell in zip(experiment.labels, cells, strict=False)}
        assert paper[arm] == wanted, line
        seen.add((name, arm))
    others = {(name, arm) for name, (_, paper) in EXPERIMENTS.items() for arm in paper} - seen
    assert others == {("svhn", "debiased-hard"), ("svhn", "unweighted-hard"), ("temperature", "teacher")}


MOBILENETS, RESNETS = ("mobilenet:width=2", "mobilenet:width=1"), ("resnet_cifar:depth=110", "resnet_cifar:depth=56")
CELEBA = ("mobilenet:width=2", "resnet_cifar:depth=11")
FIVE = (7500, 10000, 12500, 15000, 17500)
FACES = (10000, 15000, 20000, 25000, 30000, 35000)
SETTINGS: dict[str, tuple[Experiment, str, tuple[str, str], tuple[int, ...], int, int]] = {
    "svhn": (svhn.EXPERIMENT, "svhn", MOBILENETS, (*FIVE, 20000), 2000, 3),
    "cifar10": (cifar10.EXPERIMENT, "cifar10", MOBILENETS, FIVE, 2000, 3),
    "cifar100": (cifar100.EXPERIMENT, "cifar100", RESNETS, FIVE, 2000, 3),
    "celeba": (celeba.EXPERIMENT, "celeba", CELEBA, FACES, 2000, 3),
    "imagenet": (imagenet.EXPERIMENT, "imagenet", ("resnet:depth=50", "resnet:depth=18"), (64058, 128116), 10000, 10),
    "refresh-celeba": (refresh.EXPERIMENTS["CelebA"], "celeba", CELEBA, FACES, 500, 3),
    "refresh-cifar10": (refresh.EXPERIMENTS["CIFAR-10"], "cifar10", MOBILENETS, FIVE, 500, 3),
    "refresh-cifar100": (refresh.EXPERIMENTS["CIFAR-100"], "cifar100", RESNETS, FIVE, 500, 3),
    "fidelity-cifar10": (fidelity.CIFAR10, "cifar10", MOBILENETS, FIVE, 500, 3),
    "fidelity-cifar100": (fidelity.CIFAR100, "cifar100", RESNETS, FIVE, 500, 3),
    "temperature": (temperature.EXPERIMENT, "cifar100", RESNETS, (12500,), 500, 3),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_models_rows_and_trials_are_those_of_the_paper(name: str) -> None:
    found, data, models, labels, validation, trials = SETTINGS[name]
    assert (found.dataset, (found.teacher, found.student), found.labels) == (data, models, labels)
    assert (found.validation, found.trials) == (validation, trials)
    assert found.unlabeled is None and not found.repeats  # all that is left; only the split varies


def recipe(found: Recipe) -> dict[str, Any]:
    names = ("optimizer", "momentum", "rate", "schedule", "augmentation", "weight_decay", "decayed", "confidence")
    return {
        name: getattr(found, name) for name in (*names, "batch_size", "validation_in_training", "targets", "temperature")
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_recipes_are_those_of_the_paper(name: str) -> None:
    """Appendix C; §3.2 and C.3: the entropy, and validation rows in training."""
    found = SETTINGS[name][0].recipe
    epochs = 100 if name == "imagenet" else 200
    assert (found.teacher_epochs, found.student_epochs, found.epochs) == (epochs,) * 3
    adam = {"optimizer": "adam", "momentum": Recipe().momentum, "rate": 0.001, "schedule": "steps", "batch_size": 32}
    adam["augmentation"] = ("flip", "translate")
    sgd = {
        "optimizer": "sgd",
        "momentum": 0.9,
        "rate": 0.1,
        "schedule": "warmup",
        "batch_size": 256,
        "augmentation": ("flip",),
    }
    decayed = "mobilenet" not in SETTINGS[name][2][1]
    decay = {"weight_decay": 2e-4, "decayed": "kernels"} if decayed else {"weight_decay": 0.0, "decayed": "all"}
    own = {
        "confidence": "margin" if name in ("svhn", "cifar10", "cifar100", "celeba", "imagenet") else "entropy",
        "validation_in_training": "yes" if name.startswith("fidelity") else "no",
    }
    plain = {"targets": "soft", "temperature": 1.0}
    assert recipe(found) == {**(sgd if name == "imagenet" else adam), **decay, **own, **plain}


def test_arms_have_the_settings_of_the_paper() -> None:
    def own(experiment: Experiment) -> dict[str, dict[str, Any]]:
        return {name: dict(arm.settings) for name, arm in experiment.arms.items() if isinstance(arm, Arm) and arm.settings}

    hard = {name: {"targets": "hard"} for name in ("unweighted-hard", "debiased-hard")}
    layers = ("stages.0=stages.0", "stages.1=stages.1", "stages.2=stages.2")
    assert own(svhn.EXPERIMENT) == own(imagenet.EXPERIMENT) == hard and own(cifar10.EXPERIMENT) == {}
    assert own(celeba.EXPERIMENT) == {"vid": {"vid": layers}, "debiased-vid": {"vid": layers}}
    assert celeba.EXPERIMENT.teacher_changes == {"weight_decay": 0.0, "decayed": "all"}  # it is a MobileNet
    refreshed = {"debiased-refresh": {"refresh": 1}, "shuffled": {"refresh": 1}}
    assert all(own(experiment) == refreshed for experiment in refresh.EXPERIMENTS.values())
    assert own(fidelity.CIFAR10) == {"debiased-refresh": {"refresh": 1}, "composition": {"refresh": 1}}
    assert own(fidelity.CIFAR100) == {}
    temperatures = (0.01, 0.1, 0.5, 0.8, 1.0, 2.0, 3.0, 5.0)
    wanted = {f"{rule}-T{at:g}": {"temperature": at} for at in temperatures for rule in ("unweighted", "debiased")}
    assert own(temperature.EXPERIMENT) == wanted
