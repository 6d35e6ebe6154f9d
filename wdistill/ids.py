"""An exact check that no id occurs twice, at 8 bytes a row in memory, and on disk beyond a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill import store
from wdistill.errors import InputError

LIMIT = 50_000_000  # keys held in memory; the rest goes to files
FILES = 64


def keys(ids: Any) -> NDArray[np.int64]:
    """A 64-bit key for every id of an arrow array: whole numbers are their own key, strings are hashed."""
    import pyarrow as pa

    if pa.types.is_integer(ids.type):
        return np.asarray(ids.to_numpy(zero_copy_only=False), np.int64)
    return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))


def buckets(values: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Spread keys over `count` buckets; equal keys always meet."""
    mixed = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(40)) % np.uint64(count)).astype(np.intp)


class IdCheck:
    """Collects the keys of all ids, then tells whether any id came twice."""

    def __init__(self, folder: Path, rows: int, limit: int = LIMIT) -> None:
        self._folder = folder
        self._keys, self._count = np.empty(min(rows, limit), np.int64), 0
        self._spilled = False

    def add(self, ids: Any) -> None:
        fresh = keys(ids)
        while len(fresh):
            room = len(self._keys) - self._count
            self._keys[self._count : self._count + min(room, len(fresh))] = fresh[:room]
            self._count += min(room, len(fresh))
            fresh = fresh[room:]
            if len(fresh):
                self._spill()

    def finish(self, again: Callable[[], Iterator[Any]], where: str) -> None:
        """Raise for ids that occur twice; `again` yields all ids once more, to see whether equal keys are equal ids."""
        suspects = np.concatenate([_repeated(part) for part in self._parts()])
        if not len(suspects):
            return
        seen, twice = set[Any](), dict[Any, None]()
        for ids in again():
            close = np.flatnonzero(np.isin(keys(ids), suspects))
            for value in ids.take(close).to_pylist() if len(close) else ():
                if value in seen:
                    twice[value] = None
                seen.add(value)
        if twice:
            shown = ", ".join(map(repr, list(twice)[:5]))
            raise InputError(
                "ids that occur more than once",
                where=where,
                found=f"{len(twice)} such id{'s' if len(twice) > 1 else ''}: {shown}",
                expected="every id once",
                remedy="drop the repeated rows, or give every row an id of its own",
            )

    def _parts(self) -> Iterator[NDArray[np.int64]]:
        if not self._spilled:
            yield self._keys[: self._count]
            return
        self._spill()
        for i in range(FILES):
            yield np.fromfile(self._folder / f"keys-{i:02d}", np.int64)

    def _spill(self) -> None:
        """Move the keys in memory to files, so that equal keys lie in one file."""
        held = self._keys[: self._count]
        place = buckets(held, FILES)
        for i in range(FILES):
            store.append(self._folder / f"keys-{i:02d}", held[place == i].tobytes(), fresh=not self._spilled)
        self._spilled, self._count = True, 0


def _repeated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    values.sort()
    return np.unique(values[1:][values[1:] == values[:-1]])
