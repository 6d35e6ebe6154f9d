"""For users of LightGBM: a classifier of soft targets with weights, without copies of rows.

Two classes need nothing of ours: the objective `cross_entropy` takes soft labels and weights. For more, LightGBM has none:
gradient and Hessian are those of `soft_trees`, the initial scores are put into the first trees, as LightGBM itself does, and
the finished booster is told that its objective is `multiclass`. So the saved model alone predicts probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wdistill.adapters.extras import brought_by
from wdistill.core.errors import bad_value
from wdistill.weights.confidence import Floats

with brought_by("lightgbm", __name__):
    import lightgbm

    from wdistill.adapters.soft_trees import cross_entropy, derivatives, initial_scores
    from wdistill.adapters.tree_student import TargetRows, TreeStudent

METRIC = "soft_cross_entropy"
STOPPER = type(lightgbm.early_stopping(1))
TREES = 100  # where `n_estimators` is not given, as LightGBM's own


class SoftLGBMClassifier(TreeStudent):
    """LightGBM's classifier for soft targets: SoftLGBMClassifier(n_estimators=200, num_leaves=15).fit(X, table)."""

    refused = ("objective", "metric", "num_class", "class_weight", "is_unbalance", "scale_pos_weight")

    def _spellings(self, name: str) -> Iterable[str]:
        return _spellings(name)

    def _train(self, rows: TargetRows, evals: list[TargetRows], callbacks: list[Any]) -> Any:
        params = {name: value for name, value in self.params.items() if value is not None and name != "class_weight"}
        trees = _take(params, "num_iterations", TREES)
        rounds = _take(params, "early_stopping_round", 0)
        if rounds > 0:
            shown, least = _take(dict(params), "verbosity", 1) > 0, params.get("early_stopping_min_delta", 0.0)
            callbacks.append(lightgbm.early_stopping(rounds, verbose=shown, min_delta=least))
        callbacks = [LastSet(each) if isinstance(each, STOPPER) else each for each in callbacks]
        if rows.targets.shape[1] > 2:
            return _many_classes(params, trees, rows, evals, callbacks)
        params |= {"objective": "cross_entropy", "metric": "cross_entropy"}
        train = lightgbm.Dataset(rows.inputs, rows.targets[:, 1], weight=rows.weight)
        held = [lightgbm.Dataset(each.inputs, each.targets[:, 1], train, weight=each.weight) for each in evals]
        return lightgbm.train(params, train, trees, held, callbacks=callbacks)

    def _predict(self, inputs: Any) -> Any:
        return self.booster_.predict(inputs)


class LastSet:
    """Early stopping that is told of the last set alone: LightGBM's own stops as soon as any set stops it."""

    def __init__(self, stopper: Any) -> None:
        self.stopper, self.order, self.before_iteration = stopper, stopper.order, stopper.before_iteration

    def __call__(self, env: Any) -> None:
        rounds = env.iteration, env.begin_iteration, env.end_iteration
        self.stopper(type(env)(env.model, env.params, *rounds, env.evaluation_result_list[-1:]))


def _spellings(name: str) -> list[str]:
    """A parameter's own name, and its aliases in the order in which LightGBM looks for them."""
    return list(lightgbm.basic._ConfigAliases.get_sorted(name))


def _take(params: dict[str, Any], name: str, default: Any) -> Any:
    """A parameter by whatever name it has, which is taken out of the others."""
    given = [params.pop(each) for each in _spellings(name) if each in params]
    return given[0] if given else default


def _many_classes(
    params: dict[str, Any], trees: int, rows: TargetRows, evals: list[TargetRows], callbacks: list[Any]
) -> Any:
    if _take(dict(params), "linear_tree", False):
        found, expected = "linear_tree=True with three classes or more", "leaves that are numbers"
        raise bad_value("initial scores cannot be put into these trees", "linear_tree", found, expected, "leave it out")
    classes = rows.targets.shape[1]
    initial = initial_scores(rows.targets, rows.weight)
    train = lightgbm.Dataset(rows.inputs, rows.targets.argmax(axis=1))
    held = [lightgbm.Dataset(each.inputs, each.targets.argmax(axis=1), train) for each in evals]

    def objective(scores: Floats, _: Any) -> tuple[Floats, Floats]:
        return derivatives(scores + initial, rows.targets, rows.weight, classes / (classes - 1))

    def metric(scores: Floats, dataset: Any) -> tuple[str, float, bool]:
        each = next(each for each, of_each in zip(evals, held, strict=True) if of_each is dataset)
        return METRIC, cross_entropy(scores + initial, each.targets, each.weight), False

    settings = {**params, "objective": objective, "metric": "None", "num_class": classes}
    booster = lightgbm.train(settings, train, trees, held, feval=metric, callbacks=callbacks, keep_training_booster=True)
    _add(booster, initial)
    booster.reset_parameter({"objective": "multiclass", "num_class": classes})
    return booster.model_from_string(booster.model_to_string()).free_dataset()


def _add(booster: Any, initial: Floats) -> None:
    """Initial scores (K,) into the leaves of the first K trees, one a class."""
    for number, tree in enumerate(booster.dump_model(num_iteration=1)["tree_info"]):
        for leaf in range(tree["num_leaves"]):
            booster.set_leaf_output(number, leaf, booster.get_leaf_output(number, leaf) + float(initial[number]))
