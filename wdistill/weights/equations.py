"""The paper's equations on arrays: losses, distortion and the debiasing weight, one pure function each."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, wrong_shape

Floats = NDArray[np.float64]

PROBABILITY_FLOOR = 1e-12  # a smaller probability of a class counts as this much in a loss
LOSS_FLOOR = 1e-6  # a smaller loss on the truth counts as this much in a distortion
LOSS_CEILING = 1e6  # a larger loss, which only huge logits can bring, counts as this much


def debiasing_weight(error: ArrayLike, distortion: ArrayLike) -> Floats:
    """min(1, 1 / (1 + error·(distortion − 1)))  —  equation (4) and line 16 of Algorithm 2; shapes (n,), (n,) → (n,).

    For error in [0, 1] and distortion >= 0 it is 1 / (1 + error·max(0, distortion − 1)), which cannot divide by 0.
    """
    p, d = _alike(error=error, distortion=distortion)
    excess = np.where(p > 0, np.maximum(0.0, d - 1.0), 0.0)  # no error: weight 1, even where the distortion is infinite
    return np.asarray(1.0 / (1.0 + p * excess), np.float64)


def distortion(target_loss: ArrayLike, truth_loss: ArrayLike) -> Floats:
    """ℓ(target, student) / ℓ(truth, student)  —  equation (4); the loss on the truth is floored at LOSS_FLOOR."""
    target, truth = _alike(target_loss=target_loss, truth_loss=truth_loss)
    return np.asarray(target / np.maximum(truth, LOSS_FLOOR), np.float64)


def _alike(**given: ArrayLike) -> list[Floats]:
    """Numbers or arrays of numbers as float64; those of several rows must have equally many."""
    arrays = [_numbers(values, name) for name, values in given.items()]
    try:
        np.broadcast_shapes(*(values.shape for values in arrays))
    except ValueError:
        found = " and ".join(str(values.shape) for values in arrays)
        expected, remedy = "one shape, or a single number", "pass one number a row in both"
        raise wrong_shape("arrays of different shapes", ", ".join(given), f"shapes {found}", expected, remedy) from None
    return arrays


def _numbers(values: ArrayLike, name: str) -> Floats:
    numbers = checks.array(values, name)
    if numbers.dtype.kind not in "fiub":
        found, remedy = f"dtype {numbers.dtype}", "pass a number, or an array of numbers"
        raise bad_input("not numbers", name, found, "real numbers", remedy)
    return numbers.astype(np.float64)


def probabilities(values: NDArray[np.floating], kind: str, renormalize: bool = False) -> Floats:
    """Predictions (m, K) of any kind as float64 probabilities."""
    wide = values.astype(np.float64)
    if kind != "probabilities":
        wide = np.exp(wide - wide.max(axis=1, keepdims=True))
    if kind != "probabilities" or renormalize:
        wide = wide / wide.sum(axis=1, keepdims=True)
    return wide


def log_probabilities(values: NDArray[np.floating], kind: str, renormalize: bool = False) -> Floats:
    """Predictions (m, K) as float64 log-probabilities; floored, except for logits, whose log-softmax is finite."""
    if kind == "logits":
        shifted = values.astype(np.float64)
        shifted = shifted - shifted.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), np.float64)
    return np.asarray(np.log(np.maximum(probabilities(values, kind, renormalize), PROBABILITY_FLOOR)), np.float64)


def cross_entropy(targets: NDArray[np.floating], log_student: Floats) -> Floats:
    """−Σ_c target_c · log student_c of every example: (m, K), (m, K) → (m,)."""
    return np.asarray(np.minimum(-(targets * log_student).sum(axis=1), LOSS_CEILING))


def truth_loss(labels: NDArray[np.integer], log_student: Floats) -> Floats:
    """−log student_label of every example: (m,), (m, K) → (m,)."""
    return np.asarray(np.minimum(-log_student[np.arange(len(labels)), labels], LOSS_CEILING))


def neighbors_of(m: int) -> int:
    """k = ceil(sqrt(m) / 2) for a validation set of m examples  —  line 3 of Algorithm 2."""
    return max(1, int(np.ceil(np.sqrt(m) / 2)))


def effective_sample_size(weights: ArrayLike) -> float:
    """(Σ w)² / Σ w²: how many equally weighted examples carry as much information."""
    w = np.asarray(weights, np.float64)
    square = float(np.square(w).sum())
    return float(w.sum()) ** 2 / square if square > 0 else 0.0
