"""How long `wdistill advise` takes for a million unlabeled rows, and for a thousand classes: `python -m benchmarks.advise`.

Writes a table of 1,000,000 rows × 10 classes with 20 numbers of input each, and 1,000 gold rows, and asks in a fresh
process, without and with a second opinion from a forest on the inputs; then 20,000 rows and 2,000 gold rows × 1,000
classes. The promise is a minute.
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

from benchmarks.memory import CLASSES, lists, predictions

ROWS, GOLD, INPUTS = 1_000_000, 1_000, 20
MANY_ROWS, MANY_GOLD, MANY = 20_000, 2_000, 1_000  # classes, last
LIMIT = 60  # seconds


def write_table(path: Path, rows: int, seed: int, *, gold: bool, classes: int = CLASSES) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    means = np.random.default_rng(0).standard_normal((classes, INPUTS), dtype=np.float32)
    inputs = means[labels] + 2 * rng.standard_normal((rows, INPUTS), dtype=np.float32)
    sure = np.log(classes / CLASSES)  # many classes: as often right as with few
    columns = {
        "id": np.arange(rows) + gold * ROWS,
        "teacher": lists(predictions(rng, labels, 3 + sure, classes)),
        "student": lists(predictions(rng, labels, 1.5 + sure, classes)),
        "inputs": pa.FixedSizeListArray.from_arrays(pa.array(inputs.ravel()), INPUTS),
    }
    pq.write_table(pa.table(columns | ({"label": labels} if gold else {})), path)


def asked(folder: Path, *more: str) -> tuple[float, float]:
    """Seconds of one `wdistill advise`: by the clock, and of all processors."""
    tables = ["--validation", str(folder / "gold.parquet"), "--unlabeled", str(folder / "unlabeled.parquet")]
    command = [sys.executable, "-m", "wdistill", "advise", *tables, *more]
    start = time.perf_counter()
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(job.pid, 0)
    if status:
        raise SystemExit(f"advice failed: {' '.join(command)}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="wdistill-advise-") as name:
        folder = Path(name)
        write_table(folder / "unlabeled.parquet", ROWS, 1, gold=False)
        write_table(folder / "gold.parquet", GOLD, 2, gold=True)
        print(f"{ROWS:,} unlabeled and {GOLD:,} gold rows, {CLASSES} classes, load average {os.getloadavg()[0]:.1f}")
        met = [told("two tables", *asked(folder)), told("and a forest", *asked(folder, "--inputs", "inputs"))]
        write_table(folder / "unlabeled.parquet", MANY_ROWS, 3, gold=False, classes=MANY)
        write_table(folder / "gold.parquet", MANY_GOLD, 4, gold=True, classes=MANY)
        print(f"{MANY_ROWS:,} unlabeled and {MANY_GOLD:,} gold rows, {MANY:,} classes")
        met.append(told("two tables", *asked(folder)))
    if not all(met):
        raise SystemExit(1)


def told(case: str, seconds: float, work: float) -> bool:
    """Print whether the promise was kept."""
    met = seconds <= LIMIT
    print(f"{case:12}  {seconds:5.1f} s, {work:5.1f} s of processors: {'met' if met else 'MISSED'}", flush=True)
    return met


if __name__ == "__main__":
    main()
