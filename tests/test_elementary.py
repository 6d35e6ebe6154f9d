"""exp and log of our own: how exact they are, and that compiled code gives the bits that NumPy gives."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from numba import njit

from wdistill.weights._elementary import exp32, exp64, log32, log64
from wdistill.weights._simd import compilable, load, store

RNG = np.random.default_rng(5)
NEGATIVE = np.concatenate([-(10.0 ** RNG.uniform(-20, 1.93, 3000)), np.linspace(-87, 0, 1000), [0.0, -0.0, -87.0, -1e-45]])
DEEP = np.concatenate([NEGATIVE, np.linspace(-700, 0, 1000)])
NEAR_ONE = np.concatenate([1 - 10.0 ** RNG.uniform(-15, -0.3, 1500), 1 + 10.0 ** RNG.uniform(-15, -0.3, 500), [1.0]])
SINGLE = np.concatenate([NEAR_ONE, 2.0 ** RNG.uniform(-126, 20, 2000), [2.0**-126]])
DOUBLE = np.concatenate([NEAR_ONE, 2.0 ** RNG.uniform(-1022, 20, 2000), [2.0**-1022]])

CASES = [
    pytest.param(exp32, "exp", NEGATIVE.astype(np.float32), (2e-7, 1e-7), id="exp32"),
    pytest.param(exp64, "exp", DEEP, (4e-16, 0), id="exp64"),
    pytest.param(log32, "ln", SINGLE.astype(np.float32), (2e-7, 0), id="log32"),
    pytest.param(log64, "ln", DOUBLE, (4e-16, 0), id="log64"),
]


@pytest.mark.parametrize(("function", "exact", "points", "bound"), CASES)
def test_error_is_within_the_stated_bound(function, exact, points, bound):
    with localcontext(prec=50):
        for point, found in zip(points.tolist(), function(points).tolist(), strict=True):
            true = getattr(Decimal(point), exact)()
            allowed = Decimal(bound[0]) + Decimal(bound[1]) * abs(Decimal(point))
            assert abs(Decimal(found) - true) <= allowed * abs(true), point


@pytest.mark.parametrize(("function", "exact", "points", "bound"), CASES)
def test_type_is_kept(function, exact, points, bound):
    assert function(points).dtype == points.dtype


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "points"),
    [
        (exp32, np.concatenate([NEGATIVE, [-1e30, -np.inf]]).astype(np.float32)),
        (exp64, np.concatenate([DEEP, [-1e300, -np.inf]])),
        (log32, np.concatenate([SINGLE, [0.0, 1e-45, 1e-40]]).astype(np.float32)),
        (log64, np.concatenate([DOUBLE, [0.0, 5e-324, 1e-310]])),
    ],
    ids=["exp32", "exp64", "log32", "log64"],
)
def test_compiled_gives_the_same_bits(function, points):
    each = njit(compilable(function))
    compiled = np.array([each(point) for point in points], points.dtype)
    assert compiled.tobytes() == function(points).tobytes()

    @njit
    def in_lanes(points, found):
        for i in range(0, points.size, 64 // points.itemsize):
            store(found, i, each(load(points, i)))

    points = np.resize(points, (len(points) // 16 + 1) * 16)
    found = np.empty_like(points)
    in_lanes(points, found)
    assert found.tobytes() == function(points).tobytes()


@pytest.mark.parametrize(("function", "last"), [(exp32, np.float32(-87)), (exp64, np.float64(-700))])
def test_exp_stays_at_its_end(function, last):
    ends = np.array([last, 2 * last, -np.inf], last.dtype)
    assert len(set(function(ends).tolist())) == 1
    assert function(ends)[0] > 0


@pytest.mark.parametrize("function", [exp32, exp64])
def test_exp_of_zero_is_one(function):
    number = np.float32 if function is exp32 else np.float64
    assert function(np.array([0.0, -0.0], number)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("function", [log32, log64])
def test_zero_times_log_zero_is_zero(function):
    zeros = np.array([0.0, -0.0], np.float32 if function is log32 else np.float64)
    assert (zeros * function(zeros) == 0).all()
