"""The teacher's labels: its logits on every split, computed once, stored by row id in chunks, and read back."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import nn

from wdistill.ledger import Ledger
from wdistill.training.data import Split
from wdistill.training.predicting import GRID, predict
from wdistill.training.stage import StoppedError, Watch
from wdistill.weighting import log_probabilities

CHUNK = 1 << 24  # predictions of a chunk


def label(
    folder: Path,
    splits: Mapping[str, Split],
    read: Callable[[Split, slice], NDArray[Any]],
    watch: Watch,
    name: str = "labels",
) -> None:
    """Store the logits (n, K) of every split, chunk by chunk; chunks that are there already are not read again.

    `name` is what the progress is called.
    """
    ledger = Ledger(folder)
    ledger.clean()
    if ledger.state.get("finished"):
        return
    total = sum(len(split) for split in splits.values())
    done = 0
    for split in splits.values():
        width = int(read(split, slice(0, 1)).shape[1])
        for number, part in enumerate(_chunks(len(split), width)):
            file = f"{split.name}-{number:06d}.parquet"
            if file not in ledger.generation.files:
                content = table_bytes({"id": split.ids[part], "teacher": read(split, part)})
                ledger.commit({"finished": False}, {file: content})
            done += part.stop - part.start
            watch.say({"stage": name, "what": "labels", "rows": done, "total": total})
            if watch.stopping():
                raise StoppedError(f"stopped after {done} of {total} rows were labeled")
    ledger.commit({"finished": True})


def by_module(teacher: nn.Module, precision: str, watch: Watch) -> Callable[[Split, slice], NDArray[Any]]:
    """A teacher that reads inputs."""

    def between(rows: int) -> None:
        if watch.stopping():
            raise StoppedError("stopped inside a chunk of labels")

    return lambda split, part: predict(teacher, split.inputs, precision, part, between)


def by_table(tables: Mapping[str, NDArray[Any]], kind: str) -> Callable[[Split, slice], NDArray[Any]]:
    """A teacher whose predictions (n, K) are known, by split: logits as they are, probabilities as their logarithms."""

    def read(split: Split, part: slice) -> NDArray[Any]:
        values = tables[split.name][part]
        logits: NDArray[Any] = values if kind == "logits" else log_probabilities(values, kind, False)
        return logits.astype(np.float32)

    return read


def read_labels(folder: Path, split: str) -> NDArray[np.float32] | None:
    """The stored logits (n, K) of one split, or None where it was not labeled."""
    ledger = Ledger(folder)
    names = sorted(name for name in ledger.generation.files if name.rpartition("-")[0] == split)
    parts = [read_table(ledger.read(name), ["teacher"])["teacher"] for name in names]
    return np.concatenate(parts) if parts else None


def table_bytes(columns: Mapping[str, NDArray[Any] | None]) -> bytes:
    """A parquet file in memory: vectors as columns, matrices as lists of one length, None left out."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if values is None:
            continue
        if values.ndim == 2:
            arrays[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        else:
            arrays[name] = pa.array(values.tolist() if values.dtype.kind in "UO" else values)
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays), buffer)
    return buffer.getvalue()


def read_table(content: bytes, columns: list[str]) -> dict[str, NDArray[Any]]:
    table = pq.read_table(io.BytesIO(content), columns=columns)
    found: dict[str, NDArray[Any]] = {}
    for name in columns:
        column = table[name].combine_chunks()
        width = getattr(column.type, "list_size", None)
        found[name] = (
            column.to_numpy(zero_copy_only=False) if width is None else column.flatten().to_numpy().reshape(-1, width)
        )
    return found


def column_names(content: bytes) -> list[str]:
    """Of a table as `table_bytes` made it."""
    return list(pq.read_schema(io.BytesIO(content)).names)


def _chunks(n: int, width: int) -> Iterator[slice]:
    """Slices of whole cells of the prediction grid, so that chunks and the whole give the same bits."""
    size = min(1 << 16, max(1, CHUNK // width // GRID) * GRID)
    return (slice(first, min(first + size, n)) for first in range(0, n, size))
