"""The compiled half of `confidence`: one pass over an (n, K) block finds all that margin, entropy and argmax need.

A maximum is the same in any order, and sums are taken over whole multiples of 2^-50: so lanes work side by side, and the
results are those of the NumPy half to the last bit. Only the rough sums that show a row to be wrong depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from wdistill.fast_lanes import (
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
    total,
    zeros,
)

WIDE = 64  # classes from which a row is long enough to vectorise along it; below, rows are turned into columns first
AHEAD = 1024  # entries ahead that the processor is told to fetch: it does not look beyond a page of memory by itself
GROUP = 256  # rows turned into columns at once

compiled: Callable[..., Any] = njit(nogil=True, cache=True, error_model="numpy")


@compiled
def fixed(x, magic):
    """0 <= x <= 1 as a whole number of quanta: the low bits of x + magic."""
    return same_bits(f64(x) + magic, i64) - same_bits(magic, i64)


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
    """Where a number stands first; 0 if nowhere."""
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
    part = rows[start : start + size]
    for i in range(size):
        for j in range(part.shape[1]):
            columns[j, i] = part[i, j]


@compiled
def rank_columns(columns, k, size, top, second, best):
    for i in range(size):
        one, two = columns[0, i], columns[1, i]
        best[i] = 1 if two > one else 0
        top[i] = two if two > one else one
        second[i] = one if two > one else two
    for j in range(2, k):
        line = columns[j]
        for i in range(size):
            value, peak = line[i], top[i]
            above = value > peak
            other = peak if above else value
            second[i] = other if other > second[i] else second[i]
            best[i] = j if above else best[i]
            top[i] = value if above else peak


@compiled
def narrow_probabilities(rows, columns, zero, nan, magic, want, top, second, best, check, spread):
    """`columns` is room for K columns of GROUP rows; a negative number makes its row's `check` NaN."""
    n, k = rows.shape
    for start in range(0, n, GROUP):
        end = min(start + GROUP, n)
        size = end - start
        turn(rows, start, size, columns)
        rank_columns(columns, k, size, top[start:end], second[start:end], best[start:end])
        checks = check[start:end]
        for i in range(size):
            checks[i] = zero
        for j in range(k):
            line = columns[j]
            for i in range(size):
                checks[i] += line[i] if line[i] >= zero else nan
        if want:
            spreads = spread[start:end]
            for i in range(size):
                spreads[i] = 0
            for j in range(k):
                line = columns[j]
                for i in range(size):
                    spreads[i] += fixed(-(line[i] * log(line[i])), magic)


@compiled
def narrow_logits(rows, columns, zero, limit, magic, want, top, second, best, check, total, spread):
    """`columns` has one column more than there are classes, for the powers."""
    n, k = rows.shape
    powers = columns[k]
    for start in range(0, n, GROUP):
        end = min(start + GROUP, n)
        size = end - start
        turn(rows, start, size, columns)
        rank_columns(columns, k, size, top[start:end], second[start:end], best[start:end])
        checks, totals, spreads, peaks = check[start:end], total[start:end], spread[start:end], top[start:end]
        for i in range(size):
            checks[i] = zero
        for i in range(size):
            totals[i] = 0
        for i in range(size):
            spreads[i] = 0
        for j in range(k):
            line = columns[j]
            for i in range(size):
                checks[i] += line[i]
            for i in range(size):
                powers[i] = exp(line[i] - peaks[i])
            for i in range(size):
                totals[i] += fixed(powers[i], magic)
            if want:
                for i in range(size):
                    spreads[i] += fixed(powers[i] * min(peaks[i] - line[i], limit), magic)
