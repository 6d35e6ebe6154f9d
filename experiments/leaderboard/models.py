"""Teachers, students and auxiliary models of the leaderboard, all with one interface: learn from rows, predict others.

    model(inputs (r, …), labels (r,), classes, kept (F, r), seed, others) → probabilities (F, n, K) of every other array

Each of the F predictions comes from a model that has learned from the rows kept for it alone: F = 1 is a plain fit, F = 5
with a fold left out each is cross-fitting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot

from experiments.leaderboard.stacked import Networks, Perceptrons, Students, predictions, train
from wdistill.methods.crossfit import fit_forest

Floats = NDArray[np.float64]
Maker = Callable[[Sequence[int], int], Students]  # shape of an input, classes → one student, not yet trained
Model = Callable[[Any, NDArray[np.int64], int, NDArray[np.bool_], int, Sequence[Any]], list[Floats]]


def stacked(make: Maker, epochs: int, batch: int = 32, rate: float = 1e-3) -> Model:
    """Networks of ours, all of them trained at once."""

    def predict(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, others: Sequence[Any]) -> list[Floats]:
        students = fitted(make, inputs, labels, classes, kept, seed, epochs, batch, rate)
        return [predictions(students, torch.from_numpy(each)) for each in others]

    return predict


def fitted(
    make: Maker,
    inputs: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: int,
    kept: NDArray[np.bool_],
    seed: int,
    epochs: int,
    batch: int = 32,
    rate: float = 1e-3,
) -> Students:
    """One student for every F, all of them begun alike, each trained on its own rows with their labels."""
    torch.manual_seed(seed)
    students = make(inputs.shape[1:], classes).copies(len(kept))
    targets = one_hot(torch.from_numpy(labels), classes).float().expand(len(kept), -1, -1)
    weights = torch.from_numpy(kept).float()
    train(students, torch.from_numpy(inputs), targets, weights, epochs=epochs, seed=seed, batch=batch, rate=rate)
    return students


def perceptrons(*hidden: int) -> Maker:
    return lambda shape, classes: Perceptrons([math.prod(shape), *hidden, classes])


def networks(width: int) -> Maker:
    return lambda shape, classes: Networks(shape[0], classes, width)


def fitted_by(make: Callable[[int, int], Any]) -> Model:
    """Models of scikit-learn, made for a seed and a number of columns; a class that was not kept has a small chance."""

    def predict(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, others: Sequence[Any]) -> list[Floats]:
        flat, parts = _rows(inputs), [_rows(each) for each in others]
        models = [make(seed, flat.shape[1]).fit(flat[rows], labels[rows]) for rows in kept]
        return [np.stack([_chances(model, part, classes) for model in models]) for part in parts]

    return predict


def _chances(model: Any, rows: Any, classes: int) -> Floats:
    chances = np.full((rows.shape[0], classes), 1e-4)
    chances[:, model.classes_] += model.predict_proba(rows)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _rows(inputs: Any) -> Any:
    return inputs.reshape(len(inputs), -1) if isinstance(inputs, np.ndarray) else inputs


def forest(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, others: Sequence[Any]) -> list[Floats]:
    """Random forests, as the library has them."""
    forests = [fit_forest(_rows(inputs)[rows], labels[rows], classes, seed) for rows in kept]
    return [np.stack([each(_rows(rows)) for each in forests]) for rows in others]


def stored(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, others: Sequence[Any]) -> list[Floats]:
    """A teacher that is a table: what it reads are its own probabilities, and it learns nothing."""
    return [np.stack([np.asarray(each, np.float64)] * len(kept)) for each in others]


def _boosting(seed: int, columns: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = {"max_iter": 60, "max_leaf_nodes": 7, "min_samples_leaf": 3, "early_stopping": False}
    return HistGradientBoostingClassifier(**trees, random_state=seed)


def _kernel(seed: int, columns: int) -> Any:
    """Support vectors with a radial kernel on at most 100 main directions, their temperature set in 3 folds."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    machine = make_pipeline(PCA(min(100, columns), random_state=seed), SVC(C=10.0, random_state=seed))
    return CalibratedClassifierCV(machine, method="temperature", cv=3, ensemble=False)


def _linear(seed: int, columns: int) -> Any:
    """Logistic regression; takes sparse rows."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=300)


boosting, kernel, linear = (fitted_by(make) for make in (_boosting, _kernel, _linear))
