"""Why weights did what they did: a table of the weights on rightly and wrongly labeled rows, made of lines alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.captions import short
from experiments.lines import Line, arms_of, budgets, labels_of, trials
from experiments.tables import MISSING, markdown

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
    for name, known in lines.items():
        for group in budgets(known):
            for labels in labels_of(group):
                for at, arms in _variants(group).items():
                    found = trials(group, labels)
                    cells = [_weights(found, arm) for arm in arms]
                    if any(cells):
                        wrong = 100 * (1 - np.mean([line["teacher"]["unlabeled"] for line in found]))
                        told = [name + at, short(found), f"{labels:,}", f"{wrong:.1f} %"]
                        seen = [_seen(found, arms[0], what) for what in ("error", "distortion")]
                        rows.append([*told, *(cell or MISSING for cell in (*seen, _moved(found, arms[0]), *cells))])
    columns = ["experiment", "budget", "labels", "teacher wrong", "error", "distortion", "moved", *ARMS]
    return f"{markdown(columns, rows)}\n\n{MEANING}\n"


def _variants(group: Sequence[Line]) -> dict[str, tuple[str, ...]]:
    """What the arms are called in the lines: as they are, and at every temperature with a name of its own."""
    hot = [arm for arm in arms_of(group) if arm.startswith(AT)]
    return {"": ARMS, **{f", T = {arm.removeprefix(AT)}": (arm,) + ("",) * (len(ARMS) - 1) for arm in hot}}


def _seen(found: Sequence[Line], arm: str, what: str) -> str:
    return _both([line["arms"].get(arm, {}).get(what) for line in found])


def _weights(found: Sequence[Line], arm: str) -> str:
    return _both([_estimate(line, arm, -1) for line in found])


def _moved(found: Sequence[Line], arm: str) -> str:
    known = [each["below_one"] for line in found if (each := _estimate(line, arm, 0)) and "below_one" in each]
    return f"{100 * np.mean(known):.0f} %" if known else ""


def _estimate(line: Line, arm: str, which: int) -> dict[str, Any] | None:
    """The first or the last weights of an arm."""
    weights = line["arms"].get(arm, {}).get("weights")
    return dict(weights[which]) if weights else None


def _both(values: Sequence[Mapping[str, float | None] | None]) -> str:
    """Means of wrongly / of rightly labeled rows over the trials that know both."""
    known = [each for each in values if each and each.get("wrong") is not None and each.get("right") is not None]
    means = [float(np.mean([each[part] for each in known])) for part in ("wrong", "right")] if known else []
    return " / ".join(f"{mean:,.0f}" if mean > 1000 else f"{mean:.3f}" for mean in means) + (
        f" ({len(known)})" if known and len(known) < len(values) else ""
    )
