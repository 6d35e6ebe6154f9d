"""One training of a run, which a process can do by itself: a pretraining, an auxiliary model, an arm, or arms in a stack."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import one_hot

from wdistill.methods.context import MethodArm
from wdistill.methods.metric import Metric
from wdistill.runs.arms import folder_of
from wdistill.runs.recipe import Recipe
from wdistill.training.arm import load_pretrained, train_arm, train_arms
from wdistill.training.data import Split, take_rows, to_device
from wdistill.training.inputs import concatenate, first_rows
from wdistill.training.loop import run_stage
from wdistill.training.placed import placed
from wdistill.training.stack import stack_of
from wdistill.training.stage import Callbacks, Examples, Stage
from wdistill.weights.rule import Rule

if TYPE_CHECKING:
    from wdistill.training.prepare import Prepared
    from wdistill.training.run import Run


STUDENTS = ("student", "second")  # pretrained and auxiliary models with the shape of the student


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a pilot student is taught besides labeled and gold rows."""

    rows: NDArray[np.int64]  # (a,) of the unlabeled rows
    targets: NDArray[np.float32]  # (a, K)


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """One training with all its inputs; it can be sent to another process."""

    run: Path
    name: str  # teacher, student, an auxiliary model, or the name of an arm
    model: nn.Module
    splits: Mapping[str, Split]  # labeled, validation, unlabeled, test
    classes: int
    recipe: Recipe
    device: str
    rule: Rule[...] | MethodArm | None = None  # of an arm
    teacher: nn.Module | None = None  # of an arm with VID; its parameters are those of the run
    auxiliary: tuple[str, ...] = ()  # of an arm: the auxiliary models whose predictions are stored
    gold_as_labeled: bool = False  # the last labeled rows are the gold rows
    metric: Metric | None = None  # of an arm: what its epoch is chosen by; None: accuracy
    fold: int | None = None  # of an auxiliary model: the fold of gold rows that it is not trained on
    folds: np.ndarray | None = None  # of an auxiliary model: the fold of every gold row
    lesson: Lesson | None = None  # of a pilot student
    parts: int = 1  # of every batch: see parts.py
    stacked_with: tuple[TrainingJob, ...] = ()  # of an arm: others, whose small students are trained as one with its own

    @property
    def sharded(self) -> bool:
        """Whether its model, a student, is in shards."""
        is_student = self.rule is not None or self.lesson is not None or self.name in STUDENTS
        return self.recipe.sharded and is_student

    @property
    def folder(self) -> Path:
        if self.lesson is not None:
            return self.run / "pilots" / self.name
        if self.fold is not None:
            return self.run / "auxiliary" / f"{self.name}-{self.fold}"
        return self.run / self.name if self.rule is None else self.run / "arms" / folder_of(self.name)


def pretraining_jobs(run: Run, prepared: Prepared) -> list[TrainingJob]:
    """Line 1 of Algorithm 1: teacher and student on the labeled rows."""
    models = {"teacher": prepared.teacher, "student": prepared.student}
    return [
        TrainingJob(
            run.folder,
            name,
            copy.deepcopy(model),
            prepared.splits,
            prepared.classes,
            run.recipe,
            str(run.device),
            gold_as_labeled=prepared.gold_as_labeled,
            parts=run.parts if name == "student" and run.recipe.sharded else run.recipe.micro_batches or 1,
        )
        for name, model in models.items()
        if model is not None
    ]


def arm_jobs(run: Run, prepared: Prepared) -> list[TrainingJob]:
    """Lines 5 to 10 of Algorithm 1: a job for each arm, but one for all whose small students can be stacked.

    That depends on the run alone, not on what of it is done or on the number of workers: the same run has the same bits.
    """
    jobs = [arm_job(run, prepared, name) for name in run.arms]
    stacked = [job for job in jobs if not job.recipe.vid]
    if len(stacked) < 2 or not _is_stackable(run, prepared):
        return jobs
    alone = [job for job in jobs if job.recipe.vid]
    return [replace(stacked[0], stacked_with=tuple(stacked[1:])), *alone]


def _is_stackable(run: Run, prepared: Prepared) -> bool:
    if run.device.type != "cpu" or run.recipe.precision != "float32" or run.recipe.micro_batches or run.recipe.sharded:
        return False
    return stack_of(prepared.student, 2, first_rows(prepared.splits["validation"].inputs)) is not None


def arm_job(run: Run, prepared: Prepared, name: str) -> TrainingJob:
    """Lines 5 to 10 of Algorithm 1: one arm."""
    arm = run.arms[name]
    recipe = arm.recipe(run.recipe)
    return TrainingJob(
        run.folder,
        name,
        copy.deepcopy(prepared.student),
        prepared.splits,
        prepared.classes,
        recipe,
        str(run.device),
        arm.rule,
        prepared.teacher if recipe.vid else None,
        prepared.auxiliary,
        prepared.gold_as_labeled,
        prepared.metric,
        parts=run.parts,
    )


def run_job(job: TrainingJob, callbacks: Callbacks) -> None:
    """Train to the end, or resume from the last checkpoint; the result is in the job's folder."""
    with torch_threads(job.recipe.threads):
        device = torch.device(job.device)
        model = job.model if job.sharded else job.model.to(device)  # one in shards never is on one device
        splits = {name: to_device(split, device) for name, split in job.splits.items()}
        if job.stacked_with:
            train_arms((job, *job.stacked_with), model, splits, callbacks)
        elif job.rule is not None:
            train_arm(job, model, splits, callbacks)
        elif job.fold is not None:
            _train_auxiliary(job, model, splits, callbacks)
        elif job.lesson is not None:
            _train_pilot(job, job.lesson, model, splits, callbacks)
        else:
            _pretrain(job, model, splits, callbacks)


def _pretrain(job: TrainingJob, model: nn.Module, splits: Mapping[str, Split], callbacks: Callbacks) -> None:
    labeled = splits["labeled"]
    assert labeled.labels is not None
    examples = Examples(labeled.inputs, labeled.labels, torch.ones(len(labeled)), labeled.ids)
    epochs = job.recipe.teacher_epochs if job.name == "teacher" else job.recipe.student_epochs
    stage = Stage(job.name, job.folder, examples, epochs, order=job.name, parts=job.parts, sharded=job.sharded)
    unseen = ("test",) if job.gold_as_labeled else ("validation", "test")
    measured = {name: splits[name] for name in unseen if name in splits}
    with placed(model, job.device, job.sharded) as here:
        run_stage(stage, here, job.recipe, measured, callbacks)


def _train_auxiliary(job: TrainingJob, model: nn.Module, splits: Mapping[str, Split], callbacks: Callbacks) -> None:
    """Train a model on the labeled rows and the gold rows of all folds but one."""
    assert job.folds is not None
    parts = [splits["labeled"], take_rows(splits["validation"], np.flatnonzero(job.folds != job.fold))]
    labels = torch.cat([part.labels for part in parts if part.labels is not None])
    ids = np.concatenate([part.ids.astype(object) for part in parts])
    examples = Examples(concatenate([part.inputs for part in parts]), labels, torch.ones(len(labels)), ids)
    epochs = job.recipe.teacher_epochs if job.name == "retrained" else job.recipe.student_epochs
    common = (f"{job.name}-{job.fold}", job.folder, examples, epochs, job.name)
    stage = Stage(*common, parts=job.parts, sharded=job.sharded)
    with placed(model, job.device, job.sharded) as here:
        run_stage(stage, here, job.recipe, {}, callbacks)


def _train_pilot(
    job: TrainingJob, lesson: Lesson, model: nn.Module, splits: Mapping[str, Split], callbacks: Callbacks
) -> None:
    """Train the pretrained student on labeled and gold rows, and on its lesson; as an arm is trained, with weights of 1."""
    recipe, gold = job.recipe, [] if job.gold_as_labeled else [splits["validation"]]
    load_pretrained(job, "student", model)
    parts = [splits["labeled"], take_rows(splits["unlabeled"], lesson.rows), *gold]
    labels = [one_hot(part.labels, job.classes).float() for part in (parts[0], *parts[2:]) if part.labels is not None]
    targets = torch.cat([labels[0], torch.from_numpy(lesson.targets).to(labels[0].device), *labels[1:]])
    ids = np.concatenate([part.ids.astype(object) for part in parts])
    examples = Examples(concatenate([part.inputs for part in parts]), targets, torch.ones(len(targets)), ids)
    scale = recipe.temperature**2 if recipe.temperature_squared else 1.0
    common = (job.folder, examples, recipe.epochs, "arm", recipe.temperature, scale)
    stage = Stage(job.name, *common, parts=job.parts, sharded=job.sharded)
    with placed(model, job.device, job.sharded) as here:
        run_stage(stage, here, recipe, {}, callbacks)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
