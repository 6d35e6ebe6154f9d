"""The numbers of the headline table: test accuracies over trials, and differences between arms of the same trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from wdistill.methods.statistics import holm as holm
from wdistill.runs.arms import WEIGHING
from wdistill.runs.outcome import Outcome, Training

FEWEST = 3  # trials that a test needs
LEVEL = 0.05  # of a test
EQUAL = 1e-9  # differences below it are rounding


@dataclass(frozen=True)
class Difference:
    """The difference of an arm to the one it is compared to, over trials in which both are known; paired by position."""

    mean: float
    standard_error: float | None  # None for one trial
    p: float | None  # of a paired, two-sided t-test; None for fewer than three trials, or where it is the same in all
    trials: int


@dataclass(frozen=True)
class Score:
    """One accuracy over trials."""

    values: tuple[float | None, ...]  # by trial; None where it is not known
    mean: float
    std: float | None  # None for one trial
    difference: Difference | None = None  # of an arm that is compared to another


@dataclass(frozen=True)
class Row:
    """The test accuracies of one model."""

    name: str
    role: Literal["teacher", "student", "arm"]
    epochs: int  # of the longest training
    final: Score | None  # after the last epoch; of the teacher and the pretrained student, as they were used
    chosen: Score | None  # at the epoch that was best on the validation rows
    max_on_test: Score | None  # the maximum over epochs, selected on the test rows as in the paper
    of: int  # epochs of the arm with the most; of other models, their own
    base: str | None = None  # the arm that an arm is compared to; None for the baseline

    @property
    def behind(self) -> bool:
        """Whether an arm has fewer epochs than others: its accuracies cannot be compared yet."""
        return self.epochs < self.of


def headline(outcomes: Sequence[Outcome]) -> tuple[Row, ...]:
    """Teacher, pretrained student and every arm; trainings that were cut short are ignored where there are longer ones."""
    models = [
        _model("teacher", [outcome.teacher for outcome in outcomes], [outcome.accuracies for outcome in outcomes]),
        _model("student", [outcome.student for outcome in outcomes], [outcome.accuracies for outcome in outcomes]),
    ]
    arms = {name: [outcome.arms.get(name) for outcome in outcomes] for name in arm_names(outcomes)}
    of = max((longest(trainings) for trainings in arms.values()), default=0)
    arm_by_name = {name: arm for outcome in reversed(outcomes) for name, arm in outcome.arms.items()}
    over = bases(
        {name: arm_by_name[name].rule or name for name in arms}, {name: arm_by_name[name].settings for name in arms}
    )
    rows = [_arm(name, arms[name], base, arms[base] if base else [], of) for name, base in over.items()]
    return *(row for row in models if row.final or row.max_on_test), *rows


def arm_names(outcomes: Sequence[Outcome]) -> list[str]:
    """The names of all arms, in their order."""
    return list(dict.fromkeys(name for outcome in outcomes for name in outcome.arms))


def bases(rules: Mapping[str, str], settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """The arm that every arm is compared to: the unweighted arm that is trained in the same way, or else the baseline.

    Takes the name of every arm's rule, and its settings. The baseline is the arm `unweighted`, or the first arm of that
    rule, or the first of all; it has no base. Settings that only affect weights make no difference to an unweighted arm.
    """
    ways = {name: {k: v for k, v in settings[name].items() if k not in WEIGHING} for name in rules}
    plain = [name for name, rule in rules.items() if rule == "unweighted"]
    first = "unweighted" if "unweighted" in rules else next(iter([*plain, *rules]), "")

    def base(name: str) -> str | None:
        if name == first or name in plain:
            return None if name == first else first
        return next((other for other in (first, *plain) if ways[other] == ways[name]), first)

    return {name: base(name) for name in rules}


def baseline(rows: Sequence[Row]) -> str | None:
    """The arm that the others are compared to."""
    return next((row.name for row in rows if row.role == "arm" and row.base is None), None)


def longest(trainings: Sequence[Training | None]) -> int:
    return max((len(training.epochs) for training in trainings if training), default=0)


MEASURES: dict[str, Callable[[Training], float | None]] = {
    "final": lambda training: training.final,
    "chosen": lambda training: training.chosen.test if training.chosen else None,
    "max_on_test": lambda training: training.max_on_test,
}


def _values(trainings: Sequence[Training | None], measure: str) -> list[float | None]:
    length = longest(trainings)
    return [MEASURES[measure](training) if training and len(training.epochs) == length else None for training in trainings]


def _model(
    name: Literal["teacher", "student"],
    trainings: Sequence[Training | None],
    accuracies: Sequence[Mapping[str, Mapping[str, float]]],
) -> Row:
    used = [trial.get(name, {}).get("test") for trial in accuracies]
    followed = any(sum(epoch.test is not None for epoch in training.epochs) > 1 for training in trainings if training)
    chosen, most = (_score(_values(trainings, measure)) if followed else None for measure in ("chosen", "max_on_test"))
    final, length = _score(used) or _score(_values(trainings, "final")), longest(trainings)
    return Row(name, name, length, final, chosen, most, of=length)


def _arm(
    name: str, trainings: Sequence[Training | None], base: str | None, others: Sequence[Training | None], of: int
) -> Row:
    comparable = longest(others) == longest(trainings)
    scores = {
        measure: _score(_values(trainings, measure), _values(others, measure) if comparable else []) for measure in MEASURES
    }
    return Row(name, "arm", longest(trainings), **scores, of=of, base=base)


def _score(values: Sequence[float | None], base: Sequence[float | None] = ()) -> Score | None:
    known_values = [value for value in values if value is not None]
    if not known_values:
        return None
    std = float(np.std(known_values, ddof=1)) if len(known_values) > 1 else None
    return Score(tuple(values), float(np.mean(known_values)), std, difference(values, base))


def difference(values: Sequence[float | None], base: Sequence[float | None]) -> Difference | None:
    """Mean of value − base over the positions where both are known, with its standard error and its t-test."""
    gaps = [one - other for one, other in zip(values, base, strict=False) if one is not None and other is not None]
    if not gaps:
        return None
    n, mean = len(gaps), float(np.mean(gaps))
    if n == 1:
        return Difference(mean, None, None, n)
    error = float(np.std(gaps, ddof=1) / np.sqrt(n)) if np.ptp(gaps) > EQUAL else 0.0
    return Difference(mean, error, _test(mean, error, n) if n >= FEWEST else None, n)


def _test(mean: float, error: float, n: int) -> float | None:
    """p of the paired t-test; None where all differences are equal but not 0, whose spread cannot be estimated."""
    if error == 0:
        return 1.0 if abs(mean) < EQUAL else None
    return t_test(mean / error, n - 1)


def t_test(t: float, freedom: int) -> float:
    """The two-sided p of Student's t with a whole number of degrees of freedom (Abramowitz & Stegun, 26.7.3 and 26.7.4)."""
    angle = np.arctan2(abs(t), np.sqrt(freedom))
    sine, cosine = np.sin(angle), np.cos(angle)
    odd = freedom % 2
    term = total = (cosine if freedom > 1 else 0.0) if odd else 1.0
    for i in range(2 + odd, freedom, 2):
        term *= cosine**2 * (i - 1) / i
        total += term
    inside = (angle + sine * total) * 2 / np.pi if odd else sine * total
    return float(np.clip(1 - inside, 0, 1))
