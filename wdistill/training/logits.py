"""Logits of many rows: an array where they are few, else a file of which no more is in memory than the rows in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wdistill.core.threads import blocks
from wdistill.training.predict import GRID

HELD = 1 << 24  # predictions that are in memory at once


class Logits(Protocol):
    """Numbers (n, K), of which some rows are read at a time; an array is such."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True)
class MappedLogits:
    """The rows of an npy file. It is mapped anew for every read: what was read before does not stay in memory."""

    path: Path
    shape: tuple[int, int]

    def __getitem__(self, rows: slice | NDArray[np.int64], /) -> NDArray[np.float32]:
        return np.array(self.mapped[rows])

    @property
    def mapped(self) -> NDArray[np.float32]:
        """All rows, which the system reads as they are used, and may drop again."""
        mapped: NDArray[np.float32] = np.asarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        return mapped


def is_held(rows: int, classes: int) -> bool:
    """Whether so many predictions are in memory at once."""
    return rows * classes <= HELD


def parts(rows: int, classes: int) -> Iterator[slice]:
    """Rows whose predictions are in memory at once: all, or whole cells of the prediction grid."""
    return blocks(rows, rows if is_held(rows, classes) else max(1, HELD // classes // GRID) * GRID)


def most_likely(logits: Logits) -> NDArray[np.int64]:
    """The class of the largest logit of every row (n,)."""
    return np.concatenate([logits[part].argmax(axis=1) for part in parts(*logits.shape)])


def whole(logits: Logits) -> NDArray[np.float32]:
    """All rows as one array, which may be mapped."""
    return logits.mapped if isinstance(logits, MappedLogits) else np.asarray(logits[:])
