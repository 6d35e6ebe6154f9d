"""The compiled half of `neighbors`: the same means as its plain NumPy half, to the last bit, for millions of queries.

Queries are put into the buckets of a grid, in an order in which the grid can be halved again and again, down to one bucket,
which is then halved itself. For the box around the queries at hand, a point that is surely among the k nearest of all of
them is added to their `base` sums and forgotten, and one that is surely not is dropped; a short list of points in doubt goes
on to the halves. Small groups of queries settle what is left, several queries side by side. All sums are sums of integers,
so neither the boxes nor the order of points nor the number of threads can change a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from wdistill.fast_lanes import (
    choose,
    everywhere,
    expect,
    f64,
    larger,
    largest,
    load,
    load_some,
    many,
    numbered,
    pack,
    smaller,
    spread,
    store,
    total,
    zeros,
)
from wdistill.threads import parallel, threads

BUCKET = 1024  # queries a bucket, about
LEAF = 64  # groups of at most so many queries are halved no further
DOUBTFUL = 6  # nor are groups with at most so many points in doubt
DEPTH = 56  # nor those halved so often
TASKS = 16  # pieces of work a thread, so that all end together
ROUNDS = 2  # times four limits are tried for a box
STEPS = 24  # limits tried for the k-th distance before going from one distance to the next
WIDE = 8  # numbers side by side: every list has room for so many more than it holds

# Nothing is allocated in compiled code, so that it need not count who holds an array: counting cost a tenth of the time.
options: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": False}
compiled: Callable[..., Any] = njit(**options)
inlined: Callable[..., Any] = njit(**options, forceinline=True)

# Arrays of lists are flat, and a list is where it begins in them: a slice would be counted in and out by every caller.


@inlined
def count(distances, copies, start, size, limit):
    """Copies of the points whose squared distance is at most `limit`; their numbers of copies begin at `start`."""
    found, none, limits = zeros(copies), zeros(copies), everywhere(limit)
    for i in range(0, size, WIDE):
        found = found + choose(load(distances, i) <= limits, load(copies, start + i), none)
    return total(found)


@inlined
def narrow(distances, copies, start, size, rank, below, above):
    """Closer limits with count(below) < rank <= count(above), if they were such limits; four are tried at a time."""
    none = zeros(copies)
    for _ in range(ROUNDS):
        step = 0.2 * (above - below)
        a, b, c, d = (
            everywhere(below + step),
            everywhere(below + 2.0 * step),
            everywhere(below + 3.0 * step),
            everywhere(below + 4.0 * step),
        )
        at_a, at_b, at_c, at_d = none, none, none, none
        for i in range(0, size, WIDE):
            distance, many = load(distances, i), load(copies, start + i)
            at_a = at_a + choose(distance <= a, many, none)
            at_b = at_b + choose(distance <= b, many, none)
            at_c = at_c + choose(distance <= c, many, none)
            at_d = at_d + choose(distance <= d, many, none)
        less = np.float64((total(at_a) < rank) + (total(at_b) < rank) + (total(at_c) < rank) + (total(at_d) < rank))
        above = above if less == 4.0 else below + (less + 1.0) * step
        below = below + less * step if less > 0.0 else below
    return below, above


@compiled
def settle(x, y, px, py, copies, start, size, rank, above, at_above, values, bases, first_base, sums, place):
    """Sums over the `rank` nearest of the points in doubt, and their base, going from one distinct distance to the next.

    The first `at_above` < rank of them lie within the squared distance `above`.
    """
    below, at_below = above, at_above
    while at_above < rank:
        below, at_below = above, at_above
        above = np.inf
        for i in range(start, start + size):
            distance = (px[i] - x) * (px[i] - x) + (py[i] - y) * (py[i] - y)
            above = distance if below < distance < above else above
        for i in range(start, start + size):
            distance = (px[i] - x) * (px[i] - x) + (py[i] - y) * (py[i] - y)
            at_above += copies[i] if distance == above else 0
    for column in range(sums.shape[0]):
        inside, tied = bases[first_base + column], 0
        for i in range(size):
            dx, dy = px[start + i] - x, py[start + i] - y
            inside += values[column * size + i] if dx * dx + dy * dy <= below else 0
            tied += values[column * size + i] if dx * dx + dy * dy == above else 0
        if at_above == rank:
            sums[column, place] = inside + tied
        else:  # the points tied at the k-th distance share the places that are left
            sums[column, place] = inside + (rank - at_below) / (at_above - at_below) * tied


@inlined
def settle_lanes(
    xs,
    ys,
    first,
    last,
    px,
    py,
    copies,
    start,
    size,
    rank,
    sure,
    reach,
    everyone,
    distances,
    values,
    bases,
    first_base,
    sums,
    place,
):
    """`settle` for the queries first … last side by side, by cutting between two distances; True where a tie is left."""
    there = numbered(xs) < last - first
    x, y = choose(there, load(xs, first), xs[first]), choose(there, load(ys, first), ys[first])
    for i in range(size):
        dx, dy = spread(px, start + i) - x, spread(py, start + i) - y
        store(distances, WIDE * i, dx * dx + dy * dy)
    floor = max(sure, 0.0)
    below, above, limit = everywhere(floor), everywhere(reach), everywhere(0.5 * (floor + reach))
    at_below, at_above = zeros(xs), everywhere(np.float64(everyone))
    off, none = there, zeros(copies)
    for _ in range(STEPS):
        found = none
        for i in range(size):
            found = found + choose(load(distances, WIDE * i) <= limit, spread(copies, start + i), none)
        less, more = found < rank, found > rank
        off = less | more
        if many(off) == 0:
            break
        below, at_below = choose(less, limit, below), choose(less, f64(found), at_below)
        above, at_above = choose(more, limit, above), choose(more, f64(found), at_above)
        share = smaller(larger((rank + 0.5 - at_below) / (at_above - at_below), 0.05), 0.95)
        limit = choose(off, below + (above - below) * share, limit)
    for column in range(sums.shape[0]):
        inside = everywhere(bases[first_base + column])
        for i in range(size):
            inside = inside + choose(load(distances, WIDE * i) <= limit, spread(values, column * size + i), none)
        store(sums, column * sums.shape[1] + place, f64(inside))
    if many(off) > 0:
        store(distances, 0, choose(off, choose(at_below > 0.0, below, -1.0), np.inf))
        store(distances, WIDE, at_below)
        return True
    return False


@compiled
def screen(box, lists, xs, ys, copies, start, room, size, points, rank, sure, reach, near, far, settled, bases, first_base):
    """Sort the points listed for a box: surely in (added to its base), surely out, in doubt (listed for the next level).

    `near` and `far` bound the squared distance to any query in the box; rounding is monotone, so they hold in floating
    point too. No k-th neighbour lies beyond `reach`, and at most k points lie within `sure`. The list begins at `start`, and
    that of the next level `room` further. Returns the number of points in doubt, of neighbours still to be found among them,
    and both limits for this box.
    """
    x0, x1, y0, y1 = box
    for i in range(0, size, WIDE):
        x, y = load(xs, start + i), load(ys, start + i)
        left, right, under, over = x0 - x, x - x1, y0 - y, y - y1
        dx, dy = larger(larger(left, right), 0.0), larger(larger(under, over), 0.0)
        store(near, i, dx * dx + dy * dy)
        dx, dy = smaller(left, right), smaller(under, over)
        store(far, i, dx * dx + dy * dy)
    if start == 0:  # nothing is known of the box yet: the farthest of all points bounds every distance
        found = zeros(far)
        for i in range(0, size, WIDE):
            found = larger(choose(load(copies, i) > 0, load(far, i), 0.0), found)
        reach = largest(found)
    floor = max(sure, 0.0)
    _, reach = narrow(far, copies, start, size, rank, floor, reach)
    close, beyond = narrow(near, copies, start, size, rank + 1, floor, reach)
    if beyond == reach and count(near, copies, start, size, reach) == rank:
        sure = np.inf  # no more points than are wanted can be near enough
    elif close > floor:
        sure = close
    inside, end = 0, start + room
    for i in range(0, size, WIDE):
        candidate, away = load(near, i) <= reach, load(far, i)
        which, taken, kept = load(lists, start + i), candidate & (away <= sure), candidate & (away > sure)
        pack(settled, inside, which, taken)
        inside += many(taken)
        pack(lists, end, which, kept)
        pack(xs, end, load(xs, start + i), kept)
        pack(ys, end, load(ys, start + i), kept)
        pack(copies, end, load(copies, start + i), kept)
        end += many(kept)
    store(xs, end, everywhere(np.inf))
    store(ys, end, everywhere(np.inf))
    store(copies, end, zeros(copies))
    columns = points.shape[1] - 1
    for column in range(columns):
        bases[first_base + columns + column] = bases[first_base + column]
    for i in range(inside):
        rank -= points[settled[i], 0]
        for column in range(columns):
            bases[first_base + columns + column] += points[settled[i], 1 + column]
    return end - start - room if rank > 0 else 0, rank, sure, reach


@compiled
def halve(xs, ys, rows, first, last, along_x, cut, spare_x, spare_y, spare_rows):
    """Reorder the queries first … last so that those up to `cut` come first; returns where the others begin."""
    low, high = first, 0
    for i in range(first, last, WIDE):
        x, y, row = load(xs, i), load(ys, i), load(rows, i)
        key = x if along_x else y
        there = numbered(xs) < last - i
        below, above = there & (key <= cut), there & (key > cut)
        pack(xs, low, x, below)
        pack(ys, low, y, below)
        pack(rows, low, row, below)
        low += many(below)
        pack(spare_x, high, x, above)
        pack(spare_y, high, y, above)
        pack(spare_rows, high, row, above)
        high += many(above)
    for i in range(high):
        xs[low + i], ys[low + i], rows[low + i] = spare_x[i], spare_y[i], spare_rows[i]
    return low


@compiled
def box_of(xs, ys, first, last):
    """Lowest and highest x, lowest and highest y."""
    x0, x1, y0, y1 = everywhere(xs[first]), everywhere(xs[first]), everywhere(ys[first]), everywhere(ys[first])
    for i in range(first, last, WIDE):
        there = numbered(xs) < last - i
        x, y = choose(there, load(xs, i), xs[first]), choose(there, load(ys, i), ys[first])
        x0, x1, y0, y1 = smaller(x, x0), larger(x, x1), smaller(y, y0), larger(y, y1)
    return -largest(-x0), largest(x1), -largest(-y0), largest(y1)


@compiled
def scale(found, size, units, response, k):
    """Turn the sums (C, size) of some queries into mean responses, in place: response r comes to stand in row r."""
    for i in range(size):
        own, mean = 0, 0.0
        for column in range(units.size):
            if response[column] > own:
                found[own, i] = mean / k
                own, mean = response[column], 0.0
            mean += found[column, i] * units[column]
        found[own, i] = mean / k


@compiled
def serve(xs, ys, rows, starts, first_bucket, last_bucket, places, points, units, response, k, room, out):
    """Mean responses of the k nearest points for the queries of some buckets, which are reordered.

    `places` (2, u): x and y of every point; `points` (u, 1 + C): its copies and values. Bucket b holds the queries
    starts[b] … starts[b + 1] of xs, ys and their rows of `out`. `room` is what `room_for` makes.
    """
    (
        lists,
        pc,
        px,
        py,
        bases,
        listed,
        near,
        far,
        settled,
        distances,
        todo,
        limits,
        boxes,
        spare_x,
        spare_y,
        spare_rows,
        found,
    ) = room
    m, columns = points.shape[0], points.shape[1] - 1
    step = m + 2 * WIDE
    for b in range(first_bucket, last_bucket):
        if starts[b + 1] > starts[b]:
            x0, x1, y0, y1 = box_of(xs, ys, starts[b], starts[b + 1])
            here = b - first_bucket
            boxes[here, 0], boxes[here, 1], boxes[here, 2], boxes[here, 3] = x0, x1, y0, y1
    for i in range(m):
        lists[i], px[i], py[i], pc[i] = i, places[0, i], places[1, i], points[i, 0]
    for i in range(m, step):
        px[i], py[i], pc[i] = np.inf, np.inf, 0
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = first_bucket, last_bucket, starts[first_bucket], starts[last_bucket]
    todo[0, 4], todo[0, 5], todo[0, 6] = 0, m, k
    limits[0, 0], limits[0, 1] = -1.0, np.inf
    waiting = 1
    while waiting > 0:
        waiting -= 1
        low, high, first, last, level = (
            todo[waiting, 0],
            todo[waiting, 1],
            todo[waiting, 2],
            todo[waiting, 3],
            todo[waiting, 4],
        )
        size, rank, sure, reach = todo[waiting, 5], todo[waiting, 6], limits[waiting, 0], limits[waiting, 1]
        if first == last:
            continue
        if high - low > 1:
            x0, x1, y0, y1 = np.inf, -np.inf, np.inf, -np.inf
            for b in range(low, high):
                if starts[b + 1] > starts[b]:
                    here = b - first_bucket
                    x0, x1 = min(x0, boxes[here, 0]), max(x1, boxes[here, 1])
                    y0, y1 = min(y0, boxes[here, 2]), max(y1, boxes[here, 3])
        else:
            x0, x1, y0, y1 = box_of(xs, ys, first, last)
        size, rank, sure, reach = screen(
            (x0, x1, y0, y1),
            lists,
            px,
            py,
            pc,
            level * step,
            step,
            size,
            points,
            rank,
            sure,
            reach,
            near,
            far,
            settled,
            bases,
            level * columns,
        )
        level += 1
        start, first_base = level * step, level * columns
        same = x0 == x1 and y0 == y1
        if same or rank == 0:
            for column in range(columns):
                found[column, 0] = bases[first_base + column]
                for i in range(size):
                    listed[column * size + i] = points[lists[start + i], 1 + column]
            if rank > 0:
                settle(x0, y0, px, py, pc, start, size, rank, -1.0, 0, listed, bases, first_base, found, 0)
            scale(found, 1, units, response, k)
            for i in range(first, last):
                for column in range(out.shape[1]):
                    out[rows[i], column] = found[column, 0]
        elif last - first <= LEAF or size <= DOUBTFUL or level > DEPTH:
            everyone = 0
            for i in range(size):
                everyone += pc[start + i]
                for column in range(columns):
                    listed[column * size + i] = points[lists[start + i], 1 + column]
            for begin in range(first, last, LEAF):
                end = min(last, begin + LEAF)
                for i in range(begin, end, WIDE):
                    stop, place = min(i + WIDE, end), i - begin
                    for j in range(i, stop):
                        expect(out, rows[j] * out.shape[1])
                    if settle_lanes(
                        xs,
                        ys,
                        i,
                        stop,
                        px,
                        py,
                        pc,
                        start,
                        size,
                        rank,
                        sure,
                        reach,
                        everyone,
                        distances,
                        listed,
                        bases,
                        first_base,
                        found,
                        place,
                    ):
                        for lane in range(stop - i):
                            x, y, at = xs[i + lane], ys[i + lane], place + lane
                            below, at_below = distances[lane], np.int64(distances[WIDE + lane])
                            if below < np.inf:
                                settle(
                                    x,
                                    y,
                                    px,
                                    py,
                                    pc,
                                    start,
                                    size,
                                    rank,
                                    below,
                                    at_below,
                                    listed,
                                    bases,
                                    first_base,
                                    found,
                                    at,
                                )
                scale(found, end - begin, units, response, k)
                for i in range(begin, end):
                    for column in range(out.shape[1]):
                        out[rows[i], column] = found[column, i - begin]
        else:
            between, middle = high, 0
            if high - low > 1:
                between = (low + high) // 2
                middle = starts[between]
                low, high = between, high
            elif x1 - x0 >= y1 - y0:
                middle = halve(xs, ys, rows, first, last, True, x0 + 0.5 * (x1 - x0), spare_x, spare_y, spare_rows)
            else:
                middle = halve(xs, ys, rows, first, last, False, y0 + 0.5 * (y1 - y0), spare_x, spare_y, spare_rows)
            todo[waiting, 1], todo[waiting, 2], todo[waiting, 3], todo[waiting, 4] = between, first, middle, level
            todo[waiting, 5], todo[waiting, 6], limits[waiting, 0], limits[waiting, 1] = size, rank, sure, reach
            waiting += 1
            todo[waiting, 0], todo[waiting, 1], todo[waiting, 2], todo[waiting, 3] = low, high, middle, last
            todo[waiting, 4], todo[waiting, 5], todo[waiting, 6] = level, size, rank
            limits[waiting, 0], limits[waiting, 1] = sure, reach
            waiting += 1


@compiled
def assign(xs, ys, x_cuts, y_cuts, found, codes, sizes):
    """The bucket of every query, and how many each bucket gets; `found` is room for the buckets of a few."""
    none = zeros(sizes)
    for i in range(0, xs.size, WIDE):
        some = min(WIDE, xs.size - i)
        x, y = load_some(xs, i, some, 0.0), load_some(ys, i, some, 0.0)
        across, up = none, none
        for j in range(x_cuts.size):
            across = across + choose(x > x_cuts[j], 1, none)
            up = up + choose(y > y_cuts[j], 1, none)
        store(found, 0, interleaved(across) + interleaved(up) * 2)
        for lane in range(some):
            codes[i + lane] = found[lane]
            sizes[found[lane]] += 1


@inlined
def interleaved(number):
    """A number of up to 8 bits, with a zero bit after each: two of them make the place along a curve that fills the grid."""
    number = (number | (number << 4)) & 0x0F0F
    number = (number | (number << 2)) & 0x3333
    return (number | (number << 1)) & 0x5555


@compiled
def scatter(xs, ys, codes, first, places, own_x, own_y, rows):
    """Bring the queries of each bucket together."""
    for i in range(xs.size):
        place = places[codes[i]]
        places[codes[i]] += 1
        own_x[place], own_y[place], rows[place] = xs[i], ys[i], first + i


def room_for(m: int, columns: int, buckets: int, most: int) -> tuple[np.ndarray, ...]:
    """What `serve` works with, for m points, some buckets, and at most so many queries in one."""
    levels, places = DEPTH + 2, m + 2 * WIDE
    lists, copies = np.empty(levels * places, np.int64), np.empty(levels * places, np.int64)
    xs, ys = np.empty(levels * places), np.empty(levels * places)
    bases, listed = np.zeros(levels * columns, np.int64), np.empty(columns * places, np.int64)
    near, far, settled, distances = np.empty(places), np.empty(places), np.empty(places, np.int64), np.empty(WIDE * places)
    todo = np.empty((levels, 7), np.int64)  # first and last bucket, first and last query, level, length of list, rank
    limits = np.empty((levels, 2))  # sure and reach of the box above
    boxes, spare = np.empty((buckets, 4)), (np.empty(most + WIDE), np.empty(most + WIDE), np.empty(most + WIDE, np.int64))
    found = np.empty((columns, LEAF + WIDE))  # sums of some queries, written out together: each store would stall
    return lists, copies, xs, ys, bases, listed, near, far, settled, distances, todo, limits, boxes, *spare, found


def neighbor_means(
    xs: np.ndarray,
    ys: np.ndarray,
    points: np.ndarray,
    copies: np.ndarray,
    values: np.ndarray,
    units: np.ndarray,
    response: np.ndarray,
    k: int,
) -> np.ndarray:
    """Mean responses (n, R) of the k nearest of `points` (2, u) to the queries xs, ys (n,); see `neighbors.Neighbors`."""
    n = len(xs)
    side = 1
    while side < 128 and n > 2 * BUCKET * side * side:
        side *= 2
    sample = slice(None, None, max(1, n // 4_000))
    levels = np.arange(1, side) / side
    x_cuts, y_cuts = np.quantile(xs[sample], levels), np.quantile(ys[sample], levels)
    step = max(1 << 16, -(-n // (4 * threads())))
    codes, sizes = np.empty(n, np.uint16), np.zeros((-(-n // step), side * side), np.int64)

    def sort_out(part: slice) -> None:
        room = np.empty(WIDE, np.int64)
        assign(xs[part], ys[part], x_cuts, y_cuts, room, codes[part], sizes[part.start // step])

    parallel(sort_out, n, step)
    totals = sizes.sum(axis=0)
    starts = np.concatenate([[0], totals.cumsum()])
    places = starts[:-1] + np.cumsum(sizes, axis=0) - sizes
    own_x, own_y, rows = np.empty(n + WIDE), np.empty(n + WIDE), np.empty(n + WIDE, np.int64)

    def bring(part: slice) -> None:
        scatter(xs[part], ys[part], codes[part], part.start, places[part.start // step], own_x, own_y, rows)

    parallel(bring, n, step)
    out = np.empty((n, int(response[-1]) + 1))
    table = np.ascontiguousarray(np.concatenate([copies[None], values]).T)
    tasks = 1
    while tasks < min(side * side, TASKS * threads()):
        tasks *= 4
    width = side * side // tasks
    ends = starts[::width]
    order = np.argsort(ends[:-1] - ends[1:], kind="stable")
    rooms: list[tuple[np.ndarray, ...]] = []

    def work(part: slice) -> None:
        task = order[part.start]
        room = rooms.pop() if rooms else room_for(len(copies), len(values), width, int(totals.max()))
        serve(own_x, own_y, rows, starts, task * width, (task + 1) * width, points, table, units, response, k, room, out)
        rooms.append(room)

    parallel(work, int(np.count_nonzero(np.diff(ends))), 1)
    return out
