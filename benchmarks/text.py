"""Table 10: hashed n-grams of long texts, against scikit-learn's HashingVectorizer: `python -m benchmarks.text`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from benchmarks.measuring import SEED, keep, main, race, table, verdict
from wdistill.text.ngrams import COLUMNS, ngrams

TEXTS, WORDS = 10_000, 230
TARGET, GOAL = 3.0, 8.0  # times as fast


def made_up(texts: int) -> list[str]:
    """English-looking texts: words of Zipf's frequencies, with capitals, commas and full stops."""
    rng = np.random.default_rng(SEED)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = np.array(["".join(rng.choice(letters[:20], size)) for size in rng.integers(1, 10, 40_000)])
    frequencies = 1 / np.arange(1, 40_001)
    marks = np.array(["", "", "", "", "", "", "", ",", ",", "."])  # behind a word
    chosen = rng.choice(words, (texts, WORDS), p=frequencies / frequencies.sum())
    return [" ".join(line).capitalize() for line in np.strings.add(chosen, rng.choice(marks, chosen.shape))]


def counts(texts: Sequence[str]) -> Any:
    """What people use: the same words and pairs, in as many columns."""
    options = {"ngram_range": (1, 2), "n_features": COLUMNS, "norm": None, "alternate_sign": False}
    return HashingVectorizer(token_pattern=r"[^\W_]+(?:'[^\W_]+)*", **options).transform(texts)


def hashing(quick: int) -> None:
    texts = made_up(TEXTS // quick)
    seconds, found = race({"wdistill": lambda: ngrams(texts).matrix(), "scikit-learn": lambda: counts(texts)})
    if found["wdistill"].sum() != found["scikit-learn"].sum():
        raise SystemExit("the two count other n-grams")
    ratio = seconds["scikit-learn"] / seconds["wdistill"]
    rows = [[f"{len(texts):,} × {WORDS} words", *(f"{each:.2f} s" for each in seconds.values()), f"{ratio:.1f}×"]]
    columns = ["texts", *seconds, "ratio", ""]
    table(
        "10. Words and pairs of words, hashed, on one thread", columns, [[*rows[0], verdict(ratio >= TARGET, ratio >= GOAL)]]
    )
    keep(10, texts=len(texts), words=WORDS, seconds=seconds, ratio=ratio)


if __name__ == "__main__":
    main("benchmarks.text", "How fast texts are hashed.", {10: hashing})
