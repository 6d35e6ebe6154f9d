"""Paired trials: a table of differences, and a line for each trial where a file is asked for.

    RESULTS=examples/adapters/results.jsonl python examples/adapters/pytorch.py

writes what docs/adapters.md shows; `python -m tests.docs` makes its tables of these lines.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wdistill.core.environment import commit_of, environment

Arms = Mapping[str, Sequence[float]]  # accuracies by trial, in which all arms share rows, teacher and seed


def paired(arms: Arms, base: str, data: str) -> str:
    """A table of mean accuracies, and of gains over `base` ± their standard error, in points."""
    if "RESULTS" in os.environ:
        write(Path(os.environ["RESULTS"]), arms, base, data)
    lines = [f"| arm | accuracy | over {base} |", "|---|---|---|"]
    for name, values in arms.items():
        shown = "" if name == base else gain(values, arms[base])
        lines.append(f"| {name} | {100 * np.mean(values):.2f} | {shown} |")
    return "\n".join(lines)


def gain(values: Sequence[float], known: Sequence[float]) -> str:
    """Mean difference ± its standard error, in points."""
    gains = 100 * (np.asarray(values, float) - np.asarray(known, float))
    return f"{gains.mean():+.2f} ± {gains.std(ddof=1) / np.sqrt(len(gains)):.2f}"


def write(path: Path, arms: Arms, base: str, data: str) -> None:
    """One line for each trial, in the place of those that the file has of this example and these data.

    Examples that write to one file must run one after the other.
    """
    example, here = Path(sys.argv[0]).stem, environment("cpu", 1)
    commit = commit_of(Path(__file__).parents[2], "wdistill", "examples/adapters/*.py")
    said = {"example": example, "data": data, "base": base, "commit": commit}
    said |= {"processor": f"{here['processor']}, {here['cores']} cores"}
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if (each := json.loads(line))["example"] != example or each["data"] != data]
    for trial in range(len(arms[base])):
        accuracies = {arm: round(float(values[trial]), 6) for arm, values in arms.items()}
        kept.append(json.dumps({**said, "trial": trial, "accuracies": accuracies}))
    whole = path.with_name(f"{path.name}.new")
    whole.write_text("\n".join([*kept, ""]))
    whole.replace(path)
