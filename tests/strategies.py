"""Small predictions of every awkward sort, for the tests of the array API."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

KINDS = ("probabilities", "logits", "logprobs")
DTYPES = (np.float16, np.float32, np.float64)
SORTS = ("random", "saturated", "tied", "uniform", "one_hot", "underflow")


def probabilities(rng, n, k, sort="random", dtype=np.float64):
    """(n, K) rows that sum to 1 within the dtype's tolerance."""
    if sort == "one_hot":
        values = np.eye(k)[rng.integers(0, k, n)]
    elif sort == "uniform":
        values = np.full((n, k), 1 / k)
    elif sort == "tied":  # few distinct rows, often with equal largest classes
        counts = rng.integers(0, 3, (n, k)) + np.eye(k, dtype=int)[rng.integers(0, k, n)]
        values = counts / counts.sum(axis=1, keepdims=True)
    elif sort == "saturated":
        values = np.full((n, k), 1e-9)
        values[np.arange(n), rng.integers(0, k, n)] = 1
        values[:: max(1, n // 3)] = rng.dirichlet(np.ones(k), len(values[:: max(1, n // 3)]))
        values /= values.sum(axis=1, keepdims=True)
    elif sort == "underflow":
        values = rng.dirichlet(np.ones(k), n) * 10.0 ** -rng.integers(0, 320, (n, k)).astype(float)
        values[np.arange(n), rng.integers(0, k, n)] += 1
        values /= values.sum(axis=1, keepdims=True)
    else:
        values = rng.dirichlet(np.full(k, 0.6), n)
    return values.astype(dtype)


def predictions(rng, n, k, kind="probabilities", sort="random", dtype=np.float64):
    """The same, as any kind of prediction."""
    values = probabilities(rng, n, k, sort, np.float64 if kind != "probabilities" else dtype)
    if kind == "probabilities":
        return values
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    if kind == "logits":
        logs = np.maximum(logs, -60) + np.round(rng.normal(size=(n, 1)), 1)
    return logs.astype(dtype)


@dataclass(frozen=True)
class Problem:
    """A validation set, unlabeled rows, and the options of the rule."""

    labels: Any
    validation_teacher: Any
    validation_student: Any
    teacher: Any
    student: Any
    kind: str
    options: dict[str, Any]

    @property
    def arrays(self):
        return self.labels, self.validation_teacher, self.validation_student, self.teacher, self.student


def problem(rng, m, n, k, *, kind="probabilities", sort="random", dtype=np.float64, wrong="some", **options):
    """A random problem; `wrong` says on which validation rows the teacher errs: some, none or all."""
    parts = [predictions(rng, rows, k, kind, sort, dtype) for rows in (m, m, n, n)]
    best = parts[0].argmax(axis=1)
    labels = {
        "some": np.where(rng.random(m) < 0.5, best, rng.integers(0, k, m)),
        "none": best,
        "all": (best + 1) % k,
        "one class": np.zeros(m, np.int64),
    }[wrong]
    return Problem(labels, *parts, kind, options)


@st.composite
def problems(draw, largest=24):
    """Problems of up to `largest` rows over all kinds, sorts, types and options."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return problem(
        rng,
        draw(st.integers(1, largest)),
        draw(st.integers(1, largest)),
        draw(st.sampled_from([2, 3, 5, 70])),
        kind=draw(st.sampled_from(KINDS)),
        sort=draw(st.sampled_from(SORTS)),
        dtype=draw(st.sampled_from(DTYPES)),
        wrong=draw(st.sampled_from(["some", "none", "all", "one class"])),
        estimate=draw(st.sampled_from(["paper", "conditional", "ratio"])),
        targets=draw(st.sampled_from(["soft", "hard"])),
    )
