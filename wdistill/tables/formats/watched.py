"""A file of text on its way to Arrow, looked at block by block."""

from __future__ import annotations

import io
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

PATIENCE = 5.0  # seconds that Arrow's thread has to end; a block takes milliseconds


class Watched(io.RawIOBase):
    """The bytes of a file from `start` on; `look` sees each block before Arrow does, and raises what it does not like."""

    def __init__(self, path: Path, look: Callable[[bytes], None], start: int = 0) -> None:
        self._stream = path.open("rb")
        self._stream.seek(start)
        self.read = _reading(self._stream, look)  # type: ignore[method-assign]

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()


def _reading(stream: BinaryIO, look: Callable[[bytes], None]) -> Callable[..., bytes]:
    """The method `read`, as a function: what it raises must not keep the stream alive."""

    def read(size: int = -1, /) -> bytes:
        block = stream.read(size)
        look(block)
        return block

    return read


class Reader:
    """Arrow's reader of a watched file; when it is closed, no thread of Arrow reads the file any more.

    Arrow reads ahead in a thread of its own, and closing its reader does not wait for that. A thread that calls Python
    while Python shuts down aborts the process. So the reader is let go, and whoever closes it waits until Arrow has let go
    of the stream. That is why nobody else may hold either of them, in a variable of a frame of a traceback for example.
    """

    def __init__(self, opening: Callable[..., Any], watched: Callable[[], Watched], *options: Any) -> None:
        self._gone = threading.Event()
        try:
            self._reader = opening(self._noted(watched()), *options)
        except BaseException:
            self._gone.wait(PATIENCE)
            raise

    def _noted(self, stream: Watched) -> Watched:
        weakref.finalize(stream, self._gone.set).atexit = False
        return stream

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        del self._reader
        self._gone.wait(PATIENCE)

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return
            yield batch
