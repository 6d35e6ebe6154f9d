"""The table that every adapter takes: from files and frames, joined by id, checked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wdistill
from tests.tables import columns, write
from wdistill import ConfigError, FileError, InputError, cli
from wdistill.adapters.table import TargetTable, read_targets
from wdistill.adapters.target_table import check_table, check_targets

IDS = ["a", "b", "c"]
TARGETS = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])


def table(**others: Any) -> TargetTable:
    return read_targets({"id": IDS, "targets": TARGETS, "weight": [1.0, 0.5, 0.0], **others})


@given(order=st.permutations(range(3)), numbered=st.booleans())
def test_rows_come_back_by_id_in_any_order(order: list[int], numbered: bool) -> None:
    names: list[Any] = [7, 8, 9] if numbered else IDS
    rows = TargetTable(np.array(names), TARGETS, np.array([1.0, 0.5, 0.0])).select([names[i] for i in order])
    assert np.array_equal(rows.targets, TARGETS[order]) and rows.weight.tolist() == [[1.0, 0.5, 0.0][i] for i in order]
    assert rows.labels.tolist() == TARGETS[order].argmax(axis=1).tolist()


def test_numbers_and_their_texts_are_the_same_ids() -> None:
    """`correct` writes all ids as text; people's rows often have numbers."""
    rows = TargetTable(np.array(["10", "11"]), TARGETS[:2], np.ones(2))
    assert rows.rows(np.array([11, 10])).tolist() == [1, 0]
    with pytest.raises(InputError, match="1 of 2 ids, such as 12"):
        rows.select([12, 10])


def test_rows_that_the_table_has_can_be_told_from_others() -> None:
    """`correct` leaves out rows without an answer; people's own table has them still."""
    rows = TargetTable(np.array(["10", "11"]), TARGETS[:2], np.ones(2))
    with pytest.raises(InputError, match=r"table\.has\(ids\)"):
        rows.select([11, 12])
    mine = np.array([12, 11, 10, 9])
    assert rows.has(mine).tolist() == [False, True, True, False]
    assert rows.select(mine[rows.has(mine)]).ids.tolist() == ["11", "10"]


@pytest.mark.parametrize("source", ["targets.parquet", Path("targets.parquet"), pa.table({"id": [1]}), table()])
def test_what_is_passed_as_numbers_without_being_read_is_told_how_to_read(source: Any) -> None:
    with pytest.raises(ConfigError, match=r"(?s)this is no array.*read_targets"):
        check_targets(source)
    if isinstance(source, TargetTable):
        assert check_table(source) is source
    else:
        with pytest.raises(ConfigError, match=r"(?s)this is no table of targets.*read_targets"):
            check_table(source)


@pytest.mark.parametrize("labels", [[0, 1], ["cat", "dog"], np.array([0, 1]), np.array(["cat", "dog"], object), (0.2, 0.7)])
def test_labels_are_no_targets(labels: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)one value a row.*\(2,\).*np\.eye\(K\)"):
        check_targets(labels)


@pytest.mark.parametrize("numbers", [[[3.0, 1.0]], [[-2.0, 5.0]], [[0.5, 0.2]]])
def test_a_remedy_names_no_options_that_adapters_do_not_have(numbers: Any) -> None:
    with pytest.raises(InputError, match="their softmax") as caught:
        check_targets(numbers)
    assert "renormalize" not in str(caught.value) and "kind" not in str(caught.value) and caught.value.rows == (0,)
    with pytest.raises(InputError, match="NaN or infinite"):
        check_targets([[np.nan, 1.0]])


def test_what_correct_returns_is_what_it_writes(tmp_path: Path) -> None:
    answers = {"id": list(range(200)), "label": ["good", "bad", "good", "good"] * 50}
    gold = {"id": list(range(40)), "label": ["good", "bad", "good", "bad"] * 10}
    corrected = wdistill.correct(answers, gold)
    read = read_targets(corrected)
    assert read.classes == ("bad", "good") and len(read) == 200
    stored = np.stack(corrected.table["targets"].to_pylist())
    assert np.array_equal(read.targets, stored) and (read.weight == 1).all()
    for name, rows in (("answers", answers), ("gold", gold)):
        write(tmp_path / f"{name}.parquet", {key: np.array(values) for key, values in rows.items()})
    sources = ["--answers", str(tmp_path / "answers.parquet"), "--gold", str(tmp_path / "gold.parquet")]
    for suffix in ("parquet", "csv", "npz"):
        assert cli.main(["correct", *sources, "--output", str(tmp_path / f"t.{suffix}")]) == 0
        again = read_targets(tmp_path / f"t.{suffix}").select(read.ids)
        assert np.allclose(again.targets, read.targets, atol=1e-7) and again.classes == ("bad", "good")


def test_weights_of_a_rule_take_the_teachers_predictions_as_targets(tmp_path: Path) -> None:
    gold, pool = columns(1, 60), columns(2, 80, first=1000)
    write(tmp_path / "v.parquet", gold)
    write(tmp_path / "u.parquet", {name: pool[name] for name in ("id", "teacher", "student")})
    tables = ["--validation", str(tmp_path / "v.parquet"), "--unlabeled", str(tmp_path / "u.parquet")]
    assert cli.main(["weigh", *tables, "--output", str(tmp_path / "w.parquet")]) == 0
    with pytest.raises(InputError, match="it is not said what to teach"):
        read_targets(tmp_path / "w.parquet")
    found = read_targets(tmp_path / "w.parquet", teacher=tmp_path / "u.parquet", gold=tmp_path / "v.parquet")
    assert len(found) == 140
    rows = found.select(pool["id"])
    assert np.allclose(rows.targets, pool["teacher"], atol=1e-7) and 0 < rows.weight.min() < 1
    taught = found.select(gold["id"])
    assert np.array_equal(taught.labels, gold["label"]) and (taught.weight == 1).all() and taught.targets.max() == 1


def test_gold_takes_the_place_of_what_was_said_of_a_row() -> None:
    found = read_targets(table(), gold={"id": ["c", "z"], "label": [0, 1]})
    assert found.select(["c", "z", "a"]).targets.tolist() == [[1, 0], [0, 1], [0.9, 0.1]]
    assert found.select(["c"]).weight.tolist() == [1] and len(found) == 4


@pytest.mark.parametrize("written", ["text", "numbers", "csv"])
@pytest.mark.parametrize("names", [("1", "2"), ("9", "8"), ("1", "0")])
def test_labels_that_are_numbers_are_names_where_names_are_numbers(
    names: tuple[str, str], written: str, tmp_path: Path
) -> None:
    """As in `wdistill correct`: not the numbers of the columns."""
    said = TargetTable(np.array(IDS), TARGETS, np.ones(3), names)
    labels: Any = [names[1], names[0]]
    gold: Any = {"id": ["a", "b"], "label": labels if written == "text" else [int(label) for label in labels]}
    if written == "csv":
        (tmp_path / "gold.csv").write_text(f"id,label\na,{labels[0]}\nb,{labels[1]}\n")
        gold = tmp_path / "gold.csv"
    assert read_targets(said, gold=gold).select(["a", "b"]).targets.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InputError, match="not in the class list"):
        read_targets(said, gold={"id": ["a"], "label": [7]})


def test_numbers_are_class_numbers_where_names_are_words() -> None:
    said = TargetTable(np.array(IDS), TARGETS, np.ones(3), ("cat", "dog"))
    assert read_targets(said, gold={"id": ["a"], "label": [1]}).select(["a"]).targets.tolist() == [[0, 1]]
    assert read_targets(said, gold={"id": ["a"], "label": ["dog"]}).select(["a"]).targets.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"id": ["a", "a", "b"]}, "1 ids more than once, such as 'a'"),
        ({"weight": [1.0, -0.5, 1.0]}, "1 negative weights, the least -0.5, first in row 1"),
        ({"weight": [0.0, 0.0, 0.0]}, "no row counts"),
        ({"weight": [1.0, float("nan"), 1.0]}, "weight"),
        ({"targets": 3 * TARGETS}, "targets"),
        ({"targets": TARGETS - 0.5}, "targets"),
    ],
)
def test_what_no_loss_can_be_made_of_is_an_error(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        table(**wrong)


def test_tables_of_arrow_without_weights_count_every_row_once() -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(TARGETS.ravel()), 2)
    found = read_targets(pa.table({"id": [1, 2, 3], "targets": lists}))
    assert (found.weight == 1).all() and np.array_equal(found.targets, TARGETS)
    with pytest.raises(InputError, match="no targets and no weights"):
        read_targets({"id": [1, 2], "x": [1.0, 2.0]})


@pytest.fixture
def weighed(tmp_path: Path) -> Path:
    """Rows in three files, in the folder `u`, and what `weigh --engine` makes of them: weights and best targets."""
    write(tmp_path / "gold.parquet", columns(1, 60))
    for number in range(3):
        rows = columns(2 + number, 40, first=1000 * (number + 1))
        write(tmp_path / "u" / f"{number}.parquet", {name: rows[name] for name in ("id", "teacher", "student")})
    (tmp_path / "u" / "_SUCCESS").write_text("as Spark leaves it")
    tables = ["--validation", str(tmp_path / "gold.parquet"), "--unlabeled", str(tmp_path / "u")]
    for options in (["--rule", "debiased"], ["--method", "best"]):
        named = [*options, "--classes", "a,b,c,d", "--engine", "local", "--output", str(tmp_path / options[1])]
        assert cli.main(["weigh", *tables, *named]) == 0
    return tmp_path


@pytest.mark.parametrize("form", ["{}", "{}/*", "{}/*.parquet"])
def test_a_folder_of_an_engine_is_read_whole_and_as_a_glob(weighed: Path, form: str) -> None:
    assert (weighed / "best" / "_manifest.json").exists()
    tables = [columns(2 + number, 40, first=1000 * (number + 1)) for number in range(3)]
    teacher = {name: np.concatenate([each[name] for each in tables]) for name in ("id", "teacher")}
    best = read_targets(form.format(weighed / "best"))
    parts = [pq.read_table(path) for path in sorted((weighed / "best").glob("*.parquet"))]
    assert len(best) == 120 and best.classes == tuple("abcd")
    assert np.array_equal(best.targets, np.concatenate([np.stack(part["targets"].to_numpy()) for part in parts]))
    found = read_targets(form.format(weighed / "debiased"), teacher=form.format(weighed / "u"))
    rows = found.select(teacher["id"])
    assert np.allclose(rows.targets, teacher["teacher"], atol=1e-7) and 0 < rows.weight.min() < 1
    assert found.classes == tuple("abcd")


def test_a_folder_of_an_engine_that_is_not_whole_is_refused(weighed: Path) -> None:
    lost = sorted((weighed / "best").glob("*.parquet"))[1]
    kept = read_targets(lost)
    assert len(kept) == 40 and kept.classes == tuple("abcd")
    lost.unlink()
    with pytest.raises(FileError, match=f"(?s)the folder is not whole.*{lost.name}"):
        read_targets(weighed / "best")
    assert len(read_targets(f"{weighed}/best/*")) == 80  # what was asked for
    (weighed / "best" / "_manifest.json").rename(weighed / "best" / "_part-000000-0.json")
    with pytest.raises(FileError, match=r"(?s)the folder is not whole.*run the command again"):
        read_targets(weighed / "best")


def test_files_of_one_folder_name_the_same_classes(tmp_path: Path) -> None:
    for name, classes, first in (("a", "good,bad", 0), ("b", "bad,good", 100)):
        answers = {"id": np.arange(first, first + 100), "label": np.array(["good", "bad", "good", "good"] * 25)}
        gold = {"id": answers["id"][:40], "label": np.array(["good", "bad", "good", "bad"] * 10)}
        files = [str(write(tmp_path / f"{name}-{each}.parquet", rows)) for each, rows in (("u", answers), ("v", gold))]
        (tmp_path / "out").mkdir(exist_ok=True)
        options = ["--output", str(tmp_path / "out" / f"{name}.parquet"), "--classes", classes]
        assert cli.main(["correct", "--answers", files[0], "--gold", files[1], *options]) == 0
    assert read_targets(tmp_path / "out" / "b.parquet").classes == ("bad", "good")
    with pytest.raises(InputError, match=r"(?s)b\.parquet: .* other classes.*found: bad, good.*good, bad, as in .*/a\."):
        read_targets(tmp_path / "out")


def test_no_adapter_is_longer_than_150_lines() -> None:
    files = (Path(wdistill.__file__).parent / "adapters").glob("*.py")
    assert {path.name: count for path in files if (count := len(path.read_text().splitlines())) > 150} == {}


EXTRAS = {"refresh": "torch"}  # where it has another name than the module
ADAPTERS = [
    "cleanlab",
    "keras",
    "lightgbm",
    "lightning",
    "refresh",
    "sklearn",
    "skops",
    "skorch",
    "torch",
    "transformers",
    "xgboost",
]
MISSING = """
import importlib, sys
sys.modules |= dict.fromkeys(("cleanlab", "keras", "lightgbm", "pandas", "sklearn", "torch", "xgboost"))
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"wdistill.adapters.{name}")
    except ImportError as error:
        print(error)
"""


def test_an_adapter_without_its_library_names_the_extra() -> None:
    said = subprocess.run([sys.executable, "-c", MISSING, *ADAPTERS], capture_output=True, text=True, check=True).stdout
    for name, line in zip(ADAPTERS, said.splitlines(), strict=True):
        extra = EXTRAS.get(name, name)
        assert re.fullmatch(rf"wdistill\.adapters\.{name} needs \w+: pip install 'wdistill\[{extra}\]'", line)
