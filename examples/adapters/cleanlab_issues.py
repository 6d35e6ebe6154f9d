"""Which labels are wrong, from cleanlab's predictions and some gold rows:  python examples/adapters/cleanlab_issues.py

scikit-learn's digits with a third of the labels one class too high, and 150 rows that were labeled again with care.
"""

from __future__ import annotations

import warnings
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import numpy as np
from cleanlab.classification import CleanLearning
from paired import paired
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import wdistill
from wdistill.adapters.cleanlab import label_issues, teacher_from_pred_probs
from wdistill.adapters.table import read_targets

TRAPS = (
    "by a model's own probabilities there is no issue in its own labels",
    "an error of 1 is bad, a quality of 1 is good",
    "scores by position, not by id",
)
TRIALS, GOLD, TEST, WRONG = range(5), 150, 500, 0.35
CLASSES = [str(digit) for digit in range(10)]


def issues_of(ids: np.ndarray, pred_probs: np.ndarray, labels: np.ndarray, gold: Any, rows: Any) -> Any:
    """A table of all given labels, as CleanLearning takes it."""
    # --- wdistill
    teacher = teacher_from_pred_probs(ids, pred_probs)
    table = read_targets(wdistill.correct(teacher, gold, rows=rows, classes=CLASSES, inputs="inputs"))
    return label_issues(table, ids, labels)
    # ---


def trial(seed: int) -> dict[str, float]:
    """Accuracy of a student by what its labels are cleaned with; gold rows have their true label in all arms."""
    rng, (inputs, truth) = np.random.default_rng(seed), load_digits(return_X_y=True)
    gold, test, others = np.split(rng.permutation(len(truth)), [GOLD, GOLD + TEST])
    given = (truth + (rng.random(len(truth)) < WRONG)) % 10
    ids = np.concatenate([gold, others])
    pred_probs = cross_val_predict(student(), inputs[ids], given[ids], method="predict_proba")
    labels = np.concatenate([truth[gold], given[others]])
    known = {"id": gold, "label": np.array(CLASSES)[truth[gold]]}
    with redirect_stderr(StringIO()):  # what was read, line by line
        ours = issues_of(ids, pred_probs, labels, known, {"id": ids, "inputs": inputs[ids] / 16})
    theirs = CleanLearning(student(), seed=seed).find_label_issues(labels=labels, pred_probs=pred_probs)
    fitted = {
        "all labels": student().fit(inputs[ids], labels),
        "without cleanlab's issues": CleanLearning(student()).fit(inputs[ids], labels, label_issues=theirs),
        "without the issues of corrected targets": CleanLearning(student()).fit(inputs[ids], labels, label_issues=ours),
        "gold alone": student().fit(inputs[gold], truth[gold]),
    }
    return {arm: float((model.predict(inputs[test]) == truth[test]).mean()) for arm, model in fitted.items()}


def student() -> LogisticRegression:
    return LogisticRegression(C=0.01, max_iter=300)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "lbfgs failed to converge")
    found = [trial(seed) for seed in TRIALS]
    print(paired({arm: [each[arm] for each in found] for arm in found[0]}, "without cleanlab's issues", "digits"))
