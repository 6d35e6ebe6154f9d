"""Gold planning: what more gold rows would tell and teach, and which rows to label next.

Rows for judging must be drawn at random, or shares counted on them are not those of the unlabeled rows. Rows for teaching
may be chosen: here those on which the posterior is unsure and the experts contradict each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wdistill.confidence import Floats, entropy
from wdistill.methods.choosing import Prospect
from wdistill.methods.folds import Ints
from wdistill.methods.lessons import Case
from wdistill.methods.posterior import fit_posterior

MORE = (100, 300, 1_000, 3_000)  # gold rows to be labeled
DRAWS = 6  # random halves, and as many random quarters, of the gold rows
FEWEST = 8  # rows that a posterior is refitted on


@dataclass(frozen=True)
class Step:
    """So many gold rows more, and what they would do to the gain in target accuracy."""

    more: int
    error: float  # expected standard error of the gain
    gain: float  # projected gain: a posterior learned from more rows, the experts as they are


def steps(case: Case, found: Prospect, more: Sequence[int] = MORE) -> tuple[Step, ...]:
    """The expected standard error falls with the root of the rows and the prior; what is lost to few rows, with the rows."""
    m, lost = len(case.labels), _lost_to_few(case)
    known = m + found.prior
    return tuple(
        Step(
            rows,
            found.gain_error * float(np.sqrt(known / (known + rows))),
            found.gain + lost * (1 / m - 1 / (m + rows)),
        )
        for rows in more
    )


def enough_of(found: Sequence[Step], now: float, least: float) -> Step | None:
    """The first step, ascending, with half of what the last adds to the gain of now; None where it adds less than least."""
    most = found[-1].gain - now
    return next((each for each in found if each.gain - now >= most / 2), None) if most >= least else None


def _lost_to_few(case: Case) -> float:
    """b of accuracy = a − b / rows, for posteriors refitted on random halves and quarters of gold and asked about the rest.

    Never below 0: rows do no harm.
    """
    m, rng = len(case.labels), np.random.default_rng(case.seed)
    sizes = [size for size in (m // 4, m // 2) if size >= FEWEST]
    if len(sizes) < 2:
        return 0.0
    accuracies = [np.mean([_asked(case, rng.permutation(m), size) for _ in range(DRAWS)]) for size in sizes]
    return max(0.0, float(accuracies[1] - accuracies[0]) / (1 / sizes[0] - 1 / sizes[1]))


def _asked(case: Case, order: Ints, size: int) -> float:
    """Accuracy of the posterior of the first rows on the others; on all of these if each is the same as one of the first."""
    learning, rest = order[:size], order[size:]
    if case.same is not None:
        fresh = rest[~np.isin(case.same[rest], case.same[learning])]
        rest = fresh if len(fresh) else rest
    fitted = fit_posterior({name: each[learning] for name, each in case.validation.items()}, case.labels[learning])
    found = fitted({name: each[rest] for name, each in case.validation.items()})
    return float(np.mean(found.argmax(axis=1) == case.labels[rest]))


def worth_labeling(case: Case, truth: Floats) -> Ints:
    """The unlabeled rows (n,), the one whose label would teach most first, from the posterior's distributions (n, K).

    The posterior's entropy times the disagreement of the experts (what their mean is less sure of than they are), the
    classes taken in turn.
    """
    said = list(case.unlabeled.values())
    mean = sum(said[1:], said[0]) / len(said)
    disagreement = entropy(mean) - sum(entropy(each) for each in said) / len(said)
    score, classes = entropy(truth) * np.maximum(disagreement, 0.0), truth.argmax(axis=1)
    by_class = np.lexsort((-score, classes))
    starts = np.searchsorted(classes[by_class], classes[by_class])
    turn = np.empty(len(score), np.int64)
    turn[by_class] = np.arange(len(score)) - starts
    return np.lexsort((-score, turn)).astype(np.int64)
