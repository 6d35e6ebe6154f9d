"""The verdict before training: how good the teacher is on gold, and what correcting its targets would gain.

Every estimate on gold is out of fold; estimates on unlabeled rows use a random sample of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import WdistillWarning
from wdistill.core.threads import one_thread
from wdistill.methods.best import Correction, GainEstimate, correct_targets
from wdistill.methods.context import AuxiliaryPredictions, Context
from wdistill.methods.costs import CostComparison
from wdistill.methods.crossfit import Ints
from wdistill.methods.gold_needed import GoldNeeded, gold_needed
from wdistill.methods.gold_plan import PlanStep, enough_of, steps, worth_labeling
from wdistill.methods.guards import Concern, check_gold
from wdistill.methods.judged import JudgedTargets, judge
from wdistill.methods.metric import PLAIN, Metric
from wdistill.methods.on_gold import beats, share_of, standard_errors
from wdistill.methods.on_pool import PoolEstimates, estimate_pool
from wdistill.methods.pilots import Pilots, forecast
from wdistill.methods.questions import USUAL, Questions
from wdistill.methods.serving import after_labeling, by_labels, by_student, by_teacher, compare_serving
from wdistill.methods.statistics import Interval, Z, share
from wdistill.methods.teacher_error import Detector, detectors, learned_error, logistic, neighbors_error
from wdistill.methods.weighted import above_threshold
from wdistill.weights.confidence import Floats
from wdistill.weights.debiased import debiased
from wdistill.weights.equations import effective_sample_size

SAMPLE = 200_000  # unlabeled rows used, at most

NOTHING = 0.3  # points: a smaller gain is not worth the effort
POSSIBLE = 2.0  # points: a possible gain above it is not ruled out by few gold rows with a good teacher
SENSIBLE = 20_000  # gold rows that it is realistic to label
CORRECT, GOLD = "correct the targets", "use the gold as labels"
LOSE = "pilots of better targets lose"
SUPERVISED = ("second", "forest")  # auxiliary models that are trained without the teacher


@dataclass(frozen=True)
class Change:
    """What one method would change on the unlabeled rows."""

    name: str
    changed: Interval  # share of them: weights below 1, or another class
    effective: float  # effective sample size of its weights, a share of the rows


@dataclass(frozen=True)
class ExpectedGain:
    """The expected gain in target accuracy over the teacher's own targets, in points."""

    points: float
    error: float  # its standard error, which falls with more gold rows
    prior: float = 0.0  # rows that the prior counts for: the error falls with the root of these and the gold rows
    z: float = Z  # standard errors on either side of the interval: more with few groups

    @property
    def interval(self) -> Interval:
        return Interval(self.points, self.points - self.z * self.error, self.points + self.z * self.error)


@dataclass(frozen=True, eq=False)
class Advice:
    """All that `wdistill advise` prints."""

    gold: int  # rows
    unlabeled: int  # rows
    sampled: int  # of these, rows used
    teacher: Interval  # its accuracy on gold
    by_class: tuple[Interval, ...]  # the same for the gold rows of every class
    class_rows: tuple[int, ...]  # gold rows of every class
    detectors: tuple[Detector, ...]  # how well the teacher's errors are detected
    changes: tuple[Change, ...]  # what each method would change
    accuracies: dict[str, Interval]  # expected accuracy of targets, by their source
    correction: Correction  # the targets of `best`
    gain: ExpectedGain  # of these targets over the teacher's
    forecast: Interval | None  # the gain of a student trained on them, in points, where pilot students were trained
    judged: JudgedTargets | None  # all of it by the user's metric, where one was named
    pool: PoolEstimates  # what gold and pool together tell of the pool
    needed: GoldNeeded  # gold rows for an interval of so many points
    costs: CostComparison | None  # of the ways to serve rows, where prices were named
    concerns: tuple[Concern, ...]  # problems to resolve first
    alone: str  # a model of labeled and gold rows alone that is significantly better than the teacher on gold; or ""
    steps: tuple[PlanStep, ...]  # what more gold rows would do to the gain, in points
    judging: int | None  # rows to label at random next, after which the sign of the gain would be clear
    teaching: PlanStep | None  # rows to label next for a larger gain; None where more rows add little
    next: Ints  # unlabeled rows, most informative first
    verdict: str


@one_thread()
def advise(
    context: Context,
    concerns: Sequence[Concern] = (),
    pilots: Pilots | None = None,
    metric: Metric | None = None,
    questions: Questions = USUAL,
) -> Advice:
    """The verdict on a context; `concerns` are those found elsewhere than in its arrays, such as repeated ids.

    `pilots` trains pilot students, which forecast the student's gain. Verdict and gains are in accuracy; teacher, targets
    and pilots are judged by another `metric` too, where it is given. `questions`: a width in points, and prices.
    """
    context = context if metric is None or context.metric is metric else replace(context, metric=metric)
    rows = len(context.unlabeled["teacher"])
    kept = _sample(rows, context.seed)
    sampled = context if len(kept) == rows else _part(context, kept)
    correction = correct_targets(sampled)
    estimate, targets = correction.gain, correction.targets
    z = standard_errors(sampled.design)
    gain = ExpectedGain(100 * estimate.gain, 100 * estimate.gain_error, estimate.prior, z)
    trained = None if pilots is None else pilots(targets.of)
    points = None if trained is None else _percent(forecast(trained))
    right, labels, classes = ~sampled.wrong, sampled.labels, sampled.validation["teacher"].shape[1]
    class_rows = np.bincount(labels, minlength=classes)
    teacher = share_of(right, sampled.design)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WdistillWarning)  # a teacher without errors is a verdict here
        errors, weights = dict[str, tuple[Floats, Floats]](), dict[str, Floats]()
        if "student" in sampled.validation:
            errors = {"paper's neighbours": neighbors_error(sampled), "learned error": learned_error(sampled, logistic)}
            weights = {
                "paper's weights": debiased(sampled.evidence, targets=sampled.targets),
                "1 − paper's error": 1.0 - errors["paper's neighbours"][1],
                "1 − learned error": 1.0 - errors["learned error"][1],
            }
        weights["threshold by gold"] = above_threshold(sampled).weights
    all_concerns = (*concerns, *check_gold(sampled))
    planned = tuple(_in_points(step) for step in steps(sampled, correction))
    sentence = verdict(teacher, gain, points, len(labels))
    judged = None if metric is None else judge(metric, sampled, targets, trained)
    others = [] if judged is None else by_metric(judged, sentence)
    imputed = targets.of(sampled.unlabeled)
    pool = estimate_pool(sampled, targets, imputed, metric, trained)
    accuracies, teaching = _accuracies(sampled, correction, teacher), enough_of(planned, gain.points, NOTHING)
    costs = None
    if questions.prices is not None and questions.serve is not None:
        student = by_student(pool, accuracies["corrected, expected"])
        more = after_labeling(student, teaching, gain.points, None if points is None else points.value)
        ways = (by_teacher(pool), by_labels(sampled, _supervised(sampled)), student, more)
        costs = compare_serving(questions.prices, questions.serve, ways)
    return Advice(
        gold=len(labels),
        unlabeled=rows,
        sampled=len(kept),
        teacher=teacher,
        by_class=tuple(share_of(right, sampled.design, labels == number) for number in range(classes)),
        class_rows=tuple(class_rows.tolist()),
        detectors=detectors(sampled, {name: error[0] for name, error in errors.items()}, targets.out_of_fold),
        changes=_changes(weights, estimate),
        accuracies=accuracies,
        correction=correction,
        gain=gain,
        forecast=points,
        judged=judged,
        pool=pool,
        needed=gold_needed(metric or PLAIN["accuracy"], questions.within, sampled, targets, imputed),
        costs=costs,
        concerns=all_concerns,
        alone=_better_alone(sampled, right),
        steps=planned,
        judging=rows_to_tell(gain, len(labels)) if gain.interval.low < 0 else None,
        teaching=teaching,
        next=kept[worth_labeling(sampled, imputed)],
        verdict="; ".join([sentence, *others, *dict.fromkeys(concern.clause for concern in all_concerns)]),
    )


def verdict(teacher: Interval, gain: ExpectedGain, forecast: Interval | None, rows: int) -> str:
    """One sentence, from the teacher's accuracy on `rows` gold rows, the gain of targets, and that of pilot students."""
    open_still = f"cannot tell with {rows:,} gold rows"
    if 100 * (1 - teacher.value) < NOTHING:
        missing = rows_to_trust(teacher.value, rows)
        return f"{open_still}: {missing:,} more would tell" if missing else "nothing to win: train unweighted"
    if gain.interval.low > 0 and forecast is None:
        return f"{CORRECT}: about {gain.points:+.1f} points of target accuracy"
    if gain.interval.low > 0 and forecast is not None:
        if forecast.value <= -NOTHING:
            return f"{GOLD}: {LOSE} about {-forecast.value:.1f} points"
        students = f"pilot students gain {forecast.value:+.1f} points, a rough forecast"
        nothing = f"{GOLD}: better targets gain pilot students nothing"
        return f"{CORRECT}: {students}" if forecast.value >= NOTHING else nothing
    if gain.interval.high < POSSIBLE:
        return GOLD
    more = rows_to_tell(gain, rows)
    return f"{open_still}: {more:,} more would tell" if more is not None else f"{open_still}, and more would hardly help"


def by_metric(judged: JudgedTargets, sentence: str) -> list[str]:
    """What pilot students gain or lose by the user's metric, where the verdict, which is in accuracy, says another thing."""
    if judged.forecast is None or judged.metric == "accuracy":
        return []
    side = _side(judged.forecast, judged.loss)
    said = 1 if sentence.startswith(CORRECT) else -1 if LOSE in sentence else 0
    if side in (0, said):
        return []
    but, verb = "but " if (side < 0) == (said > 0) else "", "gain" if side > 0 else "lose"
    return [f"{but}by {judged.metric} pilot students {verb} {abs(judged.forecast.value):.3f}"]


def _side(forecast: Interval, loss: bool) -> int:
    """1: a gain, −1: a loss, 0: less than NOTHING, or for a loss, which has no scale, no more than chance."""
    if loss:
        return int(forecast.low > 0) - int(forecast.high < 0)
    return int(np.sign(forecast.value)) if 100 * abs(forecast.value) >= NOTHING else 0


def rows_to_tell(gain: ExpectedGain, rows: int) -> int | None:
    """Additional gold rows after which the gain's interval would exclude 0, to two digits; None above SENSIBLE."""
    if gain.points <= 0:
        return None
    needed = (rows + gain.prior) * ((gain.z * gain.error / gain.points) ** 2 - 1)
    return None if needed > SENSIBLE else _two_digits(needed)


def rows_to_trust(accuracy: float, rows: int) -> int:
    """Additional gold rows, to two digits, after which a teacher of this accuracy leaves at most POSSIBLE points; or 0."""
    total = rows
    while 100 * (1 - share(round(accuracy * total), total).low) > POSSIBLE:
        total += max(1, total // 20)
    return _two_digits(total - rows) if total > rows else 0


def _two_digits(rows: float) -> int:
    """At least 1, rounded up."""
    unit = 10.0 ** max(0, int(np.floor(np.log10(max(rows, 1.0)))) - 1)
    return int(np.ceil(max(rows, 1.0) / unit) * unit)


def _supervised(context: Context) -> list[str]:
    """Models trained on labels alone; where the gold rows are all labels there are, the student is one."""
    student = ["student"] if context.gold_alone and "student" in context.validation else []
    return [*student, *(name for name in SUPERVISED if name in context.auxiliary)]


def _better_alone(context: Context, right: NDArray[np.bool_]) -> str:
    """The best model on gold trained on labels alone, if it beats the teacher, whose correct rows are `right` (m,)."""
    right_by_model = {name: context.validation[name].argmax(axis=1) == context.labels for name in _supervised(context)}
    counted = np.ones(len(right)) if context.gold_weights is None else context.gold_weights
    best = max(right_by_model, key=lambda name: float(counted @ right_by_model[name]), default="")
    return best if best and beats(right_by_model[best], right, Z, context.design) else ""


def _changes(weights: Mapping[str, Floats], estimate: GainEstimate) -> tuple[Change, ...]:
    """Rows that weights (n,) of some methods reduce, and rows whose class corrected targets change."""
    n = len(next(iter(weights.values())))
    weighed = [
        Change(name, share(int(np.sum(values < 1)), n), effective_sample_size(values) / n)
        for name, values in weights.items()
    ]
    return (*weighed, Change("corrected targets", share(round(estimate.differing * n), n), 1.0))


def _percent(share: Interval) -> Interval:
    """A share in points."""
    return Interval(100 * share.value, 100 * share.low, 100 * share.high)


def _in_points(step: PlanStep) -> PlanStep:
    return PlanStep(step.more, 100 * step.error, 100 * step.gain)


def _accuracies(context: Context, correction: Correction, teacher: Interval) -> dict[str, Interval]:
    """Of the teacher, of the corrected targets on gold and as estimated, and of every auxiliary model by itself."""
    estimate, z = correction.gain, standard_errors(context.design)

    def on_gold(predictions: np.ndarray) -> Interval:
        return share_of(predictions.argmax(axis=1) == context.labels, context.design)

    value = teacher.value + estimate.gain
    below, above = (np.hypot(teacher.value - bound, z * estimate.gain_error) for bound in (teacher.low, teacher.high))
    return {
        "teacher": teacher,
        "corrected, on gold": on_gold(correction.targets.out_of_fold),
        "corrected, expected": Interval(*(float(np.clip(x, 0, 1)) for x in (value, value - below, value + above))),
        **{
            f"{name} alone": on_gold(context.validation[name])
            for name in dict.fromkeys([*_supervised(context), *context.auxiliary])
        },
    }


def _sample(rows: int, seed: int) -> Ints:
    """At most SAMPLE rows, drawn at random, in order."""
    if rows <= SAMPLE:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, SAMPLE, replace=False))


def _part(context: Context, kept: Ints) -> Context:
    """The same context with some of the unlabeled rows."""
    evidence = context.evidence
    teacher, given = evidence.on_unlabeled
    student, truth = (None if values is None else values[kept] for values in (given, evidence.truth))
    auxiliary = {
        name: AuxiliaryPredictions(predictions.validation, predictions.unlabeled[kept])
        for name, predictions in context.auxiliary.items()
    }
    return replace(
        context,
        evidence=replace(evidence, teacher=teacher[kept], student=student, truth=truth),
        auxiliary=auxiliary,
    )
