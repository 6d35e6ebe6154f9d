"""The compiled half of `neighbors`: the same means as its plain NumPy half, to the last bit, for millions of queries.

Queries are put into buckets of the plane, and each bucket is halved again and again. For the box around the queries at
hand, a point that is surely among the k nearest of all of them is added to their `base` sums and forgotten, and one that is
surely not is dropped; a short list of points in doubt goes on to the halves. Small groups of queries settle what is left.
All sums are sums of integers, so neither the boxes nor the order of points nor the number of threads can change a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from wdistill.threads import parallel, threads

BUCKET = 2048  # queries a bucket, about
LEAF = 64  # groups of at most so many queries are halved no further
DOUBTFUL = 6  # nor are groups with at most so many points in doubt
DEPTH = 40  # nor those halved so often
TASKS = 16  # pieces of work a thread, so that all end together

compiled: Callable[..., Any] = njit(nogil=True, cache=True, error_model="numpy")
inlined: Callable[..., Any] = njit(nogil=True, cache=True, error_model="numpy", forceinline=True)  # called per query


@inlined
def count(distances, copies, size, limit):
    """Copies of the points whose squared distance is at most `limit`."""
    found = 0
    for i in range(size):
        found += copies[i] if distances[i] <= limit else 0
    return found


@inlined
def narrow(distances, copies, size, rank, base, above, guess, steps):
    """Limits (below, above) with count(below) < rank <= count(above), and those two counts; stops early on a perfect cut."""
    below, at_below, at_above = -1.0, 0, count(distances, copies, size, above)
    if at_above < rank:
        return np.inf, at_above, np.inf, at_above
    limit = guess
    for _ in range(steps):
        if at_above == rank:
            break
        at_limit = count(distances, copies, size, limit)
        if at_limit < rank:
            below, at_below = limit, at_limit
        else:
            above, at_above = limit, at_limit
        share = (rank + 0.5 - at_below) / (at_above - at_below)
        floor = max(below, base, 0.0)
        limit = floor + (above - floor) * min(max(share, 0.05), 0.95)
    return below, at_below, above, at_above


@inlined
def measure(x, y, px, py, size, distances):
    for i in range(size):
        dx = px[i] - x
        dy = py[i] - y
        distances[i] = dx * dx + dy * dy


@inlined
def settle(x, y, px, py, copies, values, size, rank, sure, reach, guess, distances, base, sums):
    """Sums over the `rank` nearest of the points in doubt, and `base`; returns a limit that may suit the next query."""
    measure(x, y, px, py, size, distances)
    below, at_below, above, at_above = narrow(distances, copies, size, rank, sure, reach, guess, 10)
    while at_above != rank:  # a tie, or points too close for halving: go from one distinct distance to the next
        above = np.inf
        for i in range(size):
            above = distances[i] if below < distances[i] < above else above
        at_above = count(distances, copies, size, above)
        if at_above > rank:
            break
        if at_above < rank:
            below, at_below = above, at_above
    for column in range(sums.size):
        total = base[column]
        if at_above == rank:
            for i in range(size):
                total += values[column, i] if distances[i] <= above else 0
            sums[column] = total
        else:  # the points tied at the k-th distance share the places that are left
            tied = 0
            for i in range(size):
                total += values[column, i] if distances[i] <= below else 0
                tied += values[column, i] if below < distances[i] <= above else 0
            sums[column] = total + (rank - at_below) / (at_above - at_below) * tied
    return above


@inlined
def count_four(d0, d1, d2, d3, copies, size, limits, found):
    """`count` for four queries at a time."""
    l0, l1, l2, l3 = limits[0], limits[1], limits[2], limits[3]
    n0, n1, n2, n3 = 0, 0, 0, 0
    for i in range(size):
        n0 += copies[i] if d0[i] <= l0 else 0
        n1 += copies[i] if d1[i] <= l1 else 0
        n2 += copies[i] if d2[i] <= l2 else 0
        n3 += copies[i] if d3[i] <= l3 else 0
    found[0], found[1], found[2], found[3] = n0, n1, n2, n3


@inlined
def add_four(d0, d1, d2, d3, values, size, limits, base, out, row):
    """Sums over the listed points within the limits of four queries, and `base`, into four rows of `out`."""
    l0, l1, l2, l3 = limits[0], limits[1], limits[2], limits[3]
    for column in range(base.size):
        n0, n1, n2, n3 = base[column], base[column], base[column], base[column]
        line = values[column]
        for i in range(size):
            n0 += line[i] if d0[i] <= l0 else 0
            n1 += line[i] if d1[i] <= l1 else 0
            n2 += line[i] if d2[i] <= l2 else 0
            n3 += line[i] if d3[i] <= l3 else 0
        out[row, column], out[row + 1, column], out[row + 2, column], out[row + 3, column] = n0, n1, n2, n3


@inlined
def settle_four(queries, first, px, py, copies, values, size, rank, sure, reach, everyone, distances, four, base, out, row):
    """`settle` for four queries at a time, whose steps the processor overlaps; False if one of them has no perfect cut."""
    d0, d1, d2, d3 = distances
    limits, below, at_below, above, at_above, found = four
    measure(queries[first, 0], queries[first, 1], px, py, size, d0)
    measure(queries[first + 1, 0], queries[first + 1, 1], px, py, size, d1)
    measure(queries[first + 2, 0], queries[first + 2, 1], px, py, size, d2)
    measure(queries[first + 3, 0], queries[first + 3, 1], px, py, size, d3)
    floor = max(sure, 0.0)
    for q in range(4):
        below[q], at_below[q], above[q], at_above[q] = floor, 0.0, reach, everyone
        limits[q] = 0.5 * (floor + reach)
    for _ in range(9):
        count_four(d0, d1, d2, d3, copies, size, limits, found)
        cut = 0
        for q in range(4):
            at, limit = np.float64(found[q]), limits[q]
            less, more = at < rank, at > rank
            cut += 0 if less or more else 1
            below[q] = limit if less else below[q]
            at_below[q] = at if less else at_below[q]
            above[q] = limit if more else above[q]
            at_above[q] = at if more else at_above[q]
            share = min(max((rank + 0.5 - at_below[q]) / (at_above[q] - at_below[q]), 0.05), 0.95)
            limits[q] = below[q] + (above[q] - below[q]) * share if less or more else limit
        if cut == 4:
            add_four(d0, d1, d2, d3, values, size, limits, base, out, row)
            return True
    return False


@compiled
def screen(x0, x1, y0, y1, lists, xs, ys, copies, level, size, values, rank, sure, reach, near, far, bases):
    """Sort the points listed for a box: surely in (added to its base), surely out, in doubt (listed for the next level).

    `near` and `far` bound the squared distance to any query in the box; rounding is monotone, so they hold in floating
    point too. No k-th neighbour lies beyond `reach`, and at most k points lie within `sure`. Returns the number of points in
    doubt, of neighbours still to be found among them, and both limits for this box.
    """
    chosen, px, py, many = lists[level], xs[level], ys[level], copies[level]
    for i in range(size):
        left, right, under, over = x0 - px[i], px[i] - x1, y0 - py[i], py[i] - y1
        dx = left if left > right else right
        dy = under if under > over else over
        dx = dx if dx > 0.0 else 0.0
        dy = dy if dy > 0.0 else 0.0
        near[i] = dx * dx + dy * dy
        dx = right if left > right else left
        dy = over if under > over else under
        far[i] = dx * dx + dy * dy
    _, _, reach, _ = narrow(far, many, size, rank, sure, reach, 0.5 * (sure + reach), 6)
    close, _, _, _ = narrow(near, many, size, rank + 1, sure, reach, 0.5 * (sure + reach), 6)
    sure = max(sure, close)
    settled = 0
    for i in range(size):
        settled += many[i] if near[i] <= reach and far[i] <= sure else 0
    for column in range(bases.shape[1]):
        total = bases[level, column]
        if settled > 0:
            for i in range(size):
                total += values[column, chosen[i]] if near[i] <= reach and far[i] <= sure else 0
        bases[level + 1, column] = total
    if settled == rank:
        return 0, 0, sure, reach
    kept, kept_x, kept_y, kept_copies = lists[level + 1], xs[level + 1], ys[level + 1], copies[level + 1]
    doubtful = np.uint64(0)
    for i in range(size):
        kept[doubtful], kept_x[doubtful], kept_y[doubtful], kept_copies[doubtful] = chosen[i], px[i], py[i], many[i]
        doubtful += np.uint64(near[i] <= reach and far[i] > sure)
    return np.int64(doubtful), rank - settled, sure, reach


@compiled
def halve(queries, first, last, axis, cut):
    """Reorder the queries first … last so that those up to `cut` come first; returns where the others begin."""
    while first < last:
        if queries[first, axis] <= cut:
            first += 1
        else:
            last -= 1
            for a in range(3):
                queries[first, a], queries[last, a] = queries[last, a], queries[first, a]
    return first


@compiled
def serve(queries, firsts, lasts, points, copies, values, k, out):
    """Sums over the k nearest points, for buckets firsts[b] … lasts[b] of queries (x, y, row); reorders the queries."""
    m, columns = points.shape[1], values.shape[0]
    lists, many = np.empty((DEPTH + 2, m + 1), np.uint32), np.empty((DEPTH + 2, m + 1), np.int64)
    xs, ys = np.empty((DEPTH + 2, m + 1)), np.empty((DEPTH + 2, m + 1))
    bases, listed = np.zeros((DEPTH + 2, columns), np.int64), np.empty((columns, m), np.int64)
    near, far, sums = np.empty(m), np.empty(m), np.empty(columns)
    distances = (near, far, np.empty(m), np.empty(m))
    four = (np.empty(4), np.empty(4), np.empty(4), np.empty(4), np.empty(4), np.empty(4, np.int64))
    todo = np.empty((DEPTH + 2, 5), np.int64)  # first and last query, level, length of the list above, rank
    limits = np.empty((DEPTH + 2, 2))  # sure and reach of the box above
    found = np.empty(((lasts - firsts).max(), columns))  # one bucket's sums: written out together, or each store would stall
    for i in range(m):
        lists[0, i], xs[0, i], ys[0, i], many[0, i] = i, points[0, i], points[1, i], copies[i]
    for b in range(firsts.size):
        todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3], todo[0, 4] = firsts[b], lasts[b], 0, m, k
        limits[0, 0], limits[0, 1] = -1.0, np.inf
        waiting = 1
        while waiting > 0:
            waiting -= 1
            first, last, level = todo[waiting, 0], todo[waiting, 1], todo[waiting, 2]
            size, rank, sure, reach = todo[waiting, 3], todo[waiting, 4], limits[waiting, 0], limits[waiting, 1]
            x0, x1, y0, y1 = box(queries[first:last])
            if level == 0:
                reach = farthest(points, x0, x1, y0, y1)
            size, rank, sure, reach = screen(
                x0, x1, y0, y1, lists, xs, ys, many, level, size, values, rank, sure, reach, near, far, bases
            )
            level += 1
            same = x0 == x1 and y0 == y1
            if same or rank == 0 or last - first <= LEAF or size <= DOUBTFUL or level > DEPTH:
                chosen, px, py, pc, base = lists[level], xs[level], ys[level], many[level], bases[level]
                for column in range(columns):
                    sums[column] = base[column]
                    for i in range(size):
                        listed[column, i] = values[column, chosen[i]]
                guess = 0.5 * (sure + reach)
                everyone, i = count(px, pc, size, np.inf), first
                while i < last:
                    if i + 4 <= last and rank > 0 and not same:
                        place = i - firsts[b]
                        if settle_four(
                            queries,
                            i,
                            px,
                            py,
                            pc,
                            listed,
                            size,
                            rank,
                            sure,
                            reach,
                            everyone,
                            distances,
                            four,
                            base,
                            found,
                            place,
                        ):
                            i += 4
                            continue
                    for _ in range(min(4, last - i)):
                        x, y, own = queries[i, 0], queries[i, 1], found[i - firsts[b]]
                        if rank > 0 and (i == first or not same):
                            guess = settle(x, y, px, py, pc, listed, size, rank, sure, reach, guess, near, base, sums)
                        for column in range(columns):
                            own[column] = sums[column]
                        i += 1
            else:
                if x1 - x0 >= y1 - y0:
                    middle = halve(queries, first, last, 0, x0 + 0.5 * (x1 - x0))
                else:
                    middle = halve(queries, first, last, 1, y0 + 0.5 * (y1 - y0))
                for start, stop in ((first, middle), (middle, last)):
                    todo[waiting, 0], todo[waiting, 1], todo[waiting, 2] = start, stop, level
                    todo[waiting, 3], todo[waiting, 4] = size, rank
                    limits[waiting, 0], limits[waiting, 1] = sure, reach
                    waiting += 1
        for i in range(firsts[b], lasts[b]):
            row = np.int64(queries[i, 2])
            for column in range(columns):
                out[row, column] = found[i - firsts[b], column]


@compiled
def box(queries):
    """Lowest and highest x, lowest and highest y."""
    x0, x1, y0, y1 = np.inf, -np.inf, np.inf, -np.inf
    for i in range(queries.shape[0]):
        x, y = queries[i, 0], queries[i, 1]
        x0 = x if x < x0 else x0
        x1 = x if x > x1 else x1
        y0 = y if y < y0 else y0
        y1 = y if y > y1 else y1
    return x0, x1, y0, y1


@compiled
def farthest(points, x0, x1, y0, y1):
    """The squared distance from a box to the farthest point, measured from its farthest corner."""
    reach = 0.0
    for i in range(points.shape[1]):
        dx = max(points[0, i] - x0, x1 - points[0, i])
        dy = max(points[1, i] - y0, y1 - points[1, i])
        reach = max(reach, dx * dx + dy * dy)
    return reach


@compiled
def assign(queries, x_cuts, y_cuts, codes, sizes):
    """The bucket of every query, and how many each bucket gets."""
    for i in range(queries.shape[0]):
        x, y, a, b = queries[i, 0], queries[i, 1], 0, 0
        for j in range(x_cuts.size):
            a += 1 if x > x_cuts[j] else 0
            b += 1 if y > y_cuts[j] else 0
        codes[i] = a * (y_cuts.size + 1) + b
        sizes[codes[i]] += 1


@compiled
def scatter(queries, codes, first, places, packed):
    """Bring the queries of each bucket together as (x, y, row)."""
    for i in range(queries.shape[0]):
        place = places[codes[i]]
        places[codes[i]] += 1
        packed[place, 0], packed[place, 1], packed[place, 2] = queries[i, 0], queries[i, 1], first + i


def neighbor_sums(queries: np.ndarray, points: np.ndarray, copies: np.ndarray, values: np.ndarray, k: int) -> np.ndarray:
    """Sums (n, C) of the values (C, u) of the k nearest of `points` (2, u), each standing for some copies."""
    n = len(queries)
    side = min(255, max(1, round((n / BUCKET) ** 0.5)))
    sample = queries[:: max(1, n // 20_000)]
    levels = np.arange(1, side) / side
    x_cuts, y_cuts = np.quantile(sample[:, 0], levels), np.quantile(sample[:, 1], levels)
    step = 1 << 16
    codes, sizes = np.empty(n, np.uint16), np.zeros((-(-n // step), side * side), np.int64)
    parallel(lambda part: assign(queries[part], x_cuts, y_cuts, codes[part], sizes[part.start // step]), n, step)
    totals = sizes.sum(axis=0)
    ends = totals.cumsum()
    places = (ends - totals) + np.cumsum(sizes, axis=0) - sizes
    packed = np.empty((n, 3))
    parallel(lambda part: scatter(queries[part], codes[part], part.start, places[part.start // step], packed), n, step)
    out = np.empty((n, len(values)))
    largest_first = np.argsort(-totals, kind="stable")[: np.count_nonzero(totals)]
    tasks = min(len(largest_first), TASKS * threads())

    def work(part: slice) -> None:
        own = largest_first[part.start :: tasks]
        serve(packed, ends[own] - totals[own], ends[own], points, copies, values, k, out)

    parallel(work, tasks, 1)
    return out
