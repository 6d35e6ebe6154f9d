"""The only module that writes: files are replaced atomically, and a folder is locked by one process at a time.

temp file in the same folder → write → flush → fsync → rename → fsync of the folder. `digest` names contents by SHA-256.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import BusyError, StorageError

NO_LOCKS = "choose a file system with locks (flock), such as a disk of this machine"
TEMPORARY = re.compile(r"\.(.+)\.([0-9]+)\.([0-9a-f]{16})\.tmp")  # name, process, mark


def before(operation: str, path: Path) -> None:
    """Called before every operation on the disk. It does nothing; tests replace it to kill, fail or count."""


@contextmanager
def writing(path: Path, *, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends well, and leaves nothing behind when it does not.

    `temporary` is where the bytes go until then: beside `path`, or in another folder of the same file system.
    """
    scratch = temporary or temporary_name(path)
    with _removed_on_error(scratch, path):
        with _synced(scratch) as file:
            yield file
        _rename(scratch, path)


def temporary_name(path: Path) -> Path:
    """Where the bytes of a file go until it is whole; the name carries a mark that nobody else's file has by chance."""
    name, process = path.name[:200], str(os.getpid())
    return path.with_name(f".{name}.{process}.{_mark(name, process)}.tmp")


def unfinished_writes(folder: Path, *names: str) -> list[Path]:
    """The temporary files that killed processes left in a folder: of files of these names, or of any."""
    found = [(path, TEMPORARY.fullmatch(path.name)) for path in folder.glob(".*.tmp")]
    ours = [(path, match[1]) for path, match in found if match and match[3] == _mark(match[1], match[2])]
    return sorted(path for path, name in ours if (name in names or not names) and path.is_file() and not path.is_symlink())


def _mark(name: str, process: str) -> str:
    return digest(f"wdistill writes {name} in process {process}".encode())[:16]


@contextmanager
def synced(path: Path) -> Iterator[BinaryIO]:
    """A scratch file that is whole and on the disk when the block ends well, and not there when it does not."""
    with _removed_on_error(path, path):
        with _synced(path) as file:
            yield file
        before("sync", path.parent)
        _sync_folder(path.parent)


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    before("open", path)
    with path.open("wb") as file:
        yield file
        file.flush()
        before("sync", path)
        os.fsync(file.fileno())


@contextmanager
def _removed_on_error(unfinished: Path, path: Path) -> Iterator[None]:
    """Remove what is unfinished when something goes wrong; errors of the disk become a StorageError for `path`."""
    try:
        yield
    except BaseException as error:
        with suppress(OSError):  # what prevents writing may prevent removing
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(error, path) from error
        raise


def sync(path: Path) -> None:
    """Bring a scratch file that was appended to onto the disk, and its name in its folder."""
    try:
        before("sync", path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        before("sync", path.parent)
        _sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path) from error


def write_bytes(path: Path, content: bytes) -> None:
    with writing(path) as file:
        view, middle = memoryview(content), len(content) // 2
        for part in (view[:middle], view[middle:]):  # in halves, so that tests can tear it
            before("write", path)
            file.write(part)
            file.flush()


def write_if_absent(path: Path, content: bytes) -> bool:
    """Write a file that is not there yet; False, and nothing is changed, where it is: of several processes one succeeds."""
    scratch = temporary_name(path)
    with _removed_on_error(scratch, path):
        with _synced(scratch) as file:
            file.write(content)
        before("link", path)
        try:
            os.link(scratch, path)
            absent = True
        except FileExistsError:
            absent = False
        before("remove", scratch)
        scratch.unlink()
        before("sync", path.parent)
        _sync_folder(path.parent)
    return absent


def write_at(path: Path, position: int, content: bytes | memoryview) -> None:
    """Write bytes at a position of a scratch file and truncate it behind them: an incomplete chunk is overwritten."""
    try:
        before("open", path)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(position)
            file.seek(position)
            middle = len(content) // 2
            for part in (content[:middle], content[middle:]):
                before("write", path)
                file.write(part)
                file.flush()
            before("sync", path)
            os.fsync(file.fileno())
    except OSError as error:
        raise storage_error(error, path) from error


def rename(unfinished: Path, path: Path) -> None:
    """Rename a scratch file that is complete and synced."""
    try:
        _rename(unfinished, path)
    except OSError as error:
        raise storage_error(error, path) from error


def _rename(unfinished: Path, path: Path) -> None:
    before("rename", path)
    unfinished.replace(path)
    before("sync", path.parent)
    _sync_folder(path.parent)


def make_folder(path: Path, *, parents: bool = False) -> None:
    """Make a folder, unless it is there; no power cut takes it away again."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        if not path.is_dir():
            before("make", path)
        path.mkdir(exist_ok=True, parents=parents)
        for each in reversed(missing):
            before("sync", each.parent)
            _sync_folder(each.parent)
    except OSError as error:
        raise storage_error(error, path) from error


def remove(path: Path, *, scratch: bool = False) -> None:
    """Remove a file, or a folder with all that is in it; only called on files that this package wrote.

    Scratch may come back after a power cut: whoever starts next removes it.
    """
    try:
        before("remove", path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if not scratch:
            before("sync", path.parent)
            _sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path) from error


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Make a folder and hold its lock; BusyError where another process holds it. The lock is freed when its process ends."""
    handle = _locked(folder)
    try:
        _write_owner(handle, f"process {os.getpid()} on {os.uname().nodename}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        yield
    finally:
        _write_owner(handle, "")
        os.close(handle)


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """Hold the lock of a file that several processes rewrite in turn; the lock file beside it stays."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        before("open", lock)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise storage_error(error, lock) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_lock(path: Path) -> bool:
    """Whether a file is a lock that `lock` made, and no other file of that name."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        content = path.read_bytes()[:1000].decode(errors="replace")
    except FileNotFoundError:  # its owner has just removed it
        return True
    return re.fullmatch(r"(process [0-9]+ on .*, since [0-9 :-]+)?", content) is not None


def _write_owner(handle: int, owner: str) -> None:
    """Write who holds the lock, for others' messages; the lock works without it, on a full disk too."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, owner.encode(), 0)


def _is_in_the_way(lock: Path) -> bool:
    """Whether something else than a lock of ours has its name."""
    try:
        return os.path.lexists(lock) and not is_lock(lock)
    except FileNotFoundError:  # it has just gone
        return False


def _locked(folder: Path) -> int:
    """A handle of the folder's lock file, locked; the file is looked up again in case its owner just removed it."""
    lock = folder / "lock"
    while True:
        make_folder(folder)
        if _is_in_the_way(lock) and _is_in_the_way(lock):  # twice: another process may make or remove it just now
            what, found, expected = "something else is in the way", "no lock of wdistill", "no file of this name"
            remedy = "move it elsewhere or remove it; nothing was touched"
            raise StorageError(what, where=str(lock), found=found, expected=expected, remedy=remedy)
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_error(error, lock) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.exists() and os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
            os.close(handle)
        except OSError as error:
            owner = os.read(handle, 200).decode(errors="replace")
            os.close(handle)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise storage_error(error, lock) from error
            raise BusyError(
                "another process is writing here",
                where=str(folder),
                found=f"its lock is held by {owner or 'an unknown process'}",
                expected="one process at a time",
                remedy="wait until it has finished, or choose another output",
            ) from None


def is_open_to_all(folder: Path) -> bool:
    """Whether every user of the machine may replace files in a folder."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def check_space(folder: Path, needed: int, what: str) -> None:
    """An error if the disk has no room for what is about to be written."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            f"not enough space for {what}",
            where=str(folder),
            found=f"{free:,} bytes free",
            expected=f"about {needed:,} bytes",
            remedy="free some space, or choose a folder on another disk",
        )


def unnamed_array(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of zeros in a file without a name, on the disk of a folder that may not be there yet.

    The system reads and writes its pages as they are used, and removes the file with the array or the process.
    """
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    size = int(np.prod(shape)) * dtype.itemsize
    check_space(there, size, "predictions that are too many to hold")
    before("write", there)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            if hasattr(os, "posix_fallocate"):  # room now: a page without it would end the process later
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                for first in range(0, size, 1 << 24):
                    file.write(bytes(min(1 << 24, size - first)))
                file.flush()
            return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
    except OSError as error:
        raise storage_error(error, there) from None


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The bytes before the numbers of an .npy file in C order."""
    buffer = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


def digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_file(path: Path) -> str:
    """The SHA-256 of a file; what is no file, such as a device or a pipe, might never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_intact(path: Path, file: tuple[int, str]) -> bool:
    """Whether a file is there with the size and the SHA-256 that a record has of it."""
    size, sha256 = file
    try:
        return path.stat().st_size == size and digest_file(path) == sha256
    except (OSError, ValueError):  # such as a name with a zero byte
        return False


def storage_error(error: OSError, path: Path) -> StorageError:
    """The StorageError of a failed write."""
    remedies = {
        errno.ENOSPC: "free some space or write elsewhere; finished parts are kept, and the same command resumes",
        errno.EDQUOT: "your quota is used up: free some space or write elsewhere",
        errno.ENOENT: "make the folder first",
        errno.EACCES: "choose a place you may write to",
        errno.ENAMETOOLONG: "choose a shorter name",
        errno.EROFS: "choose a file system that is not read-only",
        errno.EMFILE: "close other files, or raise the limit (ulimit -n); the same command resumes",
        errno.ENOLCK: NO_LOCKS,
        errno.EOPNOTSUPP: NO_LOCKS,
    }
    return StorageError(
        "cannot write",
        where=str(path),
        found=error.strerror or str(error),
        expected="a place that can be written",
        remedy=remedies.get(error.errno or 0, "check the disk"),
    )


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append(path: Path, content: bytes, *, fresh: bool = False) -> None:
    """Append bytes to a scratch file that is not read before it is complete; `fresh` starts a new file."""
    try:
        before("append", path)
        with path.open("wb" if fresh else "ab") as file:
            file.write(content)
    except OSError as error:
        raise storage_error(error, path) from error
