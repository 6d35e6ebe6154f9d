"""Checkpoints of a folder: its files are listed, with size and SHA-256, in a manifest that is written last.

Every commit writes a new snapshot; the newest two are kept. What is read is the newest snapshot whose files are all intact,
so a process may die at any moment: nothing counts before its manifest exists, and nothing is removed before the manifest
that replaces it has been read back. Nothing is removed or replaced that no manifest lists: files of others stay.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from wdistill.core import checks, sealed, store
from wdistill.core.errors import CheckpointError
from wdistill.runs.states import fault_of_manifest

KEPT = 2  # snapshots
File = tuple[int, str]  # its size and SHA-256
Unnamed = tuple[Path, File]  # a file that is whole under a temporary name
BELOW = ("initial", "weights")  # folders in which files of a snapshot may lie


@dataclass(frozen=True)
class Snapshot:
    """One committed state: its files as (size, SHA-256), and any other state of its owner, as JSON."""

    number: int = 0  # 0: nothing has been committed
    state: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, File] = field(default_factory=dict)


class CheckpointStore:
    """The newest intact snapshot of a folder, and the way to commit the next one. One process at a time may commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snapshot = newest(folder)

    @property
    def state(self) -> Mapping[str, Any]:
        return self.snapshot.state

    def intact(self) -> list[CheckpointStore]:
        """The folder as of every snapshot up to this one that is whole, newest first: to read, not to commit."""

        def is_whole(snapshot: Snapshot) -> bool:
            return all(store.is_intact(self.folder / name, file) for name, file in snapshot.files.items())

        earlier = [each for each in _snapshots(self.folder) if each.number < self.snapshot.number]
        stores = [copy.copy(self) for _ in earlier]
        for each, snapshot in zip(stores, earlier, strict=True):
            each.snapshot = snapshot
        return [self, *(each for each in stores if is_whole(each.snapshot))]

    def read(self, name: str) -> bytes:
        """A committed file, checked against its digest."""
        content = content_of(self.folder, self.snapshot, name)
        if content is None:
            raise damaged(self.folder, [name])
        return content

    def commit(
        self,
        state: Mapping[str, Any],
        files: Mapping[str, bytes] | None = None,
        drop: Collection[str] = (),
        unnamed: Mapping[str, Unnamed] | None = None,
    ) -> None:
        """Write new files, then the manifest; forget the files in `drop`. A name is never used for other bytes.

        `unnamed` are files that other processes have written under temporary names.
        """
        files, unnamed = files or {}, unnamed or {}
        self._refuse_foreign(files, {name: file for name, (_, file) in unnamed.items()})
        for folder in sorted({(self.folder / name).parent for name in files} | {self.folder}):
            store.make_folder(folder, parents=True)
        for name, content in files.items():
            store.write_bytes(self.folder / name, content)
        for name, (path, _) in unnamed.items():
            store.rename(path, self.folder / name)
        kept = {name: file for name, file in self.snapshot.files.items() if name not in drop}
        listed = {**kept, **{name: (len(content), store.digest(content)) for name, content in files.items()}}
        listed |= {name: file for name, (_, file) in unnamed.items()}
        new = Snapshot(self._next_number(), state, listed)
        store.write_bytes(self.folder / _manifest(new.number), _to_bytes(new))
        self._read_back(new, files, unnamed)
        before, self.snapshot = self.snapshot, new
        self._forget(before)

    def _read_back(self, written: Snapshot, files: Mapping[str, bytes], others: Collection[str]) -> None:
        bad = [name for name, content in files.items() if _read(self.folder / name) != content]
        bad += [name for name in others if not store.is_intact(self.folder / name, written.files[name])]
        if bad or _parse(self.folder / _manifest(written.number)) is None:
            raise damaged(self.folder, bad or [_manifest(written.number)])

    def _next_number(self) -> int:
        """The number after all that are taken, also by files that cannot be read as manifests and are left alone."""
        return max([self.snapshot.number, *map(_number, _manifests(self.folder))]) + 1

    def _refuse_foreign(self, files: Mapping[str, bytes], others: Mapping[str, File]) -> None:
        """Raise where a file that no manifest lists is about to be replaced by other bytes."""
        there = [name for name in (*files, *others) if os.path.lexists(self.folder / name)]
        unlisted = set(there) - {name for snapshot in _snapshots(self.folder) for name in snapshot.files} if there else ()
        for name in sorted(unlisted):
            path = self.folder / name
            same = _read(path) == files[name] if name in files else store.is_intact(path, others[name])
            if path.is_symlink() or not same:
                raise CheckpointError(
                    "a file that this run did not write is in its way",
                    where=str(path),
                    found="a link" if path.is_symlink() else "other contents than are to be written",
                    expected="no file of this name",
                    remedy="move it elsewhere or remove it, and start the run again: it resumes",
                )

    def _forget(self, before: Snapshot) -> None:
        """Remove the manifests before the last two, and the files that only they listed; not those that were changed."""
        kept = {*self.snapshot.files, *before.files}
        for old in _snapshots(self.folder):
            if old.number not in (self.snapshot.number, before.number):
                for name, file in old.files.items():
                    if name not in kept and _is_file(self.folder / name) and store.is_intact(self.folder / name, file):
                        store.remove(self.folder / name)
                store.remove(self.folder / _manifest(old.number))

    def clean(self) -> None:
        """Remove what a killed process left: unfinished writes, later snapshots that are not whole, older ones."""
        snapshots, number = _snapshots(self.folder), self.snapshot.number
        kept = {name for snapshot in snapshots if snapshot.number <= number for name in snapshot.files}
        rejected = [snapshot for snapshot in snapshots if snapshot.number > number]
        lost = {self.folder / name for snapshot in rejected for name in snapshot.files if name not in kept}
        manifests = [self.folder / _manifest(snapshot.number) for snapshot in rejected]
        for path in [*sorted(filter(_is_file, lost)), *self._unfinished(), *manifests]:
            store.remove(path)
        self._forget(next((snapshot for snapshot in snapshots if snapshot.number < number), Snapshot()))

    def _unfinished(self) -> list[Path]:
        """Unfinished writes of the run's files, here and in the folders below that belong to it."""
        listed = {self.folder / name for snapshot in _snapshots(self.folder) for name in snapshot.files}
        folders = {*(self.folder / name for name in BELOW), *(path.parent for path in listed)} - {self.folder}
        ours = [self.folder, *sorted(folder for folder in folders if not folder.is_symlink())]
        return [path for folder in ours for path in store.unfinished_writes(folder)]


def newest(folder: Path) -> Snapshot:
    """The newest snapshot whose files are all intact; a warning where a later one was begun."""
    damage: list[str] = []
    paths = _manifests(folder)
    for path in paths:
        snapshot = _parse(path)
        files = snapshot.files.items() if snapshot else ()
        bad = [name for name, file in files if not store.is_intact(folder / name, file)] if snapshot else [path.name]
        if snapshot is not None and not bad:
            if damage:
                checks.warn(f"{folder}: {', '.join(damage)} damaged or missing: resuming from the snapshot before")
            return snapshot
        damage += bad
    if paths:
        raise damaged(folder, damage)
    return Snapshot()


def read_manifest(folder: Path) -> Snapshot:
    """The newest snapshot whose manifest can be read, its files unchecked: enough to list runs."""
    return next((snapshot for snapshot in map(_parse, _manifests(folder)) if snapshot is not None), Snapshot())


def visible_damage(folder: Path) -> list[str]:
    """Manifests of a folder that cannot be read, and files of its newest snapshot that are missing or of another size.

    Fitted rules are compared with their digests, too: they are small, and read with the results of a run.
    """
    unreadable = [path.name for path in _manifests(folder) if _parse(path) is None]
    files = read_manifest(folder).files
    sizes = {name: (folder / name).stat().st_size if (folder / name).is_file() else -1 for name in files}
    lost = [name for name, (size, _) in files.items() if sizes[name] != size]
    rotten = [name for name, file in files.items() if name.endswith(".npz") and not store.is_intact(folder / name, file)]
    return [*unreadable, *dict.fromkeys([*lost, *rotten])]


def is_begun(folder: Path) -> bool:
    """Whether a folder has manifests, readable or not."""
    return bool(_manifests(folder))


def check_files(folder: Path) -> dict[str, bool]:
    """Every manifest of a folder, and every file that one of them lists, by name: whether it is what was written.

    The last two manifests are always there: one that stands alone with a number above 1 has lost its neighbour.
    """
    numbers = [_number(path) for path in _manifests(folder)]
    intact = {_manifest(numbers[0] - 1): False} if numbers and numbers[0] > 1 and len(numbers) == 1 else {}
    for path in _manifests(folder):
        snapshot = _parse(path)
        intact[path.name] = snapshot is not None
        for name, file in snapshot.files.items() if snapshot else ():
            intact[name] = store.is_intact(folder / name, file)
    return intact


def content_of(folder: Path, snapshot: Snapshot, name: str) -> bytes | None:
    """A file of a snapshot, or None where it is not, or is no longer, what was committed."""
    content = _read(folder / name)
    intact = content is not None and snapshot.files.get(name) == (len(content), store.digest(content))
    return content if intact else None


def _snapshots(folder: Path) -> list[Snapshot]:
    """What the readable manifests of a folder say, newest first."""
    return [snapshot for snapshot in map(_parse, _manifests(folder)) if snapshot is not None]


def _manifest(number: int) -> str:
    return f"generation-{number:06d}.json"


def _manifests(folder: Path) -> list[Path]:
    """The manifests in a folder, newest first."""
    numbered = [path for path in folder.glob("generation-*.json") if path.stem.partition("-")[2].isdecimal()]
    return sorted((path for path in numbered if path.name == _manifest(_number(path))), key=_number, reverse=True)


def _number(manifest: Path) -> int:
    return int(manifest.stem.partition("-")[2])


def _to_bytes(snapshot: Snapshot) -> bytes:
    files = {name: list(file) for name, file in sorted(snapshot.files.items())}
    return sealed.seal({"number": snapshot.number, "state": snapshot.state, "files": files})


def _parse(path: Path) -> Snapshot | None:
    """The snapshot of a manifest, or None where it is damaged."""
    manifest = sealed.read_sealed(path)
    if fault_of_manifest(manifest) or manifest["number"] != _number(path):
        return None
    files = {name: (size, sha256) for name, (size, sha256) in manifest["files"].items()}
    if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in files):
        return None
    return Snapshot(manifest["number"], manifest["state"], files)


def _is_file(path: Path) -> bool:
    """Whether it is a file, and not a link to one."""
    return path.is_file() and not path.is_symlink()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def damaged(folder: Path, names: list[str]) -> CheckpointError:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return CheckpointError(
        "files of this run are damaged or missing",
        where=str(folder),
        found=", ".join(names[:5]) + more,
        expected="files whose SHA-256 is the one in the manifest",
        remedy=f"restore them from a copy, or remove the folder {os.fspath(folder)} to do this part again",
    )
