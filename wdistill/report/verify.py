"""Whether files of ours are as they were written: runs, files of weights, unfinished jobs, prepared data, exported students.

All that a digest covers is read: files of runs, data and students as they are, tables by their contents. What is damaged or
missing is named, with what to do about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wdistill.core import sealed, store
from wdistill.core.errors import FileError, WdistillError, unreadable
from wdistill.core.paths import is_name
from wdistill.datasets import prepared
from wdistill.report.seal import is_ours
from wdistill.runs.checkpoints import check_files, read_manifest
from wdistill.runs.folder import find_runs, lacks_manifests, lost_folders

STUDENT = "student.json"  # of an exported student
REDRAWN = "report.html"  # of a run: drawn from the rest of it


Bad = Literal["damaged", "missing", "not listed"]


@dataclass(frozen=True)
class FileState:
    """The state of one file."""

    path: Path
    state: Literal["whole", "damaged", "missing", "not listed"]
    remedy: str = ""

    @property
    def is_bad(self) -> bool:
        return self.state != "whole"


def verify(path: Path) -> tuple[str, list[FileState]]:
    """What a path is, in words, and the state of every file of it."""
    for kind, is_kind, check in KINDS:
        if is_kind(path):
            findings = list(check(path))
            done = sum(not finding.is_bad for finding in findings)
            return kind.format(parts=f"{done:,} part{'' if done == 1 else 's'}"), findings
    found = "a folder with nothing of ours in it" if path.is_dir() else "another file" if path.exists() else "nothing"
    expected = "a run, a file or folder of weights, an unfinished job (OUTPUT.parts), prepared data or an exported student"
    if path.suffix.lower() == ".csv" and path.is_file():
        found, expected = "csv, which has no record to compare it with", "parquet or npz, which carry one"
        raise unreadable("nothing to verify", path, found, expected, "write the table as parquet or npz")
    raise unreadable("nothing to verify", path, found, expected, "correct the path")


# runs -----------------------------------------------------------------------------------------------------------------


def _check_runs(path: Path) -> Iterator[FileState]:
    for run in find_runs(path) or [path]:
        yield from _check_run(run)


def _check_run(run: Path) -> Iterator[FileState]:
    """Every folder of a run that has manifests of its own."""
    finished = read_manifest(run).state.get("finished")
    for folder in sorted({manifest.parent for manifest in run.rglob("generation-*.json")}):
        intact = check_files(folder)
        snapshot = read_manifest(folder)
        if finished and not (snapshot.state.get("finished") or "parameters.safetensors" in snapshot.files):
            intact[f"generation-{snapshot.number + 1:06d}.json"] = False  # the last one of a stage that was finished
        again = f"start the run again: it resumes from what is whole; else remove {folder} to do this part again"
        for name, whole in intact.items():
            state: Bad = "damaged" if (folder / name).exists() else "missing"
            yield FileState(folder / name, "whole") if whole else FileState(folder / name, state, again)
    if (run / REDRAWN).exists():
        again = f"remove it, then: wdistill report {run}"
        yield FileState(run / REDRAWN, "whole") if is_ours(run / REDRAWN) else FileState(run / REDRAWN, "damaged", again)
    for folder in lost_folders(run):
        again = "start the run again: it is made anew" if folder.parent != run else f"remove {run}, and run again"
        yield FileState(folder, "missing", f"restore it from a copy; else {again}")
    if lacks_manifests(run):
        again = "restore the manifests of the run from a copy; without them nobody knows what the rest is"
        yield FileState(run / "generation-*.json", "missing", again)
    if finished and not (run / REDRAWN).exists():
        yield FileState(run / REDRAWN, "missing", f"wdistill report {run}")


# tables ---------------------------------------------------------------------------------------------------------------


def _is_weights(path: Path) -> bool:
    from wdistill.tables.output import has_lost_its_beginning, read_record

    try:
        return path.is_file() and (read_record(path) is not None or has_lost_its_beginning(path))
    except FileError:
        return True


def _check_weights(path: Path) -> Iterator[FileState]:
    from wdistill.tables.output import has_its_content

    try:
        whole = has_its_content(path)
    except WdistillError:
        whole = False
    yield FileState(path, "whole") if whole else FileState(path, "damaged", "make it again, by the command that wrote it")


def _is_parts(path: Path) -> bool:
    from wdistill.tables.parts import RECORDS

    return path.is_dir() and any((path / name).exists() for name in RECORDS)


def _check_parts(path: Path) -> Iterator[FileState]:
    from wdistill.tables.parts import check_files as check_parts

    for name, whole in check_parts(path).items():
        state: Bad = "damaged" if (path / name).exists() else "missing"
        remedy = "start the job again: it is made anew"
        yield FileState(path / name, "whole") if whole else FileState(path / name, state, remedy)


def _is_folder_of_weights(path: Path) -> bool:
    from wdistill.tables.manifest import is_finished

    return is_finished(path)


def _check_folder_of_weights(path: Path) -> Iterator[FileState]:
    from wdistill.core.places import place_of
    from wdistill.tables.manifest import AGAIN, MANIFEST, differences, read_manifest
    from wdistill.tables.manifest import check_files as check_listed

    again = "run the command that wrote it again: what is not whole is made anew"
    for name, whole in check_listed(path):
        state: Bad = "damaged" if (path / name).exists() else "missing"
        remedy = AGAIN if name == MANIFEST else again
        yield FileState(path / name, "whole") if whole else FileState(path / name, state, remedy)
    try:
        _, foreign = differences(path, read_manifest(place_of(str(path)), str(path)) or {})
    except FileError:  # the manifest, which is damaged
        return
    for name in foreign:
        yield FileState(path / name, "not listed", "move it away: readers of the folder take it for a part")


def _is_unfinished_folder(path: Path) -> bool:
    from wdistill.tables.manifest import unfinished_parts

    return unfinished_parts(path) is not None


def _check_unfinished_folder(path: Path) -> Iterator[FileState]:
    from wdistill.tables.manifest import MANIFEST, unfinished_parts

    again = "run the same command again: what is done is kept"
    for name, whole in (unfinished_parts(path) or {}).items():
        yield FileState(path / name, "whole") if whole else FileState(path / name, "damaged", again)
    yield FileState(path / MANIFEST, "missing", again)


# data sets and students -----------------------------------------------------------------------------------------------


def _check_prepared(path: Path) -> Iterator[FileState]:
    again = f"remove {path} and prepare the data set again: wdistill data NAME"
    if not (path / prepared.MANIFEST).exists():
        unfinished = "prepare the data set, or finish that, with the command that began it: wdistill data NAME"
        yield FileState(path / prepared.MANIFEST, "missing", unfinished)
        return
    try:
        digests = prepared.read_manifest(path)["sha256"]
    except FileError:
        yield FileState(path / prepared.MANIFEST, "damaged", again)
        return
    yield FileState(path / prepared.MANIFEST, "whole")
    yield from _digested(path, digests, again)


def _check_student(path: Path) -> Iterator[FileState]:
    again = "export the student again: wdistill export RUN"
    if not (path / STUDENT).exists():
        yield FileState(path / STUDENT, "missing", again)
        return
    try:
        description = json.loads((path / STUDENT).read_bytes())
        digests: dict[str, str] = description["sha256"]
        whole = description["digest"] == sealed.digest_of(description) and all(map(is_name, digests))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole, digests = False, {}
    yield FileState(path / STUDENT, "whole") if whole else FileState(path / STUDENT, "damaged", again)
    if whole:
        yield from _digested(path, digests, again)


def _digested(folder: Path, digests: dict[str, str], remedy: str) -> Iterator[FileState]:
    """Files by name, compared with their SHA-256."""
    for name, digest in digests.items():
        path = folder / name
        if not path.exists():
            yield FileState(path, "missing", remedy)
        else:
            whole = path.is_file() and store.digest_file(path) == digest
            yield FileState(path, "whole") if whole else FileState(path, "damaged", remedy)


def _has(*names: str) -> Callable[[Path], bool]:
    return lambda path: any((path / name).is_file() for name in names)


def _is_prepared(path: Path) -> bool:
    return (path / prepared.MANIFEST).is_file() or prepared.is_owner(path / prepared.OWNER)


Check = Callable[[Path], Iterator[FileState]]
KINDS: tuple[tuple[str, Callable[[Path], Any], Check], ...] = (
    ("a folder of weights", _is_folder_of_weights, _check_folder_of_weights),
    ("an unfinished folder: {parts} done, no manifest", _is_unfinished_folder, _check_unfinished_folder),
    ("an unfinished job", _is_parts, _check_parts),
    ("prepared data", _is_prepared, _check_prepared),
    ("an exported student", _has(STUDENT, "student.safetensors"), _check_student),
    ("runs", lambda path: any(path.glob("generation-*.json")) or find_runs(path), _check_runs),
    ("a table that wdistill wrote", _is_weights, _check_weights),
)
