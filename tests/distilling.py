"""A distillation that takes a fifth of a second: data, models, recipe, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import wdistill.report.page
from tests.killing import RECIPE, differences, fingerprint, splits
from wdistill import Recipe, Report, distill
from wdistill.core import store
from wdistill.training.models.networks import MLP

torch.set_num_threads(1)

QUICK = replace(RECIPE, teacher_epochs=1, student_epochs=1, epochs=2, refresh=None)
MADE = replace(QUICK, teacher_epochs=0, student_epochs=0)  # both models come trained


def teacher() -> MLP:
    return MLP(6, 3, (8,))


def student() -> MLP:
    return MLP(6, 3, (4,))


class Dropping(nn.Module):
    """Dropout and batch norm: what goes wrong if a mode or a random number does.

    No bias before the batch norm, which would take it away: its gradient is rounding alone, and Adam makes steps of that.
    """

    def __init__(self) -> None:
        super().__init__()
        first = nn.Linear(6, 8, bias=False)
        self.layers = nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


def seeded(make: Any, seed: int = 0) -> Any:
    """A model that is the same on every call, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def go(given_teacher: Any = teacher, given_student: Any = student, recipe: Recipe = QUICK, **changes: Any) -> Report:
    """A small distillation; `changes` are arguments of distill, splits among them."""
    return distill(given_teacher, given_student, **{**splits(), **changes}, recipe=recipe)


def table(kind: str = "probabilities", seed: int = 7) -> dict[str, np.ndarray[Any, Any]]:
    """Predictions of a teacher that nobody trained, by split."""
    random, names = np.random.default_rng(seed), ("validation", "unlabeled", "labeled", "test")
    found = {}
    for name in names:
        labels = splits()[name][1]
        logits = random.normal(size=(len(labels), 3)) + 1.5 * np.eye(3)[labels.numpy()]
        normal = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        found[name] = {"logits": logits, "logprobs": normal, "probabilities": np.exp(normal)}[kind]
    return found


def bits(model: nn.Module | Mapping[str, Tensor]) -> dict[str, bytes]:
    state = model.state_dict() if isinstance(model, nn.Module) else model
    return {name: value.detach().cpu().contiguous().numpy().tobytes() for name, value in state.items()}


def students(report: Report) -> dict[str, dict[str, bytes]]:
    return {name: bits(each) for name, each in report.students.items()}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of a folder with its time of change, but for the lock, which every process opens."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    return {path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def unlike(folder: Path, wanted: Path, *, warned: bool = False) -> list[str]:
    """What differs between two runs besides times; checkpoints are of the way, and after damage the record says so."""
    found = differences(fingerprint(folder), fingerprint(wanted))
    return [name for name in found if "/checkpoint-" not in name and not (warned and name == ". state")]


@contextmanager
def undrawn() -> Iterator[None]:
    """No page is drawn: it takes ten times as long as all the rest, and has tests of its own."""
    page, wdistill.report.page.page = wdistill.report.page.page, lambda groups, title: f"drawn elsewhere: {title}"
    try:
        yield
    finally:
        wdistill.report.page.page = page


@contextmanager
def failing(at: int, number: int) -> Iterator[list[str]]:
    """The given operation on the disk, and no other, fails with that errno; the list names all that were tried."""
    before, seen = store.before, []

    def fail(operation: str, path: Path) -> None:
        seen.append(f"{operation} {path.name}")
        if len(seen) == at:
            raise OSError(number, "made up")

    store.before = fail
    try:
        yield seen
    finally:
        store.before = before
