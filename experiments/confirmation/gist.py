"""What documents say of the confirmation in a few rows and words, made of the lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from experiments.confirmation.judge import (
    BROKEN,
    HELD,
    WITHIN,
    Line,
    forecast_verdicts,
    forecasts,
    losses,
    mean_gain,
    mean_of,
    over_simple,
    regrets,
    sizes_of,
    tasks_of,
    without_broken,
)
from experiments.confirmation.kinds import losses_said, worst_elsewhere
from experiments.confirmation.report import Row, by_columns, gain_text
from experiments.confirmation.rivals import BASE, LABELS
from experiments.lab.tables import MISSING
from experiments.leaderboard.report import percent
from wdistill.report.words import listed, signed

ANSWERS = "tweets-llm"  # the task whose teacher is an LLM's stored answers
HARDLY = 0.5  # points above the better of the two baselines that are hardly worth a method


def gist(lines: Sequence[Line]) -> str:
    """What `best` gains, and where it does not, in a few rows."""
    rows: Mapping[str, Row] = {
        "tasks": lambda some, gold: f"{len(tasks_of(some, gold))}",
        f"over {BASE}": lambda some, gold: gain_text(mean_gain(some, "best", BASE, gold)),
        f"over {LABELS}": lambda some, gold: gain_text(mean_gain(some, "best", LABELS, gold)),
        "over the better of the two, task by task": lambda some, gold: _mean(over_simple(some, gold)),
        "over the best simple rival of every task, in hindsight": lambda some, gold: _mean(over_best(some, gold)),
        f"tasks where it is less than {HARDLY:g} points above the better of the two": lambda some, gold: (
            listed(hardly_better(some, gold)) or MISSING
        ),
        "tasks where a simple rival is significantly better": lambda some, gold: (
            listed(list(dict.fromkeys(each.task for each in losses(some) if each.gold == gold))) or MISSING
        ),
    }
    return by_columns("points of best", rows, lines) + "\n"


def sayings(lines: Sequence[Line]) -> dict[str, str]:
    """What sentences and single cells say, by the name of their place."""
    sizes, others = sizes_of(lines), without_broken(lines)

    def means(arm: str, base: str, some: Sequence[Line] = lines) -> str:
        return ", ".join(gain_text(mean_gain(some, arm, base, gold)) for gold in sizes)

    golds, counts = f"{_each(sizes)} gold rows", _each(len(tasks_of(lines, gold)) for gold in sizes)
    simple, best = (", ".join(_mean(found(lines, gold)) for gold in sizes) for found in (over_simple, over_best))
    broken = f"; without {BROKEN}, whose teacher broke down in two trials, "
    apart = broken + means("best", BASE, others) if others else ""
    paper, shuffled = "paper+gold", "shuffled+gold"
    alone = f"{broken}{means(paper, BASE, others)} and {means(shuffled, BASE, others)}" if others else ""
    pilots, after = forecasts(lines), forecasts(lines, "after")
    near, held, _ = (each.word for each in forecast_verdicts("", pilots))
    told, came = (signed(each) for each in np.mean(list(pilots.cells.values()), axis=0))
    few = [f"{len(hardly_better(lines, gold))} of {len(tasks_of(lines, gold))}" for gold in sizes]
    return {
        "gain": f"{simple} points over the better baseline of every task, with {golds} ({counts} tasks); {best} over the "
        f"best simple rival of every task, in hindsight; {means('best', BASE)} over `{BASE}`{apart}",
        "weights": f"{means(paper, BASE)} points over no weights, with {golds}; the same weights given to rows at random "
        f"{means(shuffled, BASE)}{alone}",
        "forecast": f"within ±1 point in {pilots.near} of {len(pilots.cells)} tasks and sizes (goal {100 * WITHIN:.0f} %: "
        f"{near}), too low in {pilots.missed[0]}, too high in {pilots.missed[1]}; {percent(pilots.held)} of single trials "
        f"inside its interval (goal {100 * HELD:.0f} %: {held}); {told} forecast and {came} observed in the mean. After "
        f"training the same judges put {after.near} of {len(after.cells)} within ±1 point, {percent(after.held)} inside",
        "hardly": f"{listed(few)} tasks with {golds}",
        "rivals": _better_rivals(lines),
        "losses": losses_said(lines),
        "worst": worst_elsewhere(lines),
        "answers": _of_answers(lines),
        "near": f"{pilots.near} of {len(pilots.cells)}",
    }


def over_best(lines: Sequence[Line], gold: int) -> dict[str, float]:
    """By task, points of `best` over the best of its simple rivals."""
    return {task: -regret for task, regret in regrets(lines, gold).items()}


def hardly_better(lines: Sequence[Line], gold: int) -> list[str]:
    """The tasks where `best` is below the better of unweighted + gold and labels + gold, or hardly above it."""
    return [task for task, gain in over_simple(lines, gold).items() if gain < HARDLY]


def _better_rivals(lines: Sequence[Line]) -> str:
    """By task, the rivals that `best` is significantly below, and by how much at each number of gold rows."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for each in losses(lines):
        found.setdefault((each.task, each.rival), {})[each.gold] = f"{each.points:.2f}"
    words = [
        f"`{rival}` on {task}, by {listed(list(by_gold.values()))} points with {_each(by_gold)} gold rows"
        for (task, rival), by_gold in found.items()
    ]
    return "; ".join(words) or "no simple rival on any task"


def _of_answers(lines: Sequence[Line]) -> str:
    """What `best`, and recalibration alone, gain on an LLM's answers."""
    theirs = [line for line in lines if line["task"] == ANSWERS]
    sizes = sizes_of(theirs)

    def gains(arm: str) -> str:
        return listed([gain_text(mean_gain(theirs, arm, BASE, gold)) for gold in sizes])

    return f"{gains('best')} points over `{BASE}` with {_each(sizes)} gold rows, recalibration alone " + gains(
        "recalibrated+gold"
    )


def _mean(by_task: Mapping[str, float]) -> str:
    mean = mean_of(by_task.values())
    return MISSING if mean is None else signed(mean)


def _each(numbers: Iterable[int]) -> str:
    return listed([f"{number:,}" for number in numbers])
