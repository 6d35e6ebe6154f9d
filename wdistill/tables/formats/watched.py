"""A file of text on its way to Arrow, looked at block by block."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path


class Watched(io.RawIOBase):
    """The bytes of a file from `start` on; `look` sees each block before Arrow does, and raises what it does not like."""

    def __init__(self, path: Path, look: Callable[[bytes], None], start: int = 0) -> None:
        self._stream, self._look = path.open("rb"), look
        self._stream.seek(start)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        block = self._stream.read(size)
        self._look(block)
        return block

    def close(self) -> None:
        self._stream.close()
        super().close()
