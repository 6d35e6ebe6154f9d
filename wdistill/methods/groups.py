"""Groups of rows that belong together (documents, users, queries): joined, summed over, and looked for in two sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input
from wdistill.weights.confidence import Floats

Ints = NDArray[np.int64]


def numbered(groups: NDArray[Any], rows: int, name: str = "groups") -> Ints:
    """Groups (n,) of any kind, numbers or strings, as whole numbers 0 … G − 1 in the order of their first rows.

    So it is the same, whatever the groups are called: 2 and 10, or "10" and "2" as tables give them.
    """
    values = checks.array(groups, name)
    checks.same_length({"rows": rows, name: len(values)})
    if values.ndim != 1 or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        found, remedy = f"shape {values.shape}, dtype {values.dtype}", "give every row the id of its group"
        raise bad_input("not one group a row", name, found, "(rows,) numbers or strings, none missing", remedy)
    _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(firsts))[inverse], np.int64)


def joined(first: NDArray[Any], second: NDArray[Any]) -> Ints:
    """The connected components (n,) of two groupings (n,): rows that share either, directly or by other rows, share one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(first)
    a, b = numbered(first, n), numbered(second, n)
    size = int(a.max(initial=-1)) + 1
    nodes = size + int(b.max(initial=-1)) + 1
    edges = coo_array((np.ones(n), (a, size + b)), shape=(nodes, nodes))
    return np.asarray(connected_components(edges, directed=False)[1][a], np.int64)


def sums(values: Floats, groups: Ints | None) -> Floats:
    """Sums over the rows of every group: (n, C) and numbers 0 … G − 1 → (G, C); without groups the rows themselves."""
    if groups is None:
        return values
    columns = [np.bincount(groups, column) for column in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((int(groups.max(initial=-1)) + 1, 0))


@dataclass(frozen=True, eq=False)
class SharedGroups:
    """Groups that occur in two sets of rows."""

    groups: NDArray[Any]  # (s,) their ids, sorted
    first: Ints  # rows of the first set that are in one of them
    second: Ints  # rows of the second set


def shared_groups(first: NDArray[Any], second: NDArray[Any]) -> SharedGroups:
    """The groups that occur in both of two sets, such as gold and labeled or gold and test; ids (m,), (n,) of one kind."""
    a, b = checks.array(first, "groups of the first set"), checks.array(second, "groups of the second set")
    if (a.dtype.kind in "US") != (b.dtype.kind in "US"):
        found, remedy = f"dtypes {a.dtype} and {b.dtype}", "write the ids alike in both sets"
        raise bad_input("groups of two kinds", "groups", found, "numbers in both sets, or strings in both", remedy)
    both = np.intersect1d(a, b)
    return SharedGroups(both, np.flatnonzero(np.isin(a, both)), np.flatnonzero(np.isin(b, both)))
