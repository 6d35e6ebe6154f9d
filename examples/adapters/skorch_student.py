"""A small network in skorch, on a teacher's corrected targets:  python examples/adapters/skorch_student.py"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from images import IMAGES, Predict, network, trials

from wdistill.adapters.skorch import WeightedClassifier
from wdistill.adapters.table import read_targets
from wdistill.adapters.torch import WithTargets

TRAPS = (
    "the loss sees no weights",
    "soft targets as y have no classes and cannot be split into folds",
    "NLLLoss, the default, wants probabilities where the loss wants logits",
)


def train(targets: Any, ids: np.ndarray, seed: int) -> Predict:
    """A student of the rows `ids`; targets as `wdistill correct` writes them, a file or what it returns."""
    settings = {"optimizer": torch.optim.Adam, "lr": 0.01, "max_epochs": 10, "batch_size": 32, "verbose": 0}
    # --- wdistill
    data = WithTargets(IMAGES[ids], read_targets(targets), ids)
    student = WeightedClassifier(network(seed), iterator_train__shuffle=True, **settings).fit(data)
    # ---
    return lambda images: student.predict(images)


if __name__ == "__main__":
    print(trials(train))
