"""Several annotators: how often they agree, and the ceiling that sets to any accuracy measured on their labels.

Two annotators of a row agree by chance or because both are right. The ceiling, the accuracy of a model that is always right
measured against one annotator's labels, is the accuracy a of one annotator. It follows from the agreement where all
annotators are equally accurate, err independently of each other, and give any wrong class equally often (Dawid and Skene's
model with one parameter):

    agreement = a² + (1 − a)² / (K − 1)

Without the last two assumptions, for annotators who are drawn anew for every row, the best a model can do lies between the
agreement and its square root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, wrong_shape
from wdistill.methods.groups import numbered
from wdistill.methods.interval import covariance, quantile
from wdistill.methods.metric import row_weights
from wdistill.methods.statistics import Interval, wilson
from wdistill.weights.confidence import Floats

MISSING = -1  # an annotator who gave no label


@dataclass(frozen=True)
class AnnotatorAgreement:
    """The agreement of annotators, and what it implies."""

    rows: int  # with two labels or more
    pairwise: Interval  # the share of pairs of labels of a row that agree, each row counting once
    ceiling: Interval  # accuracy of one annotator: of a perfect model measured against one annotator's labels
    bounds: tuple[float, float]  # of the ceiling without assumptions on errors
    by_annotator: tuple[float, ...]  # how often each agrees with another annotator of the row; NaN without one


@dataclass(frozen=True)
class AccuracyBeyondCeiling:
    """The accuracy of decisions on rows that annotators labeled, corrected for the annotators' errors."""

    rows: int
    measured: float  # share of the annotators' labels that the decisions are equal to, each row counting once
    corrected: Interval  # the accuracy against the truth, under the assumptions


def agreement(
    labels: NDArray[Any], classes: int, weights: Floats | None = None, groups: NDArray[Any] | None = None
) -> AnnotatorAgreement:
    """From labels (m, A) of A annotators, −1 where one is missing; with weights and groups of rows (m,) if there are any."""
    given = _checked(labels, classes)
    votes, counts = _votes(given, classes)
    several = counts >= 2
    w = row_weights(weights, len(given))[several]
    numbers = None if groups is None else numbered(np.asarray(groups)[several], int(several.sum()))
    agreeing = _agreeing(votes, counts)[several]
    value = float(w @ agreeing / w.sum())
    variance = float(covariance((agreeing - value)[:, None], w, numbers)[0, 0])
    most = float(w.sum() ** 2 / np.square(w).sum())
    effective = min(value * (1 - value) / variance, most * given.shape[1]) if variance > 0 else most
    pairwise = wilson(value, effective, quantile(numbers))
    others = np.take_along_axis(votes, np.maximum(given, 0), 1) - 1
    matched = np.where((given != MISSING) & several[:, None], others / np.maximum(counts - 1, 1)[:, None], np.nan)
    known = ~np.isnan(matched)
    by = np.divide(np.where(known, matched, 0).sum(0), known.sum(0), out=np.full(len(known.T), np.nan), where=known.any(0))
    ceiling = Interval(*(annotator_accuracy(end, classes) for end in (pairwise.value, pairwise.low, pairwise.high)))
    return AnnotatorAgreement(int(several.sum()), pairwise, ceiling, (value, float(np.sqrt(value))), tuple(by.tolist()))


def annotator_accuracy(pairwise: float, classes: int) -> float:
    """a of agreement = a² + (1 − a)² / (K − 1), at least 1 / K."""
    chance = 1 / classes
    return float(chance + np.sqrt(max(pairwise - chance, 0.0) * (1 - chance)))


def accuracy_beyond_ceiling(
    decisions: NDArray[Any],
    labels: NDArray[Any],
    classes: int,
    weights: Floats | None = None,
    groups: NDArray[Any] | None = None,
) -> AccuracyBeyondCeiling | None:
    """The accuracy of decisions (m,) against the truth that annotators' labels (m, A) are noisy copies of.

    The accuracy against one annotator is a · accuracy + (1 − a) · (1 − accuracy) / (K − 1), if the predictor errs
    independently of the annotators too; a comes from their agreement on the same rows. None where they may agree by chance
    alone, so that their labels tell nothing.
    """
    given = _checked(labels, classes)
    votes, counts = _votes(given, classes)
    w, numbers = row_weights(weights, len(given)), None if groups is None else numbered(np.asarray(groups), len(given))
    chance, named, several = 1 / classes, counts > 0, counts >= 2
    matched = np.where(named, votes[np.arange(len(given)), decisions] / np.maximum(counts, 1), 0.0)
    agreeing = _agreeing(votes, counts)
    measured, pairwise = (float(w[on] @ values[on] / w[on].sum()) for values, on in ((matched, named), (agreeing, several)))
    moved = named * (matched - measured) * w.sum() / w[named].sum()
    other = several * (agreeing - pairwise) * w.sum() / w[several].sum()
    if pairwise - chance <= _half(other, w, numbers):
        return None
    skill = np.sqrt((pairwise - chance) / (1 - chance))  # (a − 1/K) / (1 − 1/K)
    value = chance + (measured - chance) / skill
    half = _half(moved / skill - (measured - chance) / (2 * skill * (pairwise - chance)) * other, w, numbers)
    corrected = Interval(*(float(np.clip(end, 0, 1)) for end in (value, value - half, value + half)))
    return AccuracyBeyondCeiling(int(named.sum()), measured, corrected)


def _half(influences: Floats, weights: Floats, groups: NDArray[np.int64] | None) -> float:
    """Half of the width of a 95 % interval, from the influences of rows (m,)."""
    return quantile(groups) * float(np.sqrt(covariance(influences[:, None], weights, groups)[0, 0]))


def _votes(labels: NDArray[np.int64], classes: int) -> tuple[Floats, Floats]:
    """How many labels of every class each row has (m, K), and in all (m,)."""
    rows, places = np.nonzero(labels != MISSING)
    votes = np.zeros((len(labels), classes))
    np.add.at(votes, (rows, labels[rows, places]), 1.0)
    return votes, votes.sum(axis=1)


def _agreeing(votes: Floats, counts: Floats) -> Floats:
    """The share of pairs of a row's labels that agree (m,); 0 where there is no pair."""
    pairs = counts * (counts - 1)
    return np.asarray(np.divide((votes * (votes - 1)).sum(axis=1), pairs, out=np.zeros(len(votes)), where=pairs > 0))


def _checked(labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    values = checks.array(labels, "labels of annotators")
    if values.ndim != 2 or values.dtype.kind not in "iu":
        found, expected = f"shape {values.shape}, dtype {values.dtype}", "whole numbers (rows, annotators)"
        raise wrong_shape("not one column an annotator", "labels of annotators", found, expected, "−1 is a missing label")
    outside = np.flatnonzero(((values < MISSING) | (values >= classes)).any(axis=1))
    pairs = int(((values != MISSING).sum(axis=1) >= 2).sum())
    if len(outside) or not pairs:
        found = f"labels from {values.min(initial=0)} to {values.max(initial=0)}, {pairs} rows with two labels or more"
        expected = f"0 … {classes - 1}, −1 where one is missing, and some rows with two labels"
        raise bad_input("not labels of several annotators", "labels", found, expected, "number the classes from 0", outside)
    return np.asarray(values, np.int64)
