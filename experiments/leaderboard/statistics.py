"""Statistics of the leaderboard's lines: gains with their standard errors, tests, predicted against observed gains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.lab.results import unpacked
from experiments.leaderboard.transfer import BASE, Line, TargetGain, TransferCurve, cross_fitted, target_gains
from wdistill.methods.statistics import Z
from wdistill.report.accuracies import EQUAL, FEWEST, holm, t_test
from wdistill.report.words import signed
from wdistill.weights.confidence import Floats

PLAIN = "unweighted"
SIMPLE = "labels+gold"  # nobody needs the teacher where it is as good
KEPT = ("best", BASE, SIMPLE)  # whose answers on single test rows a line has: the trials of a task share those rows
LEVEL = 0.05
NEAR = 1.0  # points within which a prediction has come true


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
    return {key: gain_of(values) for key, values in _paired(lines, method, base, targets).items()}


def standing(lines: Sequence[Line], method: str, gold: int, base: str = BASE, targets: str = "soft") -> Standing | None:
    """A method at one number of gold rows; None where no task ran it."""
    here = [line for line in lines if line["gold"] == gold and method in line["accuracies"].get(targets, {})]
    by_task = list(gains(here, method, base, targets).values())
    if not by_task:
        return None
    means, errors = np.array([gain.mean for gain in by_task]), [gain.error for gain in by_task]
    error = None if None in errors else float(np.sqrt(np.square(np.array(errors, float)).sum()) / len(means))
    over, oracle = ([gain.mean for gain in gains(here, name, PLAIN, targets).values()] for name in (method, "oracle"))
    share = float(np.mean(over) / np.mean(oracle)) if over and oracle and np.mean(oracle) > 0 else None
    numbers = float(means.mean()), error, len(means), int((means > 0).sum()), float(means.min())
    return Standing(method, *numbers, share, None if base == PLAIN else standing(lines, method, gold, PLAIN, targets))


def below(
    lines: Iterable[Line], method: str, base: str = BASE, targets: str = "soft"
) -> dict[tuple[str, int], tuple[float, bool]]:
    """The chance that a method is so far below another by luck, and whether that is significant; by task and gold rows.

    A paired t over trials, one-sided, Holm-corrected over all tasks. Fewer than three trials, and trials that all differ by
    the same, say nothing of the spread and are not tested.
    """
    paired = _paired(lines, method, base, targets)
    tested = {key: values for key, values in paired.items() if len(values) >= FEWEST and np.ptp(values) > EQUAL}
    corrected = holm([_chance_below(values) for values in tested.values()])
    return {key: (p, p < LEVEL) for key, p in zip(tested, corrected, strict=True)}


def rows_error(lines: Sequence[Line], method: str, gold: int, base: str = BASE) -> float | None:
    """Standard error that the test rows add to a standing, for the trials of a task share them; None where no line tells.

    Over the rows of every task, of their mean difference over trials; soft targets.
    """
    by_task: dict[str, list[Floats]] = {}
    for line in (line for line in lines if line["gold"] == gold):
        kept, rows = line.get("right", {}), line["rows"]["test"]
        if not {method, base} <= set(kept):
            return None
        right, other = (unpacked(kept[name], rows).astype(float) for name in (method, base))
        by_task.setdefault(line["task"], []).append(right - other)
    errors = [100 * np.std(np.mean(gaps, axis=0), ddof=1) / np.sqrt(len(gaps[0])) for gaps in by_task.values()]
    return float(np.sqrt(np.sum(np.square(errors))) / len(errors)) if errors else None


def over_simple(lines: Sequence[Line], method: str, gold: int) -> tuple[float, list[str]] | None:
    """Mean points of a method over the better, on each task, of the baseline and labels alone; and the tasks of the latter.

    None where a task lacks labels alone. The better one is taken by its test accuracy, which is no favour to the method.
    """
    here = [line for line in lines if line["gold"] == gold]
    over_base, over_labels = gains(here, method), gains(here, method, SIMPLE)
    if not over_base or set(over_base) != set(over_labels):
        return None
    least = {key: min(gain.mean, over_labels[key].mean) for key, gain in over_base.items()}
    return float(np.mean(list(least.values()))), [key[0] for key in least if least[key] < over_base[key].mean]


# -------------------------------------------------------------------------------------------------------------- forecasts


@dataclass(frozen=True)
class Forecast:
    """Predicted against observed gains of students, means over trials, by task and number of gold rows; in points."""

    predicted: Mapping[tuple[str, int], float]
    observed: Mapping[tuple[str, int], float]
    slope: float  # of observed on predicted
    intercept: float
    correlation: float  # 0 where either does not vary
    within: float  # share of them whose observed gain is within ±1 point of the predicted one
    rms: float  # calibration error: root mean square of their differences

    def distance(self, key: tuple[str, int]) -> float:
        return abs(self.predicted[key] - self.observed[key])

    def both(self, key: tuple[str, int]) -> str:
        return f"{signed(self.predicted[key])} predicted, {signed(self.observed[key])} observed"

    def gap(self, task: str) -> float:
        """Observed − predicted, mean over sizes."""
        return float(np.mean([self.observed[key] - points for key, points in self.predicted.items() if key[0] == task]))


@dataclass(frozen=True)
class Agreement:
    """Predicted against observed over single trials, means in points."""

    trials: int
    predicted: float
    observed: float
    rms: float  # root mean square of their differences
    within: float  # share of the trials within ±1 point
    covered: float | None = None  # share of the trials inside their 95 % interval


def forecast(lines: Sequence[Line], targets: str = "soft") -> Forecast | None:
    """How well the predicted gain in target accuracy predicts the student's gain; None of fewer than three data sets.

    The transfer curve of each task is fitted on those of all other data sets.
    """
    return _by_task([(gain, curve(gain.predicted)) for gain, curve in cross_fitted(target_gains(lines, targets))])


def forecast_with(lines: Sequence[Line], curve: TransferCurve, targets: str = "soft") -> Forecast | None:
    """The same with a curve that comes from elsewhere; None where no trial had corrected targets."""
    return _by_task([(gain, curve(gain.predicted)) for gain in target_gains(lines, targets)])


def constant_forecast(like: Forecast, points: float) -> Forecast:
    """The same tasks, of all of which so many points are predicted."""
    return _compared(dict.fromkeys(like.observed, points), like.observed)


def forecast_best(lines: Sequence[Line], curve: TransferCurve) -> Forecast | None:
    """The same for what `best` gains, soft targets: nothing is predicted where it leaves the targets alone."""
    pairs = []
    for line in lines:
        accuracies, prospect = line["accuracies"]["soft"], line["prospect"]
        if "best" in accuracies and BASE in accuracies:
            gain = 100 * prospect["gain"] if corrected(line) else 0.0
            observed = accuracies["best"] - accuracies[BASE]
            pairs.append((TargetGain(*_key(line), gain, 100 * prospect["gain_error"], observed), curve(gain)))
    return _by_task(pairs)


def corrected(line: Line) -> bool:
    """Whether `best` corrected the targets."""
    return bool(line["why"].get("best", "").startswith("targets corrected"))


def coverage(lines: Sequence[Line], targets: str = "soft", curve: TransferCurve | None = None) -> Agreement | None:
    """How often a single trial's gain is where it was predicted; None where nothing was.

    By the curve of all other data sets, of which there must be two; or by one that comes from elsewhere.
    """
    known = target_gains(lines, targets)
    pairs = list(cross_fitted(known)) if curve is None else [(gain, curve) for gain in known]
    spans = [by.predicted(gain.predicted, gain.error) for gain, by in pairs]
    inside = [span.low <= gain.observed <= span.high for span, (gain, _) in zip(spans, pairs, strict=True)]
    return _agreement([span.value for span in spans], [gain.observed for gain, _ in pairs], inside)


def projected_gain(lines: Sequence[Line], gold: int, then: int) -> Agreement | None:
    """Gain of the targets that trials with `gold` rows project for `then` rows, and the one of the trials that have them."""
    known = {(line["task"], line["trial"], line["gold"]): line for line in lines}
    pairs = [
        (100 * gain, _targets_gained(later))
        for (task, trial, rows), line in known.items()
        if rows == gold
        and (gain := line["prospect"].get(f"gain_with_{then - gold}_more")) is not None
        and (later := known.get((task, trial, then))) is not None
    ]
    return _agreement([one for one, _ in pairs], [other for _, other in pairs])


def targets_agreement(lines: Sequence[Line]) -> Agreement | None:
    """Gain of the corrected targets' accuracy over the teacher's, before any student is trained."""
    predicted = [100 * line["prospect"]["gain"] for line in lines]
    observed = [_targets_gained(line) for line in lines]
    gaps = zip(lines, predicted, observed, strict=True)
    return _agreement(predicted, observed, [abs(a - b) <= Z * 100 * line["prospect"]["gain_error"] for line, a, b in gaps])


def _targets_gained(line: Line) -> float:
    return float(line["prospect"]["corrected"] - line["experts"]["teacher"])


def _by_task(pairs: Sequence[tuple[TargetGain, float]]) -> Forecast | None:
    """Means over the trials of every task and number of gold rows."""
    keys = sorted({(gain.task, gain.gold) for gain, _ in pairs})
    groups = {key: [(points, gain.observed) for gain, points in pairs if (gain.task, gain.gold) == key] for key in keys}
    means = {key: np.mean(group, axis=0) for key, group in groups.items()}
    return _compared(*({key: float(means[key][i]) for key in keys} for i in (0, 1))) if keys else None


def _compared(predicted: Mapping[tuple[str, int], float], observed: Mapping[tuple[str, int], float]) -> Forecast:
    x, y = (np.array(list(each.values())) for each in (predicted, observed))
    varied = np.ptp(x) > EQUAL and np.ptp(y) > EQUAL
    slope, intercept = np.polyfit(x, y, 1) if np.ptp(x) >= EQUAL else (0.0, np.mean(y))
    correlation = float(np.corrcoef(x, y)[0, 1]) if varied else 0.0
    rms, within = _rms(x, y), float(np.mean(np.abs(x - y) <= NEAR))
    return Forecast(predicted, observed, float(slope), float(intercept), correlation, within, rms)


def _agreement(predicted: Sequence[float], observed: Sequence[float], inside: Sequence[bool] = ()) -> Agreement | None:
    """None of no trials."""
    if not predicted:
        return None
    x, y, covered = np.array(predicted), np.array(observed), float(np.mean(inside)) if inside else None
    within = float(np.mean(np.abs(x - y) <= NEAR))
    return Agreement(len(x), float(x.mean()), float(y.mean()), _rms(x, y), within, covered)


def _rms(predicted: Floats, observed: Floats) -> float:
    return float(np.sqrt(np.mean((predicted - observed) ** 2)))


def _key(line: Line) -> tuple[str, int]:
    return line["task"], line["gold"]


def _paired(lines: Iterable[Line], method: str, base: str, targets: str) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    for line in lines:
        accuracies = line["accuracies"].get(targets, {})
        if method in accuracies and base in accuracies:
            found.setdefault(_key(line), []).append(accuracies[method] - accuracies[base])
    return found


def gain_of(values: Sequence[float]) -> Gain:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Gain(float(np.mean(values)), error, len(values))


def _chance_below(values: Sequence[float]) -> float:
    """p of a paired t-test, one-sided: of a mean as low as this where there is no difference."""
    gain = gain_of(values)
    assert gain.error
    both = t_test(gain.mean / gain.error, gain.trials - 1)
    return both / 2 if gain.mean < 0 else 1 - both / 2
