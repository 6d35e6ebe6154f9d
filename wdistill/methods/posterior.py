"""The posterior: the probability of every class being the truth of a row, from the predictions of several experts.

    P(truth = c) = softmax(Σ_e slope_e · log p_e + bias)_c

One slope per expert and one bias per class: few enough parameters to fit on a hundred gold rows. A full multinomial
regression on all the log-probabilities has K² times as many, and is worse.

A logarithmic opinion pool (Genest and Zidek, Statistical Science 1986) whose slopes are stacked (Wolpert, Neural Networks
1992) and whose biases calibrate it, as in vector scaling (Guo et al., ICML 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.crossfit import Ints, floored_logs, log_softmax, out_of_fold
from wdistill.methods.gold_design import effective_weights
from wdistill.weights.confidence import Floats

SLOPE_PRECISION = 10.0  # of the prior: slope 1 for the leader, which is the first expert, and 0 for the others
BIAS_PRECISION = 30.0  # of the prior: bias 0 for every class
CONSTANT = 1e-6  # log-probabilities that vary by less say the same of all rows


@dataclass(frozen=True, eq=False)
class Posterior:
    """A fitted posterior: one slope per expert, one bias per class."""

    slopes: Mapping[str, float]  # by expert, the leader first
    biases: Floats  # (K,)
    classes_with_gold: NDArray[np.bool_]  # (K,) classes that at least one gold row has

    def __call__(self, predictions: Mapping[str, Floats]) -> Floats:
        """Distributions over the truth (n, K), from the probabilities (n, K) of every expert.

        Where the leader predicts a class without gold rows, its errors cannot be estimated: its prediction is kept.
        """
        log_probabilities = {name: floored_logs(predictions[name]) for name in self.slopes}
        total = np.asarray(sum(slope * log_probabilities[name] for name, slope in self.slopes.items()) + self.biases)
        leader = next(iter(log_probabilities.values()))
        kept = ~self.classes_with_gold[leader.argmax(axis=1)]
        total[kept] = leader[kept]
        return np.exp(log_softmax(total))

    @property
    def record(self) -> dict[str, Any]:
        """Its numbers, as a file keeps them."""
        without = np.flatnonzero(~self.classes_with_gold).tolist()
        return {"slopes": dict(self.slopes), "biases": self.biases.tolist(), "classes_without_gold": without}


def posterior_of(record: Mapping[str, Any]) -> Posterior:
    """The posterior whose record this is."""
    biases = np.array(record["biases"], np.float64)
    with_gold = np.ones(len(biases), bool)
    with_gold[record["classes_without_gold"]] = False
    return Posterior({str(name): float(slope) for name, slope in record["slopes"].items()}, biases, with_gold)


def fit_posterior(
    predictions: Mapping[str, Floats], labels: NDArray[np.integer], weights: Floats | None = None
) -> Posterior:
    """Slopes and biases with the largest posterior density; probabilities (m, K) by expert, the leader first, labels (m,).

    The prior gives an expert other than the leader the slope 0: without evidence in the gold rows it is ignored. One that
    says the same of all gold rows is left out. `weights` (m,): 1 / the probability of being drawn, of gold rows that were
    drawn unevenly; they count as many rows as they are worth.
    """
    leader, *others = predictions
    logs = {name: floored_logs(probabilities) for name, probabilities in predictions.items()}
    names = [leader, *(name for name in others if np.ptp(logs[name], axis=0).max() > CONSTANT)]
    stacked = np.stack([logs[name] for name in names])  # (E, m, K)
    m, classes = stacked.shape[1:]
    truth = np.zeros((m, classes))
    truth[np.arange(m), labels] = 1.0
    slopes, biases = fit_scaling(stacked, truth, weights)
    known = dict(zip(names, slopes.tolist(), strict=True))
    return Posterior(known, biases, np.bincount(labels, minlength=classes) > 0)


def fit_scaling(
    stacked: Floats,
    truth: Floats,
    weights: Floats | None = None,
    slope_precision: float = SLOPE_PRECISION,
    bias_precision: float = BIAS_PRECISION,
) -> tuple[Floats, Floats]:
    """The slopes (E,) and biases (K,) themselves, from log-probabilities (E, m, K) and the truth as distributions (m, K)."""
    from scipy.optimize import minimize

    experts, _, classes = stacked.shape
    prior = np.eye(experts)[0]
    counted = None if weights is None else effective_weights(weights)[:, None]  # (m, 1)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        slopes, biases = parameters[:experts], parameters[experts:]
        log_p = log_softmax(np.tensordot(slopes, stacked, 1) + biases)
        residual, gained = np.exp(log_p) - truth, log_p * truth
        if counted is not None:
            residual, gained = counted * residual, counted * gained
        off = slopes - prior
        value = -float(gained.sum()) + slope_precision / 2 * off @ off + bias_precision / 2 * biases @ biases
        by_slope = np.tensordot(stacked, residual, 2) + slope_precision * off
        return value, np.concatenate([by_slope, residual.sum(axis=0) + bias_precision * biases])

    start = np.concatenate([prior, np.zeros(classes)])
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return fitted[:experts], fitted[experts:]


def cross_fitted(
    predictions: Mapping[str, Floats], labels: NDArray[np.integer], folds: Ints, weights: Floats | None = None
) -> Floats:
    """Out-of-fold posterior of the gold rows (m, K): each row's is fitted without the rows of its fold."""

    def fit_and_predict(train: Ints, test: Ints) -> Floats:
        known = {name: values[train] for name, values in predictions.items()}
        posterior = fit_posterior(known, labels[train], None if weights is None else weights[train])
        return posterior({name: values[test] for name, values in predictions.items()})

    return out_of_fold(fit_and_predict, folds)
