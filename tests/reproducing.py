"""Experiments that take a second: data of some dozen rows in the official formats, two experiments of three arms, and what
of a trial lies on the disk.

    python -m tests.reproducing ROOT FOLDER     run them, and die by SIGKILL when the second arm of the first trial begins
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from experiments.lab.items import Item, View
from experiments.lab.tables import by_labels
from experiments.lab.trial import Experiment
from experiments.paper import reproduce as reproducing
from tests import official
from tests.distilling import undrawn
from wdistill import Recipe, cli, debiased, unweighted
from wdistill.core import store
from wdistill.datasets import prepare
from wdistill.datasets.prepared import SIZES
from wdistill.runs.arms import arm

ROWS, TEST, SIZE = 30, 6, 32
WRITERS = {
    name: getattr(official, f"write_{name}") for name in ("svhn", "cifar10", "cifar100", "fashion", "celeba", "imagenet")
}
SHARED = Experiment(
    name="shared",
    dataset="fashion",
    teacher="cnn:width=4",
    student="cnn:width=2",
    labels=(12,),
    validation=6,
    unlabeled=8,
    test=TEST,
    arms={"unweighted": unweighted, "debiased": debiased, "debiased-refresh": arm(debiased, refresh=1)},
    recipe=Recipe(teacher_epochs=2, student_epochs=1, epochs=2, batch_size=8, augmentation=("flip",), checkpoint_seconds=0),
    trials=2,
)
FRESH = replace(SHARED, name="fresh", repeats=True, in_paper=False)


def view(experiment: Experiment) -> View:
    return View(experiment, lambda lines: by_labels(lines, SHARED.arms, {}, experiment.name))


TINY = Item("tiny", "two experiments that take a second", (view(SHARED), view(FRESH)))


def make_data(root: Path, *names: str) -> Path:
    """Small data sets in the official formats, prepared; all that experiments use unless some are named."""
    for name in names or WRITERS:
        WRITERS[name](root / name, ROWS, TEST)
        prepare(name, root, SIZE if name in SIZES else None, unofficial=True)
    return root


def reproduce(root: Path, folder: Path, *words: str) -> int:
    """The exit code of the command, with all that it writes in one folder."""
    with undrawn():
        return cli.main(["reproduce", *words, *places(root, folder)])


def places(root: Path, folder: Path) -> list[str]:
    return ["--root", str(root), "--results", str(folder), "--runs", str(folder / "runs")]


@contextmanager
def catalogue(*items: Item) -> Any:
    """Only these items are known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproducing, "ITEMS", items)
        yield


def trials(folder: Path, experiment: str) -> list[Path]:
    """The run folders of an experiment's trials, by number."""
    return sorted((folder / "runs" / experiment).glob("*-trial-*"), key=lambda path: path.name)


def ids(trial: Path, split: str) -> list[int]:
    """The rows of a split, as the trial has recorded them."""
    files = sorted((trial / "labels").glob(f"{split}-*.parquet"))
    return [number for path in files for number in parquet.read_table(path)["id"].to_pylist()]


def parameters(trial: Path, model: str) -> str:
    """The digest of a model by the folder of its checkpoints: one that a trial began with, or an arm's."""
    return store.digest_file(trial / model / "parameters.safetensors")


def main() -> None:
    root, folder = map(Path, sys.argv[1:])

    def kill(operation: str, path: Path) -> None:
        if "arms" in path.parts and "debiased" in path.parts:
            os.kill(os.getpid(), signal.SIGKILL)

    store.before = kill
    with catalogue(TINY):
        reproduce(root, folder, "tiny")


if __name__ == "__main__":
    main()
