"""One piece of a run that a process can do by itself: pretrain a model, or train one arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill import checks
from wdistill.arms import AnyRule, folder_of
from wdistill.errors import ConfigError
from wdistill.evidence import Evidence
from wdistill.ledger import Ledger
from wdistill.methods.guards import guarded
from wdistill.methods.lessons import Case, Lesson, Loss
from wdistill.methods.losses import CrossEntropy
from wdistill.methods.teaching import OPINIONS, Teaching
from wdistill.recipe import Recipe
from wdistill.threads import blocks
from wdistill.training import tensors
from wdistill.training.data import Split, on_device, picked
from wdistill.training.inputs import union
from wdistill.training.labels import read_labels
from wdistill.training.losses import soft_cross_entropy
from wdistill.training.opinions import NETWORKS, gold_folds, read_opinion
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
    fold: int | None = None  # of a second opinion, which learns from all gold rows but these
    opinions: tuple[str, ...] = ()  # that an arm may read

    @property
    def folder(self) -> Path:
        if self.fold is not None:
            return self.run / "opinions" / f"{self.name}-{self.fold}"
        return self.run / self.name if self.rule is None else self.run / "arms" / folder_of(self.name)


def do(work: Work, watch: Watch) -> None:
    """Train to the end, or go on from where the ledger stands; the result is in the ledger."""
    with threads(work.recipe.threads):
        device = torch.device(work.device)
        model = work.model.to(device)
        splits = {name: on_device(split, device) for name, split in work.splits.items()}
        if work.rule is not None:
            train_arm(work, work.rule, model, splits, watch)
        elif work.fold is not None:
            train_opinion(work, work.fold, model, splits, watch)
        else:
            pretrain(work, model, splits, watch)


def pretrain(work: Work, model: nn.Module, splits: Mapping[str, Split], watch: Watch) -> None:
    """Line 1 of Algorithm 1: a model on the labeled rows."""
    labeled = splits["labeled"]
    assert labeled.labels is not None
    examples = Examples(labeled.inputs, labeled.labels, torch.ones(len(labeled)), labeled.ids)
    epochs = work.recipe.teacher_epochs if work.name == "teacher" else work.recipe.student_epochs
    stage = Stage(work.name, work.folder, examples, epochs, order=work.name)
    run_stage(stage, model, work.recipe, _measured(splits, splits["validation"]), watch)


def train_opinion(work: Work, fold: int, model: nn.Module, splits: Mapping[str, Split], watch: Watch) -> None:
    """A model on the labeled rows and the gold rows of all folds but one."""
    validation = splits["validation"]
    parts = [splits["labeled"], picked(validation, np.flatnonzero(gold_folds(validation, work.recipe) != fold))]
    labels = torch.cat([part.labels for part in parts if part.labels is not None])
    ids = np.concatenate([part.ids.astype(object) for part in parts])
    examples = Examples(union([part.inputs for part in parts]), labels, torch.ones(len(labels)), ids)
    epochs = work.recipe.teacher_epochs if NETWORKS[work.name] == "teacher" else work.recipe.student_epochs
    stage = Stage(f"{work.name}-{fold}", work.folder, examples, epochs, order=work.name)
    run_stage(stage, model, work.recipe, {}, watch)


def train_arm(work: Work, rule: AnyRule, model: nn.Module, splits: Mapping[str, Split], watch: Watch) -> None:
    """Lines 5 to 10 of Algorithm 1: the pretrained student on the union, with weights that the rule estimates."""
    load_start(work, model)
    taught = (
        _by_method(work, rule, model, splits, watch) if isinstance(rule, Teaching) else _by_rule(work, rule, splits, watch)
    )
    with guiding(work, model, splits["labeled"]) as guide:
        run_stage(replace(taught.stage, guide=guide), model, work.recipe, _measured(splits, taught.weighing), watch)


@dataclass(frozen=True, eq=False)
class Taught:
    """An arm ready to be trained, and the gold rows that its validation accuracy is measured on."""

    stage: Stage
    weighing: Split


def _by_rule(work: Work, rule: AnyRule, splits: Mapping[str, Split], watch: Watch) -> Taught:
    """The teacher's own targets, and weights that may be refreshed."""
    recipe = work.recipe
    weighing, gold = halves(splits["validation"], recipe)
    weigher = _weigher(work, rule, weighing, splits["unlabeled"], watch)
    kept = weigher.validation_teacher[rows_that_weigh(len(splits["validation"]), recipe)]
    weigher = replace(weigher, validation_teacher=kept)
    parts = _parts(splits, gold)
    targets = targets_of(_known(parts), weigher.teacher, recipe, work.classes)
    stage = replace(_arm_stage(work, parts, targets, weigher), gold=recipe.validation_in_training == "yes")
    return Taught(stage, weighing)


def _by_method(work: Work, rule: Teaching, student: nn.Module, splits: Mapping[str, Split], watch: Watch) -> Taught:
    """What the method makes of the pretrained student and the second opinions, decided once but for refreshed weights.

    Methods see predictions at temperature 1; the targets are then taken to the recipe's.
    """
    recipe, validation = work.recipe, splits["validation"]
    weigher = replace(_weigher(work, rule, validation, splits["unlabeled"], watch), temperature=1.0)
    case = _case(work, rule, weigher.evidence(student))
    for found in guarded(case):
        checks.warn(found.text)
    lesson = _lesson(rule, case)
    gold = lesson.gold or recipe.validation_in_training == "yes"
    parts = _parts(splits, validation if gold else None)
    known = [torch.nn.functional.one_hot(labels, work.classes).float() for labels in _known(parts)]
    taught = tempered(lesson.targets, recipe.temperature).astype(np.float32)
    targets = torch.cat([known[0], torch.from_numpy(taught), *known[1:]])
    weigh = lesson.refresh or Given(lesson.weights)
    stage = _arm_stage(work, parts, targets, replace(weigher, rule=weigh, targets=taught))
    own = None if isinstance(lesson.loss, CrossEntropy) else special(lesson.loss, len(parts[0]), len(parts[1]))
    every = 1 if lesson.refresh else None
    return Taught(replace(stage, every=every, loss=own, why=lesson.why, gold=gold), validation)


def known_before(work: Work, watch: Watch) -> Case:
    """What the method of an arm will know: to give advice by."""
    assert isinstance(work.rule, Teaching)
    device = torch.device(work.device)
    gold, rest = (on_device(work.splits[name], device) for name in ("validation", "unlabeled"))
    student = work.model.to(device)
    load_start(work, student)
    weigher = replace(_weigher(work, work.rule, gold, rest, watch), temperature=1.0)
    return _case(work, work.rule, weigher.evidence(student))


def load_start(work: Work, model: nn.Module) -> None:
    """The parameters that all arms begin with: those of the pretrained student."""
    start = Ledger(work.run / "student")
    tensors.load_parameters(model, tensors.from_bytes(start.read("parameters.safetensors"), "student"), "student")


def _case(work: Work, rule: Teaching, seen: Evidence) -> Case:
    """What a method may know: predictions, and the second opinions that it asked for."""
    opinions = {name: read_opinion(work.run / "opinions" / name) for name in work.opinions if name in rule.opinions}
    return Case(seen, opinions, work.recipe.targets, work.recipe.seed % 2**32, work.splits["validation"].same)


def _lesson(rule: Teaching, case: Case) -> Lesson:
    try:
        return rule.method(case)
    except KeyError as error:
        if error.args[0] not in OPINIONS:
            raise
        raise ConfigError(
            "nobody was asked for this opinion",
            where=f"arm {rule.name}",
            found=f"{error.args[0]!r}, which its method asks for",
            expected=f"one of {', '.join(map(repr, case.validation))}",
            remedy=f"name it in Teaching(…, opinions=({error.args[0]!r},)); a teacher that is a table cannot be retrained",
        ) from None


def tempered(distributions: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Distributions (n, K) as a softmax at this temperature has them; one-hot rows stay as they are."""
    if temperature == 1.0:
        return distributions
    powers = (distributions / distributions.max(axis=1, keepdims=True)) ** (1.0 / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _weigher(work: Work, rule: AnyRule, validation: Split, unlabeled: Split, watch: Watch) -> Weigher:
    labels = {name: read_labels(work.run / "labels", name) for name in ("unlabeled", "validation", "labeled")}
    teacher, validation_teacher = labels["unlabeled"], labels["validation"]
    assert teacher is not None and validation_teacher is not None
    return Weigher(
        rule,
        validation,
        unlabeled,
        validation_teacher,
        teacher,
        labels["labeled"],
        work.recipe.temperature,
        work.recipe.precision,
        first=len(work.splits["labeled"]),
        rows=0,
        watch=watch,
    )


def _parts(splits: Mapping[str, Split], gold: Split | None) -> list[Split]:
    """The rows that an arm is trained on: labeled, unlabeled, and gold ones."""
    return [splits["labeled"], splits["unlabeled"], *([] if gold is None else [gold])]


def _known(parts: Sequence[Split]) -> list[Tensor]:
    """The truth of labeled and gold rows."""
    return [part.labels for part in (parts[0], *parts[2:]) if part.labels is not None]


def _arm_stage(work: Work, parts: Sequence[Split], targets: Tensor, weigher: Weigher) -> Stage:
    recipe, rows = work.recipe, sum(len(part) for part in parts)
    weighs = replace(weigher, rows=rows)
    return Stage(
        work.name,
        work.folder,
        Examples(
            union([part.inputs for part in parts]),
            targets,
            torch.ones(rows),
            np.concatenate([part.ids.astype(object) for part in parts]),
        ),
        recipe.epochs,
        order="arm",  # the same for all arms: differences are paired
        temperature=recipe.temperature,
        scale=recipe.temperature**2 if recipe.temperature_squared else 1.0,
        estimate=weighs.estimate,
        restore=weighs.restore,
        every=recipe.refresh,
        trajectory=True,
    )


@dataclass(frozen=True, eq=False)
class Given:
    """A rule that has made up its mind."""

    weights: NDArray[np.float64]  # (n,)
    name = "given"

    def __call__(self, evidence: Evidence) -> NDArray[np.float64]:
        return self.weights


def special(loss: Loss, first: int, n: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A loss for the unlabeled rows, which are n from `first` on; all others have the cross-entropy."""

    def per_example(logits: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        losses = soft_cross_entropy(logits, targets)
        own = torch.nonzero((rows >= first) & (rows < first + n))[:, 0]
        found: Tensor = loss(logits[own].to(losses.dtype), targets[own].to(losses.dtype), rows[own] - first)
        return losses.index_put((own,), found)

    return per_example


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
    return picked(validation, weigh), picked(validation, train)


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
