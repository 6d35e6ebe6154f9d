"""Small made tables in every format, for the tests of the command line."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


class Items:
    """A map-style Dataset of inputs, or of pairs; here, where a worker process has little to import."""

    def __init__(self, inputs: Any, labels: Any = None) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> Any:
        return self.inputs[row] if self.labels is None else (self.inputs[row], int(self.labels[row]))


class Killing(Items):
    """A Dataset whose item 5 kills the worker process that reads it, as a system without memory does."""

    def __getitem__(self, row: int) -> Any:
        if row == 5 and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(row)


def predictions(rng: np.random.Generator, labels: np.ndarray, classes: int, strength: float) -> np.ndarray:
    """Softmax rows that lean towards the label."""
    logits = rng.normal(size=(len(labels), classes))
    logits[np.arange(len(labels)), labels] += strength
    powers = np.exp(logits)
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


def columns(seed: int, rows: int, classes: int = 4, first: int = 0) -> dict[str, np.ndarray]:
    """ids, labels and both models' predictions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    teacher, student = predictions(rng, labels, classes, 2.5), predictions(rng, labels, classes, 1.0)
    return {"id": np.arange(first, first + rows), "label": labels, "teacher": teacher, "student": student}


def write(path: Path, table: dict[str, np.ndarray]) -> Path:
    """Write a table in the format of the path's extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    {".parquet": _parquet, ".npz": _npz, ".csv": _csv, ".jsonl": _jsonl}[path.suffix](path, table)
    return path


def take(table: dict[str, np.ndarray], rows: np.ndarray, *names: str) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in table.items() if not names or name in names}


def _parquet(path: Path, table: dict[str, np.ndarray]) -> None:
    pq.write_table(pa.table({name: _arrow(values) for name, values in table.items()}), path)


def _arrow(values: np.ndarray) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def _npz(path: Path, table: dict[str, np.ndarray]) -> None:
    np.savez(path, **table)


def _wide(table: dict[str, np.ndarray]) -> dict[str, list[object]]:
    wide: dict[str, list[object]] = {}
    for name, values in table.items():
        if values.ndim == 1:
            wide[name] = values.tolist()
        else:
            wide |= {f"{name}_{c}": [float(x) for x in values[:, c]] for c in range(values.shape[1])}
    return wide


def _csv(path: Path, table: dict[str, np.ndarray]) -> None:
    wide = _wide(table)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(wide)
        writer.writerows(zip(*wide.values(), strict=True))


def _jsonl(path: Path, table: dict[str, np.ndarray]) -> None:
    lists = {name: values.tolist() for name, values in table.items()}
    rows = (dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
