"""The official files of a data set: finding, checking, unpacking and downloading them."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any

from wdistill.core import store
from wdistill.core.errors import FileError, unreadable
from wdistill.core.progress import progress

MAX_BYTES = 1 << 29  # of a file that is read whole; the largest official one has 182,040,794
MAX_UNPACKED = 200 << 20  # bytes of the files in an archive altogether; those of the largest official one are 184,380,000
MAX_MEMBERS, MAX_NAME = 1000, 1 << 16  # files in an archive, and bytes of a long name
BLOCK = 1 << 20  # bytes of a read from a stream
ATTEMPTS = 3  # at a download whose connection fails
TIMEOUT = 60  # seconds without a byte after which a connection has failed


@dataclass(frozen=True)
class Original:
    """One official file, and the files packed in it."""

    name: str  # as it is downloaded
    md5: str  # as it was published
    url: str = ""  # empty if it has no public download
    packed: Mapping[str, str] = field(default_factory=dict)  # names of the files in it, and their MD5 or SHA-256


class _DownloadError(Exception):
    """The connection failed."""


def find_file(folder: Path, name: str) -> Path | None:
    """A file or folder of this name in `folder`, or one folder deeper."""
    return next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.exists()), None)


def missing(folder: Path, originals: Sequence[Original]) -> list[Original]:
    """Official files that are neither there as downloaded nor unpacked."""

    def exists(original: Original) -> bool:
        unpacked = [find_file(folder, name) for name in original.packed]
        return find_file(folder, original.name) is not None or (bool(unpacked) and None not in unpacked)

    return [original for original in originals if not exists(original)]


def read_original(folder: Path, original: Original, *, unofficial: bool) -> tuple[dict[str, bytes], bool]:
    """The contents by name, and whether they are the published ones; if not, an error unless `unofficial`.

    An archive is the published one if its MD5 matches, or the digests of all files in it: others may have packed them again.
    """
    archive, mismatch = find_file(folder, original.name), None
    if archive is None:
        paths = {name: find_file(folder, name) or folder / name for name in original.packed}
        contents = {name: _read(path) for name, path in paths.items()}
    else:
        md5 = md5_of(archive)
        if md5 == original.md5:
            return _unpack(archive, original), True
        mismatch = _mismatch(archive, md5, original.md5)
        try:
            contents = _unpack(archive, original)
        except FileError as error:
            if unofficial:
                raise
            raise mismatch from error
    digests = {name: _digest(contents[name], expected) for name, expected in original.packed.items()}
    wrong = [name for name, expected in original.packed.items() if digests[name] != expected]
    if original.packed and not wrong:
        return contents, True
    if unofficial:
        return contents, False
    raise mismatch or _mismatch(paths[wrong[0]], digests[wrong[0]], original.packed[wrong[0]])


def is_published(path: Path, original: Original, *, unofficial: bool) -> bool:
    """Whether a file too large to be read whole is the published one; if not, an error unless `unofficial`."""
    md5 = md5_of(path)
    if md5 != original.md5 and not unofficial:
        raise _mismatch(path, md5, original.md5)
    return md5 == original.md5


def md5_of(path: Path) -> str:
    """The published checksums are MD5: good enough against accidents."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise cannot_read(path, error) from error


def _digest(content: bytes, like: str) -> str:
    """SHA-256 or MD5, whichever `like` is."""
    return store.digest(content) if len(like) == 64 else hashlib.md5(content, usedforsecurity=False).hexdigest()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise cannot_read(path, error) from error
    return _bounded(content, path)


def _unpack(path: Path, original: Original) -> dict[str, bytes]:
    """The files in an archive by name, or the file itself if it is not packed. Nothing is written."""
    try:
        if path.name.endswith(".tar.gz"):
            contents = _members(path, original.packed)
        elif path.suffix == ".gz":
            with gzip.open(path) as file:
                contents = {path.stem: _unpacked(file, path, MAX_UNPACKED)}
        else:
            return {path.name: _read(path)}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise cannot_read(path, error) from error
    absent = [name for name in original.packed if name not in contents]
    if absent:
        what, expected = "files are missing in the archive", ", ".join(original.packed)
        raise unreadable(what, path, f"no {', '.join(absent)}", expected, "get the archive again")
    return contents


class _Member(tarfile.TarInfo):
    """A file in an archive; what tarfile would read whole before anybody can look at it is refused."""

    LONG = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type == tarfile.GNUTYPE_SPARSE or (self.type in self.LONG and self.size > MAX_NAME):
            raise tarfile.ReadError(f"a sparse file, or a name of {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise tarfile.ReadError("a sparse file")


def _members(path: Path, names: Mapping[str, str]) -> dict[str, bytes]:
    """Regular files of a tar archive by their bare names, in any folder; links and devices are skipped."""
    contents: dict[str, bytes] = {}
    with gzip.open(path) as file, tarfile.open(fileobj=file, mode="r|", tarinfo=_Member) as archive:
        for count, member in enumerate(archive):
            left = MAX_UNPACKED - sum(map(len, contents.values()))
            if count == MAX_MEMBERS or member.size > left or file.tell() > MAX_BYTES:
                raise _too_large(path, f"more than {MAX_MEMBERS} files, or than {MAX_UNPACKED:,} bytes in them")
            name = PurePosixPath(member.name).name
            if name in names and name not in contents and member.isreg():
                contents[name] = _unpacked(archive.extractfile(member), path, left)
                if len(contents[name]) != member.size:
                    raise EOFError(f"{name} ends after {len(contents[name]):,} of {member.size:,} bytes")
        while file.read(BLOCK):  # to the end, where gzip checks its own checksum
            if file.tell() > MAX_BYTES:
                raise _too_large(path, f"more than {MAX_BYTES:,} bytes when unpacked")
    return contents


def _unpacked(file: Any, path: Path, limit: int) -> bytes:
    """All bytes of a file in an archive; an error as soon as there are more than `limit`."""
    content = io.BytesIO()
    while block := file.read(BLOCK):
        content.write(block)
        if content.tell() > limit:
            raise _too_large(path, f"more than {limit:,} bytes when unpacked")
    return content.getvalue()


def _bounded(content: bytes, path: Path) -> bytes:
    if len(content) > MAX_BYTES:
        raise _too_large(path, f"more than {MAX_BYTES:,} bytes when read")
    return content


def _too_large(path: Path, found: str) -> FileError:
    expected, remedy = "a file of the size of the official one", "get the official file"
    return unreadable("the file is too large", path, found, expected, remedy)


def cannot_read(path: Path, error: Exception) -> FileError:
    remedy = "get it again; a download may have ended early"
    return unreadable("the file cannot be read", path, error, "the complete official file", remedy)


def _mismatch(path: Path, digest: str, expected: str) -> FileError:
    remedy = "remove it and get it again; to use another file of the same format anyway, pass --unofficial"
    return unreadable("this is not the official file", path, f"digest {digest}", expected, remedy)


def incomplete(folder: Path, originals: Sequence[Original], found: str, remedy: str) -> FileError:
    names = ", ".join(original.name for original in originals)
    return unreadable("official files are missing", folder, found, names, remedy)


def download(folder: Path, wanted: Sequence[Original]) -> None:
    """Download files; a file gets its name once its digest is right. What a killed download left is removed."""
    store.make_folder(folder, parents=True)
    with store.lock(folder):
        try:
            for path in store.unfinished_writes(folder, *(original.name for original in wanted)):
                store.remove(path)
            _fetch_all(folder, wanted)
        finally:
            store.remove(folder / "lock", scratch=True)


def _fetch_all(folder: Path, wanted: Sequence[Original]) -> None:
    for original in missing(folder, wanted):  # another process may have been faster
        try:
            _fetch(original, folder / original.name)
        except _DownloadError as error:
            left = missing(folder, wanted)
            remedy = f"get {', '.join(original.url for original in left)} and put them into {folder}"
            raise incomplete(folder, left, f"no download: {error}", remedy) from error


def _fetch(original: Original, path: Path) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _save(original, path)
        except _DownloadError:
            if attempt == ATTEMPTS:
                raise
    return None


def _save(original: Original, path: Path) -> None:
    digest, size = hashlib.md5(usedforsecurity=False), 0
    try:
        response = urllib.request.urlopen(original.url, timeout=TIMEOUT)
    except (OSError, HTTPException) as error:
        raise _DownloadError(f"{original.url}: {error}") from error
    total = response.headers.get("Content-Length", "")
    with (
        response,
        store.writing(path) as file,
        progress(original.name, int(total) if total.isdecimal() else None, "bytes") as tick,
    ):
        while size <= MAX_BYTES and (block := _next(response, original.url)):
            file.write(block)
            digest.update(block)
            size += len(block)
            tick(len(block))
        if total.isdecimal() and size < int(total):
            raise _DownloadError(f"{original.url}: ended after {size:,} of {int(total):,} bytes")
        if digest.hexdigest() != original.md5:
            what, found = "the download is not the published file", f"{size:,} bytes with digest {digest.hexdigest()}"
            remedy = f"try again later, or get {original.name} elsewhere and put it into {path.parent}"
            raise unreadable(what, original.url, found, original.md5, remedy)


def _next(response: Any, url: str) -> bytes:
    try:
        return bytes(response.read(BLOCK))
    except (OSError, HTTPException) as error:
        raise _DownloadError(f"{url}: {error}") from error
