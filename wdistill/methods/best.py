"""`best`: the gold rows as labels, and targets that the gold rows have corrected in place of the teacher's.

The targets are an average of recalibrated and corrected ones (targets.py), never a choice between them. How much better they
are than the teacher's is estimated from the rows on which both differ: how many there are is counted on the unlabeled rows,
which of the two is right on the gold rows, out of fold, with the targets' own probabilities as the prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_input
from wdistill.core.threads import blocks, one_thread
from wdistill.methods.context import Context, MethodArm, Supervision, supervise
from wdistill.methods.judged import gain_on_gold
from wdistill.methods.on_gold import effective_number, mean_of, share_of
from wdistill.methods.posterior import cross_fitted
from wdistill.methods.targets import Average, FittedTargets, better_alone, fit_targets

AUXILIARY_MODELS = ("second", "forest", "retrained")  # another student, a random forest, and the teacher, all with gold
FEWEST = 10  # gold rows, at least, to fit and to evaluate on
PRIOR_ROWS = 20.0  # weight of the prior advantage, in differing gold rows
BLOCK = 1 << 14  # unlabeled rows whose targets are computed at once
TINY = 1e-4  # a probability of 0 counts as this much


@dataclass(frozen=True)
class GainEstimate:
    """How much better some targets are than the teacher's, as the gold rows tell."""

    likelihood: float  # mean gain in log-likelihood on gold, over the teacher's own predictions recalibrated
    likelihood_error: float  # its standard error
    differing: float  # share of the unlabeled rows that would get another class
    differing_gold: float  # gold rows that would; where they have weights or groups, how many rows they are worth
    won: float  # of these, rows on which the targets are right and the teacher wrong
    lost: float  # and the other way round
    prior_advantage: float  # on differing rows, as the targets themselves expect it: a probability minus a probability
    worth: float = 1.0  # of a gold row that differs, in rows that are drawn one by one at random

    @property
    def advantage(self) -> float:
        """Expected advantage on differing rows, a probability minus a probability."""
        return (PRIOR_ROWS * self.prior_advantage + self.won - self.lost) / (PRIOR_ROWS + self.differing_gold)

    @property
    def gain(self) -> float:
        """Expected gain in target accuracy, a share of the unlabeled rows."""
        return self.differing * self.advantage

    @property
    def gain_error(self) -> float:
        """Standard error of the gain."""
        return self.differing * float(np.sqrt(max(1.0 - self.advantage**2, 0.0) / (PRIOR_ROWS + self.differing_gold)))

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that records keep; the key `word` is the prior advantage."""
        names = ("likelihood", "likelihood_error", "differing", "differing_gold", "won", "lost")
        counted = {name: getattr(self, name) for name in names}
        return {**counted, "word": self.prior_advantage, "gain": self.gain, "gain_error": self.gain_error}

    @property
    def prior(self) -> float:
        """Gold rows, differing or not, that the prior advantage counts for; 0 where no row differs."""
        return PRIOR_ROWS / self.differing / self.worth if self.differing else 0.0


@dataclass(frozen=True, eq=False)
class Correction:
    """The targets of `best`, and how much better than the teacher's they are."""

    targets: FittedTargets
    gain: GainEstimate
    why: str  # one sentence: what the targets are, and what gold says of them


@one_thread()
def correct_targets(context: Context) -> Correction:
    """The targets that the context names, fitted on its gold rows, and their estimated gain."""
    targets = fit_targets(context, context.targets_from)
    gain = estimate_gain(context, targets)
    return Correction(targets, gain, _why(context, targets, gain))


def estimate_gain(context: Context, targets: FittedTargets) -> GainEstimate:
    """What these targets gain over the teacher's, from the gold rows."""
    teacher_gold, labels = context.validation["teacher"], context.labels
    rows, of_gold = np.arange(len(labels)), targets.out_of_fold
    recalibrated = cross_fitted({"teacher": teacher_gold}, labels, context.folds, context.gold_weights)
    gains = np.log(np.maximum(of_gold[rows, labels], TINY)) - np.log(recalibrated[rows, labels])
    label_gold = teacher_gold.argmax(axis=1)
    differing_gold = of_gold.argmax(axis=1) != label_gold
    won, lost = differing_gold & (of_gold.argmax(axis=1) == labels), differing_gold & (label_gold == labels)
    advantage = _advantage(context, targets)
    differing = advantage > 0
    likelihood, error = mean_of(gains, context.design)
    counts = _counts(context, differing_gold, won, lost)
    return GainEstimate(
        likelihood=likelihood,
        likelihood_error=error,
        differing=float(differing.mean()),
        differing_gold=counts[0],
        won=counts[1],
        lost=counts[2],
        prior_advantage=float(advantage[differing].mean()) if differing.any() else 0.0,
        worth=counts[0] / int(differing_gold.sum()) if differing_gold.any() else 1.0,
    )


def _counts(
    context: Context, differing: NDArray[np.bool_], won: NDArray[np.bool_], lost: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """How many gold rows differ, and are won and lost (m,); with weights or groups, how many rows they are worth."""
    if context.design.even or not differing.any():
        return int(differing.sum()), int(won.sum()), int(lost.sum())
    rows = effective_number(won.astype(np.float64) - lost, context.design, differing)
    weights = np.ones(len(won)) if context.gold_weights is None else context.gold_weights
    scale = rows / float(weights @ differing)
    return rows, scale * float(weights @ won), scale * float(weights @ lost)


def _advantage(context: Context, targets: FittedTargets) -> NDArray[np.float64]:
    """Of unlabeled rows (n,), the probability of the targets' class minus that of the teacher's; 0 where both are the same.

    Block by block, so that the targets of all rows are never in memory.
    """
    experts, n = context.unlabeled, len(context.unlabeled["teacher"])
    parts = [np.zeros(0)]
    for block in blocks(n, BLOCK):
        own = targets.of({name: values[block] for name, values in experts.items()})
        parts.append(own.max(axis=1) - own[np.arange(len(own)), experts["teacher"][block].argmax(axis=1)])
    return np.concatenate(parts)


def _why(context: Context, targets: FittedTargets, gain: GainEstimate) -> str:
    """What the targets are, how many rows they change, what that gains, and an expert that alone is better on gold."""
    changed = f"{gain.differing:.1%} of the rows get another class"
    expected = f"{100 * gain.gain:+.1f} ± {100 * gain.gain_error:.1f} points of target accuracy expected"
    share = ""
    if isinstance(targets.of, Average) and len(context.validation) > 1:
        share = f"the correction is {targets.of.share:.0%} of the average, "
    gained = f"{share}{changed}, {expected}{_by_metric(context, targets)}"
    return f"{_described(context, targets)}: {gained}{_alone(context, targets)}"


def _by_metric(context: Context, targets: FittedTargets) -> str:
    """What the targets gain by the user's metric on gold, out of fold, where it is not accuracy."""
    metric = context.metric
    if metric is None or metric.name == "accuracy":
        return ""
    gain = gain_on_gold(metric, context, targets)
    if gain.value != gain.value:
        return f"; by {metric.name} the gold rows tell no gain"
    return f"; by {metric.name} a gain of {gain.value:+.3f} ({gain.low:+.3f} to {gain.high:+.3f}) on gold, out of fold"


def _alone(context: Context, targets: FittedTargets) -> str:
    """The expert that by itself is right on more gold rows than the targets, beyond chance, and how it can be taught."""
    name = better_alone(context, targets)
    if not name:
        return ""
    rights = (each.argmax(axis=1) == context.labels for each in (context.validation[name], targets.out_of_fold))
    own, taught = (f"{share_of(right, context.design).value:.1%}" for right in rights)
    asked = f"--targets-from {name} (targets_from in Python)"
    return f"; {name} alone is right on more gold rows ({own}, these targets {taught}): {asked} teaches it"


def _described(context: Context, targets: FittedTargets) -> str:
    """The targets in words."""
    if not isinstance(targets.of, Average):
        return f"targets from {targets.source}, as asked"
    leader = {"teacher": "the teacher", "retrained": "the retrained teacher"}.get(targets.leader, targets.leader)
    others = [name for name in context.validation if name != targets.leader]
    recalibrated = f"{leader}'s predictions, recalibrated on {len(context.labels):,} gold rows"
    return f"{recalibrated}, averaged with their correction by {', '.join(others)}" if others else recalibrated


def supervise_best(context: Context) -> Supervision:
    """Gold as labels, and corrected targets."""
    correction = correct_targets(context)
    return replace(supervise(correction.targets.of(context.unlabeled), context), gold=True, why=correction.why)


best = MethodArm("best", supervise_best, AUXILIARY_MODELS)


def check_enough_gold(rows: int, where: str, instead: str) -> None:
    """Raise where there are too few gold rows to estimate anything."""
    if rows < FEWEST:
        expected = f"at least {FEWEST}, better 100 or more"
        remedy = f"label some rows that the teacher was not trained on, or {instead}"
        raise bad_input("too few gold rows", where, f"{rows} rows", expected, remedy)
