"""Digits, a teacher that saw few of them, and paired trials of a small network: what the examples of images share.

How the settings came about: the first teacher was a support vector machine, whose scores are no probabilities; it was
replaced for that, after its results had been seen, and epochs were cut to 10 for the time they take.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import numpy as np
import torch
from paired import paired
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

import wdistill

TRIALS = range(5)
BASE = "teacher's targets + gold"
LABELED, GOLD, TEST = 60, 100, 500  # the rest of the 1,797 rows is the pool

INPUTS, LABELS = load_digits(return_X_y=True)
IMAGES = (INPUTS / 16).astype(np.float32).reshape(-1, 1, 8, 8)
CLASSES = [str(number) for number in range(10)]

Predict = Callable[[np.ndarray], np.ndarray]  # images (n, 1, 8, 8) → class numbers (n,)


def network(seed: int) -> nn.Sequential:
    """A small student: 8 × 8 pixels → logits of ten classes."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*layers)


def trials(train: Callable[[Any, np.ndarray, int], Predict]) -> str:
    """The students of `train` (targets, ids, seed) on four kinds of targets."""
    torch.set_num_threads(1)
    arms: dict[str, list[float]] = {}
    for seed in TRIALS:
        order = np.random.default_rng(seed).permutation(len(LABELS))
        labeled, gold, test, pool = np.split(order, np.cumsum([LABELED, GOLD, TEST]))
        teacher = LogisticRegression(max_iter=1000).fit(INPUTS[labeled] / 16, LABELS[labeled])
        said, one_hot = teacher.predict_proba(INPUTS / 16), np.eye(10)[LABELS]
        ids, taught = np.concatenate([gold, pool]), np.concatenate([gold, labeled])
        answers = {"id": ids, "teacher": said[ids], "inputs": INPUTS[ids]}
        with redirect_stderr(StringIO()):  # what was read, line by line
            best = wdistill.correct(
                answers, {"id": gold, "label": LABELS[gold].astype(str)}, classes=CLASSES, inputs="inputs"
            )
        mixed = np.concatenate([gold, np.random.default_rng(seed).permutation(pool)])  # ids of other rows
        by_id = dict(zip(best.table["id"].to_pylist(), best.table["targets"].to_pylist(), strict=True))
        students = {
            BASE: train({"id": ids, "targets": np.concatenate([one_hot[gold], said[pool]])}, ids, seed),
            "best targets": train(best, ids, seed),
            "best targets, of other rows": train({"id": mixed, "targets": [by_id[str(key)] for key in ids]}, ids, seed),
            "labels of gold and of the teacher's rows": train({"id": taught, "targets": one_hot[taught]}, taught, seed),
        }
        for arm, predict in students.items():
            arms.setdefault(arm, []).append(float(np.mean(predict(IMAGES[test]) == LABELS[test])))
        arms.setdefault("the teacher itself", []).append(float(np.mean(said[test].argmax(1) == LABELS[test])))
    rows = f"{len(pool):,} rows of the teacher, {GOLD} of gold, {TEST} of the test, {len(TRIALS)} trials"
    return f"digits: 10 classes, {rows}\n\n{paired(arms, BASE, 'digits')}\n"
