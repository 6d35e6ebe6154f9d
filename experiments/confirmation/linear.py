"""Linear pilot students, which `advise` trains for tables: how far students of the confirmation's tasks are from them.

Command:  python -m experiments.confirmation.linear [--tasks …] [--trials N] [--workers N]; --trials 0 only makes the table
Data:     as the tasks of experiments/leaderboard/tasks.py say

In the confirmation pilots were copies of the student. Here the trials of nine of its tasks are made again (the same rows,
teacher, auxiliary models and targets), and the student is taught the teacher's targets and those of `best`, as there; but
linear pilots, which read the student's inputs as columns of a table, forecast what it gains. It was run after the
confirmation had been seen, and set nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from experiments.confirmation.judge import Line, forecasts
from experiments.confirmation.rivals import BASE
from experiments.confirmation.run import HERE, missing, run_all, with_provenance
from experiments.confirmation.run import NEEDED as CONFIRMED
from experiments.confirmation.trial import numbers_of
from experiments.confirmation.widths import FROZEN, misses
from experiments.lab import results
from experiments.lab.documents import fill, mark
from experiments.lab.tables import MISSING, markdown
from experiments.leaderboard.models import fitted
from experiments.leaderboard.report import percent
from experiments.leaderboard.stacked import predictions, train
from experiments.leaderboard.tasks import TASKS, Task
from experiments.leaderboard.trial import BATCH, context_of, split_rows, taught
from wdistill.core.errors import WdistillError
from wdistill.methods.best import correct_targets
from wdistill.methods.context import supervise
from wdistill.methods.metric import PLAIN
from wdistill.methods.pilots import UNFORESEEN, forecast
from wdistill.report.words import signed
from wdistill.text.linear_pilots import drawn_rows, linear_pilots

LINES = HERE / "results" / "linear-pilots.jsonl"
GOLD = (100, 500)
NAMES = (
    *("phoneme", "spambase", "page_blocks", "kr_vs_k", "fars", "mnist"),
    *("rotten-head", "rotten-zero", "tweets-llm"),
)  # tables, and pictures and texts whose students read columns of numbers
KINDS: tuple[tuple[Literal["soft", "hard"], str], ...] = (("soft", ""), ("hard", ", hard"))
DOCUMENT = HERE.parent / "docs" / "advise.md"
MARK = mark("linear", "python -m experiments.confirmation.linear")
NEEDED = ("task", "gold", "trial", "accuracy", "macro_f1", "forecast", "seconds", "commit")


def trial(task: Task, root: Path | None, gold: int, number: int) -> dict[str, Any]:
    """What students of both targets reach, and what linear pilots forecast."""
    started = time.perf_counter()
    pool = task.pool(root)
    *rows, external = split_rows(task, pool, gold, number)
    labeled, validation, unlabeled = rows
    first = pool.inputs[labeled], pool.labels[labeled], pool.classes, np.ones((1, len(labeled)), bool)
    student = fitted(task.student, *first, number, task.pretraining, rate=task.rate)
    context = context_of(task, pool, (labeled, validation, unlabeled, external), student, number)
    targets = correct_targets(context).targets.of
    lessons = {
        f"{name}{end}": supervise(each, replace(context, targets=kind)).with_gold
        for kind, end in KINDS
        for name, each in ((BASE, context.unlabeled["teacher"]), ("best", targets(context.unlabeled)))
    }
    teaching, weights = taught(pool, (labeled, validation, unlabeled), list(lessons.values()))
    students = student.copies(len(lessons))
    learned = torch.from_numpy(pool.inputs[np.concatenate(rows)])
    train(students, learned, teaching, weights, epochs=task.epochs, seed=number, batch=BATCH, rate=task.rate)
    tested = predictions(students, torch.from_numpy(pool.test_inputs))
    columns = _columns(pool.inputs[unlabeled], pool.inputs[validation])
    drawn = drawn_rows(len(unlabeled), number)
    pilots = {
        kind: linear_pilots(replace(context, targets=kind), targets, columns[1], drawn, columns[0][drawn])
        for kind, _ in KINDS
    }
    metrics = ("accuracy", "macro-f1")
    return {
        "task": task.name,
        "gold": gold,
        "trial": number,
        "settings": {**task.settings, "frozen": task.frozen, "split": task.splits + number, "seed": number, "batch": BATCH},
        "data": dict(pool.data),
        **{
            metric.replace("-", "_"): {
                name: 100 * PLAIN[metric](each, pool.test_labels) for name, each in zip(lessons, tested, strict=True)
            }
            for metric in metrics
        },
        "forecast": {
            kind: {metric: numbers_of(forecast(each, PLAIN[metric], FROZEN)) for metric in metrics}
            for kind, each in pilots.items()
        },
        "seconds": time.perf_counter() - started,
    }


def _columns(unlabeled: np.ndarray, gold: np.ndarray) -> list[Any]:
    """Inputs of unlabeled and gold rows as the pilots of tables read them: sparse, in units of the unlabeled rows."""
    from scipy.sparse import csr_array

    flat = [each.reshape(len(each), -1) for each in (unlabeled, gold)]
    mean, scale = flat[0].mean(axis=0), flat[0].std(axis=0)
    return [csr_array((each - mean) / np.where(scale > 0, scale, 1.0)) for each in flat]


def linear_table(lines: Sequence[Line], copies: Sequence[Line]) -> str:
    """Linear pilots, and those of the confirmation on the same trials, which are copies of the student."""
    header = ("pilots", "targets", "trials", "within ±1 point", "too low, too high", "observed − forecast", "trials inside")
    rows = []
    for name, some in (("linear", lines), ("copies of the student", same_trials(lines, copies))):
        for kind, _ in KINDS:
            told, gains = forecasts(some, kind), [each.gain for each in misses(some, kind, "accuracy")]
            rows.append(
                [
                    *(name, kind, f"{len(some):,}", f"{told.near} of {len(told.cells)}"),
                    "{}, {}".format(*told.missed),
                    signed(float(np.mean(gains))) if gains else MISSING,
                    percent(_inside(some, kind)),
                ]
            )
    return markdown(header, rows)


def said(lines: Sequence[Line], copies: Sequence[Line]) -> str:
    """What docs/advise.md says of linear pilots."""
    same = same_trials(lines, copies)
    told, theirs = forecasts(lines), forecasts(same)
    tasks = len({line["task"] for line in lines})
    return (
        f"on {tasks} tasks of the confirmation, run again afterwards ({len(lines):,} trials), within ±1 point in "
        f"{told.near} of {len(told.cells)} tasks and sizes, too low in {told.missed[0]} and too high in {told.missed[1]}, "
        f"with {percent(_inside(lines, 'soft'))} of the trials inside this width. Copies of the student were, in the same "
        f"trials, within ±1 point in {theirs.near} of {len(theirs.cells)}, with {percent(_inside(same, 'soft'))} inside"
    )


def same_trials(lines: Sequence[Line], copies: Sequence[Line]) -> list[Line]:
    """The lines of the confirmation that are of the same trials."""
    there = {(line["task"], line["gold"], line["trial"]) for line in lines}
    return [line for line in copies if (line["task"], line["gold"], line["trial"]) in there]


def _inside(lines: Sequence[Line], kind: str) -> float | None:
    """The share of trials inside the interval that the product has."""
    found = [each.held(UNFORESEEN["accuracy"]) for each in misses(lines, kind, "accuracy")]
    return float(np.mean(found)) if found else None


def run(name: str, gold: int, number: int, root: Path | None) -> Line:
    """One trial, with all that a line needs."""
    torch.set_num_threads(1)
    task = next(task for task in TASKS if task.name == name)
    return with_provenance(lambda: trial(task, root, gold, number))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no line yet, then print the table; every error becomes a message and an exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments.confirmation.linear", allow_abbrev=False)
    parser.add_argument("--tasks", nargs="+", default=NAMES, choices=NAMES, metavar="TASK", help="all unless given")
    parser.add_argument("--trials", type=int, default=8, metavar="N", help="of every task and size; 0 only makes the table")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="trials side by side, one thread each")
    parser.add_argument("--root", type=Path, metavar="ROOT", help="where the data sets are, as for wdistill data")
    given = parser.parse_args(argv)
    tasks = [task for task in TASKS if task.name in given.tasks]
    try:
        wanted = missing(results.read(LINES, NEEDED), tasks, GOLD, given.trials)
        if wanted:
            run_all(wanted, LINES, given.root, given.workers, run)
        known = [line for line in results.read(LINES, NEEDED) if line["task"] in given.tasks]
        copies = results.read(HERE / "results" / "confirmation.jsonl", CONFIRMED)
    except WdistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if not known:
        print("no trials yet")
        return 0
    print(linear_table(known, copies))
    if list(given.tasks) == list(NAMES):
        fill((DOCUMENT,), {MARK: said(known, copies)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
