"""Bad arrays and options: the right error or warning, which says where, what was found, what was expected, what to do."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from tests import reference
from tests.strategies import DTYPES, KINDS, predictions, probabilities, problem
from wdistill import (
    ConfigError,
    Evidence,
    InputError,
    Scores,
    WdistillError,
    WdistillWarning,
    compose,
    debiased,
    entropy,
    fidelity,
    margin,
    oracle,
    threshold,
    unweighted,
    weigh,
)
from wdistill.core.threads import threads
from wdistill.weights import confidence as confidence_module

RNG = np.random.default_rng(71)
ROWS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]])
LABELS = np.array([0, 1, 2, 1])


def make(**changes):
    """Sound evidence with some arrays changed."""
    arrays = {
        "validation_labels": LABELS,
        "validation_teacher": ROWS,
        "validation_student": ROWS,
        "teacher": ROWS,
        "student": ROWS,
    }
    return Evidence(**{**arrays, **changes})


def spoiled(value, row=1, array=ROWS):
    array = array.copy()
    array[row, 1] = value
    return array


def quietly(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WdistillWarning)
        return function(*args, **options)


def refused(error, call, *words):
    """The error `call` stops with; it must be complete, and its text contain the words."""
    with pytest.raises(error) as caught:
        quietly(call)
    for part in ("what", "where", "found", "expected", "remedy"):
        assert getattr(caught.value, part), f"the message lacks {part}: {caught.value}"
        assert getattr(caught.value, part) in str(caught.value)
    for word in words:
        assert word in str(caught.value), f"{word!r} not in: {caught.value}"
    return caught.value


def said(call):
    """Our warnings, as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(issubclass(each.category, WdistillWarning) for each in caught), [str(each.message) for each in caught]
    return "\n".join(str(each.message) for each in caught)


PLACES = ["validation_teacher", "validation_student", "teacher", "student"]


# ---- entries -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("half", ["plain", "compiled"])
def test_a1_nan_and_infinity(monkeypatch, place, kind, value, half):
    if kind == "logprobs" and value == -np.inf:
        return  # a probability of 0
    if half == "compiled":
        monkeypatch.setattr(confidence_module, "SMALL", 0)
    arrays = dict.fromkeys(PLACES, np.log(ROWS) if kind != "probabilities" else ROWS)
    arrays[place] = spoiled(value, 2, arrays[place])
    error = refused(InputError, lambda: debiased(make(**arrays, kind=kind)), place, "NaN or infinite", "1 ", "row")
    assert error.rows == (2,)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("half", ["plain", "compiled"])
@pytest.mark.parametrize("k", [3, 80])
def test_a1_first_five_rows_are_named(monkeypatch, half, k):
    if half == "compiled":
        monkeypatch.setattr(confidence_module, "SMALL", 0)
    values = probabilities(RNG, 5000, k)
    bad = [17, 900, 901, 902, 3000, 4000, 4999]
    values[bad, 1] = np.nan
    error = refused(InputError, lambda: margin(values), "7 such entries", "17, 900, 901, 902, 3000")
    assert error.rows == tuple(bad[:5])


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a1_earliest_rows_are_named_whatever_the_threads(monkeypatch, threads):
    monkeypatch.setenv("WDISTILL_THREADS", threads)
    monkeypatch.setattr(confidence_module, "BLOCK", 300)
    values = probabilities(RNG, 1000, 3)
    values[[150, 990], 0] = np.nan
    assert refused(InputError, lambda: margin(values)).rows == (150, 990)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [2, 10, 2000])
def test_a2_rows_must_sum_to_1(dtype, k):
    allowed = {np.float16: 5e-3, np.float32: 1e-5, np.float64: 1e-8}[dtype] * max(1, k / 1000)
    values = np.zeros((9, k), dtype)
    values[:, 0] = 1
    values[3, 1] = 0.5 * allowed
    margin(values)
    values[5, 1] = 3 * allowed
    error = refused(InputError, lambda: margin(values), "sum to 1", "row 5", "renormalize=True", f"{allowed:.1g}")
    assert error.rows == (5,)


def test_a2_renormalizing_warns_of_the_largest_correction():
    text = said(lambda: debiased(make(validation_teacher=ROWS * [[1], [0.8], [1], [0.9]], renormalize=True)))
    assert "validation_teacher: rows were scaled to sum to 1; the largest correction is 0.2" in text


def test_a2_row_of_zeros_cannot_be_renormalized():
    refused(InputError, lambda: debiased(make(teacher=np.zeros((4, 3)), renormalize=True)), "teacher", "sum")


@pytest.mark.parametrize("half", ["plain", "compiled"])
@pytest.mark.parametrize("k", [3, 80])
def test_a3_logits_passed_as_probabilities(monkeypatch, half, k):
    if half == "compiled":
        monkeypatch.setattr(confidence_module, "SMALL", 0)
    values = RNG.normal(size=(20, k)) * 3
    refused(InputError, lambda: margin(values), "look like logits", "kind='logits'", "[0, 1]")


def test_a3_probabilities_of_another_sum_are_no_logits():
    refused(InputError, lambda: margin(1.1 * np.array([[0.95, 0.05], [0.5, 0.5]])), "do not sum to 1", "0.1", "renormalize")


def test_a3_logits_passed_as_logprobs():
    refused(InputError, lambda: margin(np.array([[3.0, -1.0]]), "logprobs"), "look like logits", "kind='logits'")


@pytest.mark.parametrize("half", ["plain", "compiled"])
@pytest.mark.parametrize("k", [3, 80])
@pytest.mark.parametrize("value", [-0.25, 1.5])
def test_a3_one_entry_outside_is_enough(monkeypatch, half, k, value):
    if half == "compiled":
        monkeypatch.setattr(confidence_module, "SMALL", 0)
    values = probabilities(RNG, 300, k)
    values[200] = 0
    values[200, 0], values[200, 2] = value, 1 - value
    assert refused(InputError, lambda: margin(values), "[0, 1]").rows == (200,)


def test_a4_probabilities_passed_as_logits():
    rows, labels = probabilities(RNG, 30, 3), RNG.integers(0, 3, 30)
    text = said(lambda: debiased(Evidence(labels, rows, rows, rows, rows, kind="logits")))
    assert "look like probabilities" in text


@pytest.mark.parametrize("dtype", DTYPES)
def test_a5_logprobs_passed_as_probabilities(dtype):
    refused(InputError, lambda: margin(np.log(ROWS).astype(dtype)), "log-probabilities", "kind='logprobs'")


def test_a5_logprobs_must_be_of_probabilities():
    refused(InputError, lambda: margin(np.array([[-np.inf, -np.inf], [0, -np.inf]]), "logprobs"), "sum to 1", "row 0")
    refused(InputError, lambda: margin(np.array([[-3.0, -4.0]]), "logprobs"), "sum to 1")


# ---- labels --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["validation_labels", "truth"])
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        pytest.param([0, -1, 2, -1], ["out of range", "-1 (2×)", "2 of 4", "0 … 2"], id="a6 minus one"),
        pytest.param([0, -100, 2, 1], ["out of range", "-100 (1×)"], id="a6 ignore index"),
        pytest.param([0, 3, 7, 7], ["3 (1×)", "7 (2×)", "3 classes"], id="a6 too large"),
        pytest.param([1, 2, 3, 3], ["out of range", "subtract 1"], id="a7 from one"),
        pytest.param([0.5, 1, 2, 0], ["whole numbers", "0.5"], id="a8 fraction"),
        pytest.param([np.nan, 1, 2, 0], ["whole numbers", "nan"], id="a8 nan"),
        pytest.param([np.inf, 1, 2, 0], ["whole numbers", "inf"], id="a8 infinity"),
        pytest.param([True, False, True, True], ["whole numbers", "bool"], id="a8 bool"),
        pytest.param(["a", "b", "a", "c"], ["strings", "'a'", "classes="], id="a8 strings"),
        pytest.param(np.array([1j, 0, 0, 0]), ["whole numbers", "complex"], id="complex"),
        pytest.param(np.array(["2020"] * 4, "M8[Y]"), ["whole numbers"], id="dates"),
        pytest.param([0, 1, None, 2], ["objects", "1 nulls"], id="a25 null"),
        pytest.param(np.array(["a", None, "b", "a"], object), ["objects", "1 nulls"], id="a25 null among strings"),
        pytest.param(np.ma.array([0, 1, 2, 0], mask=[0, 1, 1, 0]), ["masked", "2 of 4"], id="a25 masked"),
    ],
)
def test_bad_labels(place, labels, words):
    refused(InputError, lambda: make(**{place: labels}), place, *words)


def test_a7_labels_that_do_not_count_from_1_are_not_said_to():
    assert "subtract" not in refused(InputError, lambda: make(validation_labels=[1, 2, 7, 1])).remedy


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0])
def test_a8_whole_floats_are_labels(value):
    assert make(validation_labels=np.full(4, value)).validation_labels.tolist() == [int(value)] * 4


def test_a8_class_names():
    names = ["cat", "dog", "eel"]
    for labels in (["eel", "cat", "dog", "cat"], np.array(["eel", "cat", "dog", "cat"], object)):  # as frames hold them
        assert make(validation_labels=labels, classes=names).validation_labels.tolist() == [2, 0, 1, 0]
    refused(InputError, lambda: make(validation_labels=["eel", "cow", "dog", "cat"], classes=names), "cow", "row 1", "'cat'")


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "b"], ["a", "b", "c", "d"]])
def test_a26_class_list_must_fit(names):
    refused(InputError, lambda: make(classes=names), "classes", f"{len(names)} names", "3 distinct")


def test_a9_distributions_need_the_flag():
    refused(InputError, lambda: make(validation_labels=np.eye(3)[LABELS]), "matrix", "soft_labels=True")


def test_a9_two_equal_maxima():
    soft = np.array([[1, 0, 0], [0.4, 0.4, 0.2], [0, 0, 1], [0.5, 0.5, 0]])
    error = refused(InputError, lambda: make(validation_labels=soft, soft_labels=True), "largest class", "2 rows", "1, 3")
    assert error.rows == (1, 3)


def test_a9_width_of_soft_labels():
    refused(InputError, lambda: make(validation_labels=np.eye(4), soft_labels=True), "4 columns", "3")


def test_a9_soft_labels_must_be_finite():
    soft = spoiled(np.nan, array=np.eye(3)[LABELS])
    refused(InputError, lambda: make(validation_labels=soft, soft_labels=True), "NaN")


@pytest.mark.parametrize("labels", [np.zeros((2, 2, 2), int), 3])
def test_labels_must_be_a_vector(labels):
    refused(InputError, lambda: make(validation_labels=labels), "vector", "shape")


def test_float_labels_of_any_size_are_out_of_range():
    refused(InputError, lambda: make(validation_labels=[0, 1, 2, 1e300]), "out of range")


def test_whole_labels_of_any_size_are_out_of_range():
    refused(InputError, lambda: make(validation_labels=np.array([0, 1, 2, 2**64 - 1], np.uint64)), "18446744073709551615")


# ---- the validation set --------------------------------------------------------------------------------------------------


def test_a10_empty_validation():
    empty = np.empty((0, 3))
    refused(InputError, lambda: make(validation_labels=[], validation_teacher=empty, validation_student=empty), "at least 1")


@pytest.mark.parametrize("m", [1, 2, 5])
def test_a11_few_validation_rows(m):
    rows = ROWS[np.arange(m) % 4]
    given = Evidence(LABELS[np.arange(m) % 4], rows, rows, ROWS, ROWS)
    assert f"only {m} validation rows: the weights are nearly constant" in said(lambda: debiased(given))
    found = quietly(debiased, given)
    assert np.isfinite(found).all() and ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("estimate", ["paper", "conditional", "ratio"])
def test_a12_one_class_only(estimate):
    given = problem(RNG, 40, 20, 4, wrong="one class")
    text = said(lambda: debiased(Evidence(*given.arrays), estimate=estimate))
    assert "3 of 4 classes have no validation row: 1, 2, 3" in text


def test_a12_missing_classes_are_named():
    given = make(validation_labels=["cat", "dog", "dog", "cat"], classes=["cat", "dog", "eel"])
    assert "1 of 3 classes have no validation row: eel" in said(lambda: debiased(given))


def test_a13_teacher_always_right():
    given = problem(RNG, 60, 20, 3, wrong="none")
    assert "right on every validation row" in said(lambda: debiased(Evidence(*given.arrays)))
    assert (quietly(debiased, Evidence(*given.arrays)) == 1).all()


@pytest.mark.parametrize("estimate", ["paper", "conditional", "ratio"])
def test_a14_teacher_always_wrong(estimate):
    given = problem(RNG, 60, 20, 3, wrong="all")
    assert "wrong on every validation row" in said(lambda: debiased(Evidence(*given.arrays)))
    found = quietly(debiased, Evidence(*given.arrays), estimate=estimate)
    assert np.isfinite(found).all() and ((found >= 0) & (found <= 1)).all()


def test_a15_loss_on_the_truth_of_zero():
    teacher, student = np.tile([[0.1, 0.9]], (40, 1)), np.tile([[0.5, 0.5]], (40, 1))
    student[0] = [1, 0]
    given = Evidence(np.arange(40) % 2, teacher, student, teacher, student)
    text = said(lambda: debiased(given))
    assert "1 of 40 validation rows" in text and "1e-06" in text and "largest" in text
    found = quietly(debiased.explain, given)
    assert found.floored == 1 and np.isfinite(found.weights).all()


def test_a15_no_warning_where_nothing_is_floored():
    given = problem(np.random.default_rng(5), 200, 5, 3)
    assert said(lambda: debiased(Evidence(*given.arrays))) == ""


def test_a16_denominator_of_zero():
    teacher = student = np.array([[0.0, 1.0]] * 3)  # always wrong, and the student errs with it: d = 0
    found = quietly(debiased.explain, Evidence([0, 0, 0], teacher, student, teacher, student), targets="hard")
    assert found.error.tolist() == [1] * 3 and found.distortion.tolist() == [0] * 3 and found.weights.tolist() == [1] * 3


def test_a17_ties_do_not_depend_on_row_order():
    given = problem(RNG, 100, 50, 3, sort="one_hot", dtype=np.float16)
    first = quietly(debiased, Evidence(*given.arrays))
    for _ in range(5):
        order = RNG.permutation(100)
        moved = [array[order] for array in given.arrays[:3]]
        assert quietly(debiased, Evidence(*moved, *given.arrays[3:])).tobytes() == first.tobytes()


def test_a18_ties_of_the_teacher_take_the_lowest_class_and_are_counted():
    rows = np.array([[0.4, 0.4, 0.2], [0.1, 0.45, 0.45], [0.8, 0.1, 0.1]])
    found = quietly(debiased.explain, Evidence([0, 1, 0], rows, rows, rows, rows))
    assert found.tied == 2 and found.error.tolist() == [0, 0, 0]
    assert quietly(oracle, make(teacher=rows, student=None, truth=[0, 1, 0])).tolist() == [1, 1, 1]


def test_a18_ties_are_counted_whatever_the_confidence():
    rows = np.array([[0.4, 0.4, 0.2], [0.8, 0.1, 0.1]])
    assert quietly(debiased.explain, Evidence([0, 1], rows, rows, rows, rows), confidence=entropy).tied == 1


def test_a19_weights_are_float64_from_any_type():
    for dtype in DTYPES:
        given = problem(RNG, 30, 9, 3, dtype=dtype)
        assert quietly(debiased, Evidence(*given.arrays)).dtype == np.float64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_a20_true_class_without_probability(kind, targets):
    logs = np.array([[0.0, -800.0], [-800.0, 0.0]])
    rows = np.exp(logs) if kind == "probabilities" else logs
    found = quietly(debiased.explain, Evidence([1, 1], rows, rows, rows, rows, kind=kind), targets=targets)
    assert np.isfinite([found.weights, found.error, found.distortion]).all()


def test_a21_entropy_with_zeros():
    assert entropy(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])) == pytest.approx([0, np.log(2)], abs=1e-14)


# ---- shapes and types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param(np.ones((4, 1)), ["(4, 1)", "at least 2 classes", "1 − p and p"], id="a22 one class"),
        pytest.param(np.ones(4), ["(4,)"], id="vector"),
        pytest.param(np.ones((4, 3, 1)), ["(4, 3, 1)"], id="cube"),
        pytest.param(np.full((4, 2), 0.5), ["2", "3", "classes"], id="a22 other width"),
        pytest.param(sparse.csr_matrix(ROWS), ["sparse", "toarray"], id="a25 sparse"),
        pytest.param(ROWS.astype(object), ["objects", "0 nulls", "astype"], id="a25 objects"),
        pytest.param([[None, 1, 0]] * 4, ["objects", "4 nulls"], id="a25 nulls"),
        pytest.param(np.ma.array(ROWS, mask=ROWS > 0.6), ["masked", "2 of 12"], id="a25 masked"),
        pytest.param(ROWS.astype(str), ["floats", "<U"], id="strings"),
        pytest.param(ROWS.astype(complex), ["floats", "complex128"], id="complex"),
        pytest.param(ROWS > 0.5, ["floats", "bool"], id="bools"),
        pytest.param(ROWS.astype(np.longdouble), ["floats"], id="longdouble"),
    ],
)
def test_bad_predictions(place, values, words):
    refused(InputError, lambda: make(**{place: values}), place, *words)


@pytest.mark.parametrize("place", ["validation_teacher", "validation_student"])
def test_validation_predictions_must_be_given(place):
    refused(InputError, lambda: debiased(make(**{place: None})), place)


def test_ragged_rows():
    refused(InputError, lambda: make(teacher=[[0.5, 0.5, 0], [1.0]]), "teacher")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"validation_teacher": ROWS[:3]}, ["validation_labels and validation_teacher", "4 and 3"]),
        ({"validation_student": ROWS[:2]}, ["validation_student", "4 and 2"]),
        ({"student": ROWS[:1]}, ["teacher and student", "4 and 1"]),
        ({"truth": [0, 1]}, ["truth", "4 and 2"]),
    ],
)
def test_a23_lengths_must_agree(changes, words):
    refused(InputError, lambda: make(**changes), *words)


def test_a23_lengths_of_scores_and_chunks():
    refused(InputError, lambda: debiased.fit(make(), confidence=Scores(np.ones(3), np.ones(3))), "4 and 3")
    fitted = quietly(debiased.fit, make())
    refused(InputError, lambda: weigh(fitted, ROWS, ROWS[:2]), "4 and 2")


def test_a22_classes_of_a_chunk():
    fitted = quietly(debiased.fit, make())
    refused(InputError, lambda: weigh(fitted, np.full((5, 2), 0.5), np.full((5, 4), 0.25)), "2", "4", "classes")


def test_a22_classes_of_a_chunk_and_the_fitted_rule():
    fitted = quietly(debiased.fit, make())
    refused(InputError, lambda: weigh(fitted, np.full((5, 2), 0.5), np.full((5, 2), 0.5)), "2", "3", "classes")


@pytest.mark.parametrize("truth", [np.zeros((4, 1), int), np.array(["a"] * 4), np.full(4, 99), np.full(4, np.nan)])
def test_truth_of_a_chunk_is_checked(truth):
    refused(InputError, lambda: weigh(oracle.fit(make()), ROWS, truth=truth), "truth")


def test_chunks_may_be_lists():
    fitted = quietly(debiased.fit, make())
    assert weigh(fitted, ROWS.tolist(), ROWS.tolist()).weights.tobytes() == weigh(fitted, ROWS, ROWS).weights.tobytes()


@pytest.mark.parametrize("measure", [margin, lambda rows: rows.max(axis=1)])
def test_chunks_are_checked_like_evidence(measure):
    fitted = quietly(debiased.fit, make(), confidence=measure)
    refused(InputError, lambda: weigh(fitted, ROWS, spoiled(np.nan)), "student", "NaN")
    refused(InputError, lambda: weigh(fitted, ROWS * 0.9, ROWS), "teacher", "sum to 1")


def test_a25_sparse_chunks():
    fitted = quietly(debiased.fit, make())
    refused(InputError, lambda: weigh(fitted, sparse.csr_matrix(ROWS), sparse.csr_matrix(ROWS)), "sparse")


def test_a26_student_with_other_class_order():
    rows = np.eye(4)[np.arange(40) % 4] * 0.9 + 0.025
    teacher = rows.copy()
    teacher[:3] = teacher[3:6]
    given = Evidence(np.arange(40) % 4, teacher, rows[:, [1, 2, 3, 0]], rows, rows)
    assert "the student is worse than chance on the validation rows: check the order" in said(lambda: debiased(given))


@pytest.mark.parametrize("dtype", [np.float16, ">f2"])
def test_a29_float16_logits_that_overflowed(dtype):
    values = np.array([[70000.0, 1.0], [0.0, 1.0]], np.float32)
    with np.errstate(over="ignore"):
        half = values.astype(dtype)
    refused(InputError, lambda: margin(half, "logits"), "infinite", "float32", "row 0")
    assert margin(values, "logits")[0] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_must_be_finite(value):
    good, bad = np.ones(4), np.array([1, value, 1, 1])
    refused(InputError, lambda: debiased.fit(make(), confidence=Scores(bad, good)), "scores", "row 1")
    fitted = quietly(debiased.fit, make(), confidence=Scores(good, good))
    refused(InputError, lambda: weigh(fitted, good, bad), "student", "scores")
    refused(InputError, lambda: debiased(make(), confidence=lambda rows: bad), "confidence of", "teacher")


@pytest.mark.parametrize(
    "function", [lambda rows: rows, lambda rows: rows.max(axis=1, keepdims=True), lambda rows: np.array(["x"] * len(rows))]
)
def test_confidence_must_be_one_number_a_row(function):
    refused(InputError, lambda: debiased(make(), confidence=function), "one number a row", "shape")


def test_confidence_must_be_as_long_as_its_rows():
    refused(InputError, lambda: debiased(make(), confidence=lambda rows: rows.max(axis=1)[:2]), "rows", "2")


def test_rule_fitted_on_scores_wants_scores():
    fitted = quietly(debiased.fit, make(), confidence=Scores(np.ones(4), np.ones(4)))
    refused(InputError, lambda: weigh(fitted, ROWS, ROWS), "teacher", "scores")


# ---- what is missing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["teacher", "student"])
def test_predictions_a_rule_needs(place):
    refused(InputError, lambda: debiased(make(**{place: None})), place, "missing")


def test_truth_the_oracle_needs():
    refused(InputError, lambda: oracle(make()), "truth", "missing")


def test_mean_entropy_fidelity_needs():
    refused(InputError, lambda: fidelity(make(teacher=None, student=None)), "mean")


def test_no_unlabeled_rows():
    empty = np.empty((0, 3))
    refused(InputError, lambda: make(teacher=empty, student=empty), "0 rows")
    refused(InputError, lambda: weigh(unweighted.fit(make()), empty), "0 rows")
    refused(InputError, lambda: weigh(unweighted.fit(make())), "rows")


# ---- options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 5, 2.0, 1.5, True, "3", np.nan, np.float64(2)])
def test_c2_neighbors_must_be_a_number_from_1_to_m(k):
    refused(ConfigError, lambda: debiased(make(), neighbors=k), "neighbors", repr(k), "1 to 4")


@pytest.mark.parametrize("k", [1, 4, np.int32(3)])
def test_c2_neighbors_within_range(k):
    assert quietly(debiased.fit, make(), neighbors=k).k == int(k)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": "firm"}, ["targets", "'firm'", "'soft' or 'hard'"]),
        ({"estimate": "mean"}, ["estimate", "'mean'", "'paper'", "'ratio'"]),
    ],
)
def test_unknown_choices(options, words):
    refused(ConfigError, lambda: debiased(make(), **options), *words)


def test_unknown_mean_of_fidelity():
    refused(ConfigError, lambda: fidelity(make(), over="labeled"), "over", "'labeled'", "'all' or 'unlabeled'")


@pytest.mark.parametrize("call", [lambda: make(kind="probs"), lambda: weigh(None, ROWS, kind="probs")])
def test_unknown_kind(call):
    refused(ConfigError, call, "kind", "'probs'", "'logits'")


@pytest.mark.parametrize("at", [np.nan, np.inf, "0.5"])
def test_threshold_must_be_a_finite_number(at):
    refused(ConfigError, lambda: threshold(make(), threshold=at), "threshold", str(at), "finite")


def test_nothing_to_compose():
    refused(ConfigError, compose, "compose", "no rules")


@pytest.mark.parametrize("wanted", ["0", "-1", "two", "1.5"])
def test_number_of_threads(monkeypatch, wanted):
    monkeypatch.setenv("WDISTILL_THREADS", wanted)
    refused(ConfigError, threads, "WDISTILL_THREADS", wanted)


# ---- nothing undeclared --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_defect_is_a_declared_error_or_finite_weights(kind, dtype):
    rng = np.random.default_rng(72)
    values = [np.nan, np.inf, -np.inf, -0.0, 0, 1, -1, 2, 1e-7, 6e4, -6e4]
    for _ in range(150):
        given = problem(rng, 6, 5, 3, kind=kind, dtype=dtype)
        array = given.arrays[rng.integers(1, 5)]
        array[rng.integers(len(array)), rng.integers(3)] = rng.choice(values)
        try:
            found = quietly(debiased, Evidence(*given.arrays, kind=kind), confidence=[margin, entropy][rng.integers(2)])
        except WdistillError as error:
            assert error.found and error.expected and error.remedy
        else:
            assert np.isfinite(found).all() and ((found >= 0) & (found <= 1)).all()


def test_a24_layouts_raise_the_same_error(tmp_path):
    bad = spoiled(np.nan, 3)
    (tmp_path / "rows").write_bytes(bad.tobytes())
    for form in (np.asfortranarray(bad), bad.astype(">f8"), np.memmap(tmp_path / "rows", "f8", "r", shape=(4, 3))):
        assert refused(InputError, lambda form=form: margin(form)).rows == (3,)


def test_a28_inputs_survive_an_error():
    bad = spoiled(np.nan)
    before = bad.tobytes()
    refused(InputError, lambda: debiased(make(student=bad)))
    assert bad.tobytes() == before


def test_reference_agrees_on_the_sound_rows():
    assert margin(ROWS) == pytest.approx(reference.margin(ROWS))
    assert margin(predictions(RNG, 5, 3, "logits"), "logits").shape == (5,)
