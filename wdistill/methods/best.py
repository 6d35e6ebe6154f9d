"""`best`: the gold rows as labels always, and corrected targets in place of the teacher's where the gold rows support them.

A posterior has to pass two tests on the gold rows, both out of fold. First, its likelihood must be better than the
teacher's: with a hundred rows the likelihood decides where accuracies differ by chance. Second, the expected gain in target
accuracy must be large enough. It comes from the rows on which posterior and teacher disagree: how many there are is counted
on the unlabeled rows, which of the two is right on the gold rows, with the posterior's own probabilities as the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_input
from wdistill.core.threads import one_thread
from wdistill.methods.context import Context, MethodArm, Supervision, supervise
from wdistill.methods.posterior import Posterior, cross_fitted, fit_posterior
from wdistill.weights.confidence import Floats

AUXILIARY_MODELS = ("second", "forest", "retrained")  # another student, a random forest, and the teacher, all with gold
FEWEST = 10  # gold rows, at least, to fit and to evaluate on
LEAST_ERRORS = 0.5  # standard errors by which the likelihood must improve
PRIOR_ROWS = 20.0  # weight of the prior advantage, in differing gold rows
LEAST_GAIN = 0.004  # least expected gain in target accuracy: a smaller one does not reach the student


@dataclass(frozen=True, eq=False)
class GainEstimate:
    """The estimated effect of training on a posterior over the truth in place of the teacher's targets."""

    posterior: Posterior
    out_of_fold: Floats  # (m, K) the posterior of the gold rows
    likelihood: float  # mean gain in log-likelihood on gold, over the teacher's own predictions recalibrated
    likelihood_error: float  # its standard error
    differing: float  # share of the unlabeled rows that would get another class
    differing_gold: int  # gold rows that would
    won: int  # of these, rows on which the posterior is right and the teacher wrong
    lost: int  # and the other way round
    prior_advantage: float  # on differing rows, as the posterior itself expects it: a probability minus a probability

    @property
    def likelihood_improves(self) -> bool:
        """Whether the gold rows support it."""
        return self.likelihood > LEAST_ERRORS * self.likelihood_error

    @property
    def accepted(self) -> bool:
        """Whether it is trained on: the gold rows support it, and the gain is large enough."""
        return self.likelihood_improves and self.gain > LEAST_GAIN

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
        return PRIOR_ROWS / self.differing if self.differing else 0.0


@one_thread()
def estimate_gain(context: Context, experts: Sequence[str]) -> GainEstimate:
    """The estimated gain of the posterior of these experts, the teacher first, from the gold rows."""
    gold = {name: context.validation[name] for name in experts}
    unlabeled = {name: context.unlabeled[name] for name in experts}
    labels, rows = context.labels, np.arange(len(context.labels))
    posterior, out_of_fold = fit_posterior(gold, labels), cross_fitted(gold, labels, context.folds)
    recalibrated = cross_fitted({"teacher": gold["teacher"]}, labels, context.folds)
    gains = np.log(out_of_fold[rows, labels]) - np.log(recalibrated[rows, labels])
    corrected = posterior(unlabeled)
    teacher, teacher_gold = unlabeled["teacher"].argmax(axis=1), gold["teacher"].argmax(axis=1)
    differing, differing_gold = corrected.argmax(axis=1) != teacher, out_of_fold.argmax(axis=1) != teacher_gold
    advantage = corrected.max(axis=1) - corrected[np.arange(len(corrected)), teacher]
    return GainEstimate(
        posterior=posterior,
        out_of_fold=out_of_fold,
        likelihood=float(gains.mean()),
        likelihood_error=_standard_error(gains),
        differing=float(differing.mean()),
        differing_gold=int(differing_gold.sum()),
        won=int(np.sum(differing_gold & (out_of_fold.argmax(axis=1) == labels))),
        lost=int(np.sum(differing_gold & (teacher_gold == labels))),
        prior_advantage=float(advantage[differing].mean()) if differing.any() else 0.0,
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """Which targets to train on, and why."""

    estimate: GainEstimate
    why: str
    recalibrated: Posterior | None = None  # of the teacher alone: takes the place of its own targets

    def targets(self, experts: Mapping[str, Floats]) -> Floats:
        """Distributions (n, K), from the probabilities of every expert: the posterior's, or the teacher's."""
        if self.estimate.accepted:
            return self.estimate.posterior(experts)
        return experts["teacher"] if self.recalibrated is None else self.recalibrated(experts)


def choose(context: Context) -> Choice:
    """Corrected targets where the gold rows support them and the gain is large enough, else the teacher's own.

    Where the context says `recalibrate`, the teacher's own targets are recalibrated on the gold rows.
    """
    estimate = estimate_gain(context, tuple(context.validation))
    others = ", ".join(name for name in context.validation if name != "teacher")
    recalibrated = fit_posterior({"teacher": context.validation["teacher"]}, context.labels) if context.recalibrate else None
    instead = f"the teacher's {'targets, recalibrated on gold' if context.recalibrate else 'own targets'}"
    if not others:
        return Choice(estimate, f"{instead}: there is no other expert", recalibrated)
    likelihood = f"log-likelihood on gold {estimate.likelihood:+.3f} ± {estimate.likelihood_error:.3f}"
    gain = f"{100 * estimate.gain:+.1f} ± {100 * estimate.gain_error:.1f} points of target accuracy expected"
    if estimate.accepted:
        changed = f"{estimate.differing:.1%} of the rows get another class"
        return Choice(estimate, f"targets corrected by {others}: {likelihood}, {changed}, {gain}")
    if estimate.likelihood_improves:
        least = f"at least {100 * LEAST_GAIN:.1f} are required"
        return Choice(estimate, f"{instead}: too little gain from {others} ({likelihood}, {gain}, {least})", recalibrated)
    rows = len(context.labels)
    return Choice(estimate, f"{instead}: {rows} gold rows show no gain from {others} ({likelihood})", recalibrated)


def supervise_best(context: Context) -> Supervision:
    """Gold as labels, and the targets of the choice."""
    choice = choose(context)
    return replace(supervise(choice.targets(context.unlabeled), context), gold=True, why=choice.why)


best = MethodArm("best", supervise_best, AUXILIARY_MODELS)


def check_enough_gold(rows: int, where: str, instead: str) -> None:
    """Raise where there are too few gold rows to estimate anything."""
    if rows < FEWEST:
        expected = f"at least {FEWEST}, better 100 or more"
        remedy = f"label some rows that the teacher was not trained on, or {instead}"
        raise bad_input("too few gold rows", where, f"{rows} rows", expected, remedy)


def _standard_error(values: NDArray[np.float64]) -> float:
    """Standard error of a mean; infinite where there is one row."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
