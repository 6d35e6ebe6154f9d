"""One arm: lines 5 to 10 of Algorithm 1, the pretrained student on the union with the weights of its rule or method."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.core import checks
from wdistill.core.errors import bad_value
from wdistill.core.threads import blocks
from wdistill.methods.best import AUXILIARY_MODELS
from wdistill.methods.context import Context, CrossEntropy, Loss, MethodArm, Supervision
from wdistill.methods.guards import check_gold
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.data import Split, take_rows, to_device
from wdistill.training.inputs import Inputs, concatenate, first_rows
from wdistill.training.labels import FOLDED, FOLDED_STUDENT, LABELS, open_stored, read_predictions
from wdistill.training.logits import Logits, is_held, most_likely, whole
from wdistill.training.loop import run_stage, run_stages
from wdistill.training.losses import soft_cross_entropy
from wdistill.training.placed import placed
from wdistill.training.predict import device_of
from wdistill.training.randomness import key, permutation
from wdistill.training.stack import stack_of
from wdistill.training.stage import AuxiliaryLoss, Callbacks, Examples, Stage
from wdistill.training.targets import OneHot, SoftRows
from wdistill.training.vid import vid_auxiliary_loss
from wdistill.training.weigher import Known, Predictions, Weigher
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import PlainFunction, Rule, as_rule

if TYPE_CHECKING:
    from wdistill.training.jobs import TrainingJob

BLOCK = 1 << 12  # rows whose soft targets are computed at once


@dataclass(frozen=True, eq=False)
class PreparedArm:
    """An arm ready to be trained, and the gold rows that its validation accuracy is measured on."""

    stage: Stage
    measured: Split


def train_arm(job: TrainingJob, student: nn.Module, splits: Mapping[str, Split], callbacks: Callbacks) -> None:
    """Train the pretrained student, the same for all arms, on labeled, unlabeled and perhaps gold rows."""
    load_pretrained(job, "student", student)
    with placed(student, job.device, job.sharded) as here:
        arm = _prepare(job, here, splits, callbacks, None)
        with _auxiliary_loss(job, here, splits["labeled"]) as auxiliary_loss:
            stage = replace(arm.stage, auxiliary_loss=auxiliary_loss)
            run_stage(stage, here, job.recipe, _measured(arm, splits), callbacks)


def train_arms(jobs: Sequence[TrainingJob], student: nn.Module, splits: Mapping[str, Split], callbacks: Callbacks) -> None:
    """The same for several arms: those with the same rows as one stack."""
    load_pretrained(jobs[0], "student", student)
    groups, known = list[list[PreparedArm]](), Known()
    for job in jobs:
        arm = _prepare(job, student, splits, callbacks, known)
        same = next((group for group in groups if _same_rows(group[0], arm)), None)
        if same is None:
            groups.append([arm])
        else:
            same.append(_with_inputs(arm, same[0].stage.examples.inputs))
    for arms in groups:
        _train_group(arms, copy.deepcopy(student), jobs[0], splits, callbacks)


def _train_group(
    arms: Sequence[PreparedArm], student: nn.Module, job: TrainingJob, splits: Mapping[str, Split], callbacks: Callbacks
) -> None:
    """Train arms with the same rows, as one stack where that can be."""
    measured, stages = _measured(arms[0], splits), [_with_soft_targets(arm.stage, job.classes) for arm in arms]
    stack = stack_of(student, len(arms), first_rows(splits["validation"].inputs)) if len(arms) > 1 else None
    if stack is not None:
        run_stages(stages, stack, job.recipe, measured, callbacks)
        return
    for arm in arms:
        run_stage(arm.stage, copy.deepcopy(student), job.recipe, measured, callbacks)


def _same_rows(one: PreparedArm, other: PreparedArm) -> bool:
    return np.array_equal(one.stage.examples.ids, other.stage.examples.ids)


def _with_inputs(arm: PreparedArm, inputs: Inputs) -> PreparedArm:
    """The same with inputs that are in memory already."""
    return replace(arm, stage=replace(arm.stage, examples=replace(arm.stage.examples, inputs=inputs)))


def _with_soft_targets(stage: Stage, classes: int) -> Stage:
    """The same with one-hot targets for hard ones, as in a stack all are soft."""
    targets = stage.examples.targets
    if not isinstance(targets, torch.Tensor) or targets.ndim == 2:
        return stage
    held = is_held(len(targets), classes)
    soft = torch.nn.functional.one_hot(targets, classes).float() if held else OneHot(targets, classes)
    return replace(stage, examples=replace(stage.examples, targets=soft))


def _prepare(
    job: TrainingJob, student: nn.Module, splits: Mapping[str, Split], callbacks: Callbacks, known: Known | None
) -> PreparedArm:
    assert job.rule is not None
    if isinstance(job.rule, MethodArm):
        return _prepare_method(job, job.rule, student, splits, callbacks, known)
    return _prepare_rule(job, job.rule, splits, callbacks, known)


def _measured(arm: PreparedArm, splits: Mapping[str, Split]) -> dict[str, Split]:
    """The splits that accuracies are measured on."""
    return {"validation": arm.measured, **({"test": splits["test"]} if "test" in splits else {})}


def read_context(job: TrainingJob, callbacks: Callbacks) -> Context:
    """The context of an arm's method before the second stage, for advice."""
    device = torch.device(job.device)
    gold, unlabeled = (to_device(job.splits[name], device) for name in ("validation", "unlabeled"))
    load_pretrained(job, "student", job.model)
    weigher = _weigher(job, _no_rule, gold, unlabeled, 1.0, callbacks, None)
    with placed(job.model, device, job.sharded) as student:
        return _context(job, getattr(job.rule, "auxiliary", ()), weigher.evidence(student))


def _prepare_rule(
    job: TrainingJob, rule: Rule[...], splits: Mapping[str, Split], callbacks: Callbacks, known: Known | None
) -> PreparedArm:
    """The teacher's own targets, and weights that may be refreshed."""
    recipe, validation = job.recipe, splits["validation"]
    weighing, gold = split_gold(validation, recipe) if not job.gold_as_labeled else (validation, None)
    weigher = _weigher(job, rule, weighing, splits["unlabeled"], recipe.temperature, callbacks, known)
    teacher_gold = weigher.validation_teacher[rows_that_weigh(len(validation), recipe)]
    parts = _parts(splits, gold)
    targets = _teacher_targets(_labels(parts), weigher.teacher, recipe)
    stage = _stage(job, parts, targets, replace(weigher, validation_teacher=teacher_gold))
    return PreparedArm(replace(stage, gold=recipe.validation_in_training == "yes" or job.gold_as_labeled), weighing)


def _prepare_method(
    job: TrainingJob,
    rule: MethodArm,
    student: nn.Module,
    splits: Mapping[str, Split],
    callbacks: Callbacks,
    known: Known | None,
) -> PreparedArm:
    """The supervision of the method, computed once with the pretrained student; only its weights may be refreshed.

    Methods get predictions at temperature 1; their targets are then brought to the recipe's temperature.
    """
    recipe, validation = job.recipe, splits["validation"]
    weigher = _weigher(job, _no_rule, validation, splits["unlabeled"], 1.0, callbacks, known)
    context = _context(job, rule.auxiliary, weigher.evidence(student))
    for concern in check_gold(context):
        checks.warn(concern.text)
    supervision = _supervision(rule, context)
    gold = supervision.gold or recipe.validation_in_training == "yes" or job.gold_as_labeled
    parts = _parts(splits, validation if gold and not job.gold_as_labeled else None)
    labels = [torch.nn.functional.one_hot(part_labels, job.classes).float() for part_labels in _labels(parts)]
    soft = tempered(supervision.targets, recipe.temperature).astype(np.float32)
    targets = torch.cat([labels[0], torch.from_numpy(soft), *labels[1:]])
    fixed = Rule(PlainFunction(lambda evidence: supervision.weights, zeros=True), needs=())
    weigh = as_rule(supervision.refresh) if supervision.refresh else fixed
    stage = _stage(job, parts, targets, replace(weigher, rule=weigh, targets=soft))
    plain = isinstance(supervision.loss, CrossEntropy)
    loss = None if plain else LossOnUnlabeled(supervision.loss, len(parts[0]), len(parts[1]))
    every = 1 if supervision.refresh else None
    return PreparedArm(replace(stage, every=every, loss=loss, why=supervision.why, gold=gold), validation)


@as_rule
def _no_rule(evidence: Evidence) -> NDArray[np.float64]:
    """A placeholder for a method that has not run yet; it is never called."""
    raise NotImplementedError


def _context(job: TrainingJob, auxiliary: Sequence[str], evidence: Evidence) -> Context:
    """The input of a method: predictions, also of the auxiliary models that it uses."""
    models = {name: read_predictions(job.run / "auxiliary" / name) for name in job.auxiliary if name in auxiliary}
    seed, gold = job.recipe.seed % 2**32, job.splits["validation"]
    return Context(
        evidence,
        models,
        job.recipe.targets,
        seed,
        gold.same,
        job.recipe.targets_from,
        job.gold_as_labeled,
        gold.design.weights,
        gold.design.groups,
        job.metric,
    )


def _supervision(rule: MethodArm, context: Context) -> Supervision:
    try:
        return rule.method(context)
    except KeyError as error:
        if error.args[0] not in AUXILIARY_MODELS:
            raise
        name = repr(error.args[0])
        what, expected = "no predictions of this auxiliary model", f"one of {', '.join(map(repr, context.validation))}"
        remedy = f"name it in MethodArm(…, auxiliary=({name},)); a teacher that is a table cannot be retrained"
        raise bad_value(what, f"arm {rule.name}", f"{name}, which its method uses", expected, remedy) from None


def tempered(distributions: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Distributions (n, K) as of a softmax at this temperature; one-hot rows are unchanged."""
    if temperature == 1.0:
        return distributions
    powers = (distributions / distributions.max(axis=1, keepdims=True)) ** (1.0 / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _weigher(
    job: TrainingJob,
    rule: Rule[...],
    validation: Split,
    unlabeled: Split,
    temperature: float,
    callbacks: Callbacks,
    known: Known | None,
) -> Weigher:
    logits = open_stored(job.run, LABELS, job.splits, job.classes)
    return Weigher(
        rule,
        validation,
        unlabeled,
        whole(logits["validation"]),
        logits["unlabeled"],
        logits.get("labeled"),
        temperature,
        job.recipe.precision,
        first=len(job.splits["labeled"]),
        rows=0,
        callbacks=callbacks,
        known=known,
        out_of_fold=_out_of_fold(job),
    )


def _out_of_fold(job: TrainingJob) -> Predictions | None:
    """Logits of gold and unlabeled rows by the students of the folds; None where the student has not seen the gold rows."""
    if FOLDED_STUDENT not in job.auxiliary:
        return None
    logits = open_stored(job.run, FOLDED, job.splits, job.classes)
    return logits["validation"], logits["unlabeled"]


def _parts(splits: Mapping[str, Split], gold: Split | None) -> list[Split]:
    """The rows that an arm is trained on: labeled, unlabeled, and gold ones."""
    return [splits["labeled"], splits["unlabeled"], *([] if gold is None else [gold])]


def _labels(parts: Sequence[Split]) -> list[Tensor]:
    """The truth of labeled and gold rows."""
    return [part.labels for part in (parts[0], *parts[2:]) if part.labels is not None]


def _stage(job: TrainingJob, parts: Sequence[Split], targets: Tensor | SoftRows, weigher: Weigher) -> Stage:
    recipe, rows = job.recipe, sum(len(part) for part in parts)
    ids = np.concatenate([part.ids.astype(object) for part in parts])
    weigher = replace(weigher, rows=rows)
    return Stage(
        job.name,
        job.folder,
        Examples(concatenate([part.inputs for part in parts]), targets, torch.ones(rows), ids),
        recipe.epochs,
        order="arm",  # the same for all arms: differences are paired
        temperature=recipe.temperature,
        scale=recipe.temperature**2 if recipe.temperature_squared else 1.0,
        estimate=weigher.estimate,
        restore=weigher.restore,
        every=recipe.refresh,
        metric=job.metric,
        parts=job.parts,
        sharded=job.sharded,
        trajectory=True,
    )


@dataclass(frozen=True)
class LossOnUnlabeled:
    """A loss for the unlabeled rows, which are `count` from `first` on; all others have the cross-entropy."""

    loss: Loss
    first: int
    count: int

    def __call__(self, logits: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        losses = soft_cross_entropy(logits, targets)
        at = torch.nonzero((rows >= self.first) & (rows < self.first + self.count))[:, 0]
        wide = logits[at].to(losses.dtype), targets[at].to(losses.dtype)
        on_unlabeled: Tensor = self.loss(*wide, rows[at] - self.first)
        return losses.index_put((at,), on_unlabeled)


def _auxiliary_loss(job: TrainingJob, student: nn.Module, labeled: Split) -> AbstractContextManager[AuxiliaryLoss | None]:
    """The loss of an arm besides the cross-entropy: none, or the VID of its recipe, with the run's teacher."""
    if not job.recipe.vid:
        return nullcontext()
    assert job.teacher is not None
    teacher = job.teacher.to(device_of(student))
    load_pretrained(job, "teacher", teacher)
    return vid_auxiliary_loss(job.recipe, student, teacher, labeled.inputs)


def load_pretrained(job: TrainingJob, name: str, model: nn.Module) -> None:
    """Load the parameters at the end of pretraining into a model."""
    parameters = CheckpointStore(job.run / name).read("parameters.safetensors")
    tensors.load_parameters(model, tensors.from_bytes(parameters, name), name)


def _teacher_targets(labels: list[Tensor], teacher: Logits, recipe: Recipe) -> Tensor | SoftRows:
    """The student's targets: the truth on labeled and gold rows, the teacher's on the unlabeled ones between them."""
    if recipe.targets == "hard":
        return torch.cat([labels[0], torch.from_numpy(most_likely(teacher)), *labels[1:]])
    soft = SoftRows(labels[0], teacher, torch.cat([labels[0][:0], *labels[1:]]), recipe.temperature)
    if not is_held(*teacher.shape):
        return soft
    rows = torch.arange(len(soft))  # float64 inside, and never all of it at once
    return torch.cat([soft.rows(rows[part]) for part in blocks(len(soft), BLOCK)])


def rows_that_weigh(m: int, recipe: Recipe) -> NDArray[np.int64]:
    """All gold rows, or with validation_in_training = half a random half of them."""
    if recipe.validation_in_training != "half":
        return np.arange(m)
    return np.sort(permutation(m, key(recipe.seed, "half")).numpy()[: (m + 1) // 2])


def split_gold(validation: Split, recipe: Recipe) -> tuple[Split, Split | None]:
    """The gold rows that weights are estimated from, and those that the student is trained on."""
    if recipe.validation_in_training == "no":
        return validation, None
    if recipe.validation_in_training == "yes":
        return validation, validation
    weigh = rows_that_weigh(len(validation), recipe)
    train = np.setdiff1d(np.arange(len(validation)), weigh)
    return take_rows(validation, weigh), take_rows(validation, train)
