"""Files of packages that were unpacked."""

from __future__ import annotations

from pathlib import Path

from wdistill.core.errors import unreadable


def only(folder: Path, name: str) -> Path:
    """The one file of this name below a folder."""
    paths = list(folder.rglob(name))
    if len(paths) != 1:
        remedy = "unpack the package (a .whl is a zip archive) into an empty folder, and name that folder"
        raise unreadable("this is not the package, unpacked", folder, f"{len(paths)} files {name}", "one", remedy)
    return paths[0]
