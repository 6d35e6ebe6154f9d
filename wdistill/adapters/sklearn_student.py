"""For students of scikit-learn: soft targets and weights are fitted with the traps of expanded rows closed, or refused."""

# ruff: noqa: N803 (X is scikit-learn's name)

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_random_state

from wdistill.adapters.expand import NEGLIGIBLE, Expanded, expand, take
from wdistill.adapters.sklearn_splits import held_out
from wdistill.adapters.target_table import TargetTable, check_targets
from wdistill.adapters.tree_student import TreeStudent
from wdistill.core import checks
from wdistill.core.errors import bad_value
from wdistill.weights.confidence import Floats


def fit_student(
    student: Any,
    X: Any,
    targets: TargetTable | Floats,
    weight: Floats | None = None,
    classes: Sequence[Any] | NDArray[Any] | None = None,
    *,
    negligible: float = NEGLIGIBLE,
    seed: int = 0,
) -> Any:
    """A copy of the student, fitted on targets (n, K) and weights (n,), or on a table with both, by `expand`.

    The transformers of a pipeline read every row once. `class_weight="balanced"` balances the mass of classes instead of
    counting expanded rows. Early stopping validates on whole rows, where the student takes a validation set. Other students
    that split rows by themselves are refused, unless every target is a single class.

    The columns of its `predict_proba` are its `classes_`: sorted, names as text, without those that no row is taught. Where
    they are not the columns of the targets, it warns.
    """
    if isinstance(targets, TargetTable):
        weight = targets.weight if weight is None else weight
        classes, targets = targets.classes if classes is None else classes, targets.targets
    targets, weight = check_targets(targets, weight)
    model = fit_targets(student, X, targets, weight, classes, negligible=negligible, seed=seed)
    wanted = np.arange(np.shape(targets)[1]) if classes is None else np.asarray(classes)
    known = getattr(model, "classes_", wanted)
    if not np.array_equal(known, wanted):
        orders = [", ".join(map(str, each[:4])) + ", …" * (len(each) > 4) for each in (known, wanted)]
        told = f"the student's classes_ ({orders[0]}) are not the columns of the targets ({orders[1]})"
        checks.warn(f"{told}: read the columns of predict_proba through classes_")
    return model


def fit_targets(
    student: Any,
    X: Any,
    targets: Floats,
    weight: Floats | None,
    classes: Sequence[Any] | NDArray[Any] | None,
    *,
    negligible: float,
    seed: int,
) -> Any:
    """What `fit_student` returns, for callers who read its columns through `classes_`."""
    model = instantiate(student, seed)
    if isinstance(model, Pipeline):
        front, inner = fit_front(model, X, targets, classes)
        last = fit_targets(model.steps[-1][1], inner, targets, weight, classes, negligible=negligible, seed=seed)
        return Pipeline([*front, (model.steps[-1][0], last)])
    if isinstance(model, TreeStudent):  # takes soft targets itself
        return model.fit(X, targets, weight, classes=classes)
    rows = expand(X, targets, weight, classes, negligible)
    held = held_out(model, rows, seed) if rows.twins else np.zeros(len(rows.y), bool)
    model = balanced(model, rows)
    if not held.any():
        return model.fit(rows.X, rows.y, **weights_for(model.fit, rows.weight))
    learned = np.flatnonzero(~held)
    judged = np.flatnonzero(held & np.isin(rows.y, rows.y[learned]))
    validation = {"X_val": take(rows.X, judged), "y_val": rows.y[judged], "sample_weight_val": rows.weight[judged]}
    model.set_params(early_stopping=True)
    return model.fit(take(rows.X, learned), rows.y[learned], sample_weight=rows.weight[learned], **validation)


def seed_of(random_state: Any) -> int:
    """A whole number from what scikit-learn takes as random_state."""
    whole = isinstance(random_state, int | np.integer)
    return int(random_state if whole else check_random_state(random_state).randint(2**31))


def instantiate(student: Any, seed: int) -> Any:
    """A copy of the student that is not fitted; random states that are not set get the seed."""
    model = clone(student)
    states = {name: seed for name, value in model.get_params().items() if _is(name, "random_state") and value is None}
    return model.set_params(**states) if states else model


def fit_front(
    model: Pipeline,
    X: Any,
    targets: Floats,
    classes: Sequence[Any] | NDArray[Any] | None,
) -> tuple[list[tuple[str, Any]], Any]:
    """The transformers of a pipeline, fitted on the rows and their likeliest classes, and the transformed rows."""
    if len(model.steps) == 1:
        return [], X
    likeliest = np.asarray(targets).argmax(axis=1)
    front = model[:-1]
    inner = front.fit_transform(X, likeliest if classes is None else np.asarray(classes)[likeliest])
    return front.steps, inner


def balanced(model: Any, rows: Expanded) -> Any:
    """The model with class_weight="balanced" replaced by weights for which all classes have the same mass."""
    found = {name: value for name, value in model.get_params().items() if _is(name, "class_weight")}
    for name, value in found.items():
        if isinstance(value, str) and (name, value) != ("class_weight", "balanced"):
            what, expected = "class weights that would count expanded rows", 'a dict, or "balanced" of the student itself'
            raise bad_value(what, name, repr(value), expected, "pass a dict of class weights, or leave it out")
    if found.get("class_weight") != "balanced":
        return model
    kinds, place = np.unique(rows.y, return_inverse=True)
    mass = np.bincount(place, rows.weight)
    even = mass.sum() / (len(kinds) * mass)
    return model.set_params(class_weight=dict(zip(kinds.tolist(), even.tolist(), strict=True)))


def weights_for(fit: Any, weight: Floats) -> dict[str, Floats]:
    """Weights as an argument of `fit` or `partial_fit`; an error where it takes none and they differ from 1."""
    if "sample_weight" in inspect.signature(fit).parameters:
        return {"sample_weight": weight}
    if (weight == 1).all():
        return {}
    found, expected = f"{fit.__qualname__} without sample_weight", "a student that takes sample_weight"
    remedy = 'take another student, or one class a row: method="best" with targets="hard" needs no weights'
    raise bad_value("this student takes no weights", "student", found, expected, remedy)


def _is(name: str, parameter: str) -> bool:
    """Whether a parameter, or one of a model inside, has this name."""
    return name == parameter or name.endswith(f"__{parameter}")
