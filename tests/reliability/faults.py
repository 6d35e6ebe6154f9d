"""Kill, disk errors and power cuts at the store's operations: the job started again comes to the same bytes.

python -m tests.reliability.faults --job weigh --fault kill --point 17       replays one
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.killing import MEMORY, child, differences
from tests.reliability.hooks import FAULTS, PowerCut, at_point, hook
from tests.reliability.jobs import JOBS, Job, as_command, prepare_process

DECLARED = {2, 3, 5}  # exit codes of errors that we explain
LOST = 7  # exit code of a child that has lost something


def operations(job: Job, folder: Path) -> int:
    """How many operations an undisturbed run has."""
    log = folder.with_name(f"{folder.name}.log")
    log.write_text("")

    def before(operation: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(".")

    assert child(folder, before, as_command(job.run)) == 0
    return len(log.read_text())


def attempt(job: Job, fault: str, point: int, folder: Path, wanted: dict[str, str]) -> str:
    """Interrupt a job, start it again, and say what is wrong; nothing if it comes to the same."""
    ended = child(folder, hook(fault, at_point(point), point), as_command(job.run))
    expected = {-signal.SIGKILL} if fault in ("kill", "power cut") else DECLARED | {0}
    if ended not in expected:
        return f"ended with {ended}"
    again = child(folder, lambda operation, path: None, as_command(job.run))
    if again:
        return f"started again, it ended with {again}"
    wrong = differences(job.fingerprint(folder), wanted)
    return f"other bytes: {', '.join(wrong[:3])}" if wrong else ""


def finish_and_lose(job: Job, folder: Path) -> str:
    """Let a job end, then cut the power at once, and say what is wrong; nothing if all that it made is still there."""
    power = PowerCut()

    def run(folder: Path) -> None:
        job.run(folder)
        before = job.fingerprint(folder)
        power.lose()
        os._exit(0 if before and job.fingerprint(folder) == before else LOST)

    ended = child(folder, power, as_command(run))
    return "" if ended == 0 else "something is lost, or there again" if ended == LOST else f"ended with {ended}"


def after_the_end(jobs: Iterable[Job]) -> tuple[int, list[str]]:
    """A power cut after the last operation of every job: how many were tried, and what went wrong."""
    place = Path(tempfile.mkdtemp(prefix="faults-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        found = {job.name: finish_and_lose(job, place / job.name) for job in jobs}
        command = "python -m tests.reliability --only 'last operation'"
        return len(found), [f"{wrong} after {name}: {command}" for name, wrong in found.items() if wrong]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def sweep(job: Job, fault: str, every: int = 1, offset: int = 0) -> tuple[int, list[str]]:
    """Every `every`-th point of a job: how many were tried, and what went wrong, with the command that replays it."""
    place = Path(tempfile.mkdtemp(prefix="faults-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        count = operations(job, place / "whole")
        wanted = job.fingerprint(place / "whole")
        points = range(1 + offset % every, count + 1, every)
        failures = []
        for point in points:
            folder = place / f"at-{point}"
            wrong = attempt(job, fault, point, folder, wanted)
            if wrong:
                command = f"python -m tests.reliability.faults --job {job.name!r} --fault {fault!r} --point {point}"
                failures.append(f"{wrong}: {command}")
            shutil.rmtree(folder, ignore_errors=True)
        return len(points), failures
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay one fault.")
    parser.add_argument("--job", choices=JOBS, required=True)
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--point", type=int, required=True)
    arguments = parser.parse_args()
    prepare_process()
    job, place = JOBS[arguments.job], Path(tempfile.mkdtemp(prefix="fault-"))
    operations(job, place / "whole")
    wanted = job.fingerprint(place / "whole")
    print(attempt(job, arguments.fault, arguments.point, place / "at", wanted) or "the same bytes")


if __name__ == "__main__":
    main()
