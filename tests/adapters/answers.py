"""A teacher's answers on scikit-learn's digits, corrected on gold rows by the command, and rows for a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from wdistill.cli import main

LABELED, GOLD, TEST = 60, 100, 600


@dataclass(frozen=True, eq=False)
class Answers:
    """Digits, the rows that play each part, and the files."""

    inputs: NDArray[Any]  # (n, 64)
    labels: NDArray[Any]  # (n,) the names of the classes
    labeled: NDArray[Any]  # row numbers: what the teacher was trained on
    gold: NDArray[Any]  # row numbers, which are the ids
    test: NDArray[Any]
    targets: Path  # what `wdistill correct` wrote
    teacher: NDArray[Any]  # (n, K)


def answers(folder: Path, classes: int) -> Answers:
    """Digits below `classes`; `wdistill correct` writes the targets of all rows but those of the test."""
    inputs, numbers = load_digits(n_class=classes, return_X_y=True)
    inputs = inputs / 16
    names = np.array([f"digit {number}" for number in range(classes)])
    rows = np.random.default_rng(0).permutation(len(numbers))
    labeled, gold, test, pool = np.split(rows, np.cumsum([LABELED, GOLD, min(TEST, len(rows) // 4)]))
    logits = 3 * LogisticRegression(max_iter=500).fit(inputs[labeled], numbers[labeled]).predict_log_proba(inputs)
    teacher = softmax(logits, axis=1)  # too sure of itself
    asked = np.concatenate([gold, pool])
    said, known, targets = (folder / f"{name}.parquet" for name in ("answers", "gold", "targets"))
    pq.write_table(pa.table({"id": asked, "teacher": list(teacher[asked])}), said)
    pq.write_table(pa.table({"id": gold, "label": names[numbers[gold]]}), known)
    files = ["--answers", str(said), "--gold", str(known), "--output", str(targets)]
    assert main(["correct", *files, "--classes", ",".join(names)]) == 0
    return Answers(inputs, names[numbers], labeled, gold, test, targets, teacher)
