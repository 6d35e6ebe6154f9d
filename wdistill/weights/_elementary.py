"""exp and log from additions and multiplications alone, so that NumPy and compiled code give the same bits everywhere.

Each function works on an array and, compiled by numba, on one number or on lanes of them: one definition for
all; `_simd` replaces the six names below.
Relative error, tested: log32 2e-7, exp64 and log64 4e-16, exp32 2e-7 + 1e-7·|x|: one product reduces x, and where that
shows, exp(x) is small and adds nothing to a sum that holds exp(0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

f32, f64, i32, i64, maximum = np.float32, np.float64, np.int32, np.int64, np.maximum


def same_bits(x: Any, kind: Any) -> Any:
    """x read as another kind of number of its size."""
    return x.view(kind)


def exp32(x: Any) -> Any:
    """exp(x) for float32 x <= 0; below -87 it stays at exp(-87)."""
    t = maximum(x, f32(-87.0)) * f32(1.4426950408889634)
    power = i32(t - f32(0.5))  # towards zero, so the nearest whole number for t <= 0
    r = t - f32(power)
    y = f32(0.0013264713434516643)  # 2^r, minimax on |r| <= 1/2
    y = y * r + f32(0.009671523280101312)
    y = y * r + f32(0.05550733872325352)
    y = y * r + f32(0.24022241922916296)
    y = y * r + f32(0.6931469774775206)
    y = y * r + f32(1.0)
    return same_bits(i32(same_bits(f32(y), i32) + (power << i32(23))), f32)


def exp64(x: Any) -> Any:
    """exp(x) for float64 x <= 0; below -700 it stays at exp(-700)."""
    x = maximum(x, f64(-700.0))
    power = i64(x * f64(1.4426950408889634) - f64(0.5))
    whole = f64(power)
    r = (x - whole * f64(0.693147180369123816490)) - whole * f64(1.90821492927058770002e-10)
    y = f64(1 / 6227020800)  # the Taylor series to r^13: the remainder is below 5e-18
    y = y * r + f64(1 / 479001600)
    y = y * r + f64(1 / 39916800)
    y = y * r + f64(1 / 3628800)
    y = y * r + f64(1 / 362880)
    y = y * r + f64(1 / 40320)
    y = y * r + f64(1 / 5040)
    y = y * r + f64(1 / 720)
    y = y * r + f64(1 / 120)
    y = y * r + f64(1 / 24)
    y = y * r + f64(1 / 6)
    y = y * r + f64(0.5)
    y = y * r + f64(1.0)
    y = y * r + f64(1.0)
    return y * same_bits(i64((power + i64(1023)) << i64(52)), f64)


def log32(x: Any) -> Any:
    """log(x) for positive, normal float32 x."""
    bits = same_bits(f32(x), i32)
    power = i32((bits - i32(0x3F3504F3)) >> i32(23))  # so that the mantissa is within [sqrt(1/2), sqrt(2))
    m = same_bits(i32(bits - (power << i32(23))), f32)
    s = (m - f32(1.0)) / (m + f32(1.0))
    t = s * s
    y = f32(1 / 9)
    y = y * t + f32(1 / 7)
    y = y * t + f32(1 / 5)
    y = y * t + f32(1 / 3)
    whole = f32(power)
    return whole * f32(0.693359375) + (whole * f32(-2.1219444005469057e-4) + (f32(2.0) * s + f32(2.0) * s * (t * y)))


def log64(x: Any) -> Any:
    """log(x) for positive, normal float64 x."""
    bits = same_bits(f64(x), i64)
    power = i64((bits - i64(0x3FE6A09E667F3BCD)) >> i64(52))
    m = same_bits(i64(bits - (power << i64(52))), f64)
    s = (m - f64(1.0)) / (m + f64(1.0))
    t = s * s
    y = f64(1 / 23)
    y = y * t + f64(1 / 21)
    y = y * t + f64(1 / 19)
    y = y * t + f64(1 / 17)
    y = y * t + f64(1 / 15)
    y = y * t + f64(1 / 13)
    y = y * t + f64(1 / 11)
    y = y * t + f64(1 / 9)
    y = y * t + f64(1 / 7)
    y = y * t + f64(1 / 5)
    y = y * t + f64(1 / 3)
    whole = f64(power)
    high = whole * f64(0.693147180369123816490)
    return high + (whole * f64(1.90821492927058770002e-10) + (f64(2.0) * s + f64(2.0) * s * (t * y)))
