"""The paper's protocol (§3.1): models trained once on the labeled rows, then one paired trial for every split of the others.

`pretrain` trains a teacher or a student on the first N rows. `run_trial` splits the other rows, lets the teacher label
them, trains the student once for every arm with `wdistill.distill`, and returns the trial's line. Both resume where they
were stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from experiments.lab.results import PRECISION, Line
from wdistill import Data, Outcome, Recipe, Training, distill, margin
from wdistill.core.environment import code_of, commit_of
from wdistill.core.errors import unreadable
from wdistill.core.settings import to_json
from wdistill.core.signals import stopping
from wdistill.core.store import digest, make_folder, waiting_for, write_bytes
from wdistill.datasets import DATASETS, Dataset, ImageSplit, load, splits
from wdistill.runs.arms import Arm, arms_of, folder_of
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.display import display
from wdistill.training.data import check_split, to_device
from wdistill.training.inputs import MAX_IN_MEMORY, MemoryMapped, Subset
from wdistill.training.jobs import torch_threads
from wdistill.training.labels import column_names, read_labels, read_table
from wdistill.training.loop import run_stage
from wdistill.training.models.networks import build
from wdistill.training.predict import device_for
from wdistill.training.randomness import key, seed_generators
from wdistill.training.stage import Callbacks, Examples, Stage, StoppedError

BINS = 20  # of the teacher's margin
LEARNING = (  # settings of the recipe that the training of a teacher or a student looks at
    *("batch_size", "optimizer", "rate", "momentum", "weight_decay", "decayed", "schedule", "augmentation", "precision"),
    "seed",
)
TRAINED_BY = "trained-by.json"  # in a model's folder: the code that trained it, each that had a part in it


@dataclass(frozen=True)
class Experiment:
    """One data set, pair of models and recipe, for several numbers of labels; its lines are in results/NAME.jsonl."""

    name: str
    dataset: str  # as `wdistill data` names it
    teacher: str  # a network as `build` names it, without channels and classes
    student: str
    labels: tuple[int, ...]
    validation: int
    arms: Mapping[str, Any]  # rules or arms by name
    recipe: Recipe
    unlabeled: int | None = None  # of the rows that are left; None: all
    trials: int = 3
    repeats: bool = False  # every trial has a labeled set, teacher and student of its own; else only the split varies
    teacher_changes: Mapping[str, Any] = field(default_factory=dict)  # of the recipe, for the teacher alone
    size: int | None = None  # of the images, where the data set has none of its own
    test: int | None = None  # of the test rows, the first; None: all
    in_paper: bool = True  # whether it is the paper's, or our own with smaller models


@dataclass(frozen=True)
class Trial:
    """One trial of an experiment that may have been shortened."""

    experiment: Experiment
    paper: Experiment  # the same at its full length
    labels: int
    number: int
    root: Path | None  # of the data sets
    runs: Path  # where models and checkpoints go

    @property
    def repeat(self) -> int | None:
        return self.number if self.experiment.repeats else None

    @property
    def dataset(self) -> Dataset:
        return _load_once(self.experiment.dataset, self.root, self.experiment.size)

    def recipe(self, which: str) -> Recipe:
        """Of the teacher's, the student's or the arms' training."""
        seed = self.number if which == "arms" else self.repeat or 0
        changes = self.experiment.teacher_changes if which == "teacher" else {}
        return replace(self.experiment.recipe, seed=seed, **changes)

    def model_folder(self, which: str) -> Path:
        """Of the teacher or the pretrained student: the same for all trials and experiments that train the same."""
        recipe, network = to_json(self.recipe(which)), getattr(self.experiment, which)
        decisive = [self.dataset.sha256, network, recipe[f"{which}_epochs"], *(recipe[name] for name in LEARNING)]
        shared = "shared" if self.repeat is None else self.repeat
        return self.runs / "models" / f"{which}-{self.experiment.dataset}-{self.labels}-{shared}-{_short(decisive)}"

    @property
    def folder(self) -> Path:
        """Of the run: another experiment, budget, recipe or arm has another."""
        decisive: list[Any] = [to_json(self.recipe("arms")), {name: str(each) for name, each in self.arms.items()}]
        decisive += [self.experiment.validation, self.experiment.unlabeled, self.experiment.test]
        decisive += [self.model_folder(which).name for which in ("teacher", "student")]
        return self.runs / self.experiment.name / f"{self.labels}-trial-{self.number}-{_short(decisive)}"

    @property
    def arms(self) -> dict[str, Arm]:
        return arms_of(dict(self.experiment.arms), self.experiment.recipe)


@lru_cache(maxsize=4)
def _load_once(name: str, root: Path | None, size: int | None) -> Dataset:
    """A data set, read from its files once in a process: a trial asks for it some 25 times."""
    return load(name, root, size)


def _short(values: Any) -> str:
    return digest(repr(values).encode())[:12]


def shortened(experiment: Experiment, epochs: int | None = None, pretraining: int | None = None, **sizes: Any) -> Experiment:
    """The experiment on another budget: `epochs` shortens all three trainings in proportion, each schedule with its own.

    `pretraining`: epochs of teacher and student on the labels, where they shall not be in proportion.
    """
    recipe = experiment.recipe
    if epochs is not None:
        shares = {name: getattr(recipe, name) / recipe.epochs for name in ("teacher_epochs", "student_epochs")}
        recipe = replace(recipe, epochs=epochs, **{name: max(1, round(epochs * share)) for name, share in shares.items()})
    if pretraining is not None:
        recipe = replace(recipe, teacher_epochs=pretraining, student_epochs=pretraining)
    of_recipe = {name: sizes.pop(name) for name in ("batch_size", "precision", "device") if name in sizes}
    if experiment.size is None:  # its images have a size of their own
        sizes.pop("size", None)
    return replace(experiment, recipe=replace(recipe, **of_recipe), **sizes)


def budget_of(experiment: Experiment, labels: int, dataset: Dataset) -> dict[str, Any]:
    """All that a line of the experiment costs and that a shorter one may change."""
    return _budget(experiment, labels, (len(dataset.train), len(dataset.test)), dataset.train.inputs.shape[1:])


def full_budget_of(experiment: Experiment, labels: int) -> dict[str, Any]:
    """The same on the data set as it was published, of which a copy may have fewer rows."""
    kind = DATASETS[experiment.dataset]
    size = experiment.size or kind.size
    return _budget(experiment, labels, kind.rows, (kind.channels, size, size))


def _budget(experiment: Experiment, labels: int, rows: tuple[int, int], shape: tuple[int, ...]) -> dict[str, Any]:
    """With `rows` of train and test images, each of that shape."""
    recipe, (train, test) = experiment.recipe, rows
    left = train - labels - experiment.validation
    return {
        "teacher_epochs": recipe.teacher_epochs,
        "student_epochs": recipe.student_epochs,
        "epochs": recipe.epochs,
        "validation": experiment.validation,
        "unlabeled": left if experiment.unlabeled is None else experiment.unlabeled,
        "test": test if experiment.test is None else min(experiment.test, test),
        "batch_size": recipe.batch_size,
        "teacher": experiment.teacher,
        "student": experiment.student,
        "shape": "×".join(map(str, shape)),
        **({} if recipe.precision == PRECISION else {"precision": recipe.precision}),
    }


def pretrain(trial: Trial, which: str) -> nn.Module:
    """Line 1 of Algorithm 1: the teacher or the student, trained on the labeled rows; as stored where that is done."""
    dataset, recipe, folder = trial.dataset, trial.recipe(which), trial.model_folder(which)
    device = device_for(recipe.device)
    model = _network(getattr(trial.experiment, which), dataset, recipe.seed, which).to(device)
    given = _data(dataset.train, rows_of(trial, dataset)["labeled"])
    labeled = to_device(check_split("labeled", given, labels=True, folder=folder), device)
    assert labeled.labels is not None
    examples = Examples(labeled.inputs, labeled.labels, torch.ones(len(labeled)), labeled.ids)
    epochs = recipe.teacher_epochs if which == "teacher" else recipe.student_epochs
    make_folder(folder, parents=True)
    with waiting_for(folder), stopping() as stop, display() as say, torch_threads(recipe.threads):
        if not is_pretrained(trial, which) and (mine := this_code()) not in (before := _trained_by(folder)):
            write_bytes(folder / TRAINED_BY, json.dumps([*before, mine]).encode())
        try:
            run_stage(Stage(which, folder, examples, epochs, order=which), model, recipe, {}, Callbacks(stop, say))
        except StoppedError:
            if stop():
                stop.leave()
            raise
    return model


def run_trial(trial: Trial) -> Line:
    """Step (iii) of §3.1: split, label, weigh, train every arm; the line has all that came of it."""
    experiment, dataset, recipe = trial.experiment, trial.dataset, trial.recipe("arms")
    teacher, student = pretrain(trial, "teacher"), pretrain(trial, "student")
    rows = rows_of(trial, dataset)
    parts = {name: _data(dataset.train, part) for name, part in rows.items()} | {"test": _test(experiment, dataset)}
    trained = replace(recipe, teacher_epochs=0, student_epochs=0)
    report = distill(teacher.cpu(), student.cpu(), **parts, rule=dict(experiment.arms), recipe=trained, run=trial.folder)
    logits = read_labels(trial.folder / "labels", "unlabeled")
    assert logits is not None
    right = logits.argmax(axis=1) == dataset.train.labels[rows["unlabeled"]]
    outcome, models = report.outcome, {which: CheckpointStore(trial.model_folder(which)) for which in ("teacher", "student")}
    return {
        **identity_of(trial, dataset),
        "paper_budget": full_budget_of(trial.paper, trial.labels) if experiment.in_paper else None,
        **_accuracies(outcome),
        "margins": _margins(logits, right),
        "arms": {name: _arm(each) | _estimates(trial.folder, name, each, right) for name, each in outcome.arms.items()},
        "teacher_changes": dict(experiment.teacher_changes),
        "seed": trial.number,
        "trained_by": {which: _trained_by(trial.model_folder(which)) for which in ("teacher", "student")},
        "warnings": list(outcome.warnings),
        **_where(outcome),
        "seconds": round(sum(outcome.seconds.values()), 1),
        "model_seconds": {which: round(sum(each.state["seconds"].values()), 1) for which, each in models.items()},
    }


def identity_of(trial: Trial, dataset: Dataset) -> Line:
    """The part of a line that is known before the trial is run."""
    return {
        "experiment": trial.experiment.name,
        "labels": trial.labels,
        "trial": trial.number,
        "repeat": trial.repeat,
        "budget": budget_of(trial.experiment, trial.labels, dataset),
        "data": dataset.metadata,
        "recipe": to_json(replace(trial.recipe("arms"), rule=tuple(trial.experiment.arms))),
        "settings": {name: dict(each.settings) for name, each in trial.arms.items()},
        "rules": {name: str(each.rule) for name, each in trial.arms.items()},
    }


@cache
def commit() -> str:
    """Of the checkout that these experiments are in, when it was first asked for: code that is loaded does not change."""
    return commit_of(Path(__file__).parent, ":(top)*.py", ":(top)*.toml")


@cache
def code() -> str:
    """A digest of the package and of these experiments, when it was first asked for."""
    here = Path(__file__).parent.parent
    return code_of(here.parent / "wdistill", here)


def rows_of(trial: Trial, dataset: Dataset) -> dict[str, np.ndarray[Any, Any]]:
    """The train rows of each split; the labeled ones are the same for all trials that share models."""
    sizes = trial.labels, trial.experiment.validation, trial.experiment.unlabeled
    return splits(len(dataset.train), *sizes, trial=trial.number, repeat=trial.repeat)


def is_pretrained(trial: Trial, which: str) -> bool:
    return bool(CheckpointStore(trial.model_folder(which)).state.get("finished"))


def _network(spec: str, dataset: Dataset, seed: int, which: str) -> nn.Module:
    seed_generators(key(seed, "initial", which), torch.device("cpu"))
    name, _, rest = spec.partition(":")
    arguments = [f"channels={dataset.train.inputs.shape[1]}", f"classes={dataset.classes}", *filter(None, [rest])]
    return build(f"{name}:{','.join(arguments)}")


def _data(part: ImageSplit, rows: np.ndarray[Any, Any]) -> Data:
    """Rows of a data set: in memory where they are few, else from their file as they are needed."""
    inputs: Any = part.inputs
    few = len(rows) * inputs[:1].nbytes <= MAX_IN_MEMORY
    picked = inputs[rows] if few else Subset(MemoryMapped(Path(inputs.filename)), torch.from_numpy(rows))
    return Data(picked, part.labels[rows], rows)


def _test(experiment: Experiment, dataset: Dataset) -> Data:
    count = len(dataset.test) if experiment.test is None else min(experiment.test, len(dataset.test))
    return _data(dataset.test, np.arange(count))


def _accuracies(outcome: Outcome) -> dict[str, Any]:
    """Of the teacher and of the student before the arms."""
    return {name: {split: round(value, 5) for split, value in each.items()} for name, each in outcome.accuracies.items()}


def _margins(logits: NDArray[np.float32], right: NDArray[np.bool_]) -> dict[str, list[int]]:
    """How many unlabeled rows the teacher labels rightly and wrongly, by its margin."""
    margins = margin(logits, "logits")
    parts = {"right": margins[right], "wrong": margins[~right]}
    return {name: np.histogram(part, BINS, (0, 1))[0].tolist() for name, part in parts.items()}


def _estimates(folder: Path, arm: str, training: Training, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Mean error and median distortion of right and wrong rows, as a rule that asks neighbours saw them at first."""
    if not training.refreshes:
        return {}
    content = CheckpointStore(folder / "arms" / folder_of(arm)).read(training.refreshes[0].file)
    columns = ["error", "distortion"]
    if not {*columns} <= {*column_names(content)}:
        return {}
    table, rows = read_table(content, columns), {"right": right, "wrong": ~right}
    error = {name: _rounded(np.mean, table["error"][part]) for name, part in rows.items()}
    distortion = {name: _rounded(np.median, table["distortion"][part]) for name, part in rows.items()}
    return {"error": error, "distortion": distortion}


def _rounded(summary: Callable[..., Any], values: NDArray[Any]) -> float | None:
    return round(float(summary(values)), 4) if len(values) else None


def _arm(training: Training) -> dict[str, Any]:
    """What a line says of one arm."""
    kept = [training.refreshes[i] for i in sorted({0, len(training.refreshes) - 1})]
    weights = [
        {
            "after": each.after,
            "mean": round(each.weights.mean, 4),
            "right": None if each.right is None else round(each.right.mean, 4),
            "wrong": None if each.wrong is None else round(each.wrong.mean, 4),
            "below_one": round(each.weights.share_below_one, 4),
        }
        for each in kept
    ]
    chosen = training.chosen
    return {
        "best": training.max_on_test,
        "final": training.final,
        "chosen": None if chosen is None else chosen.test,
        "trajectory": [each.test for each in training.epochs],
        "weights": weights,
        "seconds": {name: round(value, 2) for name, value in training.seconds.items()},
    }


def _where(outcome: Outcome) -> dict[str, Any]:
    machine = {name: outcome.environment[name] for name in ("processor", "cores", "torch", "device")}
    return {**this_code(), "environment": machine}


def this_code() -> dict[str, str]:
    """What a line says of the code; the same for as long as a process lives."""
    return {"commit": commit(), "code": code()}


def _trained_by(folder: Path) -> list[dict[str, str]]:
    """The code that trained a model; none where it was trained before that was noted."""
    path = folder / TRAINED_BY
    try:
        return list(json.loads(path.read_bytes())) if path.exists() else []
    except (ValueError, TypeError, RecursionError) as error:
        remedy = "remove this file: results then do not say which code trained the model"
        raise unreadable("the record of a trained model is damaged", path, error, "a list in JSON", remedy) from None
