"""The confirmation: `best` against all simple rivals, and its forecast against what came, on tasks named beforehand.

Command:  python -m experiments.confirmation [--half tuning] [--tasks …] [--gold …] [--trials N] [--workers N]; --trials 0
          only judges
Data:     as the tasks of experiments/leaderboard/tasks.py say

Every line is one trial: its own split, labeled set, teacher and student. The tuning half has the tasks that settings were
chosen by; the confirmation half is judged. Its tables and figure stand beside the lines, and the repository's own in its
documents too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from experiments.confirmation.choices import choice_table
from experiments.confirmation.gist import gist, sayings
from experiments.confirmation.judge import Line
from experiments.confirmation.report import brief, figure, kinds, table, widths
from experiments.confirmation.words import forecast_words
from experiments.lab import results
from experiments.lab.documents import fill, mark
from experiments.lab.figures import rendered
from experiments.lab.running import counting, processes
from experiments.lab.trial import this_code
from experiments.leaderboard.tasks import TASKS, Task
from wdistill.core import store
from wdistill.core.errors import WdistillError
from wdistill.report.words import count

HERE = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    HERE.parent / "README.md",
    *(HERE.parent / "docs" / f"{name}.md" for name in ("results", "best", "advise", "llm")),
)
LINES = HERE / "results" / "confirmation.jsonl"
GOLD = (100, 500, 2000)
NEEDED = ("task", "gold", "trial", "accuracy", "macro_f1", "forecast", "seconds", "commit")


def run(name: str, gold: int, number: int, root: Path | None) -> Line:
    """One trial, with all that a line needs."""
    import torch

    from experiments.confirmation.trial import trial

    torch.set_num_threads(1)
    task = next(task for task in TASKS if task.name == name)
    return with_provenance(lambda: trial(task, root, gold, number))


def with_provenance(trial: Callable[[], Mapping[str, Any]]) -> Line:
    """What a trial found, and which code and machine it was run by."""
    from wdistill.core.environment import environment

    ours = this_code()  # before the trial, during which files may change
    here = environment("cpu", 1)
    machine = {each: here[each] for each in ("processor", "cores", "python", "torch", "numpy", "scipy", "scikit-learn")}
    return {**trial(), **ours, "environment": machine}


def missing(known: Sequence[Line], tasks: Sequence[Task], golds: Sequence[int], trials: int) -> list[tuple[str, int, int]]:
    """Task, gold rows and number of the trials that have no line yet: first trial 0 of everything, then trial 1."""
    there = {(line["task"], line["gold"], line["trial"]) for line in known}
    wanted = [(task.name, n, i) for i in range(trials) for n in golds for task in tasks if n <= task.most_gold]
    return [each for each in wanted if each not in there]


def run_all(
    wanted: Sequence[tuple[str, int, int]],
    file: Path,
    root: Path | None,
    workers: int,
    run: Callable[[str, int, int, Path | None], Line] = run,
) -> None:
    """Trials, side by side where there are several workers; each adds its line as it ends."""
    this_code()
    store.make_folder(file.parent, parents=True)
    print(f"{count(len(wanted), 'trial')} to run", file=sys.stderr, flush=True)
    done = counting(len(wanted))
    with processes(workers) as pool:
        for future in as_completed([pool.submit(run, *each, root) for each in wanted]):
            line = future.result()
            results.append(file, line)
            done(f"{line['task']}, {line['gold']:,} gold rows, trial {line['trial']}")


def draw(known: Sequence[Line], tasks: Sequence[Task], wanted: int, folder: Path) -> None:
    """The tables and the figure of the confirmation half, made of its lines."""
    for name in ("tables", "figures"):
        store.make_folder(folder / name, parents=True)
    store.write_bytes(folder / "tables" / "confirmation.md", table(known, tasks, wanted).encode())
    store.write_bytes(folder / "figures" / "confirmation.svg", rendered(figure(known, tasks)))
    if folder.resolve() == HERE:
        fill(DOCUMENTS, blocks(known, tasks, wanted))


def blocks(known: Sequence[Line], tasks: Sequence[Task], wanted: int) -> Mapping[str, str]:
    """What stands in documents, by the mark that its place begins with."""
    texts = {"confirmation": brief(known, tasks, wanted), "widths": widths(known, tasks), "gist": gist(known)}
    texts |= {
        "kinds": kinds(known),
        "choices": choice_table(known, tasks) + "\n",
        **sayings(known),
        **forecast_words(known, tasks),
    }
    return {mark(name, "python -m experiments.confirmation"): text for name, text in texts.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no line yet, then judge; every error becomes a message and an exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments.confirmation", allow_abbrev=False)
    parser.add_argument("--half", choices=["tuning", "confirmation"], default="confirmation")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="of this half; all unless given")
    parser.add_argument("--gold", nargs="+", type=int, default=list(GOLD), metavar="N", help="sizes of the gold set")
    parser.add_argument("--trials", type=int, default=8, metavar="N", help="of every task and size; 0 only judges")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="trials side by side, one thread each")
    parser.add_argument("--root", type=Path, metavar="ROOT", help="where the data sets are, as for wdistill data")
    parser.add_argument(
        "--results", type=Path, default=HERE, metavar="FOLDER", help="where lines are (default: experiments/)"
    )
    given = parser.parse_args(argv)
    file = given.results / "results" / LINES.name
    tasks = [task for task in TASKS if task.half == given.half and (given.tasks is None or task.name in given.tasks)]
    try:
        wanted = missing(results.read(file, NEEDED), tasks, given.gold, given.trials)
        if wanted:
            run_all(wanted, file, given.root, given.workers)
        names = {task.name for task in tasks}
        known = [line for line in results.read(file, NEEDED) if line["task"] in names and line["gold"] in given.gold]
    except WdistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if not known:
        print("no trials yet")
        return 0
    every = sum(task.trials for task in tasks for gold in given.gold if gold <= task.most_gold)
    print(table(known, tasks, every))
    if given.half == "confirmation" and given.tasks is None:
        draw(known, tasks, every, given.results)
    return 0
