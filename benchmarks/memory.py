"""Peak memory of `wdistill weigh` against the number of unlabeled rows: `make memory`.

Writes tables of 100,000 and 10,000,000 rows × 10 classes (about 0.9 GB in the temporary folder), weighs each in a fresh
process, as one table and as two tables in different order, and prints the peak resident size that the kernel measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CLASSES, VALIDATION, STEP = 10, 2000, 250_000
SIZES = (100_000, 10_000_000)
LIMIT = 160  # MB that the larger job may take more than the smaller one


def predictions(rng: np.random.Generator, labels: np.ndarray, strength: float, classes: int = CLASSES) -> np.ndarray:
    logits = rng.standard_normal((len(labels), classes), dtype=np.float32)
    logits[np.arange(len(labels)), labels] += strength
    powers = np.exp(logits)
    return powers / powers.sum(axis=1, keepdims=True)


def lists(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def write_tables(folder: Path, rows: int) -> None:
    """One table with everything, and a second one with the students' predictions in another order."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, VALIDATION)
    columns = {"teacher": lists(predictions(rng, labels, 3)), "student": lists(predictions(rng, labels, 1.5))}
    pq.write_table(pa.table({"id": np.arange(VALIDATION), "label": labels, **columns}), folder / "validation.parquet")
    kinds = pa.list_(pa.float32(), CLASSES)
    writers = {
        name: pq.ParquetWriter(
            folder / f"{name}.parquet", pa.schema([("id", pa.int64()), *((side, kinds) for side in sides)])
        )
        for name, sides in {"both": ("teacher", "student"), "teacher": ("teacher",), "student": ("student",)}.items()
    }
    starts = np.arange(0, rows, STEP)
    for start, far in zip(starts, starts[::-1], strict=True):
        size = min(STEP, rows)
        truth = rng.integers(0, CLASSES, size)
        teacher, student = lists(predictions(rng, truth, 3)), lists(predictions(rng, truth, 1.5))
        ids = np.arange(start, start + size)
        writers["both"].write_table(pa.table({"id": ids, "teacher": teacher, "student": student}))
        writers["teacher"].write_table(pa.table({"id": ids, "teacher": teacher}))
        writers["student"].write_table(pa.table({"id": rng.permutation(np.arange(far, far + size)), "student": student}))
    for writer in writers.values():
        writer.close()


def peak(folder: Path, tables: list[str]) -> tuple[float, float]:
    """Peak resident megabytes and seconds of one job."""
    unlabeled = [word for name in tables for word in ("--unlabeled", str(folder / f"{name}.parquet"))]
    output = ["--output", str(folder / "weights.parquet")]
    command = [
        sys.executable,
        "-m",
        "wdistill",
        "weigh",
        "--validation",
        str(folder / "validation.parquet"),
        *unlabeled,
        *output,
    ]
    start = time.perf_counter()
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(job.pid, 0)
    if status:
        raise SystemExit(f"weighing failed: {' '.join(command)}")
    return usage.ru_maxrss / 1024, time.perf_counter() - start


def main() -> None:
    found: dict[str, list[float]] = {"one table": [], "two tables": []}
    print(f"{'rows':>12}  {'':10}  {'peak MB':>8}  {'seconds':>8}")
    for rows in SIZES:
        with tempfile.TemporaryDirectory(prefix="wdistill-memory-") as name:
            write_tables(Path(name), rows)
            for case, tables in (("one table", ["both"]), ("two tables", ["teacher", "student"])):
                memory, seconds = peak(Path(name), tables)
                found[case].append(memory)
                print(f"{rows:12,}  {case:10}  {memory:8.0f}  {seconds:8.1f}", flush=True)
    for case, (small, large) in found.items():
        verdict = "met" if large - small <= LIMIT else "MISSED"
        print(
            f"{case}: {large - small:.0f} MB more for {SIZES[1] // SIZES[0]}× the rows; the limit of {LIMIT} MB is {verdict}"
        )
    if any(large - small > LIMIT for small, large in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
