"""Hashed n-grams: the fast way finds what the plain one does, and that is what the documentation says."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.texts import AWKWARD, texts
from wdistill.core.errors import ConfigError, InputError
from wdistill.text import ngrams as module
from wdistill.text import plain
from wdistill.text.ngrams import COLUMNS, Ngrams, ngrams
from wdistill.text.plain import BUCKETS, bucket_of, columns_of, hash_of, kind_of, words_of

kinds = st.one_of(st.none(), st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda two: (two[0], sum(two))))


def counted(found: Ngrams) -> list[dict[int, int]]:
    parts = [slice(a, b) for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
    return [dict(zip(found.columns[part].tolist(), found.counts[part].tolist(), strict=True)) for part in parts]


@given(st.lists(texts, max_size=8), kinds)
def test_the_fast_way_finds_what_the_plain_one_does(batch: list[str | None], characters: tuple[int, int] | None) -> None:
    assert counted(ngrams(batch, characters)) == [dict(columns_of(text, characters)) for text in batch]


@given(texts.filter(lambda text: text is not None))
def test_words_are_what_is_documented(text: str) -> None:
    def sort(char: str) -> str:
        category = unicodedata.category(char)
        if "VARIATION SELECTOR" in unicodedata.name(char, "") and "MONGOLIAN" not in unicodedata.name(char, ""):
            return " "
        return "s" if category == "So" else "a" if category[0] in "LMN" else "'" if char == "'" else " "

    text = text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    runs = re.finditer(r"a+('a+)*|s", "".join(map(sort, text)))
    assert words_of(text) == [text[run.start() : run.end()] for run in runs]


def test_words_by_example() -> None:
    found = words_of("Don't — “it’s” 'quoted', e.g. 3.5 x_y 😀😀ok naïve")
    assert found == ["don't", "it's", "quoted", "e", "g", "3", "5", "x", "y", "😀", "😀", "ok", "naïve"]


@given(texts.filter(bool), texts.filter(bool))
def test_the_hash_is_the_sum_that_is_documented(first: str, second: str) -> None:
    def whole(text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        return sum((byte + 1) * pow(plain.BASE, place, 2**64) for place, byte in enumerate(data)) % 2**64

    def mixed(value: int) -> int:
        value = (value ^ (value >> 32)) * plain.FIRST % 2**64
        return (value ^ (value >> 29)) * plain.SECOND % 2**64 // 2**46

    assert (hash_of(first), bucket_of(first)) == (whole(first), mixed(whole(first)))
    assert bucket_of(first, second) == mixed((plain.PAIR * whole(first) + whole(second)) % 2**64)


def test_buckets_never_change() -> None:
    """Students that were exported read these numbers."""
    assert [bucket_of("good"), bucket_of("not", "good"), bucket_of("é")] == FROZEN


FROZEN = [77776, 49456, 120077]


def test_buckets_are_used_evenly() -> None:
    words = [f"{a}{b}" for a in ("a", "word", "é", "x1") for b in range(BUCKETS // 4)]
    counts = np.bincount(ngrams([" ".join(words)]).columns, minlength=COLUMNS)
    for half in (counts[:BUCKETS], counts[BUCKETS:]):  # each n-gram once or so: a share 1/e stays empty
        assert abs((half == 0).mean() - np.exp(-1)) < 0.005


def test_the_order_of_texts_and_the_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [*AWKWARD, None, "the same words again and again and again"] * 3
    whole = counted(ngrams(batch))
    assert counted(ngrams(batch[::-1])) == whole[::-1]
    monkeypatch.setattr(module, "BLOCK_ROWS", 3)
    assert counted(ngrams(batch)) == whole
    monkeypatch.setattr(module, "BLOCK_BYTES", 50)
    module._powers.cache_clear()
    assert counted(ngrams(batch)) == whole
    module._powers.cache_clear()


def test_a_text_longer_than_a_block() -> None:
    text = "the end " * 40_000 + "x" * 300_000
    assert counted(ngrams([text])) == [dict(columns_of(text))]
    assert ngrams(["ab" * 400_000], (3, 3)).counts.tolist() == [399_999, 399_999]


def test_more_texts_than_a_block_has_rows() -> None:
    found = ngrams(["a b" if row % 3 else None for row in range(10_000)])
    assert np.diff(found.offsets).tolist() == [3 if row % 3 else 0 for row in range(10_000)]


def test_the_record_tells_words_from_pairs() -> None:
    found = ngrams(["good good film", None])
    assert len(found) == 2 and found.rows.tolist() == [0] * 4
    assert found.pairs.tolist() == [False, False, True, True]
    words, pairs = found.buckets[:2].tolist(), found.buckets[2:].tolist()
    assert set(words) == {bucket_of("good"), bucket_of("film")}
    assert set(pairs) == {bucket_of("good", "good"), bucket_of("good", "film")}
    matrix = found.matrix()
    assert matrix.shape == (2, COLUMNS) and matrix[0, bucket_of("good")] == 2 and matrix.sum() == 5


def test_no_texts_at_all() -> None:
    assert len(ngrams([])) == 0 and ngrams([]).matrix().shape == (0, COLUMNS)
    assert ngrams([None, ""]).offsets.tolist() == [0, 0, 0] and ngrams([None, ""], (1, 2)).offsets.tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", [3, float("nan"), b"bytes", ["list"]])
def test_what_is_no_text_is_refused_with_its_row(value: object) -> None:
    with pytest.raises(InputError, match="not a text") as caught:
        ngrams(["fine", value])  # type: ignore[list-item]
    assert caught.value.rows == (1,) or list(caught.value.rows) == [1]


@pytest.mark.parametrize("value", [(0, 3), (4, 3), (1, 1000), (3,)])
def test_lengths_that_are_none_are_refused(value: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="runs of characters"):
        ngrams(["x"], value)


@pytest.mark.slow
def test_the_kind_of_every_character_is_known() -> None:
    every = [kind_of(chr(code)) for code in range(0x110000)]
    assert every[: module.LAST + 1] == module._kinds().tolist() and not any(every[module.LAST :])


def test_the_plain_file_can_be_copied() -> None:
    """It imports nothing but the standard library."""
    tree = ast.parse(Path(plain.__file__).read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"__future__", "collections", "itertools", "unicodedata"}
    assert isinstance(columns_of("a b"), Counter)
