"""`distill`: Algorithm 1 of the paper from beginning to end, in one folder, resumable at any moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import nn

from wdistill.methods import advice
from wdistill.methods.advice import Advice
from wdistill.methods.best import best
from wdistill.methods.costs import Prices
from wdistill.methods.crossfit import need_sklearn
from wdistill.methods.metric_text import metric_of
from wdistill.methods.pilots import PilotPredictions
from wdistill.methods.questions import WITHIN, Questions
from wdistill.methods.targets import Targets
from wdistill.runs.recipe import Recipe
from wdistill.training.arm import read_context
from wdistill.training.auxiliary import auxiliary_jobs, predict_auxiliary
from wdistill.training.followers import led
from wdistill.training.jobs import TrainingJob, arm_job, arm_jobs, pretraining_jobs
from wdistill.training.judging import judge_students
from wdistill.training.labels import FOLDED, FOLDED_STUDENT, LABELS, file_stored, label_splits
from wdistill.training.pilots import train_pilots
from wdistill.training.prepare import Prepared, prepare
from wdistill.training.run import Report, Run, open_run
from wdistill.training.stage import Callbacks

Model = nn.Module | Callable[[], nn.Module]
StoredPredictions = Mapping[str, Any] | str | Path | Sequence[str | Path]
RunJobs = Callable[[Sequence[TrainingJob]], None]


@led
def distill(
    teacher: Model | StoredPredictions,
    student: Model,
    labeled: Any = None,
    validation: Any = None,
    unlabeled: Any = None,
    test: Any = None,
    *,
    rule: Any = None,
    recipe: Recipe | None = None,
    run: str | Path | None = None,
) -> Report:
    """Train teacher and student on the labeled rows, let the teacher label the unlabeled ones, weigh, train the student.

    `teacher`: a module, a function that makes one, or stored predictions: arrays by split, or files joined by row id.
    `student`: a module or a function that makes one. Neither is changed; the trained students are in the report.
    `labeled`, `validation`, `test`: pairs (inputs, labels), or Data. `unlabeled`: inputs; with labels where the truth is
    known, for the oracle and the report. Without `labeled` rows, as with an LLM as teacher, the gold rows (`validation`) are
    trained on in their place, and weights and targets are estimated from students that have not seen the row they predict.
    `rule`: a rule, several as a list, or by name in a dict, each an arm of its own; None: those that the recipe names.
    An arm may have settings of its own: {"once": debiased, "refreshed": arm(debiased, refresh=1)}.
    `run`: a folder that keeps everything. The same call resumes it, however it ended; None: nothing is kept.
    """
    with open_run(rule, recipe, run) as this_run:
        return train_arms(this_run, prepare(this_run, teacher, student, labeled, validation, unlabeled, test))


def train_arms(run: Run, prepared: Prepared) -> Report:
    """All of Algorithm 1 on prepared inputs, or what is left of it."""
    if not run.is_finished():
        with run.working() as (run_jobs, callbacks):
            prepared = _before_the_arms(run, prepared, run_jobs, callbacks)
            run_jobs(arm_jobs(run, prepared))  # lines 5 to 10 of Algorithm 1
            run.remember()
            judge_students(run, prepared, callbacks)
        run.finish()
    return run.report(prepared.student)


@led
def advise(
    teacher: Model | StoredPredictions,
    student: Model,
    labeled: Any = None,
    validation: Any = None,
    unlabeled: Any = None,
    test: Any = None,
    *,
    rule: Any = best,
    recipe: Recipe | None = None,
    run: str | Path | None = None,
    metric: str | NDArray[Any] | None = None,
    within: float = WITHIN,
    prices: Prices | None = None,
    serve: int | None = None,
) -> Advice:
    """The verdict before the second stage: teacher, student and auxiliary models are trained, and predict.

    Two pilot students are trained on three quarters of the unlabeled rows, to forecast what a student gains; they take
    about as long as one and a half arms. The arguments are those of `distill`, among whose arms must be `best`. With the
    same arguments and the same `run`, `distill` resumes from here. `metric`: the recipe's, unless given: macro-f1, f1:1
    and others, or an array of costs (docs/advise.md). `within`: gold rows are counted for ± so many points. `prices`,
    `serve`: what it costs to serve so many rows.
    """
    need_sklearn("advise")
    questions = Questions(within, prices, serve)
    with open_run(rule, recipe, run) as this_run:
        arm = this_run.arm_with_auxiliary()
        prepared = prepare(this_run, teacher, student, labeled, validation, unlabeled, test)
        judging = prepared.metric if metric is None else metric_of(metric, prepared.class_names)
        with this_run.working() as (run_jobs, callbacks):
            prepared = _before_the_arms(this_run, prepared, run_jobs, callbacks)
            context = read_context(arm_job(this_run, prepared, arm), callbacks)

            def pilots(targets: Targets) -> PilotPredictions:
                return train_pilots(this_run, prepared, arm, context, targets, run_jobs)

            return advice.advise(context, prepared.concerns, pilots, judging, questions)


def _before_the_arms(run: Run, prepared: Prepared, run_jobs: RunJobs, callbacks: Callbacks) -> Prepared:
    """Lines 1 to 4 of Algorithm 1, and the auxiliary models that arms look at."""
    prepared = prepared.with_auxiliary(run.arms, run.recipe)
    run_jobs(pretraining_jobs(run, prepared))  # line 1: teacher and student on the labeled rows
    run.remember()
    with run.timed("labels"):
        label_splits(run, prepared, callbacks)  # lines 2 to 4: the teacher labels
        file_stored(run.folder, LABELS, prepared.splits, prepared.classes)
    if prepared.auxiliary:
        run_jobs(auxiliary_jobs(run, prepared))
        with run.timed("auxiliary"):
            predict_auxiliary(run, prepared, callbacks)
    if FOLDED_STUDENT in prepared.auxiliary:
        file_stored(run.folder, FOLDED, prepared.splits, prepared.classes)
    run.remember_accuracies(prepared)
    return replace(prepared, tables=None)  # they are stored as labels
