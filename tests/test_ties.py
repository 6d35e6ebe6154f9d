"""Confidences on a grid (votes, stated percentages): distances that are equal but for rounding share, as fractions would."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import write
from tests.test_neighbors import SORTS, compiled_means, plain_means, plane
from wdistill import Evidence, Scores, debiased, load, save, weigh
from wdistill.tables.options import Options, Paths
from wdistill.tables.weigh import weigh_files
from wdistill.weights import neighbors as module
from wdistill.weights.confidence import margin
from wdistill.weights.neighbors import neighbors

pytestmark = pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")

M, N = 60, 200
# how many votes there are, and how they become probabilities
GRIDS = {
    "votes of 5": (5, lambda counts: counts / 5),
    "votes of 7": (7, lambda counts: counts / 7),
    "votes of 9, added up": (9, lambda counts: np.where(np.arange(9) < counts[..., None], 1 / 9, 0).sum(axis=-1)),
    "steps of 0.05": (20, lambda counts: counts * 0.05),
    "percentages": (100, lambda counts: counts / 100),
}


@dataclass(frozen=True)
class Votes:
    """Counts (rows, K) of teacher and student on the validation and the unlabeled rows, and labels of the former."""

    labels: np.ndarray
    counts: list[np.ndarray]
    grid: str

    def arrays(self, *types):
        """As probabilities, of one type or one for each array."""
        convert = GRIDS[self.grid][1]
        chosen = types if len(types) == 4 else types * 4
        return [convert(counts).astype(kind) for counts, kind in zip(self.counts, chosen, strict=True)]

    def evidence(self, *types):
        return Evidence(self.labels, *self.arrays(*types))

    @property
    def margins(self):
        """In votes: whole numbers."""
        ordered = [np.sort(counts, axis=1) for counts in self.counts]
        return [(rows[:, -1] - rows[:, -2]).tolist() for rows in ordered]


def votes(grid, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    total = GRIDS[grid][0]
    counts = [rng.multinomial(total, rng.dirichlet(np.ones(classes)), size=rows) for rows in (M, M, N, N)]
    labels = np.where(rng.random(M) < 0.6, counts[0].argmax(axis=1), rng.integers(0, classes, M))
    return Votes(labels, counts, grid)


def exact_means(given, responses, k):
    """Mean responses (n, R) with whole numbers for distances, so that ties are ties."""
    *known, teacher, student = given.margins
    seen = {}
    for x, y in {*zip(teacher, student, strict=True)}:
        distances = [(a - x) ** 2 + (b - y) ** 2 for a, b in zip(*known, strict=True)]
        last = sorted(distances)[k - 1]
        inside, tied = ([row for row, d in enumerate(distances) if test(d)] for test in (last.__gt__, last.__eq__))
        part = Fraction(k - len(inside), len(tied))
        share = dict.fromkeys(inside, Fraction(1)) | dict.fromkeys(tied, part)
        seen[x, y] = [float(sum(w * Fraction(column[row]) for row, w in share.items()) / k) for column in responses.T]
    return np.array([seen[place] for place in zip(teacher, student, strict=True)])


def wanted(fitted, given):
    responses = np.stack([fitted.wrong, np.where(fitted.wrong, fitted.distortion, 0.0)], axis=1)
    means = exact_means(given, responses, fitted.k)
    return means[:, 0], 1.0 + (means[:, 1] - means[:, 0])


def check(found, fitted, given):
    error, distortion = wanted(fitted, given)
    np.testing.assert_allclose(found.error, error, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.distortion, distortion, rtol=1e-12)


@pytest.fixture(params=["plain", "compiled"])
def half(request, monkeypatch):
    if request.param == "compiled":
        monkeypatch.setattr(module, "SMALL", 0)


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_on_a_grid_are_those_of_exact_arithmetic(half, grid, classes, dtype):
    for seed in range(3):
        given = votes(grid, classes, seed)
        evidence = given.evidence(dtype)
        for k in (None, 1, 7):
            fitted = debiased.fit(evidence, neighbors=k)
            check(fitted.weigh_rows(evidence.rows), fitted, given)


@pytest.mark.parametrize("grid", ["votes of 5", "votes of 7", "votes of 9, added up", "steps of 0.05"])
def test_weights_on_a_coarse_grid_are_exact_in_float16(half, grid):
    given = votes(grid)
    fitted = debiased.fit(given.evidence(np.float16))
    check(fitted.weigh_rows(given.evidence(np.float16).rows), fitted, given)


@pytest.mark.parametrize("kind", ["logits", "logprobs"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_logarithms_of_votes_are_on_the_grid_too(half, kind, dtype):
    given = votes("votes of 7")
    with np.errstate(divide="ignore"):
        logs = [np.log(array) for array in given.arrays(np.float64)]
    if kind == "logits":
        logs = [np.maximum(array, -60) + 3 for array in logs]
    evidence = Evidence(given.labels, *(array.astype(dtype) for array in logs), kind=kind)
    fitted = debiased.fit(evidence)
    check(fitted.weigh_rows(evidence.rows), fitted, given)


@pytest.mark.parametrize("coarse", range(4))
def test_one_array_of_another_type_breaks_no_tie(half, coarse):
    given = votes("votes of 7")
    types = [np.float32 if i == coarse else np.float64 for i in range(4)]
    evidence = given.evidence(*types)
    fitted = debiased.fit(evidence)
    check(fitted.weigh_rows(evidence.rows), fitted, given)


def test_doubles_that_were_float32_break_no_tie(half):
    given = votes("votes of 7")
    arrays = [array.astype(np.float64) for array in given.arrays(np.float32)]
    evidence = Evidence(given.labels, *arrays, tolerance=1e-5)
    fitted = debiased.fit(evidence)
    check(fitted.weigh_rows(evidence.rows), fitted, given)


def test_exact_numbers_in_one_array_do_not_blur_the_other():
    rng = np.random.default_rng(3)
    hot, soft = np.eye(3)[rng.integers(0, 3, M)], rng.dirichlet(np.ones(3), M)
    labels = rng.integers(0, 3, M)
    assert debiased.fit(Evidence(labels, hot, soft)).rounding == debiased.fit(Evidence(labels, soft, soft)).rounding < 1e-12


@pytest.mark.parametrize("unit", [1.0, 100.0, 1e-25])
@pytest.mark.parametrize("outlier", [False, True])
def test_scores_on_a_grid_share_whatever_their_unit(half, unit, outlier):
    given = votes("steps of 0.05", classes=2)
    known, scores = given.arrays(np.float64)[:2], [margin(array) * unit for array in given.arrays(np.float64)]
    if outlier:  # farther from every query than all others
        given.counts[0][:2], scores[0][:2] = [10**9, 0], 1e30 * unit
    fitted = debiased.fit(Evidence(given.labels, *known), confidence=Scores(*scores))
    check(weigh(fitted, *scores[2:]), fitted, given)


def test_confidence_of_the_users_own_shares_on_a_grid(half):
    given = votes("votes of 7", classes=2)
    evidence = given.evidence(np.float32)
    fitted = debiased.fit(evidence, confidence=lambda rows: 100 * (2 * rows.max(axis=1) - 1))
    check(fitted.weigh_rows(evidence.rows), fitted, given)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("grid", ["votes of 7", "steps of 0.05"])
def test_order_and_chunks_change_no_bit_on_a_grid(half, grid, dtype):
    given, rng = votes(grid), np.random.default_rng(1)
    whole = debiased.explain(given.evidence(dtype))
    order, asked = rng.permutation(M), rng.permutation(N)
    known_teacher, known_student, teacher, student = given.arrays(dtype)
    fitted = debiased.fit(Evidence(given.labels[order], known_teacher[order], known_student[order]))
    for size in (1, 37, N):
        for start in range(0, N, size):
            rows = asked[start : start + size]
            found = weigh(fitted, teacher[rows], student[rows])
            assert found.error.tobytes() == whole.error[rows].tobytes()
            assert found.weights.tobytes() == whole.weights[rows].tobytes()


def test_tables_of_different_precision_break_no_tie(tmp_path):
    given = votes("votes of 7")
    known_teacher, known_student, *_ = given.arrays(np.float64)
    *_, teacher, student = given.arrays(np.float32)
    gold = {"id": np.arange(M), "label": given.labels, "teacher": known_teacher, "student": known_student}
    ids, order = 1000 + np.arange(N), np.random.default_rng(2).permutation(N)
    parts = {"teacher": {"id": ids, "teacher": teacher}, "student": {"id": ids[order], "student": student[order]}}
    unlabeled = [str(write(tmp_path / f"{name}.parquet", part)) for name, part in parts.items()]
    paths = Paths([str(write(tmp_path / "gold.csv", gold))], unlabeled)
    weigh_files(paths, tmp_path / "weights.parquet", Options())
    found = pq.read_table(tmp_path / "weights.parquet")
    error, distortion = wanted(debiased.fit(Evidence(given.labels, known_teacher, known_student)), given)
    assert found["error"].to_numpy().tolist() == error.astype(np.float32).tolist()
    np.testing.assert_allclose(found["distortion"].to_numpy(), distortion, rtol=1e-7)


def test_tables_may_hold_float32_as_doubles(tmp_path):
    rng = np.random.default_rng(4)
    short = {rows: [rng.dirichlet(np.ones(9), rows).astype(np.float32) for _ in range(2)] for rows in (M, N)}
    assert np.abs(short[N][0].sum(axis=1, dtype=np.float64) - 1).max() > 1e-8
    labels = rng.integers(0, 9, M)
    for dtype, name in ((np.float32, "short"), (np.float64, "wide")):
        both = {rows: {"teacher": t.astype(dtype), "student": s.astype(dtype)} for rows, (t, s) in short.items()}
        gold = write(tmp_path / f"gold-{name}.parquet", {"id": np.arange(M), "label": labels, **both[M]})
        rest = write(tmp_path / f"rest-{name}.parquet", {"id": 1000 + np.arange(N), **both[N]})
        weigh_files(Paths([str(gold)], [str(rest)]), tmp_path / f"{name}.parquet", Options())
    assert pq.read_table(tmp_path / "short.parquet").equals(pq.read_table(tmp_path / "wide.parquet"))


def test_file_of_a_fitted_rule_keeps_the_precision(tmp_path):
    given = votes("votes of 7")
    evidence = given.evidence(np.float32, np.float32, np.float64, np.float64)
    fitted = debiased.fit(evidence)
    save(fitted, tmp_path / "rule.npz")
    again = load(tmp_path / "rule.npz")
    assert again.rounding == fitted.rounding > 1e-8
    check(again.weigh_rows(evidence.rows), fitted, given)


@pytest.mark.parametrize(("rounding", "rare"), [(2.0**-44, 0), (3 * 2.0**-23, 2e-3)])
def test_neighbours_of_continuous_data_hardly_change(rounding, rare):
    rng = np.random.default_rng(5)
    points, responses, queries = rng.random((1000, 2)), rng.random((1000, 2)), rng.random((5000, 2))
    exact = neighbors(points, responses, 16).means(queries)
    found = neighbors(points, responses, 16, rounding).means(queries)
    assert np.mean((found != exact).any(axis=1)) <= rare
    assert np.abs(found - exact).max() <= 1 / 16


ROUNDINGS = [0.0, 2.0**-52, 2.0**-44, 3 * 2.0**-23, 2.0**-10, 0.1, 1e-300, 1e140]


@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.sampled_from(SORTS), st.sampled_from(ROUNDINGS), st.data())
def test_halves_agree_whatever_counts_as_equal(seed, m, sort, rounding, data):
    rng = np.random.default_rng(seed)
    points, queries = plane(rng, sort, m), plane(rng, sort, data.draw(st.integers(1, 300)))
    queries[::3] = points[rng.integers(0, m, len(queries[::3]))] * (1 + 2.0**-52)
    prepared = neighbors(points, rng.lognormal(0, 3, (m, 2)), data.draw(st.integers(1, m)), rounding)
    with pytest.MonkeyPatch.context() as patch:
        assert plain_means(patch, prepared, queries).tobytes() == compiled_means(patch, prepared, queries).tobytes()
