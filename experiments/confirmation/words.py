"""What docs/advise.md says of the forecast in sentences, made of the lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.confirmation.judge import WITHIN, Forecasts, Line, forecasts, target_forecasts
from experiments.confirmation.widths import PILOTS, held_elsewhere, misses, of_metric
from experiments.lab.tables import MISSING
from experiments.leaderboard.report import percent
from experiments.leaderboard.tasks import Task, data_of
from wdistill.methods.pilots import UNFORESEEN
from wdistill.report.words import signed


def forecast_words(lines: Sequence[Line], tasks: Sequence[Task]) -> dict[str, str]:
    """Parts of sentences, by the name of their place; widths need lines of two data sets."""
    told, after, targets = forecasts(lines), forecasts(lines, "after"), target_forecasts(lines)
    (said, came), of_targets = _means(told), _means(targets)
    missed = float(np.mean([each.gain for each in misses(lines, "soft", "accuracy")]))
    found = {
        "frozen": f"held {percent(told.held)} of them, where 95 % had been promised: students gained {signed(missed)} "
        "points over what was forecast, in the mean",
        "trust": f"within ±1 point of what came in {told.near} of {len(told.cells)} tasks and sizes, where "
        f"{100 * WITHIN:.0f} % had been asked for. It said {said} points in the mean, and {came} came. Its root mean square "
        f"error was {told.rms:.2f} points; that of always saying the mean, which nobody knows beforehand, "
        f"{told.constant_rms:.2f}. The judgement after training was within ±1 point in {after.near} of {len(after.cells)}",
        "targets": f"{of_targets[0]} points predicted and {of_targets[1]} observed in the mean, within ±1 point in "
        f"{targets.near} of {len(targets.cells)} tasks and sizes, {percent(targets.held)} of single trials inside their "
        "95 % interval",
    }
    uneven = of_metric(lines, tasks, "macro-f1")
    if any(len({data_of(line["task"]) for line in some}) < 2 for some in (lines, uneven)):
        return found
    reach = UNFORESEEN["accuracy"]
    shares = [
        held_elsewhere([misses(some, of, metric) for of in PILOTS])[0]
        for some, metric in ((lines, "accuracy"), (uneven, "macro-f1"))
    ]
    inside = [percent(share) for share in shares]
    return found | {
        "reach": f"1.96 × {100 * reach.below:.1f} points down and 1.96 × {100 * reach.above:.1f} up",
        "elsewhere": f"{inside[0]} of them are inside for soft targets, {inside[1]} by macro-F1",
    }


def _means(found: Forecasts) -> tuple[str, str]:
    """Of what was said and of what came, over tasks and sizes."""
    if not found.cells:
        return MISSING, MISSING
    said, came = np.mean(list(found.cells.values()), axis=0)
    return signed(float(said)), signed(float(came))
