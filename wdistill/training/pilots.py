"""Pilot students of a run: trained before any arm, on a part of the unlabeled rows, to forecast what `best` will gain."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wdistill.core.progress import say
from wdistill.methods.context import Context, supervise
from wdistill.methods.pilots import PilotPredictions, pilot_rows
from wdistill.methods.targets import Targets
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training import tensors
from wdistill.training.arm import tempered
from wdistill.training.data import take_rows
from wdistill.training.jobs import Lesson, TrainingJob, arm_job
from wdistill.training.placed import placed
from wdistill.training.predict import predict
from wdistill.weights.equations import probabilities

if TYPE_CHECKING:
    from wdistill.training.prepare import Prepared
    from wdistill.training.run import Run

PLAIN, CORRECTED = "plain", "corrected"  # taught the teacher's targets, or those of `best`
RunJobs = Callable[[Sequence[TrainingJob]], None]


def announce_pilots(run: Run, prepared: Prepared, arm: str) -> None:
    """Say before anything is trained what pilots will take."""
    taught, _ = pilot_rows(len(prepared.splits["unlabeled"]), run.recipe.seed)
    epochs = arm_job(run, prepared, arm).recipe.epochs
    say(
        f"before any arm, two pilot students will learn {len(taught):,} of the unlabeled rows for {epochs} epochs, "
        "as long as 1.5 arms take; the run keeps them"
    )


def train_pilots(
    run: Run, prepared: Prepared, arm: str, context: Context, targets: Targets, run_jobs: RunJobs
) -> PilotPredictions:
    """Train both pilots, or take those that the run has; what they predict for the rows that neither has seen."""
    corrected = targets(context.unlabeled)
    taught, judged = pilot_rows(len(corrected), context.seed)
    job = arm_job(run, prepared, arm)
    jobs = {
        name: _pilot(job, name, Lesson(taught, _of_recipe(job, each, context)[taught]))
        for name, each in ((PLAIN, context.unlabeled["teacher"]), (CORRECTED, corrected))
    }
    run_jobs(list(jobs.values()))
    return PilotPredictions(corrected[judged], *(_predictions(jobs[name], judged) for name in (PLAIN, CORRECTED)))


def _of_recipe(job: TrainingJob, distributions: NDArray[np.float64], context: Context) -> NDArray[np.float32]:
    """Targets as the recipe teaches them: soft or hard, at its temperature."""
    return tempered(supervise(distributions, context).targets, job.recipe.temperature).astype(np.float32)


def _pilot(job: TrainingJob, name: str, lesson: Lesson) -> TrainingJob:
    return replace(job, name=name, rule=None, teacher=None, model=copy.deepcopy(job.model), lesson=lesson)


def _predictions(job: TrainingJob, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probabilities (n, K) of a trained pilot for some of the unlabeled rows."""
    parameters = CheckpointStore(job.folder).read("parameters.safetensors")
    tensors.load_parameters(job.model, tensors.from_bytes(parameters, job.name), job.name)
    with placed(job.model, job.device, job.sharded) as student:
        logits = predict(student, take_rows(job.splits["unlabeled"], rows).inputs, job.recipe.precision)
    return probabilities(logits, "logits")
