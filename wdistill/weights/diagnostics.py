"""Diagnostics of weights: the teacher's accuracy by confidence, its reliability, the rule's estimates over the plane of the
two confidences, and a histogram of the weights. `report.inspect` draws and prints them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, empty
from wdistill.weights.confidence import Floats
from wdistill.weights.debiased import Debiased

BINS = 20  # of a histogram of weights
EDGES = np.arange(BINS + 1) / BINS
_ONE = 60  # sums of weights are kept in quanta of 2^-60


@dataclass(frozen=True)
class Bin:
    """Validation rows of similar confidence, and how often the teacher is right on them."""

    low: float  # smallest confidence
    high: float  # largest confidence
    mean: float  # mean confidence
    rows: int
    accuracy: float
    standard_error: float  # of the accuracy; see `standard_error`


@dataclass(frozen=True)
class Reliability:
    """Calibration of the teacher's largest probability."""

    bins: tuple[Bin, ...]
    error: float  # expected calibration error: mean over the rows of |mean probability − accuracy| of their bin


def accuracy_by_margin(margins: Floats, wrong: NDArray[np.bool_], bins: int = 10) -> tuple[Bin, ...]:
    """The teacher's accuracy against its margin, margins (m,) and wrong (m,): the paper's Figure 1, right.

    Bins hold equally many rows as far as ties allow: equal margins share a bin, so the order of rows never matters, and
    there are fewer bins where there are fewer distinct margins.
    """
    if bins < 1:
        raise bad_value("not a number of bins", "bins", bins, "1, 2, 3 …", "pass a whole number above 0")
    margins, wrong = checks.scores(margins, "margins"), np.asarray(wrong, bool)
    m = checks.same_length({"margins": len(margins), "wrong": len(wrong)})
    if m == 0:
        raise empty("no validation rows", "margins", "at least 1 row", "pass some validation rows")
    ordered = np.sort(margins)
    middle = np.searchsorted(ordered, margins, "left") + np.searchsorted(ordered, margins, "right")  # twice the mean rank
    place = middle * bins // (2 * m)
    return tuple(_bin(margins[place == index], wrong[place == index]) for index in np.unique(place))


def _bin(values: Floats, wrong: NDArray[np.bool_]) -> Bin:
    right, rows = int(np.count_nonzero(~wrong)), len(values)
    mean = float(np.clip(np.sort(values).mean(), values.min(), values.max()))  # sorted: one sum, whatever the order
    return Bin(float(values.min()), float(values.max()), mean, rows, right / rows, standard_error(right, rows))


def standard_error(right: float, rows: float) -> float:
    """Of the accuracy `right / rows`: the posterior's standard deviation under a flat prior.

    For many rows it is the usual √(a(1 − a) / rows); unlike that, it never claims certainty from a few rows all right.
    """
    a = (right + 1) / (rows + 2)
    return float(np.sqrt(a * (1 - a) / (rows + 3)))


def reliability(certainty: Floats, wrong: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """Mean largest probability against accuracy, certainty (m,) and wrong (m,), in bins of equally many rows."""
    curve = accuracy_by_margin(certainty, wrong, bins)
    gaps = sum(point.rows * abs(point.mean - point.accuracy) for point in curve)
    return Reliability(curve, gaps / sum(point.rows for point in curve))


@dataclass(frozen=True)
class Histogram:
    """Weights counted in 20 equal bins over [0, 1), those of exactly 1 separately, and their sums.

    All fields are whole numbers, so chunks give the same record as the whole, in any order.
    """

    counts: tuple[int, ...] = (0,) * BINS  # bin i holds i/20 ≤ weight < (i + 1)/20
    ones: int = 0  # weights of exactly 1
    total: int = 0  # Σ w in quanta of 2^-60
    squares: int = 0  # Σ w² in quanta of 2^-60

    def plus(self, weights: ArrayLike) -> Histogram:
        """The histogram with another chunk of weights (n,) added."""
        values = checks.scores(weights, "weights")
        if len(values) and not (values.min() >= 0 and values.max() <= 1):
            found_range = f"from {values.min():.6g} to {values.max():.6g}"
            remedy = "divide by the largest, or clip"
            raise bad_input("not weights", "weights", found_range, "numbers within [0, 1]", remedy)
        below = values[values < 1]
        counts = np.bincount(np.searchsorted(EDGES, below, "right") - 1, minlength=BINS)
        return self + Histogram(tuple(counts.tolist()), len(values) - len(below), _quanta(values), _quanta(values * values))

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(
            tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)),
            self.ones + other.ones,
            self.total + other.total,
            self.squares + other.squares,
        )

    @property
    def rows(self) -> int:
        return sum(self.counts) + self.ones

    @property
    def mean(self) -> float:
        return self.total / (self.rows << _ONE) if self.rows else 0.0

    @property
    def effective_sample_size(self) -> float:
        """(Σ w)² / Σ w²."""
        return self.total**2 / (self.squares << _ONE) if self.squares else 0.0

    @property
    def share_below_one(self) -> float:
        return sum(self.counts) / self.rows if self.rows else 0.0


def _quanta(values: Floats) -> int:
    """The sum of numbers within [0, 1], exact in quanta of 2^-60; the halves are summed separately, so neither overflows."""
    whole = np.rint(values * 2.0**_ONE).astype(np.int64)
    return (int((whole >> 30).sum()) << 30) + int((whole & (2**30 - 1)).sum())


@dataclass(frozen=True, eq=False)
class Plane:
    """A fitted rule's estimates over the plane of the two confidences, and the validation rows they come from."""

    teacher: Floats  # (size,) the teacher's confidence, ascending
    student: Floats  # (size,) the student's
    error: Floats  # (size, size), student by teacher: estimated chance that the teacher is wrong
    distortion: Floats  # (size, size)
    weight: Floats  # (size, size)
    points: Floats  # (m, 2)
    wrong: NDArray[np.bool_]  # (m,)


def plane(fitted: Debiased, size: int = 120) -> Plane:
    """Error, distortion and weight on a grid over the box of the validation points."""
    if size < 2:
        raise bad_value("not a size of a grid", "size", size, "2 or more points a side", "pass a larger number")
    teacher, student = (_stretch(column, size) for column in fitted.points.T)
    queries = np.stack(np.meshgrid(teacher, student), axis=-1).reshape(-1, 2)
    weight, error, distortions, _ = fitted.estimates(queries)
    square = (size, size)
    return Plane(
        teacher,
        student,
        error.reshape(square),
        distortions.reshape(square),
        weight.reshape(square),
        fitted.points,
        fitted.wrong,
    )


def _stretch(column: Floats, size: int) -> Floats:
    """Equally spaced from the smallest to the largest value; around that value where all are (nearly) equal."""
    low, high = float(column.min()), float(column.max())
    scale = max(abs(low), abs(high), 1.0)
    if high - low < 1e-6 * scale:
        low, high = low - 0.05 * scale, high + 0.05 * scale
    return np.linspace(low, high, size)
