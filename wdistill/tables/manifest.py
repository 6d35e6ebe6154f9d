"""The manifest of a folder of rows: the record of the job, and every file with its size and SHA-256. It is written last.

A folder without it is not finished. Its name begins as names do that readers of folders leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wdistill.core import sealed, store
from wdistill.core.errors import unreadable
from wdistill.core.paths import is_name, is_passed_over
from wdistill.core.places import Place

MANIFEST = "_manifest.json"
OURS = "the manifest of a folder that wdistill wrote with --engine"
RECORD = re.compile(r"_(part-[0-9]{6,}-[0-9a-f]{16})\.json")  # of what was made of a partition, until there is a manifest
PART = re.compile(r"(part-[0-9]{6,}-[0-9a-f]{16})-([0-9a-f]{16})\.parquet")  # its record has the same name up to there
LISTED = {"input": str, "key": str, "file": str, "size": int, "sha256": str, "rows": int}  # of every part
AGAIN = "remove it, and run the command that wrote it again: what is not whole is made anew"


def read_manifest(place: Place, where: str) -> dict[str, Any] | None:
    """The manifest of a folder; None where it has none."""
    content = place.read(MANIFEST)
    if content is None:
        return None
    record = sealed.unseal(content)
    if not _is_manifest(record):
        raise unreadable("its manifest is damaged", f"{where}/{MANIFEST}", "not as it was written", OURS, AGAIN)
    return dict(record)


def write_manifest(place: Place, record: dict[str, Any]) -> bool:
    """Whether it was written; False where another process wrote one before."""
    return place.put_if_absent(MANIFEST, sealed.seal(record))


def is_finished(folder: Path) -> bool:
    """Whether a local folder has a manifest."""
    return (folder / MANIFEST).is_file()


def unfinished_parts(folder: Path) -> dict[str, bool] | None:
    """The files of a local folder without a manifest that are done, by name: whether each is what was written; None where
    nothing is there that a job in partitions leaves."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not any(RECORD.fullmatch(name) or PART.fullmatch(name) for name in names):
        return None
    records = [sealed.read_sealed(folder / name) for name in names if RECORD.fullmatch(name)]
    made = [each for each in records if isinstance(each, dict) and {*each} >= {"file", "size", "sha256"}]
    made = [each for each in made if each["file"] in names]
    return {each["file"]: store.is_intact(folder / each["file"], (each["size"], each["sha256"])) for each in made}


def check_files(folder: Path) -> Iterator[tuple[str, bool]]:
    """The manifest of a local folder and every file that it lists, by name: whether it is what was written."""
    record = sealed.read_sealed(folder / MANIFEST)
    yield MANIFEST, _is_manifest(record)
    for part in record["parts"] if _is_manifest(record) else ():
        if part["file"]:
            yield part["file"], store.is_intact(folder / part["file"], (part["size"], part["sha256"]))


def differences(folder: Path, record: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What a look at the names and sizes in a local folder tells: files that are listed and not there, or of another size;
    and files that readers of the folder would take for parts, and that are not listed."""
    listed = {part["file"]: part["size"] for part in record["parts"] if part["file"]}
    sizes = {path.name: path.stat().st_size if path.is_file() else -1 for path in folder.iterdir()}
    return (
        [name for name, size in listed.items() if sizes.get(name) != size],
        sorted(name for name in sizes if name not in listed and not is_passed_over(name)),
    )


def _is_manifest(record: Any) -> bool:
    """Whether the content of a sealed file is that of a manifest."""
    if not isinstance(record, dict) or not {*record} >= {"state_sha256", "parts"}:
        return False
    return isinstance(record["parts"], list) and all(map(_is_part, record["parts"]))


def _is_part(part: Any) -> bool:
    """Whether it is a part of a manifest: its file, if it has one, is in the folder."""
    right = isinstance(part, dict) and all(isinstance(part.get(name), kind) for name, kind in LISTED.items())
    return right and (not part["file"] or is_name(part["file"]))
