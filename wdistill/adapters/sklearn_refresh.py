"""For students of scikit-learn with `partial_fit`: weights that are estimated again after every epoch."""

# ruff: noqa: N803 (X is scikit-learn's name)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from wdistill.adapters.expand import NEGLIGIBLE, expand, take
from wdistill.adapters.sklearn_labels import probabilities_of
from wdistill.adapters.sklearn_rows import Rows
from wdistill.adapters.sklearn_student import balanced, fit_front, instantiate, weights_for
from wdistill.core.checks import warn
from wdistill.core.errors import bad_value
from wdistill.methods.context import Context, Supervision
from wdistill.weights.confidence import Floats


def fit_refreshed(
    student: Any,
    X: Any,
    targets: Floats,
    weight: Floats,
    classes: NDArray[Any],
    estimate: Callable[[Any], Floats],
    epochs: int,
    *,
    negligible: float = NEGLIGIBLE,
    seed: int = 0,
) -> tuple[Any, Floats]:
    """A student trained by so many epochs of `partial_fit`, and its last weights (n,).

    `estimate` makes new ones of the student as it is after each epoch but the last.
    """
    model = instantiate(student, seed)
    front, inner = fit_front(model, X, targets, classes) if isinstance(model, Pipeline) else ([], X)
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not hasattr(last, "partial_fit"):
        found, expected = f"{type(last).__name__}, which learns at once", "a student with partial_fit"
        raise bad_value("weights cannot be refreshed", "refresh", found, expected, "leave refresh out")
    rng, whole = np.random.default_rng(seed), last
    if isinstance(model, Pipeline):
        whole = Pipeline([*front, (model.steps[-1][0], last)])
    for epoch in range(epochs):
        weight = estimate(whole) if epoch else weight
        rows = expand(inner, targets, weight, classes, negligible)
        last = last if epoch else balanced(last, rows)
        order = rng.permutation(len(rows.y))
        weights = weights_for(last.partial_fit, rows.weight[order])
        last.partial_fit(take(rows.X, order), rows.y[order], classes=classes, **weights)
    return whole, weight


def weights_again(
    X: Any,
    rows: Rows,
    context: Context,
    supervision: Supervision,
    weight: Floats,
) -> Callable[[Any], Floats]:
    """What estimates weights (n,) of a student as it is; labels keep their weight 1."""
    weigh = supervision.refresh
    assert weigh is not None
    warn(
        "refresh: the student is trained on the gold rows that its weights are estimated from, and memorised gold rows "
        "distort their own losses; weights of one estimation do not"
    )

    def estimate(model: Any) -> Floats:
        gold, pool = (probabilities_of(model, take(X, part), rows.classes) for part in (rows.gold, rows.unlabeled))
        weights = weight.copy()
        weights[rows.unlabeled] = weigh(replace(context.evidence, validation_student=gold, student=pool))
        return weights

    return estimate
