"""A metric from what a user gives: its name, or a cost matrix as an array, in a file, or written out.

`cost:costs.csv` names a file (.csv, .npy or .json) with a row for every true class and a column for every decision;
`cost:[[0, 1], [20, 0]]` is the matrix itself, as runs keep it, so that they need no file to resume.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import not_one_of, unreadable, wrong_shape
from wdistill.methods.decision import check_choosable
from wdistill.methods.metric import Metric, cost_metric, parse_metric
from wdistill.weights.confidence import Floats

COST = "cost:"
MAX_BYTES = 1 << 26  # of a file of costs
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
    return _of_json(source, "metric") if source.lstrip().startswith("[") else read_costs(Path(source))


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
            return np.asarray(np.load(BytesIO(content), allow_pickle=False), np.float64)
        return np.loadtxt(StringIO(content.decode("utf-8-sig")), delimiter=",", ndmin=2)
    except (ValueError, TypeError, EOFError, SyntaxError) as error:
        raise _not_costs(path, error) from None


def _of_json(content: str | bytes, where: Path | str) -> Floats:
    try:
        return np.asarray(json.loads(content), np.float64)
    except (ValueError, TypeError, RecursionError) as error:
        raise _not_costs(where, error) from None


def _not_costs(where: Path | str, error: Exception) -> Exception:
    return unreadable("not a cost matrix", where, str(error), EXAMPLE, "write numbers alone, without names of classes")
