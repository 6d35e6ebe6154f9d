"""The input of a job in partitions: which files belong together, and some of them as files of this machine."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wdistill.core import store
from wdistill.core.errors import bad_value
from wdistill.core.places import fetch, is_remote, remote_files, remote_tree
from wdistill.datasets import image_folder
from wdistill.datasets.image_folder import ImageFolder, is_image_folder, is_picture, open_image_folder, picture_names
from wdistill.engines.partition import version_of
from wdistill.engines.run import Files
from wdistill.tables.formats.table import files_of


def partition_files(named: Sequence[str], option: str) -> Files:
    """The files of every partition: one of each table."""
    tables = [table_files(text, option) for text in named]
    for text, table in zip(named[1:], tables[1:], strict=True):
        if len(table) != len(tables[0]):
            found = f"{len(table)} files"
            expected = f"{len(tables[0])}, as in {named[0]}: with --engine, file belongs to file"
            remedy = "write both tables in the same partitions, or join them first"
            raise bad_value("tables of different numbers of files", f"{option} {text}", found, expected, remedy)
    return [
        (tuple(path for path, _ in files), "/".join(version for _, version in files)) for files in zip(*tables, strict=True)
    ]


def table_files(text: str, option: str) -> list[tuple[str, str]]:
    """The files of a table, each with what tells its version."""
    if is_remote(text):
        return remote_files(text)
    if re.fullmatch(r"\w+=.*\.npy", text) or text.endswith(".npy"):
        remedy = "write a table with ids, such as parquet"
        raise bad_value("arrays have no ids", f"{option} {text}", "an npy array", "files with ids", remedy)
    return [(str(path.absolute()), version_of(str(path))) for path in files_of(text, option)]


@contextmanager
def copies() -> Iterator[Callable[[Sequence[str]], list[str]]]:
    """A function that gives tables as files of this machine: those of remote addresses are fetched, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
        count = 0

        def here(named: Sequence[str]) -> list[str]:
            nonlocal count
            found = list[str]()
            for text in named:
                for address in [each for each, _ in remote_files(text)] if is_remote(text) else ():
                    found.append(str(Path(folder) / f"{count}-{address.rpartition('/')[2]}"))
                    fetch(address, Path(found[-1]))
                    count += 1
                if not is_remote(text):
                    found.append(text)
            return found

        yield here


def picture_groups(unlabeled: str) -> Files:
    """The pictures of a folder in groups, by their paths from there."""
    if not is_remote(unlabeled):
        return [
            (names, version_of_pictures(unlabeled, names)) for names in _groups(open_image_folder(Path(unlabeled), 1).names)
        ]
    versions = dict(remote_tree(unlabeled))
    groups = _groups(picture_names((name for name in versions if not is_hidden(name)), unlabeled))
    return [(names, store.digest(repr([versions[name] for name in names]).encode())) for names in groups]


def _groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    size = image_folder.GROUP
    return [tuple(names[first : first + size]) for first in range(0, len(names), size)]


def version_of_pictures(folder: str, names: Sequence[str]) -> str:
    """What tells the version of some pictures of a folder of this machine."""
    return "{}, {}".format(*ImageFolder(Path(folder), tuple(names), 1).stamps[0])


def has_pictures(unlabeled: str) -> bool:
    """Whether a path or an address is a folder with pictures in it, or below it."""
    if not is_remote(unlabeled):
        return is_image_folder(Path(unlabeled))
    return any(is_picture(name) and not is_hidden(name) for name, _ in remote_tree(unlabeled))


def is_hidden(name: str) -> bool:
    """Whether a path has a part that begins with a dot."""
    return any(part.startswith(".") for part in name.split("/"))
