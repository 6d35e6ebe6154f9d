"""The leaderboard: what a gold set is worth, and to which method. All methods, 27 tasks, three sizes of the gold set.

Not in the paper. Every trial has a labeled set, a teacher, a student and a split of its own; all methods of a trial start
from one student and see the same batches. A number is the accuracy at the end of the last epoch.

Command:  python -m experiments.leaderboard [--tasks …] [--gold …] [--trials N] [--workers N]; --trials 0 only draws
Data:     wdistill data fashion, mnist, cifar10 and svhn; python -m experiments.lab.converting keel, common, imdb, rotten,
          reuters, spam, tweets and lite0

Methods, tasks, halves and settings stand in this file, in tasks.py and in wdistill/methods/ as they were before the runs.
Settings were chosen on the tuning half alone. Until there is a trial of the confirmation half, tables and figures are those
of the board before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from experiments.lab import results as lines
from experiments.lab.documents import fill, mark
from experiments.lab.figures import rendered
from experiments.lab.running import counting, processes
from experiments.lab.trial import this_code
from experiments.leaderboard.report import brief, overview, predicted_figure, table, validated
from experiments.leaderboard.statistics import SIMPLE
from experiments.leaderboard.tasks import CONFIRMING, FORMER, TASKS, Protocol, Task
from experiments.leaderboard.transfer import TRANSFER, Line, fit_transfer, target_gains
from wdistill.core import store
from wdistill.core.errors import WdistillError
from wdistill.methods import corrected as gold
from wdistill.methods import robust, weighted
from wdistill.methods.best import best
from wdistill.methods.context import Context, Method, Supervision, by_rule
from wdistill.methods.teacher_error import boosted, logistic
from wdistill.report.words import count
from wdistill.weights.confidence import entropy
from wdistill.weights.debiased import debiased
from wdistill.weights.rule import compose
from wdistill.weights.rules import fidelity, oracle, shuffled, unweighted

HERE = Path(__file__).resolve().parent.parent
DOCUMENTS = (HERE.parent / "docs" / "results.md",)
MARK, PREDICTED = (mark(name, "python -m experiments.leaderboard") for name in ("leaderboard", "predictions"))
NEEDED = (
    "task",
    "gold",
    "trial",
    "settings",
    "rows",
    "accuracies",
    "prospect",
    "why",
    "seconds",
    "commit",
)  # by all that reads a line
GOLD = (100, 500, 2000)
FROZEN = ("teacher", "student", "second", "forest")  # experts where the teacher is a table
ALL = (*FROZEN, "retrained")


def retrainable(case: Context) -> tuple[str, ...]:
    """The experts that there are."""
    return tuple(name for name in ALL if name in case.validation)


def corrected_by_all(case: Context) -> Supervision:
    return gold.corrected(*retrainable(case))(case)


METHODS: dict[str, Method] = {
    "unweighted": by_rule(unweighted),
    "oracle": by_rule(oracle),
    "shuffled": by_rule(shuffled(seed=None)),
    "paper": by_rule(debiased),
    "paper-conditional": by_rule(debiased.using(estimate="conditional")),
    "paper-ratio": by_rule(debiased.using(estimate="ratio")),
    "paper-entropy": by_rule(debiased.using(confidence=entropy)),
    "paper-refresh": by_rule(debiased, refresh=True),
    "paper-entropy-refresh": by_rule(debiased.using(confidence=entropy), refresh=True),
    "one-minus-error": weighted.one_minus_error,
    "fidelity": by_rule(fidelity),
    "paper×fidelity": by_rule(compose(debiased, fidelity)),
    "threshold": weighted.above_threshold,
    "two-sided": robust.two_sided,
    "sure-and-unsure": weighted.llkd,
    "mixed": robust.mixed,
    "forward": robust.forward,
    "generalised": robust.generalised,
    "taylor": robust.taylor,
    "temperature": robust.tempered,
    "logistic": weighted.learned(logistic),
    "logistic-debiased": weighted.learned_debiased(logistic),
    "boosted": weighted.learned(boosted),
    "boosted-debiased": weighted.learned_debiased(boosted),
    "posterior-weighted": gold.posterior_weighted(*FROZEN),
    "posterior-debiased": gold.posterior_debiased(*FROZEN),
    "retrained": gold.retrained,
    "corrected-student": gold.corrected("teacher", "student"),
    "corrected-second": gold.corrected("teacher", "student", "second"),
    "corrected-forest": gold.corrected("teacher", "student", "forest"),
    "corrected": gold.corrected(*FROZEN),
    "corrected-retrained": corrected_by_all,
    "labels+gold": gold.supervised_only,
}
for _name in (
    *("unweighted", "oracle", "paper", "one-minus-error", "logistic", "mixed", "posterior-weighted"),
    *("retrained", "corrected-student", "corrected-second", "corrected-forest", "corrected", "corrected-retrained"),
):
    METHODS[f"{_name}+gold"] = gold.with_gold(METHODS[_name])
METHODS["best"] = best.method
EVERYWHERE = (  # on the image and text tasks too
    *("unweighted", "oracle", "unweighted+gold", "paper+gold", "logistic+gold"),
    *("corrected+gold", "retrained+gold", "corrected-retrained+gold", "best"),
)


def methods_of(task: Task) -> dict[str, Method]:
    """Those that the task is for; a teacher that is a table cannot be retrained."""
    named = METHODS if task.all_methods else {name: METHODS[name] for name in EVERYWHERE}
    return {name: each for name, each in named.items() if not (task.frozen and "retrained" in name)}


def run(task: Task, count: int, number: int, root: Path | None) -> Line:
    """One trial, with all that a line needs."""
    import torch

    from experiments.leaderboard.trial import trial
    from wdistill.core.environment import environment

    torch.set_num_threads(1)
    ours = this_code()  # before the trial, during which files may change
    here = environment("cpu", 1)
    machine = {name: here[name] for name in ("processor", "cores", "python", "torch", "numpy", "scipy", "scikit-learn")}
    methods = {**methods_of(task), SIMPLE: METHODS[SIMPLE]}  # what is better than it where a teacher is hardly needed?
    return {**trial(task, root, count, number, methods), **ours, "environment": machine}


def missing(
    known: Sequence[Line], tasks: Sequence[Task], counts: Sequence[int], trials: int | None = None
) -> list[tuple[str, int, int]]:
    """Task, gold rows and number of the trials that have no line yet: first trial 0 of everything, then trial 1.

    As many trials as each task is to have, or `trials`; no more gold rows than it has enough others for.
    """
    there = {(line["task"], line["gold"], line["trial"]) for line in known}
    numbers = {task.name: task.trials if trials is None else trials for task in tasks}
    cells = [(task.name, count) for count in counts for task in tasks if count <= task.most_gold]
    wanted = [(*cell, i) for i in range(max(numbers.values(), default=0)) for cell in cells if i < numbers[cell[0]]]
    return [each for each in wanted if each not in there]


def read(folder: Path) -> list[Line]:
    """One line for every trial, as it came out last."""
    known = lines.read(folder / "results" / "leaderboard.jsonl", NEEDED)
    return list({(line["task"], line["gold"], line["trial"]): line for line in known}.values())


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
    """Table and figures, made of the lines; the repository's own stand in its documents too."""
    known = read(folder)
    shown = [line for line in known if line["task"] in {task.name for task in TASKS} and line["gold"] in GOLD]
    if len(shown) < len(known):
        print(f"{count(len(known) - len(shown), 'trial')} of other tasks or sizes are left out", file=sys.stderr)
    plan = board_of(shown)
    for name in ("tables", "figures"):
        store.make_folder(folder / name, parents=True)
    store.write_bytes(folder / "tables" / "leaderboard.md", table(plan, shown).encode())
    store.write_bytes(folder / "figures" / "leaderboard.svg", rendered(overview(plan, shown)))
    store.write_bytes(folder / "figures" / "leaderboard-predictions.svg", rendered(predicted_figure(plan, shown)))
    if folder.resolve() == HERE:
        fill(DOCUMENTS, {MARK: brief(plan, shown), PREDICTED: validated(shown)})
    print(table(plan, shown))
    print("Slope, bend and residual of the transfer curve, fitted on the tuning half, and in transfer.py:")
    for targets, curve in TRANSFER.items():
        fitting = target_gains(tuned(plan, shown), targets)
        if len(fitting) > 2:
            numbers = [(each.slope, each.bend, each.residual) for each in (fit_transfer(fitting), curve)]
            print(f"{targets} targets:", *("{:.3f} {:.3f} {:.3f}".format(*each) for each in numbers))


def board_of(shown: Sequence[Line]) -> Protocol:
    """What tables and figures show: this board, or while it has no confirming trial the one before."""
    confirming = {task.name for task in TASKS if task.half == "confirmation"}
    tasks = TASKS if any(line["task"] in confirming for line in shown) else FORMER
    return Protocol(tuple(tasks), methods_of, GOLD)


def tuned(plan: Protocol, shown: Sequence[Line]) -> list[Line]:
    """Lines of the tuning half."""
    tasks = {task.name for task in plan.half("tuning")}
    return [line for line in shown if line["task"] in tasks]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no line yet, then draw; every error becomes a message and an exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.leaderboard", description="The leaderboard of methods.", allow_abbrev=False
    )
    known = [task.name for task in TASKS]
    before = [task.name for task in TASKS if task not in CONFIRMING]
    parser.add_argument("--tasks", nargs="+", choices=known, default=before, metavar="TASK", help=", ".join(known))
    parser.add_argument("--gold", nargs="+", type=int, default=list(GOLD), metavar="N", help="sizes of the gold set")
    parser.add_argument(
        "--trials", type=int, metavar="N", help="of every task and size (default: 5, of a confirmation task 8); 0 only draws"
    )
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
        print("interrupted: what was finished is kept; the same command resumes from there", file=sys.stderr)
        return 130
    return 0


def _run(name: str, count: int, number: int, root: Path | None) -> Line:
    return run(next(task for task in TASKS if task.name == name), count, number, root)
