"""The verdict before training: what the gold rows say about the teacher, and what could be won by listening to them.

Everything about gold is out of fold. What need not see every unlabeled row sees a random sample of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats
from wdistill.errors import WdistillWarning
from wdistill.methods.choosing import Choice, Prospect, choose
from wdistill.methods.error import learned_error, logistic, neighbors_error
from wdistill.methods.finding import Finder, finders
from wdistill.methods.folds import Ints
from wdistill.methods.guards import Finding, guarded
from wdistill.methods.intervals import Interval, Z, share
from wdistill.methods.lessons import Case, Opinion
from wdistill.methods.planning import Step, enough_of, steps, worth_labeling
from wdistill.methods.reaching import REACH, Reach
from wdistill.methods.weighing import above_threshold
from wdistill.rules import debiased
from wdistill.threads import one_thread
from wdistill.weighting import effective_sample_size

SAMPLE = 200_000  # unlabeled rows looked at

NOTHING = 0.3  # points that are not worth the trouble
POSSIBLE = 2.0  # points that may still be won from a teacher who is right on gold, by how few gold rows there are
SENSIBLE = 20_000  # gold rows that somebody might still label
GOLD = "use the gold as labels"
LABELS_ALONE = ("second", "forest")  # opinions that no teacher has had a part in


@dataclass(frozen=True)
class Change:
    """What one method would do to the unlabeled rows."""

    name: str
    changed: Interval  # share of them: weights below 1, or another class
    effective: float  # effective sample size of its weights, a share of the rows


@dataclass(frozen=True)
class Gain:
    """The predicted gain of the student over training on the teacher's own targets and gold, in points of accuracy."""

    targets: float  # gain in target accuracy
    error: float  # its standard error that the gold rows leave: it falls with more of them
    reach: Reach  # how much of it reaches the student
    prior: float = 0.0  # rows that are known without gold: the error falls with the root of these and the gold rows

    @property
    def points(self) -> float:
        return self.reach(self.targets)

    @property
    def known(self) -> Interval:
        """The interval that more gold rows would narrow: verdicts are given by it."""
        return self.reach.known(self.targets, self.error)

    @property
    def predicted(self) -> Interval:
        """The interval of what a student will gain, who is never quite as good as the targets say."""
        return self.reach.predicted(self.targets, self.error)


@dataclass(frozen=True, eq=False)
class Advice:
    """All that `wdistill advise` prints."""

    gold: int  # rows
    unlabeled: int  # rows
    sampled: int  # of these, rows looked at
    teacher: Interval  # its accuracy on gold
    by_class: tuple[Interval, ...]  # the same for the gold rows of every class
    class_rows: tuple[int, ...]  # gold rows of every class
    finders: tuple[Finder, ...]  # how well the teacher's errors are found
    changes: tuple[Change, ...]  # what each method would change
    accuracies: dict[str, Interval]  # expected accuracy of targets, by who makes them
    choice: Choice  # what `best` would teach, by the prospect of the posterior of all experts
    gain: Gain
    findings: tuple[Finding, ...]  # what to look into first
    alone: str  # the model of labeled and gold rows alone that is better than the teacher on gold beyond chance; or ""
    steps: tuple[Step, ...]  # what more gold rows would do to the gain, in points
    judging: int | None  # rows to label at random next, after which it could be told whether the targets gain
    teaching: Step | None  # rows to label next for a larger gain; None where more bring little, the experts as they are
    next: Ints  # unlabeled rows, the one whose label would teach most first
    verdict: str


@one_thread()
def advise(case: Case, findings: Sequence[Finding] = ()) -> Advice:
    """The verdict on a case; `findings` are those that its arrays cannot show, such as repeated ids."""
    rows = len(case.unlabeled["teacher"])
    kept = _sample(rows, case.seed)
    seen = case if len(kept) == rows else _part(case, kept)
    choice = choose(seen)
    found = choice.prospect
    gain = Gain(100 * found.gain, 100 * found.gain_error, REACH[seen.targets], found.prior)
    right, labels, classes = ~seen.wrong, seen.labels, seen.validation["teacher"].shape[1]
    class_rows = np.bincount(labels, minlength=classes)
    class_right = np.bincount(labels[right], minlength=classes)
    teacher = share(int(right.sum()), len(right))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WdistillWarning)  # a teacher without errors is a verdict here
        near, learned = neighbors_error(seen), learned_error(seen, logistic)
        weights = {
            "paper's weights": debiased(seen.evidence, targets=seen.targets),
            "1 − paper's error": 1.0 - near[1],
            "1 − learned error": 1.0 - learned[1],
            "threshold by gold": above_threshold(seen).weights,
        }
    look = (*findings, *guarded(seen))
    planned = tuple(_in_points(step, gain.reach) for step in steps(seen, found))
    said = verdict(teacher, found.taken, gain, len(labels))
    return Advice(
        gold=len(labels),
        unlabeled=rows,
        sampled=len(kept),
        teacher=teacher,
        by_class=tuple(share(int(a), int(b)) for a, b in zip(class_right, class_rows, strict=True)),
        class_rows=tuple(class_rows.tolist()),
        finders=finders(seen, near[0], learned[0], found.known),
        changes=_changes(weights, found),
        accuracies=_accuracies(seen, found, teacher),
        choice=choice,
        gain=gain,
        findings=look,
        alone=_better_alone(seen, right),
        steps=planned,
        judging=rows_to_tell(gain, len(labels)) if gain.known.low < 0 else None,
        teaching=enough_of(planned, gain.points, NOTHING),
        next=kept[worth_labeling(seen, found.posterior(seen.unlabeled))],
        verdict="; ".join([said, *dict.fromkeys(each.clause for each in look)]),
    )


def verdict(teacher: Interval, taken: bool, gain: Gain, rows: int) -> str:
    """One sentence, from the teacher's accuracy on so many gold rows, the choice, and the gain."""
    open_still = f"cannot tell with {rows:,} gold rows"
    if gain.reach(100 * (1 - teacher.value)) < NOTHING:
        missing = rows_to_trust(teacher.value, rows, gain.reach)
        return f"{open_still}: {missing:,} more would" if missing else "nothing to win: train unweighted"
    more = rows_to_tell(gain, rows)
    if not taken:
        open_much = gain.known.low < 0 and gain.known.high > POSSIBLE and more is not None
        return f"{GOLD}; {more:,} more would tell whether to correct the targets" if open_much else GOLD
    if gain.known.low > 0:
        return f"correct the targets: about {gain.points:+.1f} points"
    return f"{open_still}: {more:,} more would" if more is not None else f"{open_still}, and more would hardly help"


def rows_to_tell(gain: Gain, rows: int) -> int | None:
    """Gold rows more after which the gain's interval would leave out 0, to two digits; None where nobody labels as many."""
    if gain.targets <= 0:
        return None
    needed = (rows + gain.prior) * ((Z * gain.error / gain.targets) ** 2 - 1)
    return None if needed > SENSIBLE else _two_digits(needed)


def rows_to_trust(accuracy: float, rows: int, reach: Reach) -> int:
    """Gold rows more, to two digits, after which a teacher who is right so often leaves little to win for sure; or 0."""
    total = rows
    while reach(100 * (1 - share(round(accuracy * total), total).low)) > POSSIBLE:
        total += max(1, total // 20)
    return _two_digits(total - rows) if total > rows else 0


def _two_digits(rows: float) -> int:
    """At least 1, rounded up."""
    unit = 10.0 ** max(0, int(np.floor(np.log10(max(rows, 1.0)))) - 1)
    return int(np.ceil(max(rows, 1.0) / unit) * unit)


def _better_alone(case: Case, right: NDArray[np.bool_]) -> str:
    """Of models that have learned from labels alone, the best on gold, if it beats a teacher that is `right` there (m,)."""
    found = {name: case.validation[name].argmax(axis=1) == case.labels for name in LABELS_ALONE if name in case.opinions}
    best = max(found, key=lambda name: int(found[name].sum()), default="")
    won, lost = (int(each.sum()) for each in (found[best] & ~right, right & ~found[best])) if best else (0, 0)
    return best if won - lost > Z * np.sqrt(won + lost) else ""


def _changes(weights: Mapping[str, Floats], found: Prospect) -> tuple[Change, ...]:
    """What weights (n,) of some methods take away, and what corrected targets turn over."""
    n = len(next(iter(weights.values())))
    weighed = [
        Change(name, share(int(np.sum(each < 1)), n), effective_sample_size(each) / n) for name, each in weights.items()
    ]
    return (*weighed, Change("corrected targets", share(round(found.differing * n), n), 1.0))


def _in_points(step: Step, reach: Reach) -> Step:
    return Step(step.more, reach.error(100 * step.gain, 100 * step.error), reach(100 * step.gain))


def _accuracies(case: Case, found: Prospect, teacher: Interval) -> dict[str, Interval]:
    """Of the teacher, of the posterior counted on gold and by its prospect, and of every opinion by itself."""
    labels, m = case.labels, len(case.labels)

    def on_gold(said: np.ndarray) -> Interval:
        return share(int(np.sum(said.argmax(axis=1) == labels)), m)

    value = teacher.value + found.gain
    below, above = (np.hypot(teacher.value - each, Z * found.gain_error) for each in (teacher.low, teacher.high))
    return {
        "teacher": teacher,
        "posterior, on gold": on_gold(found.known),
        "posterior, expected": Interval(*(float(np.clip(x, 0, 1)) for x in (value, value - below, value + above))),
        **{f"{name} alone": on_gold(case.validation[name]) for name in case.opinions},
    }


def _sample(rows: int, seed: int) -> Ints:
    """At most SAMPLE rows, drawn at random, in order."""
    if rows <= SAMPLE:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, SAMPLE, replace=False))


def _part(case: Case, kept: Ints) -> Case:
    """The same case with some of the unlabeled rows."""
    seen = case.evidence
    assert seen.teacher is not None and seen.student is not None
    truth = None if seen.truth is None else seen.truth[kept]
    opinions = {name: Opinion(each.validation, each.unlabeled[kept]) for name, each in case.opinions.items()}
    return replace(
        case,
        evidence=replace(seen, teacher=seen.teacher[kept], student=seen.student[kept], truth=truth),
        opinions=opinions,
    )
