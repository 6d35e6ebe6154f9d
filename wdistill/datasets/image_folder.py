"""A folder of pictures as rows: ids are the paths below the folder, and every picture is decoded and cut to one size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from wdistill.core import store
from wdistill.core.errors import unreadable
from wdistill.core.progress import say
from wdistill.datasets.pictures import CHUNK, SUFFIXES, decode, short_side

COLUMN = "image"
GROUP = 1 << 12  # pictures that count as one file of a table


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """The pictures of a folder and of those below it, in the order of their paths; groups of them stand for files."""

    folder: Path
    names: tuple[str, ...]
    size: int  # of the middle square, after the shorter side was resized as for ImageNet

    @property
    def where(self) -> str:
        return f"--unlabeled {self.folder}"

    @property
    def files(self) -> Sequence[Path]:
        """The first picture of every group."""
        return [self.folder / self.names[first] for first in range(0, len(self.names), GROUP)]

    @cached_property
    def stamps(self) -> Sequence[tuple[int, int]]:
        """Size and a digest of the names, sizes and times of change of the pictures of every group."""
        return [self._stamp(self.names[first : first + GROUP]) for first in range(0, len(self.names), GROUP)]

    @property
    def rows(self) -> int:
        return len(self.names)

    def rows_from(self, file: int, position: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Ids and pictures (n, 3, size, size) from a group on, each batch with the number of its group."""
        for first in range(file * GROUP, len(self.names), CHUNK):
            names = self.names[first : first + CHUNK]
            yield first // GROUP, self._batch(names)

    def _batch(self, names: Sequence[str]) -> pa.RecordBatch:
        column: pa.Array = pa.array(decode(self.folder, short_side, self.size, names).ravel())
        for length in (self.size, self.size, 3):
            column = pa.FixedSizeListArray.from_arrays(column, length)
        return pa.RecordBatch.from_pydict({"id": pa.array(names, pa.string()), COLUMN: column})

    def _stamp(self, names: Sequence[str]) -> tuple[int, int]:
        states = [(self.folder / name).stat() for name in names]
        told = [f"{name} {each.st_size} {each.st_mtime_ns}" for name, each in zip(names, states, strict=True)]
        return sum(each.st_size for each in states), int(store.digest("\n".join(told).encode())[:15], 16)


def is_image_folder(path: Path) -> bool:
    """Whether a folder, or one below it, has a picture."""
    return path.is_dir() and any(is_picture(name) for _, _, names in _walk(path) for name in names)


def open_image_folder(path: Path, size: int) -> ImageFolder:
    """All pictures below a folder; other files are counted and left out."""
    files = (
        os.path.relpath(os.path.join(folder, name), path).replace(os.sep, "/")  # noqa: PTH118 (many files)
        for folder, _, names in _walk(path)
        for name in names
    )
    return ImageFolder(path, picture_names(files, str(path)), size)


def picture_names(files: Iterable[str], where: str) -> tuple[str, ...]:
    """The pictures among files, by their paths from a folder, sorted; others are counted."""
    found, others = list[str](), list[str]()
    for name in files:
        (found if is_picture(name) else others).append(name)
    for name in found:
        if not _is_text(name):
            remedy = "rename the file: its path becomes its id"
            raise unreadable(
                "the name of a picture is no text", f"--unlabeled {where}", repr(name), "a name in UTF-8", remedy
            )
    if others:
        say(f"{where}: {len(others):,} other files are left out, such as {min(others)}")
    return tuple(sorted(found))


def _walk(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Folders and files, without hidden ones; links to folders are not followed."""
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield folder, below, [name for name in names if not name.startswith(".")]


def is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
