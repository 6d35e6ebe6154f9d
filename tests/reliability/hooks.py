"""Faults at operations of the store, for `store.before`: SIGKILL, errors of the disk, power cuts.

Worker processes are started anew, so they get theirs from the environment: see `install`, and injected/sitecustomize.py.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ERRORS = ("ENOSPC", "EIO", "EACCES", "EDQUOT", "EROFS", "EMFILE")
FAULTS = ("kill", "power cut", "disk error", *ERRORS)  # disk error: one of these, in turn
VARIABLE = "FAULT_OF_WORKERS"  # in the environment of worker processes: the arguments of `install` as JSON
Hook = Callable[[str, Path], None]
Due = Callable[[str, Path], bool]  # whether the fault is due before this operation


def never(operation: str, path: Path) -> bool:
    return False


def at_point(point: int) -> Due:
    """At the operation of this number, counted from 1."""
    count = 0

    def due(operation: str, path: Path) -> bool:
        nonlocal count
        count += 1
        return count == point

    return due


def name_of(operation: str, path: Path, folder: Path) -> str:
    """An operation in words that are the same in every process and run."""
    below = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
    return f"{operation} {re.sub(r'[.][0-9]+[.][0-9a-f]{16}[.]tmp$', '.tmp', below)}"


def fail_with(name: str, due: Due) -> Hook:
    """An error of the disk."""
    code = getattr(errno, name)

    def before(operation: str, path: Path) -> None:
        if due(operation, path):
            raise OSError(code, os.strerror(code))

    return before


def kill(due: Due) -> Hook:
    def before(operation: str, path: Path) -> None:
        if due(operation, path):
            os.kill(os.getpid(), signal.SIGKILL)

    return before


@dataclass
class Unsynced:
    """A file that was written and not synced since: how many of its bytes the disk is sure to have."""

    path: Path  # when it was opened
    kept: int
    inode: tuple[int, int] | None = None  # known once it is there; it follows the file when it is renamed


class PowerCut:
    """What the disk has when the power goes: bytes that were not synced are cut, changes of unsynced folders undone.

    Such changes are new files, links and folders, which vanish, renames, and removals: what was removed is there again. Only
    a true `os.fsync` counts as a sync: it is watched from the first operation on, in the child.
    """

    def __init__(self, due: Due = never, *, everywhere: bool = False) -> None:
        self.due, self.everywhere = due, everywhere
        self.watching = False
        self.dirty: list[Unsynced] = []
        self.changed: list[tuple[Path, Tree | None]] = []  # in folders not synced since, and what was there before
        self.targets: set[Path] = set()  # of all renames and links

    def __call__(self, operation: str, path: Path) -> None:
        if not self.watching:
            self._watch()
        self._look()
        if self.due(operation, path):
            self.cut()
        if operation == "open" or (operation == "append" and all(each.path != path for each in self.dirty)):
            kept = path.stat().st_size if operation == "append" and path.exists() else 0
            self.dirty.append(Unsynced(path, kept))
        if operation in ("open", "append") and not path.exists():
            self.changed.append((path, None))
        elif operation == "make":
            missing = [each for each in (path, *path.parents) if not each.exists()]
            self.changed += [(each, None) for each in reversed(missing)]
        elif operation in ("rename", "link", "remove"):
            self.changed.append((path, tree_of(path)))
            self.targets |= {path} if operation != "remove" else set()

    def _watch(self) -> None:
        self.watching, fsync = True, os.fsync

        def watched(descriptor: int) -> None:
            fsync(descriptor)
            self._look()
            status = os.fstat(descriptor)
            synced = (status.st_dev, status.st_ino)
            self.dirty = [each for each in self.dirty if each.inode != synced]
            self.changed = [each for each in self.changed if inode_of(each[0].parent) != synced]

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
        for path, old in reversed(self.changed):
            if path.parent.is_dir():
                put_back(path, old)

    def cut(self) -> None:
        """Lose what is not synced, in all processes of the group if the power goes everywhere, and die."""
        if self.everywhere:
            os.killpg(os.getpgid(0), signal.SIGUSR1)
        self.lose()
        os.kill(os.getpid(), signal.SIGKILL)


def inode_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


Tree = bytes | dict[str, Any]  # a file, or a folder by names


def tree_of(path: Path) -> Tree | None:
    """What is at a path; None where there is nothing."""
    if path.is_dir():
        return {each.name: tree_of(each) for each in path.iterdir()}
    return path.read_bytes() if path.is_file() else None


def put_back(path: Path, old: Tree | None) -> None:
    """Let a path hold again what it held before."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if isinstance(old, bytes):
        path.write_bytes(old)
    elif old is not None:
        path.mkdir()
        for name, each in old.items():
            put_back(path / name, each)


def hook(fault: str, due: Due, number: int, *, everywhere: bool = False) -> Hook:
    """The hook of a fault; `number` chooses among the errors of the disk."""
    if fault == "kill":
        return kill(due)
    if fault == "disk error":
        fault = ERRORS[number % len(ERRORS)]
    return PowerCut(due, everywhere=everywhere) if fault == "power cut" else fail_with(fault, due)


def install(given: Mapping[str, Any], role: str) -> Hook:
    """The hook of a job with several processes: it notes every operation in a log, and the fault comes at one of them.

    Which one is counted in the log that all processes share, since nobody knows which worker gets which work.
    """
    folder, log, now = Path(given["folder"]), Path(given["log"]), False
    fault = hook(given["fault"], lambda operation, path: now, given["error"], everywhere=True)
    if isinstance(fault, PowerCut):
        power = fault

        def lose(number: int, frame: object) -> None:
            power.lose()
            os.kill(os.getpid(), signal.SIGKILL)

        signal.signal(signal.SIGUSR1, lose)

    def before(operation: str, path: Path) -> None:
        nonlocal now
        line = f"{role} {name_of(operation, path, folder)}"
        with log.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())
            end = file.tell()
        earlier = log.read_bytes()[:end].decode().splitlines()
        now = line == given["operation"] and earlier.count(line) == given["number"]
        fault(operation, path)

    return before


def install_in_worker() -> None:
    """Called by a Python as it starts, if it is a worker process and the environment names a fault."""
    from wdistill.core import store

    store.before = install(json.loads(os.environ[VARIABLE]), "worker")
