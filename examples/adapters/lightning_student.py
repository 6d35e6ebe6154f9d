"""A small network in Lightning, on a teacher's corrected targets:  python examples/adapters/lightning_student.py"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import torch
from images import IMAGES, Predict, network, trials
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from wdistill.adapters.lightning import WeightedStep
from wdistill.adapters.table import read_targets
from wdistill.adapters.torch import WithTargets

TRAPS = (
    "a training step that the module has already takes the place of the weighted one",
    "samplers are replaced in several processes, so that a join by position fails",
    "the mean of every process is wrong where their batches differ",
    "a short last batch counts as a whole one where gradients accumulate",
    "the last batches of an epoch are divided by those that are not there",
    "weights of a refresh are lost when a run is resumed",
)


# --- wdistill
class Student(WeightedStep, LightningModule):
    # ---
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.net = network(seed)

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 0.01)


def train(targets: Any, ids: np.ndarray, seed: int) -> Predict:
    """A student of the rows `ids`; targets as `wdistill correct` writes them, a file or what it returns."""
    student = Student(seed)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    # --- wdistill
    data = WithTargets(IMAGES[ids], read_targets(targets), ids)
    # ---
    Trainer(accelerator="cpu", max_epochs=10, **quiet).fit(student, DataLoader(data, 32, shuffle=True))
    student.eval()
    return lambda images: student(torch.tensor(images)).argmax(1).numpy()


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "(?s).*(does not have many workers|LeafSpec)")
    print(trials(train))
