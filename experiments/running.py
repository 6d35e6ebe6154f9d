"""Run trials side by side, one thread each; a line for every trial as it ends. What has a line is not run again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import redirect_stderr
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments import lines
from experiments.lines import Line
from experiments.protocol import Trial, is_pretrained, pretrain, run_trial
from wdistill.signals import die_with_parent


def run(trials: Sequence[Trial], results: Path, workers: int) -> None:
    """All trials; their lines are appended to the file of their experiment in the folder `results`."""
    started, count = time.monotonic(), 0

    def keep(trial: Trial, line: Line) -> None:
        nonlocal count
        lines.append(results / f"{trial.experiment.name}.jsonl", line)
        count += 1
        left = (time.monotonic() - started) / count * (len(trials) - count)
        told = f"{trial.experiment.name}, {trial.labels} labels, trial {trial.number}: {count} of {len(trials)}"
        print(f"{told} done, about {_duration(left)} left", file=sys.stderr, flush=True)

    if workers == 1:
        for trial in trials:
            keep(trial, run_trial(trial))
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=die_with_parent) as pool:
        try:
            _side_by_side(pool, trials, keep)
        except BaseException:  # Ctrl-C too: what is committed stays
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
            raise


def _side_by_side(pool: ProcessPoolExecutor, trials: Sequence[Trial], keep: Callable[[Trial, Line], None]) -> None:
    """Models that several trials share are trained first, each once; a trial begins as soon as its own are there."""
    waiting: dict[Path, list[Trial]] = {}
    for trial in trials:
        waiting.setdefault(trial.folder, []).append(trial)
    models: dict[Future[None], Path] = {}
    running: dict[Future[Line], Trial] = {}
    for folder, group in list(waiting.items()):
        if is_pretrained(group[0]):
            running |= {pool.submit(_quiet_trial, trial): trial for trial in waiting.pop(folder)}
        else:
            models |= {pool.submit(_quiet_pretrain, group[0], which): folder for which in ("teacher", "student")}
    while models or running:
        futures: list[Future[Any]] = [*models, *running]
        for future in wait(futures, return_when=FIRST_COMPLETED).done:
            if future in running:
                keep(running.pop(future), future.result())
                continue
            future.result()
            folder = models.pop(future)
            if folder not in models.values():
                running |= {pool.submit(_quiet_trial, trial): trial for trial in waiting.pop(folder)}


def _quiet_trial(trial: Trial) -> Line:
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):  # trials would talk over each other
        return run_trial(trial)


def _quiet_pretrain(trial: Trial, which: str) -> None:
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        pretrain(trial, which)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
