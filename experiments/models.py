"""Teachers, students and second opinions of the leaderboard, all asked in one way: learn from rows, answer for others.

    model(inputs (r, …), labels (r,), classes, kept (F, r), seed, asked) → probabilities (F, n, K) of every array asked

Each of the F answers comes from a model that has learned from the rows kept for it alone: F = 1 is a plain fit, F = 5 with a
fold left out each is cross-fitting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot

from experiments.stacked import Networks, Perceptrons, Students, predictions, train

Floats = NDArray[np.float64]
Maker = Callable[[Sequence[int], int], Students]  # shape of an input, classes → one student, not yet trained
Model = Callable[[Any, NDArray[np.int64], int, NDArray[np.bool_], int, Sequence[Any]], list[Floats]]


def stacked(make: Maker, epochs: int, batch: int = 32, rate: float = 1e-3) -> Model:
    """Networks of ours, all of them trained at once."""

    def answer(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, asked: Sequence[Any]) -> list[Floats]:
        students = fitted(make, inputs, labels, classes, kept, seed, epochs, batch, rate)
        return [predictions(students, torch.from_numpy(each)) for each in asked]

    return answer


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


def forest(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, asked: Sequence[Any]) -> list[Floats]:
    """Random forests."""
    from sklearn.ensemble import RandomForestClassifier

    return _each(lambda: RandomForestClassifier(150, random_state=seed), inputs, labels, classes, kept, asked)


def boosting(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, asked: Sequence[Any]) -> list[Floats]:
    """Gradient-boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def make() -> Any:
        return HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=7, min_samples_leaf=3, early_stopping=False, random_state=seed
        )

    return _each(make, inputs, labels, classes, kept, asked)


def kernel(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, asked: Sequence[Any]) -> list[Floats]:
    """Support vectors with a radial kernel on at most 100 main directions, their temperature set in 3 folds."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    directions = min(100, _rows(inputs).shape[1])

    def make() -> Any:
        machine = make_pipeline(PCA(directions, random_state=seed), SVC(C=10.0, random_state=seed))
        return CalibratedClassifierCV(machine, method="temperature", cv=3, ensemble=False)

    return _each(make, inputs, labels, classes, kept, asked)


def linear(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, asked: Sequence[Any]) -> list[Floats]:
    """Logistic regression; takes sparse rows."""
    from sklearn.linear_model import LogisticRegression

    return _each(lambda: LogisticRegression(C=10.0, max_iter=300), inputs, labels, classes, kept, asked)


def _each(make: Callable[[], Any], inputs: Any, labels: Any, classes: int, kept: Any, asked: Sequence[Any]) -> list[Floats]:
    """Models of scikit-learn's kind, one for every F; a class that was not kept has a small chance."""
    found: list[list[Floats]] = [[] for _ in asked]
    for rows in kept:
        model = make().fit(_rows(inputs)[rows], labels[rows])
        for each, answers in zip(asked, found, strict=True):
            chances = np.full((each.shape[0], classes), 1e-4)
            chances[:, model.classes_] += model.predict_proba(_rows(each))
            answers.append(chances / chances.sum(axis=1, keepdims=True))
    return [np.stack(answers) for answers in found]


def _rows(inputs: Any) -> Any:
    return inputs.reshape(len(inputs), -1) if isinstance(inputs, np.ndarray) else inputs
