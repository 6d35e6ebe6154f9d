"""Stored predictions: the k largest of a row, or all, in lists; what readers make of them, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile import harmless
from tests.tables import columns, write
from tests.test_cli import fail, weighed
from tests.test_readers import read, refused, table
from wdistill import cli
from wdistill.core import checks
from wdistill.core.errors import InputError
from wdistill.tables.formats.predictions import StoredPredictions, largest
from wdistill.weights.confidence import entropy, scan


def stored(path: Path, values: np.ndarray, precision: Any = "float16", top_k: int | None = None, **more: Any) -> Path:
    """A table of ids and predictions, and of further columns."""
    layout = StoredPredictions(precision, top_k)
    fields = [pa.field("id", pa.int64()), layout.field("teacher", values.shape[1])]
    arrays = [pa.array(more.pop("id", np.arange(len(values)))), layout.column(values)]
    whole = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    for name, column in more.items():
        whole = whole.append_column(name, column if isinstance(column, pa.Array) else pa.array(column))
    pq.write_table(whole, path)
    return path


def by_hand(row: np.ndarray, k: int) -> list[tuple[int, float]]:
    """The k largest of a row, the slow way."""
    return sorted(((c, float(p)) for c, p in enumerate(row)), key=lambda pair: (-pair[1], pair[0]))[:k]


@st.composite
def distributions(draw: st.DrawFn) -> np.ndarray:
    """Rows (n, K) that sum to 1, with many equal probabilities, zeros, and pairs that only rounding makes equal."""
    classes, n = draw(st.integers(2, 9)), draw(st.integers(1, 6))
    counts = np.array(draw(st.lists(st.integers(0, 4), min_size=n * classes, max_size=n * classes)), float)
    counts = counts.reshape(n, classes) + draw(st.sampled_from([0.0, 1e-3, 1.0]))
    counts += draw(st.sampled_from([0.0, 1e-5, 1e-4])) * np.random.default_rng(draw(st.integers(0, 99))).random(counts.shape)
    counts[counts.sum(axis=1) == 0] = 1.0
    return (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)


@given(distributions(), st.integers(1, 9), st.sampled_from(["float16", "float32"]))
def test_the_k_largest_are_those_found_by_sorting_and_of_equals_the_first_classes(
    values: np.ndarray, k: int, precision: str
) -> None:
    rounded, k = values.astype(precision), min(k, values.shape[1])
    numbers, probabilities = largest(rounded, k)
    found = [list(zip(*pair, strict=True)) for pair in zip(numbers.tolist(), probabilities.tolist(), strict=True)]
    assert found == [by_hand(row, k) for row in rounded] and probabilities.dtype == rounded.dtype


@given(distributions(), st.integers(2, 9), st.sampled_from(["float16", "float32"]))
def test_margin_and_argmax_of_the_k_largest_are_those_of_all_classes(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, k: int, precision: str
) -> None:
    path, k = tmp_path_factory.mktemp("k") / "x.parquet", min(k, values.shape[1])
    _, found = read(stored(path, values, precision, k))
    dense, spread = values.astype(precision), found["teacher"]
    assert spread.dtype == dense.dtype and spread.flags.c_contiguous
    wanted, got = (scan(each, entropy=True) for each in (dense, spread))
    assert (got.margin == wanted.margin).all() and (got.argmax == wanted.argmax).all()
    kept = np.take_along_axis(spread, largest(dense, k)[0], axis=1)
    assert (kept == largest(dense, k)[1]).all() and (spread >= 0).all()
    assert np.abs(spread.astype(float).sum(axis=1) - 1).max() <= checks.tolerance(precision, values.shape[1])
    # an even spread of the rest has the largest entropy of all that are possible
    assert (got.entropy >= wanted.entropy - 2 * checks.tolerance(precision, 9)).all()  # type: ignore[operator]


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=50))
def test_probabilities_are_rounded_to_the_nearest_float16(values: list[float]) -> None:
    rows = np.array([values], np.float32)
    stored = StoredPredictions("float16").column(rows).flatten().to_numpy()
    assert (stored == rows[0].astype(np.float16)).all()


@pytest.mark.parametrize("classes", [40_000, 70_000])
def test_class_numbers_beyond_16_bits_come_back(tmp_path: Path, classes: int) -> None:
    values = np.full((3, classes), 0.5 / classes)
    at = [classes - 1, 33_000, 0]
    values[range(3), at] += 0.5
    _, found = read(stored(tmp_path / "x.parquet", values, top_k=2))
    assert found["teacher"].argmax(axis=1).tolist() == at and found["teacher"].shape == (3, classes)


def test_missing_mass_is_kept_exactly_where_it_is_small(tmp_path: Path) -> None:
    values = np.array([[0.9999, 9e-5, 8e-6, 2e-6]])
    rows = StoredPredictions("float16", 2).column(values)
    assert rows.field("missing").to_pylist() == pytest.approx([1e-5], rel=1e-6)
    assert entropy(read(stored(tmp_path / "x.parquet", values, "float32", 2))[1]["teacher"])[0] == pytest.approx(
        entropy(values)[0], rel=1e-2
    )


VALIDATION, UNLABELED = columns(1, 200, classes=9), columns(2, 500, classes=9, first=1000)


@pytest.mark.parametrize("method", [(), ("--method", "best")], ids=["paper", "best"])
def test_weights_from_the_k_largest_are_those_from_all_classes(tmp_path: Path, method: tuple[str, ...]) -> None:
    validation = write(tmp_path / "v.parquet", VALIDATION)
    student = pa.FixedSizeListArray.from_arrays(pa.array(UNLABELED["student"].ravel()), 9)
    outputs = []
    for name, top_k in (("dense", None), ("k", 8 if method else 3)):
        path = stored(tmp_path / f"{name}.parquet", UNLABELED["teacher"], top_k=top_k, id=UNLABELED["id"], student=student)
        outputs.append(weighed(validation, path, tmp_path / f"w-{name}.parquet", *method))
    if not method:
        assert outputs[0].equals(outputs[1])
    else:
        dense, largest_ones = (np.stack(each["targets"].to_numpy()) for each in outputs)
        assert np.abs(dense - largest_ones).max() < 1e-2  # 8 of 9: what is missing is the last one


def test_gold_rows_may_hold_the_k_largest_too(tmp_path: Path) -> None:
    label, student = (
        pa.array(VALIDATION["label"]),
        pa.FixedSizeListArray.from_arrays(pa.array(VALIDATION["student"].ravel()), 9),
    )
    gold = stored(
        tmp_path / "v.parquet", VALIDATION["teacher"], "float32", 8, id=VALIDATION["id"], label=label, student=student
    )
    unlabeled = write(tmp_path / "u.parquet", UNLABELED)
    outputs = [weighed(v, unlabeled, tmp_path / "w.parquet") for v in (gold, write(tmp_path / "dense.parquet", VALIDATION))]
    # 8 of 9: the last probability is what is missing
    assert np.abs(outputs[0]["weight"].to_numpy() - outputs[1]["weight"].to_numpy()).max() < 1e-5


def test_the_k_largest_are_a_teacher_of_distill_too(tmp_path: Path) -> None:
    from wdistill.training.teacher_table import read_tables

    class Rows(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.ids)

    path = stored(tmp_path / "u.parquet", UNLABELED["teacher"], top_k=3, id=UNLABELED["id"])
    splits: Any = {"validation": Rows(ids=UNLABELED["id"][:50]), "unlabeled": Rows(ids=UNLABELED["id"][50:][::-1])}
    found = read_tables(str(path), splits, splits, 9, "probabilities", tmp_path)
    _, whole = read(path)
    with pytest.raises(InputError, match="8"):
        read_tables(str(path), splits, splits, 8, "probabilities", tmp_path)
    assert (found["unlabeled"] == whole["teacher"][50:][::-1]).all() and (found["validation"] == whole["teacher"][:50]).all()
    with pytest.raises(InputError, match="--kind probabilities"):
        read_tables(str(path), splits, splits, 9, "logits", tmp_path)


@pytest.mark.slow
def test_advice_is_that_of_all_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With 8 of 9 stored, the last probability is what is missing."""
    said = []
    for top_k in (None, 8):
        paths = []
        for name, rows in (("v", VALIDATION), ("u", UNLABELED)):
            student = StoredPredictions("float32", top_k)
            path = stored(
                tmp_path / f"{name}.parquet", rows["teacher"], "float32", top_k, id=rows["id"], label=rows["label"]
            )
            whole = pq.read_table(path).append_column(student.field("student", 9), student.column(rows["student"]))
            pq.write_table(whole, path)
            paths.append(path)
        assert cli.main(["advise", "--validation", str(paths[0]), "--unlabeled", str(paths[1])]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_the_k_largest_are_no_answers_of_an_llm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path / "u.parquet", UNLABELED["teacher"], top_k=3, id=UNLABELED["id"], label=UNLABELED["label"])
    words = ("--answers", path, "--label", "label", "--output", tmp_path / "w.parquet")
    assert "weigh --method best" in fail(capsys, "correct", *words)


# what is refused ------------------------------------------------------------------------------------------------------

GOOD = {"classes": [[4, 0], [1, 2]], "probabilities": [[0.5, 0.25], [0.75, 0.125]], "missing": [0.25, 0.125]}


def broken(path: Path, count: object = 5, **parts: Any) -> Path:
    """A table of the 2 largest of 5 classes, of which something is not as it should be."""
    values = {**GOOD, **parts}
    kinds = {"classes": pa.list_(pa.int64()), "probabilities": pa.list_(pa.float32()), "missing": pa.float32()}
    rows = pa.StructArray.from_arrays([pa.array(values[name], kind) for name, kind in kinds.items()], names=list(kinds))
    metadata = None if count is None else {"wdistill.classes": str(count)}
    field = pa.field("teacher", rows.type, metadata=metadata)
    pq.write_table(pa.Table.from_arrays([pa.array([7, 8]), rows], schema=pa.schema([("id", pa.int64()), field])), path)
    return path


def test_the_k_largest_that_others_wrote_are_read(tmp_path: Path) -> None:
    _, found = read(broken(tmp_path / "x.parquet"))
    assert np.allclose(found["teacher"], [[0.25, 1 / 12, 1 / 12, 1 / 12, 0.5], [1 / 24, 0.75, 0.125, 1 / 24, 1 / 24]])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"classes": [[4, 5], [1, 2]]}, ["out of range", "0 … 4", "id 7"]),
        ({"classes": [[4, 0], [1, -1]]}, ["out of range", "id 8"]),
        ({"classes": [[4, 0], [1, 1]]}, ["twice in a row", "row 1", "id 8"]),
        ({"probabilities": [[0.5, float("nan")], [0.75, 0.125]]}, ["not probabilities"]),
        ({"probabilities": [[0.5, -0.25], [0.75, 0.125]]}, ["not probabilities"]),
        ({"probabilities": [[0.5, float("inf")], [0.75, 0.125]]}, ["not probabilities"]),
        ({"missing": [0.25, -0.125]}, ["not probabilities"]),
        ({"missing": [0.25, float("nan")]}, ["not probabilities"]),
        ({"missing": [0.25, 0.2]}, ["do not sum to 1"]),
        ({"probabilities": [[0.9, 0.6], [0.75, 0.125]]}, ["do not sum to 1"]),
        ({"probabilities": [[0.5, 0.01], [0.75, 0.125]], "missing": [0.49, 0.125]}, ["too large for the k largest"]),
        ({"missing": [0.25, None]}, ["missing"]),
        ({"classes": [[4, None], [1, 2]]}, ["values are missing"]),
        ({"probabilities": [[0.5, 0.25], None]}, ["values are missing"]),
        ({"classes": [[4, 0], [1]]}, ["wrong length"]),
        ({"probabilities": [[0.5, 0.25], [0.75]]}, ["wrong length"]),
        ({"count": None}, ["number of classes is not known", "nothing"]),
        ({"count": 1 << 40}, ["number of classes is not known"]),
        ({"count": "five"}, ["number of classes is not known", "five"]),
        ({"count": 1}, ["number of classes is not known"]),
    ],
)
def test_the_k_largest_are_checked(tmp_path: Path, parts: dict[str, Any], words: list[str]) -> None:
    path = broken(tmp_path / "x.parquet", **parts)
    refused(InputError, lambda: read(path), "column 'teacher", *words)


def test_files_over_other_classes_are_not_one_table(tmp_path: Path) -> None:
    for name, count in (("a", 5), ("b", 6)):
        broken(tmp_path / f"{name}.parquet", count)
    refused(InputError, lambda: read(tmp_path), "differ in column 'teacher'", "6 classes", "5 classes")


def test_a_few_bytes_that_say_a_million_classes_need_little_memory(tmp_path: Path) -> None:
    broken(tmp_path / "x.parquet", 1 << 20, probabilities=[[0.5, 0.25]] * 2, missing=[0.25] * 2)
    assert harmless(tmp_path / "x.parquet").rows == 2
    one = pq.read_table(tmp_path / "x.parquet")
    ids = pa.array(np.arange(400))
    many = one.take(pa.array(np.arange(400) % 2)).set_column(0, one.schema.field("id"), ids)
    pq.write_table(many, tmp_path / "x.parquet")
    assert harmless(tmp_path / "x.parquet").rows == 400


def test_logits_and_the_k_largest_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validation = write(tmp_path / "v.parquet", VALIDATION)
    path = stored(
        tmp_path / "u.parquet", UNLABELED["teacher"], top_k=3, id=UNLABELED["id"], student=UNLABELED["student"].tolist()
    )
    words = ("--validation", validation, "--unlabeled", path, "--output", tmp_path / "w.parquet")
    message = fail(capsys, "weigh", *words, "--kind", "logits")
    assert "--kind probabilities" in message and "the k largest" in message and not (tmp_path / "w.parquet").exists()


def test_a_table_tells_that_it_holds_predictions(tmp_path: Path) -> None:
    opened = table(stored(tmp_path / "x.parquet", VALIDATION["teacher"], top_k=2))
    assert opened.has("teacher") and opened.classes("teacher") is None
