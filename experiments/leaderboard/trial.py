"""One trial of the leaderboard: fresh rows, teacher and student, and all methods side by side on them.

Every method starts from the same student and sees the same batches of labeled, gold and unlabeled rows; rows that it does
not teach have weight 0.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.lab.results import packed
from experiments.leaderboard.models import Model, fitted, forest, stacked
from experiments.leaderboard.pools import Pool
from experiments.leaderboard.stacked import Students, predictions, train
from experiments.leaderboard.statistics import KEPT
from experiments.leaderboard.tasks import Task
from wdistill.methods.best import correct_targets
from wdistill.methods.context import AuxiliaryPredictions, Context, CrossEntropy, Loss, Method, Supervision, one_hot
from wdistill.methods.crossfit import Ints, combine_folds, folds_of, normalized_exp
from wdistill.methods.gold_plan import steps
from wdistill.methods.guards import check_gold
from wdistill.training.arm import LossOnUnlabeled
from wdistill.weights.confidence import Floats
from wdistill.weights.evidence import Evidence

BATCH = 128
MORE = (400, 1500)  # gold rows from one size of the gold set to the next: the gain is projected, and observed


def trial(task: Task, root: Path | None, gold: int, number: int, methods: Mapping[str, Method]) -> dict[str, Any]:
    """Accuracies of all methods on the test rows, with soft and with hard targets, and what was known beforehand."""
    started = time.perf_counter()
    pool = task.pool(root)
    labeled, validation, unlabeled, external = split_rows(task, pool, gold, number)
    plain, rows = np.ones((1, len(labeled)), bool), (pool.inputs[labeled], pool.labels[labeled], pool.classes)
    student = fitted(task.student, *rows, plain, number, task.pretraining, rate=task.rate)
    context = context_of(task, pool, (labeled, validation, unlabeled, external), student, number)
    truth = pool.test_labels
    predicted: dict[str, dict[str, Ints]] = {}
    supervisions: dict[str, Supervision] = {}
    for targets in ("soft", "hard") if task.all_methods else ("soft",):
        context = replace(context, targets=targets)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rules about their gold rows: the lines hold what they say
            supervisions = {name: method(context) for name, method in methods.items()}
        predicted[targets] = train_all(task, pool, (labeled, validation, unlabeled), student, context, supervisions, number)
    return {
        "task": task.name,
        "gold": gold,
        "trial": number,
        "settings": {**task.settings, "frozen": task.frozen, "split": task.splits + number, "seed": number, "batch": BATCH},
        "data": dict(pool.data),
        "rows": {"labeled": len(labeled), "unlabeled": len(unlabeled), "test": len(truth)},
        "accuracies": {by: {name: _percent(each == truth) for name, each in arms.items()} for by, arms in predicted.items()},
        "macro_f1": {by: {name: macro_f1(each, truth) for name, each in arms.items()} for by, arms in predicted.items()},
        "right": {name: packed(each == truth) for name, each in predicted["soft"].items() if name in KEPT},
        "before": _accuracy(student, pool),
        "experts": {name: _share(each, pool.labels[unlabeled]) for name, each in context.unlabeled.items()},
        "experts_gold": {name: _share(each, context.labels) for name, each in context.validation.items()},
        "prospect": _prospect(context, pool.labels[unlabeled]),
        "guards": [each.text for each in check_gold(context)],
        "why": {name: each.why for name, each in supervisions.items() if each.why},
        "seconds": time.perf_counter() - started,
    }


def context_of(task: Task, pool: Pool, rows: tuple[Ints, Ints, Ints, Ints], student: Students, seed: int) -> Context:
    """Predictions of teacher, student and auxiliary models: all that a method may know."""
    labeled, validation, unlabeled, external = rows
    learning = external if task.external else labeled
    train_rows = pool.seen[learning], pool.labels[learning], pool.classes, np.ones((1, len(learning)), bool)
    read = task.teacher(*train_rows, seed, [pool.seen[part] for part in (validation, unlabeled, labeled)])
    teacher_gold, teacher, teacher_labeled = (each[0] for each in read)
    inputs = [torch.from_numpy(pool.inputs[part]) for part in (validation, unlabeled)]
    student_gold, student_unlabeled = (predictions(student, each)[0] for each in inputs)
    labels = pool.labels[validation]
    folds = folds_of(labels, seed=seed)
    second = stacked(task.student, task.pretraining, rate=task.rate)
    views: dict[str, tuple[Model, Any]] = {"second": (second, pool.inputs), "forest": (forest, pool.inputs)}
    if not task.frozen:
        views["retrained"] = task.teacher, pool.seen
    parts, truth = (labeled, validation, unlabeled), pool.labels[unlabeled]
    auxiliary = {name: _auxiliary(*each, pool, parts, folds, seed) for name, each in views.items()}
    evidence = Evidence(labels, teacher_gold, student_gold, teacher, student_unlabeled, teacher_labeled, truth)
    return Context(evidence, auxiliary, seed=seed)


def train_all(
    task: Task,
    pool: Pool,
    rows: tuple[Ints, Ints, Ints],
    student: Students,
    context: Context,
    supervisions: Mapping[str, Supervision],
    seed: int,
) -> dict[str, Ints]:
    """The second stage of all methods at once; the classes of the test rows (n,) that each predicts at its end."""
    labeled, validation, unlabeled = rows
    first = len(labeled) + len(validation)
    different, place = distinct(supervisions)
    targets, weights = taught(pool, rows, different)
    students = student.copies(len(different))

    def refreshed(rule: Callable[[Evidence], Floats], before: torch.Tensor, student: Students) -> torch.Tensor:
        of_gold, of_unlabeled = (
            predictions(student, torch.from_numpy(pool.inputs[each]))[0] for each in (validation, unlabeled)
        )
        evidence = replace(context.evidence, validation_student=of_gold, student=of_unlabeled)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.cat([before[:first], torch.from_numpy(rule(evidence)).float()])

    rules = [each.refresh for each in different]
    train(
        students,
        torch.from_numpy(pool.inputs[np.concatenate([labeled, validation, unlabeled])]),
        targets,
        weights,
        epochs=task.epochs,
        seed=seed,
        batch=BATCH,
        rate=task.rate,
        losses=[loss_from(first, each.loss, len(unlabeled)) for each in different],
        refreshes=[rule and partial(refreshed, rule, own) for rule, own in zip(rules, weights, strict=True)],
    )
    predicted = predictions(students, torch.from_numpy(pool.test_inputs)).argmax(axis=2)
    return {name: predicted[at] for name, at in place.items()}


def loss_from(first: int, loss: Loss, count: int) -> LossOnUnlabeled | None:
    """A method's loss of the unlabeled rows, which are so many from `first` on; None where it is that of all others."""
    return None if isinstance(loss, CrossEntropy) else LossOnUnlabeled(loss, first, count)


def taught(
    pool: Pool, rows: tuple[Ints, Ints, Ints], supervisions: Sequence[Supervision]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets (S, n, K) and weights (S, n) of labeled, gold and unlabeled rows, for students side by side."""
    labeled, validation, _ = rows
    truth = one_hot(pool.labels[np.concatenate([labeled, validation])], pool.classes)
    targets = np.stack([np.concatenate([truth, each.targets]) for each in supervisions])
    ones, gold = np.ones(len(labeled)), np.ones(len(validation))
    weights = np.stack([np.concatenate([ones, each.gold * gold, each.weights]) for each in supervisions])
    return torch.from_numpy(targets).float(), torch.from_numpy(weights).float()


def distinct(supervisions: Mapping[str, Supervision]) -> tuple[list[Supervision], dict[str, int]]:
    """Supervisions that differ, each once, and which of them every method has: the same one makes the same student."""
    different: list[Supervision] = []
    place: dict[str, int] = {}
    for name, new in supervisions.items():
        place[name] = next((i for i, each in enumerate(different) if _same(each, new)), len(different))
        if place[name] == len(different):
            different.append(new)
    return different, place


def _same(one: Supervision, other: Supervision) -> bool:
    plain = all(isinstance(each.loss, CrossEntropy) and each.refresh is None for each in (one, other))
    alike = np.array_equal(one.targets, other.targets) and np.array_equal(one.weights, other.weights)
    return plain and one.gold == other.gold and alike


def split_rows(task: Task, pool: Pool, gold: int, number: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Labeled, gold and unlabeled rows, and those of an external teacher; the labeled ones do not depend on `gold`."""
    order = np.random.default_rng(task.splits + number).permutation(len(pool.labels))
    labeled, external, rest = np.split(order, [task.labeled, task.labeled + task.external])
    return labeled, rest[:gold], rest[gold : gold + task.unlabeled], external


def _auxiliary(
    model: Model, view: Any, pool: Pool, rows: tuple[Ints, Ints, Ints], folds: Ints, seed: int
) -> AuxiliaryPredictions:
    """Of models that learned from labeled and gold rows, a fold left out of each; of unlabeled rows, their mean log."""
    labeled, validation, unlabeled = rows
    learning = np.concatenate([labeled, validation])
    count = int(folds.max()) + 1
    kept = np.ones((count, len(learning)), bool)
    for fold in range(count):
        kept[fold, len(labeled) :] = folds != fold
    of_gold, of_unlabeled = model(
        view[learning], pool.labels[learning], pool.classes, kept, seed, [view[validation], view[unlabeled]]
    )
    return AuxiliaryPredictions(*(normalized_exp(combine_folds(*each)) for each in ((of_gold, folds), (of_unlabeled,))))


def _prospect(context: Context, truth: Ints) -> dict[str, float]:
    """What `best` sees before training, and what it would mean for the targets; the gain projected for more gold."""
    correction = correct_targets(context)
    corrected = correction.targets.of(context.unlabeled)
    more = {f"gain_with_{each.more}_more": each.gain for each in steps(context, correction, MORE)}
    return {**correction.gain.numbers, **more, "corrected": _share(corrected, truth)}


def _accuracy(student: Students, pool: Pool) -> float:
    return _share(predictions(student, torch.from_numpy(pool.test_inputs))[0], pool.test_labels)


def _share(distributions: Floats, truth: Ints) -> float:
    return _percent(distributions.argmax(axis=1) == truth)


def macro_f1(predicted: Ints, truth: Ints) -> float:
    """Mean over the classes that the truth has of 2 · right / (predicted + true), in percent."""
    masks = [(predicted == k, truth == k) for k in np.unique(truth)]
    return float(100 * np.mean([2 * np.sum(said & true) / (said.sum() + true.sum()) for said, true in masks]))


def _percent(right: NDArray[np.bool_]) -> float:
    return float(100 * np.mean(right))
