"""Where partitioned results lie: a folder of this machine, or of a remote store such as s3://bucket/folder.

A place holds whole files under plain names. What is put there is there whole or not at all; remote files are fetched whole
before they are read, so that every reader sees a file of this machine. A store that does not answer is asked again, a few
times; then the work ends with exit code 75 and goes on where it was when it is started again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from wdistill.core import store
from wdistill.core.errors import ConfigError, FileError, StorageError, UnfinishedError, unreadable
from wdistill.core.paths import ADDRESS, is_passed_over

ATTEMPTS = 5
PAUSE = 0.5  # seconds before the second attempt; twice as long before each that follows
VERSIONS = ("ETag", "etag", "generation", "md5Hash", "mtime", "LastModified", "last_modified", "modified", "created")
FINAL = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)  # asking again is no use

T = TypeVar("T")


class Place(Protocol):
    """A folder of files, by name."""

    def names(self) -> list[str]: ...  # of all that is whole

    def sweep(self) -> None: ...  # remove what killed processes left half written; only while no other process writes

    def has(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes | None: ...  # None where there is no such file

    def local(self, name: str, scratch: Path) -> Path: ...  # the file, or a copy of it in a folder of this machine

    def put(self, name: str, path: Path) -> None: ...

    def put_if_absent(self, name: str, content: bytes) -> bool: ...  # whether it was absent

    def put_bytes(self, name: str, content: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


def is_remote(text: str) -> bool:
    """Whether a path is an address, and no file of that name is here."""
    return bool(ADDRESS.match(text)) and not os.path.lexists(text)


def place_of(address: str) -> Place:
    """The folder with that path or address; a folder of this machine is made where its parent exists."""
    if is_remote(address):
        return RemotePlace(*_system(address))
    folder = Path(address)
    if not folder.is_dir():
        store.make_folder(folder)
    return LocalPlace(folder)


@dataclass(frozen=True)
class LocalPlace:
    """A folder of this machine, or of a disk that several machines share."""

    folder: Path

    def names(self) -> list[str]:
        unfinished = store.unfinished_writes(self.folder)
        return sorted(path.name for path in self.folder.iterdir() if path not in unfinished)

    def sweep(self) -> None:
        for path in store.unfinished_writes(self.folder):
            store.remove(path)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable("the file cannot be read", self.folder / name, error, "a file", "check the disk") from None

    def local(self, name: str, scratch: Path) -> Path:
        return self.folder / name

    def put(self, name: str, path: Path) -> None:
        with store.writing(self.folder / name) as file, path.open("rb") as source:
            shutil.copyfileobj(source, file)

    def put_bytes(self, name: str, content: bytes) -> None:
        store.write_bytes(self.folder / name, content)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        return store.write_if_absent(self.folder / name, content)

    def remove(self, name: str) -> None:
        store.remove(self.folder / name)


@dataclass(frozen=True)
class RemotePlace:
    """A folder of a store that fsspec knows."""

    system: Any  # an fsspec file system
    root: str

    def names(self) -> list[str]:
        def listed() -> list[str]:
            self.system.invalidate_cache()
            found = self.system.ls(self.root, detail=False) if self.system.exists(self.root) else []
            return sorted(_last(path) for path in found if path.strip("/") != self.root.strip("/"))

        return self._asked(listed, "")

    def sweep(self) -> None:
        """Nothing: what is put there is there whole, or not at all."""

    def has(self, name: str) -> bool:
        return bool(self._asked(lambda: self.system.exists(self._path(name)), name))

    def read(self, name: str) -> bytes | None:
        def content() -> bytes | None:
            try:
                return bytes(self.system.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

        return self._asked(content, name)

    def local(self, name: str, scratch: Path) -> Path:
        path = scratch / f"copy-of-{name}"
        self._asked(lambda: self.system.get_file(self._path(name), str(path)), name)
        return path

    def put(self, name: str, path: Path) -> None:
        self._asked(self._in_folder(lambda: self.system.put_file(str(path), self._path(name))), name)

    def put_bytes(self, name: str, content: bytes) -> None:
        self._asked(self._in_folder(lambda: self.system.pipe_file(self._path(name), content)), name)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        def put() -> bool:
            try:
                self.system.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            return True

        return self._asked(self._in_folder(put), name)

    def remove(self, name: str) -> None:
        self._asked(lambda: self.system.rm_file(self._path(name)), name)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _in_folder(self, write: Callable[[], T]) -> Callable[[], T]:
        """What writes a file, and makes the folder first where a store has folders and lacks this one; never a bucket."""

        def written() -> T:
            try:
                return write()
            except FileNotFoundError:
                above = self.root.rpartition("/")[0] or ("/" if self.root.startswith("/") else "")
                if not above or not self.system.isdir(above):
                    raise
                self.system.makedirs(self.root, exist_ok=True)
                return write()

        return written

    def _asked(self, action: Callable[[], T], name: str) -> T:
        return asked(action, f"{self.root}/{name}".rstrip("/"))


# files that are read --------------------------------------------------------------------------------------------------


def remote_files(address: str) -> list[tuple[str, str]]:
    """The files that an address names (a file, a folder or a glob), sorted, each with what tells its version."""
    system, path = _system(address)

    def found() -> list[tuple[str, str]]:
        system.invalidate_cache()
        if any(c in path for c in "*?["):
            entries = list(system.glob(path, detail=True).values())
        else:
            entries = system.ls(path, detail=True) if system.isdir(path) else [system.info(path)]
        files = [each for each in entries if each["type"] == "file" and not is_passed_over(_last(each["name"]))]
        return sorted((str(system.unstrip_protocol(each["name"])), _version(each)) for each in files)

    files = asked(found, address)
    if not files:
        raise unreadable(
            "there are no files here", address, "no file that matches", "at least one file", "Correct the address."
        )
    return files


def remote_tree(address: str) -> list[tuple[str, str]]:
    """All files below an address, by their paths from there, sorted, each with what tells its version."""
    system, root = _system(address)

    def found() -> list[tuple[str, str]]:
        system.invalidate_cache()
        entries = system.find(root, detail=True) if system.isdir(root) else {}
        return sorted((path.removeprefix(root).lstrip("/"), _version(each)) for path, each in entries.items())

    return asked(found, address)


def remote_version(address: str) -> str:
    """What tells the version of a remote file."""
    system, path = _system(address)

    def found() -> str:
        system.invalidate_cache()
        return _version(system.info(path))

    return asked(found, address)


def _version(entry: Mapping[str, Any]) -> str:
    """What tells the version of a file, however a store was asked: its size, and the first of the words that it has."""
    told = (entry[word] for word in VERSIONS if entry.get(word) is not None)
    known = next(told, "unknown")
    text = str(known.timestamp() if isinstance(known, datetime) else known)
    return f"{entry.get('size')}, {text.strip(chr(34))}"


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def fetch(address: str, path: Path) -> None:
    """Copy a remote file to this machine."""
    system, source = _system(address)
    asked(lambda: system.get_file(source, str(path)), address)


def fetch_tree(address: str, names: Sequence[str], folder: Path) -> None:
    """Copy files below an address to the same paths below a folder of this machine."""
    system, root = _system(address)
    targets = [str(folder / name) for name in names]
    asked(lambda: system.get([f"{root}/{name}" for name in names], targets), address)


def asked(action: Callable[[], T], where: str) -> T:
    """What a store answers, asked again where it does not."""
    for attempt in range(ATTEMPTS):
        try:
            return action()
        except FINAL as error:
            raise _refused(error, where) from None
        except Exception as error:  # stores raise all kinds
            if attempt == ATTEMPTS - 1:
                found = f"{type(error).__name__}: {error}, {ATTEMPTS} times"
                remedy = "run again to resume, once the store answers"
                raise UnfinishedError(
                    "the store does not answer", where=where, found=found, expected="an answer", remedy=remedy
                ) from None
            time.sleep(PAUSE * 2**attempt)
    raise AssertionError


def _refused(error: OSError, where: str) -> FileError | StorageError:
    found = error.strerror or str(error) or type(error).__name__
    if isinstance(error, PermissionError):
        expected, remedy = "the right to read and write there", "check the credentials, and the rights that they give"
        return StorageError("the store refuses", where=where, found=found, expected=expected, remedy=remedy)
    return unreadable("there is no such file", where, f"{type(error).__name__}: {found}", "a file", "correct the address")


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    try:
        import fsspec
    except ImportError:
        raise _missing(address, "fsspec", "wdistill[remote]") from None
    try:
        system, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise _missing(address, str(error), "the package that the message names, such as s3fs or gcsfs") from None
    except ValueError as error:
        expected = "an address such as s3://bucket/folder, gs://… or hdfs://…"
        raise unreadable("not an address of a store", address, error, expected, "correct the address") from None
    return system, str(path).rstrip("/")


def _missing(address: str, found: str, package: str) -> ConfigError:
    return ConfigError(
        "remote files need another package",
        where=address,
        found=found,
        expected="fsspec, and the package of that store",
        remedy=f"pip install '{package}'" if package.startswith("wdistill") else f"install {package}",
    )
