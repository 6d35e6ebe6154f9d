"""Exact means over the k nearest points of a plane, whatever the order of the points, the chunks or the threads.

The k-NN step of Algorithm 2. Points tied at the k-th distance share the places that are left, equally. Tied are all whose
distance is at most `rounding` from the k-th distance, since coordinates that were rounded do not tell such distances apart:
this depends on the distances alone, not on their order. Responses are kept as whole multiples of two quanta, so that every
sum is a sum of integers: it has one value, in whatever order it is taken.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wdistill.weights.confidence import compiles

Floats = NDArray[np.float64]

SMALL = 1 << 23  # queries × points up to which plain NumPy is fast enough not to load compiled code …
FEW = 64  # … and queries up to which it is, once that is loaded
SMALLEST = -900  # binary exponent of a column's largest response: units of smaller ones would not be numbers
BLOCK = 1 << 20  # distances held at once by the NumPy half


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Distinct points with the summed responses of their copies, prepared for queries."""

    k: int
    points: Floats  # (2, u), sorted
    copies: NDArray[np.int64]  # (u,) how many of the given points coincide here
    values: NDArray[np.int64]  # (C, u) summed responses in quanta: one or two columns each, a coarse and a fine one
    units: Floats  # (C,) those quanta
    response: NDArray[np.intp]  # (C,) the response that each column belongs to
    rounding: float = 0.0  # distances that differ by so much count as equal

    def means(self, queries: Floats) -> Floats:
        """Mean responses of the k nearest points: (n, 2) → (n, R)."""
        queries = np.asarray(queries, np.float64)
        return self.means_at(queries[:, 0], queries[:, 1])

    def means_at(self, x: Floats, y: Floats) -> Floats:
        """`means` of queries whose coordinates (n,), (n,) are separate arrays."""
        x, y = np.ascontiguousarray(x, np.float64), np.ascontiguousarray(y, np.float64)
        loaded, few = "wdistill.weights._neighbors" in sys.modules, SMALL // self.points.shape[1]
        if len(x) <= (min(few, FEW) if loaded else few) or not compiles():
            sums = _sums_numpy(np.stack([x, y], axis=1), self)
            means = np.zeros((len(x), self.response[-1] + 1))
            for column, (response, unit) in enumerate(zip(self.response, self.units, strict=True)):
                means[:, response] += sums[:, column] * unit
            return means / self.k
        from wdistill.weights._neighbors import neighbor_means

        columns = self.values, self.units, self.response
        return neighbor_means(x, y, self.points, self.copies, *columns, self.k, self.rounding)


def neighbors(points: Floats, responses: Floats, k: int, rounding: float = 0.0) -> Neighbors:
    """Prepare m points (m, 2) with responses (m, R) for queries about their k nearest; see `Neighbors.rounding`."""
    points = np.asarray(points, np.float64) + 0.0  # −0.0 and 0.0 are one place
    columns = [(r, *quanta) for r, column in enumerate(np.asarray(responses, np.float64).T) for quanta in _quanta(column)]
    values = np.array([whole for _, whole, _ in columns])
    order = np.lexsort((points[:, 1], points[:, 0]))
    places = points[order]
    first = np.flatnonzero(np.r_[True, (places[1:] != places[:-1]).any(axis=1)])
    return Neighbors(
        k=k,
        points=np.ascontiguousarray(places[first].T),
        copies=np.diff(np.r_[first, len(points)]),
        values=np.add.reduceat(values[:, order], first, axis=1),
        units=np.array([unit for _, _, unit in columns]),
        response=np.array([r for r, _, _ in columns]),
        rounding=rounding,
    )


def slack(distance: Floats, rounding: float) -> Floats:
    """How far squared distances that count as equal to this one may be from it: (d + rounding)² − d²."""
    return np.asarray(rounding * (2.0 * np.sqrt(distance) + rounding))


def _quanta(column: Floats) -> list[tuple[NDArray[np.int64], float]]:
    """A response as whole multiples of a coarse unit and, unless that is exact, of a fine one; no sum exceeds 2^53."""
    room = 52 - len(column).bit_length()
    largest = max(int(np.frexp(np.abs(column).max())[1]), SMALLEST)
    unit = 2.0 ** (largest - room)
    coarse = np.rint(column / unit)
    small = unit * 2.0 ** (-1 - room)
    fine = np.rint((column - coarse * unit) / small)
    parts = [(coarse.astype(np.int64), unit), (fine.astype(np.int64), small)]
    return parts if fine.any() else parts[:1]


def _sums_numpy(queries: Floats, prepared: Neighbors) -> Floats:
    """Plain brute force over blocks of queries; `_neighbors.neighbor_means` gives the same bits."""
    (x, y), copies, k = prepared.points, prepared.copies, prepared.k
    values = prepared.values.T.astype(np.float64)
    copy = np.repeat(np.arange(len(copies)), copies)  # a column for every copy
    sums = np.empty((len(queries), values.shape[1]))
    step = max(1, BLOCK // len(copy))
    for first in range(0, len(queries), step):
        part = queries[first : first + step]
        dx, dy = x - part[:, :1], y - part[:, 1:]
        distances = dx * dx + dy * dy
        limit = np.partition(distances[:, copy] if len(copy) > len(copies) else distances, k - 1, axis=1)[:, k - 1 : k]
        apart = slack(limit, prepared.rounding)
        inside = distances < limit - apart
        tied = (distances <= limit + apart) & ~inside
        left, many = k - inside @ copies, tied @ copies
        whole = left == many
        below = np.where(whole[:, None], inside | tied, inside) @ values
        sums[first : first + step] = np.where(whole[:, None], below, below + (left / many)[:, None] * (tied @ values))
    return sums
