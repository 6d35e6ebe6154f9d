"""Pages end with the digest of their contents: one that we wrote and nobody has changed is known, and may be replaced."""

from __future__ import annotations

from pathlib import Path

from wdistill.core import store
from wdistill.core.errors import bad_value

SEAL = b"<!-- written by wdistill, sha256 of the above: "


def write_page(path: Path, html: str) -> None:
    """Write a page with its digest; raises where a file of that name is not such a page."""
    check_page(path)
    content = html.encode()
    store.write_bytes(path, content + SEAL + store.digest(content).encode() + b" -->\n")


def check_page(path: Path) -> None:
    """Raise where a page would replace something else."""
    if (path.exists() or path.is_symlink()) and not is_ours(path):
        what, found, expected = "this is not a page that wdistill wrote", "other contents", "no file of this name, or a page"
        raise bad_value(what, str(path), found, expected, "move it elsewhere or remove it; nothing was changed")


def is_ours(path: Path) -> bool:
    """Whether it is a page that `write_page` wrote, unchanged."""
    if path.is_symlink() or not path.is_file():
        return False
    content, _, seal = path.read_bytes().rpartition(SEAL)
    return seal == store.digest(content).encode() + b" -->\n"
