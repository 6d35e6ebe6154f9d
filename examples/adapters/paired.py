"""A table of paired differences: the arms of an example share rows, teacher and seed in every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def paired(arms: Mapping[str, Sequence[float]], base: str) -> str:
    """Accuracies of every arm by trial → a table of means, and of gains over `base` ± their standard error, in points."""
    known = 100 * np.asarray(arms[base], float)
    lines = [f"| arm | accuracy | over {base} |", "|---|---|---|"]
    for name, values in arms.items():
        gains = 100 * np.asarray(values, float) - known
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        shown = "" if name == base else f"{gains.mean():+.2f} ± {error:.2f}"
        lines.append(f"| {name} | {100 * np.mean(values):.2f} | {shown} |")
    return "\n".join(lines)
