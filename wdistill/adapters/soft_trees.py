"""The soft cross-entropy that boosted trees minimise: gradient, Hessian, initial scores and metric, weights inside."""

from __future__ import annotations

import numpy as np

from wdistill.weights.confidence import Floats

LEAST = 1e-15  # of the mean of a class's targets: a class that has none gets a score that is finite


def probabilities(scores: Floats) -> Floats:
    """softmax of scores (n, K) → (n, K)."""
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def derivatives(scores: Floats, targets: Floats, weight: Floats, factor: float) -> tuple[Floats, Floats]:
    """Gradient w (p − t) and Hessian w · factor · p (1 − p), of Σ_rows w × cross-entropy; all (n, K), the weight (n,).

    The exact diagonal of the Hessian has the factor 1. Trees for K classes that are grown one by one need more, and each
    library has its own: LightGBM K / (K − 1), XGBoost 2.
    """
    p = probabilities(scores)
    return weight[:, None] * (p - targets), weight[:, None] * (factor * p * (1.0 - p))


def initial_scores(targets: Floats, weight: Floats) -> Floats:
    """log of the weighted mean of the targets (n, K) → (K,): the best scores that are the same for all rows."""
    return np.asarray(np.log(np.maximum(np.average(targets, axis=0, weights=weight), LEAST)))


def cross_entropy(scores: Floats, targets: Floats, weight: Floats) -> float:
    """Mean over rows of weight × −Σ_k t_k log softmax(scores)_k, never divided by the sum of weights."""
    top = scores.max(axis=1, keepdims=True)
    logs = scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    return float(np.mean(-weight * (targets * logs).sum(axis=1)))
