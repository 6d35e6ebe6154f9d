"""How long `wdistill advise` takes for a million unlabeled rows: `python -m benchmarks.advise`.

Writes a table of 1,000,000 rows × 10 classes with 20 numbers of input each, and 1,000 gold rows, and asks in a fresh
process, without and with a second opinion from a forest on the inputs. The promise is a minute.
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
LIMIT = 60  # seconds


def write_table(path: Path, rows: int, seed: int, *, gold: bool) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, rows)
    means = np.random.default_rng(0).standard_normal((CLASSES, INPUTS), dtype=np.float32)
    inputs = means[labels] + 2 * rng.standard_normal((rows, INPUTS), dtype=np.float32)
    columns = {
        "id": np.arange(rows) + gold * ROWS,
        "teacher": lists(predictions(rng, labels, 3)),
        "student": lists(predictions(rng, labels, 1.5)),
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
        late = False
        for case, more in {"two tables": (), "and a forest": ("--inputs", "inputs")}.items():
            seconds, work = asked(folder, *more)
            late |= seconds > LIMIT
            print(
                f"{case:12}  {seconds:5.1f} s, {work:5.1f} s of processors: {'MISSED' if seconds > LIMIT else 'met'}",
                flush=True,
            )
    if late:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
