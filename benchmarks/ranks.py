"""Students by one and by two processes under torchrun: seconds of an epoch, and how much of them is the student's.

    python -m tests.scale.alone python -m benchmarks.ranks

The time of an epoch is the difference between a run of many epochs and a run of few in the same processes, so that neither
imports nor the teacher count; medians of three. Every process has one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.measuring import SEED, append, circumstances, keep
from benchmarks.scale import median, show
from wdistill import CNN, MLP, Recipe, debiased, distill

BATCH, CLASSES, GOLD = 256, 10, 500
EPOCHS = (1, 5)
ROUNDS = 3
STUDENTS: Mapping[str, tuple[Callable[[], nn.Module], int]] = {  # and how many unlabeled pictures of 28 × 28
    "CNN of 16, 32 and 64 maps": (lambda: CNN(1, CLASSES), 2_048),
    "MLP 784–1,024–1,024–10": (lambda: MLP(784, CLASSES, (1_024, 1_024)), 8_192),
}


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        train(sys.argv[2], Path(sys.argv[3]))
        return
    header = circumstances(False, ["torch"]) | {"benchmark": "ranks"}
    lines = []
    for name in STUDENTS:
        found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for processes, times in found.items():
                times.append(torchrun(processes, name))
        alone = [median([each[number] for each in found[1]]) for number in (0, 1)]
        for processes, times in found.items():
            seconds, processor = (median([each[number] for each in times]) for number in (0, 1))
            keep(1, student=name, processes=processes, seconds=seconds, processor=processor)
            shown = [name, str(processes), f"{seconds:.2f} s", f"{processor:.2f} s", f"{alone[0] / seconds:.2f}×"]
            lines.append([*shown, f"{alone[1] / processor:.0%}"])
    show(["student", "processes", "an epoch", "of the processors", "as fast", "of the processors is the student's"], lines)
    append(header)


def torchrun(processes: int, name: str) -> tuple[float, float]:
    """Seconds of an epoch, and those of the processors of all processes."""
    with tempfile.TemporaryDirectory(prefix="wdistill-ranks-") as folder:
        words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "--"]
        here = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "WDISTILL_THREADS": "1"}
        command = [sys.executable, *words, "benchmarks.ranks", "--run", name, folder]
        done = subprocess.run(command, env=here, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name} by {processes} processes failed:\n{done.stderr[-3000:]}")
        told = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(processes)]
    few, many = ((max(each[n][0] for each in told), sum(each[n][1] for each in told)) for n in (0, 1))
    epochs = EPOCHS[1] - EPOCHS[0]
    return (many[0] - few[0]) / epochs, (many[1] - few[1]) / epochs


def train(name: str, folder: Path) -> None:
    """One process: a short and a long run, and what they took here."""
    make, rows = STUDENTS[name]
    rng, told = np.random.default_rng(SEED), []
    sizes = {"labeled": 100, "validation": GOLD, "unlabeled": rows}
    inputs = {split: rng.standard_normal((size, 1, 28, 28), dtype=np.float32) for split, size in sizes.items()}
    labels = {split: rng.integers(0, CLASSES, size) for split, size in sizes.items()}
    splits: dict[str, Any] = {split: (inputs[split], labels[split]) for split in ("labeled", "validation")}
    predictions = {split: rng.dirichlet(np.ones(CLASSES), size).astype(np.float32) for split, size in sizes.items()}
    for number, epochs in enumerate((EPOCHS[0], *EPOCHS)):  # the first warms up
        recipe = Recipe(student_epochs=1, epochs=epochs, batch_size=BATCH, refresh=None, device="cpu")
        start, used = time.perf_counter(), time.process_time()
        distill(
            predictions,
            make,
            **splits,
            unlabeled=(inputs["unlabeled"], None),
            rule=debiased,
            recipe=recipe,
            run=folder / str(number),
        )
        told.append((time.perf_counter() - start, time.process_time() - used))
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(told[1:]))


if __name__ == "__main__":
    main()
