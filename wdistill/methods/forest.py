"""The second opinion of a random forest, which has learned from labeled and gold rows; cross-fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import Floats
from wdistill.errors import ConfigError
from wdistill.methods.folds import Ints, out_of_fold

TREES = 150


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees that have learned; a class that they have not seen gets 0."""

    model: Any  # of scikit-learn
    classes: int

    def __call__(self, inputs: NDArray[np.floating]) -> Floats:
        """Probabilities of rows: (n, d) → (n, K)."""
        found = np.zeros((len(inputs), self.classes))
        found[:, self.model.classes_] = self.model.predict_proba(inputs)
        return found


def fit_forest(inputs: NDArray[np.floating], labels: NDArray[np.integer], classes: int, seed: int = 0) -> Forest:
    """A forest from inputs (n, d) and labels (n,)."""
    from sklearn.ensemble import RandomForestClassifier

    return Forest(RandomForestClassifier(TREES, random_state=seed).fit(inputs, labels), classes)


def cross_fitted_forest(
    inputs: NDArray[np.floating],
    labels: NDArray[np.integer],
    folds: Ints,
    more: tuple[NDArray[np.floating], NDArray[np.integer]],
    classes: int,
) -> Floats:
    """Probabilities (m, K) of gold rows, inputs (m, d), from forests of the other folds and of `more` rows and labels."""

    def answer(learning: Ints, asked: Ints) -> Floats:
        known = np.concatenate([more[0], inputs[learning]]), np.concatenate([more[1], labels[learning]])
        return fit_forest(*known, classes)(inputs[asked])

    return out_of_fold(answer, folds)


def need_learning(where: str) -> None:
    """Refuse what scikit-learn is needed for, where it is missing."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise ConfigError(
            "scikit-learn is not installed",
            where=where,
            found="no module sklearn",
            expected="scikit-learn, which learns from the gold rows",
            remedy="pip install 'wdistill[methods]'",
        ) from None
