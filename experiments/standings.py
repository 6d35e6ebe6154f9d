"""What the lines of the leaderboard come to: gains with their standard errors, the choice's safety, and its prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.lines import unpacked
from experiments.tasks import data_of
from wdistill.confidence import Floats
from wdistill.methods.intervals import Z
from wdistill.methods.reaching import Reach
from wdistill.pages.accuracies import EQUAL, FEWEST, holm, t_test

Line = dict[str, Any]
PLAIN, BASE = "unweighted", "unweighted+gold"
SIMPLE = "labels+gold"  # nobody needs the teacher where it is as good
KEPT = ("best", BASE, SIMPLE)  # whose answers on single test rows a line has: the trials of a task share those rows
LEVEL = 0.05
NEAR = 1.0  # points within which a prediction has come true
BENDS = np.linspace(0, 1, 1001)  # what the trials say is far from the largest


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
    over: Standing | None = None  # the same over unweighted, where that is not what it is over


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
    numbers = float(means.mean()), whole, len(found), int((means > 0).sum()), float(means.min())
    more = None if base == PLAIN else standing(lines, method, gold, PLAIN, targets)
    return Standing(method, *numbers, share, more)


def below(
    lines: Iterable[Line], method: str, base: str = BASE, targets: str = "soft"
) -> dict[tuple[str, int], tuple[float, bool]]:
    """The chance that a method is so far below another by luck, and whether that is significant; by task and gold rows.

    A paired t over trials, one-sided, Holm-corrected over all tasks. Fewer than three trials, and trials that all differ by
    the same, say nothing of the spread and are not tested.
    """
    paired = _paired(lines, method, base, targets)
    found = {key: values for key, values in paired.items() if len(values) >= FEWEST and np.ptp(values) > EQUAL}
    corrected = holm([_chance_below(values) for values in found.values()])
    return {key: (p, p < LEVEL) for key, p in zip(found, corrected, strict=True)}


def rows_error(lines: Sequence[Line], method: str, gold: int, base: str = BASE) -> float | None:
    """Standard error that the test rows add to a standing, for the trials of a task share them; None where no line tells.

    Over the rows of every task, of their mean difference over trials; soft targets.
    """
    found: dict[str, list[Floats]] = {}
    for line in lines:
        if line["gold"] == gold:
            kept, rows = line.get("right", {}), line["rows"]["test"]
            if not {method, base} <= set(kept):
                return None
            right, other = (unpacked(kept[name], rows).astype(float) for name in (method, base))
            found.setdefault(line["task"], []).append(right - other)
    errors = [100 * np.std(np.mean(each, axis=0), ddof=1) / np.sqrt(len(each[0])) for each in found.values()]
    return float(np.sqrt(np.sum(np.square(errors))) / len(errors)) if errors else None


def over_simple(lines: Sequence[Line], method: str, gold: int) -> tuple[float, list[str]] | None:
    """Mean points of a method over the better, on each task, of the baseline and labels alone; and the tasks of the latter.

    None where a task lacks labels alone. The better one is taken by its test accuracy, which is no favour to the method.
    """
    here = [line for line in lines if line["gold"] == gold]
    over_base, over_labels = gains(here, method), gains(here, method, SIMPLE)
    if not over_base or set(over_base) != set(over_labels):
        return None
    least = {key: min(each.mean, over_labels[key].mean) for key, each in over_base.items()}
    return float(np.mean(list(least.values()))), [
        task for (task, _), each in over_base.items() if least[task, gold] < each.mean
    ]


@dataclass(frozen=True)
class Prediction:
    """The verdict's gain against the one that came true, by task and number of gold rows, in points."""

    predicted: Mapping[tuple[str, int], float]
    realised: Mapping[tuple[str, int], float]
    slope: float  # of realised on predicted
    intercept: float
    correlation: float  # 0 where either does not vary
    within: float  # share of the tasks whose realised gain is within ±1 point of the predicted one
    off: float  # root mean square of their differences


@dataclass(frozen=True)
class Promise:
    """One trial: the gain in target accuracy that the gold rows promised, and what the student gained; in points."""

    task: str
    gold: int
    gain: float
    error: float  # its standard error
    came: float


def prediction(lines: Sequence[Line], targets: str = "soft") -> Prediction | None:
    """How well the gain in target accuracy that gold promises predicts the student's gain.

    What of it reaches the student is learned for each task from those of all other data sets; None of fewer than three.
    """
    return _judged([(each, reach(each.gain)) for each, reach in _crossed(_promises(lines, targets))])


def foretold(lines: Sequence[Line], reach: Reach, targets: str = "soft") -> Prediction | None:
    """The same with a reach that comes from elsewhere; None where nothing was promised."""
    return _judged([(each, reach(each.gain)) for each in _promises(lines, targets)])


def without_looking(found: Prediction, points: float) -> Prediction:
    """The same tasks, of all of which so many points are said."""
    return _compared(dict.fromkeys(found.realised, points), found.realised)


def foretold_best(lines: Sequence[Line], reach: Reach) -> Prediction | None:
    """The same for what `best` gains, soft targets: nothing is foretold where it leaves the targets alone."""
    told = []
    for line in lines:
        accuracies, seen = line["accuracies"]["soft"], line["prospect"]
        if "best" in accuracies and BASE in accuracies:
            gain = 100 * seen["gain"] if corrected(line) else 0.0
            promise = Promise(*_key(line), gain, 100 * seen["gain_error"], accuracies["best"] - accuracies[BASE])
            told.append((promise, reach(gain)))
    return _judged(told)


def corrected(line: Line) -> bool:
    """Whether `best` corrected the targets."""
    return bool(line["why"].get("best", "").startswith("targets corrected"))


@dataclass(frozen=True)
class Foretold:
    """Single trials: what a user sees."""

    trials: int
    near: float  # share of them whose realised gain is within ±1 point of the predicted one
    covered: float  # share of them whose realised gain is inside the 95 % interval


def coverage(lines: Sequence[Line], targets: str = "soft", reach: Reach | None = None) -> Foretold | None:
    """How often a single trial's gain is where it was said to be; None where nothing was.

    By the reach of all other data sets, of which there must be two; or by one that comes from elsewhere.
    """
    known = _promises(lines, targets)
    pairs = _crossed(known) if reach is None else ((each, reach) for each in known)
    told = [(each.came, each_reach.predicted(each.gain, each.error)) for each, each_reach in pairs]
    if not told:
        return None
    near = np.mean([abs(came - span.value) <= NEAR for came, span in told])
    return Foretold(len(told), float(near), float(np.mean([span.low <= came <= span.high for came, span in told])))


@dataclass(frozen=True)
class Projection:
    """What more gold rows were said to do to the targets, and what they did: points of accuracy over the teacher."""

    trials: int
    projected: float  # gain, mean over trials
    realised: float
    off: float  # root mean square of their differences


def projection(lines: Sequence[Line], gold: int, then: int) -> Projection | None:
    """Trials with `gold` rows, asked what they would have with `then`, beside the trials that have; None where none were."""
    known = {(line["task"], line["trial"], line["gold"]): line for line in lines}
    pairs = [
        (100 * seen, later["prospect"]["corrected"] - later["experts"]["teacher"])
        for (task, trial, rows), line in known.items()
        if rows == gold
        and (seen := line["prospect"].get(f"gain_with_{then - gold}_more")) is not None
        and (later := known.get((task, trial, then))) is not None
    ]
    if not pairs:
        return None
    said, came = (np.array(each) for each in zip(*pairs, strict=True))
    return Projection(len(pairs), float(said.mean()), float(came.mean()), _off(said, came))


@dataclass(frozen=True)
class Kept:
    """What the gold rows promised of the targets' accuracy over the teacher's, and what came: points, over trials."""

    trials: int
    promised: float
    came: float
    covered: float  # share of the trials whose gain is inside its 95 % interval


def kept(lines: Sequence[Line]) -> Kept | None:
    """None of no lines."""
    told = [
        (100 * seen["gain"], 100 * seen["gain_error"], seen["corrected"] - line["experts"]["teacher"])
        for line in lines
        for seen in (line["prospect"],)
    ]
    if not told:
        return None
    promised, error, came = (np.array(each) for each in zip(*told, strict=True))
    covered = np.abs(came - promised) <= Z * error
    return Kept(len(told), float(promised.mean()), float(came.mean()), float(covered.mean()))


def calibration(lines: Sequence[Line], targets: str = "soft") -> Reach | None:
    """What of the promised gain in target accuracy reached the students; None of fewer than three trials."""
    known = _promises(lines, targets)
    return _reach(known) if len(known) > 2 else None


def _promises(lines: Sequence[Line], targets: str) -> list[Promise]:
    """Of all trials that taught corrected targets."""
    found = [(line, line["prospect"], _corrected(line, targets)) for line in lines]
    return [
        Promise(*_key(line), 100 * seen["gain"], 100 * seen["gain_error"], came)
        for line, seen, came in found
        if came is not None
    ]


def _crossed(known: Sequence[Promise]) -> Iterator[tuple[Promise, Reach]]:
    """Every trial with the reach of all other data sets; nothing of fewer than three data sets."""
    sets = sorted({data_of(each.task) for each in known})
    for data in sets if len(sets) > 2 else ():
        reach = _reach([each for each in known if data_of(each.task) != data])
        yield from ((each, reach) for each in known if data_of(each.task) == data)


def _reach(known: Sequence[Promise]) -> Reach:
    """The least squares over slope and bend, of which BENDS are tried; the straightest of equals. Better targets do no harm.

    The residual is the standard deviation around the curve without the part that gold rows leave open; 0 of two trials.
    """
    x, y = (np.array([getattr(each, name) for each in known]) for name in ("gain", "came"))
    bent = x / (1 + BENDS[:, None] * np.maximum(x, 0))  # (bends, n)
    size = (bent**2).sum(axis=1)
    slopes = np.maximum(0, np.divide(bent @ y, size, out=np.zeros(len(size)), where=size > 0))
    left = ((y - slopes[:, None] * bent) ** 2).sum(axis=1)
    best = int(np.flatnonzero(left <= left.min() + 1e-9 * (y @ y))[0])
    found = Reach(float(slopes[best]), float(BENDS[best]), 0.0)
    open_still = np.mean([found.error(each.gain, each.error) ** 2 for each in known])
    spread = left[best] / (len(known) - 2) if len(known) > 2 else 0.0
    return replace(found, residual=float(np.sqrt(max(spread - open_still, 0.0))))


def _judged(told: Sequence[tuple[Promise, float]]) -> Prediction | None:
    """Means over the trials of every task and number of gold rows."""
    keys = sorted({(each.task, each.gold) for each, _ in told})
    if not keys:
        return None
    predicted = {key: _mean(gain for each, gain in told if (each.task, each.gold) == key) for key in keys}
    realised = {key: _mean(each.came for each, _ in told if (each.task, each.gold) == key) for key in keys}
    return _compared(predicted, realised)


def _compared(predicted: Mapping[tuple[str, int], float], realised: Mapping[tuple[str, int], float]) -> Prediction:
    x, y = (np.array(list(each.values())) for each in (predicted, realised))
    near = float(np.mean(np.abs(x - y) <= NEAR))
    varied = np.ptp(x) > EQUAL and np.ptp(y) > EQUAL
    correlation = float(np.corrcoef(x, y)[0, 1]) if varied else 0.0
    return Prediction(predicted, realised, *_fit(x, y), correlation, near, _off(x, y))


def _off(said: Floats, came: Floats) -> float:
    """Root mean square of the differences."""
    return float(np.sqrt(np.mean((said - came) ** 2)))


def _fit(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> tuple[float, float]:
    """Slope and intercept of the least squares; 0 and the mean where x does not vary."""
    if np.ptp(x) < EQUAL:
        return 0.0, float(np.mean(y))
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept)


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
    found = gains(lines, method, PLAIN, targets)
    return float(np.mean([each.mean for each in found.values()])) if found else None


def _chance_below(values: Sequence[float]) -> float:
    """p of a paired t-test, one-sided: of a mean as low as this where there is no difference."""
    found = _gain(values)
    assert found.error
    both = t_test(found.mean / found.error, found.trials - 1)
    return both / 2 if found.mean < 0 else 1 - both / 2
