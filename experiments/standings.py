"""What the lines of the leaderboard come to: gains with their standard errors, the choice's safety, and its prediction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wdistill.pages.accuracies import EQUAL, holm, t_test

Line = dict[str, Any]
BASE = "unweighted+gold"
LEVEL = 0.05


@dataclass(frozen=True)
class Gain:
    """Points of one method over another on one task, paired by trial."""

    mean: float
    error: float | None  # standard error; None of a single trial
    trials: int


@dataclass(frozen=True)
class Standing:
    """One method over all tasks that ran it."""

    method: str
    mean: float  # of the tasks' mean gains
    error: float | None  # standard error, given these tasks
    tasks: int
    wins: int  # tasks with a mean gain above 0
    worst: float  # smallest mean gain
    share: float | None  # of the oracle's gain over unweighted, both over all tasks, that the method has


def gains(lines: Iterable[Line], method: str, base: str = BASE, targets: str = "soft") -> dict[tuple[str, int], Gain]:
    """Points of a method over another, by task and number of gold rows."""
    return {key: _gain(values) for key, values in _paired(lines, method, base, targets).items()}


def standing(lines: Sequence[Line], method: str, gold: int, base: str = BASE, targets: str = "soft") -> Standing | None:
    """A method at one number of gold rows; None where no task ran it."""
    here = [line for line in lines if line["gold"] == gold]
    found = list(gains(here, method, base, targets).values())
    if not found:
        return None
    means = np.array([each.mean for each in found])
    errors = [each.error for each in found]
    whole = None if None in errors else float(np.sqrt(np.square(np.array(errors, float)).sum()) / len(found))
    own = [line for line in here if method in line["accuracies"].get(targets, {})]
    over, oracle = (_mean_over(own, name, targets) for name in (method, "oracle"))
    share = over / oracle if oracle is not None and over is not None and oracle > 0 else None
    return Standing(method, float(means.mean()), whole, len(found), int((means > 0).sum()), float(means.min()), share)


def losses(lines: Sequence[Line], method: str, base: str = BASE, targets: str = "soft") -> list[tuple[str, int, float]]:
    """Tasks on which a method is significantly below another: a paired t over trials, two-sided, Holm-corrected over all."""
    found = {key: values for key, values in _paired(lines, method, base, targets).items() if len(values) > 1}
    chances = {key: _chance(values) for key, values in found.items()}
    corrected = dict(zip(chances, holm(list(chances.values())), strict=True))
    return [(*key, corrected[key]) for key in found if corrected[key] < LEVEL and np.mean(found[key]) < 0]


@dataclass(frozen=True)
class Prediction:
    """The verdict's gain against the one that came true, by task and number of gold rows, in points."""

    predicted: Mapping[tuple[str, int], float]
    realised: Mapping[tuple[str, int], float]
    slope: float  # of realised on predicted
    intercept: float
    correlation: float
    within: float  # share of the tasks whose realised gain is within ±1 point of the predicted one


def prediction(lines: Sequence[Line], *, by_task: bool = True, targets: str = "soft") -> Prediction | None:
    """How well the gain in target accuracy that gold promises predicts the student's gain.

    With `by_task`, slope and intercept of each task's prediction come from all the other tasks.
    """
    known = [line for line in lines if _corrected(line, targets) is not None]
    keys = sorted({(line["task"], line["gold"]) for line in known})
    promised = {key: _mean(100 * line["prospect"]["gain"] for line in known if _key(line) == key) for key in keys}
    realised = {key: _mean(_corrected(line, targets) or 0.0 for line in known if _key(line) == key) for key in keys}
    if len({task for task, _ in keys}) < 3:
        return None
    predicted = {}
    for key in keys:
        others = [each for each in keys if not by_task or each[0] != key[0]]
        slope, intercept = np.polyfit([promised[each] for each in others], [realised[each] for each in others], 1)
        predicted[key] = float(slope * promised[key] + intercept)
    x, y = (np.array([each[key] for key in keys], float) for each in (predicted, realised))
    slope, intercept = np.polyfit(x, y, 1)
    near = float(np.mean(np.abs(x - y) <= 1.0))
    return Prediction(predicted, realised, float(slope), float(intercept), float(np.corrcoef(x, y)[0, 1]), near)


def calibration(lines: Sequence[Line], targets: str = "soft") -> tuple[float, float, float]:
    """Slope and intercept of the student's gain on the promised gain in target accuracy, in points, and what is left."""
    known = [(line, found) for line in lines if (found := _corrected(line, targets)) is not None]
    x, y = np.array([(100 * line["prospect"]["gain"], found) for line, found in known]).T
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept), float(np.std(y - slope * x - intercept, ddof=2))


def _corrected(line: Line, targets: str) -> float | None:
    """Points of corrected targets over the teacher's own, both with gold as labels, with all experts that there are."""
    accuracies = line["accuracies"].get(targets, {})
    name = next((each for each in ("corrected-retrained+gold", "corrected+gold") if each in accuracies), None)
    return accuracies[name] - accuracies[BASE] if name else None


def _key(line: Line) -> tuple[str, int]:
    return line["task"], line["gold"]


def _paired(lines: Iterable[Line], method: str, base: str, targets: str) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    for line in lines:
        accuracies = line["accuracies"].get(targets, {})
        if method in accuracies and base in accuracies:
            found.setdefault(_key(line), []).append(accuracies[method] - accuracies[base])
    return found


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _gain(values: Sequence[float]) -> Gain:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Gain(float(np.mean(values)), error, len(values))


def _mean_over(lines: Sequence[Line], method: str, targets: str) -> float | None:
    """Mean over tasks of the points over unweighted."""
    found = gains(lines, method, "unweighted", targets)
    return float(np.mean([each.mean for each in found.values()])) if found else None


def _chance(values: Sequence[float]) -> float:
    """p of a paired t-test against no difference; where all trials agree, of the difference they agree on."""
    spread = float(np.std(values, ddof=1))
    if spread < EQUAL:
        return 1.0 if abs(np.mean(values)) < EQUAL else 0.0
    return t_test(float(np.mean(values)) / (spread / np.sqrt(len(values))), len(values) - 1)
