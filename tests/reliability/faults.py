"""Kill, disk errors and power cuts at the store's operations: the job started again comes to the same bytes.

python -m tests.reliability.faults --job weigh --fault kill --point 17       replays one
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.killing import MEMORY, child, differences
from tests.reliability.jobs import JOBS, Job, as_command, prepare_process

ERRORS = ("ENOSPC", "EIO", "EACCES", "EDQUOT", "EROFS", "EMFILE")
FAULTS = ("kill", "power cut", "disk error", *ERRORS)  # disk error: one of these, in turn
DECLARED = {2, 3, 5}  # exit codes of errors that we explain
Hook = Callable[[str, Path], None]


def at_point(point: int, act: Callable[[], None]) -> Hook:
    """Do something at the given operation of the store, counted from 1."""
    count = 0

    def before(operation: str, path: Path) -> None:
        nonlocal count
        count += 1
        if count == point:
            act()

    return before


def fail_with(name: str, point: int) -> Hook:
    """An error of the disk at an operation."""
    code = getattr(errno, name)

    def act() -> None:
        raise OSError(code, os.strerror(code))

    return at_point(point, act)


def kill(point: int) -> Hook:
    return at_point(point, lambda: os.kill(os.getpid(), signal.SIGKILL))


@dataclass
class Unsynced:
    """A file that was written and not synced since: how many of its bytes the disk is sure to have."""

    path: Path  # when it was opened
    kept: int
    inode: tuple[int, int] | None = None  # known once it is there; it follows the file when it is renamed


class PowerCut:
    """What the disk has when the power goes: bytes that were not synced are cut, renames in unsynced folders undone.

    Only a true `os.fsync` counts as a sync: it is watched from the first operation on, in the child.
    """

    def __init__(self, point: int) -> None:
        self.point, self.count = point, 0
        self.dirty: list[Unsynced] = []
        self.renamed: list[tuple[Path, bytes | None]] = []  # targets in folders not synced since, and what they held
        self.targets: set[Path] = set()  # of all renames

    def __call__(self, operation: str, path: Path) -> None:
        if not self.count:
            self._watch()
        self.count += 1
        self._look()
        if self.count == self.point:
            self.cut()
        if operation == "open" or (operation == "append" and all(each.path != path for each in self.dirty)):
            kept = path.stat().st_size if operation == "append" and path.exists() else 0
            self.dirty.append(Unsynced(path, kept))
        elif operation == "rename":
            self.renamed.append((path, path.read_bytes() if path.is_file() else None))
            self.targets.add(path)

    def _watch(self) -> None:
        fsync = os.fsync

        def watched(descriptor: int) -> None:
            fsync(descriptor)
            self._look()
            status = os.fstat(descriptor)
            synced = (status.st_dev, status.st_ino)
            self.dirty = [each for each in self.dirty if each.inode != synced]
            self.renamed = [each for each in self.renamed if inode_of(each[0].parent) != synced]

        os.fsync = watched  # type: ignore[assignment]

    def _look(self) -> None:
        """The files that were opened since the last look."""
        for each in self.dirty:
            each.inode = each.inode or inode_of(each.path)

    def lose(self) -> None:
        """Make the disk what it would be if the power went now."""
        for each in self.dirty:
            for path in {each.path, *self.targets}:
                if path.is_file() and inode_of(path) == each.inode and path.stat().st_size > each.kept:
                    os.truncate(path, each.kept + (path.stat().st_size - each.kept) // 2)
        for path, old in reversed(self.renamed):
            if old is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(old)

    def cut(self) -> None:
        self.lose()
        os.kill(os.getpid(), signal.SIGKILL)


def inode_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def hook(fault: str, point: int) -> Hook:
    if fault == "kill":
        return kill(point)
    if fault == "disk error":
        fault = ERRORS[point % len(ERRORS)]
    return PowerCut(point) if fault == "power cut" else fail_with(fault, point)


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
    ended = child(folder, hook(fault, point), as_command(job.run))
    expected = {-signal.SIGKILL} if fault in ("kill", "power cut") else DECLARED | {0}
    if ended not in expected:
        return f"ended with {ended}"
    again = child(folder, lambda operation, path: None, as_command(job.run))
    if again:
        return f"started again, it ended with {again}"
    wrong = differences(job.fingerprint(folder), wanted)
    return f"other bytes: {', '.join(wrong[:3])}" if wrong else ""


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
