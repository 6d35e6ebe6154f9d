"""What a choice between `best` and another arm could gain at most: for every task the better of the two, in hindsight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.confirmation.judge import Line, gaps, mean_of, sizes_of
from experiments.confirmation.rivals import LABELS
from experiments.confirmation.widths import of_metric
from experiments.lab.tables import MISSING, markdown
from experiments.leaderboard.tasks import Task
from wdistill.report.words import signed

CHOICES = (LABELS, "best, hard")  # a student without a teacher, and the shape of the targets


def choice_table(lines: Sequence[Line], tasks: Sequence[Task]) -> str:
    """Points over `best`, mean over tasks: of a choice that is always right, and of the other arm alone."""
    sizes, rows = sizes_of(lines), []
    for metric, of in (("accuracy", "accuracy"), ("macro_f1", "macro-f1")):
        for other in CHOICES:
            found = gaps(of_metric(lines, tasks, of), other, "best", metric)
            means = {gold: [float(np.mean(each)) for (_, rows), each in found.items() if rows == gold] for gold in sizes}
            chosen = [mean_of(max(0.0, each) for each in means[gold]) for gold in sizes]
            always = [mean_of(means[gold]) for gold in sizes]
            rows.append([f"{other}, {of}", *(_said(each) for each in (*chosen, *always))])
    header = ["in place of best", *(f"a right choice, {gold:,}" for gold in sizes), *(f"always, {gold:,}" for gold in sizes)]
    return markdown(header, rows)


def _said(points: float | None) -> str:
    return MISSING if points is None else signed(points)
