"""A metric from what a user gives: its name, or a cost matrix as an array, in a file, or written out.

`cost:costs.csv` names a file (.csv, .npy or .json) with a row for every true class and a column for every decision;
`cost:[[0, 1], [20, 0]]` is the matrix itself, as runs keep it, so that they need no file to resume.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import foreign_json, npy
from wdistill.core.errors import not_one_of, unreadable, wrong_shape
from wdistill.methods.decision import check_choosable
from wdistill.methods.metric import Metric, cost_metric, parse_metric
from wdistill.weights.confidence import Floats

COST = "cost:"
MAX_BYTES = 33 << 20  # of a file of costs: 2,000 classes
EXAMPLE = "a line for every true class with a number for every decision, such as 0,1 and 20,0"


def metric_of(given: str | NDArray[Any], classes: Sequence[str]) -> Metric:
    """The metric that is named, or the mean cost by a matrix (K, K); `classes` are the names (K,)."""
    if isinstance(given, str) and not given.startswith(COST):
        return parse_metric(given, classes)
    costs = _costs_of(given) if isinstance(given, str) else given
    metric = cost_metric(costs)
    if len(costs) != len(classes):
        found, expected = f"costs of {len(costs)} classes", f"({len(classes)}, {len(classes)}): {', '.join(classes[:20])}"
        raise wrong_shape("a cost matrix of other classes", "metric", found, expected, "a row and a column for every class")
    return metric


def written_out(text: str) -> str:
    """The same metric without a file: its costs, where it names a file of them."""
    return f"{COST}{json.dumps(_costs_of(text).tolist())}" if text.startswith(COST) else text


def check_text(text: str) -> None:
    """Raise where the text names no metric, whatever the classes, or one by which nothing can be chosen."""
    if not text.startswith(COST):
        check_choosable(parse_metric(text, (text.partition(":")[2],)))


def _costs_of(text: str) -> Floats:
    """The costs that are written out after "cost:", or in the file that is named there."""
    source = text.removeprefix(COST)
    inline = source.lstrip().startswith("[")
    return _of_json(source.encode(errors="replace"), "metric") if inline else read_costs(Path(source))


def read_costs(path: Path) -> Floats:
    """A matrix of costs from a .csv, .npy or .json file, numbers alone: rows are true classes, columns decisions."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".npy", ".json"):
        raise not_one_of("not a file of costs", "metric", str(path), (".csv", ".npy", ".json"), "name such a file")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable("the costs cannot be read", path, error, "a file of costs", "correct the path") from None
    if len(content) > MAX_BYTES:
        found, remedy = f"more than {MAX_BYTES:,} bytes", "name the file of costs"
        raise unreadable("the costs cannot be read", path, found, "a matrix, classes × classes", remedy)
    if kind == ".json":
        return _of_json(content, path)
    try:
        if kind == ".npy":
            return np.asarray(npy.read_numbers(lambda: BytesIO(content), len(content)), np.float64)
        foreign_json.check_entries(content.replace(b"\n", b","))
        lines = content.decode("utf-8-sig").split("\n")
        return _matrix([[float(cell) for cell in line.split(",")] for line in lines if line.strip()])
    except ValueError as error:
        raise _not_costs(path, error) from None


def _of_json(content: bytes, where: Path | str) -> Floats:
    try:
        return _matrix(foreign_json.parse(content))
    except ValueError as error:
        raise _not_costs(where, error) from None


def _matrix(rows: Any) -> Floats:
    """Lists of numbers as an array; ValueError where they are anything else."""
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError("no list of rows")
    others = sorted({type(cell).__name__ for row in rows for cell in row} - {"int", "float"})
    if others:
        raise ValueError(f"{', '.join(others)} in place of numbers")
    try:
        return np.array(rows, np.float64)
    except OverflowError as error:
        raise ValueError(f"a number that is too large: {error}") from None


def _not_costs(where: Path | str, error: Exception) -> Exception:
    return unreadable("not a cost matrix", where, str(error), EXAMPLE, "write numbers alone, without names of classes")
