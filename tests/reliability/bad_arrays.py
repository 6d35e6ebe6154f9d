"""Provocations A1 to A29 of the catalogue: arrays that no weight, or only a doubtful one, can be computed from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from tests.distilling import MADE, go, splits, student, table
from tests.reliability.bad_files import weigh_tables
from tests.reliability.outcomes import calmly, fact, quietly, refused, same, warned
from tests.strategies import probabilities, problem
from tests.tables import columns, take, write
from wdistill import Evidence, InputError, Scores, debiased, entropy, margin, oracle, weigh
from wdistill.tables.formats.table import open_tables

ROWS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]])
LABELS = np.array([0, 1, 2, 1])
PLACES = ("validation_teacher", "validation_student", "teacher", "student")


def evidence(**changes: Any) -> Evidence:
    """Sound evidence with some arrays changed."""
    arrays: dict[str, Any] = {"validation_labels": LABELS, **dict.fromkeys(PLACES, ROWS)}
    return Evidence(**{**arrays, **changes})


def made(seed: int = 0, m: int = 60, n: int = 20, k: int = 3, **how: Any) -> Evidence:
    """Random evidence; `how` as in `problem`."""
    return Evidence(*problem(np.random.default_rng(seed), m, n, k, **how).arrays)


def spoiled(value: float, rows: int | list[int] = 1, array: Any = ROWS) -> Any:
    changed = array.copy()
    changed[rows, 1] = value
    return changed


def sound(weights: Any) -> None:
    """Weights are finite and within [0, 1]."""
    fact(np.isfinite(weights).all() and (weights >= 0).all() and (weights <= 1).all(), "weights within [0, 1]")


def nan_and_infinity(folder: Path) -> None:
    for place in PLACES:
        for value in (np.nan, np.inf, -np.inf):
            refused(InputError, lambda p=place, v=value: debiased(evidence(**{p: spoiled(v)})), place, "1 such entries")
    many = probabilities(np.random.default_rng(0), 5000, 3)
    bad = [17, 900, 901, 902, 3000, 4000]
    error = refused(
        InputError, lambda: margin(spoiled(np.nan, bad, many)), "6 such entries", "17, 900, 901, 902, 3000 (from 0)"
    )
    same(error.rows, (17, 900, 901, 902, 3000))  # type: ignore[attr-defined]
    refused(InputError, lambda: margin(spoiled(np.inf, 2, np.log(ROWS)), "logits"), "row 2")


def sums(folder: Path) -> None:
    for dtype, allowed in ((np.float64, 1e-8), (np.float32, 1e-5), (np.float16, 5e-3)):
        for k in (2, 2000):
            limit = allowed * max(1, k / 1000)
            rows = np.zeros((9, k), dtype)
            rows[:, 0] = 1
            same(len(margin(spoiled(0.5 * limit, 3, rows))), 9)
            refused(InputError, lambda r=rows, a=limit: margin(spoiled(3 * a, 5, r)), "row 5", "sum to 1", "--renormalize")
    scaled = evidence(validation_teacher=ROWS * [[1], [0.8], [1], [0.9]], renormalize=True)
    warned(lambda: debiased(scaled), "validation_teacher", "largest correction is 0.2")


def logits_as_probabilities(folder: Path) -> None:
    refused(
        InputError, lambda: margin(np.random.default_rng(0).normal(size=(20, 3)) * 3), "look like logits", "kind='logits'"
    )
    for value in (-0.25, 1.5):
        rows = ROWS.copy()
        rows[2] = value, 1 - value, 0
        refused(InputError, lambda r=rows: debiased(evidence(teacher=r)), "teacher", "[0, 1]", "row 2")


def probabilities_as_logits(folder: Path) -> None:
    rows, labels = probabilities(np.random.default_rng(0), 30, 3), np.arange(30) % 3
    given = Evidence(labels, rows, rows, rows, rows, kind="logits")
    warned(lambda: debiased(given), "look like probabilities", "second softmax would flatten every confidence")


def logprobs_as_probabilities(folder: Path) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        refused(InputError, lambda d=dtype: margin(np.log(ROWS).astype(d)), "log-probabilities", "kind='logprobs'")


def labels_out_of_range(folder: Path) -> None:
    for place in ("validation_labels", "truth"):
        for labels, words in (
            ([0, -1, 2, -1], ("-1 (2×)", "2 of 4", "0 … 2")),
            ([0, -100, 2, 1], ("-100 (1×)", "−100 often")),
            ([0, 3, 7, 7], ("3 (1×)", "7 (2×)", "3 classes")),
        ):
            refused(InputError, lambda p=place, y=labels: evidence(**{p: y}), place, "out of range", *words)


def labels_from_one(folder: Path) -> None:
    refused(InputError, lambda: evidence(validation_labels=[1, 2, 3, 3]), "out of range", "subtract 1")
    error = refused(InputError, lambda: evidence(validation_labels=[1, 2, 7, 1]))
    fact("subtract" not in error.remedy, "labels that do not count from 1 are not said to")


def labels_of_other_types(folder: Path) -> None:
    same(evidence(validation_labels=[0.0, 2.0, 1.0, 1.0]).validation_labels, np.array([0, 2, 1, 1]))
    names = ["cat", "dog", "eel"]
    same(evidence(validation_labels=["eel", "cat", "dog", "cat"], classes=names).validation_labels, np.array([2, 0, 1, 0]))
    for classes in (3, "cde"):
        refused(InputError, lambda c=classes: evidence(classes=c), "classes", "not a list of classes")
    for labels, word in (
        ([0.5, 1, 2, 0], "0.5"),
        ([np.nan, 1, 2, 0], "nan"),
        ([True, False, True, True], "bool"),
        (["a", "b", "a", "c"], "classes="),
    ):
        refused(InputError, lambda y=labels: evidence(validation_labels=y), "validation_labels", word)


def soft_labels(folder: Path) -> None:
    hot = np.eye(3)[LABELS]
    for soft in (hot, 0.7 * hot + 0.1):
        same(evidence(validation_labels=soft, soft_labels=True).validation_labels, LABELS)
    refused(InputError, lambda: evidence(validation_labels=hot), "matrix", "soft_labels=True")
    tied = np.array([[1, 0, 0], [0.4, 0.4, 0.2], [0, 0, 1], [0.5, 0.5, 0]])
    refused(InputError, lambda: evidence(validation_labels=tied, soft_labels=True), "2 rows", "rows 1, 3 (from 0)")


def no_validation(folder: Path) -> None:
    none = np.empty((0, 3))
    refused(
        InputError, lambda: evidence(validation_labels=[], validation_teacher=none, validation_student=none), "at least 1"
    )
    inputs, labels = splits()["validation"]
    refused(InputError, lambda: go(validation=(inputs[:0], labels[:0])), "no validation rows", "at least 1 row", "gold rows")


def few_validation_rows(folder: Path) -> None:
    for m in (1, 2, 5):
        at = np.arange(m) % 4
        given = Evidence(LABELS[at], ROWS[at], ROWS[at], ROWS, ROWS)
        words = f"only {m} validation rows: the weights are nearly constant"
        sound(warned(lambda g=given: debiased(g), words))
        fact(quietly(lambda g=given: debiased.fit(g)).k <= m, "k is at most the number of validation rows")


def missing_classes(folder: Path) -> None:
    for estimate in ("paper", "conditional", "ratio"):
        found = warned(
            lambda e=estimate: debiased(made(m=40, k=4, wrong="one class"), estimate=e),
            "3 of 4 classes have no validation row: 1, 2, 3",
        )
        sound(found)
    named = evidence(validation_labels=["cat", "dog", "dog", "cat"], classes=["cat", "dog", "eel"])
    warned(lambda: debiased(named), "1 of 3 classes have no validation row: eel")


def teacher_always_right(folder: Path) -> None:
    found = warned(lambda: debiased(made(wrong="none")), "right on every validation row")
    same(found, np.ones(20))


def teacher_always_wrong(folder: Path) -> None:
    for estimate in ("paper", "conditional", "ratio"):
        sound(warned(lambda e=estimate: debiased(made(wrong="all"), estimate=e), "wrong on every validation row"))


def loss_of_zero(folder: Path) -> None:
    teacher, pupil = np.tile([[0.1, 0.9]], (40, 1)), np.tile([[0.5, 0.5]], (40, 1))
    pupil[0] = [1, 0]
    given = Evidence(np.arange(40) % 2, teacher, pupil, teacher, pupil)
    sound(warned(lambda: debiased(given), "1 of 40 validation rows", "1e-06"))
    same(quietly(lambda: debiased.explain(given)).floored, 1)
    many = [np.tile(part, (50, 1)) for part in (teacher, np.tile([[0.5, 0.5]], (40, 1)))]
    many[1][0] = [1, 0]
    rare = Evidence(np.arange(2000) % 2, *many, teacher, pupil)  # 1 of 2,000 rows: below 0.1 %
    fact("1e-06" not in calmly(lambda: debiased(rare), texts=True), "a floor that is rare is not warned of")
    same(quietly(lambda: debiased.explain(rare)).floored, 1)


def denominator_of_zero(folder: Path) -> None:
    rows = np.array([[0.0, 1.0]] * 3)  # always wrong, and the student errs with the teacher: no distortion
    found = calmly(lambda: debiased.explain(Evidence([0, 0, 0], rows, rows, rows, rows), targets="hard"))
    for values, wanted in ((found.error, np.ones(3)), (found.distortion, np.zeros(3)), (found.weights, np.ones(3))):
        same(values, wanted)


def tied_distances(folder: Path) -> None:
    rng = np.random.default_rng(0)
    given = problem(rng, 100, 50, 3, sort="one_hot", dtype=np.float16)
    first = quietly(lambda: debiased(Evidence(*given.arrays)))
    for _ in range(5):
        moved = [array[order] for order in [rng.permutation(100)] for array in given.arrays[:3]]
        same(quietly(lambda m=moved: debiased(Evidence(*m, *given.arrays[3:]))), first)


def tied_classes(folder: Path) -> None:
    rows = np.array([[0.4, 0.4, 0.2], [0.1, 0.45, 0.45], [0.8, 0.1, 0.1]])
    found = quietly(lambda: debiased.explain(Evidence([0, 1, 0], rows, rows, rows, rows)))
    same((found.tied, found.error.tolist()), (2, [0, 0, 0]))
    same(quietly(lambda: oracle(evidence(teacher=rows, student=None, truth=[0, 1, 0]))), np.ones(3))


def short_floats(folder: Path) -> None:
    rng = np.random.default_rng(56)
    labels, parts = rng.integers(0, 3, 30), [rng.multinomial(16, [0.7, 0.2, 0.1], 30) / 16 for _ in range(4)]
    wanted = quietly(lambda: debiased(Evidence(labels, *parts)))
    same(wanted.dtype, np.dtype("f8"))
    for form in (lambda a: a.astype("f2"), lambda a: a.astype("f4"), lambda a: torch.from_numpy(a).bfloat16()):
        same(quietly(lambda f=form: debiased(Evidence(labels, *map(f, parts)))), wanted)
    gold, pool = write(folder / "v.npz", columns(1, 80)), write(folder / "u.npz", columns(2, 9, first=1000))
    quietly(lambda: weigh_tables(gold, [pool], folder / "w.npz"))
    with np.load(folder / "w.npz") as stored:
        same(stored["weight"].dtype, np.dtype("f4"))


def true_class_without_probability(folder: Path) -> None:
    logs = np.array([[0.0, -800.0], [-800.0, 0.0]])
    for kind, rows in (("probabilities", np.exp(logs)), ("logits", logs), ("logprobs", logs)):
        for targets in ("soft", "hard"):
            given = Evidence([1, 1], rows, rows, rows, rows, kind=kind)
            found = quietly(lambda g=given, t=targets: debiased.explain(g, targets=t))
            fact(np.isfinite([found.weights, found.error, found.distortion]).all(), "finite estimates")


def entropy_of_zeros(folder: Path) -> None:
    found = calmly(lambda: entropy(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])))
    fact(np.abs(found - [0, np.log(2)]).max() < 1e-14, "0 · log 0 counts as 0")


def numbers_of_classes(folder: Path) -> None:
    for place in PLACES:
        refused(InputError, lambda p=place: evidence(**{p: np.ones((4, 1))}), place, "(4, 1)", "at least 2 classes")
        refused(InputError, lambda p=place: evidence(**{p: np.full((4, 2), 0.5)}), place, "3", "2", "classes")
    fitted = quietly(lambda: debiased.fit(evidence()))
    refused(InputError, lambda: weigh(fitted, np.full((5, 2), 0.5), np.full((5, 2), 0.5)), "2", "3", "classes")


def lengths(folder: Path) -> None:
    for changes, words in (
        ({"validation_teacher": ROWS[:3]}, ("validation_labels and validation_teacher", "4 and 3")),
        ({"validation_student": ROWS[:2]}, ("validation_student", "4 and 2")),
        ({"student": ROWS[:1]}, ("teacher and student", "4 and 1")),
        ({"truth": [0, 1]}, ("truth", "4 and 2")),
    ):
        refused(InputError, lambda c=changes: evidence(**c), *words)
    refused(InputError, lambda: debiased.fit(evidence(), confidence=Scores(np.ones(3), np.ones(3))), "4 and 3")
    np.savez(folder / "u.npz", id=np.arange(3), teacher=ROWS)
    refused(InputError, lambda: list(open_tables([str(folder / "u.npz")], option="--unlabeled")[0].chunks()), "3", "4")


def layouts(folder: Path) -> None:
    given = problem(np.random.default_rng(51), 25, 40, 3)
    wanted = quietly(lambda: debiased(Evidence(*given.arrays)))
    for number, change in enumerate(
        (
            lambda a: np.repeat(a, 2, axis=0)[::2],
            np.asfortranarray,
            lambda a: a.astype(a.dtype.newbyteorder(">")),
            lambda a: _mapped(folder, a),
        )
    ):
        parts = [change(array) for array in given.arrays]
        fact(number or not parts[1].flags.c_contiguous, "the first form is not contiguous")
        same(quietly(lambda p=parts: debiased(Evidence(*p))), wanted)


def _mapped(folder: Path, array: Any) -> Any:
    path = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def objects_and_masks(folder: Path) -> None:
    for place in PLACES:
        for values, words in (
            (ROWS.astype(object), ("objects", "0 nulls", "astype")),
            ([[None, 1, 0]] * 4, ("objects", "4 nulls")),
            (np.ma.array(ROWS, mask=ROWS > 0.6), ("masked", "2 of 12")),
            (sparse.csr_matrix(ROWS), ("sparse", ".toarray()")),
        ):
            refused(InputError, lambda p=place, v=values: evidence(**{p: v}), place, *words)
    refused(InputError, lambda: evidence(validation_labels=[0, 1, None, 2]), "1 nulls")
    (inputs, labels), mask = splits()["validation"], np.arange(30) == 3
    hidden = np.ma.array(labels.numpy(), mask=mask)
    refused(InputError, lambda: go(validation=(inputs, hidden)), "validation labels", "masked", "1 of 30")
    covered = np.ma.array(inputs.numpy(), mask=np.tile(mask[:, None], 6))
    refused(InputError, lambda: go(validation=(covered, labels)), "validation", "masked", "6 of 180")
    for odd in (inputs.numpy().astype(np.longdouble), inputs.to_sparse(), inputs.to("meta")):
        refused(InputError, lambda o=odd: go(validation=(o, labels)), "validation", "not inputs")


def order_of_classes(folder: Path) -> None:
    rows = np.eye(4)[np.arange(40) % 4] * 0.9 + 0.025
    teacher = rows.copy()
    teacher[:3] = teacher[3:6]
    numbered = Evidence(np.arange(40) % 4, teacher, rows[:, [1, 2, 3, 0]], rows, rows)
    warned(lambda: debiased(numbered), "the student is worse than chance", "check the order")
    names = ["ant", "bee", "cow", "dog"]

    def wide(given: dict[str, Any], order: list[int]) -> dict[str, Any]:
        flat = take(given, np.arange(len(given["id"])), "id", "label")
        flat |= {f"teacher_{names[c]}": given["teacher"][:, c] for c in range(4)}
        return flat | {f"student_{names[c]}": given["student"][:, c] for c in order}

    gold = columns(1, 80)
    gold["label"] = np.array(names)[gold["label"]]
    paths = (
        write(folder / "v.parquet", wide(gold, [0, 1, 2, 3])),
        write(folder / "u.parquet", wide(columns(2, 9), [1, 0, 2, 3])),
    )
    refused(
        InputError,
        lambda: weigh_tables(paths[0], [paths[1]], folder / "w.parquet"),
        *("another order", "bee, ant", str(paths[1])),
    )


def weights_of_users(folder: Path) -> None:
    for value, words in ((0.0, ("only zeros", "at least one row")), (-0.5, ("60 numbers from -0.5", "clip"))):

        def mine(given: Evidence, value: float = value) -> Any:
            return np.full(len(given.teacher), value)

        refused(InputError, lambda rule=mine: go(table(), student, MADE, rule=rule), "rule mine", *words)


def inputs_are_left_alone(folder: Path) -> None:
    arrays = [each.copy() for each in problem(np.random.default_rng(0), 30, 20, 3).arrays]
    before = [each.tobytes() for each in arrays]
    quietly(lambda: debiased(Evidence(*arrays)))
    same([each.tobytes() for each in arrays], before)
    arrays[4][3, 1] = np.nan
    before = [each.tobytes() for each in arrays]
    refused(InputError, lambda: debiased(Evidence(*arrays)), "student")
    same([each.tobytes() for each in arrays], before)


def overflow_of_float16(folder: Path) -> None:
    values = np.array([[70000.0, 1.0], [0.0, 1.0]], np.float32)
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    refused(InputError, lambda: margin(half, "logits"), "infinite", "save logits as float32", "row 0")
    same(float(margin(values, "logits")[0]), 1.0)
