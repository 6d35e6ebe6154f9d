"""The posterior: what several experts, none of them trusted, say about the truth of a row.

    P(truth = c) = softmax(Σ_e slope_e · log p_e + bias)_c

One slope for each expert and one bias for each class: few enough numbers to be learned from a hundred gold rows. A full
multinomial regression on all the log-probabilities has K² times as many, and loses.

A logarithmic opinion pool (Genest and Zidek, Statistical Science 1986) whose slopes are stacked (Wolpert, Neural Networks
1992) and whose biases calibrate it, as in vector scaling (Guo et al., ICML 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats
from wdistill.methods.folds import Ints, out_of_fold

FLOOR = 1e-4  # a smaller probability counts as this much: no expert's certainty outvotes all the others
SPREAD = 0.01  # and all classes at that floor together as no more than this
SLOPE_PRECISION = 10.0  # of the prior that the first expert alone counts, with slope 1
BIAS_PRECISION = 30.0  # of the prior that no class is special


@dataclass(frozen=True, eq=False)
class Posterior:
    """How much each expert counts, and each class."""

    slopes: Mapping[str, float]  # by expert, the teacher first
    biases: Floats  # (K,)
    known: NDArray[np.bool_]  # (K,) classes of which there was a gold row

    def __call__(self, opinions: Mapping[str, Floats]) -> Floats:
        """Distributions over the truth, from the probabilities (n, K) of every expert: (n, K).

        Where the teacher says a class of which there was no gold row, nobody can tell how it errs: its word stands.
        """
        said = {name: logs(opinions[name]) for name in self.slopes}
        total = np.asarray(sum(slope * said[name] for name, slope in self.slopes.items()) + self.biases)
        teacher = next(iter(said.values()))
        kept = ~self.known[teacher.argmax(axis=1)]
        total[kept] = teacher[kept]
        return np.exp(_log_softmax(total))


def fit_posterior(opinions: Mapping[str, Floats], labels: NDArray[np.integer]) -> Posterior:
    """Slopes and biases with the largest posterior density; probabilities (m, K) by expert, the teacher first, labels (m,).

    An expert of whom the gold rows say nothing does not count.
    """
    from scipy.optimize import minimize

    stacked = np.stack([logs(each) for each in opinions.values()])  # (E, m, K)
    experts, m, classes = stacked.shape
    prior = np.eye(experts)[0]
    truth = np.zeros((m, classes))
    truth[np.arange(m), labels] = 1.0

    def loss(parameters: Floats) -> tuple[float, Floats]:
        slopes, biases = parameters[:experts], parameters[experts:]
        log_p = _log_softmax(np.tensordot(slopes, stacked, 1) + biases)
        residual = np.exp(log_p) - truth
        off = slopes - prior
        value = -float((log_p * truth).sum()) + SLOPE_PRECISION / 2 * off @ off + BIAS_PRECISION / 2 * biases @ biases
        by_slope = np.tensordot(stacked, residual, 2) + SLOPE_PRECISION * off
        return value, np.concatenate([by_slope, residual.sum(axis=0) + BIAS_PRECISION * biases])

    start = np.concatenate([prior, np.zeros(classes)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    slopes = dict(zip(opinions, found[:experts].tolist(), strict=True))
    return Posterior(slopes, found[experts:], np.bincount(labels, minlength=classes) > 0)


def cross_fitted(opinions: Mapping[str, Floats], labels: NDArray[np.integer], folds: Ints) -> Floats:
    """The posterior of every gold row, learned without the rows of its fold; (m, K)."""

    def answer(learning: Ints, asked: Ints) -> Floats:
        fitted = fit_posterior({name: each[learning] for name, each in opinions.items()}, labels[learning])
        return fitted({name: each[asked] for name, each in opinions.items()})

    return out_of_fold(answer, folds)


def logs(probabilities: Floats) -> Floats:
    """Log-probabilities (n, K), floored."""
    floor = min(FLOOR, SPREAD / probabilities.shape[1])
    return np.asarray(np.log(np.maximum(np.asarray(probabilities, np.float64), floor)))


def _log_softmax(scores: Floats) -> Floats:
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
