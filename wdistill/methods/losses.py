"""Losses of the second stage, one for each example. They use tensors' own operations, so any number of students at once
can stand before the last two axes: logits (…, b, K), targets (…, b, K), rows (b,) → (…, b).

`rows` says which unlabeled rows the batch holds, for losses that know something of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats

TINY = 1e-8  # below it no logarithm is taken


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_c target_c · log p_c."""

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        return -(targets * logits.log_softmax(-1)).sum(-1)


@dataclass(frozen=True)
class Generalised:
    """Σ_c target_c · (1 − p_c^q) / q: generalised cross-entropy (Zhang and Sabuncu, NeurIPS 2018), their q = 0.7."""

    exponent: float = 0.7

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        powers = (self.exponent * logits.log_softmax(-1)).exp()
        return (targets * (1 - powers)).sum(-1) / self.exponent


@dataclass(frozen=True)
class Taylor:
    """Σ_c target_c · Σ_{j ≤ order} (1 − p_c)^j / j: Taylor cross-entropy (Feng et al., IJCAI 2020), order 2."""

    order: int = 2

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        missing = 1 - logits.softmax(-1)
        return (targets * sum(missing**j / j for j in range(1, self.order + 1))).sum(-1)


@dataclass(frozen=True, eq=False)
class Forward:
    """−Σ_c target_c · log (p · transition)_c: forward correction (Patrini et al., CVPR 2017)."""

    transition: Floats  # (K, K): of a row whose truth is i, how often the teacher says j

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        said = logits.softmax(-1) @ logits.new_tensor(self.transition)
        return -(targets * said.clamp_min(TINY).log()).sum(-1)


@dataclass(frozen=True, eq=False)
class Mixed:
    """−Σ_c target_c · log mix_c, mix = a·p + (1 − a)·(1 − p)·top: SLaM, student-label mixing (Kontonis et al., 2023).

    The student is asked to say what a teacher would say that is right with chance a, and otherwise wrong within its first k.
    Not divided by k − 1, as in that paper's experiments (its Remark B.1).
    """

    accuracy: Floats  # (n,) chance that the teacher is right
    top: Floats  # (n, K): 1 for the teacher's k first classes, else 0

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        p = logits.softmax(-1)
        right = logits.new_tensor(self.accuracy[rows.numpy(force=True)])[:, None]
        top = logits.new_tensor(self.top[rows.numpy(force=True)])
        mix = right * p + (1 - right) * (1 - p) * top
        return -(targets * mix.clamp_min(TINY).log()).sum(-1)


@dataclass(frozen=True)
class Tempered:
    """−Σ_c target_c · log softmax(logits / T)_c (Hinton et al., 2015), without the factor T²."""

    temperature: float

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        return -(targets * (logits / self.temperature).log_softmax(-1)).sum(-1)


@dataclass(frozen=True, eq=False)
class TwoSided:
    """The cross-entropy of rows that are taught, and −mean log(1 − p_c) over the classes that the others are not (UPS)."""

    taught: NDArray[np.bool_]  # (n,)
    excluded: NDArray[np.bool_]  # (n, K)

    def __call__(self, logits: Any, targets: Any, rows: Any) -> Any:
        at = rows.numpy(force=True)
        taught, excluded = logits.new_tensor(self.taught[at]), logits.new_tensor(self.excluded[at])
        positive = -(targets * logits.log_softmax(-1)).sum(-1)
        missing = -(excluded * (1 - logits.softmax(-1)).clamp_min(TINY).log()).sum(-1) / excluded.sum(-1).clamp_min(1)
        return taught * positive + missing
