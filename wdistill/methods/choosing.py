"""`best`: the gold rows as labels always, and other targets than the teacher's where the gold rows speak for them.

Two questions are asked of the gold rows, all of them answered out of fold. Whether the posterior knows more than the teacher
is asked of the likelihood, which tells it from a hundred rows where accuracies differ by chance. How many points of target
accuracy it is worth is asked of the rows on which the two disagree: how many there are is counted on the unlabeled rows, and
how they end on gold, with the posterior's own word as the prior. Only a posterior that passes on both is taught.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats
from wdistill.errors import InputError
from wdistill.methods.lessons import Case, Lesson, taught
from wdistill.methods.posterior import Posterior, cross_fitted, fit_posterior
from wdistill.threads import one_thread

FEWEST = 10  # gold rows to learn from and to judge by
LEAST = 0.5  # standard errors by which the likelihood has to be better
WORD = 20.0  # differing gold rows that the posterior's own word about its advantage counts for
WORTH = 0.004  # gain in target accuracy that a posterior has to promise: less does not reach the student


@dataclass(frozen=True, eq=False)
class Prospect:
    """What it would mean to teach a posterior over the truth in place of the teacher's word."""

    posterior: Posterior
    known: Floats  # (m, K) of the gold rows, out of fold
    likelihood: float  # mean gain in log-likelihood on gold, over the teacher's own predictions recalibrated
    likelihood_error: float  # its standard error
    differing: float  # share of the unlabeled rows that would get another class
    differing_gold: int  # gold rows that would
    won: int  # of these, rows on which the posterior is right and the teacher wrong
    lost: int  # and the other way round
    word: float  # advantage on differing rows that the posterior itself expects, a chance minus a chance

    @property
    def supported(self) -> bool:
        """Whether the gold rows speak for it."""
        return self.likelihood > LEAST * self.likelihood_error

    @property
    def taken(self) -> bool:
        """Whether it is taught: the gold rows speak for it, and it is worth it."""
        return self.supported and self.gain > WORTH

    @property
    def advantage(self) -> float:
        """Expected advantage on differing rows, a chance minus a chance."""
        return (WORD * self.word + self.won - self.lost) / (WORD + self.differing_gold)

    @property
    def gain(self) -> float:
        """Expected gain in target accuracy, a share of the unlabeled rows."""
        return self.differing * self.advantage

    @property
    def gain_error(self) -> float:
        """Standard error of the gain."""
        return self.differing * float(np.sqrt(max(1.0 - self.advantage**2, 0.0) / (WORD + self.differing_gold)))

    @property
    def numbers(self) -> dict[str, float]:
        """What is told of it in records."""
        told = ("likelihood", "likelihood_error", "differing", "differing_gold", "won", "lost", "word", "gain", "gain_error")
        return {name: getattr(self, name) for name in told}

    @property
    def prior(self) -> float:
        """Gold rows, differing or not, that the posterior's own word counts for; 0 where no row differs."""
        return WORD / self.differing if self.differing else 0.0


@one_thread()
def prospect(case: Case, experts: Sequence[str]) -> Prospect:
    """Ask the gold rows about the posterior of these experts, of whom the first is the teacher."""
    known = {name: case.validation[name] for name in experts}
    asked = {name: case.unlabeled[name] for name in experts}
    labels, rows = case.labels, np.arange(len(case.labels))
    fitted, out_of_fold = fit_posterior(known, labels), cross_fitted(known, labels, case.folds)
    alone = cross_fitted({"teacher": known["teacher"]}, labels, case.folds)
    gains = np.log(out_of_fold[rows, labels]) - np.log(alone[rows, labels])
    truth = fitted(asked)
    said, said_gold = asked["teacher"].argmax(axis=1), known["teacher"].argmax(axis=1)
    differing, differing_gold = truth.argmax(axis=1) != said, out_of_fold.argmax(axis=1) != said_gold
    advantage = truth.max(axis=1) - truth[np.arange(len(truth)), said]
    return Prospect(
        posterior=fitted,
        known=out_of_fold,
        likelihood=float(gains.mean()),
        likelihood_error=_error(gains),
        differing=float(differing.mean()),
        differing_gold=int(differing_gold.sum()),
        won=int(np.sum(differing_gold & (out_of_fold.argmax(axis=1) == labels))),
        lost=int(np.sum(differing_gold & (said_gold == labels))),
        word=float(advantage[differing].mean()) if differing.any() else 0.0,
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """What to teach about any row, and why."""

    prospect: Prospect
    why: str

    def targets(self, opinions: Mapping[str, Floats]) -> Floats:
        """Distributions (n, K), from the probabilities of every expert: the posterior's, or the teacher's own."""
        return self.prospect.posterior(opinions) if self.prospect.taken else opinions["teacher"]


def choose(case: Case) -> Choice:
    """Corrected targets where the gold rows speak for them and they are worth it, else the teacher's own."""
    found = prospect(case, tuple(case.validation))
    others = ", ".join(name for name in case.validation if name != "teacher")
    shown = f"log-likelihood on gold {found.likelihood:+.3f} ± {found.likelihood_error:.3f}"
    promised = f"{100 * found.gain:+.1f} ± {100 * found.gain_error:.1f} points of target accuracy expected"
    if found.taken:
        changed = f"{found.differing:.1%} of the rows get another class"
        return Choice(found, f"targets corrected by {others}: {shown}, {changed}, {promised}")
    if found.supported:
        least = f"at least {100 * WORTH:.1f} are asked for"
        return Choice(found, f"the teacher's own targets: too little to expect of {others} ({shown}, {promised}, {least})")
    rows = len(case.labels)
    return Choice(found, f"the teacher's own targets: nothing that {rows} gold rows can tell comes from {others} ({shown})")


def best(case: Case) -> Lesson:
    """Gold as labels, and the targets of the choice."""
    made = choose(case)
    return replace(taught(made.targets(case.unlabeled), case), gold=True, why=made.why)


def enough(rows: int, where: str, instead: str) -> None:
    """Refuse so few gold rows that whatever they said would be chance."""
    if rows < FEWEST:
        raise InputError(
            "too few gold rows",
            where=where,
            found=f"{rows} rows",
            expected=f"at least {FEWEST}, better 100 or more",
            remedy=f"label some rows that the teacher was not trained on, or {instead}",
        )


def _error(values: NDArray[np.float64]) -> float:
    """Standard error of a mean; infinite where one row says nothing of the spread."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
