"""The leaderboard as tables of numbers in Markdown, and as figures; all of it made of the lines.

A board compares methods over the same trials alone: those that have all of its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.lab.figures import FIGURE_LOOK
from experiments.lab.tables import MISSING, commits, hardware, joined, markdown
from experiments.leaderboard import statistics
from experiments.leaderboard.statistics import (
    LEVEL,
    NEAR,
    PLAIN,
    SIMPLE,
    Agreement,
    Forecast,
    Gain,
    Standing,
    gains,
    standing,
)
from experiments.leaderboard.tasks import Protocol, Task, data_of
from experiments.leaderboard.transfer import BASE, TRANSFER, Line
from wdistill.report.svg import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE
from wdistill.report.words import MINUS, chance, count, duration, listed, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Key = tuple[str, int]  # task and gold rows
LISTED = (  # in documents, as far as a board has them
    *("best", "corrected-retrained+gold", "retrained+gold", "corrected+gold", "corrected", "logistic+gold", "mixed+gold"),
    *("paper+gold", "paper", "unweighted", "labels+gold", "oracle"),
)
DRAWN = {  # methods of the figure: color and marker
    "best": (BLUE, "o"),
    "corrected+gold": (ORANGE, "D"),
    "retrained+gold": (PURPLE, "s"),
    "paper+gold": (AMBER, "X"),
    "oracle": (GREEN, "^"),
}
HALVES = ("confirmation", "tuning")
MEASURE = f"Points of test accuracy over {BASE}, mean over tasks ± standard error over trials"
COLUMNS = ("gain", "won", "worst", f"over {PLAIN}", "won", "worst", "share of the oracle's gain")
NONE_YET = "No trials yet."
WITHIN = f"within ±{NEAR:g} point"


@dataclass(frozen=True)
class Board:
    """Methods by number of gold rows, all over the same trials."""

    title: str
    tasks: tuple[str, ...]
    trials: Mapping[int, Mapping[str, int]]  # gold rows → task → trials that there are
    rows: Mapping[str, Mapping[int, Standing | None]]  # method → gold rows → standing
    of: int  # trials that there are to be of every task

    def n(self, gold: int) -> str:
        """Tasks and trials of a size: "6 of 7 tasks, 3–5 of 5 trials"."""
        counts = [n for n in self.trials[gold].values() if n]
        spread = "–".join(str(n) for n in dict.fromkeys([min(counts, default=0), max(counts, default=0)]))
        return f"{len(counts)} of {count(len(self.trials[gold]), 'task')}, {spread} of {count(self.of, 'trial')}"


@dataclass(frozen=True)
class Goal:
    """One target, set before the runs, and what was observed."""

    name: str
    required: str
    observed: str
    reached: bool | None  # None where there is nothing to judge by
    final: bool  # whether all trials that it is judged by are there

    @property
    def verdict(self) -> str:
        if self.reached is None:
            return "cannot be judged yet"
        return ("reached" if self.reached else "not reached") + ("" if self.final else " so far")


# ----------------------------------------------------------------------------------------------------------------- boards


def boards(plan: Protocol, lines: Sequence[Line]) -> Iterator[Board]:
    """Methods that run everywhere over each half, and over its tasks whose teacher can be retrained; then all methods."""
    for half in HALVES:
        mine = plan.half(half)
        yield board(plan, lines, f"{half.capitalize()} half, soft targets", mine)
        retrainable = [task for task in mine if not task.frozen]
        if _shared(plan, retrainable) != _shared(plan, mine):
            yield board(plan, lines, f"{half.capitalize()} half, soft targets, teachers that can be retrained", retrainable)
    for targets in ("soft", "hard"):
        for half in HALVES:
            whole = [task for task in plan.half(half) if task.all_methods]
            title = f"All methods, {targets} targets, {half} half"
            yield board(plan, lines, f"{title}, own teachers", [task for task in whole if not task.frozen], targets)
            yield board(plan, lines, f"{title}, frozen teachers", [task for task in whole if task.frozen], targets)


def board(plan: Protocol, lines: Sequence[Line], title: str, tasks: Sequence[Task], targets: str = "soft") -> Board:
    """All methods that each of the tasks runs; and labels alone if all trials have it."""
    names, methods = tuple(task.name for task in tasks), _shared(plan, tasks)
    known = [line for line in lines if line["task"] in names and set(methods) <= set(line["accuracies"].get(targets, {}))]
    if SIMPLE not in methods and known and all(SIMPLE in line["accuracies"][targets] for line in known):
        methods = [*methods, SIMPLE]
    trials: dict[int, dict[str, int]] = {gold: {} for gold in plan.gold}
    for task, gold in plan.cells(tasks):
        trials[gold][task.name] = _count(known, task.name, gold)
    rows = {method: {gold: standing(known, method, gold, targets=targets) for gold in plan.gold} for method in methods}
    return Board(title, names, trials, rows, max((task.trials for task in tasks), default=0))


def _tables(shown: Board) -> Iterator[str]:
    """A table for every size, the method with the largest gain first."""
    for gold in shown.trials:
        ranked = sorted(shown.rows, key=lambda method: -each.mean if (each := shown.rows[method][gold]) else 0.0)
        rows = [[f"`{method}`", *_cells(shown.rows[method][gold])] for method in ranked]
        yield f"#### {shown.title}, {gold:,} gold rows"
        yield f"n = {shown.n(gold)}: {listed(shown.tasks)}."
        yield markdown(["method", *COLUMNS], rows)


def _cells(found: Standing | None) -> list[str]:
    if found is None or found.over is None:
        return [MISSING] * len(COLUMNS)
    cells = [(points(each), f"{each.wins} of {each.tasks}", signed(each.worst)) for each in (found, found.over)]
    return [*cells[0], *cells[1], percent(found.share)]


# ------------------------------------------------------------------------------------------------------- goals and numbers


def goals(plan: Protocol, lines: Sequence[Line]) -> list[Goal]:
    """The targets that were set before the runs, all of them on the confirmation half with soft targets."""
    mine, _ = _halves(plan, lines)
    whole = dict.fromkeys(plan.gold, True)
    for task, gold in plan.cells(plan.half("confirmation")):
        whole[gold] &= _count(mine, task.name, gold) >= task.trials
    tested, gain, forecast = _below(plan, mine), standing(mine, "best", plan.middle), _forecast(mine)
    lost, within = sum(sure for _, sure in tested.values()), forecast.within if forecast else None
    safe = f"tasks and sizes where best is significantly below {BASE} (paired t, one-sided, Holm over tasks, 5 %)"
    close = f"tasks and sizes whose predicted gain of corrected targets is {WITHIN} of the observed one"
    enough = f"mean gain of best over {BASE}, {plan.middle:,} gold rows"
    return [
        Goal(safe, "0", f"{lost} of {len(tested)}", not lost if tested else None, all(whole.values())),
        Goal(enough, "≥ +1.00", points(gain), gain.mean >= 1 if gain else None, whole[plan.middle]),
        Goal(close, "≥ 80 %", _near(forecast), None if within is None else within >= 0.8, all(whole.values())),
    ]


def details(plan: Protocol, lines: Sequence[Line]) -> dict[str, str]:
    """More numbers of the confirmation half, soft targets where nothing else is said."""
    from scipy.stats import t

    mine, others = _halves(plan, lines)
    tested, by_task, at = _below(plan, mine), gains(mine, "best"), f"{plan.middle:,} gold rows"
    worst = min(tested, key=lambda key: by_task[key].mean, default=None)
    lowest = f"{_place(worst)}: {points(by_task[worst])}, {chance(tested[worst][0])}" if worst else MISSING
    confirming = plan.half("confirmation")
    seen = float(t.isf(LEVEL / len(confirming), min(task.trials for task in confirming) - 1))
    tuned = {task.data for task in plan.half("tuning")}
    fresh = standing([line for line in mine if data_of(line["task"]) not in tuned], "best", plan.middle)
    rows, simple = statistics.rows_error(mine, "best", plan.middle), statistics.over_simple(mine, "best", plan.middle)
    forecast, single = _forecast(mine), statistics.coverage(mine, curve=TRANSFER["soft"])
    chosen, tuning = statistics.forecast_best(mine, TRANSFER["soft"]), _forecast(others)
    mean = float(np.mean(list(tuning.observed.values()))) if tuning else 0.0
    blind = statistics.constant_forecast(forecast, mean) if forecast and tuning else None
    near = {task: abs(forecast.gap(task)) <= NEAR for task, _ in forecast.predicted} if forecast else {}
    far = max(forecast.predicted, key=forecast.distance) if forecast else None
    return {
        "lowest gain of best": lowest,
        "tasks and sizes with a mean gain below 0": f"{sum(each.mean < 0 for each in by_task.values())} of {len(by_task)}",
        "standard errors of a loss that the test would see": f"{seen:.1f}",
        f"gain of best at {at}, data that no tuning task has": _points_of(fresh),
        f"gain of best at {at}, hard targets": _points_of(standing(mine, "best", plan.middle, targets="hard")),
        "standard error that the shared test rows add": f"{rows:.2f}" if rows else MISSING,
        f"gain of best at {at} over the better of {BASE} and {SIMPLE}": signed(simple[0]) if simple else MISSING,
        f"tasks where {SIMPLE} is the better one": listed(simple[1]) if simple else MISSING,
        "calibration error of the predicted gain (root mean square)": f"{forecast.rms:.2f}" if forecast else MISSING,
        "furthest from its prediction": f"{_place(far)}: {forecast.both(far)}" if forecast and far else MISSING,
        f"predictions {WITHIN}, means over sizes": f"{sum(near.values())} of {len(near)} tasks",
        f"predictions {WITHIN}, gain of best": _near(chosen),
        f"single trials {WITHIN} of their prediction": f"{percent(single.within)} of {single.trials}" if single else MISSING,
        "single trials inside their 95 % interval": percent(single.covered) if single else MISSING,
        f"{WITHIN} if the tuning half's mean, {signed(mean)}, is always predicted": _near(blind),
        "calibration error of that": f"{blind.rms:.2f}" if blind else MISSING,
    }


def predictions(lines: Sequence[Line]) -> dict[str, str]:
    """How well gains were predicted over all tasks and trials; nothing of fewer than three data sets."""
    numbers: dict[str, str] = {}
    for targets in ("soft", "hard"):
        forecast, single = statistics.forecast(lines, targets), statistics.coverage(lines, targets)
        if forecast and single:
            line = f"{forecast.slope:.2f} · predicted {signed(forecast.intercept)}"
            numbers |= {
                f"{targets} targets: tasks and sizes {WITHIN}, predicted from all other data sets": _near(forecast),
                f"{targets} targets: observed gain, correlation": f"{line}, {forecast.correlation:.2f}".replace("-", MINUS),
                f"{targets} targets: single trials {WITHIN}": f"{percent(single.within)} of {single.trials}",
                f"{targets} targets: single trials inside their 95 % interval": percent(single.covered),
            }
    if numbers:
        whole = statistics.targets_agreement(lines)
        numbers["accuracy of corrected targets over the teacher's"] = _agreement(whole)
        numbers["such gains inside their 95 % interval"] = percent(whole.covered) if whole else MISSING
        for gold, then in pairwise(sorted({line["gold"] for line in lines})):
            projected = statistics.projected_gain(lines, gold, then)
            numbers[f"the same, projected from {gold:,} to {then:,} gold rows"] = _agreement(projected)
    return numbers


def choices(plan: Protocol, lines: Sequence[Line]) -> list[list[str]]:
    """On how many trials `best` corrected the targets; on the others it stayed with the teacher's own."""
    groups = {**{task.name: [task.name] for task in plan.tasks}, "all tasks": [task.name for task in plan.tasks]}

    def cell(names: Sequence[str], gold: int) -> str:
        known = [line for line in lines if "best" in line["why"] and line["task"] in names and line["gold"] == gold]
        return f"{sum(map(statistics.corrected, known))} of {len(known)}" if known else MISSING

    return [[name, *(cell(names, gold) for gold in plan.gold)] for name, names in groups.items()]


def trials(plan: Protocol, lines: Sequence[Line]) -> list[list[str]]:
    """How much of every task has been run."""

    def cell(task: Task, gold: int) -> str:
        n = _count(lines, task.name, gold)
        return f"{n} of {max(n, task.trials)}" if gold <= task.most_gold else MISSING

    return [[f"{task.name}, {task.half}", *(cell(task, gold) for gold in plan.gold)] for task in plan.tasks]


def provenance(lines: Sequence[Line]) -> str:
    """Code, hardware, seeds, data and time of lines."""
    versions = {f"{name} {line['environment'].get(name, '?')}" for line in lines for name in ("torch", "scikit-learn")}
    copies: dict[str, list[str]] = {}  # source → names
    unofficial = [line["data"] for line in lines if not line["data"].get("official", True)]
    for name, source in sorted({(data["name"], data["source"]) for data in unofficial}):
        copies.setdefault(source, []).append(name)
    numbers, seconds = [line["trial"] for line in lines], sum(line["seconds"] for line in lines)
    splits = listed([f"{more:,}" for more in sorted({line["settings"]["split"] - line["trial"] for line in lines})])
    seeds = f"seeds {min(numbers)}–{max(numbers)}, of the splits {splits} more"
    where = ", ".join([*hardware(lines), *sorted(versions), f"{duration(seconds)} on one thread"])
    texts = "; ".join(f"{listed(names)}: {source}" for source, names in copies.items())
    return "; ".join([commits(lines), where, seeds, *([f"unofficial data: {texts}"] if texts else [])]) + "."


# -------------------------------------------------------------------------------------------------------------- documents


def table(plan: Protocol, lines: Sequence[Line]) -> str:
    """All numbers as Markdown."""
    sizes = [f"{gold:,} gold rows" for gold in plan.gold]
    parts = ["### Leaderboard", run_so_far(plan, lines), *_goals(plan, lines)]
    if lines:
        parts += [f"{MEASURE}.", *(text for each in boards(plan, lines) if each.tasks for text in _tables(each))]
        parts += ["#### Predicted gains", _pairs(predictions(lines))]
        parts += ["#### Trials on which `best` corrected the targets", markdown(["task", *sizes], choices(plan, lines))]
    parts += ["#### Trials", markdown(["task", *sizes], trials(plan, lines))]
    return joined([*parts, provenance(lines)] if lines else parts)


def brief(plan: Protocol, lines: Sequence[Line]) -> str:
    """A dozen methods on the confirmation half, and the goals, for documents."""
    tasks, (mine, _) = plan.half("confirmation"), _halves(plan, lines)
    if not mine:
        return joined([NONE_YET])
    whole = [task for task in tasks if task.all_methods and not task.frozen]
    both = [board(plan, lines, "", each) for each in (tasks, whole)]
    columns = [(shown, gold) for shown in both for gold in plan.gold]
    methods = [method for method in LISTED if any(method in shown.rows for shown in both)]
    cells = {method: [points(shown.rows.get(method, {}).get(gold)) for shown, gold in columns] for method in methods}
    rows = [[f"`{method}`", *each] for method, each in cells.items()]
    rows.append(["n", *(shown.n(gold) for shown, gold in columns)])
    head = ["method", *(f"{gold:,} gold rows, {count(len(shown.trials[gold]), 'task')}" for shown, gold in columns)]
    meaning = f"{MEASURE}, soft targets, confirmation half: all tasks, and those for all methods with a teacher to retrain."
    return joined([markdown(head, rows), meaning, *_goals(plan, lines), provenance(mine)])


def validated(lines: Sequence[Line]) -> str:
    """The predictions, for documents."""
    numbers = predictions(lines)
    return joined([_pairs(numbers), provenance(lines)] if numbers else ["Not yet: that takes trials of three data sets."])


def run_so_far(plan: Protocol, lines: Sequence[Line]) -> str:
    cells = plan.cells(plan.tasks)
    there = sum(min(task.trials, _count(lines, task.name, gold)) for task, gold in cells)
    return f"{there:,} of {sum(task.trials for task, _ in cells):,} trials have been run." if there else NONE_YET


def _goals(plan: Protocol, lines: Sequence[Line]) -> list[str]:
    rows = [[goal.name, goal.required, goal.observed, goal.verdict] for goal in goals(plan, lines)]
    return [markdown(["target, set before the runs", "required", "observed", "verdict"], rows), _pairs(details(plan, lines))]


def _pairs(numbers: Mapping[str, str]) -> str:
    return markdown(["number", "value"], [list(pair) for pair in numbers.items()])


# ---------------------------------------------------------------------------------------------------------------- figures


def overview(plan: Protocol, lines: Sequence[Line]) -> Figure:
    """Every task of the confirmation half, a panel for each number of gold rows."""
    by_method = {name: gains(lines, name) for name in DRAWN}
    return tasks_figure([task.name for task in plan.half("confirmation")], plan.gold, by_method, DRAWN)


def tasks_figure(
    tasks: Sequence[str],
    sizes: Sequence[int],
    by_method: Mapping[str, Mapping[Key, Gain]],
    looks: Mapping[str, tuple[str, str]],
) -> Figure:
    """A point for each task and method, in a panel for each size; `looks`: color and marker of the methods."""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(sizes), sharex=True, sharey=True, squeeze=False)[0]
        for axes, gold in zip(panels, sizes, strict=True):
            _draw_tasks(axes, tasks, gold, by_method, looks)
            axes.set_title(f"{gold:,} gold rows")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(looks))

    return _drawn(draw, 3.2 * len(sizes), 0.9 + 0.55 * len(tasks))


def _draw_tasks(
    axes: Axes,
    tasks: Sequence[str],
    gold: int,
    by_method: Mapping[str, Mapping[Key, Gain]],
    looks: Mapping[str, tuple[str, str]],
) -> None:
    """A point and its standard error for each task and method."""
    axes.axvline(0, color=GREY, linewidth=1)
    for i, (name, by_task) in enumerate(by_method.items()):
        known = [(place, by_task[task, gold]) for place, task in enumerate(reversed(tasks)) if (task, gold) in by_task]
        means, errors = [gain.mean for _, gain in known], [gain.error or 0.0 for _, gain in known]
        heights = [place + 0.15 * ((len(by_method) - 1) / 2 - i) for place, _ in known]
        edge: dict[str, Any] = {"markersize": 6, "markeredgecolor": INK, "markeredgewidth": 0.5}
        color, marker = looks[name]
        axes.errorbar(means, heights, xerr=errors, fmt=marker, color=color, capsize=2, label=name, **edge)
    for place in range(1, len(tasks)):
        axes.axhline(place - 0.5, color=PALE, linewidth=0.8)
    axes.set_yticks(range(len(tasks)), list(reversed(tasks)))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.55, len(tasks) - 0.45)
    axes.set_xlabel(f"points over {BASE}")


def predicted_figure(plan: Protocol, lines: Sequence[Line]) -> Figure:
    """Predicted and observed gain of corrected targets, each task predicted from all other data sets."""
    forecast = statistics.forecast(lines)
    confirming = {task.name for task in plan.half("confirmation")}

    def draw(figure: Figure) -> None:
        axes, known = figure.subplots(), forecast.predicted if forecast else {}
        every = [*known.values(), *(forecast.observed.values() if forecast else ()), 0.0]
        ends = np.array([min(every) - 0.5, max(every) + 0.5])
        axes.fill_between(ends, ends - NEAR, ends + NEAR, color=PALE, linewidth=0, alpha=0.6, label=WITHIN)
        axes.plot(ends, ends, color=GREY, linewidth=1)
        for half, color, marker in (("confirmation", BLUE, "o"), ("tuning", ORANGE, "X")):
            mine = [key for key in known if (key[0] in confirming) == (half == "confirmation")]
            x, y = [known[key] for key in mine], [forecast.observed[key] for key in mine] if forecast else []
            axes.plot(x, y, marker, color=color, markeredgecolor=INK, markeredgewidth=0.5, label=half)
        axes.set(xlim=ends, ylim=ends, xlabel="predicted gain, points", ylabel="observed gain, points")
        figure.legend(loc="outside lower center", ncols=3)

    return _drawn(draw, 5.0, 4.8)


def _drawn(draw: Callable[[Figure], None], width: float, height: float) -> Figure:
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", FIGURE_LOOK]):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
    return figure


# ------------------------------------------------------------------------------------------------------------------ cells


def points(found: Standing | Gain | None) -> str:
    """With the standard error where there is one."""
    if found is None:
        return MISSING
    return signed(found.mean) + (f" ± {found.error:.2f}" if found.error is not None else "")


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f} %".replace("-", MINUS)


def _points_of(found: Standing | None) -> str:
    return f"{points(found)}, {count(found.tasks, 'task')}" if found else MISSING


def _near(forecast: Forecast | None) -> str:
    if forecast is None:
        return MISSING
    n = len(forecast.predicted)
    return f"{round(forecast.within * n)} of {n} ({percent(forecast.within)})"


def _agreement(found: Agreement | None) -> str:
    if found is None:
        return MISSING
    means = f"{signed(found.predicted)} predicted, {signed(found.observed)} observed"
    return f"{means}, calibration error {found.rms:.2f}, n = {found.trials}"


def _place(key: Key) -> str:
    return f"{key[0]}, {key[1]:,} gold rows"


# ------------------------------------------------------------------------------------------------------------------ lines


def _halves(plan: Protocol, lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """Lines of the confirmation half, and of the tuning half."""
    names = {task.name for task in plan.half("confirmation")}
    return [line for line in lines if line["task"] in names], [line for line in lines if line["task"] not in names]


def _below(plan: Protocol, mine: Sequence[Line]) -> dict[Key, tuple[float, bool]]:
    """The tests of best against the baseline, corrected over tasks at each size."""
    tests = [statistics.below([line for line in mine if line["gold"] == gold], "best") for gold in plan.gold]
    return {key: test for each in tests for key, test in each.items()}


def _forecast(lines: Sequence[Line]) -> Forecast | None:
    return statistics.forecast_with(lines, TRANSFER["soft"])


def _shared(plan: Protocol, tasks: Sequence[Task]) -> list[str]:
    """Methods that each of the tasks runs."""
    every = [list(plan.methods_of(task)) for task in tasks]
    return [method for method in every[0] if all(method in each for each in every)] if every else []


def _count(lines: Iterable[Line], task: str, gold: int) -> int:
    return sum(line["task"] == task and line["gold"] == gold for line in lines)
