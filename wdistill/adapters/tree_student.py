"""What the students of LightGBM and XGBoost share: called as scikit-learn's classifiers are, with targets for labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from wdistill.adapters.target_table import TARGETS, WEIGHT, TargetTable, check_targets
from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, wrong_shape
from wdistill.weights.confidence import Floats


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Rows with what to teach for each."""

    inputs: Any  # (n, d) in any form that the library reads
    targets: Floats  # (n, K)
    weight: Floats  # (n,)


def target_rows(inputs: Any, targets: Any, weight: Any = None) -> TargetRows:
    """Inputs with their targets, checked. Rows of weight 0 are left out: the limits of trees would count them."""
    if isinstance(targets, TargetTable):
        if weight is not None:
            found, expected = "a table of targets and weights, and other weights", "one of the two"
            raise bad_value("weights are given twice", WEIGHT, found, expected, "pass table.targets and your weights")
        targets, weight = targets.targets, targets.weight
    taught, counts = check_targets(targets, weight)
    n = inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)
    checks.same_length({"inputs": n, TARGETS: len(taught)})
    kept = np.flatnonzero(counts)
    if len(kept) == n:
        return TargetRows(inputs, taught, counts)
    return TargetRows(_safe_indexing(inputs, kept), taught[kept], counts[kept])


class TreeStudent(ClassifierMixin, BaseEstimator, ABC):
    """A classifier of boosted trees that learns from targets (n, K) and weights (n,); the parameters are the library's."""

    refused: ClassVar[tuple[str, ...]]  # parameters that would change what is minimised, without a word

    def __init__(self, **params: Any) -> None:
        self.params = params

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as they were given, for scikit-learn's clone."""
        return dict(self.params)

    def set_params(self, **params: Any) -> Self:
        self.params.update(params)
        return self

    def fit(
        self,
        X: Any,  # noqa: N803
        targets: Any,
        weight: Any = None,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        eval_set: Sequence[tuple[Any, Any]] = (),
        callbacks: Sequence[Any] = (),
    ) -> Self:
        """Train on the rows of X, in the order of `targets`: a TargetTable, or an array (n, K) with its weights (n,).

        `classes` (K,) name the columns of the targets, where a table does not. `eval_set`: pairs of rows and their targets,
        each a table or an array (every row counts 1 then). The weighted soft cross-entropy of the last is what early
        stopping looks at.
        """
        named = [name for refused in self.refused for name in self._spellings(refused) if self.params.get(name)]
        if named:
            expected, remedy = "the weighted soft cross-entropy and its metric, which are set here", "leave it out"
            raise bad_value("this changes what is minimised", named[0], self.params[named[0]], expected, remedy)
        rows = target_rows(X, targets, weight)
        evals = [target_rows(*pair) for pair in _pairs(eval_set)]
        sizes = {"targets": rows.targets.shape[1]}
        count = checks.same_classes(sizes | {f"eval_set {i}": each.targets.shape[1] for i, each in enumerate(evals)})
        _same_names({"targets": targets} | {f"eval_set {i}": taught for i, (_, taught) in enumerate(eval_set)})
        names = targets.classes if isinstance(targets, TargetTable) and classes is None else classes
        self.classes_ = np.arange(count) if names is None else np.asarray(names)
        if self.classes_.shape != (count,):
            expected, remedy = f"{count} classes", "name one class for each column of the targets"
            raise wrong_shape("other classes than targets", "classes", self.classes_.shape, expected, remedy)
        self.n_features_in_ = rows.inputs.shape[1] if hasattr(rows.inputs, "shape") else len(rows.inputs[0])
        self.booster_ = self._train(rows, evals, [*callbacks])
        return self

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Probabilities (n, K), in the order of `classes_`: those of the booster alone, as it is saved."""
        check_is_fitted(self, "booster_")
        said = np.asarray(self._predict(X), np.float64)
        return said if said.ndim == 2 else np.stack([1.0 - said, said], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class (n,)."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def _spellings(self, name: str) -> Iterable[str]:
        """All names by which the library knows a parameter."""
        return (name,)

    @abstractmethod
    def _train(self, rows: TargetRows, evals: list[TargetRows], callbacks: list[Any]) -> Any:
        """A booster of the library whose own predictions are the probabilities."""

    @abstractmethod
    def _predict(self, inputs: Any) -> Any:
        """Probabilities (n, K), or (n,) of the second of two classes."""


def _pairs(eval_set: Any) -> Any:
    """Sets to be judged on; an error where they are no list of pairs."""
    if isinstance(eval_set, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in eval_set):
        return eval_set
    expected, remedy = "a list of pairs of rows and their targets", "eval_set=[(X_gold, table.select(gold_ids))]"
    found = [type(each).__name__ for each in eval_set] if isinstance(eval_set, list | tuple) else eval_set
    raise bad_value("these are no sets to judge on", "eval_set", found, expected, remedy)


def _same_names(given: dict[str, Any]) -> None:
    """Raise where two tables name the columns of their targets otherwise; arrays have no names."""
    named = [(where, each.classes) for where, each in given.items() if isinstance(each, TargetTable) and each.classes]
    for where, names in named[1:]:
        first, wanted = named[0]
        if names != wanted:
            found, expected = ", ".join(names), f"{', '.join(wanted)}, as in {first}"
            remedy = "make both tables with one list of classes"
            raise bad_input("tables differ in their classes, or in the order of these", where, found, expected, remedy)
