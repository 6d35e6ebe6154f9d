"""One trial of the leaderboard: fresh rows, teacher and student, and all methods side by side on them.

Every method starts from the same student and sees the same batches of labeled, gold and unlabeled rows; rows that it does
not teach have weight 0.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.lines import packed
from experiments.models import Model, fitted, forest, stacked
from experiments.stacked import Students, predictions, train
from experiments.standings import KEPT
from experiments.tasks import SPLITS, Pool, Task
from wdistill.confidence import Floats
from wdistill.evidence import Evidence
from wdistill.methods.choosing import prospect
from wdistill.methods.folds import Ints, folds_of
from wdistill.methods.guards import guarded
from wdistill.methods.lessons import Case, Lesson, Method, Opinion, one_hot
from wdistill.methods.losses import CrossEntropy
from wdistill.methods.planning import steps
from wdistill.methods.posterior import logs
from wdistill.training.opinions import DIRECTIONS, PLENTY

BATCH = 128
MORE = (400, 1500)  # gold rows from one size of the gold set to the next: what they bring is foretold, and seen


def trial(task: Task, root: Path | None, gold: int, number: int, methods: Mapping[str, Method]) -> dict[str, Any]:
    """Accuracies of all methods on the test rows, with soft and with hard targets, and what was known beforehand."""
    started = time.perf_counter()
    pool = task.pool(root)
    labeled, validation, unlabeled, external = _rows(task, pool, gold, number)
    student = fitted(
        task.student,
        pool.inputs[labeled],
        pool.labels[labeled],
        pool.classes,
        np.ones((1, len(labeled)), bool),
        number,
        task.pretraining,
        rate=task.rate,
    )
    case = known(task, pool, (labeled, validation, unlabeled, external), student, number)
    right: dict[str, dict[str, NDArray[np.bool_]]] = {}
    lessons: dict[str, Lesson] = {}
    for targets in ("soft", "hard") if task.all_methods else ("soft",):
        asked = replace(case, targets=targets)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rules about their gold rows: the lines hold what they say
            lessons = {name: method(asked) for name, method in methods.items()}
        right[targets] = taught_all(task, pool, (labeled, validation, unlabeled), student, asked, lessons, number)
    return {
        "task": task.name,
        "gold": gold,
        "trial": number,
        "settings": {**task.settings, "split": SPLITS[task.half] + number, "seed": number, "batch": BATCH},
        "data": dict(pool.data),
        "rows": {"labeled": len(labeled), "unlabeled": len(unlabeled), "test": len(pool.test_labels)},
        "accuracies": {targets: {name: _percent(each) for name, each in found.items()} for targets, found in right.items()},
        "right": {name: packed(each) for name, each in right["soft"].items() if name in KEPT},
        "before": _accuracy(student, pool),
        "experts": {name: _share(each, pool.labels[unlabeled]) for name, each in case.unlabeled.items()},
        "experts_gold": {name: _share(each, case.labels) for name, each in case.validation.items()},
        "prospect": _prospect(case, pool.labels[unlabeled]),
        "guards": [each.text for each in guarded(case)],
        "why": {name: lesson.why for name, lesson in lessons.items() if lesson.why},
        "seconds": time.perf_counter() - started,
    }


def known(task: Task, pool: Pool, rows: tuple[Ints, Ints, Ints, Ints], student: Students, seed: int) -> Case:
    """Teacher, student and second opinions have spoken."""
    labeled, validation, unlabeled, external = rows
    learning = external if task.external else labeled
    answers = task.teacher(
        pool.seen[learning],
        pool.labels[learning],
        pool.classes,
        np.ones((1, len(learning)), bool),
        seed,
        [pool.seen[validation], pool.seen[unlabeled], pool.seen[labeled]],
    )
    teacher_gold, teacher, teacher_labeled = (each[0] for each in answers)
    student_gold, student_unlabeled = (
        predictions(student, torch.from_numpy(pool.inputs[each]))[0] for each in (validation, unlabeled)
    )
    labels = pool.labels[validation]
    folds = folds_of(labels, seed=seed)
    flat = _features(pool.inputs, unlabeled, np.concatenate([labeled, validation, unlabeled]))
    second = stacked(task.student, task.pretraining, rate=task.rate)
    views: dict[str, tuple[Model, Any]] = {"second": (second, pool.inputs), "forest": (forest, flat)}
    if not task.external:
        views["retrained"] = task.teacher, pool.seen
    opinions = {
        name: _opinion(model, view, pool, (labeled, validation, unlabeled), folds, seed)
        for name, (model, view) in views.items()
    }
    evidence = Evidence(
        labels, teacher_gold, student_gold, teacher, student_unlabeled, teacher_labeled, pool.labels[unlabeled]
    )
    return Case(evidence, opinions, seed=seed)


def taught_all(
    task: Task,
    pool: Pool,
    rows: tuple[Ints, Ints, Ints],
    student: Students,
    case: Case,
    lessons: Mapping[str, Lesson],
    seed: int,
) -> dict[str, NDArray[np.bool_]]:
    """The second stage of all methods at once; which of the test rows (n,) each has right at its end."""
    labeled, validation, unlabeled = rows
    first, classes = len(labeled) + len(validation), pool.classes
    all_lessons, place = distinct(lessons)
    truth = one_hot(pool.labels[np.concatenate([labeled, validation])], classes)
    targets = np.stack([np.concatenate([truth, each.targets]) for each in all_lessons])
    counted = np.stack(
        [np.concatenate([np.ones(len(labeled)), np.full(len(validation), each.gold), each.weights]) for each in all_lessons]
    )
    weights = torch.from_numpy(counted).float()
    students = student.copies(len(all_lessons))

    def refresh(epoch: int, now: Students) -> None:
        asking = [(s, each.refresh) for s, each in enumerate(all_lessons) if each.refresh is not None]
        if not asking or epoch == task.epochs:
            return
        of_gold, of_unlabeled = (predictions(now, torch.from_numpy(pool.inputs[each])) for each in (validation, unlabeled))
        for s, rule in asking:
            seen = replace(case.evidence, validation_student=of_gold[s], student=of_unlabeled[s])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                weights[s, first:] = torch.from_numpy(rule(seen)).float()

    train(
        students,
        torch.from_numpy(pool.inputs[np.concatenate([labeled, validation, unlabeled])]),
        torch.from_numpy(targets).float(),
        weights,
        epochs=task.epochs,
        seed=seed,
        batch=BATCH,
        rate=task.rate,
        losses=[each.loss for each in all_lessons],
        first=first,
        moved=refresh,
    )
    found = predictions(students, torch.from_numpy(pool.test_inputs)).argmax(axis=2) == pool.test_labels
    return {name: found[at] for name, at in place.items()}


def distinct(lessons: Mapping[str, Lesson]) -> tuple[list[Lesson], dict[str, int]]:
    """Lessons that differ, each once, and which of them every method has: the same lesson makes the same student."""
    found: list[Lesson] = []
    place: dict[str, int] = {}
    for name, lesson in lessons.items():
        place[name] = next((i for i, each in enumerate(found) if _same(each, lesson)), len(found))
        if place[name] == len(found):
            found.append(lesson)
    return found, place


def _same(one: Lesson, other: Lesson) -> bool:
    plain = all(isinstance(each.loss, CrossEntropy) and each.refresh is None for each in (one, other))
    alike = np.array_equal(one.targets, other.targets) and np.array_equal(one.weights, other.weights)
    return plain and one.gold == other.gold and alike


def _rows(task: Task, pool: Pool, gold: int, number: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Labeled, gold and unlabeled rows, and those of an external teacher; the labeled ones do not depend on `gold`."""
    order = np.random.default_rng(SPLITS[task.half] + number).permutation(len(pool.labels))
    labeled, external, rest = np.split(order, [task.labeled, task.labeled + task.external])
    return labeled, rest[:gold], rest[gold : gold + task.unlabeled], external


def _opinion(model: Model, view: Any, pool: Pool, rows: tuple[Ints, Ints, Ints], folds: Ints, seed: int) -> Opinion:
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
    mean = np.exp(np.mean([logs(each) for each in of_unlabeled], axis=0))
    return Opinion(of_gold[folds, np.arange(len(folds))], mean / mean.sum(axis=1, keepdims=True))


def _features(inputs: NDArray[np.float32], unlabeled: Ints, used: Ints) -> NDArray[np.float32]:
    """Rows for trees: as they are, or their main directions where they are long; rows that are not used stay 0."""
    flat = inputs.reshape(len(inputs), -1)
    if flat.shape[1] <= PLENTY:
        return flat
    from sklearn.decomposition import PCA

    found = np.zeros((len(flat), DIRECTIONS), np.float32)
    found[used] = PCA(DIRECTIONS, random_state=0).fit(flat[unlabeled[:3000]]).transform(flat[used])
    return found


def _prospect(case: Case, truth: Ints) -> dict[str, float]:
    """What `best` sees before training, and what it would mean for the targets; what more gold is said to bring to them."""
    found = prospect(case, tuple(case.validation))
    corrected = found.posterior(case.unlabeled)
    more = {f"gain_with_{each.more}_more": each.gain for each in steps(case, found, MORE)}
    return {**found.numbers, **more, "corrected": _share(corrected, truth)}


def _accuracy(student: Students, pool: Pool) -> float:
    return _share(predictions(student, torch.from_numpy(pool.test_inputs))[0], pool.test_labels)


def _share(distributions: Floats, truth: Ints) -> float:
    return _percent(distributions.argmax(axis=1) == truth)


def _percent(right: NDArray[np.bool_]) -> float:
    return float(100 * np.mean(right))
