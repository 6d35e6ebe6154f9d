"""Methods that change the loss: the teacher's own targets, and a loss that expects some of them to be wrong."""

from __future__ import annotations

import numpy as np

from wdistill.confidence import Floats, margin
from wdistill.methods.lessons import Case, Lesson, one_hot, taught
from wdistill.methods.losses import Forward, Generalised, Mixed, Taylor, Tempered, TwoSided

LEAST_RIGHT = 0.5  # accuracy of the teacher at any margin, in student-label mixing


def generalised(case: Case) -> Lesson:
    """Generalised cross-entropy."""
    return taught(case.unlabeled["teacher"], case, loss=Generalised())


def taylor(case: Case) -> Lesson:
    """Taylor cross-entropy."""
    return taught(case.unlabeled["teacher"], case, loss=Taylor())


def forward(case: Case) -> Lesson:
    """Forward correction; how often the teacher says j where the truth is i is counted on gold, with one row of the identity
    added to each class."""
    said, classes = case.validation["teacher"].argmax(axis=1), case.validation["teacher"].shape[1]
    counts = np.eye(classes) + one_hot(case.labels, classes).T @ one_hot(said, classes)
    return taught(case.unlabeled["teacher"], case, loss=Forward(counts / counts.sum(axis=1, keepdims=True)))


def mixed(case: Case) -> Lesson:
    """SLaM: the teacher's accuracy is an isotonic function of its margin, learned on gold; k is the smallest number of its
    first classes that hold the truth of 95 % of the gold rows, at least 2.

    The accuracy is at least LEAST_RIGHT: below a half, a row would teach the opposite of what the teacher says of it.
    """
    from sklearn.isotonic import IsotonicRegression

    known, asked = case.validation["teacher"], case.unlabeled["teacher"]
    fitted = IsotonicRegression(y_min=LEAST_RIGHT, y_max=1.0, out_of_bounds="clip").fit(margin(known), ~case.wrong)
    rank = (known > known[np.arange(len(known)), case.labels][:, None]).sum(axis=1)
    k = max(2, int(np.quantile(rank + 1, 0.95, method="higher")))
    return taught(asked, case, loss=Mixed(fitted.predict(margin(asked)), _first(asked, k)))


def tempered(case: Case) -> Lesson:
    """Temperature 2 in both softmaxes (Hinton et al., 2015)."""
    softened = np.sqrt(case.unlabeled["teacher"])
    return taught(softened / softened.sum(axis=1, keepdims=True), case, loss=Tempered(2.0))


def two_sided(case: Case) -> Lesson:
    """Rows of which the teacher is sure and the student not far off are taught; of the others, only what they are not.

    After UPS (Rizve et al., ICLR 2021), with its thresholds 0.7 and 0.05, and 0.05 and 0.005 of uncertainty; half the
    distance of the two predictions stands for its uncertainty from dropout, which a table of predictions does not have.
    """
    teacher, student = case.unlabeled["teacher"], case.unlabeled["student"]
    at = np.arange(len(teacher)), teacher.argmax(axis=1)
    unsure = np.abs(teacher - student) / 2
    taught_rows = (teacher[at] >= 0.7) & (unsure[at] <= 0.05)
    return taught(teacher, case, loss=TwoSided(taught_rows, (teacher <= 0.05) & (unsure <= 0.005) & ~taught_rows[:, None]))


def _first(distributions: Floats, k: int) -> Floats:
    """1 for the k largest classes of every row, else 0."""
    if k >= distributions.shape[1]:
        return np.ones_like(distributions)
    smallest = np.partition(distributions, -k, axis=1)[:, -k]
    return (distributions >= smallest[:, None]).astype(float)
