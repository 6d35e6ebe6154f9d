"""The compiled half of `confidence`: one pass over an (n, K) block finds all that margin, entropy and argmax need.

A maximum is the same in any order, and sums are taken over whole multiples of 2^-50: so lanes work side by side, and the
results are those of the NumPy half to the last bit. Only the rough sums that show a row to be wrong depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wdistill.weights._jit import kernel
from wdistill.weights._simd import (
    BYTES,
    choose,
    exp,
    expect,
    f64,
    foremost,
    i32,
    i64,
    larger,
    largest,
    load,
    load_some,
    log,
    many,
    same_bits,
    smaller,
    store,
    total,
    zeros,
)

WIDE = 64  # classes from which a row is long enough to vectorise along it; below, rows are turned into columns first
AHEAD = 1024  # entries ahead that are prefetched: the processor does not prefetch beyond a page of memory by itself
GROUP = 256  # rows turned into columns at once

compiled: Callable[..., Any] = kernel()


@compiled
def fixed(x, magic):
    """0 <= x <= 1 as a whole number of quanta: the low bits of x + magic."""
    return same_bits(f64(x) + magic, i64) - same_bits(magic, i64)


@compiled
def exp_of(numbers, out):
    for i in range(0, numbers.size, BYTES // 8):
        store(out, i, exp(load_some(numbers, i, numbers.size - i, 0.0)))


@compiled
def log_of(numbers, out):
    for i in range(0, numbers.size, BYTES // 8):
        store(out, i, log(load_some(numbers, i, numbers.size - i, 1.0)))


@compiled
def ranked(line, least, ahead):
    """Largest number, second largest, a rough sum of all, and whether a sign bit is set; no number is below `least`."""
    k = line.size
    step, zero = BYTES // line.itemsize, line.dtype.type(0)
    first, sums = zeros(line), zeros(line)
    signs = same_bits(first, i32)
    first = first + least
    second = first
    for j in range(0, k, step):
        if ahead:
            expect(line, j + AHEAD)
        if j + step <= k:
            value = load(line, j)
            sums = sums + value
        else:
            value = load_some(line, j, k - j, least)
            sums = sums + load_some(line, j, k - j, zero)
        second = larger(second, smaller(first, value))
        first = larger(first, value)
        signs = signs | same_bits(value, i32)
    top = largest(first)
    held = first == top
    other = top if many(held) > 1 else largest(choose(held, second, first))
    return top, other, total(sums), many(signs < 0) > 0


@compiled
def place(line, number):
    """The first position of a number; 0 if it is absent."""
    k = line.size
    step = BYTES // line.itemsize
    for j in range(0, k - step + 1, step):
        same = load(line, j) == number
        if many(same) > 0:
            return j + foremost(same)
    for j in range(k // step * step, k):
        if line[j] == number:
            return j
    return 0


@compiled
def wide_probabilities(rows, zero, nan, magic, want, top, second, best, check, spread):
    """A row with a negative number has NaN as its `check`."""
    n, k = rows.shape
    step = BYTES // rows.itemsize
    for i in range(n):
        line = rows[i]
        top[i], second[i], sums, negative = ranked(line, zero, True)
        best[i] = place(line, top[i])
        check[i] = nan if negative else sums
        if want:
            quanta = same_bits(f64(zeros(line)), i64)
            for j in range(0, k, step):
                value = load(line, j) if j + step <= k else load_some(line, j, k - j, zero)
                quanta = quanta + fixed(-(value * log(value)), magic)
            spread[i] = total(quanta)


@compiled
def wide_logits(rows, least, limit, magic, want, top, second, best, check, sums, spread):
    n, k = rows.shape
    step = BYTES // rows.itemsize
    for i in range(n):
        line = rows[i]
        peak, second[i], check[i], _ = ranked(line, least, False)
        top[i], best[i] = peak, place(line, peak)
        powers, quanta = same_bits(f64(zeros(line)), i64), same_bits(f64(zeros(line)), i64)
        for j in range(0, k, step):
            expect(line, j + AHEAD)
            value = (load(line, j) if j + step <= k else load_some(line, j, k - j, least)) - peak
            power = exp(value)
            powers = powers + same_bits(f64(power) + magic, i64)  # `fixed`, its constant taken off at the end
            if want:
                quanta = quanta + fixed(power * smaller(-value, limit), magic)
        sums[i] = total(powers) - (k + step - 1) // step * step * same_bits(magic, i64)
        spread[i] = total(quanta)


@compiled
def turn(rows, start, size, columns):
    """Rows start … start + size as columns of GROUP entries, one after the other."""
    k = rows.shape[1]
    flat = rows[start : start + size].reshape(size * k)
    for j in range(k):
        column, entries = columns[j * GROUP : j * GROUP + size], flat[j:]
        for i in range(column.size):
            column[i] = entries[i * k]


@compiled
def narrow(rows, columns, nan, limit, magic, logits, want, top, second, best, check, sums, spread):
    """All results of short rows, several rows side by side; a negative probability makes its row's `check` NaN.

    `columns` is room for K columns of GROUP entries, and every array that is written to has room for lanes beyond the rows.
    """
    n, k = rows.shape
    step = BYTES // rows.itemsize
    for start in range(0, n, GROUP):
        size = min(GROUP, n - start)
        turn(rows, start, size, columns)
        for i in range(0, size, step):
            first, last = load(columns, i), load(columns, GROUP + i)
            place = choose(last > first, 1, zeros(columns))
            peak, next_best = larger(last, first), choose(last > first, first, last)
            for j in range(2, k):
                value = load(columns, j * GROUP + i)
                above = value > peak
                next_best = larger(choose(above, peak, value), next_best)
                place = choose(above, j, place)
                peak = choose(above, value, peak)
            rough, powers = zeros(columns), same_bits(f64(zeros(columns)), i64)
            quanta = powers
            for j in range(k):
                value = load(columns, j * GROUP + i)
                if logits:
                    rough = rough + value
                    power = exp(value - peak)
                    powers = powers + fixed(power, magic)
                    if want:
                        quanta = quanta + fixed(power * smaller(peak - value, limit), magic)
                else:
                    rough = rough + choose(value >= 0, value, nan)
                    if want:
                        quanta = quanta + fixed(-(value * log(value)), magic)
            store(top, start + i, peak)
            store(second, start + i, next_best)
            store(best, start + i, i32(place))
            store(check, start + i, rough)
            store(sums, start + i, powers)
            store(spread, start + i, quanta)
