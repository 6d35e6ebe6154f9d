"""Peak memory of `distill` against the size of the pool: rows × classes.

    python -m benchmarks.pool [--quick] [--only 14,16]

14 is a pool of 200,000 rows, 15 one of ImageNet's size (15 GB of disk), 16 the method `best`, which gets whole arrays.
Each case is one run in a fresh process, on made-up inputs of 16 numbers: a linear teacher that comes trained, a linear
student, one epoch. The peak is the kernel's count of resident memory, less what was resident before the call of `distill`,
which is what the libraries and the inputs take.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import SEED, keep, main, say, table, verdict
from benchmarks.memory import lists

LIMIT = 1000  # MB above the inputs
STORED = "a teacher in a file"
SIZES = {"labeled": 5_000, "validation": 5_000, "test": 5_000}
CASES: dict[int, dict[str, tuple[int, int, list[str], dict[str, Any]]]] = {  # by table: rows, classes, arms, settings
    14: {
        "soft targets": (200_000, 1000, ["debiased"], {}),
        "hard targets": (200_000, 1000, ["debiased"], {"targets": "hard"}),
        "soft targets, refreshed": (200_000, 1000, ["debiased"], {"epochs": 2, "refresh": 1}),
        "three arms as one model": (200_000, 1000, ["debiased", "fidelity", "unweighted"], {}),
        STORED: (200_000, 1000, ["debiased"], {}),
    },
    15: {"soft targets": (1_280_000, 1000, ["debiased"], {})},
    16: {"best": (40_000, 50, ["best"], {}), "best, more rows": (120_000, 50, ["best"], {})},
}


def child(rows: int, classes: int, arms: list[str], settings: dict[str, Any], stored: bool = False) -> dict[str, float]:
    """One run in this process: megabytes before it and at its peak, and its seconds. `stored`: the teacher is a file."""
    import torch
    from torch import nn

    from wdistill import Data, Recipe, distill

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    sizes = {**SIZES, "unlabeled": rows}
    inputs = {name: torch.randn(count, 16, generator=generator) for name, count in sizes.items()}
    teacher, student = nn.Linear(16, classes), nn.Linear(16, classes)
    with torch.no_grad():
        teacher.weight.normal_(generator=generator)
        truth = {
            name: teacher(inputs[name] + torch.randn(inputs[name].shape, generator=generator)).argmax(1) for name in SIZES
        }
    data: dict[str, Any] = {name: Data(inputs[name], truth[name], ids_of(name, sizes)) for name in SIZES}
    data["unlabeled"] = Data(inputs["unlabeled"], None, ids_of("unlabeled", sizes))
    recipe = Recipe(
        rule=tuple(arms), teacher_epochs=0, student_epochs=1, batch_size=1024, device="cpu", **{"epochs": 1, **settings}
    )
    with tempfile.TemporaryDirectory(prefix="wdistill-pool-") as folder:
        if stored:
            write_predictions(f"{folder}/teacher.parquet", teacher, inputs, sizes)
        before, started = resident(), time.perf_counter()
        distill(f"{folder}/teacher.parquet" if stored else teacher, student, **data, recipe=recipe, run=f"{folder}/run")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"before": before, "peak": peak, "seconds": time.perf_counter() - started}


def ids_of(name: str, sizes: dict[str, int]) -> Any:
    """Whole numbers, those of a split after those of the split before."""
    first = sum(sizes[each] for each in [*sizes][: [*sizes].index(name)])
    return np.arange(first, first + sizes[name])


def write_predictions(path: str, teacher: Any, inputs: dict[str, Any], sizes: dict[str, int]) -> None:
    """A parquet file of the teacher's probabilities of all rows."""
    kind = pa.list_(pa.float32(), teacher.out_features)
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64()), ("teacher", kind)])) as writer:
        for name, values in inputs.items():
            for ids, part in zip(np.array_split(ids_of(name, sizes), 100), values.tensor_split(100), strict=True):
                said = teacher(part).softmax(1).detach().numpy()
                writer.write_batch(pa.record_batch([pa.array(ids), lists(said)], schema=writer.schema))


def resident() -> float:
    """Megabytes of this process that are in memory now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def the_pool(number: int, shrink: int) -> None:
    rows = []
    for name, (count, classes, arms, settings) in CASES[number].items():
        say(f"{number}: {name}, {count // shrink:,} × {classes:,}")
        arguments = json.dumps([count // shrink, classes, arms, settings, name == STORED])
        command = [sys.executable, "-m", "benchmarks.pool", "--child", arguments]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found = json.loads(printed.splitlines()[-1])
        above, size = found["peak"] - found["before"], 4 * count // shrink * classes / 1e6
        keep(number, case=name, rows=count // shrink, classes=classes, arms=arms, above_mb=above, array_mb=size, **found)
        met = "" if "best" in arms or name == STORED else verdict(above <= LIMIT)  # pages of its file count, too
        rows.append(
            (name, f"{count // shrink:,} × {classes:,}", f"{size:,.0f}", f"{above:,.0f}", f"{found['seconds']:.0f}", met)
        )
    head = ("case", "rows × classes", "one float32 array MB", "peak above the inputs MB", "seconds", f"≤ {LIMIT} MB")
    table(f"{number}  Peak memory of distill", head, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*json.loads(sys.argv[2]))))
    else:
        main(
            "benchmarks.pool",
            "Measure the memory of distill against rows × classes.",
            {number: partial(the_pool, number) for number in CASES},
        )
