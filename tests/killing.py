"""Kill a small complete run at every operation on the disk, start it again, and compare what it comes to.

    python -m tests.killing                              every point, two processes side by side: `make proofs`
    python -m tests.killing --every K [--offset I]       every K-th point
    python -m tests.killing --kinds                      the last point of every kind: an operation on files of one ending

Prints one JSON line for each process: operations, points tried, failures.

Each run is a forked child of a parent that has imported everything and trained nothing; `store.before` is the seam. The
fingerprint covers parameters, weights, labels and metrics, but not times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import scipy.special  # noqa: F401  imported when first used, as the next: once, here, not in every child
import torch
import torch._dynamo

import wdistill.report.page
from wdistill import Recipe, debiased, distill, fidelity
from wdistill.core import store
from wdistill.runs.checkpoints import read_manifest
from wdistill.training.models.networks import MLP

MEMORY = Path("/dev/shm")  # no disk to wait for: a killed process loses nothing that it has written, synced or not

RECIPE = Recipe(
    teacher_epochs=2, student_epochs=2, epochs=3, refresh=1, batch_size=16, rate=0.01, checkpoint_seconds=0, device="cpu"
)


def splits() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Two classes of points in the plane, noisy enough for teachers to err."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 3, (140,), generator=generator)
    inputs = torch.randn(140, 6, generator=generator) + labels[:, None]
    rows = {"labeled": slice(0, 30), "validation": slice(30, 60), "unlabeled": slice(60, 120), "test": slice(120, 140)}
    return {name: (inputs[part], labels[part]) for name, part in rows.items()}


def run(folder: Path) -> None:
    torch.manual_seed(0)
    distill(MLP(6, 3, (8,)), MLP(6, 3, (4,)), **splits(), rule=[debiased, fidelity], recipe=RECIPE, run=folder)


def child(folder: Path, before: Callable[[str, Path], None], run: Callable[[Path], None] = run) -> int:
    """Run in a forked process; its exit status."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            store.before = before
            run(folder)
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killer(at: int) -> Callable[[str, Path], None]:
    """Kills its process at the given operation; a write is two of them, so that one kill finds it half done."""
    count = 0

    def before(operation: str, path: Path) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


def operations(folder: Path, run: Callable[[Path], None] = run) -> list[str]:
    """Every operation of an undisturbed run, as text."""
    log = folder.with_name("operations.log")
    log.write_text("")

    def before(operation: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(f"{operation} {path}\n")

    assert child(folder, before, run) == 0
    return log.read_text().splitlines()


TIMES = ("seconds", "model_seconds", "forward_seconds", "estimate_seconds", "spent", "environment")


def timeless(value: object) -> object:
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if name not in TIMES}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def fingerprint(folder: Path) -> dict[str, str]:
    """A digest for every file of a run, and for every checkpointed state without its times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name in ("lock", "report.html") or path.match("generation-*.json"):
            continue
        content = path.read_bytes()
        if name == "metrics.jsonl":
            lines = [timeless(json.loads(line)) for line in content.decode().splitlines()]
            content = json.dumps(lines).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    for part in sorted({path.parent for path in folder.rglob("generation-*.json")}):
        state = json.dumps(timeless(read_manifest(part).state), sort_keys=True)
        found[f"{part.relative_to(folder).as_posix()} state"] = hashlib.sha256(state.encode()).hexdigest()
    return found


def differences(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    return sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))


def kinds(plan: Sequence[str]) -> list[int]:
    """The last point of every operation on files of every ending."""
    named = [(operation, "".join(re.findall(r"\.[a-z]+", Path(path).name))) for operation, path in map(str.split, plan)]
    return sorted({name: at for at, name in enumerate(named, 1)}.values())


def attempt(folder: Path, point: int, wanted: dict[str, str]) -> dict[str, Any] | None:
    """Kill a run at this point, resume it, and say what is wrong with its end; None if nothing is."""
    killed = child(folder, killer(point))
    ended = child(folder, lambda operation, path: None)
    again = child(folder, lambda operation, path: None) if point % 10 == 0 else 0  # a finished run changes nothing
    wrong = differences(fingerprint(folder), wanted) if ended == 0 else ["did not end"]
    shutil.rmtree(folder, ignore_errors=True)
    if killed == -signal.SIGKILL and ended == 0 and again == 0 and not wrong:
        return None
    return {"point": point, "exits": [killed, ended, again], "wrong": wrong[:5]}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--kinds", action="store_true")
    arguments = parser.parse_args()
    if arguments.every is None and not arguments.kinds:
        each = [[sys.executable, "-m", "tests.killing", "--every", "2", "--offset", str(offset)] for offset in (0, 1)]
        return max([process.wait() for process in [subprocess.Popen(command) for command in each]])
    torch.set_num_threads(1)
    wdistill.report.page.page = lambda groups, title: "the page is drawn from the run, and tested elsewhere"
    place = Path(tempfile.mkdtemp(prefix="killing-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        plan = operations(place / "reference")
        wanted = fingerprint(place / "reference")
        every = range(1 + arguments.offset, len(plan) + 1, arguments.every or 1)
        points = kinds(plan) if arguments.kinds else every
        tried = [(point, attempt(place / f"run-{point}", point, wanted)) for point in points]
        failures = [{"at": plan[point - 1], **failure} for point, failure in tried if failure]
        print(json.dumps({"operations": len(plan), "points": len(points), "failures": failures}))
        return 1 if failures else 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
