"""The targets that `best` can teach: an expert's as they are or recalibrated, the posterior of all experts, or an average.

Each is fitted on the gold rows, and answers for them out of fold. The leader is the teacher, or the teacher retrained with
gold rows where there is one, or an expert that is right on more gold rows beyond chance. `average`, the default, is the mean
of the recalibrated leader and of the posterior whose prior trusts the leader alone. Its two shares are stacked (Wolpert,
Neural Networks 1992): they maximise the likelihood of the gold rows, out of fold, with a prior of one half each. On
tuning tasks averages lost less than choices where gold rows are few.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import not_one_of
from wdistill.methods.context import Context
from wdistill.methods.crossfit import Ints
from wdistill.methods.gold_design import effective_weights
from wdistill.methods.on_gold import beats
from wdistill.methods.posterior import Posterior, cross_fitted, fit_posterior, posterior_of
from wdistill.weights.confidence import Floats

AVERAGE, POSTERIOR, RECALIBRATED = "average", "posterior", "-recalibrated"  # the last one follows an expert's name
BEYOND_CHANCE = 3.0  # standard errors by which another expert must be right more often on gold to lead
PRIOR_ROWS = 100.0  # gold rows that the prior of the shares counts for
STEPS = 200  # of expectation and maximisation


class Targets(Protocol):
    """Targets (n, K) of any rows, from the probabilities (n, K) of every expert."""

    def __call__(self, experts: Mapping[str, Floats], /) -> Floats: ...

    @property
    def record(self) -> dict[str, Any]:
        """Its numbers, as a file keeps them."""


@dataclass(frozen=True)
class AsTheyAre:
    """The probabilities of one expert."""

    expert: str

    def __call__(self, experts: Mapping[str, Floats]) -> Floats:
        return experts[self.expert]

    @property
    def record(self) -> dict[str, Any]:
        return {"expert": self.expert}


@dataclass(frozen=True, eq=False)
class Average:
    """The weighted mean of the recalibrated leader and of the posterior of all experts."""

    leader: Posterior
    posterior: Posterior
    share: float  # of the posterior

    def __call__(self, experts: Mapping[str, Floats]) -> Floats:
        return (1.0 - self.share) * self.leader(experts) + self.share * self.posterior(experts)

    @property
    def record(self) -> dict[str, Any]:
        return {"share": self.share, "leader": self.leader.record, "posterior": self.posterior.record}


def targets_of_record(record: Mapping[str, Any]) -> Targets:
    """The targets whose record this is; a record of something else raises KeyError, TypeError or ValueError."""
    if "expert" in record:
        return AsTheyAre(str(record["expert"]))
    if "share" in record:
        return Average(posterior_of(record["leader"]), posterior_of(record["posterior"]), float(record["share"]))
    return posterior_of(record)


@dataclass(frozen=True, eq=False)
class FittedTargets:
    """Targets fitted on the gold rows, and what they say of these out of fold."""

    source: str  # average, posterior, the name of an expert, or that name with -recalibrated
    leader: str  # the expert that the prior trusts
    of: Targets
    out_of_fold: Floats  # (m, K)


def fit_targets(context: Context, source: str = AVERAGE) -> FittedTargets:
    """Targets of this name, fitted on the gold rows of a context."""
    experts, labels, folds, weights = context.validation, context.labels, context.folds, context.gold_weights
    check_source(source, experts, "targets_from (--targets-from)")
    leader = leader_of(context)
    if source in experts:
        return FittedTargets(source, leader, AsTheyAre(source), experts[source])
    first = source.removesuffix(RECALIBRATED) if source.endswith(RECALIBRATED) else leader
    alone = {first: experts[first]}
    recalibrated = fit_posterior(alone, labels, weights), cross_fitted(alone, labels, folds, weights)
    if source.endswith(RECALIBRATED):
        return FittedTargets(source, leader, *recalibrated)
    everybody = {leader: experts[leader], **experts}
    posterior = fit_posterior(everybody, labels, weights), cross_fitted(everybody, labels, folds, weights)
    if source == POSTERIOR:
        return FittedTargets(source, leader, *posterior)
    share = stacked_share(recalibrated[1], posterior[1], labels, weights)
    mean = (1.0 - share) * recalibrated[1] + share * posterior[1]
    return FittedTargets(source, leader, Average(recalibrated[0], posterior[0], share), mean)


def check_source(source: str, experts: Collection[str], where: str) -> None:
    """Raise where no targets of this name can be made from these experts."""
    names = [AVERAGE, POSTERIOR, *(name + end for end in (RECALIBRATED, "") for name in experts)]
    if source not in names:
        remedy = f"take one of them; {AVERAGE} is the default"
        raise not_one_of("no such targets", where, source, names, remedy)


def leader_of(context: Context) -> str:
    """The expert that the prior trusts: the retrained teacher, the teacher, or one that is better on gold beyond chance."""
    usual = "retrained" if "retrained" in context.validation else "teacher"
    right = _right_rows(context)
    strongest = _strongest(right, context)
    return strongest if beats(right[strongest], right[usual], BEYOND_CHANCE, context.design) else usual


def better_alone(context: Context, targets: FittedTargets) -> str:
    """The expert that is right on most gold rows, where it beats the targets there beyond chance, out of fold; or ""."""
    right = _right_rows(context)
    strongest, taught = _strongest(right, context), targets.out_of_fold.argmax(axis=1) == context.labels
    return strongest if beats(right[strongest], taught, BEYOND_CHANCE, context.design) else ""


def _right_rows(context: Context) -> dict[str, NDArray[np.bool_]]:
    """On which gold rows (m,) every expert is right."""
    return {name: values.argmax(axis=1) == context.labels for name, values in context.validation.items()}


def _strongest(right: Mapping[str, NDArray[np.bool_]], context: Context) -> str:
    """The expert that is right on most gold rows."""
    counted = np.ones(len(context.labels)) if context.gold_weights is None else context.gold_weights
    return max(right, key=lambda name: float(counted @ right[name]))


def stacked_share(one: Floats, other: Floats, labels: NDArray[np.integer], weights: Floats | None = None) -> float:
    """The share of the other in the mean of two predictions (m, K) that is likeliest on labels (m,), its prior one half.

    `weights` (m,): 1 / the probability of being drawn, of gold rows that were drawn unevenly.
    """
    rows: Ints = np.arange(len(labels))
    first, second = one[rows, labels], other[rows, labels]
    counted = None if weights is None else effective_weights(weights)
    count = len(labels) if counted is None else float(counted.sum())
    share = 0.5
    for _ in range(STEPS):
        responsible = share * second / ((1.0 - share) * first + share * second)
        total = responsible.sum() if counted is None else counted @ responsible
        share = (float(total) + PRIOR_ROWS / 2) / (count + PRIOR_ROWS)
    return share
