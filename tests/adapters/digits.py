"""Digits for students of any trainer: gold, pool and test rows, a teacher that errs, and targets as files have them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import wdistill

K = 10


@dataclass(frozen=True, eq=False)
class Digits:
    """Images (n, 1, 8, 8) and their truth; ids are strings in no order; the teacher's probabilities (n, K)."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: NDArray[np.str_]
    teacher: NDArray[np.float32]
    gold: NDArray[np.intp]
    pool: NDArray[np.intp]
    test: NDArray[np.intp]


@cache
def digits() -> Digits:
    inputs, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    few, gold, pool, test = np.split(random.permutation(len(labels)), [60, 180, 1000])
    teacher = LogisticRegression(max_iter=300).fit(inputs[few] / 16, labels[few]).predict_proba(inputs / 16)
    ids = np.array([f"digit {number:04d}" for number in random.permutation(len(labels))])
    images = (inputs / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return Digits(images, labels, ids, teacher.astype(np.float32), gold, pool, test)


def targets_file(folder: Path) -> Path:
    """The parquet of `wdistill correct` for the teacher's answers: gold and pool rows."""
    data, path = digits(), folder / "targets.parquet"
    rows = np.concatenate([data.gold, data.pool])
    answers = {"id": data.ids[rows].tolist(), "answer": data.teacher[rows].tolist()}
    gold = {"id": data.ids[data.gold].tolist(), "label": [str(label) for label in data.labels[data.gold]]}
    found = wdistill.correct(answers, gold, classes=[str(number) for number in range(K)])
    pq.write_table(found.table, path)
    return path
