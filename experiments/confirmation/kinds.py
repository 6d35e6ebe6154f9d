"""How the forecast did by kind of student and by data set, and which losses it foresaw: all of it made of the lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.confirmation.judge import Forecasts, Line, forecasts
from experiments.confirmation.rivals import BASE
from experiments.confirmation.widths import PILOTS, elsewhere, misses
from experiments.lab.tables import markdown
from experiments.leaderboard.tasks import data_of
from wdistill.report.words import signed

KINDS: Mapping[str, tuple[str, ...]] = {  # what the student reads, and its kind: tasks
    "tables, perceptrons": ("kr_vs_k", "fars", "page_blocks", "spambase", "phoneme"),
    "texts as 100 directions, perceptrons": (
        *("rotten-head", "rotten-zero", "reuters-head", "reuters-zero"),
        *("spam-head", "tweets-llm"),
    ),
    "grey pictures, perceptrons": ("mnist",),
    "colour pictures, convolutional": ("cifar10-lite0",),
}
MEANING = (
    "Observed − forecast is a mean over trials, in points of accuracy. Inside: trials, by the width that was frozen before; "
    "and by the width that all other data sets need."
)


@dataclass(frozen=True)
class Losses:
    """Trials in which `best` was below unweighted + gold."""

    trials: int  # in all
    lost: int
    foretold: int  # of those lost, with a forecast below 0
    feared: int  # trials with a forecast below 0


def losses_of(lines: Sequence[Line], targets: str = "soft") -> Losses:
    """By accuracy, with soft or with hard targets."""
    end = ", hard" if targets == "hard" else ""
    gained = np.array([line["accuracy"][f"best{end}"] - line["accuracy"][f"{BASE}{end}"] for line in lines])
    told = np.array([line["forecast"][targets]["accuracy"][0] for line in lines])
    lost, feared = gained < 0, told < 0
    return Losses(len(lines), int(lost.sum()), int((lost & feared).sum()), int(feared.sum()))


def kind_table(lines: Sequence[Line]) -> str:
    """A row for every kind of student and of targets."""
    rows = []
    for kind, tasks in KINDS.items():
        for targets in PILOTS:
            theirs = [line for line in lines if line["task"] in tasks]
            if theirs:
                rows.append([kind, targets, *_numbers(theirs, targets, outside(lines, targets))])
    return markdown(("student", "targets", *_HEADER), rows)


def data_table(lines: Sequence[Line]) -> str:
    """A row for every data set, soft targets."""
    rows = []
    for data in sorted({data_of(line["task"]) for line in lines}):
        theirs = [line for line in lines if data_of(line["task"]) == data]
        rows.append([data, *_numbers(theirs, "soft", outside(lines, "soft"))])
    return markdown(("data set", *_HEADER), rows)


def outside(lines: Sequence[Line], targets: str) -> Mapping[str, list[bool]]:
    """By data set, whether each of its trials is inside the width that all others need; nothing of a single data set."""
    kinds = [misses(lines, each, "accuracy") for each in PILOTS]
    if len({each.data for each in kinds[0]}) < 2:
        return {}
    return elsewhere(kinds)[PILOTS.index(targets)]


def worst_elsewhere(lines: Sequence[Line]) -> str:
    """The data set of which the fewest are inside the width that all others need, and how many."""
    inside = outside(lines, "soft")
    if not inside:
        return "no data set"
    data = min(inside, key=lambda name: float(np.mean(inside[name])))
    return f"{sum(inside[data])} of {len(inside[data])} on {data}"


def losses_said(lines: Sequence[Line]) -> str:
    found = losses_of(lines)
    return f"{found.lost} of {found.trials}, and the forecast was below 0 in {found.foretold} of these"


_HEADER = (
    "within ±1 point",
    "too low, too high",
    "observed − forecast",
    "trials inside, frozen width",
    "trials inside, data set left out",
    "lost, foretold",
)


def _numbers(lines: Sequence[Line], targets: str, inside: Mapping[str, list[bool]]) -> list[str]:
    told: Forecasts = forecasts(lines, targets)
    gains = [each.gain for each in misses(lines, targets, "accuracy")]
    data = dict.fromkeys(data_of(line["task"]) for line in lines)
    held = [each for name in data for each in inside.get(name, [])]
    lost = losses_of(lines, targets)
    return [
        f"{told.near} of {len(told.cells)}",
        "{}, {}".format(*told.missed),
        signed(float(np.mean(gains))),
        f"{round(told.held * len(lines))} of {len(lines)}",
        f"{sum(held)} of {len(held)}",
        f"{lost.lost}, {lost.foretold}",
    ]
