"""Stored predictions: bytes on disk, speed of writing and reading, and what is lost in the weights.

    python -m benchmarks.storage            three tables in Markdown: some minutes
    python -m benchmarks.storage --quick    a twentieth of the rows: shows that it runs

One thread, seconds of the processor, medians of five rounds in which the layouts take turns. Files are written by the writer
of `wdistill label` and read by the reader of `wdistill weigh`, both to and from the page cache. Weights are the paper's, of
teacher and student; their error is the distance from those of float32 in memory, where gold rows and pool are stored alike,
and where the gold rows are stored as float32, all classes.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "WDISTILL_THREADS": "1"}

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import SEED, append, circumstances, keep, race
from wdistill import Evidence, debiased, entropy, margin
from wdistill.tables.formats.predictions import StoredPredictions
from wdistill.tables.formats.table import open_tables
from wdistill.tables.output import parquet_writer
from wdistill.tables.rows import chunk_rows

GOLD = 2000
ROWS = {2: 200_000, 10: 200_000, 1000: 10_000}  # unlabeled rows by the number of classes
STRENGTH = {2: (2.0, 1.0), 10: (4.0, 2.0), 1000: (9.0, 6.0)}  # of the true class in the logits of teacher and student
SPREAD = 2.0  # of the logits
CONFIDENCES = {"margin": margin, "entropy": entropy}


@dataclass(frozen=True)
class Layout:
    """One way to store predictions."""

    name: str
    stored: StoredPredictions
    listed: bool = False  # lists of any length, in place of a fixed one
    options: dict[str, Any] | None = None  # of pyarrow's writer, in place of ours

    def write(self, path: Path, values: np.ndarray) -> None:
        """A table of ids and predictions (n, K)."""
        field = self.stored.field("teacher", values.shape[1])
        if self.listed:
            field = pa.field("teacher", pa.list_(field.type.value_field), nullable=False)
        schema = pa.schema([pa.field("id", pa.int64()), field])
        size = chunk_rows(values.shape[1])
        with path.open("wb") as file, self._writer(file, schema) as writer:
            for first in range(0, len(values), size):
                part = values[first : first + size]
                column = self.stored.column(part).cast(field.type) if self.listed else self.stored.column(part)
                ids = pa.array(np.arange(first, first + len(part)))
                writer.write_batch(pa.RecordBatch.from_arrays([ids, column], schema=schema))

    def _writer(self, file: Any, schema: pa.Schema) -> Any:
        if self.options is None and not self.listed:
            return parquet_writer(file, schema)
        ours = {"use_dictionary": ["id"], "use_byte_stream_split": ["teacher.list.element"], "compression": "zstd"}
        return pq.ParquetWriter(file, schema, write_page_checksum=True, **(ours if self.options is None else self.options))


def layouts(classes: int) -> list[Layout]:
    """All layouts that are compared."""
    found = [Layout(f"list<{p}>", StoredPredictions(p), listed=True) for p in ("float32", "float16")]  # type: ignore[arg-type]
    found += [Layout(f"fixed_size_list<{p}>", StoredPredictions(p)) for p in ("float32", "float16")]  # type: ignore[arg-type]
    for k in (2, 5, 10):
        if k < classes:
            found += [Layout(f"top {k}, {p}", StoredPredictions(p, k)) for p in ("float32", "float16")]  # type: ignore[arg-type]
    return found


def encodings() -> list[Layout]:
    """Ways to write lists of fixed length."""
    ways = {"pyarrow's defaults": {}}
    for codec in ("none", "lz4", "snappy", "zstd"):
        plain = {"use_dictionary": ["id"], "compression": codec}
        ways |= {
            f"plain, {codec}": plain,
            f"byte streams, {codec}": {**plain, "use_byte_stream_split": ["teacher.list.element"]},
        }
    return [
        Layout(f"{p}: {name}", StoredPredictions(p), options=way)
        for p in ("float32", "float16")
        for name, way in ways.items()
    ]  # type: ignore[arg-type]


def predictions(rng: np.random.Generator, labels: np.ndarray, classes: int, strength: float) -> np.ndarray:
    """Probabilities (n, K) that lean towards the label."""
    logits = SPREAD * rng.standard_normal((len(labels), classes), dtype=np.float32)
    logits[np.arange(len(labels)), labels] += strength * rng.random(len(labels), dtype=np.float32) * 2
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def read(path: Path, classes: int) -> np.ndarray:
    """All predictions, as `weigh` reads them, in memory."""
    (table,) = open_tables([str(path)], option="--unlabeled")
    return np.concatenate([chunk.columns["teacher"] for chunk in table.chunks(["teacher"], rows=chunk_rows(classes))])


def pass_over(path: Path, classes: int) -> int:
    """Read all predictions, and keep none."""
    (table,) = open_tables([str(path)], option="--unlabeled")
    return sum(len(chunk.columns["teacher"]) for chunk in table.chunks(["teacher"], rows=chunk_rows(classes)))


def weights(labels: np.ndarray, arrays: dict[str, np.ndarray], confidence: str) -> np.ndarray:
    """The paper's weights (n,)."""
    return np.asarray(debiased.using(confidence=CONFIDENCES[confidence])(Evidence(labels, **arrays)))


def measure(folder: Path, classes: int, rows: int, compared: list[Layout], *, lossy: bool) -> None:
    """One table: the layouts for so many classes."""
    rng = np.random.default_rng(SEED)
    labels, gold = rng.integers(0, classes, rows), rng.integers(0, classes, GOLD)
    arrays = {
        f"{prefix}{side}": predictions(rng, truth, classes, strength)
        for prefix, truth in (("validation_", gold), ("", labels))
        for side, strength in zip(("teacher", "student"), STRENGTH[classes], strict=True)
    }
    paths = {each.name: folder / f"{number}.parquet" for number, each in enumerate(compared)}
    writing: dict[str, Callable[[], Any]] = {
        each.name: partial(each.write, paths[each.name], arrays["teacher"]) for each in compared
    }
    written, _ = race(writing, clock=time.process_time)
    found, _ = race({name: partial(pass_over, path, classes) for name, path in paths.items()}, clock=time.process_time)
    exact = {each: weights(gold, arrays, each) for each in CONFIDENCES} if lossy else {}
    heads = "".join(f" {each}, {where} |" for each in exact for where in ("gold and pool", "pool alone"))
    print(f"\n{rows:,} rows × {classes:,} classes\n")
    print(f"| layout | bytes a row | rows/s written | rows/s read |{heads}")
    print(f"|---|---|---|---|{'---|---|' * len(exact)}")
    for each in compared:
        size = paths[each.name].stat().st_size / rows
        speeds = {"written": rows / written[each.name], "read": rows / found[each.name]}
        cells = [each.name, f"{size:,.1f}", *(f"{float(f'{speed:.3g}'):,.0f}" for speed in speeds.values())]
        off: dict[str, list[float]] = {}
        stored = {name: _stored(folder, each, values, classes) for name, values in arrays.items()} if exact else {}
        alone = {name: arrays[name] if name.startswith("validation_") else values for name, values in stored.items()}
        for confidence, wanted in exact.items():
            for where, known in (("gold and pool", stored), ("pool alone", alone)):
                errors = np.abs(weights(gold, known, confidence) - wanted)
                off[f"{confidence}, {where}"] = [float(errors.max()), float(errors.mean())]
                cells.append(f"{errors.max():.2g} ({errors.mean():.2g})")
        print(f"| {' | '.join(cells)} |", flush=True)
        keep(13, layout=each.name, classes=classes, rows=rows, bytes_a_row=size, rows_a_second=speeds, errors=off)


def _stored(folder: Path, layout: Layout, values: np.ndarray, classes: int) -> np.ndarray:
    """Predictions as they come back."""
    path = folder / "stored.parquet"
    layout.write(path, values)
    return read(path, classes)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description="Stored predictions.")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows: to see that it runs")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    header = circumstances(options.quick, ("numpy", "numba", "pyarrow"))
    for name, value in header.items():
        print(f"{name:>10}  {value}")
    with tempfile.TemporaryDirectory(prefix="wdistill-storage-") as folder:
        for classes, rows in ROWS.items():
            measure(Path(folder), classes, rows // (20 if options.quick else 1), layouts(classes), lossy=True)
        for classes in (10, 1000):
            rows = ROWS[classes] // (20 if options.quick else 1)
            measure(Path(folder), classes, rows, encodings(), lossy=False)
    append(header)


if __name__ == "__main__":
    main()
