"""A small network in a loop of one's own, on a teacher's corrected targets:  python examples/adapters/pytorch.py"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from images import IMAGES, Predict, network, trials
from torch.utils.data import DataLoader

from wdistill.adapters.table import read_targets
from wdistill.adapters.torch import WithTargets
from wdistill.training.losses import weighted_loss

TRAPS = (
    "targets in row order are those of other rows once a loader shuffles",
    "workers that persist do not see new weights of a Dataset",
    "a loss divided by Σ weight undoes the weights",
    "predictions in train mode are of other weights, and move batch norm",
    "net.train() afterwards thaws modules that were frozen",
    "a loader that shuffles gives the weights to other rows",
)


def train(targets: Any, ids: np.ndarray, seed: int) -> Predict:
    """A student of the rows `ids`; targets as `wdistill correct` writes them, a file or what it returns."""
    net = network(seed)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    # --- wdistill
    data = WithTargets(IMAGES[ids], read_targets(targets), ids)
    # ---
    for _ in range(10):
        for x, given, weight in DataLoader(data, 32, shuffle=True):
            optimizer.zero_grad()
            # --- wdistill
            loss = weighted_loss(net(x), given, weight)
            # ---
            loss.backward()
            optimizer.step()
    return lambda images: net(torch.tensor(images)).argmax(1).numpy()


if __name__ == "__main__":
    print(trials(train))
