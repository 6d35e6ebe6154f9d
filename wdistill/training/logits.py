"""Logits of many rows: an array where they are few, else a file of which no more is in memory than the rows in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wdistill.core import npy, store
from wdistill.core.errors import FileError, unreadable
from wdistill.core.threads import blocks
from wdistill.training.predict import GRID

AGAIN = "remove it if it is there, and run again: it is written anew"
HELD = 1 << 24  # predictions that are in memory at once


class Logits(Protocol):
    """Numbers (n, K), of which some rows are read at a time; an array is such."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True)
class FiledLogits:
    """The rows of an npy file of float32, read and not mapped: a map takes far more memory than the rows in use."""

    path: Path
    shape: tuple[int, int]

    def __getitem__(self, rows: slice | NDArray[np.int64], /) -> NDArray[np.float32]:
        width, first = 4 * self.shape[1], len(store.npy_header(self.shape, np.dtype(np.float32)))
        try:
            with self.path.open("rb", buffering=0) as file:
                if isinstance(rows, slice):
                    start, stop, _ = rows.indices(self.shape[0])
                    count, pieces = max(0, stop - start), [(start, max(0, stop - start))]
                else:
                    count, pieces = len(rows), [(row, 1) for row in rows.tolist()]
                read = [os.pread(file.fileno(), width * many, first + width * row) for row, many in pieces]
        except OSError as error:
            raise self._damaged(error) from None
        content = bytearray().join(read)
        if len(content) < width * count:
            raise self._damaged("fewer bytes than it was written with")
        return np.frombuffer(content, np.float32).reshape(count, self.shape[1])

    def _damaged(self, found: Exception | str) -> FileError:
        expected = "the run's copy of its labels"
        return unreadable("a file of this run is damaged or missing", self.path, found, expected, AGAIN)

    @property
    def mapped(self) -> NDArray[np.float32]:
        """All rows, which the system reads as they are used, and may drop again."""
        mapped: NDArray[np.float32] = np.asarray(npy.mapped(self.path, AGAIN))
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
    return logits.mapped if isinstance(logits, FiledLogits) else np.asarray(logits[:])
