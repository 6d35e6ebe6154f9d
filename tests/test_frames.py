"""Answers and gold labels in frames of pandas, polars and Hugging Face: `make frames`, which installs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.answer_forms import CLASSES, make, part
from wdistill import correct, read_answers
from wdistill.answers.frames import stored, to_arrow
from wdistill.core.errors import WdistillError

pytestmark = pytest.mark.frames
ROWS = make(300)
GOLD = part(ROWS, 0, 80)
TRUTH = [CLASSES[number] for number in GOLD.truth]
COLUMNS = {"id": list(ROWS.ids), "text": list(ROWS.texts), "label": ROWS.labels, "confidence": ROWS.teacher.max(axis=1)}
BARE = {name: values for name, values in COLUMNS.items() if name != "id"}
WANTED = {"id": list(GOLD.ids), "label": TRUTH}
ORDER = np.random.default_rng(4).permutation(300)


@pytest.fixture(scope="module")
def expected() -> pa.Table:
    """What files would give."""
    return correct(COLUMNS, WANTED).table


def same(found: pa.Table, expected: pa.Table, *, ids: Any = None) -> bool:
    """Whether two tables have the same rows, in any order; `ids` maps ids of the first to those of the second."""
    keys = [ids[key] for key in found["id"].to_pylist()] if ids else found["id"].to_pylist()
    tables = [found.set_column(0, "id", pa.array(keys)), expected]
    one, other = ({row["id"]: row for row in table.to_pylist()} for table in tables)
    return one.keys() == other.keys() and all(
        row["label"] == other[key]["label"] and np.allclose(row["targets"], other[key]["targets"], atol=1e-6)
        for key, row in one.items()
    )


# pandas ---------------------------------------------------------------------------------------------------------------


def test_an_index_of_pandas_is_the_ids_in_any_order(expected: pa.Table) -> None:
    import pandas as pd

    answers = pd.DataFrame(BARE, index=ROWS.ids).iloc[ORDER]
    gold = pd.DataFrame({"label": TRUTH}, index=GOLD.ids)
    assert same(correct(answers, gold).table, expected)
    assert same(correct(answers, gold["label"]).table, expected)  # a Series that is indexed by id
    assert same(correct(answers.rename_axis("review"), gold.rename_axis("review")["label"], id="review").table, expected)
    assert same(correct(pd.DataFrame(COLUMNS), gold).table, expected)  # ids in a column here, in the index there
    assert same(correct(answers, pd.DataFrame(WANTED)).table, expected)


def test_rows_that_pandas_counts_are_aligned_with_a_sample_of_them(expected: pa.Table) -> None:
    import pandas as pd

    answers = pd.DataFrame(BARE)
    gold = pd.DataFrame({"label": TRUTH}).sample(frac=1, random_state=0)
    assert list(gold.index) != list(range(80))
    found = correct(answers, gold).table
    assert same(found, expected, ids={str(i): key for i, key in enumerate(ROWS.ids)})
    assert same(correct(answers, gold["label"]).table, expected, ids={str(i): key for i, key in enumerate(ROWS.ids)})


def test_frames_whose_rows_are_only_counted_are_refused() -> None:
    import pandas as pd

    with pytest.raises(WdistillError, match="no ids"):
        correct(pd.DataFrame(BARE), pd.DataFrame({"label": TRUTH}))
    with pytest.raises(WdistillError, match="indexed by id"):
        correct(pd.DataFrame(COLUMNS), pd.Series(TRUTH))


def test_an_index_that_contradicts_a_column_of_ids_is_refused() -> None:
    import pandas as pd

    answers = pd.DataFrame({**COLUMNS, "id": range(300)}, index=ORDER)
    with pytest.raises(WdistillError, match="not clear which ids"):
        correct(answers, pd.Series(TRUTH, index=ORDER[:80]))


def test_an_index_that_stands_twice_is_refused() -> None:
    import pandas as pd

    answers = pd.DataFrame(BARE, index=[*ROWS.ids[:-1], ROWS.ids[0]])
    with pytest.raises(WdistillError, match="more than once"):
        correct(answers, pd.Series(TRUTH, index=GOLD.ids))


def test_categories_missing_values_and_lists_of_pandas_are_read() -> None:
    import pandas as pd

    labels = pd.Series([None, *ROWS.labels[1:]], dtype="category")
    found = read_answers(pd.DataFrame({"id": ROWS.ids, "label": labels}), classes=CLASSES)
    assert dict(found.refused) == {ROWS.ids[0]: "no answer"}
    lists = pd.DataFrame({"id": ROWS.ids, "pred_probs": list(ROWS.teacher)})
    np.testing.assert_allclose(read_answers(lists, classes=CLASSES).probabilities, ROWS.teacher, atol=1e-9)


def test_corrected_targets_become_frames(expected: pa.Table) -> None:
    import polars as pl

    corrected = correct(COLUMNS, WANTED)
    assert corrected.to_pandas()["id"].tolist() == expected["id"].to_pylist()
    assert pl.DataFrame(corrected)["label"].to_list() == expected["label"].to_pylist()


# polars ---------------------------------------------------------------------------------------------------------------


def test_frames_of_polars_are_read(expected: pa.Table) -> None:
    import polars as pl

    assert same(correct(pl.DataFrame(COLUMNS), pl.DataFrame(WANTED)).table, expected)
    with pytest.raises(WdistillError, match="no ids"):
        correct(pl.DataFrame(BARE), pl.DataFrame(WANTED))
    with pytest.raises(WdistillError, match="this is no table"):
        correct(pl.DataFrame(COLUMNS).lazy(), pl.DataFrame(WANTED))


@pytest.mark.parametrize("kind", ["list", "array", "struct", "votes", "categories"])
def test_lists_structs_and_categories_of_polars_are_read(kind: str) -> None:
    import polars as pl

    votes = [["Positive", "negative", name] for name in ROWS.labels]
    named = [dict(zip(CLASSES, map(float, row), strict=True)) for row in ROWS.teacher]
    columns: dict[str, Any] = {
        "list": pl.Series("pred_probs", ROWS.teacher.tolist()),
        "array": pl.Series("pred_probs", ROWS.teacher.tolist(), dtype=pl.Array(pl.Float64, 2)),
        "struct": pl.Series("probs", named),
        "votes": pl.Series("votes", votes),
        "categories": pl.Series("label", ROWS.labels, dtype=pl.Categorical),
    }
    found = read_answers(pl.DataFrame([pl.Series("id", ROWS.ids), columns[kind]]), classes=CLASSES)
    assert found.ids.tolist() == list(ROWS.ids) and not found.refused
    assert np.array_equal(found.probabilities.argmax(axis=1), ROWS.teacher.argmax(axis=1))
    if kind in ("list", "array", "struct"):
        np.testing.assert_allclose(found.probabilities, ROWS.teacher, atol=1e-9)


# Hugging Face ---------------------------------------------------------------------------------------------------------


def test_datasets_are_read_with_the_names_of_their_classes(expected: pa.Table) -> None:
    import datasets

    kinds = datasets.Features({"id": datasets.Value("string"), "label": datasets.ClassLabel(names=list(CLASSES))})
    gold = datasets.Dataset.from_dict({"id": list(GOLD.ids), "label": GOLD.truth.tolist()}, features=kinds)
    answers = datasets.Dataset.from_dict({name: list(values) for name, values in COLUMNS.items()})
    assert same(correct(answers.shuffle(seed=1), gold.shuffle(seed=2)).table, expected)
    unlabeled = datasets.Dataset.from_dict({"id": ["a", "b"], "label": [-1, 1]}, features=kinds)
    assert to_arrow(unlabeled, "gold")["label"].to_pylist() == [None, "positive"]


def test_what_is_no_table_of_hugging_face_is_refused() -> None:
    import datasets

    answers = datasets.Dataset.from_dict({name: list(values) for name, values in COLUMNS.items()})
    with pytest.raises(WdistillError, match="one split of a dataset"):
        correct(datasets.DatasetDict(train=answers), WANTED)
    with pytest.raises(WdistillError, match="this is no table"):
        correct(answers.to_iterable_dataset(), WANTED)


def test_columns_of_every_frame_can_be_stored() -> None:
    import polars as pl

    nested = pl.DataFrame({"a": [[["x"]]], "b": [{"c": ["y"]}]})
    table = stored(to_arrow(nested, "answers"), "answers")
    assert table.to_pylist() == [{"a": [["x"]], "b": {"c": ["y"]}}]
    assert table.schema.field("a").type == pa.list_(pa.list_(pa.string()))
