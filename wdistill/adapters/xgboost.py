"""For users of XGBoost: a classifier of soft targets with weights, without copies of rows.

Two classes need nothing of ours: `binary:logistic` takes soft labels and weights. For more, gradient and Hessian are those
of `soft_trees`; the initial scores are the model's `base_score`, and its objective stays `multi:softprob`. So the saved
model alone predicts probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wdistill.adapters.extras import brought_by
from wdistill.weights.confidence import Floats

with brought_by("xgboost", __name__):
    import xgboost

    from wdistill.adapters.soft_trees import cross_entropy, derivatives, initial_scores
    from wdistill.adapters.tree_student import TargetRows, TreeStudent

METRIC = "soft_cross_entropy"
FACTOR = 2.0  # of the Hessian in XGBoost's own objective for several classes
LEAST = 1e-16  # of an entry of the Hessian, as there
EDGE = 1e-7  # how close a base_score for two classes, a float32, may come to 0 and 1


class SoftXGBClassifier(TreeStudent):
    """XGBoost's classifier for soft targets: SoftXGBClassifier(n_estimators=200, max_depth=4).fit(X, table)."""

    refused = ("objective", "eval_metric", "num_class", "class_weight", "scale_pos_weight", "base_score")

    def _train(self, rows: TargetRows, evals: list[TargetRows], callbacks: list[Any]) -> Any:
        named = self._named
        several = rows.targets.shape[1] > 2
        held = [self._matrix(each, several) for each in evals]
        rounds = named.early_stopping_rounds
        if rounds:
            callbacks.append(xgboost.callback.EarlyStopping(rounds=rounds, maximize=False))
        params = {name: value for name, value in named.get_xgb_params().items() if value is not None}
        booster = xgboost.train(
            params | (_several_classes(rows) if several else _two_classes(rows)),
            self._matrix(rows, several),
            named.get_num_boosting_rounds(),
            evals=[(matrix, f"validation_{i}") for i, matrix in enumerate(held)],
            verbose_eval=False,
            callbacks=[*(named.callbacks or ()), *callbacks],
            **(_functions(rows, evals, held) if several else {}),
        )
        best = booster.attr("best_iteration")  # where it stopped early, by a callback of the user too
        return booster if best is None else booster[: int(best) + 1]  # one that is loaded again predicts with all trees

    def _predict(self, inputs: Any) -> Any:
        return self.booster_.predict(self._data(inputs))

    @property
    def _named(self) -> Any:
        """The parameters as XGBoost's own classifier knows them."""
        return xgboost.XGBClassifier(**self.params)

    def _matrix(self, rows: TargetRows, several: bool) -> Any:
        if several:
            return self._data(rows.inputs, label=rows.targets.argmax(axis=1))
        return self._data(rows.inputs, label=rows.targets[:, 1], weight=rows.weight)

    def _data(self, inputs: Any, **labels: Any) -> Any:
        named = self._named
        kinds = {name: getattr(named, name) for name in ("missing", "feature_types", "enable_categorical")}
        return xgboost.DMatrix(inputs, **kinds, **labels)


def _two_classes(rows: TargetRows) -> dict[str, Any]:
    share = float(np.clip(np.average(rows.targets[:, 1], weights=rows.weight), EDGE, 1 - EDGE))
    return {"objective": "binary:logistic", "eval_metric": "logloss", "base_score": share}


def _several_classes(rows: TargetRows) -> dict[str, Any]:
    initial = initial_scores(rows.targets, rows.weight).tolist()
    softmax = {"objective": "multi:softprob", "num_class": rows.targets.shape[1], "base_score": initial}
    return {**softmax, "disable_default_eval_metric": 1}  # which would compare with labels, and without weights


def _functions(rows: TargetRows, evals: list[TargetRows], held: list[Any]) -> dict[str, Any]:
    """Objective and metric; the scores that they see have the initial ones in them."""

    def objective(scores: Floats, _: Any) -> tuple[Floats, Floats]:
        gradient, hessian = derivatives(scores, rows.targets, rows.weight, FACTOR)
        return gradient, np.maximum(hessian, LEAST)

    def metric(scores: Floats, matrix: Any) -> tuple[str, float]:
        each = next(each for each, of_each in zip(evals, held, strict=True) if of_each is matrix)
        return METRIC, cross_entropy(scores, each.targets, each.weight)

    return {"obj": objective, "custom_metric": metric}
