"""Methods that use gold as labels: other targets than the teacher's, made by whoever has learned from the gold rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wdistill.confidence import Floats
from wdistill.methods.lessons import Case, Lesson, Method, taught
from wdistill.methods.posterior import fit_posterior, logs


def with_gold(method: Method) -> Method:
    """The same, and the gold rows taught as labels."""
    return lambda case: method(case).with_gold


def retrained(case: Case) -> Lesson:
    """The targets of a teacher retrained on labeled and gold rows: more labels for the teacher's own recipe."""
    return taught(case.unlabeled["retrained"], case)


def corrected(*experts: str) -> Method:
    """The posterior over the truth as target, from the teacher and these experts."""

    def method(case: Case) -> Lesson:
        return taught(posterior_of(case, experts), case)

    return method


def posterior_of(case: Case, experts: tuple[str, ...]) -> Floats:
    """The posterior of these experts, learned from the gold rows, over the truth of the unlabeled rows (n, K)."""
    known = {name: case.validation[name] for name in experts}
    return fit_posterior(known, case.labels)(case.unlabeled)


def posterior_weighted(*experts: str) -> Method:
    """The teacher's own targets, weighted by 1 − the posterior's chance that its label is wrong."""

    def method(case: Case) -> Lesson:
        truth, said = posterior_of(case, experts), case.unlabeled["teacher"].argmax(axis=1)
        return taught(case.unlabeled["teacher"], case, truth[np.arange(len(truth)), said])

    return method


def posterior_debiased(*experts: str) -> Method:
    """The teacher's own targets, weighted by the student's expected loss on the truth over its loss on the target."""

    def method(case: Case) -> Lesson:
        truth, losses = posterior_of(case, experts), -logs(case.unlabeled["student"])
        lesson = taught(case.unlabeled["teacher"], case)
        on_truth, on_target = (truth * losses).sum(axis=1), (lesson.targets * losses).sum(axis=1)
        return replace(lesson, weights=np.minimum(1.0, on_truth / np.maximum(on_target, 1e-6)))

    return method


def labels_alone(case: Case) -> Lesson:
    """No unlabeled row at all: labeled and gold rows."""
    return replace(taught(case.unlabeled["teacher"], case, np.zeros(len(case.unlabeled["teacher"]))), gold=True)
