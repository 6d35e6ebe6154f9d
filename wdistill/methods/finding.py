"""How well each kind of evidence finds the teacher's errors on gold, always out of fold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats, margin
from wdistill.inspection import Bin, reliability
from wdistill.methods.lessons import Case

BINS = 5  # of equally many gold rows


@dataclass(frozen=True)
class Finder:
    """One kind of evidence: whether it ranks the errors first, and whether its chances mean what they say."""

    name: str
    auc: float  # chance that a wrong row looks worse than a right one; NaN where all rows are alike
    auc_error: float  # its standard error
    bins: tuple[Bin, ...]  # mean chance of being right that it gives, against how often the teacher was right
    calibration_error: float  # mean distance of the two over the rows


def finders(case: Case, near: Floats, learned: Floats, posterior: Floats) -> tuple[Finder, ...]:
    """The margin, the chance of an error (m,) by the paper's neighbours and as learned, and the posterior (m, K) of all."""
    teacher, wrong = case.validation["teacher"], case.wrong
    m, said = len(wrong), teacher.argmax(axis=1)
    certain = 1.0 - teacher.max(axis=1)  # what a margin says about an error is the teacher's own word
    doubt = 1.0 - posterior[np.arange(m), said]
    return (
        _finder("teacher's margin", -margin(teacher), certain, wrong),
        _finder("paper's neighbours", near, near, wrong),
        _finder("learned error", learned, learned, wrong),
        _finder("posterior of all", doubt, doubt, wrong),
    )


def area(high: Floats, low: Floats) -> tuple[float, float]:
    """The chance that a value of the first sample (a,) is larger than one of the second (b,), ties half; its standard error.

    DeLong et al. (1988): the spread of each row's share of the rows of the other sample that it beats.
    """
    from scipy.stats import rankdata

    a, b = len(high), len(low)
    if a == 0 or b == 0:
        return float("nan"), float("nan")
    ranks = rankdata(np.concatenate([high, low]))
    beats = (ranks[:a] - rankdata(high)) / b
    beaten = 1.0 - (ranks[a:] - rankdata(low)) / a
    spread = sum(float(each.var(ddof=1)) / len(each) if len(each) > 1 else 0.25 for each in (beats, beaten))
    return float(beats.mean()), float(np.sqrt(spread))


def _finder(name: str, scores: Floats, chances: Floats, wrong: NDArray[np.bool_]) -> Finder:
    auc, error = area(scores[wrong], scores[~wrong])
    seen = reliability(1.0 - chances, wrong, BINS)
    return Finder(name, auc, error, seen.bins, seen.error)
