"""Kill, disk errors and power cuts in a run with two worker processes: at operations of its own process and of theirs.

A killed worker ends the run, which says that it resumes; a power cut takes all processes. Started again, the run comes to
the same bytes. Workers are started anew, as always, which takes most of the time; for many points they are forked.

python -m tests.reliability.workers --fault kill --operation "rename teacher/generation-000001.json" --number 1 [--forked]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.killing import MEMORY, child, differences
from tests.reliability.faults import DECLARED
from tests.reliability.hooks import VARIABLE, install
from tests.reliability.jobs import TWO_WORKERS, as_command, prepare_process
from tests.reliability.rot import results
from wdistill.core import processes, store
from wdistill.training import workers as training_workers

ROOT = Path(__file__).resolve().parent.parent.parent
INJECTED = Path(__file__).with_name("injected")
UNFINISHED = 75  # exit code of a run that resumes when it is started again
LONGEST = 120  # seconds of a run, on a machine that is busy
PATIENCE = 30.0  # seconds for processes to end with their parent


@dataclass(frozen=True)
class Point:
    """An operation, by its name, which of that name, and whose: the parent's or a worker's."""

    role: str
    operation: str
    number: int


NOWHERE = Point("", "", 0)


def start(folder: Path, fault: str, point: Point, error: int = 0, *, forked: bool = False) -> tuple[int, list[Point]]:
    """The exit code of the run, with a fault at a point, and the operations of all its processes."""
    log, group = (folder.with_name(f"{folder.name}.{name}") for name in ("log", "group"))
    log.write_text("")
    given = {"folder": str(folder), "log": str(log), "fault": fault, "error": error}
    given |= {"operation": f"{point.role} {point.operation}", "number": point.number}

    def run(folder: Path) -> None:
        signal.alarm(LONGEST)  # a run that hangs ends by it
        os.setpgid(0, 0)
        group.write_text(str(os.getpid()))
        sys.modules["__main__"] = ModuleType("__main__")  # that of the harness would be imported by every worker
        path = [str(INJECTED), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {VARIABLE: json.dumps(given), "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        store.before = install(given, "parent")
        if forked:
            fork_workers(given)
        as_command(TWO_WORKERS.run)(folder)

    ended = child(folder, store.before, run)
    if not _is_gone(group.read_text()):
        return 99, []
    seen, points = Counter[str](), []
    for line in log.read_text().splitlines():
        role, _, operation = line.partition(" ")
        seen[line] += 1
        points.append(Point(role, operation, seen[line]))
    return ended, points


def fork_workers(given: Mapping[str, Any]) -> None:
    """Let the workers of this process be forks of it, with a hook of their own."""
    begin = training_workers._begin

    def begin_with_hook(*arguments: Any) -> None:
        store.before = install(given, "worker")
        begin(*arguments)

    training_workers._begin = begin_with_hook
    processes.get_context = lambda method: get_context("fork")  # type: ignore[assignment]


def _is_gone(group: str) -> bool:
    """Wait until no process of a group is left."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        stats = [_stat(path) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        if not any(len(stat) > 2 and stat[2] == group and stat[0] != "Z" for stat in stats):
            return True
        time.sleep(0.02)
    return False


def _stat(process: Path) -> list[str]:
    """State, parent, group and more of a process."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def attempt(fault: str, point: Point, error: int, folder: Path, wanted: dict[str, str], *, forked: bool = False) -> str:
    """Interrupt the run, start it again, and say what is wrong; nothing if it comes to the same."""
    ended, _ = start(folder, fault, point, error, forked=forked)
    killed = UNFINISHED if fault == "kill" and point.role == "worker" else -signal.SIGKILL
    if ended not in ({killed} if fault in ("kill", "power cut") else DECLARED):
        return f"ended with {ended}"
    again, _ = start(folder, "kill", NOWHERE, forked=forked)
    if again:
        return f"started again, it ended with {again}"
    wrong = differences(results(folder), wanted)
    left = [path.name for path in folder.rglob(".*")]
    return f"other bytes: {', '.join(wrong[:3])}" if wrong else f"left behind: {', '.join(left[:3])}" if left else ""


def sweep(fault: str, number: int, seed: int, *, forked: bool = False) -> tuple[int, list[str]]:
    """So many points of the run, two thirds of them of workers: how many were tried, and what went wrong."""
    place = Path(tempfile.mkdtemp(prefix="workers-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        ended, points = start(place / "whole", fault, NOWHERE, forked=forked)
        assert ended == 0
        wanted, failures = results(place / "whole"), []
        chosen = _spread(points, "worker", number - number // 3, seed) + _spread(points, "parent", number // 3, seed)
        for i, point in enumerate(chosen):
            wrong = attempt(fault, point, seed + i, place / f"at-{i}", wanted, forked=forked)
            if wrong:
                words = f"--fault {fault!r} --operation {point.operation!r} --number {point.number} --error {seed + i}"
                words += " --forked" if forked else ""
                failures.append(f"{wrong}: python -m tests.reliability.workers {words}")
            shutil.rmtree(place / f"at-{i}", ignore_errors=True)
        return len(chosen), failures
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _spread(points: list[Point], role: str, number: int, seed: int) -> list[Point]:
    """Points of one role, evenly spaced, others for every seed."""
    ours = sorted({point for point in points if point.role == role}, key=lambda each: (each.operation, each.number))
    number = min(number, len(ours))
    return [ours[(seed * 7 + i * len(ours) // number) % len(ours)] for i in range(number)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay one fault.")
    parser.add_argument("--fault", choices=("kill", "power cut", "disk error"), required=True)
    parser.add_argument("--operation", required=True)
    parser.add_argument("--number", type=int, default=1)
    parser.add_argument("--error", type=int, default=0)
    parser.add_argument("--forked", action="store_true")
    arguments = parser.parse_args()
    prepare_process()
    with tempfile.TemporaryDirectory(prefix="workers-") as name:
        place = Path(name)
        _, points = start(place / "whole", "kill", NOWHERE, forked=arguments.forked)
        named = [each for each in points if (each.operation, each.number) == (arguments.operation, arguments.number)]
        wanted = results(place / "whole")
        replay = partial(attempt, arguments.fault, error=arguments.error, folder=place / "at", wanted=wanted)
        wrong = replay(named[0], forked=arguments.forked) if named else "no such operation"
    print(wrong or "the same bytes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
