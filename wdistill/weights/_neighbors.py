"""The compiled half of `neighbors`: the same means as its plain NumPy half, to the last bit, for millions of queries.

Queries are put into the buckets of a grid, in an order in which the grid can be halved again and again, down to one bucket,
which is then halved itself. For the box around the queries at hand, a point that surely has a whole place among the k
nearest of all of them is added to their `base` sums and forgotten, and one that surely has none is dropped; a short list of
points in doubt is passed to the halves. Small groups of queries settle what is left, several queries side by side. All sums
are sums of integers, so neither the boxes nor the order of points nor the number of threads can change a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wdistill.core.threads import parallel, threads
from wdistill.weights._jit import kernel
from wdistill.weights._simd import (
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
    root,
    smaller,
    spread,
    store,
    total,
    zeros,
)

BUCKET = 1024  # queries a bucket, about
LEAF = 64  # groups of at most so many queries are halved no further
DOUBTFUL = 6  # nor are groups with at most so many points in doubt
DEPTH = 56  # nor those halved so often
TASKS = 16  # pieces of work a thread, so that all end together
ROUNDS = 2  # times four limits are tried for a box
STEPS = 24  # limits tried for the k-th distance before going from one distance to the next
WIDE = 8  # numbers side by side: every list has room for so many more than it holds

# Nothing is allocated in compiled code, so that it need not count who holds an array: counting cost a tenth of the time.
options: dict[str, Any] = {"_nrt": False}
compiled: Callable[..., Any] = kernel(**options)
inlined: Callable[..., Any] = kernel(**options, forceinline=True)

# Arrays of lists are flat, and a list is where it begins in them: a slice would be counted in and out by every caller.


@inlined
def count(distances, copies, start, size, limit):
    """Copies of the points whose squared distance is at most `limit`; their numbers of copies begin at `start`."""
    counted, none, limits = zeros(copies), zeros(copies), everywhere(limit)
    for i in range(0, size, WIDE):
        counted = counted + choose(load(distances, i) <= limits, load(copies, start + i), none)
    return total(counted)


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


@inlined
def slack(distance, rounding):
    """How far squared distances that count as equal to this one may be from it; `neighbors.slack`, for one number."""
    return rounding * (2.0 * np.sqrt(distance) + rounding)


@compiled
def settle_ties(distances, copies, start, size, rank, rounding, kth, values, bases, first_base, sums, place):
    """Sums of the queries of all lanes over the `rank` nearest of the points in doubt, and their base, ties shared.

    `kth`: for every lane the k-th distance or a smaller one, or -1; from there it goes up from one distance to the next.
    """
    none = zeros(copies)
    while True:
        counted, following = none, everywhere(np.inf)
        for i in range(size):
            distance = load(distances, WIDE * i)
            within = distance <= kth
            counted = counted + choose(within, spread(copies, start + i), none)
            following = smaller(choose(within, np.inf, distance), following)
        less = counted < rank
        if many(less) == 0:
            break
        kth = choose(less, following, kth)
    apart = rounding * (2.0 * root(kth) + rounding)
    low, high = kth - apart, kth + apart
    inside, either = none, none
    for i in range(size):
        distance, here = load(distances, WIDE * i), spread(copies, start + i)
        inside = inside + choose(distance < low, here, none)
        either = either + choose(distance <= high, here, none)
    left, sharing = f64(rank - inside), f64(either - inside)
    for column in range(sums.shape[0]):
        inside, either = everywhere(bases[first_base + column]), none
        for i in range(size):
            distance, value = load(distances, WIDE * i), spread(values, column * size + i)
            inside = inside + choose(distance < low, value, none)
            either = either + choose((distance <= high) & (distance >= low), value, none)
        whole, tied = f64(inside), f64(either)
        # the points tied at the k-th distance share the places that are left
        store(sums, column * sums.shape[1] + place, choose(left == sharing, whole + tied, whole + left / sharing * tied))


@inlined
def settle(
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
    rounding,
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
    """Sums of the queries first … last, side by side, by a cut between two distances; by `settle_ties` if these are tied."""
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
        counted = none
        for i in range(size):
            counted = counted + choose(load(distances, WIDE * i) <= limit, spread(copies, start + i), none)
        less, more = counted < rank, counted > rank
        off = less | more
        if many(off) == 0:
            break
        below, at_below = choose(less, limit, below), choose(less, f64(counted), at_below)
        above, at_above = choose(more, limit, above), choose(more, f64(counted), at_above)
        share = smaller(larger((rank + 0.5 - at_below) / (at_above - at_below), 0.05), 0.95)
        limit = choose(off, below + (above - below) * share, limit)
    inside, beyond = everywhere(bases[first_base]), everywhere(np.inf)
    for i in range(size):
        distance = load(distances, WIDE * i)
        within = distance <= limit
        inside = inside + choose(within, spread(values, i), none)
        beyond = smaller(choose(within, np.inf, distance), beyond)
    store(sums, place, f64(inside))
    for column in range(1, sums.shape[0]):
        inside = everywhere(bases[first_base + column])
        for i in range(size):
            inside = inside + choose(load(distances, WIDE * i) <= limit, spread(values, column * size + i), none)
        store(sums, column * sums.shape[1] + place, f64(inside))
    apart = slack(reach, rounding)
    if many(off | (beyond <= limit + apart)) > 0:
        limit, kth = choose(off, choose(at_below > 0.0, below, -1.0), limit), everywhere(-1.0)
        for i in range(size):
            distance = load(distances, WIDE * i)
            kth = larger(choose(distance <= limit, distance, -1.0), kth)
        if many(off | (beyond <= kth + apart)) > 0:
            settle_ties(distances, copies, start, size, rank, rounding, kth, values, bases, first_base, sums, place)


@compiled
def screen(
    box,
    lists,
    xs,
    ys,
    copies,
    start,
    room,
    size,
    points,
    rank,
    rounding,
    sure,
    reach,
    near,
    far,
    settled,
    bases,
    first_base,
):
    """Sort the points listed for a box: surely in (added to its base), surely out, in doubt (listed for the next level).

    `near` and `far` bound the squared distance to any query in the box; rounding is monotone, so they hold in floating
    point too. No k-th neighbour is beyond `reach`, and at most k points are within `sure`. A point is surely out where it is
    not even tied at `reach`; it is surely in where it is so far within `sure` that, for any query, either the k-th distance
    is too large for a tie with it, or all that is tied with it is within `sure` as well, so that the ties are all whole.
    The list begins at `start`, and that of the next level `room` further. Returns the number of points in doubt, of
    neighbours still to be found among them, and both limits for this box.
    """
    x0, x1, y0, y1 = box
    for i in range(0, size, WIDE):
        x, y = load(xs, start + i), load(ys, start + i)
        left, right, under, over = x0 - x, x - x1, y0 - y, y - y1
        dx, dy = larger(larger(left, right), 0.0), larger(larger(under, over), 0.0)
        store(near, i, dx * dx + dy * dy)
        dx, dy = smaller(left, right), smaller(under, over)
        store(far, i, dx * dx + dy * dy)
    if start == 0:  # a new box: the farthest of all points bounds every distance
        farthest = zeros(far)
        for i in range(0, size, WIDE):
            farthest = larger(choose(load(copies, i) > 0, load(far, i), 0.0), farthest)
        reach = largest(farthest)
    floor = max(sure, 0.0)
    _, reach = narrow(far, copies, start, size, rank, floor, reach)
    close, beyond = narrow(near, copies, start, size, rank + 1, floor, reach)
    farthest_tie = reach + slack(reach, rounding)
    if beyond == reach and count(near, copies, start, size, farthest_tie) == rank:
        within = np.inf  # no more points than are wanted can be near enough
    else:
        sure = close if close > floor else sure
        within = sure - 4.0 * slack(sure, rounding) if sure > 0.0 else -1.0  # twice would do, but for rounding
    inside, end = 0, start + room
    for i in range(0, size, WIDE):
        candidate, away = load(near, i) <= farthest_tie, load(far, i)
        which, taken, kept = load(lists, start + i), candidate & (away <= within), candidate & (away > within)
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
def scale(sums, size, units, response, k):
    """Turn the sums (C, size) of some queries into mean responses, in place: response r is written to row r."""
    for i in range(size):
        row, mean = 0, 0.0
        for column in range(units.size):
            if response[column] > row:
                sums[row, i] = mean / k
                row, mean = response[column], 0.0
            mean += sums[column, i] * units[column]
        sums[row, i] = mean / k


@compiled
def serve(xs, ys, rows, starts, first_bucket, last_bucket, places, points, units, response, k, rounding, room, out):
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
        sums,
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
            rounding,
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
        alike = (x0 == x1 and y0 == y1) or rank == 0
        if alike or last - first <= LEAF or size <= DOUBTFUL or level > DEPTH:
            everyone = 0
            for i in range(size):
                everyone += pc[start + i]
                for column in range(columns):
                    listed[column * size + i] = points[lists[start + i], 1 + column]
            asked = first + 1 if alike else last
            for begin in range(first, asked, LEAF):
                end = min(asked, begin + LEAF)
                for i in range(begin, end, WIDE):
                    stop, place = min(i + WIDE, end), i - begin
                    for j in range(i, stop):
                        expect(out, rows[j] * out.shape[1])
                    settle(
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
                        rounding,
                        sure,
                        reach,
                        everyone,
                        distances,
                        listed,
                        bases,
                        first_base,
                        sums,
                        place,
                    )
                scale(sums, end - begin, units, response, k)
                for i in range(begin, end):
                    for column in range(out.shape[1]):
                        out[rows[i], column] = sums[column, i - begin]
            for i in range(asked, last):
                for column in range(out.shape[1]):
                    out[rows[i], column] = out[rows[first], column]
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
def assign(xs, ys, x_cuts, y_cuts, buckets, codes, sizes):
    """The bucket of every query, and how many each bucket gets; `buckets` is scratch space for a few of them."""
    none = zeros(sizes)
    for i in range(0, xs.size, WIDE):
        some = min(WIDE, xs.size - i)
        x, y = load_some(xs, i, some, 0.0), load_some(ys, i, some, 0.0)
        across, up = none, none
        for j in range(x_cuts.size):
            across = across + choose(x > x_cuts[j], 1, none)
            up = up + choose(y > y_cuts[j], 1, none)
        store(buckets, 0, interleaved(across) + interleaved(up) * 2)
        for lane in range(some):
            codes[i + lane] = buckets[lane]
            sizes[buckets[lane]] += 1


@inlined
def interleaved(number):
    """A number of up to 8 bits, with a zero bit after each: two of them make the place along a curve that fills the grid."""
    number = (number | (number << 4)) & 0x0F0F
    number = (number | (number << 2)) & 0x3333
    return (number | (number << 1)) & 0x5555


@compiled
def scatter(xs, ys, codes, first, places, bucket_x, bucket_y, rows):
    """Bring the queries of each bucket together."""
    for i in range(xs.size):
        place = places[codes[i]]
        places[codes[i]] += 1
        bucket_x[place], bucket_y[place], rows[place] = xs[i], ys[i], first + i


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
    sums = np.empty((columns, LEAF + WIDE))  # sums of some queries, written out together: each store would stall
    return lists, copies, xs, ys, bases, listed, near, far, settled, distances, todo, limits, boxes, *spare, sums


def neighbor_means(
    xs: np.ndarray,
    ys: np.ndarray,
    points: np.ndarray,
    copies: np.ndarray,
    values: np.ndarray,
    units: np.ndarray,
    response: np.ndarray,
    k: int,
    rounding: float,
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
    bucket_x, bucket_y, rows = np.empty(n + WIDE), np.empty(n + WIDE), np.empty(n + WIDE, np.int64)

    def bring(part: slice) -> None:
        scatter(xs[part], ys[part], codes[part], part.start, places[part.start // step], bucket_x, bucket_y, rows)

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
        some = task * width, (task + 1) * width
        serve(bucket_x, bucket_y, rows, starts, *some, points, table, units, response, k, rounding, room, out)
        rooms.append(room)

    parallel(work, int(np.count_nonzero(np.diff(ends))), 1)
    return out
