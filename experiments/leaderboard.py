"""The leaderboard: what a gold set is worth, and to which method. All methods, 14 tasks, three sizes of the gold set.

Not in the paper. Every trial has a labeled set, a teacher, a student and a split of its own; all methods of a trial start
from one student and see the same batches. A number is the accuracy at the end of the last epoch.

Command:  python -m experiments.leaderboard [--tasks …] [--gold …] [--trials N] [--workers N]; --trials 0 only draws
Data:     wdistill data fashion, cifar10 and svhn; python -m experiments.converting keel and imdb

Methods, tasks, halves and settings stand in this file, in tasks.py and in wdistill/methods/ as they were before the runs.
Settings were chosen on the tuning half alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from experiments import lines
from experiments.boards import Plan, brief, table, validated
from experiments.documents import fill, mark
from experiments.figures import rendered
from experiments.leaderboard_page import overview, page
from experiments.protocol import this_code
from experiments.running import counting, processes
from experiments.standings import SIMPLE, Line, calibration
from experiments.tasks import TASKS, Task
from wdistill import store
from wdistill.confidence import entropy
from wdistill.errors import WdistillError
from wdistill.methods import corrected as gold
from wdistill.methods import robust, weighing
from wdistill.methods.choosing import best
from wdistill.methods.error import boosted, logistic
from wdistill.methods.lessons import Case, Lesson, Method
from wdistill.methods.reaching import REACH
from wdistill.pages.words import count

HERE = Path(__file__).resolve().parent
DOCUMENTS = (HERE / "README.md", HERE.parent / "README.md", HERE.parent / "docs" / "advise.md")
MARK, PREDICTED = (mark(name, "python -m experiments.leaderboard") for name in ("leaderboard", "predictions"))
NEEDED = ("task", "gold", "trial", "rows", "accuracies", "prospect", "why", "seconds", "commit")  # by all that reads a line
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
    *("retrained", "corrected-student", "corrected-second", "corrected-forest", "corrected", "corrected-retrained"),
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


def run(task: Task, count: int, number: int, root: Path | None) -> Line:
    """One trial, with all that a line needs."""
    import torch

    from experiments.contest import trial
    from wdistill.environment import environment

    torch.set_num_threads(1)
    ours = this_code()  # before the trial, during which files may change
    here = environment("cpu", 1)
    told = {name: here[name] for name in ("processor", "cores", "python", "torch", "numpy", "scipy", "scikit-learn")}
    methods = {**methods_of(task), SIMPLE: METHODS[SIMPLE]}  # what is better than it where a teacher is hardly needed?
    return {**trial(task, root, count, number, methods), **ours, "environment": told}


def missing(found: Sequence[Line], tasks: Sequence[Task], counts: Sequence[int], trials: int) -> list[tuple[str, int, int]]:
    """Task, gold rows and number of the trials that have no line yet: first trial 0 of everything, then trial 1."""
    there = {(line["task"], line["gold"], line["trial"]) for line in found}
    wanted = [(task.name, count, number) for number in range(trials) for count in counts for task in tasks]
    return [each for each in wanted if each not in there]


def read(folder: Path) -> list[Line]:
    """One line for every trial, as it came out last."""
    found = lines.read(folder / "results" / "leaderboard.jsonl", NEEDED)
    return list({(line["task"], line["gold"], line["trial"]): line for line in found}.values())


def run_all(wanted: Sequence[tuple[str, int, int]], folder: Path, root: Path | None, workers: int) -> None:
    """Trials, side by side where there are several workers; each adds its line as it ends."""
    this_code()
    store.make_folder(folder / "results", parents=True)
    print(f"{count(len(wanted), 'trial')} to run", file=sys.stderr, flush=True)
    done = counting(len(wanted))

    def keep(line: Line) -> None:
        lines.append(folder / "results" / "leaderboard.jsonl", line)
        done(f"{line['task']}, {line['gold']:,} gold rows, trial {line['trial']}")

    if workers == 1:
        for each in wanted:
            keep(_run(*each, root))
        return
    with processes(workers) as pool:
        for future in as_completed([pool.submit(_run, *each, root) for each in wanted]):
            keep(future.result())


def draw(folder: Path) -> None:
    """Page, table and figure, made of the lines; the repository's own stand in its documents too."""
    known = read(folder)
    found = [line for line in known if line["task"] in {task.name for task in TASKS} and line["gold"] in GOLD]
    if len(found) < len(known):
        print(f"{count(len(known) - len(found), 'trial')} of other tasks or sizes are left out", file=sys.stderr)
    plan = Plan(tuple(TASKS), methods_of, GOLD, TRIALS)
    for name in ("tables", "figures"):
        store.make_folder(folder / name, parents=True)
    store.write_bytes(folder / "tables" / "leaderboard.md", table(plan, found).encode())
    store.write_bytes(folder / "figures" / "leaderboard.svg", rendered(overview(plan, found), "svg"))
    store.write_bytes(folder / "leaderboard.html", page(plan, found).encode())
    if folder.resolve() == HERE:
        fill(DOCUMENTS, {MARK: brief(plan, found), PREDICTED: validated(found)})
    print(table(plan, found))
    for targets, reach in REACH.items():
        fitted = calibration(tuned(found), targets)
        if fitted:
            told = f"slope {fitted.slope:.3f}, bend {fitted.bend:.3f}, residual {fitted.residual:.3f} points"
            print(f"Gain of the student on the promised gain in target accuracy, tuning half, {targets} targets: {told}.")
            print(f"wdistill/methods/reaching.py has {reach.slope:.3f}, {reach.bend:.3f} and {reach.residual:.3f}.")


def tuned(found: Sequence[Line]) -> list[Line]:
    """Lines of the tuning half."""
    tasks = {task.name for task in TASKS if task.half == "tuning"}
    return [line for line in found if line["task"] in tasks]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no line yet, then draw; every error becomes a message and an exit code."""
    parser = argparse.ArgumentParser(description="The leaderboard of methods.", allow_abbrev=False)
    known = [task.name for task in TASKS]
    parser.add_argument("--tasks", nargs="+", choices=known, default=known, metavar="TASK", help=", ".join(known))
    parser.add_argument("--gold", nargs="+", type=int, default=list(GOLD), metavar="N", help="sizes of the gold set")
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help="of every task and size; 0 only draws")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="trials side by side, one thread each")
    parser.add_argument("--root", type=Path, metavar="ROOT", help="where the data sets are, as for wdistill data")
    parser.add_argument(
        "--results", type=Path, default=HERE, metavar="FOLDER", help="where lines, table and page go (default: experiments/)"
    )
    given = parser.parse_args(argv)
    tasks = [task for task in TASKS if task.name in given.tasks]
    try:
        wanted = missing(read(given.results), tasks, given.gold, given.trials)
        if wanted:
            run_all(wanted, given.results, given.root, given.workers)
        draw(given.results)
    except WdistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept; the same command goes on from there", file=sys.stderr)
        return 130
    return 0


def _run(name: str, count: int, number: int, root: Path | None) -> Line:
    return run(next(task for task in TASKS if task.name == name), count, number, root)


if __name__ == "__main__":
    sys.exit(main())
