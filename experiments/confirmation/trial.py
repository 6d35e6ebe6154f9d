"""One trial: fresh rows, teacher and student, all arms trained side by side, and pilot students that forecast them.

All arms start from one student and see the same batches. Fine-tuning goes on from unweighted + gold, on labeled and gold
rows alone. Ramped doubly robust: the loss of the pool, plus λ times the gold rows' loss on their labels minus that on the
teacher's targets, as much as the pool is larger; λ grows from 0 to 1 with the epochs.

Forecasts keep the width of their intervals that was frozen before any trial, so that all lines are judged alike.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.confirmation.rivals import BASE, DOUBLY_ROBUST, FINE_TUNED, arms_of
from experiments.confirmation.widths import FROZEN
from experiments.leaderboard.models import fitted
from experiments.leaderboard.pools import Pool
from experiments.leaderboard.stacked import Students, predictions, train
from experiments.leaderboard.tasks import Task
from experiments.leaderboard.trial import BATCH, context_of, loss_from, split_rows, taught
from wdistill.methods.best import correct_targets
from wdistill.methods.context import Context, Supervision, one_hot, supervise
from wdistill.methods.crossfit import Ints
from wdistill.methods.metric import PLAIN
from wdistill.methods.pilots import PilotPredictions, forecast, pilot_rows
from wdistill.methods.statistics import Interval
from wdistill.training.losses import soft_cross_entropy
from wdistill.weights.confidence import Floats

TUNED = 0.5  # epochs of fine-tuning, as a share of those before
SLOWER = 0.1  # its rate, as a share of that before


def trial(task: Task, root: Path | None, gold: int, number: int) -> dict[str, Any]:
    """Accuracy and macro-F1 of all arms on the test rows, and what was known beforehand."""
    started = time.perf_counter()
    pool = task.pool(root)
    labeled, validation, unlabeled, external = split_rows(task, pool, gold, number)
    rows = labeled, validation, unlabeled
    first = pool.inputs[labeled], pool.labels[labeled], pool.classes, np.ones((1, len(labeled)), bool)
    student = fitted(task.student, *first, number, task.pretraining, rate=task.rate)
    context = context_of(task, pool, (*rows, external), student, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rules about their gold rows
        arms, correction = arms_of(context), correct_targets(context)
    trained = train_arms(task, pool, rows, student, context, arms, number)
    tested, pooled = (torch.from_numpy(each) for each in (pool.test_inputs, pool.inputs[unlabeled]))
    predicted = {name: predictions(each, tested)[0] for name, each in trained.items()}
    corrected, truth = correction.targets.of(context.unlabeled), pool.labels[unlabeled]
    after = PilotPredictions(corrected, *(predictions(trained[name], pooled)[0] for name in (BASE, "best")))
    return {
        "task": task.name,
        "gold": gold,
        "trial": number,
        "settings": {**task.settings, "frozen": task.frozen, "split": task.splits + number, "seed": number, "batch": BATCH},
        "data": dict(pool.data),
        "rows": {"labeled": len(labeled), "unlabeled": len(unlabeled), "test": len(pool.test_labels)},
        **{
            metric.replace("-", "_"): {name: 100 * PLAIN[metric](each, pool.test_labels) for name, each in predicted.items()}
            for metric in ("accuracy", "macro-f1")
        },
        "forecast": {
            targets: {metric: numbers_of(forecast(each, PLAIN[metric], FROZEN)) for metric in ("accuracy", "macro-f1")}
            for targets, each in train_pilots(task, pool, rows, student, context, corrected, number).items()
        },
        "after": {metric: numbers_of(forecast(after, PLAIN[metric], FROZEN)) for metric in ("accuracy", "macro-f1")},
        "targets": {
            "teacher": _accuracy(context.unlabeled["teacher"], truth),
            "corrected": _accuracy(corrected, truth),
            **correction.gain.numbers,
        },
        "experts": {name: _accuracy(each, truth) for name, each in context.unlabeled.items()},
        "why": correction.why,
        "seconds": time.perf_counter() - started,
    }


@dataclass(eq=False)
class Ramp:
    """The ramped doubly robust loss: the cross-entropy with targets that move by a growing share of their whole shift."""

    shift: Tensor  # (n, K)
    epochs: int
    done: int = 0

    def after_epoch(self, epoch: int) -> None:
        self.done = epoch

    def __call__(self, logits: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        return soft_cross_entropy(logits, targets + self.done / self.epochs * self.shift[rows])


def train_arms(
    task: Task,
    pool: Pool,
    rows: tuple[Ints, Ints, Ints],
    student: Students,
    context: Context,
    arms: Mapping[str, Supervision],
    seed: int,
) -> dict[str, Students]:
    """The trained student of every arm."""
    labeled, validation, unlabeled = rows
    names = [*arms, DOUBLY_ROBUST]
    lessons = [*arms.values(), arms[BASE]]
    targets, weights = taught(pool, rows, lessons)
    start, stop, ratio = len(labeled), len(labeled) + len(validation), len(unlabeled) / len(validation)
    shift = torch.zeros_like(targets[-1])
    shift[start:stop] = torch.from_numpy(one_hot(pool.labels[validation], pool.classes) - context.validation["teacher"])
    ramp = Ramp(ratio * shift, task.epochs)
    students = student.copies(len(names))
    inputs = torch.from_numpy(pool.inputs[np.concatenate(rows)])
    common: dict[str, Any] = {"seed": seed, "batch": BATCH}
    losses = [*(loss_from(stop, each.loss, len(unlabeled)) for each in arms.values()), ramp]
    settings = {"epochs": task.epochs, "rate": task.rate, **common}
    train(students, inputs, targets, weights, losses=losses, after_epoch=ramp.after_epoch, **settings)
    trained = {name: students.one(place) for place, name in enumerate(names)}
    tuned = trained[BASE].copies(1)
    clean = slice(0, stop)
    epochs = max(1, round(TUNED * task.epochs))
    train(tuned, inputs[clean], targets[:1, clean], torch.ones(1, stop), epochs=epochs, rate=SLOWER * task.rate, **common)
    return {**trained, FINE_TUNED: tuned}


def train_pilots(
    task: Task,
    pool: Pool,
    rows: tuple[Ints, Ints, Ints],
    student: Students,
    context: Context,
    corrected: Floats,
    seed: int,
) -> dict[str, PilotPredictions]:
    """Pilots with soft and with hard targets: what they predict for the rows that none of them was taught."""
    labeled, validation, unlabeled = rows
    learned, judged = pilot_rows(len(unlabeled), seed)
    lessons = [
        supervise(each[learned], replace(context, targets=targets)).with_gold
        for targets in ("soft", "hard")
        for each in (context.unlabeled["teacher"], corrected)
    ]
    parts = labeled, validation, unlabeled[learned]
    targets, weights = taught(pool, parts, lessons)
    pilots = student.copies(len(lessons))
    inputs = torch.from_numpy(pool.inputs[np.concatenate(parts)])
    train(pilots, inputs, targets, weights, epochs=task.epochs, seed=seed, batch=BATCH, rate=task.rate)
    predicted = predictions(pilots, torch.from_numpy(pool.inputs[unlabeled[judged]]))
    return {
        "soft": PilotPredictions(corrected[judged], predicted[0], predicted[1]),
        "hard": PilotPredictions(corrected[judged], predicted[2], predicted[3]),
    }


def _accuracy(distributions: Floats, truth: Ints) -> float:
    return float(100 * np.mean(distributions.argmax(axis=1) == truth))


def numbers_of(interval: Interval) -> list[float]:
    """In points: value, low and high."""
    return [100 * each for each in (interval.value, interval.low, interval.high)]
