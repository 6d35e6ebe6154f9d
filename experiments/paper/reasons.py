"""Why weights did what they did: a table of the weights on rightly and wrongly labeled rows, made of lines alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.lab.results import Line, arms_of, budgets, labels_of, trials
from experiments.lab.tables import MISSING, joined, markdown, short

ARMS = ("debiased", "debiased-refresh", "fidelity", "composition", "debiased-hard", "debiased-vid")  # that are looked at
AT = "debiased-T"  # and at every temperature
MEANING = (
    "Of the wrongly / of the rightly labeled unlabeled rows: mean error and median distortion as debiased estimates them at "
    "first, and the mean weight of every arm at its last estimation; moved: rows whose first debiased weight is below 1. "
    "Means over trials, (n) where only n of them tell; – where it is not known."
)


def reasons(lines: Mapping[str, Sequence[Line]]) -> str:
    """One row for every experiment, budget, number of labels and temperature: the teacher's errors, the weights they met."""
    rows = []
    for name, group in ((name, group) for name, known in lines.items() for group in budgets(known)):
        hot = [arm for arm in arms_of(group) if arm.startswith(AT)]  # each of them in a row of its own
        variants = {"": ARMS, **{f", T = {arm.removeprefix(AT)}": (arm,) + ("",) * (len(ARMS) - 1) for arm in hot}}
        for at, labels, arms in ((at, labels, arms) for labels in labels_of(group) for at, arms in variants.items()):
            mine = trials(group, labels)
            weights = [_both([_estimate(line, arm, -1) for line in mine]) for arm in arms]
            if any(weights):
                first = [line["arms"].get(arms[0], {}) for line in mine]
                wrong = f"{100 * (1 - np.mean([line['teacher']['unlabeled'] for line in mine])):.1f} %"
                estimates = [_both([each.get(what) for each in first]) for what in ("error", "distortion")]
                cells = [name + at, short(mine), f"{labels:,}", wrong, *estimates, _moved(mine, arms[0]), *weights]
                rows.append([cell or MISSING for cell in cells])
    columns = ["experiment", "budget", "labels", "teacher wrong", "error", "distortion", "moved", *ARMS]
    return joined([markdown(columns, rows), MEANING])


def _moved(mine: Sequence[Line], arm: str) -> str:
    known = [each["below_one"] for line in mine if (each := _estimate(line, arm, 0)) and "below_one" in each]
    return f"{100 * np.mean(known):.0f} %" if known else ""


def _estimate(line: Line, arm: str, which: int) -> dict[str, Any] | None:
    """The first or the last weights of an arm."""
    weights = line["arms"].get(arm, {}).get("weights")
    return dict(weights[which]) if weights else None


def _both(values: Sequence[Mapping[str, float | None] | None]) -> str:
    """Means of wrongly / of rightly labeled rows over the trials that know both."""
    known = [each for each in values if each and each.get("wrong") is not None and each.get("right") is not None]
    means = [float(np.mean([each[part] for each in known])) for part in ("wrong", "right")] if known else []
    fewer = f" ({len(known)})" if known and len(known) < len(values) else ""
    return " / ".join(f"{mean:,.0f}" if mean > 1000 else f"{mean:.3f}" for mean in means) + fewer
