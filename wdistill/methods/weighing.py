"""Methods that only weigh: the teacher's own targets, the cross-entropy, and a weight in [0, 1] for every unlabeled row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Confidence, Floats, entropy, margin
from wdistill.methods.error import Learner, learned_error, neighbors_error
from wdistill.methods.lessons import Case, Lesson, Method, Weigh, taught
from wdistill.rules import Estimate, debiased, fidelity, oracle
from wdistill.weighting import debiasing_weight


def unweighted(case: Case) -> Lesson:
    """Conventional distillation: every row counts in full."""
    return taught(case.unlabeled["teacher"], case)


def by_rule(rule: Weigh, refresh: bool = False) -> Method:
    """The weights of a rule; with `refresh`, estimated anew after every epoch."""

    def method(case: Case) -> Lesson:
        found = taught(case.unlabeled["teacher"], case, rule(case.evidence))
        return replace(found, refresh=rule) if refresh else found

    return method


def paper(confidence: Confidence = margin, estimate: Estimate = "paper", refresh: bool = False) -> Method:
    """The paper's rule (Algorithm 2), its distortion measured on the targets of the case."""

    def method(case: Case) -> Lesson:
        rule = debiased.using(confidence=confidence, estimate=estimate, targets=case.targets)
        return by_rule(rule, refresh)(case)

    return method


def dealt(case: Case) -> Lesson:
    """The control: the paper's weights, each given to another row."""
    own = paper()(case)
    return replace(own, weights=np.random.default_rng(case.seed).permutation(own.weights))


def kept_right(case: Case) -> Lesson:
    """The oracle filter: rightly labeled rows alone. Needs the truth."""
    return by_rule(oracle)(case)


def by_fidelity(case: Case) -> Lesson:
    """exp(−entropy / mean entropy) of the teacher (Dehghani et al., ICLR 2018, as in the paper's Appendix C.3)."""
    return by_rule(fidelity)(case)


def paper_and_fidelity(case: Case) -> Lesson:
    """The product of both, as in the paper's §3.3."""
    ours, other = paper()(case), by_fidelity(case)
    return replace(ours, weights=ours.weights * other.weights)


def one_minus_error(case: Case) -> Lesson:
    """1 − the paper's estimate of the error: no distortion. Our own, to see what the distortion adds."""
    return taught(case.unlabeled["teacher"], case, 1.0 - neighbors_error(case)[1])


def learned(learner: Learner) -> Method:
    """1 − a learned chance of error, as failure prediction has it (Corbière et al., NeurIPS 2019)."""

    def method(case: Case) -> Lesson:
        return taught(case.unlabeled["teacher"], case, 1.0 - learned_error(case, learner)[1])

    return method


def learned_debiased(learner: Learner) -> Method:
    """The debiasing weight with a learned chance of error, and the distortion of the wrong neighbours."""

    def method(case: Case) -> Lesson:
        near = debiased.explain(case.evidence, estimate="conditional", targets=case.targets)
        assert near.distortion is not None
        weights = debiasing_weight(learned_error(case, learner)[1], near.distortion)
        return taught(case.unlabeled["teacher"], case, weights)

    return method


def above_threshold(case: Case) -> Lesson:
    """Rows whose teacher's margin is at least a threshold, chosen on gold.

    The threshold maximises rows kept × (2 · accuracy − 1)²: with labels wrong at random, that many rows are worth as much
    as the kept ones (Angluin and Laird, 1988).
    """
    margins, right = margin(case.validation["teacher"]), ~case.wrong
    order = np.argsort(-margins, kind="stable")
    kept = np.arange(1, len(order) + 1)
    accuracy = np.cumsum(right[order]) / kept
    at = margins[order][np.argmax(kept * np.maximum(2 * accuracy - 1, 0) ** 2)]
    return taught(case.unlabeled["teacher"], case, (margin(case.unlabeled["teacher"]) >= at).astype(float))


def sure_and_unsure(case: Case) -> Lesson:
    """Rows of which the teacher is surer, and the student less sure, than on average over the rows of the same label.

    After LLKD (Li et al., NAACL 2025), whose thresholds move during training, and which weighs what it selects; these
    thresholds stay, and what is selected counts in full.
    """
    teacher, student = case.unlabeled["teacher"], case.unlabeled["student"]
    said = teacher.argmax(axis=1)
    sure, unsure = teacher.max(axis=1), entropy(student)
    kept = (sure >= _mean_by(sure, said)) & (unsure >= _mean_by(unsure, said))
    return taught(teacher, case, kept.astype(float))


def _mean_by(values: Floats, groups: NDArray[np.integer]) -> Floats:
    """Of every row, the mean over the rows of its group."""
    means = np.bincount(groups, values) / np.maximum(np.bincount(groups), 1)
    return np.asarray(means[groups], np.float64)
