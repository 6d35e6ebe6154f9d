"""Methods that only weigh: the teacher's own targets, the cross-entropy, and a weight in [0, 1] for every unlabeled row.

A rule is such a method too: `context.by_rule`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.context import Context, Method, Supervision, supervise
from wdistill.methods.teacher_error import Learner, learned_error, neighbors_error
from wdistill.weights.confidence import Floats, entropy, margin
from wdistill.weights.debiased import debiased
from wdistill.weights.equations import debiasing_weight


def one_minus_error(context: Context) -> Supervision:
    """1 − the paper's estimate of the error, without distortion: an ablation that shows what the distortion adds."""
    return supervise(context.unlabeled["teacher"], context, 1.0 - neighbors_error(context)[1])


def learned(learner: Learner) -> Method:
    """1 − a learned chance of error, as failure prediction has it (Corbière et al., NeurIPS 2019)."""

    def method(context: Context) -> Supervision:
        return supervise(context.unlabeled["teacher"], context, 1.0 - learned_error(context, learner)[1])

    return method


def learned_debiased(learner: Learner) -> Method:
    """The debiasing weight with a learned chance of error, and the distortion of the wrong neighbours."""

    def method(context: Context) -> Supervision:
        near = debiased.explain(context.evidence, estimate="conditional", targets=context.targets)
        assert near.distortion is not None
        weights = debiasing_weight(learned_error(context, learner)[1], near.distortion)
        return supervise(context.unlabeled["teacher"], context, weights)

    return method


def above_threshold(context: Context) -> Supervision:
    """Rows whose teacher's margin is at least a threshold, chosen on gold.

    The threshold maximises rows kept × (2 · accuracy − 1)²: with labels wrong at random, that many rows are worth as much
    as the kept ones (Angluin and Laird, 1988).
    """
    margins, right = margin(context.validation["teacher"]), ~context.wrong
    order = np.argsort(-margins, kind="stable")
    kept = np.arange(1, len(order) + 1)
    accuracy = np.cumsum(right[order]) / kept
    at = margins[order][np.argmax(kept * np.maximum(2 * accuracy - 1, 0) ** 2)]
    return supervise(context.unlabeled["teacher"], context, (margin(context.unlabeled["teacher"]) >= at).astype(float))


def llkd(context: Context) -> Supervision:
    """Rows on which the teacher is more certain, and the student less, than on average over the rows of the same label.

    After LLKD (Li et al., NAACL 2025), whose thresholds move during training, and which weighs what it selects; these
    thresholds are fixed, and selected rows have weight 1.
    """
    teacher, student = context.unlabeled["teacher"], context.unlabeled["student"]
    label = teacher.argmax(axis=1)
    sure, unsure = teacher.max(axis=1), entropy(student)
    kept = (sure >= _mean_by(sure, label)) & (unsure >= _mean_by(unsure, label))
    return supervise(teacher, context, kept.astype(float))


def _mean_by(values: Floats, groups: NDArray[np.integer]) -> Floats:
    """For every row, the mean over the rows of its group."""
    means = np.bincount(groups, values) / np.maximum(np.bincount(groups), 1)
    return np.asarray(means[groups], np.float64)
