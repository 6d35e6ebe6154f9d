"""Margin, entropy and argmax: against 50 digits, and two halves that agree to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.strategies import DTYPES, KINDS, SORTS, predictions, probabilities
from wdistill import InputError, entropy, margin
from wdistill.core import checks
from wdistill.weights import confidence as module
from wdistill.weights.confidence import scan

CLASSES = [2, 3, 10, 63, 64, 100, 129, 1000]
GOAL = {np.float64: 1e-12, np.float32: 2e-6, np.float16: 2e-6}


def bits(found):
    return [part.tobytes() for part in (found.argmax, found.margin, found.entropy, found.certainty) if part is not None]


def both_halves(values, kind, **options):
    """What the plain and the compiled half find, as bytes."""
    plain = bits(scan(values, kind, **options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL", 0)
        return plain, bits(scan(values, kind, **options))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sort", SORTS)
def test_values_are_those_of_50_digits(dtype, kind, sort):
    rng = np.random.default_rng(11)
    for k in (2, 3, 10):
        values = predictions(rng, 25, k, kind, sort, dtype)
        found = scan(values, kind, entropy=True)
        np.testing.assert_allclose(found.margin, reference.margin(values, kind), rtol=0, atol=GOAL[dtype])
        np.testing.assert_allclose(found.entropy, reference.entropy(values, kind), rtol=GOAL[dtype], atol=GOAL[dtype])
        assert found.argmax.tolist() == [reference.argmax(row) for row in values]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("k", "n"), [(100, 10), (1000, 2), (10_000, 1)])
def test_many_classes_keep_the_goal(dtype, kind, k, n):
    rng = np.random.default_rng(k)
    values = predictions(rng, n, k, kind, "random", dtype)
    np.testing.assert_allclose(margin(values, kind), reference.margin(values, kind), rtol=0, atol=GOAL[dtype])
    np.testing.assert_allclose(entropy(values, kind), reference.entropy(values, kind), rtol=GOAL[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_margin_of_probabilities_is_one_exact_subtraction(dtype):
    values = probabilities(np.random.default_rng(1), 500, 7, "random", dtype)
    ordered = np.sort(values.astype(np.float64), axis=1)
    assert margin(values).tobytes() == (ordered[:, -1] - ordered[:, -2]).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_halves_agree_to_the_last_bit(k, kind, dtype):
    rng = np.random.default_rng(k)
    for sort in SORTS:
        values = predictions(rng, 300 if k < 200 else 20, k, kind, sort, dtype)
        for want in (False, True):
            plain, compiled = both_halves(values, kind, entropy=want, certainty=True)
            assert plain == compiled, (sort, want)


@given(st.integers(0, 2**32 - 1), st.sampled_from(CLASSES), st.sampled_from(KINDS), st.sampled_from(DTYPES))
def test_halves_agree_on_any_rows(seed, k, kind, dtype):
    rng = np.random.default_rng(seed)
    values = predictions(rng, int(rng.integers(1, 30)), k, kind, rng.choice(SORTS), dtype)
    plain, compiled = both_halves(values, kind, entropy=True)
    assert plain == compiled


@pytest.mark.parametrize("k", [2, 10, 64, 129])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_agree_on_negative_zeros_and_denormals(k, dtype):
    values = np.zeros((4, k), dtype)
    values[:, 0] = 1
    values[0, 1:] = -0.0
    values[1, 1:] = np.finfo(dtype).smallest_subnormal
    values[2, :2] = 0.5
    values[3, 0], values[3, -1] = -0.0, 1
    plain, compiled = both_halves(values, "probabilities", entropy=True)
    assert plain == compiled
    assert scan(values).argmax.tolist() == [0, 0, 0, k - 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [10, 100])
def test_negative_zero_logits_tie_with_zero(monkeypatch, k, dtype):
    values = np.full((1, k), -1, dtype)
    values[0, 3], values[0, 7] = -0.0, 0.0
    assert scan(values, "logits").argmax.tolist() == [3]
    monkeypatch.setattr(module, "SMALL", 0)
    assert scan(values, "logits").argmax.tolist() == [3]


@pytest.mark.parametrize("k", [3, 100])
def test_halves_agree_on_extreme_logits(k):
    for dtype in (np.float32, np.float64):
        far = np.finfo(dtype).max / 8
        values = np.random.default_rng(2).choice([-far, -1e4, -1, 0, 1, 1e4, far], (200, k)).astype(dtype)
        plain, compiled = both_halves(values, "logits", entropy=True)
        assert plain == compiled
        found = scan(values, "logits", entropy=True)
        assert np.isfinite(found.margin).all() and np.isfinite(found.entropy).all()


@pytest.mark.parametrize("half", ["plain", "compiled"])
def test_logprobs_may_be_minus_infinite(monkeypatch, half):
    if half == "compiled":
        monkeypatch.setattr(module, "SMALL", 0)
    for k in (2, 100):
        values = np.full((2, k), -np.inf)
        values[0, 1] = 0
        values[1, :2] = np.log(0.5)
        found = scan(values, "logprobs", entropy=True)
        np.testing.assert_allclose(found.margin, [1, 0], atol=1e-15)
        np.testing.assert_allclose(found.entropy, [0, np.log(2)], atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_give_the_bits_of_the_whole(kind):
    values = predictions(np.random.default_rng(3), 600, 10, kind, "random", np.float32)
    whole = entropy(values, kind)
    assert np.concatenate([entropy(values[i : i + 41], kind) for i in range(0, 600, 41)]).tobytes() == whole.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [10, 100])
def test_order_of_classes_changes_no_bit(kind, k):
    rng = np.random.default_rng(4)
    values = predictions(rng, 100, k, kind, "random", np.float32)
    turned = values[:, rng.permutation(k)]
    assert margin(values, kind).tobytes() == margin(turned, kind).tobytes()
    assert entropy(values, kind).tobytes() == entropy(turned, kind).tobytes()


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("kind", ["probabilities", "logits"])
def test_threads_change_no_bit(monkeypatch, threads, kind):
    values = np.tile(predictions(np.random.default_rng(5), 1000, 100, kind, "random", np.float32), (20, 1))
    alone = bits(scan(values[:1000], kind, entropy=True))
    monkeypatch.setenv("WDISTILL_THREADS", threads)
    for limit in (0, 1 << 30):
        monkeypatch.setattr(module, "SMALL", limit)
        found = scan(values, kind, entropy=True)
        assert found.margin.reshape(20, -1).tobytes() == alone[1] * 20
        assert found.entropy.reshape(20, -1).tobytes() == alone[2] * 20


@pytest.mark.parametrize("half", ["plain", "compiled"])
@pytest.mark.parametrize("k", [3, 64])
def test_first_of_equal_largest_classes_wins(monkeypatch, half, k):
    if half == "compiled":
        monkeypatch.setattr(module, "SMALL", 0)
    values = np.zeros((3, k))
    values[0, :2] = values[1, 1:3] = 0.5
    values[2] = 1 / k
    assert scan(values).argmax.tolist() == [0, 1, 0]
    assert scan(values).margin.tolist() == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [2, 64])
def test_renormalized_rows_are_those_that_sum_to_one(dtype, k):
    rng = np.random.default_rng(6)
    scaled = (probabilities(rng, 50, k) * rng.uniform(0.3, 1, (50, 1))).astype(dtype)
    plain, compiled = both_halves(scaled, "probabilities", entropy=True, renormalize=True)
    assert plain == compiled
    found = scan(scaled, renormalize=True, entropy=True)
    np.testing.assert_allclose(found.margin, reference.margin(scaled, renormalize=True), atol=1e-12)
    np.testing.assert_allclose(found.entropy, reference.entropy(scaled, renormalize=True), atol=GOAL[dtype])


def test_renormalizing_takes_any_sum_but_zero():
    values = np.array([[3e-20, 1e-20], [3e-200, 1e-200], [30.0, 10.0]])
    np.testing.assert_allclose(scan(values, renormalize=True).margin, [0.5, 0.5, 0.5], rtol=1e-12)
    for bad in ([0.0, 0.0], [0.5, -0.1], [np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(InputError):
            scan(np.array([[0.7, 0.3], bad]), renormalize=True)


def test_entropy_is_never_negative():
    values = np.array([[1 + 5e-9, 0.0], [1.0, 0.0]])
    assert (entropy(values) >= 0).all()


def test_near_ties_of_logits_keep_their_order():
    gaps = np.array([1e-3, 1e-6, 1e-9, 1e-12])
    values = np.stack([gaps, np.zeros(4)], axis=1)
    np.testing.assert_allclose(margin(values, "logits"), reference.margin(values, "logits"), atol=1e-15)


# ---- precision that numbers carry --------------------------------------------------------------------------------------


def widened(values, short, wide):
    """Numbers of a short type in a wide one; bfloat16 as float32 with half of the bits cut off."""
    if short != "bfloat16":
        return values.astype(short).astype(wide)
    single = values.astype(np.float32)
    return ((single.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(wide)


def softmax(rng, n, k):
    values = np.exp(rng.normal(size=(n, k)) * 3)
    return values / values.sum(axis=1, keepdims=True)


WIDENED = [("float32", np.float64), ("float16", np.float64), ("float16", np.float32)]
WIDENED += [("bfloat16", np.float32), ("bfloat16", np.float64)]


@pytest.mark.parametrize(("short", "wide"), WIDENED)
@pytest.mark.parametrize("half", ["plain", "compiled"])
@pytest.mark.parametrize("k", [2, 10, 300])
def test_numbers_widened_from_a_shorter_type_may_be_off_as_that_type(monkeypatch, short, wide, half, k):
    if half == "compiled":
        monkeypatch.setattr(module, "SMALL", 0)
    values = widened(softmax(np.random.default_rng(9), 300, k), short, wide)
    assert checks.precision(values) == short
    assert k == 2 or np.abs(values.sum(axis=1, dtype=np.float64) - 1).max() > checks.tolerance(values.dtype.name, k)
    ordered = np.sort(values.astype(np.float64), axis=1)
    assert margin(values).tobytes() == (ordered[:, -1] - ordered[:, -2]).tobytes()
    assert np.isfinite(entropy(values)).all()


def test_logarithms_widened_from_a_shorter_type_may_be_off_as_that_type():
    logs = np.log(softmax(np.random.default_rng(9), 300, 10)).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(margin(logs, "logprobs"), reference.margin(logs, "logprobs"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_no_excuse_for_other_sums(dtype):
    values = softmax(np.random.default_rng(9), 300, 10)
    for share, short in ((0.9, "float32"), (0.98, "float16"), (0.9, "bfloat16")):
        with pytest.raises(InputError, match="sum to 1"):
            margin(widened(values * share, short, dtype))
    with pytest.raises(InputError, match="sum to 1"):
        margin((values * (1 + 1e-4)).astype(dtype))
    with pytest.raises(InputError, match="sum to 1"):  # one row of another precision
        margin(np.concatenate([widened(values, "float16", dtype), values[:1].astype(dtype)]))


def test_short_fractions_are_exact_numbers():
    values = np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0], [0.5, 0.46875]])
    assert checks.precision(values) == "float64"
    with pytest.raises(InputError, match="row 3"):
        margin(values)


def test_tolerance_that_is_given_counts():
    values = softmax(np.random.default_rng(9), 300, 10).astype(np.float32).astype(np.float64)
    with pytest.raises(InputError, match="1e-09"):
        scan(values, tolerance=1e-9)


@pytest.mark.parametrize("dtype", [">f8", ">f4", "f2", "i8"])
def test_precision_of_every_type(dtype):
    name = {">f8": "float64", ">f4": "float32", "f2": "float16", "i8": "float64"}[dtype]
    assert checks.precision((np.random.default_rng(1).random((9, 4)) * 100).astype(dtype)[::2]) == name
    assert checks.precision(np.zeros((0, 3), np.float64)) == "float64"
