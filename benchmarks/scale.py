"""`wdistill weigh` from parquet to parquet, against bare passes over the same columns: `make bench-scale`.

    python -m benchmarks.scale                     100,000 to 100,000,000 rows × 10 classes, 100,000 and 400,000 × 1,000
    python -m benchmarks.scale --rows 1000000      one size alone
    python -m benchmarks.scale --engines           what Ray and Spark cost besides (`make test-scale` installs them)

Rows are made on the fly, in files of a million at most: two million numbers a model are drawn, and come again and again with
other ids, as drawing takes longer than all that is measured. Every job is a fresh process on one thread; the seconds of its
processor and its peak memory are what the kernel counted, with the start of Python and all imports. A bare pass reads id,
teacher and student, and writes id and three float32 columns taken from the first classes: what any program must do that
reads these rows and writes weights.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import SEED, append, circumstances, keep, say
from benchmarks.memory import lists, predictions
from wdistill.tables.formats.predictions import writing

GOLD = 2_000
FILE = 1_000_000  # rows of a file, at most
SUBREAPER = 36  # of prctl(2)
STEP = 2_000_000  # numbers of a model that are made
SIZES = ((100_000, 10), (1_000_000, 10), (10_000_000, 10), (100_000_000, 10), (100_000, 1_000), (400_000, 1_000))
ROUNDS = 3  # the median counts; one from a thousand million numbers on
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "WDISTILL_THREADS": "1", "POLARS_MAX_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}

# A pass by pyarrow, with as many rows at once as wdistill; {read} and {write} are its settings.
PYARROW = """
import sys, glob, pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
pa.set_cpu_count(1); pa.set_io_thread_count(1)
writer = None
for path in sorted(glob.glob(sys.argv[1] + "/*.parquet")):
    file = pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, {read})
    rows = min(1 << 16, (1 << 21) // file.schema_arrow.field("teacher").type.list_size)
    for batch in file.iter_batches(rows, use_threads=False):
        first = [pc.list_element(batch[name], number) for name, number in (("teacher", 0), ("student", 0), ("teacher", 1))]
        made = pa.RecordBatch.from_arrays([batch["id"], *first], ["id", "weight", "error", "distortion"])
        writer = writer or pq.ParquetWriter(sys.argv[2], made.schema, {write})
        writer.write_batch(made)
writer.close()
"""
OUTPUT = pa.schema([("id", pa.int64()), *((name, pa.float32()) for name in ("weight", "error", "distortion"))])
ALIKE, PLAIN = "pyarrow, a pass with the same checks and compression", "pyarrow, the plainest pass"
PASSES = {
    ALIKE: PYARROW.format(read="page_checksum_verification=True", write=f"write_page_checksum=True, **{writing(OUTPUT)}"),
    PLAIN: PYARROW.format(read="", write="use_dictionary=False"),
    "Polars, a pass": """
import sys, polars as pl
rows = pl.scan_parquet(sys.argv[1] + "/*.parquet")
first = [("weight", "teacher", 0), ("error", "student", 0), ("distortion", "teacher", 1)]
def at(column, number):
    return pl.col(column).arr.get(number)
rows.select("id", *(at(column, number).alias(name) for name, column, number in first)).sink_parquet(sys.argv[2])
""",
    "DuckDB, a pass": """
import sys, duckdb
duckdb.sql("set threads = 1; set preserve_insertion_order = false")
columns = "id, teacher[1] as weight, student[1] as error, teacher[2] as distortion"
duckdb.sql(f"copy (select {columns} from '{sys.argv[1]}/*.parquet') to '{sys.argv[2]}' (format parquet)")
""",
}


@dataclass(frozen=True)
class Measured:
    """One job."""

    seconds: float
    processor: float  # seconds of it, with those of all its children
    peak: float  # MB


def write_rows(folder: Path, rows: int, classes: int) -> None:
    """Gold rows, and unlabeled rows in files."""
    rng = np.random.default_rng(SEED)
    labels = rng.integers(0, classes, GOLD)
    gold = {"teacher": lists(predictions(rng, labels, 3, classes)), "student": lists(predictions(rng, labels, 1.5, classes))}
    pq.write_table(pa.table({"id": np.arange(GOLD) - GOLD, "label": labels, **gold}), folder / "gold.parquet")
    (folder / "u").mkdir()
    kind, size = pa.list_(pa.float32(), classes), min(rows, FILE)
    schema, step = pa.schema([("id", pa.int64()), ("teacher", kind), ("student", kind)]), min(size, STEP // classes)
    truth = rng.integers(0, classes, step)
    models = [lists(predictions(rng, truth, strength, classes)) for strength in (3, 1.5)]
    for number, start in enumerate(range(0, rows, size)):
        with pq.ParquetWriter(folder / "u" / f"{number:05d}.parquet", schema, write_page_checksum=True) as writer:
            for first in range(start, min(start + size, rows), step):
                ids = np.arange(first, min(first + step, start + size, rows))
                writer.write_batch(pa.record_batch([ids, *(each[: len(ids)] for each in models)], schema=schema))


def run(command: list[str]) -> Measured:
    """A command in a fresh process."""
    before, start, peak = os.times(), time.perf_counter(), 0.0
    with tempfile.TemporaryFile() as said:
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env={**os.environ, **ENVIRONMENT})
        while job.poll() is None:
            peak = max(peak, resident(job.pid))
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        reap()
        after = os.times()
        if job.returncode:
            said.seek(0)
            raise SystemExit(f"{' '.join(command[:6])} … failed:\n{said.read().decode()[-2000:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Measured(seconds, used, peak)


def adopt() -> None:
    """From now on processes whose parents have ended, as those of Ray and Spark, are children of this one."""
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0):
        raise SystemExit(f"no process can be adopted: {os.strerror(ctypes.get_errno())}")


def reap() -> None:
    """Wait for all children, so that their seconds are counted."""
    for _ in range(600):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.1)
    raise SystemExit("a process of an engine did not end within a minute")


def resident(pid: int) -> float:
    """The peak resident megabytes of a process so far; what the kernel says at its end counts those of its parent too."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def weigh(folder: Path, output: str, *flags: str) -> list[str]:
    paths = [
        "--validation",
        str(folder / "gold.parquet"),
        "--unlabeled",
        str(folder / "u"),
        "--output",
        str(folder / output),
    ]
    return [sys.executable, "-m", "wdistill", "weigh", *paths, *flags]


def clear(folder: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True) if (folder / name).is_dir() else (folder / name).unlink(
            missing_ok=True
        )


def jobs_of(folder: Path) -> dict[str, tuple[list[str], Callable[[], None]]]:
    """The jobs of a size, by name, and what removes the output of each."""
    passes = {
        name: [sys.executable, "-c", program, str(folder / "u"), str(folder / "p.parquet")]
        for name, program in PASSES.items()
    }
    own = {
        "wdistill weigh": weigh(folder, "w.parquet"),
        "wdistill weigh --engine local": weigh(folder, "o", "--engine", "local"),
    }
    return {
        name: (command, lambda: clear(folder, "w.parquet", "o", "p.parquet")) for name, command in (own | passes).items()
    }


def measure(rows: int, classes: int) -> list[list[str]]:
    """The table of a size, line by line."""
    with tempfile.TemporaryDirectory(prefix="wdistill-") as name:
        folder, found = Path(name), dict[str, list[Measured]]()
        write_rows(folder, rows, classes)
        size = sum(path.stat().st_size for path in (folder / "u").iterdir())
        for _ in range(ROUNDS if rows * classes < 10**9 else 1):
            for job, (command, remove) in jobs_of(folder).items():
                found.setdefault(job, []).append(run(command))
                remove()
    bare = [median([each.processor for each in found[job]]) for job in (ALIKE, PLAIN)]
    lines = []
    for job, measured in found.items():
        seconds, processor = median([each.seconds for each in measured]), median([each.processor for each in measured])
        peak = max(each.peak for each in measured)
        keep(1, rows=rows, classes=classes, job=job, seconds=seconds, processor=processor, peak=peak)
        shown = [f"{rows:,} × {classes:,}", job, f"{rows / seconds:,.0f}", f"{processor / rows * 1e6:.2f}"]
        lines.append([*shown, *(f"{processor / each:.2f}×" for each in bare), f"{peak:,.0f} MB"])
    say(f"{rows:,} × {classes:,}: {size / 1e9:.2f} GB")
    return lines


def measure_engines(rows: int) -> list[list[str]]:
    """What engines cost for rows × 10 classes, in files of a million; each of ours with two processes."""
    flags = {
        "one process": [],
        "--engine local --workers 2": ["--engine", "local", "--workers", "2"],
        "--engine ray": ["--engine", "ray"],
        "--engine spark --master local[2]": ["--engine", "spark", "--master", "local[2]"],
    }
    lines = []
    adopt()
    with tempfile.TemporaryDirectory(prefix="wdistill-") as name:
        folder = Path(name)
        write_rows(folder, rows, 10)
        for engine, given in flags.items():
            output = "o" if given else "w.parquet"
            measured = run(weigh(folder, output, *given))
            clear(folder, output)
            keep(2, rows=rows, engine=engine, seconds=measured.seconds, processor=measured.processor)
            lines.append([f"{rows:,}", engine, f"{measured.seconds:.1f} s", f"{measured.processor:.1f} s"])
    return lines


def median(values: list[float]) -> float:
    return float(np.median(values))


def show(head: list[str], lines: list[list[str]]) -> None:
    for line in (head, ["---"] * len(head), *lines):
        print(f"| {' | '.join(line)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="wdistill weigh against bare passes over the same columns")
    parser.add_argument("--rows", type=int, help="one size alone, of 10 classes")
    parser.add_argument("--classes", type=int, default=10, help="with --rows")
    parser.add_argument("--engines", action="store_true", help="Ray and Spark")
    arguments = parser.parse_args()
    header = circumstances(False, ["pyarrow", *(["ray", "pyspark"] if arguments.engines else ["polars", "duckdb"])]) | {
        "benchmark": "scale"
    }
    if arguments.engines:
        sizes = [arguments.rows] if arguments.rows else [1_000_000, 10_000_000]
        show(["rows", "engine", "time", "of the processors"], [line for rows in sizes for line in measure_engines(rows)])
    else:
        pairs = [(arguments.rows, arguments.classes)] if arguments.rows else list(SIZES)
        head = ["rows × classes", "job", "rows/s", "processor seconds per million rows"]
        head += ["to pyarrow's pass with the same checks and compression", "to its plainest", "peak memory"]
        show(head, [line for rows, classes in pairs for line in measure(rows, classes)])
    append(header)


if __name__ == "__main__":
    main()
