"""The leaderboard: what a gold set is worth, and to which method. All methods, 14 tasks, three sizes of the gold set.

Not in the paper. Every trial has a labeled set, a teacher, a student and a split of its own; all methods of a trial start
from one student and see the same batches. A number is the accuracy at the end of the last epoch.

Command:  python -m experiments.leaderboard [--tasks …] [--gold …] [--trials N] [--workers N]
Data:     wdistill data fashion, cifar10 and svhn; python -m experiments.converting keel and imdb

Methods, tasks, halves and settings stand in this file, in tasks.py and in wdistill/methods/ as they were before the runs.
Settings were chosen on the tuning half alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments import lines
from experiments.tasks import TASKS, Task
from wdistill.confidence import entropy
from wdistill.methods import corrected as gold
from wdistill.methods import robust, weighing
from wdistill.methods.choosing import best
from wdistill.methods.error import boosted, logistic
from wdistill.methods.lessons import Case, Lesson, Method
from wdistill.pages.words import duration

HERE = Path(__file__).parent
GOLD = (100, 500, 2000)
TRIALS = 5
FROZEN = ("teacher", "student", "second", "forest")  # experts where the teacher is a table
ALL = (*FROZEN, "retrained")


def retrainable(case: Case) -> tuple[str, ...]:
    """The experts that there are."""
    return tuple(name for name in ALL if name in case.validation)


def corrected_by_all(case: Case) -> Lesson:
    return gold.corrected(*retrainable(case))(case)


METHODS: dict[str, Method] = {
    "unweighted": weighing.unweighted,
    "oracle": weighing.kept_right,
    "shuffled": weighing.dealt,
    "paper": weighing.paper(),
    "paper-conditional": weighing.paper(estimate="conditional"),
    "paper-ratio": weighing.paper(estimate="ratio"),
    "paper-entropy": weighing.paper(entropy),
    "paper-refresh": weighing.paper(refresh=True),
    "paper-entropy-refresh": weighing.paper(entropy, refresh=True),
    "one-minus-error": weighing.one_minus_error,
    "fidelity": weighing.by_fidelity,
    "paper×fidelity": weighing.paper_and_fidelity,
    "threshold": weighing.above_threshold,
    "two-sided": robust.two_sided,
    "sure-and-unsure": weighing.sure_and_unsure,
    "mixed": robust.mixed,
    "forward": robust.forward,
    "generalised": robust.generalised,
    "taylor": robust.taylor,
    "temperature": robust.tempered,
    "logistic": weighing.learned(logistic),
    "logistic-debiased": weighing.learned_debiased(logistic),
    "boosted": weighing.learned(boosted),
    "boosted-debiased": weighing.learned_debiased(boosted),
    "posterior-weighted": gold.posterior_weighted(*FROZEN),
    "posterior-debiased": gold.posterior_debiased(*FROZEN),
    "retrained": gold.retrained,
    "corrected-student": gold.corrected("teacher", "student"),
    "corrected-second": gold.corrected("teacher", "student", "second"),
    "corrected-forest": gold.corrected("teacher", "student", "forest"),
    "corrected": gold.corrected(*FROZEN),
    "corrected-retrained": corrected_by_all,
    "labels+gold": gold.labels_alone,
}
for _name in (
    *("unweighted", "oracle", "paper", "one-minus-error", "logistic", "mixed", "posterior-weighted"),
    *("retrained", "corrected-second", "corrected-forest", "corrected", "corrected-retrained"),
):
    METHODS[f"{_name}+gold"] = gold.with_gold(METHODS[_name])
METHODS["best"] = best
EVERYWHERE = (  # on the image and text tasks too
    *("unweighted", "oracle", "unweighted+gold", "paper+gold", "logistic+gold"),
    *("corrected+gold", "retrained+gold", "corrected-retrained+gold", "best"),
)


def methods_of(task: Task) -> dict[str, Method]:
    """Those that the task is for; a teacher that is a table cannot be retrained."""
    named = METHODS if task.all_methods else {name: METHODS[name] for name in EVERYWHERE}
    return {name: each for name, each in named.items() if not (task.external and "retrained" in name)}


def run(task: Task, count: int, number: int, root: Path | None) -> dict[str, Any]:
    """One trial, with all that a line needs."""
    import torch

    from experiments.contest import trial
    from wdistill.environment import commit_of, environment

    torch.set_num_threads(1)
    here = environment("cpu", 1)
    told = {name: here[name] for name in ("processor", "cores", "torch")}
    return {**trial(task, root, count, number, methods_of(task)), "commit": commit_of(HERE), "environment": told}


def missing(
    found: Sequence[dict[str, Any]], tasks: Sequence[Task], counts: Sequence[int], trials: int
) -> list[tuple[str, int, int]]:
    """Task, gold rows and number of the trials that have no line yet: first trial 0 of everything, then trial 1."""
    there = {(line["task"], line["gold"], line["trial"]) for line in found}
    wanted = [(task.name, count, number) for number in range(trials) for count in counts for task in tasks]
    return [each for each in wanted if each not in there]


def main() -> None:
    parser = argparse.ArgumentParser(description="The leaderboard of methods.", allow_abbrev=False)
    known = [task.name for task in TASKS]
    parser.add_argument("--tasks", nargs="+", choices=known, default=known, metavar="TASK", help=", ".join(known))
    parser.add_argument("--gold", nargs="+", type=int, default=list(GOLD), metavar="N", help="sizes of the gold set")
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help="of every task and size; 0 only draws")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="trials side by side, one thread each")
    parser.add_argument("--root", type=Path, metavar="ROOT", help="where the data sets are, as for wdistill data")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "leaderboard.jsonl", metavar="FILE")
    given = parser.parse_args()
    tasks = [task for task in TASKS if task.name in given.tasks]
    wanted = missing(lines.read(given.results), tasks, given.gold, given.trials)
    print(f"{len(wanted)} trials to run", file=sys.stderr, flush=True)
    started = time.monotonic()
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        running = [pool.submit(_run, name, count, number, given.root) for name, count, number in wanted]
        for done, each in enumerate(as_completed(running), 1):
            line = each.result()
            lines.append(given.results, line)
            left = (time.monotonic() - started) / done * (len(wanted) - done)
            told = f"{line['task']}, {line['gold']} gold rows, trial {line['trial']}"
            print(f"{told}: {done} of {len(wanted)} done, about {duration(left)} left", file=sys.stderr, flush=True)


def _run(name: str, count: int, number: int, root: Path | None) -> dict[str, Any]:
    return run(next(task for task in TASKS if task.name == name), count, number, root)


if __name__ == "__main__":
    main()
