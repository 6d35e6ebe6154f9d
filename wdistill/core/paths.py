"""Paths as users give them: an address of something remote is none, nor is a value of another type."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath
from typing import Any

from wdistill.core.errors import unreadable, wrong_type

ADDRESS = re.compile(r"(?:\w+=)?([A-Za-z][\w+.-]+):/+")  # s3://, https://, also s3:/ as pathlib shortens it, after COLUMN=


def is_passed_over(name: str) -> bool:
    """Whether readers of a folder leave a file out, by its name."""
    return name.startswith((".", "_"))


LONGEST_NAME = 200  # bytes; a disk may hold 255, and temporary names are longer by some


def is_name(value: Any) -> bool:
    """Whether a value is the name of a file in a folder, and leads nowhere else."""
    if not isinstance(value, str) or PurePath(value).name != value or value in ("", "..") or "\0" in value:
        return False
    try:
        return len(os.fsencode(value)) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def refuse_remote(text: str, where: str) -> None:
    """Refuse an address, such as s3://bucket/x.parquet, unless there is a file of that name."""
    address = ADDRESS.match(text)
    if address and not os.path.lexists(text):
        scheme = address[1].lower()
        remedy = "Copy it to a disk of this machine first, and give its path there; or use `wdistill weigh --engine local`."
        expected = "a path on this machine"
        raise unreadable(
            "remote files are not read or written", f"{where} {text}", f"an address ({scheme})", expected, remedy
        )


def as_path(value: str | os.PathLike[str], name: str) -> Path:
    """A path that a user gave as the argument of this name."""
    try:
        return Path(value)
    except TypeError:
        raise wrong_type("not a path", name, value, "a string or a pathlib.Path", f'write {name}="folder/name"') from None
