"""Means over the k nearest points: the brute-force reference, and two halves that agree to the last bit."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from wdistill.weights import neighbors as module
from wdistill.weights.neighbors import neighbors


def plane(rng, sort, m):
    """m points of the plane."""
    if sort == "grid":  # most distances are tied
        return rng.integers(0, 4, (m, 2)) / 4
    if sort == "line":
        return np.stack([rng.random(m), np.zeros(m)], axis=1)
    if sort == "identical":
        return np.full((m, 2), 0.3)
    if sort == "scales":  # clusters within clusters, 10^-1 … 10^-300
        return 10.0 ** -rng.integers(1, 300, (m, 1)) * rng.choice([-1, 1], (m, 2))
    if sort == "corner":  # saturated confidences: almost all at (1, 1)
        return np.where(rng.random((m, 1)) < 0.8, 1.0, rng.random((m, 2)))
    if sort == "denormal":
        return rng.integers(-3, 3, (m, 2)) * 5e-324
    if sort == "huge":
        return rng.normal(size=(m, 2)) * 1e150
    if sort == "zeros":  # 0.0 and −0.0 are one place
        return rng.choice([0.0, -0.0, 1.0], (m, 2))
    return rng.random((m, 2))


SORTS = ["random", "grid", "line", "identical", "scales", "corner", "denormal", "huge", "zeros"]


def compiled_means(monkeypatch, prepared, queries):
    with monkeypatch.context() as patch:
        patch.setattr(module, "SMALL", 0)
        return prepared.means(queries)


def plain_means(monkeypatch, prepared, queries):
    with monkeypatch.context() as patch:
        patch.setattr(module, "compiles", lambda: False)
        return prepared.means(queries)


def exact_means(points, responses, queries, k):
    answer = []
    for query in queries:
        share = reference.shares(points, query, k)
        answer.append([float(sum(part * Fraction(column[row]) for row, part in share.items())) for column in responses.T])
    return np.array(answer)


@pytest.mark.slow
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("k", [1, 3, 40])
def test_both_halves_are_the_reference(monkeypatch, sort, k):
    rng = np.random.default_rng(SORTS.index(sort))
    points = plane(rng, sort, 40)
    responses = np.stack([rng.integers(0, 2, 40), rng.lognormal(0, 4, 40), np.zeros(40)], axis=1)
    queries = np.concatenate([plane(rng, sort, 60), points[:10], rng.random((10, 2))])
    prepared = neighbors(points, responses, k)
    wanted = exact_means(points, responses, queries, k)
    plain, compiled = plain_means(monkeypatch, prepared, queries), compiled_means(monkeypatch, prepared, queries)
    np.testing.assert_allclose(plain, wanted, rtol=1e-13, atol=1e-14 * responses.max())
    assert plain.tobytes() == compiled.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize(("m", "k"), [(1, 1), (2, 1), (7, 7), (300, 9), (300, 299), (1500, 20)])
def test_halves_agree_to_the_last_bit(monkeypatch, sort, m, k):
    rng = np.random.default_rng(m + k)
    points, queries = plane(rng, sort, m), plane(rng, sort, 3000)
    queries[::7] = points[rng.integers(0, m, len(queries[::7]))]
    queries[1::7] = queries[1]
    responses = np.stack([rng.integers(0, 2, m).astype(float), rng.lognormal(0, 6, m)], axis=1)
    prepared = neighbors(points, responses, k)
    assert plain_means(monkeypatch, prepared, queries).tobytes() == compiled_means(monkeypatch, prepared, queries).tobytes()


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from(SORTS), st.sampled_from(SORTS), st.data())
def test_halves_agree_wherever_queries_fall(seed, m, of_points, of_queries, data):
    rng = np.random.default_rng(seed)
    prepared = neighbors(plane(rng, of_points, m), rng.lognormal(0, 3, (m, 2)), data.draw(st.integers(1, m)))
    queries = plane(rng, of_queries, data.draw(st.integers(1, 200)))
    with pytest.MonkeyPatch.context() as patch:
        assert plain_means(patch, prepared, queries).tobytes() == compiled_means(patch, prepared, queries).tobytes()


@pytest.mark.parametrize("half", ["plain", "compiled"])
def test_hundred_thousand_copies_are_one_place(monkeypatch, half):
    points = np.repeat([[0.2, 0.2], [0.9, 0.9]], [100_000, 3], axis=0)
    responses = np.r_[np.arange(100_000) % 2, [1.0, 1.0, 1.0]][:, None]
    prepared = neighbors(points, responses, 159)
    queries = np.array([[0.2, 0.2], [0.9, 0.9], [0.0, 0.0]])
    means = (plain_means if half == "plain" else compiled_means)(monkeypatch, prepared, queries)
    np.testing.assert_allclose(means[:, 0], [0.5, (3 + 156 * 0.5) / 159, 0.5], rtol=1e-15)


@pytest.mark.parametrize("half", ["plain", "compiled"])
def test_ties_share_the_places_left(monkeypatch, half):
    points = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    responses = np.array([[10.0], [1.0], [2.0], [6.0], [100.0]])
    query = np.zeros((1, 2))
    for k, wanted in [(1, 10), (2, (10 + 3) / 2), (3, (10 + 6) / 3), (4, 19 / 4), (5, 119 / 5)]:
        prepared = neighbors(points, responses, k)
        means = (plain_means if half == "plain" else compiled_means)(monkeypatch, prepared, query)
        assert means[0, 0] == pytest.approx(wanted, rel=1e-15)


@pytest.mark.parametrize("half", ["plain", "compiled"])
def test_all_points_are_neighbours_when_k_is_m(monkeypatch, half):
    rng = np.random.default_rng(8)
    points, responses = rng.random((50, 2)), rng.random((50, 2))
    prepared = neighbors(points, responses, 50)
    means = (plain_means if half == "plain" else compiled_means)(monkeypatch, prepared, points)
    np.testing.assert_allclose(means, np.tile(responses.mean(axis=0), (50, 1)), rtol=1e-14)
    assert len(np.unique(means, axis=0)) == 1


@pytest.mark.parametrize("sort", SORTS)
def test_order_of_points_and_queries_is_nothing(monkeypatch, sort):
    rng = np.random.default_rng(3)
    points, responses, queries = plane(rng, sort, 80), rng.lognormal(0, 5, (80, 2)), plane(rng, sort, 500)
    first = plain_means(monkeypatch, neighbors(points, responses, 5), queries)
    order, asked = rng.permutation(80), rng.permutation(500)
    prepared = neighbors(points[order], responses[order], 5)
    assert plain_means(monkeypatch, prepared, queries).tobytes() == first.tobytes()
    assert compiled_means(monkeypatch, prepared, queries[asked]).tobytes() == first[asked].tobytes()


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads_change_no_bit(monkeypatch, threads):
    rng = np.random.default_rng(4)
    points, responses, queries = plane(rng, "corner", 200), rng.random((200, 2)), plane(rng, "corner", 150_000)
    prepared = neighbors(points, responses, 8)
    monkeypatch.setenv("WDISTILL_THREADS", threads)
    some = rng.choice(150_000, 2000, replace=False)
    plain = plain_means(monkeypatch, prepared, queries[some])
    assert compiled_means(monkeypatch, prepared, queries)[some].tobytes() == plain.tobytes()


def test_chunks_give_the_bits_of_the_whole(monkeypatch):
    rng = np.random.default_rng(6)
    queries = plane(rng, "random", 1000)
    prepared = neighbors(plane(rng, "random", 90), rng.lognormal(0, 5, (90, 3)), 5)
    whole = compiled_means(monkeypatch, prepared, queries)
    pieces = [compiled_means(monkeypatch, prepared, queries[i : i + 37]) for i in range(0, 1000, 37)]
    assert np.concatenate(pieces).tobytes() == whole.tobytes()


def test_means_do_not_lose_small_responses_beside_large_ones():
    responses = np.array([[1e7], [1e-6], [3e-6]])
    means = neighbors(np.array([[0.0, 0], [1, 0], [2, 0]]), responses, 1).means(np.array([[0.0, 0], [1, 0], [2, 0]]))
    np.testing.assert_allclose(means, responses, rtol=1e-12)


@pytest.mark.parametrize("size", [1e-260, 1e-308, 5e-324])
def test_responses_next_to_nothing_have_means_next_to_nothing(size):
    """Their quanta would be below the smallest number there is."""
    means = neighbors(np.zeros((4, 2)), np.full((4, 1), size), k=2).means_at(np.zeros(1), np.zeros(1))
    np.testing.assert_allclose(means, size, atol=1e-270)


def test_arrays_given_are_not_changed():
    rng = np.random.default_rng(7)
    points, responses, queries = plane(rng, "zeros", 30), rng.random((30, 1)), rng.random((9, 2))
    before = [array.tobytes() for array in (points, responses, queries)]
    neighbors(points, responses, 3).means(queries)
    assert [array.tobytes() for array in (points, responses, queries)] == before
