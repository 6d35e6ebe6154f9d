"""The compiled half of `confidence`: one pass over an (n, K) block finds all that margin, entropy and argmax need.

Maxima are taken over the numbers' bits, which order like the numbers themselves, and sums over whole multiples of 2^-50:
both vectorise without any freedom to reorder roundings, so the results are those of the NumPy half to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from wdistill import elementary

WIDE = 64  # classes from which a row is long enough to vectorise along it; below, rows are turned into columns first
SPAN = 128  # entries of a row whose maximum is taken at once
GROUP = 256  # rows turned into columns at once

compiled: Callable[..., Any] = njit(nogil=True, cache=True, error_model="numpy")


def exp(x: Any) -> Any: ...


def log(x: Any) -> Any: ...


@overload(exp, inline="always")
def _exp(x: Any) -> Any:
    return elementary.exp32 if x == types.float32 else elementary.exp64


@overload(log, inline="always")
def _log(x: Any) -> Any:
    return elementary.log32 if x == types.float32 else elementary.log64


@compiled
def fixed(x, magic):
    """0 <= x <= 1 as a whole number of quanta: the low bits of x + magic."""
    return np.float64(np.float64(x) + magic).view(np.int64) - np.float64(magic).view(np.int64)


# A maximum of whole numbers has one value in any order; the sum beside it may be taken in any order, since it only serves to
# see that a row is nowhere near what it should be.
any_order: Callable[..., Any] = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz"})


@any_order
def largest(keys, first, last, least):
    part = keys[first:last]
    found = least
    for j in range(part.size):
        found = part[j] if part[j] > found else found
    return found


@any_order
def largest_and_sum(keys, values, least):
    found, total = least, values[0] - values[0]
    for j in range(keys.size):
        found = keys[j] if keys[j] > found else found
        total += values[j]
    return found, total


@compiled
def keys_of(bits, shift, mask, keys):
    """The key of a number is its bits with the order of negative numbers turned round, and −0.0 made 0.0."""
    zero = mask ^ mask
    for j in range(bits.size):
        key = bits[j] ^ ((bits[j] >> shift) & mask)
        keys[j] = zero if key == -1 else key
    return keys


@compiled
def top_two(keys, values, k, least):
    """Largest key, second largest, where the largest stands first, and a rough sum of the values."""
    first, second, span, total = least, least, 0, values[0] - values[0]
    for start in range(0, k, SPAN):
        end = min(start + SPAN, k)
        key, part = largest_and_sum(keys[start:end], values[start:end], least)
        total += part
        if key > first:
            first, second, span = key, first, start
        elif key > second:
            second = key
    best = span
    while keys[best] != first:
        best += 1
    second = max(second, largest(keys, span, best, least))
    return first, max(second, largest(keys, best + 1, min(span + SPAN, k), least)), best, total


@compiled
def wide_probabilities(rows, bits, least, magic, want, top, second, best, check, spread):
    """Negative numbers and NaN have large unsigned bits: they come out as `top`, where the caller sees them."""
    n, k = rows.shape
    for i in range(n):
        top[i], second[i], best[i], check[i] = top_two(bits[i], rows[i], k, least)
        if want:
            q = 0
            line = rows[i]
            for j in range(k):
                q += fixed(-(line[j] * log(line[j])), magic)
            spread[i] = q


@compiled
def wide_logits(rows, bits, shift, mask, least, limit, magic, want, keys, powers, best, second, check, total, spread):
    """`keys` and `powers` are room for one row and one span; `second` comes out as a key."""
    n, k = rows.shape
    for i in range(n):
        _, second[i], best[i], check[i] = top_two(keys_of(bits[i], shift, mask, keys), rows[i], k, least)
        peak = rows[i, best[i]]
        s, q = np.int64(0), np.int64(0)
        for start in range(0, k, SPAN):
            span = rows[i, start : min(start + SPAN, k)]
            size = span.size
            for j in range(size):
                powers[j] = exp(span[j] - peak)
            for j in range(size):
                s += np.float64(np.float64(powers[j]) + magic).view(np.int64)
            if want:
                for j in range(size):
                    q += fixed(powers[j] * min(peak - span[j], limit), magic)
        total[i], spread[i] = s - k * np.float64(magic).view(np.int64), q  # `fixed`, its constant taken off at the end


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
