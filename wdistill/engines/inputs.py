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
from wdistill.engines.partition import naming, version_of
from wdistill.engines.run import Files
from wdistill.tables.formats.table import files_of

Versions = list[tuple[str, str]]  # files, each with what tells its version


def partition_files(named: Sequence[str], option: str) -> Files:
    """The files of every partition: one of each table."""
    return file_to_file([(f"{option} {text}", table_files(text, option)) for text in named])


def file_to_file(tables: Sequence[tuple[str, Versions]]) -> Files:
    """The first file of one table with the first of the others, and so on; each table has a name for messages."""
    (first, files), *others = tables
    for where, other in others:
        if len(other) != len(files):
            found = f"{len(other)} files"
            expected = f"{len(files)}, as in {first}: with --engine, file belongs to file"
            remedy = "write both tables in the same partitions, or join them first, or leave out --engine"
            raise bad_value("tables of different numbers of files", where, found, expected, remedy)
    return [
        (tuple(path for path, _ in each), "/".join(version for _, version in each))
        for each in zip(*(table for _, table in tables), strict=True)
    ]


def table_files(text: str, option: str) -> Versions:
    """The files of a table, each with what tells its version."""
    if is_remote(text):
        return remote_files(text)
    if re.fullmatch(r"\w+=.*\.npy", text) or text.endswith(".npy"):
        remedy = "write a table with ids, such as parquet"
        raise bad_value("arrays have no ids", f"{option} {text}", "an npy array", "files with ids", remedy)
    return [(str(path.absolute()), version_of(str(path), option)) for path in files_of(text, option)]


@contextmanager
def copies() -> Iterator[Callable[[Sequence[str]], list[str]]]:
    """A function that gives tables as files of this machine: those of remote addresses are fetched, until the block ends.

    Errors in the block name files by their addresses.
    """
    with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
        names: dict[str, str] = {}

        def here(named: Sequence[str]) -> list[str]:
            return [copy_of(text) if is_remote(text) else text for text in named]

        def copy_of(address: str) -> str:
            place, found = Path(folder) / str(len(names)), remote_files(address)
            store.make_folder(place)
            paths = [place / f"{number:06d}-{each.rpartition('/')[2]}" for number, (each, _) in enumerate(found)]
            for path, (each, _) in zip(paths, found, strict=True):
                names[str(path)] = each
                fetch(each, path)
            names[str(place)] = address
            return str(place if len(paths) > 1 else paths[0])

        with naming(names):
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
