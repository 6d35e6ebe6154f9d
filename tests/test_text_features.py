"""Features of texts: what they weigh, how they are normed, and that they come back from arrays."""

from __future__ import annotations

from collections import Counter
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.texts import reviews, texts
from wdistill.core.errors import ConfigError, InputError
from wdistill.text.features import TextFeatures, fit_features, from_arrays
from wdistill.text.integers import LENGTH, text_rows
from wdistill.text.ngrams import COLUMNS
from wdistill.text.plain import BUCKETS, MOST, bucket_of, columns_of, row_of

kinds = st.sampled_from([None, (2, 3)])
batches = st.lists(texts, min_size=1, max_size=8)


def slow_row(text: str | None, fitted: list[str | None], characters: tuple[int, int] | None) -> dict[int, float]:
    """Features of a text from those it is fitted to, one number after the other."""
    frequencies = Counter(column for each in fitted for column in columns_of(each, characters))
    counts = columns_of(text, characters)
    values = {c: counts[c] * (1 + log((1 + len(fitted)) / (1 + n))) for c, n in frequencies.items() if n > 1 and c in counts}
    row = {}
    for pairs, length in ((False, 1.0), (True, 0.5)):
        part = {column: value for column, value in values.items() if (column >= BUCKETS) == pairs}
        norm = sqrt(sum(value**2 for value in part.values()))
        row |= {column: length * value / norm for column, value in part.items()}
    return row


@given(batches, batches, kinds)
def test_features_are_what_is_documented(
    fitted: list[str | None], read: list[str | None], kind: tuple[int, int] | None
) -> None:
    matrix = fit_features([fitted], kind).transform(fitted + read)
    assert matrix.dtype == np.float32 and matrix.shape == (len(fitted + read), COLUMNS)
    for row, text in enumerate(fitted + read):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        found = dict(zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True))
        assert found == pytest.approx(slow_row(text, fitted, kind), rel=1e-6)


@given(st.lists(batches, min_size=1, max_size=4), kinds)
def test_batches_do_not_matter_and_arrays_keep_everything(
    several: list[list[str | None]], kind: tuple[int, int] | None
) -> None:
    whole = [text for batch in several for text in batch]
    features, streamed = fit_features([whole], kind), fit_features((batch for batch in several), kind)
    again = from_arrays(streamed.to_arrays())
    assert (again.texts, again.characters) == (features.texts, features.characters) == (len(whole), kind)
    assert np.array_equal(again.frequencies, features.frequencies) and np.array_equal(again.idf, features.idf)


def test_arrays_that_are_not_features_are_refused() -> None:
    good = fit_features([["a b", "b c"]]).to_arrays()
    bad = [
        {**good, "columns": good["columns"][::-1].copy()},
        {**good, "columns": good["columns"] + COLUMNS},
        {**good, "frequencies": good["frequencies"] + 2},
        {**good, "frequencies": good["frequencies"][:-1]},
        {**good, "frequencies": good["frequencies"].astype(float)},
        {**good, "texts": np.array(0)},
        {**good, "characters": np.array([3])},
        {**good, "characters": np.array([5, 3])},
        {name: value for name, value in good.items() if name != "texts"},
        {},
    ]
    for arrays in bad:
        with pytest.raises(ConfigError, match="not the features of texts"):
            from_arrays(arrays)
    assert from_arrays(good).texts == 2


def test_no_texts_are_refused() -> None:
    for nothing in ([], [[]]):
        with pytest.raises(InputError, match="no texts"):
            fit_features(nothing)


# rows of whole numbers ------------------------------------------------------------------------------------------------


@given(batches, kinds, st.sampled_from([1, 3, LENGTH]))
def test_rows_are_those_of_the_plain_file(batch: list[str | None], kind: tuple[int, int] | None, length: int) -> None:
    every = TextFeatures(2, np.full(COLUMNS, 2), kind)  # all columns are known
    rows = text_rows(batch, every, length)
    assert rows.dtype == np.int32 and rows.tolist() == [row_of(text, length, kind) for text in batch]
    assert kind is not None or np.array_equal(text_rows(batch, length=length), rows)


@given(batches)
def test_rows_are_as_long_as_the_longest_needs(batch: list[str | None]) -> None:
    rows = text_rows(batch, length=None)
    assert rows.shape == (len(batch), max(1, *(len(columns_of(text)) for text in batch)) if len(batch) else 1)
    assert [sum(row > 0) for row in rows] == [len(columns_of(text)) for text in batch]


def test_columns_that_count_nothing_are_left_out() -> None:
    features = fit_features([["a b", "a c"]])
    assert text_rows(["c a b a"], features, 4).tolist() == [[(2 << 20) + bucket_of("a") + 1, 0, 0, 0]]


def test_counts_end_somewhere() -> None:
    (row,) = text_rows(["a " * 5000], length=2)
    assert row.tolist() == [(MOST << 20) + bucket_of("a") + 1, (MOST << 20) + BUCKETS + bucket_of("a", "a") + 1]


def test_long_texts_lose_pairs_first() -> None:
    (text,), _ = reviews(1)
    words = len([column for column in columns_of(text) if column < BUCKETS])
    (row,) = text_rows([text], length=words + 3)
    assert sum((row & (2**20 - 1)) > BUCKETS) == 3


def test_a_length_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="length"):
        text_rows(["a"], length=0)
    assert text_rows([]).shape == (0, LENGTH) and text_rows([], length=None).shape == (0, 1)
