"""One training by itself: a few rows, a stage on them, and how two of them are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.killing import timeless
from wdistill import Recipe
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.outcome import Refresh
from wdistill.training.data import Split
from wdistill.training.inputs import InMemory
from wdistill.training.predict import predict
from wdistill.training.stage import Estimate, Examples, Stage
from wdistill.weights.diagnostics import Histogram

RECIPE = Recipe(batch_size=16, rate=0.01, schedule="constant", checkpoint_seconds=0, device="cpu")
N = 50


def number(*place: object) -> int:
    """The documented key: 63 bits of blake2b over seed/stage/…"""
    text = "/".join(map(str, place)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def factor(epoch: int, epochs: int) -> float:
    """Decision 19, for the paper's 200 epochs: strict thresholds on an epoch counted from 1, scaled to the run."""
    past = [value for at, value in ((80, 0.1), (120, 0.01), (160, 0.001), (180, 0.0005)) if epoch > at / 200 * epochs]
    return past[-1] if past else 1.0


def rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 3, (N,), generator=generator)
    return torch.randn(N, 6, generator=generator) + labels[:, None], labels


def made(hard: bool = True, weights: Tensor | None = None) -> Examples:
    inputs, labels = rows()
    targets = labels if hard else nn.functional.one_hot(labels, 3).float() * 0.7 + 0.1
    return Examples(InMemory(inputs), targets, torch.ones(N) if weights is None else weights, np.arange(100, 100 + N))


MEASURED = {name: Split(name, InMemory(rows()[0]), rows()[1], np.arange(N)) for name in ("validation", "test")}


def refreshed(weights: Callable[[nn.Module, int], Tensor]) -> dict[str, Any]:
    """How a stage estimates weights that a function knows, and reads them again."""

    def estimate(model: nn.Module, after: int) -> Estimate:
        found, file = weights(model, after), f"weights/{after:05d}.bin"
        finite = np.nan_to_num(found.numpy().astype(np.float64))
        refresh = Refresh(after, Histogram().plus(finite), None, None, 0, 0, 0.0, 0.0, 0.0, file)
        return Estimate(found, refresh, {file: found.numpy().tobytes()})

    def restore(checkpoints: CheckpointStore, refresh: Refresh) -> Tensor:
        return torch.from_numpy(np.frombuffer(checkpoints.read(refresh.file), np.float32).copy())

    return {"estimate": estimate, "restore": restore, "trajectory": True}


def stage(folder: Path, epochs: int = 3, examples: Examples | None = None, **more: Any) -> Stage:
    return Stage("student", folder, examples or made(), epochs, order="here", **more)


def by_student(model: nn.Module, after: int) -> Tensor:
    """Weights that depend on the student as it is now."""
    inputs, _ = rows()
    return torch.softmax(torch.from_numpy(predict(model, InMemory(inputs))), dim=1).amax(dim=1) * (0.5 if after else 1.0)


class Stopping:
    """Says stop from its n-th question on."""

    def __init__(self, at: int) -> None:
        self.at, self.asked = at, 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self.at


def whole(folder: Path) -> tuple[object, dict[str, bytes]]:
    checkpoints = CheckpointStore(folder)
    return timeless(dict(checkpoints.state)), {
        name: checkpoints.read(name) for name in checkpoints.snapshot.files if "checkpoint" not in name
    }
