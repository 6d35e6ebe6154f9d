"""The four goals of the confirmation, judged from the lines.

(a) `best` is significantly below no simple rival on any task: paired t over trials, one-sided, Holm over tasks, 5 %.
(b) Its mean regret to the best simple rival of every task, in hindsight, is at most 0.15 points at 500 gold rows, and
    0.25 at 100.
(c) It gains at least 1.5 points at 500 over the better of unweighted + gold and labels + gold.
(d) The forecast is within ±1 point for 80 % of tasks and sizes, its intervals hold at least 90 % of single trials, and its
    root mean square error is at most 0.6 of that of the best constant.

They were set for test accuracy and for all tasks. The same can be asked by macro-F1, of the judgement of both trained
students in place of the forecast, and without the task whose teacher broke down: nothing of that was a goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.confirmation.rivals import BASE, LABELS, rivals_in
from experiments.lab.tables import MISSING
from wdistill.methods.statistics import Z, holm
from wdistill.report.accuracies import EQUAL, FEWEST, t_test
from wdistill.report.words import signed

Line = dict[str, Any]
Cell = tuple[str, int]  # task and gold rows
LEVEL, NEAR = 0.05, 1.0
REGRET = {500: 0.15, 100: 0.25}
GAIN = 1.5
WITHIN, HELD, OF_CONSTANT = 0.8, 0.9, 0.6
BROKEN = "fars"  # its frozen teacher broke down in two trials, whose gains are nearly all of the spread of means over tasks


@dataclass(frozen=True)
class Verdict:
    """One goal: what it asks for, what the lines show, and whether it is reached; None where no line tells."""

    goal: str
    target: str
    value: str
    reached: bool | None

    @property
    def word(self) -> str:
        return {True: "reached", False: "missed", None: "cannot be judged yet"}[self.reached]


@dataclass(frozen=True)
class MeanGain:
    """Points of an arm over another, mean over tasks."""

    mean: float
    error: float | None  # standard error over trials, given the tasks; None where a task has a single trial
    tasks: int


@dataclass(frozen=True)
class Loss:
    """A task and size on which `best` is significantly below a rival."""

    task: str
    gold: int
    rival: str
    points: float  # by which the rival is better, mean over trials
    p: float  # Holm-corrected


@dataclass(frozen=True)
class Forecasts:
    """Forecast and observed gains of `best` over unweighted + gold, in points."""

    cells: dict[Cell, tuple[float, float]]  # means over trials: forecast, observed
    held: float  # share of single trials inside their interval

    @property
    def near(self) -> int:
        """How many are within ±1 point."""
        return sum(abs(a - b) <= NEAR for a, b in self.cells.values())

    @property
    def missed(self) -> tuple[int, int]:
        """Of the others, how many are too low and too high."""
        low = sum(observed - told > NEAR for told, observed in self.cells.values())
        return low, len(self.cells) - self.near - low

    @property
    def rms(self) -> float:
        return float(np.sqrt(np.mean([(a - b) ** 2 for a, b in self.cells.values()])))

    @property
    def constant_rms(self) -> float:
        """Of always saying the mean of what was observed, which nobody knows beforehand."""
        return float(np.std([observed for _, observed in self.cells.values()]))


def sizes_of(lines: Sequence[Line]) -> list[int]:
    return sorted({line["gold"] for line in lines})


def tasks_of(lines: Sequence[Line], gold: int | None = None) -> list[str]:
    """The tasks that lines are of, with this number of gold rows or with any."""
    return list(dict.fromkeys(line["task"] for line in lines if gold in (None, line["gold"])))


def without_broken(lines: Sequence[Line]) -> list[Line]:
    """The lines without the task whose teacher broke down; none where that is the same, or leaves nothing."""
    others = [line for line in lines if line["task"] != BROKEN]
    return others if len(others) < len(lines) else []


def gaps(lines: Sequence[Line], arm: str, base: str, metric: str = "accuracy") -> dict[Cell, list[float]]:
    """Points of an arm over another, trial by trial, where a line has both."""
    found: dict[Cell, list[float]] = {}
    for line in lines:
        if {arm, base} <= set(line[metric]):
            found.setdefault((line["task"], line["gold"]), []).append(line[metric][arm] - line[metric][base])
    return found


def mean_gain(lines: Sequence[Line], arm: str, base: str, gold: int, metric: str = "accuracy") -> MeanGain | None:
    """At one number of gold rows, over the tasks that have both arms; None where no task has."""
    tasks = [values for (_, rows), values in gaps(lines, arm, base, metric).items() if rows == gold]
    if not tasks:
        return None
    errors = [np.std(values, ddof=1) / np.sqrt(len(values)) for values in tasks if len(values) > 1]
    error = float(np.sqrt(np.sum(np.square(errors))) / len(tasks)) if len(errors) == len(tasks) else None
    return MeanGain(float(np.mean([np.mean(values) for values in tasks])), error, len(tasks))


def below(lines: Sequence[Line], rival: str, gold: int, metric: str = "accuracy") -> dict[str, float]:
    """p of `best` being so far below a rival by chance, by task, Holm-corrected; tasks with too few trials are left out."""
    cells = {task: values for (task, rows), values in gaps(lines, "best", rival, metric).items() if rows == gold}
    tested = {task: values for task, values in cells.items() if len(values) >= FEWEST and np.ptp(values) > EQUAL}
    return dict(zip(tested, holm([_chance_below(values) for values in tested.values()]), strict=True))


def losses(lines: Sequence[Line], metric: str = "accuracy") -> list[Loss]:
    """Where `best` is significantly below a simple rival; every rival and number of gold rows by itself."""
    rivals = dict.fromkeys(name for line in lines for name in rivals_in(line[metric]))
    return [
        Loss(task, gold, rival, -float(np.mean(gaps(lines, "best", rival, metric)[task, gold])), p)
        for gold in sizes_of(lines)
        for rival in rivals
        for task, p in below(lines, rival, gold, metric).items()
        if p < LEVEL
    ]


def rival_gaps(
    lines: Sequence[Line], cell: Cell, rivals: Sequence[str] | None = None, metric: str = "accuracy"
) -> dict[str, list[float]]:
    """Points of every rival over `best` on one task, trial by trial; of those that all trials have."""
    here = [line[metric] for line in lines if (line["task"], line["gold"]) == cell]
    names = [name for name in rivals or rivals_in(here[0]) if all(name in arms for arms in here)]
    return {name: [arms[name] - arms["best"] for arms in here] for name in names}


def regrets(
    lines: Sequence[Line], gold: int, rivals: Sequence[str] | None = None, metric: str = "accuracy"
) -> dict[str, float]:
    """By task, the metric of the best of the rivals, each a mean over trials, minus that of `best`."""
    every = {task: rival_gaps(lines, (task, gold), rivals, metric).values() for task in tasks_of(lines, gold)}
    return {task: max(float(np.mean(values)) for values in each) for task, each in every.items()}


def over_simple(lines: Sequence[Line], gold: int, metric: str = "accuracy") -> dict[str, float]:
    """By task, points of `best` over the better of unweighted + gold and labels + gold."""
    return {task: -regret for task, regret in regrets(lines, gold, (BASE, LABELS), metric).items()}


def forecasts(lines: Sequence[Line], kind: str = "soft", metric: str = "accuracy") -> Forecasts:
    """Of pilots with soft or with hard targets; or, "after", of both trained students, judged on the pool."""
    end = ", hard" if kind == "hard" else ""

    def told(line: Line) -> tuple[Sequence[float], float]:
        said = (line["after"] if kind == "after" else line["forecast"][kind])[metric.replace("_", "-")]
        return said, line[metric][f"best{end}"] - line[metric][f"{BASE}{end}"]

    return _collected(lines, told)


def target_forecasts(lines: Sequence[Line]) -> Forecasts:
    """Of the targets of `best`, not of students: what their accuracy on the unlabeled rows is over the teacher's."""

    def told(line: Line) -> tuple[Sequence[float], float]:
        targets = line["targets"]
        gain, reach = 100 * targets["gain"], 100 * Z * targets["gain_error"]
        return (gain, gain - reach, gain + reach), targets["corrected"] - targets["teacher"]

    return _collected([line for line in lines if "targets" in line], told)


def _collected(lines: Sequence[Line], told: Callable[[Line], tuple[Sequence[float], float]]) -> Forecasts:
    """From what is said of every line, a value with its interval, and what came."""
    cells, inside = dict[Cell, list[tuple[float, float]]](), list[bool]()
    for line in lines:
        (value, low, high), observed = told(line)
        cells.setdefault((line["task"], line["gold"]), []).append((value, observed))
        inside.append(low <= observed <= high)
    means = {cell: np.mean(pairs, axis=0) for cell, pairs in cells.items()}
    held = float(np.mean(inside)) if inside else float("nan")
    return Forecasts({cell: (float(a), float(b)) for cell, (a, b) in means.items()}, held)


def verdicts(lines: Sequence[Line], metric: str = "accuracy") -> list[Verdict]:
    """All goals on these lines."""
    lost, cells = losses(lines, metric), len(gaps(lines, "best", BASE))
    tasks, places = {each.task for each in lost}, {(each.task, each.gold) for each in lost}
    many = f"{len(tasks)} of {len(tasks_of(lines))} tasks, {len(places)} of {cells} tasks and sizes"
    found = [Verdict("(a) tasks where best is significantly below a simple rival", "0", many, not lost)]
    for gold, most in REGRET.items():
        regret = mean_of(regrets(lines, gold, metric=metric).values())
        reached = None if regret is None else regret <= most
        found.append(Verdict(f"(b) mean regret, {gold} gold rows", f"at most {most}", _points(regret), reached))
    gain = mean_of(over_simple(lines, 500, metric).values())
    reached = None if gain is None else gain >= GAIN
    over = f"(c) gain over the better of {BASE} and {LABELS}, 500 gold rows"
    found.append(Verdict(over, f"at least {GAIN}", _points(gain), reached))
    return [*found, *forecast_verdicts("(d) forecasts", forecasts(lines, metric=metric))]


def forecast_verdicts(name: str, told: Forecasts) -> list[Verdict]:
    within, ratio = told.near / len(told.cells), told.rms / told.constant_rms if told.constant_rms else float("inf")
    near = f"{100 * within:.0f} %, {told.near} of {len(told.cells)} tasks and sizes"
    return [
        Verdict(f"{name} within ±1 point", f"{100 * WITHIN:.0f} %", near, within >= WITHIN),
        Verdict(f"{name}, trials inside the interval", f"{100 * HELD:.0f} %", f"{100 * told.held:.0f} %", told.held >= HELD),
        Verdict(f"{name}, error as a share of a constant's", f"at most {OF_CONSTANT}", f"{ratio:.2f}", ratio <= OF_CONSTANT),
    ]


def mean_of(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.mean(known)) if known else None


def _points(value: float | None) -> str:
    return MISSING if value is None else signed(value)


def _chance_below(values: Sequence[float]) -> float:
    """p of a paired t-test, one-sided."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    both = t_test(mean / error, len(values) - 1)
    return both / 2 if mean < 0 else 1 - both / 2
