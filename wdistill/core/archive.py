"""One line of JSON and plain arrays in an npz, never a pickle; equal content gives equal bytes at any time."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from functools import partial
from typing import IO, Any

import numpy as np

from wdistill.core import foreign_json, npy

END = 22  # bytes at the end of an archive …
END_64 = 20  # … and those before them, where one is so large that it has a second end
DIRECTORY_LIMIT = 1 << 16  # bytes of the table of contents: some hundred arrays
DAMAGE = (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, OverflowError, zipfile.BadZipFile)

Arrays = Mapping[str, np.ndarray]


def to_bytes(text: str, content: Any, arrays: Arrays) -> bytes:
    """An archive; `text` is the name of the member with the JSON."""
    line = np.frombuffer(json.dumps(content).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **{text: line}, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read(stream: IO[bytes], text: str) -> tuple[Any, dict[str, np.ndarray]]:
    """JSON and arrays of an archive; one of DAMAGE where it is none. It takes no more memory than the archive is long."""
    arrays = _arrays(stream)
    return foreign_json.parse(arrays.pop(text)[: foreign_json.LENGTH + 1].tobytes()), arrays


def _arrays(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """All arrays of an archive, by name: stored as they are, and not more of them than the file is long."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, size - END - END_64))
    tail = stream.read()
    length = int.from_bytes(tail[-10:-6], "little")
    if tail[-END:][:4] != b"PK\5\6" or tail[:-END][:4] == b"PK\6\7" or length > DIRECTORY_LIMIT:
        raise ValueError("no archive, or one whose table of contents is not at its end, or too long")
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if any(each.compress_type != zipfile.ZIP_STORED for each in members) or sum(m.file_size for m in members) > size:
            raise ValueError("arrays that are compressed, or share their bytes")
        return {
            each.filename.removesuffix(".npy"): npy.read_numbers(partial(archive.open, each), each.file_size)
            for each in members
        }
