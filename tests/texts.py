"""Texts for tests: of every awkward sort, and made-up ones whose words tell their class."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

AWKWARD = [
    "",
    " ",
    "'",
    "''",
    "a'",
    "'a'b'",
    "don’t",
    "ΑΣ ΑΣ.Β",
    "İstanbul",
    "e\u0301",
    "❤️love",
    "👩🏽‍🚀x",
    "\0",
    "a\0b",
    "\ud800z",
]
AWKWARD += [
    "नमस्ते दुनिया",
    "我喜欢这部电影。",
    "—“x”…",
    "a_b-c",
    "x" * 200,
    "½ ² ⅷ",
    "ſ K Å",
    "\U000e0100",
    "\U0010ffff",
    "\n\r\u2028a",
]

characters = st.one_of(
    st.sampled_from(list("aAbBzé'’ .,-_09ßΣσ😀❤\ufe0f\u0301中文я\0\n\t\u200d\ud800")),
    st.characters(codec=None, categories=None),
)
texts = st.one_of(st.none(), st.sampled_from(AWKWARD), st.text(characters, max_size=40))


def reviews(rows: int, seed: int = 0, classes: int = 2, tilt: float = 1.7) -> tuple[list[str], np.ndarray]:
    """Texts of 20 to 60 made-up words, and their classes (rows,). A tenth of words is `tilt` times as frequent in one."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{number}" for number in range(800)])
    frequencies = 1 / np.arange(10, 810)
    labels = rng.integers(0, classes, rows)
    found = []
    for label in labels:
        tilted = frequencies * np.where(np.arange(800) % 10 == label, tilt, 1.0)
        found.append(" ".join(rng.choice(words, rng.integers(20, 60), p=tilted / tilted.sum())))
    return found, labels
