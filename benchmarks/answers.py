"""Table 11: answers of a label and a confidence in JSON lines, against pyarrow.json: `python -m benchmarks.answers`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.json as arrow_json

from benchmarks.measuring import SEED, keep, main, race, table, verdict
from wdistill.answers.classes import make_classes
from wdistill.answers.read import open_answers

ROWS = 1_000_000
TARGET, GOAL = 2.0, 1.5  # times as long as parsing alone, at most
PEAK = """
import sys
from pathlib import Path
from benchmarks.answers import ours
ours(Path(sys.argv[1]))
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""  # kilobytes; ru_maxrss would begin with the size of the process that started this one
GROWTH = 50  # MB that ten times the rows may take more
CLASSES = make_classes(["positive", "negative"])


def write(path: Path, rows: int) -> None:
    """Labels as people's files have them, each with a stated confidence."""
    rng = np.random.default_rng(SEED)
    labels, confidences = rng.choice(["Positive", "negative."], rows), rng.uniform(0.5, 1, rows).round(2)
    with path.open("w") as file:
        for number, (label, confidence) in enumerate(zip(labels.tolist(), confidences.tolist(), strict=True)):
            file.write(json.dumps({"id": f"row-{number}", "label": label, "confidence": confidence}) + "\n")


def ours(path: Path) -> int:
    """Recognised, checked, and turned into distributions, some rows at a time."""
    return sum(len(batch.parsed.ids) for batch in open_answers(str(path)).read(CLASSES, ()))


def parsed(path: Path) -> int:
    """Parsed, and nothing else."""
    return int(arrow_json.read_json(path, arrow_json.ReadOptions(use_threads=False)).num_rows)


def peak(path: Path) -> float:
    """Peak resident megabytes of a fresh process that reads the answers of a file."""
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout) / 1024


def reading(quick: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "answers.jsonl"
        write(path, ROWS // quick)
        contenders = {"wdistill": lambda: ours(path), "pyarrow.json": lambda: parsed(path)}
        seconds, found = race(contenders, min)
        processor, _ = race(contenders, min, time.process_time)
        few = Path(folder) / "few.jsonl"
        write(few, ROWS // quick // 10)
        small, large = peak(few), peak(path)
    if len(set(found.values())) > 1:
        raise SystemExit("the two read other rows")
    ratio = seconds["wdistill"] / seconds["pyarrow.json"]
    row = [f"{found['wdistill']:,}", *(f"{each:.2f} s" for each in seconds.values()), f"{ratio:.2f}×"]
    cpu_ratio = processor["wdistill"] / processor["pyarrow.json"]
    cpu = ["in seconds of the processor", *(f"{each:.2f} s" for each in processor.values()), f"{cpu_ratio:.2f}×", ""]
    title = "11. Answers of a label and a confidence in JSON lines, read on one thread: the fastest of five"
    table(title, ["rows", *seconds, "ratio", ""], [[*row, verdict(ratio <= TARGET, ratio <= GOAL)], cpu])
    memory = [f"{small:.0f} MB", f"{large:.0f} MB", verdict(large - small <= GROWTH)]
    table("Peak memory of a process that reads a tenth of them, and all", ["a tenth", "all", ""], [memory])
    keep(
        11,
        rows=found["wdistill"],
        seconds=seconds,
        ratio=ratio,
        cpu_seconds=processor,
        cpu_ratio=cpu_ratio,
        peak_mb=[small, large],
    )


if __name__ == "__main__":
    main("benchmarks.answers", "How fast answers are read.", {11: reading})
