"""How wide the intervals of pilot students have to be: what the trials of the confirmation say of it, afterwards.

The widths in wdistill/methods/pilots.py are those that the first 270 trials needed: standard deviations to either side, in
tenths of a point, with which at most 2.5 % of the trials are beyond each end, for soft and for hard targets. They are kept
while all trials need no more, and at most 0.2 points less. Since the same trials set them and are inside, only what is left
out speaks for new data: the trials of a data set, with the width that all others need. The goals of the confirmation are
judged by the intervals in the lines, which were frozen before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.confirmation.judge import Line
from experiments.confirmation.rivals import BASE
from experiments.lab.tables import MISSING, markdown
from experiments.leaderboard.report import percent
from experiments.leaderboard.tasks import Task, data_of
from wdistill.methods.pilots import Unforeseen
from wdistill.methods.statistics import Z
from wdistill.report.words import signed

FROZEN = {metric: Unforeseen(0.007, 0.007) for metric in ("accuracy", "macro-f1")}  # before the confirmation, of all lines
BEYOND = 0.025  # the share of trials that may be beyond each end
TENTH = 0.001  # of a point, to which widths are rounded up
PILOTS, AFTER = ("soft", "hard"), ("after",)  # what lines have of each kind


@dataclass(frozen=True)
class Miss:
    """One trial: by how much more a student gained than was said of it, in points."""

    data: str
    gain: float  # observed − forecast
    half: float  # of the interval, by what the judged rows leave open
    inside: bool  # the interval of the line

    @property
    def needed(self) -> float:
        """The standard deviation, on the side of the miss, with which the trial is just inside."""
        return float(np.sqrt(max(self.gain**2 - self.half**2, 0.0))) / Z / 100

    def held(self, width: Unforeseen) -> bool:
        """Whether it is inside with this width."""
        return self.needed <= (width.above if self.gain > 0 else width.below)


def misses(lines: Iterable[Line], of: str, metric: str) -> list[Miss]:
    """Of all lines that have it: of pilots with soft or hard targets, or of final students, `after` training."""
    found = []
    for line in lines:
        said = line["after"] if of == "after" else line["forecast"][of]
        end, reached = ", hard" if of == "hard" else "", line[metric.replace("-", "_")]
        value, low, high = said[metric]
        gained = reached[f"best{end}"] - reached[f"{BASE}{end}"]
        known = ((high - low) / 2) ** 2 - (Z * 100 * FROZEN[metric].above) ** 2
        half = float(np.sqrt(max(known, 0.0)))
        found.append(Miss(data_of(line["task"]), gained - value, half, low <= gained <= high))
    return found


def width(kinds: Sequence[Sequence[Miss]]) -> Unforeseen:
    """The least with which, of the misses of each kind, so few are beyond each end; rounded up."""

    def least(side: int) -> float:
        return max(_exceeded([each.needed if side * each.gain > 0 else 0.0 for each in kind]) for kind in kinds)

    below, above = (float(round(np.ceil(least(side) / TENTH - 1e-9) * TENTH, 3)) for side in (-1, 1))
    return Unforeseen(below, above)


def _exceeded(values: Sequence[float]) -> float:
    """The least value that at most BEYOND of the values exceed."""
    return sorted(values)[len(values) - 1 - int(BEYOND * len(values))]


def elsewhere(kinds: Sequence[Sequence[Miss]]) -> list[dict[str, list[bool]]]:
    """Of each kind, by data set, whether each miss is inside the width that all other data sets need."""
    inside: list[dict[str, list[bool]]] = [{} for _ in kinds]
    for data in sorted({each.data for kind in kinds for each in kind}):
        of_others = width([[each for each in kind if each.data != data] for kind in kinds])
        for known, kind in zip(inside, kinds, strict=True):
            known[data] = [each.held(of_others) for each in kind if each.data == data]
    return inside


def held_elsewhere(kinds: Sequence[Sequence[Miss]]) -> list[float]:
    """Of each kind, the share of misses inside the width that all other data sets need."""
    return [float(np.mean([held for data in inside.values() for held in data])) for inside in elsewhere(kinds)]


def of_metric(lines: Sequence[Line], tasks: Sequence[Task], metric: str) -> list[Line]:
    """The lines whose tasks are judged by it: macro-F1 is accuracy nearly where classes are even."""
    names = {task.name for task in tasks if metric.replace("-", "_") in task.metrics}
    return [line for line in lines if line["task"] in names]


def needed_widths(lines: Sequence[Line], tasks: Sequence[Task], parts: Sequence[str]) -> Mapping[str, Unforeseen]:
    """By metric, the width that pilots need, or final students."""
    return {
        metric: width([misses(of_metric(lines, tasks, metric), part, metric) for part in parts])
        for metric in FROZEN
        if of_metric(lines, tasks, metric)
    }


def width_table(lines: Sequence[Line], tasks: Sequence[Task]) -> str:
    """Misses and widths of pilots and of final students, by metric."""
    header = (
        "observed − forecast, points",
        "trials",
        "mean",
        "2.5 %, 50 %, 97.5 %",
        "inside, width frozen before",
        "width that they need: deviations below, above",
        "inside by its own setting",
        "inside, data set left out",
    )
    rows = []
    for parts, metric in [(parts, metric) for parts in (PILOTS, AFTER) for metric in FROZEN]:
        kinds = [misses(of_metric(lines, tasks, metric), part, metric) for part in parts]
        if len({each.data for kind in kinds for each in kind}) < 2:
            rows.append([f"{_NAMES[parts[0]]}, {metric}", *[MISSING] * 7])
            continue
        needed = width(kinds)
        for part, kind, elsewhere in zip(parts, kinds, held_elsewhere(kinds), strict=True):
            gains = [each.gain for each in kind]
            rows.append(
                [
                    f"{_NAMES[part]}, {metric}",
                    f"{len(kind):,}",
                    signed(float(np.mean(gains))),
                    ", ".join(signed(float(each)) for each in np.quantile(gains, [0.025, 0.5, 0.975])),
                    percent(float(np.mean([each.inside for each in kind]))),
                    f"{100 * needed.below:.1f}, {100 * needed.above:.1f}",
                    percent(float(np.mean([each.held(needed) for each in kind]))),
                    percent(elsewhere),
                ]
            )
    return markdown(header, rows)


_NAMES = {"soft": "pilots, soft targets", "hard": "pilots, hard targets", "after": "final students"}
