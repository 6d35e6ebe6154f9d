"""Rules on arrays: the reference, the properties that hold for any input, and every form an input may come in."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wdistill
from tests import reference
from tests.strategies import KINDS, predictions, probabilities, problem, problems
from wdistill import (
    ConfigError,
    EntropyMean,
    Evidence,
    InputError,
    Recipe,
    Scores,
    arm,
    compose,
    debiased,
    debiasing_weight,
    distortion,
    entropy,
    fidelity,
    margin,
    oracle,
    shuffled,
    threshold,
    unweighted,
    weigh,
)
from wdistill.core.settings import settings_of
from wdistill.tables.options import Options
from wdistill.weights import confidence as confidence_module
from wdistill.weights import neighbors as neighbors_module
from wdistill.weights.rule import as_rule, rule
from wdistill.weights.rules import RULES, RuleSettings
from wdistill.weights.saved import to_bytes

pytestmark = [
    pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning"),
]

ESTIMATES = ("paper", "conditional", "ratio")
TARGETS = ("soft", "hard")
MEASURES = {"margin": (margin, reference.margin), "entropy": (entropy, reference.entropy)}


def evidence(given, **more):
    return Evidence(*given.arrays, kind=given.kind, **more)


def same_bits(one, other):
    for name in ("weights", "error", "distortion"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    assert (one.clipped, one.tied, one.floored) == (other.clipped, other.tied, other.floored)


def awkward(sort, seed=0):
    """(problem, scores of the m validation and n unlabeled rows) of one awkward sort."""
    rng = np.random.default_rng(seed)
    options = {
        "float16": {"dtype": np.float16},
        "one class": {"wrong": "one class"},
        "all right": {"wrong": "none"},
        "all wrong": {"wrong": "all"},
        "saturated": {"sort": "saturated"},
        "tied": {"sort": "tied"},
        "underflow": {"sort": "underflow"},
        "one-hot": {"sort": "one_hot"},
        "logits": {"kind": "logits"},
        "logprobs": {"kind": "logprobs", "sort": "underflow"},
        "steep logits": {"kind": "logits", "dtype": np.float32},
    }.get(sort, {})
    given = problem(rng, 61, 80, 4, **options)
    if sort == "steep logits":
        for array in given.arrays[1:]:
            array *= 1000
    scores = rng.random((2, 141))
    if sort in ("saturated", "tied"):
        scores = np.round(scores * 4) / 4
    if sort == "one-hot":
        scores[:] = 1.0
    if sort == "extreme scores":
        scores = scores * 10.0 ** rng.integers(-300, 150, scores.shape)
    return given, scores


AWKWARD = [
    "random",
    "saturated",
    "tied",
    "one class",
    "all right",
    "all wrong",
    "float16",
    "underflow",
    "one-hot",
    "logits",
    "logprobs",
    "steep logits",
    "extreme scores",
]


@pytest.mark.slow
@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("sort", AWKWARD)
@pytest.mark.parametrize("k", [None, 1, 61])
def test_given_confidences_give_the_weights_of_the_reference(sort, targets, estimate, k):
    given, scores = awkward(sort)
    known, asked = scores[:, :61], scores[:, 61:]
    options = {"targets": targets, "estimate": estimate}
    fitted = debiased.fit(Evidence(*given.arrays[:3], kind=given.kind), confidence=Scores(*known), neighbors=k, **options)
    found = weigh(fitted, *asked)
    options |= {"kind": given.kind, "rounding": 2.0**-44 * reference.scale_of(known)}
    weights, error, seen, clipped = reference.weigh(known.T, asked.T, *given.arrays[:3], k=k, **options)
    np.testing.assert_allclose(found.weights, weights, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.error, error, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.distortion, seen, rtol=1e-9, atol=1e-9)
    assert clipped[0] <= found.clipped <= clipped[1]
    values, floored = reference.distortions(*given.arrays[:3], kind=given.kind, targets=targets)
    assert found.floored == floored
    assert found.largest_distortion == pytest.approx(values.max(), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_end_to_end(estimate, measure, kind, dtype):
    given = problem(np.random.default_rng(21), 80, 250, 4, kind=kind, dtype=dtype)
    ours, theirs = MEASURES[measure]
    found = debiased(evidence(given), confidence=ours, estimate=estimate)
    plane = [theirs(array, kind) for array in given.arrays[1:]]
    points, queries = np.stack(plane[:2], axis=1), np.stack(plane[2:], axis=1)
    options = {"kind": kind, "estimate": estimate, "rounding": reference.rounding_of(*given.arrays[1:], kind=kind)}
    wanted = reference.weigh(points, queries, *given.arrays[:3], **options)[0]
    assert np.mean(np.abs(found - wanted) > 1e-9) < 0.005  # rows in which a last bit decides between near neighbours


@pytest.mark.parametrize("sort", ["saturated", "tied", "one_hot", "uniform", "underflow"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_margins_end_to_end_even_where_all_is_tied(sort, dtype):
    given = problem(np.random.default_rng(22), 90, 300, 3, sort=sort, dtype=dtype)
    found = debiased(evidence(given))
    plane = [reference.margin(array.astype(np.float64)) for array in given.arrays[1:]]
    points, queries = np.stack(plane[:2], axis=1), np.stack(plane[2:], axis=1)
    wanted = reference.weigh(points, queries, *given.arrays[:3], rounding=reference.rounding_of(*given.arrays[1:]))[0]
    assert np.mean(np.abs(found - wanted) > 1e-9) < 0.005


def test_confidence_may_be_any_function():
    given = problem(np.random.default_rng(23), 70, 200, 4, kind="logits")
    found = debiased(evidence(given), confidence=lambda rows: rows.max(axis=1) ** 2)
    plane = [[float(max(reference.distribution(row, "logits"))) ** 2 for row in array] for array in given.arrays[1:]]
    wanted = reference.weigh(np.transpose(plane[:2]), np.transpose(plane[2:]), *given.arrays[:3], kind="logits")[0]
    assert np.mean(np.abs(found - wanted) > 1e-9) < 0.005


def test_scores_of_the_unlabeled_rows_are_used():
    given, scores = awkward("random")
    measure = Scores(scores[0, :61], scores[1, :61], scores[0, 61:], scores[1, 61:])
    fitted = debiased.fit(evidence(given), confidence=measure)
    assert debiased(evidence(given), confidence=measure).tobytes() == weigh(fitted, *scores[:, 61:]).weights.tobytes()


# ---- properties ----------------------------------------------------------------------------------------------------------


@given(problems(), st.sampled_from([margin, entropy]))
def test_weights_are_finite_and_within_0_and_1(given, measure):
    found = debiased.explain(evidence(given), confidence=measure, **given.options)
    assert len(found.weights) == len(given.teacher)
    assert np.isfinite([found.weights, found.error, found.distortion]).all()
    assert ((found.weights >= 0) & (found.weights <= 1)).all()
    assert ((found.error >= 0) & (found.error <= 1)).all()
    assert 0 <= found.clipped <= len(found.weights)
    assert np.isfinite(found.largest_distortion)


@given(problems())
def test_weight_is_1_without_error_or_distortion(given):
    found = debiased.explain(evidence(given), **given.options)
    assert (found.weights[(found.error == 0) | (found.distortion <= 1)] == 1).all()


@given(problems(), st.integers(0, 2**32 - 1))
def test_order_of_validation_rows_changes_no_bit(given, seed):
    order = np.random.default_rng(seed).permutation(len(given.labels))
    moved = [array[order] for array in given.arrays[:3]]
    first = debiased.explain(evidence(given), **given.options)
    same_bits(first, debiased.explain(Evidence(*moved, *given.arrays[3:], kind=given.kind), **given.options))


@given(problems(), st.integers(0, 2**32 - 1))
def test_order_of_unlabeled_rows_changes_no_bit(given, seed):
    order = np.random.default_rng(seed).permutation(len(given.teacher))
    moved = Evidence(*given.arrays[:3], given.teacher[order], given.student[order], kind=given.kind)
    first = debiased(evidence(given), **given.options)
    assert debiased(moved, **given.options).tobytes() == first[order].tobytes()


@given(problems(), st.integers(1, 9))
def test_chunks_give_the_bits_of_the_whole(given, size):
    fitted = debiased.fit(evidence(given), **given.options)
    whole = debiased.explain(evidence(given), **given.options)
    starts = range(0, len(given.teacher), size)
    parts = [weigh(fitted, given.teacher[i : i + size], given.student[i : i + size], kind=given.kind) for i in starts]
    assert np.concatenate([part.weights for part in parts]).tobytes() == whole.weights.tobytes()
    assert sum(part.clipped for part in parts) == whole.clipped
    assert sum(part.tied for part in parts) == whole.tied


@given(problems(), st.data())
def test_every_validation_row_twice_with_k_doubled_is_the_same(given, data):
    k = data.draw(st.integers(1, len(given.labels)))
    once = debiased.explain(evidence(given), neighbors=k, **given.options)
    double = [np.concatenate([array, array]) for array in given.arrays[:3]]
    twice = debiased.explain(Evidence(*double, *given.arrays[3:], kind=given.kind), neighbors=2 * k, **given.options)
    np.testing.assert_allclose(twice.weights, once.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(twice.distortion, once.distortion, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(problems())
def test_all_rows_as_neighbours_give_the_validation_mean(given):
    m = len(given.labels)
    found = debiased.explain(evidence(given), neighbors=m, **given.options)
    wrong = np.array(reference.losses(*given.arrays[:3], kind=given.kind)[0])
    np.testing.assert_allclose(found.error, wrong.mean(), rtol=1e-14)
    assert len(set(found.weights.tolist())) == 1
    if given.options["estimate"] == "paper":
        values, _ = reference.distortions(*given.arrays[:3], kind=given.kind, targets=given.options["targets"])
        np.testing.assert_allclose(found.distortion, values.mean(), rtol=1e-9, atol=1e-12)


@given(problems(), st.floats(0, 1))
def test_weights_of_0_and_1_sum_the_losses_of_the_kept_rows(given, at):
    weights = threshold(evidence(given), threshold=at)
    losses = np.random.default_rng(1).integers(0, 100, len(weights)).astype(float)
    kept = np.array([value >= at for value in margin(given.teacher, given.kind)])
    assert set(weights.tolist()) <= {0.0, 1.0}
    assert (weights * losses).sum() == losses[kept].sum()


@pytest.mark.slow
@given(problems())
def test_both_halves_give_the_same_bits(given):
    plain = debiased.explain(evidence(given), **given.options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confidence_module, "SMALL", 0)
        patch.setattr(neighbors_module, "SMALL", 0)
        same_bits(plain, debiased.explain(evidence(given), **given.options))


@given(problems())
def test_conditional_and_ratio_agree_with_paper_where_no_teacher_is_wrong(given):
    right = given.validation_teacher.argmax(axis=1)
    for estimate in ESTIMATES:
        found = debiased.explain(Evidence(right, *given.arrays[1:], kind=given.kind), estimate=estimate)
        assert (found.weights == 1).all() and (found.error == 0).all() and found.clipped == 0


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_weight_falls_as_the_student_is_more_distorted(estimate):
    weights = []
    for sure in (0.5, 0.9, 0.99, 0.9999):  # the student is ever surer of the truth, class 0; the teacher says class 1
        student = np.array([[sure, 1 - sure]])
        given = Evidence([0], np.array([[0.1, 0.9]]), student, np.array([[0.1, 0.9]]), student)
        weights.append(debiased(given, targets="hard", estimate=estimate)[0])
    assert weights[0] == 1 and (np.diff(weights) < 0).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from(ESTIMATES), st.sampled_from(TARGETS))
def test_logits_of_any_size_give_finite_weights(seed, estimate, targets):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(9, 3)) * 10.0 ** rng.integers(-3, 6, (9, 1)) for _ in range(4)]
    found = debiased.explain(Evidence(rng.integers(0, 3, 9), *parts, kind="logits"), estimate=estimate, targets=targets)
    assert np.isfinite([found.weights, found.error, found.distortion]).all()
    assert ((found.weights >= 0) & (found.weights <= 1)).all()


@pytest.mark.parametrize("estimate", ["paper", "conditional", "ratio"])
def test_one_huge_logit_leaves_the_other_rows_alone(estimate):
    rng = np.random.default_rng(31)
    given = problem(rng, 30, 30, 3, kind="logits")
    given.validation_student[0] = [1e30, -1e30, 0]
    given.labels[0] = 1
    points = np.stack([reference.margin(array, "logits") for array in given.arrays[1:3]], axis=1)
    queries = np.stack([reference.margin(array, "logits") for array in given.arrays[3:]], axis=1)
    wanted = reference.weigh(points, queries, *given.arrays[:3], kind="logits", estimate=estimate)[0]
    np.testing.assert_allclose(debiased(evidence(given), estimate=estimate), wanted, rtol=0, atol=1e-9)


# ---- the equations -------------------------------------------------------------------------------------------------------


@given(st.fractions(0, 1), st.fractions(0, 10**9))
def test_debiasing_weight_is_the_projected_inverse(error, seen):
    denominator = 1 + error * (seen - 1)
    wanted = min(Fraction(1), 1 / denominator) if denominator > 0 else 1
    assert debiasing_weight(float(error), float(seen)) == pytest.approx(float(wanted), rel=1e-9)


@pytest.mark.parametrize("value", ["a", "0.5", None, {}, 1j, [[1], [1, 2]], [None, 1.0], np.datetime64(3, "s")])
@pytest.mark.parametrize("equation", [debiasing_weight, distortion])
def test_equations_take_numbers_alone(equation, value):
    for both in ((value, 1.0), (1.0, value)):
        with pytest.raises(InputError) as caught:
            equation(*both)
        assert all((caught.value.where, caught.value.found, caught.value.expected, caught.value.remedy))


def test_equations_take_arrays_of_one_shape():
    with pytest.raises(InputError, match="arrays of different shapes"):
        debiasing_weight([0.1, 0.2], [1.0, 2.0, 3.0])
    assert debiasing_weight(0.5, [1, 3]).tolist() == [1.0, 0.5]


def test_debiasing_weight_at_the_edges():
    error, seen = [0.0, 0.0, 1.0, 1.0, 0.5, 1.0], [np.inf, 5.0, 0.0, 1.0, 0.2, np.inf]
    assert debiasing_weight(error, seen).tolist() == [1, 1, 1, 1, 1, 0]


@given(st.floats(0, 1), st.floats(1e-3, 1e3), st.floats(1, 1e3))
def test_weighted_loss_is_unbiased_where_nothing_is_clipped(error, truth, seen):
    weight = debiasing_weight(error, seen)
    assert weight * ((1 - error) * truth + error * seen * truth) == pytest.approx(truth, rel=1e-12)


def test_distortion_is_floored_and_finite():
    assert distortion([1.0, 0.0, 2.0], [0.0, 0.0, 4.0]).tolist() == [1e6, 0.0, 0.5]


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 15, 16, 17, 99, 100, 101, 500, 2500, 10_000, 10_001])
def test_default_k_is_half_the_root_rounded_up(m):
    rows = np.tile([[0.4, 0.6]], (m, 1))
    assert debiased.fit(Evidence(np.zeros(m, int), rows, rows)).k == reference.neighbors_of(m)


# ---- what explain() counts -----------------------------------------------------------------------------------------------


def test_explain_counts_by_hand():
    teacher = np.array([[0.5, 0.5], [0.1, 0.9], [0.2, 0.8], [0.5, 0.5]])
    student = np.array([[1 - 1e-9, 1e-9], [0.25, 0.75], [0.5, 0.5], [0.9, 0.1]])
    given = Evidence([1, 0, 1, 0], teacher[[1, 2, 1, 0]], student[[0, 1, 2, 3]], teacher, student)
    found = debiased.explain(given, targets="hard", neighbors=1)
    assert found.tied == 2
    assert found.floored == 0
    values, _ = reference.distortions([1, 0, 1, 0], teacher[[1, 2, 1, 0]], student, targets="hard")
    assert found.largest_distortion == pytest.approx(values.max())
    assert found.effective_sample_size == pytest.approx(reference.effective_sample_size(found.weights))
    assert found.share_below_one == reference.share_below_one(found.weights)


def test_floored_counts_wrong_rows_only():
    teacher, student = np.array([[0.1, 0.9], [0.9, 0.1]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    found = debiased.explain(Evidence([0, 0], teacher, student, teacher, student), targets="hard")
    assert found.floored == 1
    assert found.largest_distortion == pytest.approx(-np.log(1e-12) / 1e-6)
    assert np.isfinite(found.weights).all()


def test_clipped_counts_weights_that_would_exceed_1():
    teacher, student = np.array([[0.1, 0.9]] * 2), np.array([[0.2, 0.8]] * 2)  # student errs with the teacher
    for estimate in ESTIMATES:
        found = debiased.explain(Evidence([0, 0], teacher, student, teacher, student), targets="hard", estimate=estimate)
        assert found.clipped == 2 and (found.weights == 1).all() and (found.distortion < 1).all()


def test_estimates_differ_as_the_decisions_say():
    teacher = np.array([[0.1, 0.9], [0.1, 0.9], [0.9, 0.1], [0.9, 0.1]])
    student = np.array([[0.9, 0.1]] * 4)
    given = Evidence([0, 1, 0, 0], teacher, student, teacher, student)
    truth, target = -np.log(0.9), -np.log(0.1)
    error, seen = 0.25, target / truth
    wanted = {
        "paper": 1 / (1 + error**2 * (seen - 1)),
        "conditional": 1 / (1 + error * (seen - 1)),
        "ratio": (3 * truth + target) / (2 * target + 2 * truth),
    }
    for estimate, weight in wanted.items():
        found = debiased.explain(given, targets="hard", estimate=estimate, neighbors=4)
        np.testing.assert_allclose(found.weights, weight, rtol=1e-12)
        np.testing.assert_allclose(found.error, error)


def test_effective_sample_size_of_nothing_is_0():
    given = Evidence([0], np.array([[0.9, 0.1]]), np.array([[0.9, 0.1]]), np.array([[0.6, 0.4]]))
    assert threshold.explain(given, threshold=0.9).effective_sample_size == 0


# ---- other rules ---------------------------------------------------------------------------------------------------------


def labeled_problem(kind="probabilities", seed=41):
    rng = np.random.default_rng(seed)
    given = problem(rng, 30, 50, 4, kind=kind)
    labeled, truth = predictions(rng, 20, 4, kind), rng.integers(0, 4, 50)
    return given, labeled, truth


@pytest.mark.parametrize("kind", KINDS)
def test_fidelity_is_the_reference(kind):
    given, labeled, _ = labeled_problem(kind)
    every = evidence(given, labeled_teacher=labeled)
    np.testing.assert_allclose(fidelity(every), reference.fidelity(given.teacher, [labeled], kind), rtol=1e-9)
    np.testing.assert_allclose(fidelity(every, over="unlabeled"), reference.fidelity(given.teacher, kind=kind), rtol=1e-9)


def test_fidelity_of_a_teacher_without_doubt_is_1():
    given = Evidence([0], np.eye(2)[:1], np.eye(2)[:1], np.eye(2), np.eye(2))
    assert fidelity(given).tolist() == [1, 1]


def test_fidelity_of_a_very_sure_teacher():
    teacher = np.array([[1 - 1e-14, 1e-14], [1 - 2e-14, 2e-14]])
    given = Evidence([0], teacher[:1], teacher[:1], teacher, teacher)
    np.testing.assert_allclose(fidelity(given), reference.fidelity(teacher), rtol=0.05)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.integers(1, 9))
def test_entropy_mean_streams_in_any_order(seed, kind, size):
    rng = np.random.default_rng(seed)
    values = predictions(rng, 30, 5, kind, "random", np.float32)
    whole = EntropyMean().plus(values, kind=kind)
    parts = EntropyMean()
    for start in rng.permutation(np.arange(0, 30, size)):
        parts = parts.plus(values[start : start + size], kind=kind)
    assert parts == whole and whole.count == 30
    assert whole.value == pytest.approx(reference.entropy(values, kind).mean(), rel=1e-6)


def test_fidelity_with_a_streamed_mean_is_that_of_the_whole():
    given, labeled, _ = labeled_problem()
    whole = fidelity(evidence(given, labeled_teacher=labeled))
    mean = EntropyMean().plus(labeled)
    mean = mean.plus(given.teacher[:9])
    mean = mean.plus(given.teacher[9:])
    fitted = fidelity.fit(Evidence(*given.arrays[:3]), mean=mean)
    parts = [weigh(fitted, given.teacher[i : i + 7]).weights for i in range(0, 50, 7)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_unweighted_is_all_ones():
    given, _, _ = labeled_problem()
    assert unweighted(evidence(given)).tolist() == [1] * 50


def test_oracle_keeps_what_the_teacher_has_right():
    given, _, truth = labeled_problem()
    wanted = [float(reference.argmax(row) == label) for row, label in zip(given.teacher, truth, strict=True)]
    assert oracle(evidence(given, truth=truth)).tolist() == wanted


def test_threshold_keeps_low_entropy_and_high_margin():
    given, _, _ = labeled_problem()
    values = reference.entropy(given.teacher)
    assert threshold(evidence(given), threshold=0.7, confidence=entropy).tolist() == [float(v <= 0.7) for v in values]
    values = reference.margin(given.teacher)
    assert threshold(evidence(given), threshold=0.3).tolist() == [float(v >= 0.3) for v in values]


def test_threshold_keeps_what_lies_exactly_at_it():
    rows = np.array([[0.75, 0.25], [0.7, 0.3]])
    given = Evidence([0], rows[:1], rows[:1], rows)
    assert threshold(given, threshold=0.5).tolist() == [1, 0]
    assert threshold(given, threshold=float(entropy(rows)[0]), confidence=entropy).tolist() == [1, 0]


def test_composition_is_the_product_of_its_factors():
    given, labeled, truth = labeled_problem()
    every = evidence(given, labeled_teacher=labeled, truth=truth)
    both = compose(debiased.using(targets="hard"), fidelity, oracle).explain(every)
    alone = {"debiased": debiased(every, targets="hard"), "fidelity": fidelity(every), "oracle": oracle(every)}
    assert {name: array.tobytes() for name, array in both.factors.items()} == {n: a.tobytes() for n, a in alone.items()}
    np.testing.assert_allclose(both.weights, alone["debiased"] * alone["fidelity"] * alone["oracle"], rtol=1e-15)
    seen = debiased.explain(every, targets="hard")
    assert both.error.tobytes() == seen.error.tobytes() and both.clipped == seen.clipped


def test_composition_keeps_every_factor():
    given, _, _ = labeled_problem()
    both = compose(threshold.using(threshold=0.1), threshold.using(threshold=0.5)).explain(evidence(given))
    assert len(both.factors) == 2


def test_using_fills_in_options():
    given, _, _ = labeled_problem()
    hard = debiased.using(targets="hard", estimate="ratio")
    assert hard(evidence(given)).tobytes() == debiased(evidence(given), targets="hard", estimate="ratio").tobytes()
    assert hard(evidence(given), targets="soft").tobytes() == debiased(evidence(given), estimate="ratio").tobytes()


def own(evidence, *, first=1, **others):
    return unweighted.fit(evidence)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: debiased.using(target="hard"), ["debiased", "'target'", "did you mean targets?"]),
        (lambda: threshold.using(threshold=0.5, confidance=margin), ["threshold", "did you mean confidence?"]),
        (lambda: unweighted.using(targets="hard"), ["unweighted", "no options"]),
        (lambda: compose(debiased, fidelity.using(ower="all")), ["fidelity", "did you mean over?"]),
        (lambda: compose(debiased, fidelity).using(targets="hard"), ["no options", "its parts: debiased, fidelity"]),
        (lambda: shuffled(debiased).using(sead=1), ["did you mean seed?"]),
        (lambda: as_rule(lambda evidence: 1).using(targets="hard"), ["no options", "leave it out"]),
        (lambda: arm(debiased, target="hard"), ["arm debiased", "did you mean targets?"]),
        (lambda: arm(debiased.using(neighbours=3)), ["debiased", "did you mean neighbors?"]),
        (lambda: debiased.fit(evidence(labeled_problem()[0]), target="hard"), ["did you mean targets?"]),
        (lambda: debiased(evidence(labeled_problem()[0]), target="hard"), ["did you mean targets?"]),
    ],
)
def test_unknown_options_are_refused_at_once(wrong, words):
    with pytest.raises(ConfigError) as caught:
        wrong()
    assert caught.value.found and caught.value.expected and caught.value.remedy
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_rule_that_takes_any_option_gets_any():
    assert str(rule(own).using(first=2, anything=3)) == "own(anything=3, first=2)"


# ---- weights that change nothing ------------------------------------------------------------------------------------------


def words_of(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if "weight" in str(each.message)]


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("targets", TARGETS)
def test_student_that_errs_with_the_teacher_makes_weights_of_1_and_is_told(estimate, targets):
    rng = np.random.default_rng(71)
    teacher = rng.dirichlet(np.full(3, 0.3), 60)
    labels = np.where(rng.random(60) < 0.7, teacher.argmax(axis=1), (teacher.argmax(axis=1) + 1) % 3)
    student = np.full((60, 3), 0.01) + 0.97 * np.eye(3)[teacher.argmax(axis=1)]
    given = Evidence(labels, np.eye(3)[teacher.argmax(axis=1)], student, teacher, student)
    assert (debiased(given, estimate=estimate, targets=targets) == 1).all()
    (told,) = words_of(lambda: debiased(given, estimate=estimate, targets=targets))
    wrong = np.count_nonzero(teacher.argmax(axis=1) != labels)
    assert told.startswith(f"all weights are 1, although the teacher is wrong on {wrong} of 60") and "same errors" in told


def test_unlabeled_rows_far_from_every_error_are_told():
    sure, doubtful = np.array([0.98, 0.01, 0.01]), np.array([0.4, 0.3, 0.3])
    teacher = np.concatenate([np.tile(sure, (50, 1)), np.tile(doubtful, (10, 1))])
    labels = np.r_[np.zeros(50, int), np.tile([1, 2], 5)]
    student = np.concatenate([np.tile(sure, (50, 1)), np.eye(3)[labels[50:]] * 0.7 + 0.1])
    given = Evidence(labels, teacher, student, teacher[:40], student[:40])
    (told,) = words_of(lambda: debiased(given))
    assert told == (
        "every weight is 1: the teacher is wrong on 10 of 60 validation rows, "
        "but on none that is among the 4 nearest of an unlabeled row"
    )
    assert words_of(lambda: debiased(Evidence(labels, teacher, student, teacher, student))) == []
    assert words_of(lambda: weigh(debiased.fit(given), teacher[:5], student[:5])) == []  # a chunk says nothing of the rest
    assert words_of(lambda: compose(debiased, threshold.using(threshold=0.5))(given)) == [told]
    assert words_of(lambda: compose(debiased, threshold.using(threshold=0.99))(given)) == []


# ---- forms of input ------------------------------------------------------------------------------------------------------


def layouts(array, folder):
    """The same numbers, laid out in every way NumPy knows."""
    wide = np.zeros((2 * len(array), array.shape[1] + 1), array.dtype)
    wide[::2, 1:] = array
    path = folder / "rows.bin"
    path.write_bytes(np.ascontiguousarray(array).tobytes())
    frozen = array.copy()
    frozen.flags.writeable = False
    return {
        "fortran": np.asfortranarray(array),
        "strided": wide[::2, 1:],
        "reversed": array[::-1].copy()[::-1],
        "big-endian": array.astype(array.dtype.newbyteorder(">")),
        "memmap": np.memmap(path, array.dtype, "r", shape=array.shape),
        "read-only": frozen,
        "list": array.tolist() if array.dtype == np.float64 else array,
    }


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("half", ["plain", "compiled"])
def test_layout_changes_no_bit_and_no_input(monkeypatch, tmp_path, dtype, kind, half):
    if half == "compiled":
        monkeypatch.setattr(confidence_module, "SMALL", 0)
        monkeypatch.setattr(neighbors_module, "SMALL", 0)
    given = problem(np.random.default_rng(51), 25, 40, 3, kind=kind, dtype=dtype)
    plain = debiased.explain(evidence(given), confidence=entropy)
    folders = [tmp_path / str(i) for i in range(4)]
    for folder in folders:
        folder.mkdir()
    forms = [layouts(array, folder) for array, folder in zip(given.arrays[1:], folders, strict=True)]
    for name in forms[0]:
        parts = [form[name] for form in forms]
        before = [np.asarray(part).tobytes() for part in parts]
        same_bits(plain, debiased.explain(Evidence(given.labels, *parts, kind=kind), confidence=entropy))
        assert [np.asarray(part).tobytes() for part in parts] == before, name


def test_calls_leave_their_inputs_alone():
    given, labeled, truth = labeled_problem()
    arrays = [*given.arrays, labeled, truth]
    before = [array.tobytes() for array in arrays]
    every = evidence(given, labeled_teacher=labeled, truth=truth)
    for one in (debiased, fidelity, oracle, unweighted, threshold.using(threshold=0.5), debiased.using(confidence=entropy)):
        one(every)
    assert [array.tobytes() for array in arrays] == before


TENSORS = {
    "plain": lambda tensor: tensor,
    "with gradients": lambda tensor: tensor.requires_grad_(),
    "computed with gradients": lambda tensor: tensor.requires_grad_() * 1,
    "bfloat16": lambda tensor: tensor.bfloat16(),
    "bfloat16 with gradients": lambda tensor: tensor.bfloat16().requires_grad_(),
    "strided": lambda tensor: tensor.repeat_interleave(2, dim=0)[::2],
}


@pytest.mark.parametrize("form", TENSORS)
def test_predictions_may_be_tensors(form):
    torch = pytest.importorskip("torch")
    given = problem(np.random.default_rng(55), 40, 60, 3, dtype=np.float32)
    tensors = [TENSORS[form](torch.from_numpy(array.copy())) for array in given.arrays[1:]]
    arrays = [tensor.detach().float().numpy() for tensor in tensors]
    short = "bfloat16" in form  # such sums are off by up to a hundredth
    plain = Evidence(given.labels, *arrays, tolerance=0.04 if short else None)
    whole = Evidence(torch.from_numpy(given.labels), *tensors)
    for one in (debiased, fidelity, threshold.using(threshold=0.5)):
        assert one(whole).tobytes() == one(plain).tobytes()
    found = weigh(debiased.fit(whole), *tensors[2:])
    assert found.weights.tobytes() == debiased(plain).tobytes()
    assert margin(tensors[0]).tobytes() == whole_margin(arrays[0], plain.tolerance).tobytes()


def whole_margin(values, tolerance):
    return confidence_module.scan(values, tolerance=tolerance).margin


def test_scores_and_confidences_may_be_tensors_with_gradients():
    torch = pytest.importorskip("torch")
    given, scores = awkward("random")
    tensors = [torch.tensor(each, requires_grad=True) for each in (scores[0, :61], scores[1, :61])]
    fitted = debiased.fit(evidence(given), confidence=Scores(*tensors))
    plain = debiased.fit(evidence(given), confidence=Scores(scores[0, :61], scores[1, :61]))
    asked = [torch.tensor(each, requires_grad=True) for each in scores[:, 61:]]
    assert to_bytes(fitted) == to_bytes(plain)
    assert weigh(fitted, *asked).weights.tobytes() == weigh(plain, *scores[:, 61:]).weights.tobytes()


def test_tensors_that_are_no_plain_arrays_are_refused():
    torch = pytest.importorskip("torch")
    rows = np.eye(3)
    for bad in (torch.eye(3).to_sparse(), torch.empty((3, 3), device="meta"), [torch.eye(3)[0].requires_grad_()] * 3):
        with pytest.raises(InputError, match="teacher") as caught:
            Evidence([0, 1, 2], rows, rows, bad, rows)
        assert caught.value.found and caught.value.expected and caught.value.remedy


def test_whole_numbers_are_probabilities_too():
    hot = np.eye(3, dtype=np.int64)
    assert debiased(Evidence([0, 1, 2], hot, hot, hot, hot)).tolist() == [1, 1, 1]


LABELS = {
    "int8": lambda y: y.astype(np.int8),
    "uint16": lambda y: y.astype(np.uint16),
    "big-endian": lambda y: y.astype(">i4"),
    "float": lambda y: y.astype(np.float64),
    "float16": lambda y: y.astype(np.float16),
    "list": lambda y: y.tolist(),
    "strided": lambda y: np.repeat(y, 2)[::2],
    "unmasked": lambda y: np.ma.array(y),
}


@pytest.mark.parametrize("form", LABELS)
def test_labels_in_every_form(form):
    given = problem(np.random.default_rng(52), 30, 20, 3)
    again = Evidence(LABELS[form](given.labels), *given.arrays[1:])
    assert debiased(again).tobytes() == debiased(evidence(given)).tobytes()


@pytest.mark.parametrize("text", [np.str_, np.bytes_, list])
def test_labels_may_be_names(text):
    given = problem(np.random.default_rng(53), 30, 20, 3)
    names = ["zebra", "ant", "Maus"]
    words = [names[label] for label in given.labels]
    labels = words if text is list else np.array(words, text)
    assert debiased(Evidence(labels, *given.arrays[1:], classes=names)).tobytes() == debiased(evidence(given)).tobytes()


@pytest.mark.parametrize("hard", [True, False])
def test_labels_may_be_distributions(hard):
    given = problem(np.random.default_rng(54), 30, 20, 3)
    hot = np.eye(3)[given.labels]
    soft = hot if hard else 0.7 * hot + 0.1
    assert debiased(Evidence(soft, *given.arrays[1:], soft_labels=True)).tobytes() == debiased(evidence(given)).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("measure", [margin, entropy])
@pytest.mark.parametrize("targets", TARGETS)
def test_renormalized_rows_weigh_like_the_reference(measure, targets):
    rng = np.random.default_rng(55)
    given = problem(rng, 40, 60, 3)
    parts = [array * rng.uniform(0.5, 1, (len(array), 1)) for array in given.arrays[1:]]
    found = debiased(Evidence(given.labels, *parts, renormalize=True), confidence=measure, targets=targets)
    plane = [MEASURES[measure.__name__][1](array, renormalize=True) for array in parts]
    points, queries = np.stack(plane[:2], axis=1), np.stack(plane[2:], axis=1)
    wanted = reference.weigh(points, queries, given.labels, *parts[:2], targets=targets, renormalize=True)[0]
    assert np.mean(np.abs(found - wanted) > 1e-9) < 0.005


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_float16_is_widened_before_any_logarithm(estimate):
    rng = np.random.default_rng(56)
    labels, parts = rng.integers(0, 3, 30), [rng.multinomial(16, [0.7, 0.2, 0.1], 30) / 16 for _ in range(4)]
    weights = [
        debiased(Evidence(labels, *(part.astype(t) for part in parts)), estimate=estimate) for t in ("f2", "f4", "f8")
    ]
    assert weights[0].tobytes() == weights[1].tobytes() == weights[2].tobytes()


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads_change_no_bit(monkeypatch, threads):
    rng = np.random.default_rng(57)
    given = problem(rng, 200, 8000, 10, dtype=np.float32)
    plain = debiased.explain(evidence(given), confidence=entropy)
    monkeypatch.setenv("WDISTILL_THREADS", threads)
    monkeypatch.setattr(confidence_module, "SMALL", 0)
    monkeypatch.setattr(confidence_module, "BLOCK", 1 << 12)
    monkeypatch.setattr(neighbors_module, "SMALL", 0)
    same_bits(plain, debiased.explain(evidence(given), confidence=entropy))


@pytest.mark.parametrize("estimate", ["paper", "conditional", "ratio"])
def test_no_warning_of_numpy_escapes(estimate):
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", wdistill.WdistillWarning)
        for labels in ([0, 1, 0], [1, 0, 1], [0, 0, 0]):
            for measure in (margin, entropy):
                found = debiased(Evidence(labels, rows, rows, rows, rows), estimate=estimate, confidence=measure)
                assert np.isfinite(found).all()


def test_probabilities_helper_gives_valid_rows():
    rng = np.random.default_rng(58)
    for sort in ("random", "saturated", "tied", "uniform", "one_hot", "underflow"):
        assert np.allclose(probabilities(rng, 20, 5, sort).sum(axis=1), 1)


def test_ratio_is_exactly_1_without_error_beside_a_huge_loss():
    rng = np.random.default_rng(0)
    m = 20_000
    labels = rng.integers(0, 3, m)
    teacher = np.eye(3)[labels] * 5.0
    student = rng.normal(size=(m, 3))
    teacher[0], student[0] = np.roll(teacher[0], 1), (np.eye(3)[labels[0]] - 1) * -1e5
    evidence = Evidence(labels, teacher, student, teacher, student, kind="logits")
    seen = debiased.explain(evidence, estimate="ratio")
    assert (seen.weights[seen.error == 0] == 1).all() and (seen.error == 0).sum() > m / 2


def test_every_option_that_a_rule_requires_is_a_setting():
    assert {option for rule in RULES.values() for option in rule.required} <= {*settings_of(RuleSettings)}
    assert issubclass(Options, RuleSettings) and issubclass(Recipe, RuleSettings)
