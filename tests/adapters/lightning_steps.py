"""One optimizer step of a small network in Lightning, in as many processes as it is started in; a program for the tests.

    python -m torch.distributed.run --nproc-per-node 2 … -m tests.adapters.lightning_steps FOLDER

writes the parameters after a step: FOLDER/equal.npy of rows that Lightning deals out, and position.npy of the same rows with
targets by their place in the table; uneven.npy and naive.npy of 10 rows in the first process and 6 in the second, with the
mean of every batch in the naive one.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from wdistill.adapters.lightning import WeightedStep
from wdistill.adapters.table import TargetTable
from wdistill.adapters.torch import WithTargets
from wdistill.training.losses import weighted_loss

ROWS, WIDTH, CLASSES, RATE = 16, 5, 3, 1.0


class Plain(LightningModule):
    """A network and plain gradient descent."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES))

    def forward(self, x: Tensor) -> Any:
        return self.net(x)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), RATE)


class Student(WeightedStep, Plain):
    """As users write it."""


class Naive(Plain):
    """The mean of the batch, as Lightning would take it."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, targets, weight = batch
        return weighted_loss(self(x), targets, weight)


class ByPosition(Plain):
    """Batches of inputs alone; their targets and weights are the next ones of the table, as rows in order would have it."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        (x,), table = batch, table_of()
        rows = slice(batch_idx * len(x), (batch_idx + 1) * len(x))
        targets, weight = torch.tensor(table.targets[rows]).float(), torch.tensor(table.weight[rows]).float()
        return weighted_loss(self(x), targets, weight)


def table_of(rows: int = ROWS) -> TargetTable:
    random = np.random.default_rng(0)
    return TargetTable(np.arange(rows), random.dirichlet(np.ones(CLASSES), rows), random.uniform(0, 1, rows))


def inputs(rows: int = ROWS) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1))


def data_of(rows: Any = range(ROWS)) -> WithTargets:
    rows = list(rows)
    return WithTargets(inputs()[rows], table_of(), rows)


def trainer(**settings: Any) -> Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return Trainer(accelerator="cpu", **{"max_epochs": 1, **quiet, **settings})


def after(module: Any, loader: Any, **settings: Any) -> NDArray[np.float32]:
    """The parameters after an epoch."""
    trainer(**settings).fit(module, loader)
    return np.concatenate([value.detach().numpy().ravel() for value in module.parameters()])


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    both = {"devices": 2, "strategy": "ddp"}
    found = {"equal": after(Student(), DataLoader(data_of(), 8, shuffle=True), **both)}
    in_order = DataLoader(TensorDataset(inputs()), 8, shuffle=False)
    found["position"] = after(ByPosition(), in_order, **both)
    first = torch.distributed.get_rank() == 0
    mine = range(10) if first else range(10, ROWS)
    for name, module in (("uneven", Student()), ("naive", Naive())):
        found[name] = after(module, DataLoader(data_of(mine), 10), use_distributed_sampler=False, **both)
    if first:
        for name, values in found.items():
            np.save(Path(sys.argv[1]) / f"{name}.npy", values)
