"""The manifest of a folder of weights: the record of the job, and every file with its size and SHA-256. It is written last.

A folder without it is not finished. Its name begins as names do that readers of folders leave out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wdistill.core import sealed, store
from wdistill.core.errors import unreadable
from wdistill.core.places import Place

MANIFEST = "_manifest.json"
OURS = "the folder of weights that `wdistill weigh --engine` wrote"


def read_manifest(place: Place, where: str) -> dict[str, Any] | None:
    """The manifest of a folder; None where it has none."""
    content = place.read(MANIFEST)
    if content is None:
        return None
    record = sealed.unseal(content)
    if not isinstance(record, dict) or "parts" not in record:
        raise unreadable("its manifest is damaged", f"{where}/{MANIFEST}", "not as it was written", OURS, "weigh again")
    return record


def write_manifest(place: Place, record: dict[str, Any]) -> bool:
    """Whether it was written; False where another process wrote one before."""
    return place.put_if_absent(MANIFEST, sealed.seal(record))


def is_finished(folder: Path) -> bool:
    """Whether a local folder has a manifest."""
    return (folder / MANIFEST).is_file()


def check_files(folder: Path) -> Iterator[tuple[str, bool]]:
    """The manifest of a local folder and every file that it lists, by name: whether it is what was written."""
    record = sealed.read_sealed(folder / MANIFEST)
    yield MANIFEST, isinstance(record, dict) and "parts" in record
    for part in record["parts"] if isinstance(record, dict) and "parts" in record else ():
        if part["file"]:
            yield part["file"], store.is_intact(folder / part["file"], (part["size"], part["sha256"]))
