"""A ledger: a folder whose files are listed, with size and SHA-256, in a manifest that is written last.

Every commit writes a new generation; the newest two are kept. What is read is the newest generation whose files are all
whole, so a process may die at any moment: nothing counts before its manifest is there, and nothing is removed before the
manifest that replaces it has been read back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from wdistill import checks, store
from wdistill.errors import CheckpointError

KEPT = 2  # generations
CHECKPOINTS = "checkpoint-[0-9]*-[0-9]*.safetensors"  # the only files that may lie unlisted in a folder, besides
UNFINISHED = ".*.[0-9]*.tmp"  # what the store was writing


@dataclass(frozen=True)
class Generation:
    """One committed state: its files as (size, SHA-256), and whatever else its owner wants to know again, as JSON."""

    number: int = 0  # 0: nothing has been committed
    state: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)


class Ledger:
    """The newest whole generation of a folder, and the way to the next one. One process at a time may commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = newest(folder)

    @property
    def state(self) -> Mapping[str, Any]:
        return self.generation.state

    def read(self, name: str) -> bytes:
        """A committed file, checked against its digest."""
        content = content_of(self.folder, self.generation, name)
        if content is None:
            raise _damaged(self.folder, [name])
        return content

    def commit(self, state: Mapping[str, Any], files: Mapping[str, bytes] | None = None, drop: Collection[str] = ()) -> None:
        """Write new files, then the manifest; forget the files in `drop`. A name stands for the same bytes for ever."""
        files = files or {}
        for folder in sorted({(self.folder / name).parent for name in files} | {self.folder}):
            store.make_folder(folder, parents=True)
        for name, content in files.items():
            store.write_bytes(self.folder / name, content)
        kept = {name: known for name, known in self.generation.files.items() if name not in drop}
        listed = {**kept, **{name: (len(content), store.digest(content)) for name, content in files.items()}}
        following = Generation(self.generation.number + 1, state, listed)
        store.write_bytes(self.folder / _manifest(following.number), _to_bytes(following))
        self._read_back(following, files)
        before, self.generation = self.generation, following
        self._forget(before)

    def _read_back(self, written: Generation, files: Mapping[str, bytes]) -> None:
        bad = [name for name, content in files.items() if _read(self.folder / name) != content]
        if bad or _parse(self.folder / _manifest(written.number)) is None:
            raise _damaged(self.folder, bad or [_manifest(written.number)])

    def _forget(self, before: Generation) -> None:
        """Remove the manifests before the last two, and the files that only they listed."""
        for path in reversed(_manifests(self.folder)):
            if _number(path) <= self.generation.number - KEPT:
                old = _parse(path)
                for name in old.files if old else ():
                    if name not in self.generation.files and name not in before.files:
                        store.remove(self.folder / name)
                store.remove(path)

    def clean(self) -> None:
        """Remove what a killed process of ours left: temporary files, manifests that never counted, unlisted checkpoints."""
        numbers = {self.generation.number, self.generation.number - 1}
        known = [_parse(self.folder / _manifest(number)) for number in numbers]
        listed = {name for each in known if each for name in each.files}
        begun = [path for path in _manifests(self.folder) if _number(path) > self.generation.number]
        checkpoints = [path for path in self.folder.glob(CHECKPOINTS) if path.name not in listed]
        below = [path for path in self.folder.glob("*/") if not _manifests(path)]  # no ledgers
        unfinished = [path for folder in (self.folder, *below) for path in folder.glob(UNFINISHED)]
        for path in sorted([*begun, *checkpoints, *unfinished]):
            store.remove(path)


def newest(folder: Path) -> Generation:
    """The newest generation whose files are all whole; a warning where it is not the last that was begun."""
    damage: list[str] = []
    paths = _manifests(folder)
    for path in paths:
        found = _parse(path)
        bad = (
            [path.name]
            if found is None
            else [name for name, known in found.files.items() if not _whole(folder, name, known)]
        )
        if found is not None and not bad:
            if damage:
                checks.warn(f"{folder}: {', '.join(damage)} damaged or missing: going on from the generation before")
            return found
        damage += bad
    if paths:
        raise _damaged(folder, damage)
    return Generation()


def peek(folder: Path) -> Generation:
    """The newest generation whose manifest can be read, its files unchecked: enough to list runs."""
    return next((found for found in map(_parse, _manifests(folder)) if found is not None), Generation())


def content_of(folder: Path, generation: Generation, name: str) -> bytes | None:
    """A file of a generation, or None where it is not, or is no longer, what was committed."""
    content = _read(folder / name)
    known = None if content is None else (len(content), store.digest(content))
    return content if known is not None and known == generation.files.get(name) else None


def _manifest(number: int) -> str:
    return f"generation-{number:06d}.json"


def _manifests(folder: Path) -> list[Path]:
    """The manifests in a folder, newest first."""
    ours = [path for path in folder.glob("generation-*.json") if path.stem.partition("-")[2].isdecimal()]
    return sorted(ours, key=_number, reverse=True)


def _number(manifest: Path) -> int:
    return int(manifest.stem.partition("-")[2])


def _to_bytes(generation: Generation) -> bytes:
    """JSON that begins with the digest of its own content."""
    files = {name: list(known) for name, known in sorted(generation.files.items())}
    content = json.dumps({"number": generation.number, "state": generation.state, "files": files}, allow_nan=False)
    return f'{{"sha256": "{store.digest(content.encode())}", "content": {content}}}\n'.encode()


def _parse(path: Path) -> Generation | None:
    """A manifest, or None where it is not what was written."""
    raw = _read(path)
    try:
        head, _, rest = (raw or b"").decode().partition(', "content": ')
        content = rest.removesuffix("}\n")
        if json.loads(head + "}")["sha256"] != store.digest(content.encode()):
            return None
        found = json.loads(content)
    except (ValueError, KeyError, TypeError):
        return None
    files = {name: (int(size), str(sha)) for name, (size, sha) in found["files"].items()}
    if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in files):
        return None
    return Generation(found["number"], found["state"], files)


def _whole(folder: Path, name: str, known: tuple[int, str]) -> bool:
    path = folder / name
    try:
        if path.stat().st_size != known[0]:
            return False
        return store.digest_file(path) == known[1]
    except OSError:
        return False


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _damaged(folder: Path, names: list[str]) -> CheckpointError:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return CheckpointError(
        "files of this run are damaged or missing",
        where=str(folder),
        found=", ".join(names[:5]) + more,
        expected="files whose SHA-256 is the one in the manifest",
        remedy=f"restore them from a copy, or remove the folder {os.fspath(folder)} to do this part again",
    )
