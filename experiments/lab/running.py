"""Run trials side by side, one thread each; a line for every trial as it ends. What has a line is not run again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from experiments.lab import results as lines
from experiments.lab.results import Line
from experiments.lab.trial import Trial, is_pretrained, pretrain, run_trial, this_code
from wdistill.core.errors import BusyError, worker_died
from wdistill.core.processes import process_pool
from wdistill.core.signals import die_with_parent
from wdistill.report.words import duration


def counting(total: int) -> Callable[[str], None]:
    """A function to call as each of so many trials ends, with its name: it says how many are done and the time left."""
    started, count = time.monotonic(), 0

    def done(name: str) -> None:
        nonlocal count
        count += 1
        left = (time.monotonic() - started) / count * (total - count)
        print(f"{name}: {count} of {total} done, about {duration(left)} left", file=sys.stderr, flush=True)

    return done


class Queue:
    """Trials that are still to be run: other processes may be at some of them, or have done them meanwhile."""

    def __init__(self, trials: Sequence[Trial], is_done: Callable[[Trial], bool]) -> None:
        self.waiting, self.is_done, self.busy = list(trials), is_done, 0

    def look(self) -> None:
        """Leave out what has got its line."""
        self.waiting = [trial for trial in self.waiting if not self.is_done(trial)]

    def later(self, trial: Trial, error: BusyError) -> None:
        """Another process is at it: its turn comes again, unless all that is left is the others'."""
        self.busy += 1
        if self.busy > len(self.waiting):
            raise error
        self.waiting.append(trial)


def run(trials: Sequence[Trial], results: Path, workers: int, is_done: Callable[[Trial], bool]) -> None:
    """All trials; their lines are appended to the file of their experiment in the folder `results`."""
    this_code()
    queue = Queue(trials, is_done)
    done = counting(len(trials))

    def keep(trial: Trial, line: Line) -> None:
        queue.busy = 0
        lines.append(results / f"{trial.experiment.name}.jsonl", line)
        done(f"{trial.experiment.name}, {trial.labels} labels, trial {trial.number}")

    if workers > 1:
        with processes(workers) as pool:
            _side_by_side(pool, workers, queue, keep)
        return
    while queue.waiting:
        trial = queue.waiting.pop(0)
        try:
            if not is_done(trial):
                keep(trial, run_trial(trial))
        except BusyError as error:
            queue.later(trial, error)


@contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool that runs trials. Whatever breaks the block off, Ctrl-C too, ends its processes: what is committed stays."""
    try:
        with process_pool(workers, _begin) as pool:
            yield pool
    except BrokenProcessPool:
        raise worker_died(f"{workers} processes that run trials") from None


def _side_by_side(pool: ProcessPoolExecutor, workers: int, queue: Queue, keep: Callable[[Trial, Line], None]) -> None:
    """As many jobs as there are workers: the first trial whose models are there, else the first model that is not."""
    jobs: dict[Future[Any], Trial | Path] = {}
    while queue.waiting or jobs:
        queue.look()
        busy = {job for job in jobs.values() if isinstance(job, Path)}
        while len(jobs) < workers and (job := _next(queue.waiting, busy)) is not None:
            trial, which = job
            if which is None:
                queue.waiting.remove(trial)
                jobs[pool.submit(_quiet_trial, trial)] = trial
            else:
                busy.add(trial.model_folder(which))
                jobs[pool.submit(_quiet_pretrain, trial, which)] = trial.model_folder(which)
        for future in wait(jobs, return_when=FIRST_COMPLETED).done:
            done = jobs.pop(future)
            try:
                line = future.result()
            except BusyError as error:
                if not isinstance(done, Trial):
                    raise
                queue.later(done, error)
                continue
            if isinstance(done, Trial):
                keep(done, line)
            else:
                print(f"{done.name}: trained", file=sys.stderr, flush=True)


def _next(waiting: Sequence[Trial], busy: Collection[Path]) -> tuple[Trial, str | None] | None:
    """What to begin: a trial, or the model that it waits for; nothing where all that is left is being trained."""
    models: list[tuple[Trial, str]] = []
    for trial in waiting:
        missing = [which for which in ("teacher", "student") if not is_pretrained(trial, which)]
        if not missing:
            return trial, None
        models += [(trial, which) for which in missing if trial.model_folder(which) not in busy]
    return models[0] if models else None


def _begin() -> None:
    """In a new process, before its first job."""
    die_with_parent()
    this_code()


def _quiet_trial(trial: Trial) -> Line:
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):  # trials would talk over each other
        return run_trial(trial)


def _quiet_pretrain(trial: Trial, which: str) -> None:
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        pretrain(trial, which)
