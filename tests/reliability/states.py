"""What is left of a job that is disturbed at any of its operations, collected in a single run of it, and started again.

Before every operation the folder is copied as it is, which is what a killed process leaves; then as a power cut leaves it;
then the process forks for every error of the disk, and the child ends as it does. After each the folder is put back: names,
inodes, bytes, and how far open files are. So the job goes on as if nothing had been. States that are equal are started
again once. tests/test_disturbed.py compares some with those that truly killed processes leave.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.killing import MEMORY, child, differences
from tests.reliability.faults import DECLARED
from tests.reliability.hooks import ERRORS, PowerCut, inode_of
from tests.reliability.jobs import Job, as_command

LONGEST = 120  # seconds for a job to end after an error, on a machine that is busy


@dataclass(frozen=True)
class Left:
    """What a fault left at an operation: how the process ended, and the digest of its folder."""

    point: int
    fault: str
    ended: int
    state: str


class AsItWas:
    """A folder, to be put back: its names, its files by their inodes, their bytes, and how far the open ones are."""

    def __init__(self, folder: Path, links: Path) -> None:
        self.folder, self.there = folder, folder.is_dir()
        every = sorted(folder.rglob("*"))
        self.folders = [path for path in every if path.is_dir()]
        self.files = {path: (links / str(i), path.read_bytes()) for i, path in enumerate(every) if path.is_file()}
        shutil.rmtree(links, ignore_errors=True)
        links.mkdir()
        for path, (link, _) in self.files.items():
            os.link(path, link)
        open_files = [(int(each.name), each) for each in Path("/proc/self/fd").iterdir()]
        ours = [number for number, each in open_files if each.is_file() and each.resolve() in self.files]
        self.positions = {number: os.lseek(number, 0, os.SEEK_CUR) for number in ours}

    def put_back(self) -> None:
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_dir() and path not in self.folders:
                path.rmdir()
            elif not path.is_dir() and (path not in self.files or inode_of(path) != inode_of(self.files[path][0])):
                path.unlink()
        for path in [self.folder, *self.folders] if self.there else []:
            path.mkdir(exist_ok=True)
        if not self.there and self.folder.exists():
            self.folder.rmdir()
        for path, (link, content) in self.files.items():
            if not path.exists():
                os.link(link, path)
            if path.read_bytes() != content:
                with path.open("r+b") as file:
                    file.truncate(len(content))
                    file.write(content)
        for number, position in self.positions.items():
            os.lseek(number, position, os.SEEK_SET)


def collect(job: Job, folder: Path, states: Path) -> list[Left]:
    """What every fault leaves at every operation of a job; each state is copied into a folder by its digest."""
    log, links = states / "log", states / "links"
    states.mkdir()
    log.write_text("")
    count, disturbed = 0, False

    def keep(fault: str, ended: int) -> None:
        with log.open("a") as file:
            file.write(json.dumps(asdict(Left(count, fault, ended, save(folder, states)))) + "\n")

    def due(operation: str, path: Path) -> bool:
        """Called where a power cut would come; it comes never, but all faults are tried."""
        nonlocal count, disturbed
        if disturbed:
            return False
        count += 1
        before = AsItWas(folder, links)
        keep("kill", -signal.SIGKILL)
        power.lose()
        keep("power cut", -signal.SIGKILL)
        before.put_back()
        for name in ERRORS:
            process = os.fork()
            if process == 0:
                disturbed = True
                signal.alarm(LONGEST)
                raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))
            keep(name, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
            before.put_back()
        return False

    power = PowerCut(due)
    assert child(folder, power, as_command(job.run)) == 0
    return [Left(**json.loads(line)) for line in log.read_text().splitlines()]


def save(folder: Path, states: Path) -> str:
    """Copy a folder, unless an equal one is there; its digest."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "a folder"
        digest.update(f"{path.relative_to(folder)} {content}\n".encode())
    name = digest.hexdigest() if folder.is_dir() else "nothing"
    if folder.is_dir() and not (states / name).exists():
        shutil.copytree(folder, states / name)
    return name


def start_again(job: Job, folder: Path, state: Path, wanted: dict[str, str]) -> str:
    """Start a job where a disturbed one stopped, and say what is wrong; nothing if it comes to the same."""
    shutil.rmtree(folder, ignore_errors=True)
    if state.exists():
        state.rename(folder)
    ended = child(folder, lambda operation, path: None, as_command(job.run))
    if ended:
        return f"started again, it ended with {ended}"
    wrong = differences(job.fingerprint(folder), wanted)
    return f"other bytes: {', '.join(wrong[:3])}" if wrong else ""


def prove(job: Job) -> tuple[int, list[str]]:
    """Every fault at every operation of a job: how many were tried, and what went wrong, with a command to replay it."""
    place = Path(tempfile.mkdtemp(prefix="states-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        folder, states = place / "job", place / "states"
        found = collect(job, folder, states)
        wanted = job.fingerprint(folder)
        wrong = {name: start_again(job, folder, states / name, wanted) for name in {each.state for each in found}}
        failures = []
        for each in found:
            right = {-signal.SIGKILL} if each.fault in ("kill", "power cut") else DECLARED | {0}
            what = wrong[each.state] if each.ended in right else f"ended with {each.ended}"
            if what:
                words = f"--job {job.name!r} --fault {each.fault!r} --point {each.point}"
                failures.append(f"{what}: python -m tests.reliability.faults {words}")
        return len(found), failures
    finally:
        shutil.rmtree(place, ignore_errors=True)
