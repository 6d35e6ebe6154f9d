"""How many gold rows the teacher's metric needs for an interval of ± x points, and how many tell targets apart."""

from __future__ import annotations

from dataclasses import dataclass

from wdistill.methods.context import Context
from wdistill.methods.metric import Metric
from wdistill.methods.on_pool import judged_pool
from wdistill.methods.power import RowsNeeded, rows_for_width, rows_to_tell_apart
from wdistill.methods.targets import FittedTargets
from wdistill.weights.confidence import Floats


@dataclass(frozen=True)
class GoldNeeded:
    """Gold rows in all, those at hand included; None where a billion would not do."""

    metric: str
    points: float  # on either side; of a loss, hundredths
    loss: bool  # whether the metric is a loss, which has no points
    width: RowsNeeded  # for the teacher's metric to be known so well
    apart: int | None  # for a difference of so many points between teacher and corrected targets to be found, mostly


def gold_needed(metric: Metric, points: float, context: Context, targets: FittedTargets, imputed: Floats) -> GoldNeeded:
    """For ± `points`, from gold rows and the pool, whose truth is imputed (n, K); rankings are judged by gold alone."""
    gold, pool = judged_pool(context, targets, imputed, "teacher")
    width = rows_for_width(metric, points / 100, gold, None if metric.ranking else pool)
    given = gold.predictions, targets.out_of_fold, context.labels, context.gold_weights, context.gold_groups
    smooth = metric.parts(gold.predictions, context.labels).influences is not None
    apart = rows_to_tell_apart(metric, points / 100, *given) if smooth else None
    return GoldNeeded(metric.name, points, not metric.higher, width, apart)
