"""Files of inputs in the folder of an unfinished run: a record lists them with their digests, and no other is touched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from wdistill.core import store
from wdistill.core.errors import ConfigError, bad_value, unreadable
from wdistill.core.paths import is_name
from wdistill.core.sealed import read_sealed, seal

FOLDER = ".inputs"  # of an unfinished run: Datasets, arrays for other processes, and logits that are too many to hold
RECORD = "inputs.json"  # in the folder of the files: the SHA-256 of each by its name


def claim(folder: Path) -> None:
    """Make the folder, or check that it is one of ours."""
    if not is_ours(folder):
        raise _foreign(folder)
    if not (folder / RECORD).exists():
        store.make_folder(folder, parents=True)
        _write(folder, {})


def is_ours(folder: Path) -> bool:
    """Whether a folder does not exist, has a record, or was left by a process that was killed before it had one."""
    if folder.is_symlink() or not folder.is_dir():
        return not os.path.lexists(folder)
    return _read(folder) is not None or set(folder.iterdir()) <= {*store.unfinished_writes(folder, RECORD)}


def check_recorded(*paths: Path) -> None:
    """Raise where a file exists that is not as it was recorded: damaged, or not ours."""
    for path in paths:
        if os.path.lexists(path) and not _intact(path, _read(path.parent) or {}):
            what, found = "this is not the file that the run wrote", "other contents than its record says"
            raise unreadable(what, path, found, "the run's copy of its inputs", "remove it, or move it elsewhere")


def remove(*paths: Path) -> None:
    """Remove files that `check_recorded` has passed."""
    for path in paths:
        if path.exists():
            store.remove(path)


def note(folder: Path, digests: Mapping[str, str]) -> None:
    """Record files by their digests: before they have got their names."""
    _write(folder, {**(_read(folder) or {}), **digests})


def remove_all(folder: Path) -> None:
    """Remove what the record lists, unless it was changed; the folder too, if nothing else is in it."""
    if folder.is_symlink() or (digests := _read(folder)) is None:
        return
    for path in (*store.unfinished_writes(folder), *(folder / name for name in digests if _intact(folder / name, digests))):
        store.remove(path)
    store.remove(folder / RECORD)
    if not any(folder.iterdir()):
        store.remove(folder)


def _intact(path: Path, digests: Mapping[str, str]) -> bool:
    return path.is_file() and not path.is_symlink() and store.digest_file(path) == digests.get(path.name)


def _write(folder: Path, digests: Mapping[str, str]) -> None:
    store.write_bytes(folder / RECORD, seal({"inputs": digests}))


def _read(folder: Path) -> dict[str, str] | None:
    """The record of a folder; None where there is none, or it is damaged."""
    record = read_sealed(folder / RECORD)
    digests = record.get("inputs") if isinstance(record, dict) else None
    return digests if isinstance(digests, dict) and all(map(is_name, digests)) else None


def _foreign(folder: Path) -> ConfigError:
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) if folder.is_dir() else "a file"
    what, expected = "this folder is not the run's", f"no such folder, or one with the record {RECORD}"
    return bad_value(what, str(folder), names, expected, "remove it, or move it elsewhere; nothing was touched")
