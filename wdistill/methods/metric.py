"""Metrics: what a user wants to be high, or low, as a function of predictions, truth and row weights.

The truth may be labels or, on the pool, a posterior over them. Every metric here is linear in the truth or a ratio of such
sums. For the linear ones (accuracy, cost, log loss, share) the value under a posterior is the expected value exactly; for
the others (F1, recall, precision, their means over classes, average precision) it is the same function of expected sums,
which is the expected value up to an error of order 1 / rows; for recall at a precision, a maximum, it is somewhat less.

Influences say how much a row moves the value. Every interval comes from them: methods/interval.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, not_one_of, wrong_shape
from wdistill.methods.groups import Ints
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import PROBABILITY_FLOOR

Scale = Literal["share", "f1", "loss"]  # a share of rows, an F1, or a mean loss

LEVELS = 10  # of costs, from cheap to dear, at most
SMALLEST_COST, LARGEST_COST = 1e-50, 1e50  # above 0: intervals need fourth powers of costs


@dataclass(frozen=True, eq=False)
class MetricParts:
    """The values that a metric is the mean of: one, or one for every class."""

    values: Floats  # (C,) NaN where no row tells
    influences: Floats | None  # (n, C): other weights give about values + Σ weight · influence / Σ weight; None: not smooth
    stakes: Floats  # (n, C) within [0, 1]: how much of the row counts, such as 1 for the rows of a class and 0 for others
    worst: Floats | float = 1.0  # (C,) the largest value that a part can have


Measure = Callable[..., MetricParts]  # predictions (n, K), truth (n, K), weights (n,)
OfCounts = Callable[[Floats, Floats, Floats], Floats]  # right, decided, true (c, K) → values (c,) of c decisions


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric: its name as users type it, and its value, overall and by class."""

    name: str
    scale: Scale
    overall: Measure
    by_class: Measure  # also takes `classes`, those that are wanted
    of_counts: OfCounts | None = None  # the value from weights of rows by class, where decisions can be chosen for it
    costs: Floats | None = None  # (K, K) of deciding j where i is true
    worst: float = 1.0  # the largest value that a row can have
    one: int | None = None  # the class that it is of, if it is of one
    ranking: bool = False  # of the order of the rows by score, not of decisions row by row

    @property
    def higher(self) -> bool:
        """Whether higher is better."""
        return self.scale != "loss"

    def __call__(self, predictions: Floats, truth: NDArray[Any], weights: Floats | None = None) -> float:
        """The value, from probabilities (n, K), labels (n,) or distributions over them (n, K), and row weights (n,)."""
        return mean_of(self.parts(predictions, truth, weights).values)

    def parts(self, predictions: Floats, truth: NDArray[Any], weights: Floats | None = None) -> MetricParts:
        """What the value is the mean of."""
        return self.overall(*aligned(predictions, truth, weights))

    def classes(self, predictions: Floats, truth: NDArray[Any], weights: Floats | None = None) -> MetricParts:
        """The same for every class (K,): of accuracy its recall, of a cost or a log loss its mean over the class's rows."""
        return self.by_class(*aligned(predictions, truth, weights))

    def of_class(self, number: int) -> Metric:
        """The metric of one class."""
        overall = partial(self.by_class, classes=(number,))
        return replace(self, name=f"{self.name}, class {number}", overall=overall, of_counts=None, one=number)

    def decide(self, probabilities: Floats) -> Ints:
        """The most likely class, or that of least expected cost: (n, K) → (n,)."""
        return most_likely(probabilities) if self.costs is None else bayes_decision(probabilities, self.costs)


def mean_of(values: Floats) -> float:
    """The mean of those that are numbers; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def distributions(truth: NDArray[Any], classes: int) -> Floats:
    """Labels (n,) as distributions (n, K); distributions as they are."""
    if truth.ndim == 2:
        checks.same_classes({"predictions": classes, "truth": truth.shape[1]})
        return np.asarray(truth, np.float64)
    return np.asarray(np.eye(classes)[checks.labels(truth, classes, "labels")], np.float64)


def row_weights(weights: Floats | None, rows: int) -> Floats:
    """Weights (n,), 1 where there are none; of rows drawn with unequal probability, 1 / probability."""
    if weights is None:
        return np.ones(rows)
    values = checks.scores(weights, "weights")
    checks.same_length({"rows": rows, "weights": len(values)})
    bad = np.flatnonzero(values < 0)
    if len(bad) or (rows and not values.any()):
        found, remedy = f"{len(bad)} below 0" if len(bad) else "only zeros", "pass 1 / the probability of being drawn"
        raise bad_input("not weights of rows", "weights", found, "numbers of at least 0, not all of them 0", remedy, bad)
    return values


def aligned(predictions: Floats, truth: NDArray[Any], weights: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Predictions (n, K), truth (n, K) and weights (n,) as measures take them, checked."""
    rows = np.asarray(checks.matrix(predictions, "predictions"), np.float64)
    dense = distributions(checks.array(truth, "truth"), rows.shape[1])
    checks.same_length({"predictions": len(rows), "truth": len(dense)})
    return rows, dense, row_weights(weights, len(rows))


# metrics of decisions: ratios of sums ---------------------------------------------------------------------------------


def most_likely(probabilities: Floats) -> Ints:
    """The class with the largest probability: (n, K) → (n,)."""
    return np.asarray(probabilities.argmax(axis=1), np.int64)


def bayes_decision(probabilities: Floats, costs: Floats) -> Ints:
    """The class with the least expected cost: (n, K), costs (K, K) of deciding j where i is true → (n,)."""
    return np.asarray((probabilities @ costs).argmin(axis=1), np.int64)


def ratio(top: Floats, bottom: Floats, weights: Floats, stakes: Floats | None = None) -> MetricParts:
    """Σ weight · top / Σ weight · bottom of columns (n, C)."""
    total, mass = weights @ bottom, weights.sum()
    known = total > 0
    values = np.divide(weights @ top, total, out=np.full(len(total), np.nan), where=known)
    scale = np.divide(mass, total, out=np.zeros(len(total)), where=known)
    return MetricParts(values, (top - np.where(known, values, 0.0) * bottom) * scale, bottom if stakes is None else stakes)


def _columns(predictions: Floats, truth: Floats, classes: Sequence[int] | None) -> tuple[Floats, Floats]:
    """Whether a class is decided, and whether it is true, (n, C) each, for the classes wanted."""
    wanted = np.arange(truth.shape[1]) if classes is None else np.asarray(classes, np.int64)
    return (most_likely(predictions)[:, None] == wanted).astype(np.float64), truth[:, wanted]


def accuracy(predictions: Floats, truth: Floats, weights: Floats) -> MetricParts:
    """The share of rows whose decision is right."""
    right = np.take_along_axis(truth, most_likely(predictions)[:, None], 1)
    return ratio(right, np.ones_like(right), weights)


def recalls(predictions: Floats, truth: Floats, weights: Floats, classes: Sequence[int] | None = None) -> MetricParts:
    """Of the rows of a class, the share that is decided so."""
    decided, true = _columns(predictions, truth, classes)
    return ratio(decided * true, true, weights)


def precisions(predictions: Floats, truth: Floats, weights: Floats, classes: Sequence[int] | None = None) -> MetricParts:
    """Of the rows that are decided to be of a class, the share that is."""
    decided, true = _columns(predictions, truth, classes)
    return ratio(decided * true, decided, weights)


def f1_scores(predictions: Floats, truth: Floats, weights: Floats, classes: Sequence[int] | None = None) -> MetricParts:
    """2 · right / (decided + true): the harmonic mean of precision and recall."""
    decided, true = _columns(predictions, truth, classes)
    return ratio(2 * decided * true, decided + true, weights, decided + true - decided * true)


def shares(predictions: Floats, truth: Floats, weights: Floats, classes: Sequence[int] | None = None) -> MetricParts:
    """The share of rows that are of a class, whatever is predicted."""
    true = _columns(predictions, truth, classes)[1]
    return ratio(true, np.ones_like(true), weights)


def _losses(predictions: Floats, costs: Floats | None, wanted: Ints) -> Floats:
    """The loss of every row if its truth were c: (n, C), −log p_c or the cost of what is decided."""
    if costs is None:
        return np.asarray(-np.log(np.maximum(predictions[:, wanted], PROBABILITY_FLOOR)))
    return np.asarray(costs.T[bayes_decision(predictions, costs)][:, wanted])


def log_loss(predictions: Floats, truth: Floats, weights: Floats) -> MetricParts:
    """The mean of −log p of the true class."""
    losses = (truth * _losses(predictions, None, np.arange(truth.shape[1]))).sum(axis=1, keepdims=True)
    return replace(ratio(losses, np.ones_like(losses), weights), worst=np.inf)


def mean_cost(
    predictions: Floats, truth: Floats, weights: Floats, costs: Floats, classes: Sequence[int] | None = None
) -> MetricParts:
    """The mean cost of the decisions of least expected cost, in parts from cheap errors to dear ones.

    An error that is dear and rare may not have occurred yet: by itself, its interval says so.
    """
    wanted = np.arange(truth.shape[1]) if classes is None else np.asarray(classes, np.int64)
    losses, true = _losses(predictions, costs, wanted), truth[:, wanted]
    levels = np.unique(costs[wanted])
    groups = np.array_split(levels[levels > 0], min(LEVELS, int(np.count_nonzero(levels))))
    inside = [(losses >= group[0]) & (losses <= group[-1]) for group in groups]
    top = len(groups) * np.stack([(true * losses * part).sum(axis=1) for part in inside], axis=1)
    rows = np.repeat(true.sum(axis=1, keepdims=True), len(groups), axis=1)
    return replace(ratio(top, rows, weights), worst=len(groups) * np.array([group[-1] for group in groups]))


def class_losses(
    predictions: Floats,
    truth: Floats,
    weights: Floats,
    classes: Sequence[int] | None = None,
    costs: Floats | None = None,
) -> MetricParts:
    """The log loss, or the mean cost, over the rows of a class."""
    if costs is not None and classes is not None and len(classes) == 1:
        return mean_cost(predictions, truth, weights, costs, classes)
    wanted = np.arange(truth.shape[1]) if classes is None else np.asarray(classes, np.int64)
    true = truth[:, wanted]
    worst = np.inf if costs is None else costs[wanted].max(axis=1)
    return replace(ratio(true * _losses(predictions, costs, wanted), true, weights), worst=worst)


# metrics of rankings --------------------------------------------------------------------------------------------------


def average_precisions(
    predictions: Floats, truth: Floats, weights: Floats, classes: Sequence[int] | None = None
) -> MetricParts:
    """The mean, over the rows of a class, of the precision among the rows with at least their score."""
    wanted = range(truth.shape[1]) if classes is None else classes
    done = [_average_precision(predictions[:, c], truth[:, c], weights) for c in wanted]
    values, influences = (np.stack([part[i] for part in done], axis=-1) for i in (0, 1))
    return MetricParts(values, influences, truth[:, list(wanted)])


def _average_precision(scores: Floats, true: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Its value, and the influences (n,): the derivatives by a row's weight, which moves all precisions below its score."""
    place, here, right, rows = _cuts(scores, true, weights)
    total = here.sum()
    if not total > 0:
        return np.array(np.nan), np.zeros(len(scores))
    inverse = np.divide(1.0, rows, out=np.zeros_like(rows), where=rows > 0)
    precision = right * inverse
    value = here @ precision / total
    gained, lost = np.cumsum(here * inverse), np.cumsum(here * precision * inverse)
    slopes = true * (precision + gained - value)[place] - lost[place]
    return np.array(value), np.asarray(weights.sum() / total * slopes)


def recalls_at_precision(
    predictions: Floats, truth: Floats, weights: Floats, classes: Sequence[int] | None = None, least: float = 0.9
) -> MetricParts:
    """The largest recall of a class among thresholds of its score whose precision is at least `least`; 0 without one."""
    wanted = list(range(truth.shape[1]) if classes is None else classes)
    values = np.full(len(wanted), np.nan)
    for i, c in enumerate(wanted):
        _, here, right, rows = _cuts(predictions[:, c], truth[:, c], weights)
        if here.sum() > 0:
            values[i] = np.where(precise(right, rows, least), right, 0.0).max() / right[0]
    return MetricParts(values, None, truth[:, wanted])


def precise(right: Floats, rows: Floats, least: float) -> NDArray[np.bool_]:
    """Whether right / rows is at least `least`, up to rounding."""
    return np.asarray((rows > 0) & (right >= least * rows * (1 - 1e-12)))


def _cuts(scores: Floats, true: Floats, weights: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """By distinct score, ascending: the weight of true rows there, of true rows and of all rows from there on.

    First, the place of every row (n,) among the distinct scores.
    """
    levels, place = np.unique(scores, return_inverse=True)
    here = np.bincount(place, weights * true, len(levels)).astype(np.float64)
    right, rows = (np.cumsum(part[::-1])[::-1] for part in (here, np.bincount(place, weights, len(levels))))
    return np.asarray(place, np.int64), here, np.asarray(right, np.float64), np.asarray(rows, np.float64)


# of counts, to choose decisions by ------------------------------------------------------------------------------------


def _accuracy_of(right: Floats, decided: Floats, true: Floats) -> Floats:
    return np.asarray(right.sum(axis=-1) / true.sum(axis=-1))


def _balanced_of(right: Floats, decided: Floats, true: Floats) -> Floats:
    return _mean_where(right, true)


def _macro_f1_of(right: Floats, decided: Floats, true: Floats) -> Floats:
    return _mean_where(2 * right, decided + true)


def _f1_of(right: Floats, decided: Floats, true: Floats, number: int) -> Floats:
    return _mean_where(2 * right[..., [number]], (decided + true)[..., [number]])


def _recall_of(right: Floats, decided: Floats, true: Floats, number: int, least: float) -> Floats:
    """The recall where the precision is large enough or nothing is decided, else −1."""
    r, d, t = right[..., number], decided[..., number], true[..., number]
    return np.asarray(np.where(precise(r, d, least) | (d <= 0), r / np.maximum(t, 1e-300), -1.0))


def _mean_where(top: Floats, bottom: Floats) -> Floats:
    """The mean over the last axis of top / bottom where bottom is above 0."""
    known = bottom > 1e-12
    ratios = np.divide(top, bottom, out=np.zeros(np.broadcast_shapes(top.shape, bottom.shape)), where=known)
    return np.asarray(ratios.sum(axis=-1) / np.maximum(np.broadcast_to(known, ratios.shape).sum(axis=-1), 1))


# by name --------------------------------------------------------------------------------------------------------------

PLAIN: dict[str, Metric] = {
    "accuracy": Metric("accuracy", "share", accuracy, recalls, _accuracy_of),
    "balanced-accuracy": Metric("balanced-accuracy", "share", recalls, recalls, _balanced_of),
    "macro-f1": Metric("macro-f1", "f1", f1_scores, f1_scores, _macro_f1_of),
    "log-loss": Metric("log-loss", "loss", log_loss, class_losses, worst=float("inf")),
}
OF_A_CLASS: dict[str, tuple[Scale, Measure]] = {
    "f1": ("f1", f1_scores),
    "recall": ("share", recalls),
    "precision": ("share", precisions),
    "share": ("share", shares),
    "average-precision": ("share", average_precisions),
    "recall@precision": ("share", recalls_at_precision),
}

RANKINGS = ("average-precision", "recall@precision")


def parse_metric(text: str, classes: Sequence[str]) -> Metric:
    """A metric as users type it; `classes` are the names (K,).

    Of all classes: accuracy, balanced-accuracy, macro-f1, log-loss. Of one class: f1:CLASS, recall:CLASS, precision:CLASS,
    share:CLASS, average-precision:CLASS, recall@precision=0.9:CLASS. Costs are a matrix: methods/metric_text.py.
    """
    asked, colon, wanted = text.partition(":")
    name, equals, number = asked.partition("=")
    if name not in (*PLAIN, *OF_A_CLASS):
        raise not_one_of(
            "unknown metric", "metric", name, (*PLAIN, *OF_A_CLASS), "name one of them, or a cost matrix: cost:FILE"
        )
    if bool(equals) != (name == "recall@precision"):
        expected = "recall@precision=0.9:CLASS, with a number, or a metric that takes none"
        raise bad_value("not a metric", "metric", text, expected, "say which precision, or leave the number out")
    if name in PLAIN:
        if colon:
            remedy = f"write {name}, which is reported by class too"
            raise bad_value("a class for a metric of all classes", "metric", text, name, remedy)
        return PLAIN[name]
    if wanted not in classes:
        asking = f"{asked}:{list(classes)[-1]}"
        raise not_one_of(f"{name} of which class?", "metric", wanted, list(classes), f"write {asking}, for example")
    scale, measure = OF_A_CLASS[name]
    place = list(classes).index(wanted)
    of_counts: OfCounts | None = partial(_f1_of, number=place) if name == "f1" else None
    if equals:
        least = _precision(number, text)
        measure, of_counts = partial(measure, least=least), partial(_recall_of, number=place, least=least)
    return Metric(text, scale, partial(measure, classes=(place,)), measure, of_counts, one=place, ranking=name in RANKINGS)


def _precision(number: str, text: str) -> float:
    try:
        least = float(number)
    except ValueError:
        least = float("nan")
    if not 0 < least <= 1:
        raise bad_value("not a precision", "metric", text, "a number above 0, at most 1", "write recall@precision=0.9:CLASS")
    return least


def cost_metric(costs: NDArray[Any]) -> Metric:
    """The mean cost of decisions, from costs (K, K) of deciding j where i is true; decided is what should cost least."""
    values = np.asarray(checks.matrix(costs, "costs"), np.float64)
    if values.shape[0] != values.shape[1]:
        expected, remedy = "(K, K)", "a row for every true class, a column for every decision"
        raise wrong_shape("not a cost matrix", "costs", values.shape, expected, remedy)
    good = (values == 0) | ((values >= SMALLEST_COST) & (values <= LARGEST_COST))
    best = np.argwhere((values <= np.diag(values)[:, None]) & ~np.eye(len(values), dtype=bool))
    if not good.all() or len(best):
        i, j = best[0] if good.all() else np.argwhere(~good)[0]
        found = f"true {i}, decided {j} costs {'no more than the truth' if good.all() else format(values[i, j], 'g')}"
        expected = "finite costs of at least 0, least on the diagonal: being right costs less than any error"
        expected += f"; those above 0 within {SMALLEST_COST:g} and {LARGEST_COST:g}"
        raise bad_input("not costs", "costs", found, expected, "rows are true classes, columns decisions; transpose?")
    overall, by_class = partial(mean_cost, costs=values), partial(class_losses, costs=values)
    return Metric("cost", "loss", overall, by_class, costs=values, worst=float(values.max()))
