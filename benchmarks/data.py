"""Made-up predictions and confidences that look like those of real models."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

Points = np.ndarray[Any, np.dtype[np.float64]]

TEACHER, STUDENT = (5.0, 0.5), (2.5, 0.7)  # shapes of their certainties


def latent(rng: np.random.Generator, n: int) -> Points:
    """(n, 2) normal numbers, one for the teacher's certainty and one for the student's; they agree to some extent."""
    z = rng.standard_normal((n, 2))
    z[:, 1] = 0.7 * z[:, 0] + 0.714 * z[:, 1]
    return z


def certainty(z: Points, a: float, b: float) -> Points:
    """Normal numbers as certainties in [0, 1) by the Kumaraswamy distribution, which is Beta-like with a closed form."""
    return (1 - ndtr(-z) ** (1 / b)) ** (1 / a)


def plane(rng: np.random.Generator, n: int, ties: bool = False) -> Points:
    """(n, 2) confidences as float32 models give them; with ties, float16 ones of which many are exactly 1."""
    z = latent(rng, n)
    found = np.stack([certainty(z[:, 0], *TEACHER), certainty(z[:, 1], *STUDENT)], axis=1).astype(np.float32)
    if ties:
        found = found.astype(np.float16)
        found[z > (0.4, 1.0)] = 1
    return found.astype(np.float64)


def outcomes(rng: np.random.Generator, points: Points) -> Points:
    """(m, 2) whether the teacher is wrong at a validation point, and its distortion where it is."""
    wrong = rng.random(len(points)) > 0.3 + 0.69 * points[:, 0]
    return np.stack([wrong, wrong * rng.lognormal(0.5, 1.0, len(points))], axis=1)


def logits(rng: np.random.Generator, labels: np.ndarray, certain: Points, k: int) -> np.ndarray:
    """(n, K) float32 logits whose chosen class, mostly the label, has about the given probability."""
    n = len(labels)
    right = rng.random(n) < 0.3 + 0.69 * certain
    chosen = np.where(right, labels, rng.integers(k, size=n))
    found = rng.standard_normal((n, k), dtype=np.float32) * np.float32(2)
    odds = certain / (1 - certain + 1e-9)
    found[np.arange(n), chosen] = np.log(np.exp(found).sum(axis=1, dtype=np.float64) * odds + 1e-6)
    return found


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def predictions(rng: np.random.Generator, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels (n,), and the teacher's and the student's logits (n, K)."""
    z, labels = latent(rng, n), np.arange(n) % k
    teacher, student = (logits(rng, labels, certainty(z[:, i], *shape), k) for i, shape in enumerate((TEACHER, STUDENT)))
    return labels, teacher, student


def tiled(rng: np.random.Generator, n: int, k: int, block: int = 4_096) -> list[np.ndarray]:
    """The teacher's and the student's probabilities (n, K), quickly: copies of a few thousand distinct rows each.

    The distinct rows are made in order of certainty and put into place by rank, so the plane is filled as by `predictions`.
    """
    ranks = (ndtr(latent(rng, n)) * block).astype(np.int64)
    found = []
    for column, shape in enumerate((TEACHER, STUDENT)):
        certain = certainty(ndtri((np.arange(block) + 0.5) / block), *shape)
        distinct = softmax(logits(rng, np.arange(block) % k, certain, k))
        found.append(np.take(distinct, ranks[:, column], axis=0))
    return found
