"""Logistic regression on features of texts, with soft targets and weights; and one for every fold of the gold rows.

It minimises Σ weight · cross-entropy(target, softmax(x · coefficients + biases)) + penalty / 2 · ‖coefficients‖², by L-BFGS
in float64 on one thread: the same rows give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.checks import same_length
from wdistill.core.errors import bad_input, bad_value, empty
from wdistill.core.threads import one_thread
from wdistill.methods.crossfit import Ints, combine_folds, floored_logs, folds_of, log_softmax, normalized_exp
from wdistill.weights.confidence import Floats

PENALTIES = (1.0, 0.1, 0.01, 0.001)  # from which cross-validation chooses
DENSE = 3000  # rows up to which they are turned into as many columns
JITTER = 1e-9  # added to the squared length of every row, as a share of the largest
OPTIONS = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-9, "gtol": 1e-6}
Rows = Any  # a scipy.sparse.csr_array (n, d)


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A fitted logistic regression; a class that it has not seen gets 0."""

    columns: Ints  # (c,) columns that the rows of its training had
    coefficients: Floats  # (c, number of seen classes)
    biases: Floats  # (number of seen classes,)
    seen: Ints  # the classes that it has seen
    classes: int
    penalty: float

    def __call__(self, rows: Rows) -> Floats:
        """Probabilities of sparse rows: (n, d) → (n, K)."""
        distributions = np.zeros((rows.shape[0], self.classes))
        distributions[:, self.seen] = np.exp(log_softmax(rows[:, self.columns] @ self.coefficients + self.biases))
        return distributions


def fit_linear(
    rows: Rows,
    targets: Floats,
    weights: Floats | None = None,
    penalty: float | Sequence[float] = PENALTIES,
    folds: Ints | None = None,
) -> LinearModel:
    """A regression from sparse rows (n, d), targets (n, K) and weights (n,), which are 1 unless given.

    Of several penalties, the one with the smallest cross-entropy out of `folds` (n,) is taken; of five
    unless given. A row of fold −1 is never left out.
    """
    weights = np.ones(len(targets)) if weights is None else np.asarray(weights, np.float64)
    targets = np.asarray(targets, np.float64)
    same_length({"rows": rows.shape[0], "targets": len(targets), "weights": len(weights)})
    _check(targets, weights)
    penalties = _penalties(penalty)
    folds = folds_of(targets.argmax(axis=1)) if folds is None and len(penalties) > 1 else folds
    with one_thread():
        place = _coordinates(rows)
        return place.back(_fit(place.inputs, targets, weights, penalties, folds))


def _penalties(penalty: float | Sequence[float]) -> list[float]:
    """From the strongest to the weakest."""
    penalties = sorted([penalty] if isinstance(penalty, int | float) else penalty, reverse=True)
    if not penalties or not all(0 < each < np.inf for each in penalties):
        raise bad_value("not a penalty", "penalty", penalty, "a number above 0, or several", "leave it out")
    return penalties


def _check(targets: Floats, weights: Floats) -> None:
    bad = ~((targets >= 0).all(axis=1) & (abs(targets.sum(axis=1) - 1) < 1e-3))
    if bad.any():
        found, remedy = f"{int(bad.sum())} rows of another sort", "divide every row by its sum"
        raise bad_input("targets are no distributions", "targets", found, "rows that sum to 1", remedy, np.flatnonzero(bad))
    bad = ~((weights >= 0) & np.isfinite(weights))
    if bad.any():
        found, remedy = f"{int(bad.sum())} others", "mend or drop these rows"
        raise bad_input("not weights", "weights", found, "finite numbers of at least 0", remedy, np.flatnonzero(bad))
    if not weights.any():
        raise empty("no rows with a weight", "rows", "at least 1 row to learn from", "pass the gold rows")


@dataclass(frozen=True, eq=False)
class _Coordinates:
    """Sparse rows, or rows as short as there are rows with the same inner products: a regression on either is the same.

    With the triangle L Lᵀ = X Xᵀ the rows of X are those of L turned: X = L Q, where Q = L⁻¹ X has orthogonal rows.
    """

    rows: Rows  # X (n, c)
    columns: Ints  # (c,)
    triangle: Floats | None  # L (n, n)

    @property
    def inputs(self) -> Any:
        return self.rows if self.triangle is None else self.triangle

    def back(self, model: LinearModel) -> LinearModel:
        """A regression on `inputs`, as one on the rows."""
        from scipy.linalg import solve_triangular

        if self.triangle is None:
            return replace(model, columns=self.columns)
        turned = self.rows.T @ solve_triangular(self.triangle, model.coefficients, lower=True, trans="T")
        return replace(model, columns=self.columns, coefficients=turned)


def _coordinates(rows: Rows) -> _Coordinates:
    columns = np.unique(rows.indices)
    inputs = rows[:, columns].astype(np.float64)
    if not 0 < inputs.shape[0] <= min(DENSE, len(columns)):
        return _Coordinates(inputs, columns, None)
    products = (inputs @ inputs.T).toarray()
    products[np.diag_indices_from(products)] += JITTER * (products.diagonal().max() or 1)  # rows may be equal, or zero
    return _Coordinates(inputs, columns, np.linalg.cholesky(products))


def _fit(inputs: Any, targets: Floats, weights: Floats, penalties: Sequence[float], folds: Ints | None) -> LinearModel:
    """A regression on dense or sparse inputs, with the best of the penalties."""
    if folds is not None and len(penalties) > 1:
        losses = _losses(inputs, targets, weights, penalties, folds)
        penalties = [penalties[int(np.argmin(losses))]]
    return _path(inputs, targets, weights, penalties)[0]


def _losses(inputs: Any, targets: Floats, weights: Floats, penalties: Sequence[float], folds: Ints) -> Floats:
    """The cross-entropy of every penalty, out of fold."""
    losses = np.zeros(len(penalties))
    for fold in np.unique(folds[folds >= 0]):
        out = folds == fold
        if weights[~out].any():
            models = _path(inputs[~out], targets[~out], weights[~out], penalties)
            logs = [floored_logs(model(inputs[out])) for model in models]
            losses -= [float((targets[out] * each).sum(axis=1) @ weights[out]) for each in logs]
    return losses


def _path(inputs: Any, targets: Floats, weights: Floats, penalties: Sequence[float]) -> list[LinearModel]:
    """A regression for every penalty, each beginning where the one before has ended."""
    from scipy.optimize import minimize

    total, seen = float(weights.sum()), np.flatnonzero(targets[weights > 0].any(axis=0))
    wanted = targets[:, seen] * (weights / total)[:, None]
    mass, flipped = wanted.sum(axis=1, keepdims=True), inputs.T
    point, models = np.zeros((inputs.shape[1] + 1) * len(seen)), []
    for penalty in penalties:

        def loss(point: Floats, share: float = penalty / total) -> tuple[float, Floats]:
            table = point.reshape(-1, len(seen))
            coefficients = table[:-1]
            logs = log_softmax(inputs @ coefficients + table[-1])
            residual = np.exp(logs) * mass - wanted
            slope = np.concatenate([flipped @ residual + share * coefficients, residual.sum(axis=0, keepdims=True)])
            return share / 2 * float((coefficients**2).sum()) - float((wanted * logs).sum()), slope.ravel()

        point = minimize(loss, point, jac=True, method="L-BFGS-B", options=OPTIONS).x
        table = point.reshape(-1, len(seen))
        whole = np.arange(inputs.shape[1])
        models.append(LinearModel(whole, table[:-1].copy(), table[-1].copy(), seen, targets.shape[1], penalty))
    return models


# for gold rows --------------------------------------------------------------------------------------------------------

LabeledTexts = tuple[Rows, NDArray[np.integer]]  # sparse rows (n, d), labels (n,)


@dataclass(frozen=True, eq=False)
class FoldLinear:
    """Regressions, each fitted to the labeled rows and to the gold rows of all folds but one; called as `FoldForests`."""

    models: tuple[LinearModel, ...]
    folds: Ints  # (m,) of every gold row, the model that has not seen it

    def log_probabilities(self, rows: Rows, gold: slice | None = None) -> Floats:
        """Of sparse rows (n, d) → (n, K), floored; `gold`: the place of the rows among the gold rows, if they are those."""
        distributions = np.stack([model(rows) for model in self.models])
        return combine_folds(distributions, None if gold is None else self.folds[gold])

    def __call__(self, rows: Rows, gold: slice | None = None) -> Floats:
        """The same as probabilities."""
        return normalized_exp(self.log_probabilities(rows, gold))


def fit_fold_linear(
    labeled: LabeledTexts | None,
    gold: LabeledTexts,
    folds: Ints,
    classes: int,
    penalty: float | Sequence[float] = PENALTIES,
) -> FoldLinear:
    """One regression for every fold of the gold rows, fitted to labeled and gold rows without it.

    Each chooses its penalty on the rows it is fitted to: the gold rows by the folds that are left.
    """
    from scipy.sparse import vstack

    numbers, place = np.unique(folds, return_inverse=True)
    rows, labels, inner = gold[0], gold[1], place
    if labeled is not None and len(labeled[1]):
        rows, labels = vstack([labeled[0], rows], format="csr"), np.concatenate([labeled[1], labels])
        inner = np.concatenate([np.full(len(labeled[1]), -1), place])
    targets, weights = np.eye(classes)[labels], np.ones(len(labels))
    penalties = _penalties(penalty)
    with one_thread():
        turned = _coordinates(rows)
        models = []
        for number in range(len(numbers)):
            kept = inner != number
            model = _fit(turned.inputs[kept], targets[kept], weights[kept], penalties, inner[kept])
            models.append(turned.back(model))
    return FoldLinear(tuple(models), place.astype(np.int64))
