"""For scikit-learn's `Distiller`: students of labels alone, also of those that take soft targets themselves."""

# ruff: noqa: N803 (X is scikit-learn's name)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _num_samples

from wdistill.adapters.expand import take
from wdistill.adapters.sklearn_rows import Rows
from wdistill.adapters.sklearn_student import fit_targets, instantiate
from wdistill.adapters.tree_student import TreeStudent
from wdistill.methods.context import one_hot
from wdistill.methods.crossfit import Ints
from wdistill.weights.confidence import Floats


def fit_labels(student: Any, X: Any, labels: Ints, classes: NDArray[Any], seed: int) -> Any:
    """A copy of the student, fitted on labels (n,), numbers of `classes`; one that takes soft targets gets them as such."""
    last = student
    while isinstance(last, Pipeline):
        last = last.steps[-1][1]
    if not isinstance(last, TreeStudent):
        return instantiate(student, seed).fit(X, classes[labels])
    return fit_targets(student, X, one_hot(labels, len(classes)), None, classes, negligible=0.0, seed=seed)


def learned(student: Any, X: Any, rows: Rows, part: Ints, seed: int) -> Callable[[Any], Floats]:
    """A student of the labels of some rows, as a function from inputs to probabilities (r, K)."""
    kinds = np.unique(rows.labels[part])
    if len(kinds) == 1:  # most students refuse to learn a single class
        return lambda inputs: np.repeat(one_hot(kinds, len(rows.classes)), _num_samples(inputs), axis=0)
    model = fit_labels(student, take(X, part), rows.labels[part], rows.classes, seed)
    return lambda inputs: probabilities_of(model, inputs, rows.classes)


def probabilities_of(model: Any, X: Any, classes: NDArray[Any]) -> Floats:
    """Probabilities (n, K) of all classes, in their order; a class that the model has not seen gets 0."""
    predicted = model.predict_proba(X)
    distributions = np.zeros((len(predicted), len(classes)))
    distributions[:, np.searchsorted(classes, model.classes_)] = predicted
    return distributions
