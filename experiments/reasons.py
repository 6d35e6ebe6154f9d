"""Why weights did what they did: a table of the weights on rightly and wrongly labeled rows, made of lines alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.captions import short
from experiments.lines import Line, budgets, labels_of, trials

ARMS = ("debiased", "debiased-refresh", "fidelity", "debiased-hard")  # whose weights are looked at


def reasons(lines: Mapping[str, Sequence[Line]]) -> str:
    """One row for every experiment, budget and number of labels: the teacher's errors, and the weights that met them."""
    columns = ["experiment", "budget", "labels", "teacher wrong", "error", "distortion", *ARMS]
    rows = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for name, known in lines.items():
        for group in budgets(known):
            for labels in labels_of(group):
                found = trials(group, labels)
                wrong = 100 * (1 - np.mean([line["teacher"]["unlabeled"] for line in found]))
                cells = [_weights(found, arm) for arm in ARMS]
                if any(cells):
                    seen = [_seen(found, what) for what in ("error", "distortion")]
                    told = [name, short(found), f"{labels:,}", f"{wrong:.1f} %", *(cell or "–" for cell in (*seen, *cells))]
                    rows.append(f"| {' | '.join(told)} |")
    meaning = (
        "Of the wrongly / of the rightly labeled unlabeled rows: mean error and median distortion as debiased estimates "
        "them at first, and the mean weight of every arm at its last estimation; means over trials, – where it is not known."
    )
    return "\n".join(rows) + f"\n\n{meaning}\n"


def _seen(found: Sequence[Line], what: str) -> str:
    known = [line["arms"]["debiased"][what] for line in found if what in line["arms"].get("debiased", {})]
    parts = {part: [each[part] for each in known if each[part] is not None] for part in ("wrong", "right")}
    return " / ".join(f"{np.mean(values):.3f}" for values in parts.values()) if all(parts.values()) else ""


def _weights(found: Sequence[Line], arm: str) -> str:
    last = [line["arms"][arm]["weights"][-1] for line in found if line["arms"].get(arm, {}).get("weights")]
    known = [each for each in last if each["wrong"] is not None and each["right"] is not None]
    return " / ".join(f"{np.mean([each[part] for each in known]):.3f}" for part in ("wrong", "right")) if known else ""
