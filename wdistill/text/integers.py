"""Texts as rows of whole numbers, which a student reads: count · 2²⁰ + column + 1 of every n-gram, then zeros."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_value
from wdistill.text.features import TextFeatures, Texts
from wdistill.text.ngrams import Ngrams, ngrams
from wdistill.text.plain import BITS, MOST

LENGTH = 512  # columns of a row: those of about 350 words


def text_rows(texts: Texts, features: TextFeatures | None = None, length: int | None = LENGTH) -> NDArray[np.int32]:
    """Rows (n, length) of texts, the lowest columns first; None: as long as the longest needs.

    All splits of a run need one length. Of a text with more columns the highest are left out, those of pairs of words
    first; as columns are hashes, which ones is as good as random. With `features`, columns that count nothing there are
    left out before, and n-grams are of their kind.
    """
    if length is not None and length < 1:
        raise bad_value("not a length of rows", "length", length, "at least 1, or None", f"leave it out for {LENGTH}")
    found = ngrams(texts) if features is None else features.ngrams(texts)
    rows, columns, counts = found.rows, found.columns, found.counts
    if features is not None:
        known = features.idf[columns] > 0
        rows, columns, counts = rows[known], columns[known], counts[known]
    sizes = np.bincount(rows, minlength=len(found))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width = max(1, int(sizes.max(initial=0))) if length is None else length
    inside = place < width
    values = np.zeros((len(found), width), np.int32)
    values[rows[inside], place[inside]] = (np.minimum(counts, MOST) << (BITS + 2))[inside] + columns[inside] + 1
    return values


def ngrams_in(rows: NDArray[np.integer]) -> Ngrams:
    """The n-grams that `text_rows` has put into rows (n, length)."""
    place = rows != 0
    found = rows[place].astype(np.int64)
    columns, counts = (found & ((1 << (BITS + 2)) - 1)) - 1, found >> (BITS + 2)
    return Ngrams(np.concatenate([[0], np.cumsum(place.sum(axis=1))]), columns.astype(np.int32), counts.astype(np.int32))
