"""Cross-fitting: whatever is learned from gold rows answers for the gold rows it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import ConfigError, bad_input
from wdistill.methods.groups import Ints as Ints
from wdistill.methods.groups import joined
from wdistill.weights.confidence import Floats

PARTS = 5


def folds_of(
    labels: NDArray[np.integer],
    parts: int = PARTS,
    seed: int = 0,
    same: Ints | None = None,
    groups: NDArray[Any] | None = None,
) -> Ints:
    """The fold of every gold row, each class spread evenly over the folds; labels (m,) → (m,) in 0 … parts − 1.

    `same` (m,): the first row that is the same as this one; such rows are in one fold. So are rows of one of the `groups`
    (m,), and groups that have an equal row.
    """
    if groups is not None:
        return _group_folds(labels, parts, seed, joined(groups, groups if same is None else same))
    if same is not None and len(np.unique(same)) > 1:  # else nobody would be left to learn from
        first, place = np.unique(same, return_inverse=True)
        return folds_of(labels[first], parts, seed)[place]
    m = len(labels)
    order = np.random.default_rng(seed).permutation(m)
    by_class = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(m, np.int64)
    folds[by_class] = np.arange(m) % min(parts, m)
    return folds


def _group_folds(labels: NDArray[np.integer], parts: int, seed: int, groups: Ints) -> Ints:
    """Whole groups (m,), large ones first, each to the fold where the counts of its classes stay most even."""
    count, sizes = int(groups.max()) + 1, np.bincount(groups)
    if count < 2:
        found, expected = f"one group of {len(groups)} rows", "groups of which some can be left out"
        remedy = "label rows of other groups too, or leave the groups out"
        raise bad_input("all gold rows belong together", "groups", found, expected, remedy)
    kinds, place = np.unique(labels, return_inverse=True)
    counts = np.zeros((count, len(kinds)))
    np.add.at(counts, (groups, place), 1.0)
    shares = np.column_stack([counts / counts.sum(axis=0), sizes / len(groups)])  # of every class, and of all rows
    order = np.random.default_rng(seed).permutation(count)
    filled, folds = np.zeros((min(parts, count), shares.shape[1])), np.empty(count, np.int64)
    for number in order[np.argsort(-sizes[order], kind="stable")]:
        folds[number] = np.argmin(filled @ shares[number])
        filled[folds[number]] += shares[number]
    return np.asarray(folds[groups])


def out_of_fold(predict: Callable[[Ints, Ints], Floats], folds: Ints) -> Floats:
    """predict(rows to train on, rows to predict) for every fold, put together in the order of the rows: (m, …)."""
    predictions: Floats | None = None
    for fold in np.unique(folds):
        rows = np.flatnonzero(folds == fold)
        values = predict(np.flatnonzero(folds != fold), rows)
        if predictions is None:
            predictions = np.empty((len(folds), *values.shape[1:]))
        predictions[rows] = values
    assert predictions is not None
    return predictions


def combine_folds(distributions: Floats, folds: Ints | None = None) -> Floats:
    """Probabilities (F, n, K) of models that have each left out one fold, as log-probabilities of one expert (n, K).

    Gold rows, whose `folds` (n,) are given, are predicted by the model that has not seen them; other rows by the mean of all
    log-probabilities. Every auxiliary model is combined here: those of tables, of runs and of the leaderboard.
    """
    logs = floored_logs(distributions)
    return np.asarray(logs.mean(axis=0) if folds is None else logs[folds, np.arange(len(folds))])


# random forests as auxiliary models -----------------------------------------------------------------------------------

TREES = 150


@dataclass(frozen=True, eq=False)
class Forest:
    """A fitted random forest; a class that it has not seen gets 0."""

    model: Any  # of scikit-learn
    classes: int

    def __call__(self, inputs: NDArray[np.floating]) -> Floats:
        """Probabilities of rows: (n, d) → (n, K)."""
        distributions = np.zeros((len(inputs), self.classes))
        distributions[:, self.model.classes_] = self.model.predict_proba(inputs)
        return distributions


def fit_forest(inputs: NDArray[np.floating], labels: NDArray[np.integer], classes: int, seed: int = 0) -> Forest:
    """A forest from inputs (n, d) and labels (n,). It reads all columns, however many there are."""
    from sklearn.ensemble import RandomForestClassifier

    return Forest(RandomForestClassifier(TREES, random_state=seed).fit(inputs, labels), classes)


@dataclass(frozen=True, eq=False)
class FoldForests:
    """Random forests, each fitted to the labeled rows and to the gold rows of all folds but one."""

    forests: tuple[Forest, ...]
    folds: Ints  # (m,) of every gold row, the forest that has not seen it

    def log_probabilities(self, inputs: NDArray[np.floating], gold: slice | None = None) -> Floats:
        """Of rows (n, d) → (n, K), floored; `gold`: the place of the rows among the gold rows, if that is what they are."""
        distributions = np.stack([forest(inputs) for forest in self.forests])
        return combine_folds(distributions, None if gold is None else self.folds[gold])

    def __call__(self, inputs: NDArray[np.floating], gold: slice | None = None) -> Floats:
        """The same as probabilities."""
        return normalized_exp(self.log_probabilities(inputs, gold))


LabeledRows = tuple[NDArray[np.floating], NDArray[np.integer]]  # inputs (n, d), labels (n,)


def fit_fold_forests(labeled: LabeledRows, gold: LabeledRows, folds: Ints, classes: int, seed: int = 0) -> FoldForests:
    """One forest for every fold of the gold rows, fitted to labeled and gold rows without it."""
    numbers, place = np.unique(folds, return_inverse=True)
    forests = []
    for number in range(len(numbers)):
        inputs, labels = (np.concatenate([a, b[place != number]]) for a, b in zip(labeled, gold, strict=True))
        forests.append(fit_forest(inputs, labels, classes, seed))
    return FoldForests(tuple(forests), place.astype(np.int64))


def log_softmax(scores: Floats) -> Floats:
    """Log-probabilities (n, K) from scores (n, K)."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def normalized_exp(log_probabilities: Floats) -> Floats:
    """Distributions (n, K) from log-probabilities that need not sum to 1."""
    powers = np.exp(log_probabilities)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


FLOOR = 1e-4  # a smaller probability counts as this much: no expert's certainty outvotes all the others
SPREAD = 0.01  # and all classes at that floor together as no more than this


def floored_logs(probabilities: Floats) -> Floats:
    """Log-probabilities (…, K) of an expert, floored."""
    floor = min(FLOOR, SPREAD / probabilities.shape[-1])
    return np.asarray(np.log(np.maximum(np.asarray(probabilities, np.float64), floor)))


def need_sklearn(where: str) -> None:
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
