"""The four goals of the confirmation, judged from the lines; and the board.

(a) `best` is significantly below no simple rival on any task: paired t over trials, one-sided, Holm over tasks, 5 %.
(b) Its mean regret to the best simple rival of every task, in hindsight, is at most 0.15 points at 500 gold rows, and
    0.25 at 100.
(c) It gains at least 1.5 points at 500 over the better of unweighted + gold and labels + gold.
(d) The forecast is within ±1 point for 80 % of tasks and sizes, its intervals hold at least 90 % of single trials, and its
    root mean square error is at most 0.6 of that of the best constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.confirmation.rivals import BASE, LABELS, rivals_in
from experiments.lab.tables import MISSING, markdown
from wdistill.methods.statistics import holm
from wdistill.report.accuracies import EQUAL, FEWEST, t_test
from wdistill.report.words import signed

Line = dict[str, Any]
Cell = tuple[str, int]  # task and gold rows
LEVEL, NEAR = 0.05, 1.0
REGRET = {500: 0.15, 100: 0.25}
GAIN = 1.5
WITHIN, HELD, OF_CONSTANT = 0.8, 0.9, 0.6


@dataclass(frozen=True)
class Verdict:
    """One goal: what it asks for, what the lines show, and whether it is reached; None where no line tells."""

    goal: str
    target: str
    value: str
    reached: bool | None


@dataclass(frozen=True)
class Forecasts:
    """Forecast and observed gains of `best` over unweighted + gold, in points."""

    cells: dict[Cell, tuple[float, float]]  # means over trials: forecast, observed
    held: float  # share of single trials inside their interval

    @property
    def within(self) -> float:
        return float(np.mean([abs(a - b) <= NEAR for a, b in self.cells.values()]))

    @property
    def rms(self) -> float:
        return float(np.sqrt(np.mean([(a - b) ** 2 for a, b in self.cells.values()])))

    @property
    def constant_rms(self) -> float:
        """Of always saying the mean of what was observed, which nobody knows beforehand."""
        return float(np.std([observed for _, observed in self.cells.values()]))


def gaps(lines: Sequence[Line], arm: str, base: str, metric: str = "accuracy") -> dict[Cell, list[float]]:
    """Points of an arm over another, trial by trial, where a line has both."""
    found: dict[Cell, list[float]] = {}
    for line in lines:
        if {arm, base} <= set(line[metric]):
            found.setdefault((line["task"], line["gold"]), []).append(line[metric][arm] - line[metric][base])
    return found


def below(lines: Sequence[Line], rival: str, gold: int, metric: str = "accuracy") -> dict[str, float]:
    """p of `best` being so far below a rival by chance, by task, Holm-corrected; tasks with too few trials are left out."""
    cells = {task: values for (task, rows), values in gaps(lines, "best", rival, metric).items() if rows == gold}
    tested = {task: values for task, values in cells.items() if len(values) >= FEWEST and np.ptp(values) > EQUAL}
    return dict(zip(tested, holm([_chance_below(values) for values in tested.values()]), strict=True))


def rival_gaps(lines: Sequence[Line], cell: Cell, rivals: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Points of every rival over `best` on one task, trial by trial; of those that all trials have."""
    here = [line["accuracy"] for line in lines if (line["task"], line["gold"]) == cell]
    names = [name for name in rivals or rivals_in(here[0]) if all(name in arms for arms in here)]
    return {name: [arms[name] - arms["best"] for arms in here] for name in names}


def regrets(lines: Sequence[Line], gold: int, rivals: Sequence[str] | None = None) -> dict[str, float]:
    """By task, the accuracy of the best of the rivals, each a mean over trials, minus that of `best`."""
    tasks = dict.fromkeys(line["task"] for line in lines if line["gold"] == gold)
    every = {task: rival_gaps(lines, (task, gold), rivals).values() for task in tasks}
    return {task: max(float(np.mean(values)) for values in each) for task, each in every.items()}


def forecasts(lines: Sequence[Line], targets: str = "soft", metric: str = "accuracy") -> Forecasts:
    """Of all lines, with soft targets or with hard ones."""
    end, cells, inside = "" if targets == "soft" else ", hard", dict[Cell, list[tuple[float, float]]](), list[bool]()
    for line in lines:
        value, low, high = line["forecast"][targets][metric]
        observed = line[metric.replace("-", "_")][f"best{end}"] - line[metric.replace("-", "_")][f"{BASE}{end}"]
        cells.setdefault((line["task"], line["gold"]), []).append((value, observed))
        inside.append(low <= observed <= high)
    means = {cell: np.mean(pairs, axis=0) for cell, pairs in cells.items()}
    held = float(np.mean(inside)) if inside else float("nan")
    return Forecasts({cell: (float(a), float(b)) for cell, (a, b) in means.items()}, held)


def verdicts(lines: Sequence[Line]) -> list[Verdict]:
    """All goals on these lines."""
    sizes = sorted({line["gold"] for line in lines})
    rivals = list(dict.fromkeys(name for line in lines for name in rivals_in(line["accuracy"])))
    lost = [
        f"{task} at {gold} against {rival} (p = {p:.3f})"
        for gold in sizes
        for rival in rivals
        for task, p in below(lines, rival, gold).items()
        if p < LEVEL
    ]
    found = [Verdict("(a) tasks where best is significantly below a simple rival", "0", _listed(lost), not lost)]
    for gold, most in REGRET.items():
        regret = _mean_of(regrets(lines, gold).values())
        reached = None if regret is None else regret <= most
        found.append(Verdict(f"(b) mean regret, {gold} gold rows", f"at most {most}", _points(regret), reached))
    gain = _mean_of(-each for each in regrets(lines, 500, (BASE, LABELS)).values())
    reached = None if gain is None else gain >= GAIN
    over = f"(c) gain over the better of {BASE} and {LABELS}, 500 gold rows"
    found.append(Verdict(over, f"at least {GAIN}", _points(gain), reached))
    told = forecasts(lines)
    ratio = told.rms / told.constant_rms if told.constant_rms else float("inf")
    of = f"of {len(told.cells)} tasks and sizes"
    found += [
        Verdict(
            "(d) forecasts within ±1 point",
            f"{100 * WITHIN:.0f} %",
            f"{100 * told.within:.0f} % {of}",
            told.within >= WITHIN,
        ),
        Verdict(
            "(d) single trials inside the interval", f"{100 * HELD:.0f} %", f"{100 * told.held:.0f} %", told.held >= HELD
        ),
        Verdict("(d) error, as a share of a constant's", f"at most {OF_CONSTANT}", f"{ratio:.2f}", ratio <= OF_CONSTANT),
    ]
    return found


def judged(lines: Sequence[Line]) -> str:
    """The goals as a table in Markdown."""
    words = {True: "reached", False: "missed", None: "cannot be judged yet"}
    rows = [(each.goal, each.target, each.value, words[each.reached]) for each in verdicts(lines)]
    return markdown(("goal, set before the runs", "required", "observed", "verdict"), rows)


def board(lines: Sequence[Line], metric: str = "accuracy") -> str:
    """Every arm over unweighted + gold, mean over tasks ± standard error over trials, by number of gold rows."""
    sizes = sorted({line["gold"] for line in lines})
    names = list(dict.fromkeys(name for line in lines for name in line[metric]))
    rows = []
    for name in names:
        cells = gaps(lines, name, BASE, metric)
        rows.append((name, *(_mean([values for (_, rows_), values in cells.items() if rows_ == gold]) for gold in sizes)))
    order = sorted(rows, key=lambda row: -float(row[-1].split()[0].replace("−", "-") if row[-1] else "-99"))
    return markdown(("arm", *(f"{gold:,} gold rows" for gold in sizes)), order)


def _mean_of(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.mean(known)) if known else None


def _points(value: float | None) -> str:
    return MISSING if value is None else signed(value)


def _mean(tasks: Sequence[Sequence[float]]) -> str:
    """Mean over tasks ± its standard error, and how many tasks there are."""
    if not tasks:
        return ""
    mean = float(np.mean([np.mean(values) for values in tasks]))
    errors = [np.std(values, ddof=1) / np.sqrt(len(values)) for values in tasks if len(values) > 1]
    if len(errors) < len(tasks):
        return f"{signed(mean)} ({len(tasks)})"
    return f"{signed(mean)} ± {float(np.sqrt(np.sum(np.square(errors))) / len(tasks)):.2f} ({len(tasks)})"


def _listed(lost: Sequence[str]) -> str:
    return f"{len(lost)}: {'; '.join(lost)}" if lost else "0"


def _chance_below(values: Sequence[float]) -> float:
    """p of a paired t-test, one-sided."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    both = t_test(mean / error, len(values) - 1)
    return both / 2 if mean < 0 else 1 - both / 2
