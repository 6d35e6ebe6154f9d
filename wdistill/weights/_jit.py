"""How kernels are compiled: by numba, into a cache on disk whose damaged files are seen by their digests and made anew."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

CacheFile: Any = caching.IndexDataCacheFile
settings: Any = numba.config
ENABLED = not settings.DISABLE_JIT  # NUMBA_DISABLE_JIT=1: plain NumPy does all the work
DIGEST = hashlib.sha256().digest_size
# A kernel is compiled from all of these, and not from its own file alone, to which numba looks.
SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("_*.py")))).hexdigest()


class CheckedCacheFile(CacheFile):  # type: ignore[misc]
    """Files of numba's cache with a digest of their content behind it, which numba does not read.

    Machine code with a wrong bit would crash, or give wrong weights. A file that is damaged counts as missing, and one that
    cannot be written is left out: the next process compiles again.
    """

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        yield (buffer := io.BytesIO())
        content = buffer.getvalue()
        with suppress(OSError), super()._open_for_write(filepath) as file:
            file.write(content + hashlib.sha256(content).digest())

    def _load_index(self) -> Any:
        return super()._load_index() if _whole(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _whole(self._data_path(name)):
            raise OSError("damaged")  # numba takes it for a file that was removed
        return super()._load_data(name)


def _whole(path: str) -> bool:
    """Whether a file can be read and ends with the digest of what is before."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-DIGEST]).digest() == content[-DIGEST:]


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` with such a cache, or without one where no folder for it can be written to."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
        with suppress(RuntimeError, OSError):  # no folder
            compiled.enable_caching()
            file = compiled._cache._cache_file
            file.__class__, file._source_stamp = CheckedCacheFile, (file._source_stamp, SOURCES)
        return compiled

    return decorate
