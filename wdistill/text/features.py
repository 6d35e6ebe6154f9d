"""Features of texts, fitted to texts: n-grams weighed by how rare they are, single words and pairs normed apart.

    row = [words · idf / ‖words · idf‖, ½ · pairs · idf / ‖pairs · idf‖],  idf = 1 + ln((1 + n) / (1 + texts with it))

A bucket that fewer than two texts have has idf 0. Under one norm the many pairs of a long text would drown its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_value, empty
from wdistill.text.ngrams import COLUMNS, Characters, Ints, Ngrams, check_characters, ngrams

LEAST_TEXTS = 2  # that a bucket occurs in
PAIRS = 0.5  # the norm of the pairs, that of the words being 1
Texts = Sequence[str | None]


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """What texts are like: in how many of them each column occurs."""

    texts: int
    frequencies: Ints  # (2¹⁹,) texts with a column
    characters: Characters | None = None  # runs of characters instead of words

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """(2¹⁹,) how much an occurrence of a column counts; 0 where fewer than two texts have it."""
        idf, known = np.zeros(COLUMNS, np.float32), np.flatnonzero(self.frequencies >= LEAST_TEXTS)
        idf[known] = 1 + np.log((1 + self.texts) / (1 + self.frequencies[known]))
        return idf

    def ngrams(self, texts: Texts) -> Ngrams:
        """The n-grams of texts, of the kind that was fitted."""
        return ngrams(texts, self.characters)

    def transform(self, texts: Texts) -> Any:
        """Features of a batch of texts: a scipy.sparse.csr_array (n, 2¹⁹) of float32 without stored zeros."""
        return weigh_ngrams(self.ngrams(texts), self.idf)

    def to_arrays(self) -> dict[str, NDArray[np.int64]]:
        """The features as plain arrays, for an npz file."""
        seen = np.flatnonzero(self.frequencies)
        return {
            "texts": np.array(self.texts, np.int64),
            "columns": seen,
            "frequencies": self.frequencies[seen],
            "characters": np.array(self.characters or (), np.int64),
        }


def weigh_ngrams(found: Ngrams, idf: NDArray[np.float32]) -> Any:
    """Features of texts from their n-grams and how much each column counts (2¹⁹,): see the head of this file."""
    values = found.counts * idf[found.columns].astype(np.float64)
    part = 2 * found.rows + found.pairs
    squares = np.bincount(part, values**2, 2 * len(found))
    norms = np.sqrt(np.where(squares > 0, squares, 1)) / np.tile([1, PAIRS], len(found))
    matrix = found.matrix((values / norms[part]).astype(np.float32))
    matrix.eliminate_zeros()
    return matrix


def fit_features(batches: Iterable[Texts], characters: Characters | None = None) -> TextFeatures:
    """Features fitted to all texts of some batches, each read once."""
    check_characters(characters)
    frequencies, texts = np.zeros(COLUMNS, np.int64), 0
    for batch in batches:
        frequencies += np.bincount(ngrams(batch, characters).columns, minlength=COLUMNS)
        texts += len(batch)
    if not texts:
        raise empty("no texts", "texts", "at least 1 text to learn from", "pass the texts that are to be labeled")
    return TextFeatures(texts, frequencies, characters)


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> TextFeatures:
    """The features that `to_arrays` gave."""
    if not _fits(arrays):
        found, remedy = ", ".join(f"{name} {np.shape(each)}" for name, each in arrays.items()), "fit the features again"
        raise bad_value("not the features of texts", "arrays", found, "what to_arrays gave", remedy)
    frequencies, runs = np.zeros(COLUMNS, np.int64), arrays["characters"].tolist()
    frequencies[arrays["columns"]] = arrays["frequencies"]
    return TextFeatures(int(arrays["texts"]), frequencies, (runs[0], runs[1]) if runs else None)


def _fits(arrays: Mapping[str, NDArray[Any]]) -> bool:
    names = ("texts", "columns", "frequencies", "characters")
    found = [np.asarray(arrays.get(name, np.nan)) for name in names]
    if any(each.dtype != np.int64 for each in found) or [each.ndim for each in found] != [0, 1, 1, 1]:
        return False
    texts, columns, frequencies, runs = found
    ascending = len(columns) == len(frequencies) and bool((np.diff(columns, prepend=-1, append=COLUMNS) > 0).all())
    possible = bool(((frequencies >= 1) & (frequencies <= texts)).all()) and texts >= 1
    return bool(ascending and possible and (len(runs) == 0 or (len(runs) == 2 and 1 <= runs[0] <= runs[1] <= 100)))
