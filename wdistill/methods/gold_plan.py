"""Gold planning: what more gold rows would gain, and which rows to label next.

Rows for evaluation must be drawn at random, or shares counted on them are not those of the unlabeled rows. Rows to train on
may be chosen: here those on which the posterior is uncertain and the experts disagree. Rows for evaluation are all as likely
to be drawn, so that any number of them, in their order, can be labeled and put beside the gold rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wdistill.methods.best import Correction
from wdistill.methods.context import Context
from wdistill.methods.crossfit import Ints
from wdistill.methods.groups import joined, numbered
from wdistill.methods.posterior import fit_posterior
from wdistill.weights.confidence import Floats, entropy

MORE = (100, 300, 1_000, 3_000)  # gold rows to be labeled
DRAWS = 6  # random halves, and as many random quarters, of the gold rows
FEWEST = 8  # rows, at least, that a posterior is refitted on
PLANNED = 1_000  # rows to label for judging, and as many for teaching


@dataclass(frozen=True)
class PlanStep:
    """A number of additional gold rows, and the projected gain in target accuracy with them."""

    more: int
    error: float  # expected standard error of the gain
    gain: float  # projected gain: a posterior fitted on more rows, the experts unchanged


def steps(context: Context, correction: Correction, more: Sequence[int] = MORE) -> tuple[PlanStep, ...]:
    """The error falls with the root of gold and prior rows, the loss from fitting on few rows with the gold rows."""
    m, lost, estimate = len(context.labels), _lost_to_few(context, correction.targets.leader), correction.gain
    rows_now = m + estimate.prior
    return tuple(
        PlanStep(
            rows,
            estimate.gain_error * float(np.sqrt(rows_now / (rows_now + rows))),
            estimate.gain + lost * (1 / m - 1 / (m + rows)),
        )
        for rows in more
    )


def enough_of(planned: Sequence[PlanStep], now: float, least: float) -> PlanStep | None:
    """The first step that adds half of what the last one adds to the gain `now`; None where that is less than `least`."""
    most = planned[-1].gain - now
    return next((step for step in planned if step.gain - now >= most / 2), None) if most >= least else None


def _lost_to_few(context: Context, leader: str) -> float:
    """b of accuracy = a − b / rows, for posteriors refitted on random halves and quarters of gold, tested on the other rows.

    Never below 0: more rows do not reduce the accuracy.
    """
    m, rng = len(context.labels), np.random.default_rng(context.seed)
    sizes = [size for size in (m // 4, m // 2) if size >= FEWEST]
    if len(sizes) < 2:
        return 0.0
    accuracies = [
        np.mean([_held_out_accuracy(context, leader, _shuffled(context, rng), size) for _ in range(DRAWS)]) for size in sizes
    ]
    return max(0.0, float(accuracies[1] - accuracies[0]) / (1 / sizes[0] - 1 / sizes[1]))


def _shuffled(context: Context, rng: np.random.Generator) -> Ints:
    """The gold rows (m,) in random order, those of a group one after the other."""
    m = len(context.labels)
    if context.gold_groups is None:
        return rng.permutation(m)
    groups = numbered(context.gold_groups, m)
    return np.argsort(rng.permutation(int(groups.max()) + 1)[groups], kind="stable")


def _held_out_accuracy(context: Context, leader: str, order: Ints, size: int) -> float:
    """Accuracy on the other rows of a posterior fitted on the first `size` of `order`, without repeats where possible."""
    train, test = order[:size], order[size:]
    kin = context.same
    if context.gold_groups is not None:
        kin = joined(context.gold_groups, context.gold_groups if kin is None else kin)
    if kin is not None:
        fresh = test[~np.isin(kin[test], kin[train])]
        test = fresh if len(fresh) else test
    experts, weights = {leader: context.validation[leader], **context.validation}, context.gold_weights
    known = {name: values[train] for name, values in experts.items()}
    posterior = fit_posterior(known, context.labels[train], None if weights is None else weights[train])
    predicted = posterior({name: values[test] for name, values in experts.items()})
    right = predicted.argmax(axis=1) == context.labels[test]
    return float(np.mean(right) if weights is None else np.average(right, weights=weights[test]))


def worth_labeling(context: Context, truth: Floats) -> Ints:
    """The unlabeled rows (n,), most informative first, from the posterior's distributions (n, K).

    The score is the posterior's entropy times the disagreement of the experts (the entropy of their mean less their mean
    entropy); of a teacher alone, which disagrees with nobody, the entropy of its recalibrated distributions. Classes take
    turns.
    """
    experts = list(context.unlabeled.values())
    mean = sum(experts[1:], experts[0]) / len(experts)
    disagreement = entropy(mean) - sum(entropy(expert) for expert in experts) / len(experts)
    told = np.maximum(disagreement, 0.0) if len(experts) > 1 else 1.0
    score, classes = entropy(truth) * told, truth.argmax(axis=1)
    by_class = np.lexsort((-score, classes))
    starts = np.searchsorted(classes[by_class], classes[by_class])
    turn = np.empty(len(score), np.int64)
    turn[by_class] = np.arange(len(score)) - starts
    return np.lexsort((-score, turn)).astype(np.int64)


def judging_inclusion(context: Context, rows: int) -> float:
    """The inclusion probability of rows that are drawn at random next, beside the present gold rows, from `rows` rows.

    It is that of the present ones, where these were drawn at random too. Where they were drawn unevenly, it is Σ w / Σ w²,
    w = 1 / the probability of a present gold row: each set then counts in estimates for as many rows as it is worth.
    """
    weights = context.gold_weights
    if weights is None:
        return len(context.labels) / (len(context.labels) + rows)
    return float(weights.sum() / np.square(weights).sum())


def inclusion_column(judging: float, to_judge: int, to_teach: int) -> list[float | None]:
    """The inclusion probabilities of a plan: none for rows to teach, which are chosen, so that nothing is judged on them."""
    return [judging] * to_judge + [None] * to_teach


def rows_to_label(n: int, informative: Ints, labeled: Ints) -> tuple[Ints, Ints]:
    """Of n rows those to label next, none of `labeled`: for judging, drawn at random; for teaching, the most informative."""
    order = np.random.default_rng(1).permutation(n)
    judging = order[~np.isin(order, labeled)][: min(PLANNED, n // 2)]
    teaching = informative[~np.isin(informative, np.concatenate([judging, labeled]))][:PLANNED]
    return judging, teaching
