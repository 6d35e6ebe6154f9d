"""Second opinions: models that learn from gold rows too, a fold left out of each, and what they say of every row.

Of a gold row the model speaks that has not seen its fold; of an unlabeled row all of them, by the mean of their
log-probabilities. What they say is stored as the teacher's labels are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from wdistill import checks
from wdistill.methods.folds import Ints, folds_of
from wdistill.methods.forest import Forest, fit_forest
from wdistill.methods.lessons import Opinion
from wdistill.methods.posterior import logs
from wdistill.recipe import Recipe
from wdistill.training.data import Split
from wdistill.training.inputs import Inputs
from wdistill.training.labels import read_labels
from wdistill.training.predicting import as_float, predict
from wdistill.training.stage import StoppedError, Watch
from wdistill.weighting import log_probabilities, probabilities

NETWORKS = {"second": "student", "retrained": "teacher"}  # opinions of networks, and whose shape they have
LONGEST = 4096  # numbers in a row that a forest reads
PLENTY = 100  # numbers in a row above which a forest reads its main directions
DIRECTIONS = 40

Read = Callable[[Split, slice], NDArray[Any]]


def available(asked: Sequence[str], recipe: Recipe, inputs: Inputs, *, table: bool) -> list[str]:
    """Of the opinions asked for, those that can be had: a table and a model that comes trained cannot be retrained."""
    trained = {"second": recipe.student_epochs > 0, "retrained": not table and recipe.teacher_epochs > 0}
    (row,) = inputs.batches([torch.zeros(1, dtype=torch.int64)])
    numbers = (row.is_floating_point() or row.dtype == torch.uint8) and row[0].numel() <= LONGEST
    if "forest" in asked and numbers and find_spec("sklearn") is None:
        checks.warn("no forest as a second opinion: it needs scikit-learn (pip install 'wdistill[methods]')")
        numbers = False
    return [name for name in asked if trained.get(name, numbers)]


def gold_folds(validation: Split, recipe: Recipe) -> Ints:
    """The fold of every gold row (m,)."""
    assert validation.labels is not None
    return folds_of(validation.labels.numpy(), seed=recipe.seed % 2**32, same=validation.same)


def by_networks(models: Sequence[nn.Module], folds: Ints, precision: str, watch: Watch) -> Read:
    """What networks say, of which each has left out one fold."""

    def between(rows: int) -> None:
        if watch.stopping():
            raise StoppedError("stopped inside a chunk of a second opinion")

    def read(split: Split, part: slice) -> NDArray[Any]:
        logits = [predict(model, split.inputs, precision, part, between) for model in models]
        return _together(np.stack([log_probabilities(each, "logits") for each in logits]), split, part, folds)

    return read


def by_forests(labeled: Split, validation: Split, unlabeled: Split, folds: Ints, classes: int, seed: int) -> Read:
    """What random forests say, of which each has left out one fold; they are grown when first asked."""
    grown: list[Forest] = []
    main: list[Any] = []

    def features(inputs: Inputs, part: slice) -> NDArray[np.float32]:
        flat = _numbers(inputs, part)
        return main[0].transform(flat).astype(np.float32) if main else flat

    def grow() -> None:
        from sklearn.decomposition import PCA

        assert labeled.labels is not None and validation.labels is not None
        sample = _numbers(unlabeled.inputs, slice(0, min(3000, len(unlabeled))))
        if sample.shape[1] > PLENTY and len(sample) > DIRECTIONS:
            main.append(PCA(DIRECTIONS, random_state=0).fit(sample))
        own, gold = (features(each.inputs, slice(0, len(each))) for each in (labeled, validation))
        for fold in np.unique(folds):
            kept = folds != fold
            rows = np.concatenate([own, gold[kept]])
            truth = np.concatenate([labeled.labels.numpy(), validation.labels.numpy()[kept]])
            grown.append(fit_forest(rows, truth, classes, seed % 2**32))

    def read(split: Split, part: slice) -> NDArray[Any]:
        if not grown:
            grow()
        asked = features(split.inputs, part)
        return _together(np.stack([logs(forest(asked)) for forest in grown]), split, part, folds)

    return read


def read_opinion(folder: Path) -> Opinion:
    """What was stored."""
    found = [read_labels(folder, name) for name in ("validation", "unlabeled")]
    gold, rest = (probabilities(each, "logits") for each in found if each is not None)
    return Opinion(gold, rest)


def _together(said: NDArray[np.float64], split: Split, part: slice, folds: Ints) -> NDArray[np.float32]:
    """Log-probabilities (F, n, K) of all models as those of one opinion (n, K)."""
    if split.name == "validation":
        own = np.searchsorted(np.unique(folds), folds[part])
        return np.asarray(said[own, np.arange(said.shape[1])], np.float32)
    return np.asarray(said.mean(axis=0), np.float32)


def _numbers(inputs: Inputs, part: slice) -> NDArray[np.float32]:
    batches = inputs.batches(torch.arange(part.start, part.stop).split(4096))  # type: ignore[no-untyped-call]
    return np.concatenate([as_float(each).flatten(1).cpu().numpy() for each in batches])
