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


@compiled
def largest(row, first, last, least):
    found = least
    for j in range(first, last):
        found = max(found, row[j])
    return found


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})
def rough_sum(row):
    """A sum in any order: good enough to see that a row is nowhere near 1."""
    total = row[0]
    for j in range(1, row.size):
        total += row[j]
    return total


@compiled
def top_two(keys, k, least):
    """Largest key, second largest, and where the largest stands first."""
    first, second, span = least, least, 0
    for start in range(0, k, SPAN):
        key = largest(keys, start, min(start + SPAN, k), least)
        if key > first:
            first, second, span = key, first, start
        elif key > second:
            second = key
    best = span
    while keys[best] != first:
        best += 1
    second = max(second, largest(keys, span, best, least))
    return first, max(second, largest(keys, best + 1, min(span + SPAN, k), least)), best


@compiled
def wide_probabilities(rows, bits, least, magic, want, top, second, best, check, spread):
    """Negative numbers and NaN have large unsigned bits: they come out as `top`, where the caller sees them."""
    n, k = rows.shape
    for i in range(n):
        top[i], second[i], best[i] = top_two(bits[i], k, least)
        check[i] = rough_sum(rows[i])
        if want:
            q = 0
            for j in range(k):
                q += fixed(-(rows[i, j] * log(rows[i, j])), magic)
            spread[i] = q


@compiled
def wide_logits(rows, bits, shift, mask, least, limit, magic, want, keys, powers, best, second, check, total, spread):
    """`keys` and `powers` are room for one row and one span; `second` comes out as a key."""
    n, k = rows.shape
    for i in range(n):
        for j in range(k):
            keys[j] = bits[i, j] ^ ((bits[i, j] >> shift) & mask)
        _, second[i], best[i] = top_two(keys, k, least)
        check[i] = rough_sum(rows[i])
        peak = rows[i, best[i]]
        s, q = 0, 0
        for start in range(0, k, SPAN):
            size = min(SPAN, k - start)
            for j in range(size):
                powers[j] = exp(rows[i, start + j] - peak)
            for j in range(size):
                s += fixed(powers[j], magic)
            if want:
                for j in range(size):
                    q += fixed(powers[j] * min(peak - rows[i, start + j], limit), magic)
        total[i], spread[i] = s, q


@compiled
def turn(rows, start, size, columns):
    for i in range(size):
        for j in range(rows.shape[1]):
            columns[j, i] = rows[start + i, j]


@compiled
def rank_columns(columns, k, size, start, top, second, best):
    for i in range(size):
        one, two = columns[0, i], columns[1, i]
        best[start + i] = 1 if two > one else 0
        top[start + i] = two if two > one else one
        second[start + i] = one if two > one else two
    for j in range(2, k):
        for i in range(size):
            value, peak = columns[j, i], top[start + i]
            above = value > peak
            other = peak if above else value
            second[start + i] = other if other > second[start + i] else second[start + i]
            best[start + i] = j if above else best[start + i]
            top[start + i] = value if above else peak


@compiled
def narrow_probabilities(rows, columns, zero, nan, magic, want, top, second, best, check, spread):
    """`columns` is room for K columns of GROUP rows; a negative number makes its row's `check` NaN."""
    n, k = rows.shape
    for start in range(0, n, GROUP):
        size = min(GROUP, n - start)
        turn(rows, start, size, columns)
        rank_columns(columns, k, size, start, top, second, best)
        for i in range(size):
            check[start + i] = zero
        for j in range(k):
            for i in range(size):
                check[start + i] += columns[j, i] if columns[j, i] >= zero else nan
        if want:
            for i in range(size):
                spread[start + i] = 0
            for j in range(k):
                for i in range(size):
                    spread[start + i] += fixed(-(columns[j, i] * log(columns[j, i])), magic)


@compiled
def narrow_logits(rows, columns, zero, limit, magic, want, top, second, best, check, total, spread):
    """`columns` has one column more than there are classes, for the powers."""
    n, k = rows.shape
    for start in range(0, n, GROUP):
        size = min(GROUP, n - start)
        turn(rows, start, size, columns)
        rank_columns(columns, k, size, start, top, second, best)
        for i in range(size):
            check[start + i], total[start + i], spread[start + i] = zero, 0, 0
        for j in range(k):
            for i in range(size):
                check[start + i] += columns[j, i]
                columns[k, i] = exp(columns[j, i] - top[start + i])
            for i in range(size):
                total[start + i] += fixed(columns[k, i], magic)
            if want:
                for i in range(size):
                    spread[start + i] += fixed(columns[k, i] * min(top[start + i] - columns[j, i], limit), magic)
