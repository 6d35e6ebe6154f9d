"""What a job in partitions costs: a row, a file, an id, and what the process that starts it must hold.

    python -m benchmarks.partitions          keeps the figures from which `python -m benchmarks.billion` computes
    python -m benchmarks.partitions --ids    those of an id alone, in a minute

Rows are stored as `wdistill label` stores them, and weighed by `wdistill weigh --engine local` in fresh processes of one
thread. A cost is the difference between a large job and a small one, in seconds of the processor, the median of three.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measuring import SEED, append, circumstances, keep, say
from benchmarks.memory import predictions
from benchmarks.scale import GOLD, median, run, weigh
from wdistill.core.checks import collect_warnings
from wdistill.engines.partition import Made, Work
from wdistill.engines.run import run_partitions
from wdistill.engines.weigh import WeighPartitions
from wdistill.tables.formats.predictions import StoredPredictions
from wdistill.tables.join import IdCheck
from wdistill.tables.options import Options, Paths
from wdistill.tables.output import parquet_writer
from wdistill.tables.portable import pack_job
from wdistill.tables.weigh import prepare_job

ROUNDS = 3
SHAPES = {  # by name: classes, how many of a row are stored, rows of the small and of the large job
    "10 classes": (10, None, 200_000, 2_000_000),
    "1,000 classes": (1_000, None, 20_000, 120_000),
    "1,000 classes, the 10 largest": (1_000, 10, 20_000, 620_000),
}
FILES = (10, 110)  # of a few rows each
DRIVEN = (500, 8_500)  # files of which only the answers are there
IDS, HELD = 8_000_000, 2_000_000  # ids compared; the keys of so many are in memory
COMPARED = (1_000_000, 10_000_000, 100_000_000)  # ids whose check takes how much memory, by the setting of `weigh`


def write(path: Path, ids: np.ndarray, classes: int, top_k: int | None, labeled: bool = False) -> None:
    """A table of rows, their predictions as `wdistill label` stores them; the same ones come again and again."""
    stored, rng = StoredPredictions("float32", top_k), np.random.default_rng(SEED)
    truth = rng.integers(0, classes, min(len(ids), 2_000_000 // classes))
    columns = [stored.column(predictions(rng, truth, strength, classes)) for strength in (3, 1.5)]
    fields = [stored.field(name, classes) for name in ("teacher", "student")]
    if labeled:
        columns, fields = [*columns, pa.array(truth)], [*fields, pa.field("label", pa.int64())]
    schema = pa.schema([pa.field("id", pa.int64()), *fields])
    with path.open("wb") as file, parquet_writer(file, schema) as writer:
        for first in range(0, len(ids), len(truth)):
            part = ids[first : first + len(truth)]
            writer.write_batch(pa.record_batch([part, *(column[: len(part)] for column in columns)], schema=schema))


def weighed(folder: Path, shape: tuple[int, int | None], files: int, rows: int) -> tuple[float, float, int, int]:
    """Seconds of the processor and of time, and bytes read and written, of a job with so many files of so many rows."""
    (folder / "u").mkdir(parents=True)
    write(folder / "gold.parquet", np.arange(GOLD) - GOLD, shape[0], None, labeled=True)
    for number in range(files):
        write(folder / "u" / f"{number:06d}.parquet", np.arange(rows) + number * rows, *shape)
    found = []
    for turn in range(ROUNDS):
        found.append(run(weigh(folder, f"o{turn}", "--engine", "local")))
    sizes = [sum(path.stat().st_size for path in (folder / name).glob("*.parquet")) for name in ("u", "o0")]
    return median([each.processor for each in found]), median([each.seconds for each in found]), *sizes


def measure_rows(folder: Path) -> None:
    for name, (classes, top_k, *sizes) in SHAPES.items():
        few, many = (weighed(folder / f"{name} {rows}", (classes, top_k), 1, rows) for rows in sizes)
        more = sizes[1] - sizes[0]
        found = {"seconds": (many[0] - few[0]) / more, "read": many[2] / sizes[1], "written": many[3] / sizes[1]}
        keep(1, shape=name, classes=classes, top_k=top_k, of_a_row=found, start=few[0] - found["seconds"] * sizes[0])
        say(f"{name}: {found}")


def measure_files(folder: Path) -> None:
    few, many = (weighed(folder / f"files {files}", (10, None), files, 10) for files in FILES)
    keep(2, of_a_file={"seconds": (many[0] - few[0]) / (FILES[1] - FILES[0])})
    say(f"a file: {(many[0] - few[0]) / (FILES[1] - FILES[0]):.4f} s")


def measure_driver() -> None:
    """The process that starts the job, each time a fresh one."""
    found = [json.loads(subprocess.check_output([sys.executable, "-m", __spec__.name, "--drive", str(n)])) for n in DRIVEN]
    cost = {name: (found[1][name] - found[0][name]) / (DRIVEN[1] - DRIVEN[0]) for name in found[0]}
    keep(3, of_a_file_where_the_job_is_started=cost)
    say(f"where the job is started, a file: {cost}")


def drive(files: int) -> dict[str, float]:
    """Start and finish a job of so many files, whose answers are there at once: seconds, bytes of memory and manifest."""
    with tempfile.TemporaryDirectory(prefix="wdistill-driver-") as name:
        folder = Path(name)
        write(folder / "gold.parquet", np.arange(GOLD) - GOLD, 10, None, labeled=True)
        write(folder / "u.parquet", np.arange(100_000), 10, None)
        with collect_warnings() as messages:
            job = prepare_job(Paths([str(folder / "gold.parquet")], [str(folder / "u.parquet")], []), Options())
            packed = pack_job(job)
            template = _answer(WeighPartitions(job, packed, [((str(folder / "u.parquet"),), "0")]), folder)
            start, before = time.process_time(), _peak()
            listed = [((f"{folder}/u/{number:08d}.parquet",), f"91522194, {number + 10**18}") for number in range(files)]
            many = WeighPartitions(job, packed, listed)
            run_partitions(many, str(folder / "o"), _Answers(template), messages)
        size = (folder / "o" / "_manifest.json").stat().st_size
        return {"seconds": time.process_time() - start, "memory": _peak() - before, "manifest": float(size)}


def _answer(job: WeighPartitions, folder: Path) -> Made:
    """What becomes of the one file."""
    from wdistill.engines.inputs import partition_files
    from wdistill.engines.local import run_here

    (folder / "one").mkdir()
    kept: list[Made] = []

    def engine(work: Work, questions: Sequence[str]) -> Iterable[str]:
        for answer in run_here(work, questions):
            kept.append(Made(**json.loads(answer)["made"]))
            yield answer

    files = partition_files([str(folder / "u.parquet")], "--unlabeled")
    run_partitions(replace(job, files=files), str(folder / "one"), engine, [])
    return kept[0]


class _Answers:
    """An engine that knows all answers."""

    def __init__(self, template: Made) -> None:
        self.template = template

    def __call__(self, work: Any, questions: Sequence[str]) -> Iterable[str]:
        for question in questions:
            asked = json.loads(question)
            number, key = asked["number"], asked["key"]
            file = f"part-{number:06d}-{key}-{self.template.sha256[:16]}.parquet"
            ids = [number * 100_000, number * 100_000 + 99_999]
            made = replace(self.template, number=number, key=key, job=work.job, file=file, ids=ids)
            yield json.dumps({"number": number, "made": asdict(made)})


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def measure_ids(folder: Path) -> None:
    """Ids of which many files have overlapping ranges: compared by one process, by way of the disk."""
    ids, start = np.random.default_rng(SEED).permutation(IDS), time.process_time()
    check = IdCheck(folder, IDS, HELD)
    for first in range(0, IDS, 1 << 16):
        check.add(pa.array(ids[first : first + (1 << 16)]))
    check.finish(lambda: iter(()), "ids")
    seconds = (time.process_time() - start) / IDS
    found = {"seconds": seconds, "disk": sum(path.stat().st_size for path in folder.glob("keys-*")) / IDS}
    command = [sys.executable, "-m", __spec__.name, "--compare"]
    peaks = {str(ids): json.loads(subprocess.check_output([*command, str(ids)])) for ids in COMPARED}
    keep(4, of_an_id=found, peaks=peaks)
    say(f"an id: {seconds * 1e6:.3f} µs")
    for ids, peak in peaks.items():
        say(f"{int(ids):,} ids: at most {peak / 1e6:.0f} MB")


def compare(ids: int) -> int:
    """Compare so many ids; the peak memory of this process in bytes."""
    with tempfile.TemporaryDirectory(prefix="wdistill-ids-") as folder:
        check = IdCheck(Path(folder), ids)
        for first in range(0, ids, 1 << 16):
            check.add(pa.array(np.arange(first, min(first + (1 << 16), ids))))
        check.finish(lambda: iter(()), "ids")
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())  # of this program, not of who started it
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    if sys.argv[1:2] == ["--drive"]:
        print(json.dumps(drive(int(sys.argv[2]))))
        return
    if sys.argv[1:2] == ["--compare"]:
        print(compare(int(sys.argv[2])))
        return
    header = circumstances(False, ["pyarrow"]) | {"benchmark": "partitions"}
    with tempfile.TemporaryDirectory(prefix="wdistill-partitions-") as name:
        (Path(name) / "ids").mkdir()
        measure_ids(Path(name) / "ids")
        if sys.argv[1:] != ["--ids"]:
            measure_driver()
            measure_files(Path(name))
            measure_rows(Path(name))
    append(header)


if __name__ == "__main__":
    main()
