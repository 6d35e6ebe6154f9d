"""The official files of a data set: where they lie, whether they are the published ones, and how to get them."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any

from wdistill import store
from wdistill.errors import FileError
from wdistill.progress import progress

LARGEST = 1 << 29  # bytes of one file that is read whole; the largest official one has 182,040,794
BLOCK = 1 << 20  # bytes read at once of what is not kept in memory
TRIES = 3  # of a download whose connection fails
PATIENCE = 60  # seconds without a byte after which a connection has failed


@dataclass(frozen=True)
class Original:
    """One official file, and the files that are packed in it."""

    name: str  # as it is downloaded
    md5: str  # as it was published
    address: str = ""  # none: it is not to be had by a plain download
    holds: Mapping[str, str] = field(default_factory=dict)  # files packed in it, and the MD5 or SHA-256 of their contents


class _LostError(Exception):
    """The network did not deliver."""


def look_for(folder: Path, name: str) -> Path | None:
    """A file or folder of this name in `folder`, or one folder deeper."""
    return next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.exists()), None)


def missing(folder: Path, originals: Sequence[Original]) -> list[Original]:
    """Those that are there neither as downloaded nor unpacked."""

    def there(original: Original) -> bool:
        unpacked = [look_for(folder, name) for name in original.holds]
        return look_for(folder, original.name) is not None or (bool(unpacked) and None not in unpacked)

    return [each for each in originals if not there(each)]


def read_original(folder: Path, original: Original, *, unofficial: bool) -> tuple[dict[str, bytes], bool]:
    """The contents by name, and whether they are the published ones; others are an error unless `unofficial` lets them in.

    A packed file is the published one if its MD5 is, or if everything in it is: the same files may have been packed anew.
    """
    packed, fault = look_for(folder, original.name), None
    if packed is None:
        places = {name: look_for(folder, name) or folder / name for name in original.holds}
        contents = {name: _read(path) for name, path in places.items()}
    else:
        found = md5_of(packed)
        if found == original.md5:
            return _unpack(packed, original), True
        fault = _mismatch(packed, found, original.md5)
        try:
            contents = _unpack(packed, original)
        except FileError as error:
            if unofficial:
                raise
            raise fault from error
    digests = {name: _digest(contents[name], expected) for name, expected in original.holds.items()}
    wrong = [name for name, expected in original.holds.items() if digests[name] != expected]
    if original.holds and not wrong:
        return contents, True
    if unofficial:
        return contents, False
    raise fault or _mismatch(places[wrong[0]], digests[wrong[0]], original.holds[wrong[0]])


def is_published(path: Path, original: Original, *, unofficial: bool) -> bool:
    """Whether a file too large to be read whole is the published one; another is an error unless `unofficial` lets it in."""
    found = md5_of(path)
    if found != original.md5 and not unofficial:
        raise _mismatch(path, found, original.md5)
    return found == original.md5


def md5_of(path: Path) -> str:
    """The published checksums are MD5: enough against accidents, and all there is."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def _digest(content: bytes, like: str) -> str:
    """The digest of the same kind as `like`."""
    return store.digest(content) if len(like) == 64 else hashlib.md5(content, usedforsecurity=False).hexdigest()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    return _bounded(content, path)


def _unpack(path: Path, original: Original) -> dict[str, bytes]:
    """What is in a packed file, by name; a file that is not packed is its own content. Nothing is written."""
    try:
        if path.name.endswith(".tar.gz"):
            contents = _members(path, original.holds)
        elif path.suffix == ".gz":
            with gzip.open(path) as file:
                contents = {path.stem: _bounded(file.read(LARGEST + 1), path)}
        else:
            return {path.name: _read(path)}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise unreadable(path, error) from error
    lost = [name for name in original.holds if name not in contents]
    if lost:
        raise FileError(
            "files are missing in the archive",
            where=str(path),
            found=f"no {', '.join(lost)}",
            expected=", ".join(original.holds),
            remedy="get the archive again",
        )
    return contents


def _members(path: Path, names: Mapping[str, str]) -> dict[str, bytes]:
    """The wanted plain files of a tar archive, in whatever folder they are; links, devices and all else are passed over."""
    contents: dict[str, bytes] = {}
    with gzip.open(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if name in names and name not in contents and member.isreg():
                inside = archive.extractfile(member)
                assert inside is not None
                contents[name] = _bounded(inside.read(LARGEST + 1), path)
                if len(contents[name]) != member.size:
                    raise EOFError(f"{name} ends after {len(contents[name]):,} of {member.size:,} bytes")
        while file.read(BLOCK):  # to the end, where gzip compares its own checksum
            pass
    return contents


def _bounded(content: bytes, path: Path) -> bytes:
    if len(content) > LARGEST:
        raise FileError(
            "the file is too large",
            where=str(path),
            found=f"more than {LARGEST:,} bytes when read",
            expected="a file of the size of the official one",
            remedy="get the official file",
        )
    return content


def unreadable(path: Path, error: Exception) -> FileError:
    return FileError(
        "the file cannot be read",
        where=str(path),
        found=f"{type(error).__name__}: {error}",
        expected="the official file, whole",
        remedy="get it again; a download may have ended early",
    )


def _mismatch(path: Path, found: str, expected: str) -> FileError:
    return FileError(
        "this is not the official file",
        where=str(path),
        found=f"digest {found}",
        expected=expected,
        remedy="remove it and get it again; to use another file of the same format all the same, pass --unofficial",
    )


def absent(folder: Path, names: Sequence[str], found: str, remedy: str) -> FileError:
    return FileError(
        "the official files are not all there", where=str(folder), found=found, expected=", ".join(names), remedy=remedy
    )


def download(folder: Path, wanted: Sequence[Original]) -> None:
    """Get files from their addresses; each gets its name once its digest is right."""
    store.make_folder(folder, parents=True)
    for original in wanted:
        try:
            _fetch(original, folder / original.name)
        except _LostError as error:
            left = missing(folder, wanted)
            remedy = f"get {', '.join(each.address for each in left)} and put them into {folder}"
            raise absent(folder, [each.name for each in left], f"no download: {error}", remedy) from error


def _fetch(original: Original, path: Path) -> None:
    for left in reversed(range(TRIES)):
        try:
            return _save(original, path)
        except _LostError:
            if not left:
                raise
    return None


def _save(original: Original, path: Path) -> None:
    digest, size = hashlib.md5(usedforsecurity=False), 0
    try:
        response = urllib.request.urlopen(original.address, timeout=PATIENCE)
    except (OSError, HTTPException) as error:
        raise _LostError(f"{original.address}: {error}") from error
    total = response.headers.get("Content-Length", "")
    with (
        response,
        store.writing(path) as file,
        progress(original.name, int(total) if total.isdecimal() else None, "bytes") as tick,
    ):
        while size <= LARGEST and (block := _next(response, original.address)):
            file.write(block)
            digest.update(block)
            size += len(block)
            tick(len(block))
        if total.isdecimal() and size < int(total):
            raise _LostError(f"{original.address}: ended after {size:,} of {int(total):,} bytes")
        if digest.hexdigest() != original.md5:
            raise FileError(
                "the download is not the published file",
                where=original.address,
                found=f"{size:,} bytes with digest {digest.hexdigest()}",
                expected=original.md5,
                remedy=f"try again later, or get {original.name} elsewhere and put it into {path.parent}",
            )


def _next(response: Any, address: str) -> bytes:
    try:
        return bytes(response.read(BLOCK))
    except (OSError, HTTPException) as error:
        raise _LostError(f"{address}: {error}") from error
