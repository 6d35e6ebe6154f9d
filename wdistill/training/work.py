"""One piece of a run that a process can do by itself: pretrain a model, or train one arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.arms import AnyRule, folder_of
from wdistill.ledger import Ledger
from wdistill.recipe import Recipe
from wdistill.threads import blocks
from wdistill.training import tensors
from wdistill.training.data import Split, on_device
from wdistill.training.inputs import Picked, union
from wdistill.training.labels import read_labels
from wdistill.training.predicting import device_of
from wdistill.training.randomness import key, permutation
from wdistill.training.stage import Examples, Guide, Stage, Watch, run_stage
from wdistill.training.vid import guided
from wdistill.training.weighing import Weigher

BLOCK = 1 << 12  # rows whose soft targets are computed at once


@dataclass(frozen=True, eq=False)
class Work:
    """What to train, and all that it needs; it can be sent to another process."""

    run: Path
    name: str  # teacher, student, or the name of an arm
    rule: AnyRule | None  # of an arm
    model: nn.Module
    splits: Mapping[str, Split]  # labeled, validation, unlabeled, test
    classes: int
    recipe: Recipe
    device: str
    teacher: nn.Module | None = None  # of an arm whose recipe pairs its layers; its parameters are those of the run

    @property
    def folder(self) -> Path:
        return self.run / self.name if self.rule is None else self.run / "arms" / folder_of(self.name)


def do(work: Work, watch: Watch) -> None:
    """Train to the end, or go on from where the ledger stands; the result is in the ledger."""
    with threads(work.recipe.threads):
        device = torch.device(work.device)
        model = work.model.to(device)
        splits = {name: on_device(split, device) for name, split in work.splits.items()}
        pretrain(work, model, splits, watch) if work.rule is None else train_arm(work, work.rule, model, splits, watch)


def pretrain(work: Work, model: nn.Module, splits: Mapping[str, Split], watch: Watch) -> None:
    """Line 1 of Algorithm 1: a model on the labeled rows."""
    labeled = splits["labeled"]
    assert labeled.labels is not None
    examples = Examples(labeled.inputs, labeled.labels, torch.ones(len(labeled)), labeled.ids)
    epochs = work.recipe.teacher_epochs if work.name == "teacher" else work.recipe.student_epochs
    stage = Stage(work.name, work.folder, examples, epochs, order=work.name)
    run_stage(stage, model, work.recipe, _measured(splits, splits["validation"]), watch)


def train_arm(work: Work, rule: AnyRule, model: nn.Module, splits: Mapping[str, Split], watch: Watch) -> None:
    """Lines 5 to 10 of Algorithm 1: the pretrained student on the union, with weights that the rule estimates."""
    recipe, labeled, unlabeled = work.recipe, splits["labeled"], splits["unlabeled"]
    weighing, gold = halves(splits["validation"], recipe)
    teacher, validation_teacher = (read_labels(work.run / "labels", name) for name in ("unlabeled", "validation"))
    assert teacher is not None and validation_teacher is not None
    assert labeled.labels is not None
    parts = [labeled, unlabeled] if gold is None else [labeled, unlabeled, gold]
    weigher = Weigher(
        rule,
        weighing,
        unlabeled,
        validation_teacher[rows_that_weigh(len(splits["validation"]), recipe)],
        teacher,
        read_labels(work.run / "labels", "labeled"),
        recipe.temperature,
        recipe.precision,
        first=len(labeled),
        rows=sum(len(part) for part in parts),
        watch=watch,
    )
    known = [labeled.labels, *([] if gold is None or gold.labels is None else [gold.labels])]
    examples = Examples(
        union([part.inputs for part in parts]),
        targets_of(known, teacher, recipe, work.classes),
        torch.ones(weigher.rows),
        np.concatenate([part.ids.astype(object) for part in parts]),
    )
    stage = Stage(
        work.name,
        work.folder,
        examples,
        recipe.epochs,
        order="arm",  # the same for all arms: differences are paired
        temperature=recipe.temperature,
        scale=recipe.temperature**2 if recipe.temperature_squared else 1.0,
        estimate=weigher.estimate,
        restore=weigher.restore,
        every=recipe.refresh,
        trajectory=True,
    )
    start = Ledger(work.run / "student")
    tensors.load_parameters(model, tensors.from_bytes(start.read("parameters.safetensors"), "student"), "student")
    with guiding(work, model, labeled) as guide:
        run_stage(replace(stage, guide=guide), model, recipe, _measured(splits, weighing), watch)


def guiding(work: Work, student: nn.Module, labeled: Split) -> AbstractContextManager[Guide | None]:
    """What an arm minimises beside the cross-entropy: nothing, or the VID of its recipe, with the run's own teacher."""
    if not work.recipe.vid:
        return nullcontext()
    assert work.teacher is not None
    teacher = work.teacher.to(device_of(student))
    trained = Ledger(work.run / "teacher").read("parameters.safetensors")
    tensors.load_parameters(teacher, tensors.from_bytes(trained, "teacher"), "teacher")
    return guided(work.recipe, student, teacher, labeled.inputs)


def targets_of(known: list[Tensor], teacher: NDArray[np.float32], recipe: Recipe, classes: int) -> Tensor:
    """What the student shall match: the truth on labeled and gold rows, the teacher on the unlabeled ones between them."""
    if recipe.targets == "hard":
        return torch.cat([known[0], torch.from_numpy(teacher.argmax(axis=1)), *known[1:]])
    soft = torch.empty(len(known[0]) + len(teacher) + sum(map(len, known[1:])), classes)
    first = len(known[0])
    for part in blocks(len(teacher), BLOCK):  # float64 inside, and never all of it at once
        logits = torch.from_numpy(teacher[part]).double() / recipe.temperature
        soft[first + part.start : first + part.stop] = torch.softmax(logits, dim=1)
    soft[:first] = torch.nn.functional.one_hot(known[0], classes)
    for labels in known[1:]:
        soft[first + len(teacher) :] = torch.nn.functional.one_hot(labels, classes)
    return soft


def rows_that_weigh(m: int, recipe: Recipe) -> NDArray[np.int64]:
    """All validation rows, or in the mode `half` a random half of them."""
    if recipe.validation_in_training != "half":
        return np.arange(m)
    return np.sort(permutation(m, key(recipe.seed, "half")).numpy()[: (m + 1) // 2])


def halves(validation: Split, recipe: Recipe) -> tuple[Split, Split | None]:
    """The validation rows that weigh, and those that train the student too."""
    if recipe.validation_in_training == "no":
        return validation, None
    if recipe.validation_in_training == "yes":
        return validation, validation
    weigh = rows_that_weigh(len(validation), recipe)
    train = np.setdiff1d(np.arange(len(validation)), weigh)
    return _picked(validation, weigh), _picked(validation, train)


def _picked(split: Split, rows: NDArray[np.int64]) -> Split:
    at = torch.from_numpy(rows)
    labels = None if split.labels is None else split.labels[at]
    return Split(split.name, Picked(split.inputs, at), labels, split.ids[rows])


def _measured(splits: Mapping[str, Split], validation: Split) -> dict[str, Split]:
    """The splits that accuracies are measured on."""
    return {"validation": validation, **({"test": splits["test"]} if "test" in splits else {})}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for torch while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
