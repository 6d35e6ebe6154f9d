"""Standard output and error of a command: where they are closed, or their reader has gone, no work is lost."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


@contextmanager
def steady_streams() -> Iterator[None]:
    """Inside the block, writing to a stream that is closed, or whose reader has gone, does nothing.

    Other errors of standard output, such as a full disk, are raised; those of standard error are not.
    """
    _open_closed()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _steady(sys.stdout, 1, BrokenPipeError), _steady(sys.stderr, 2, OSError)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _open_closed() -> None:
    """Open the null device in place of closed streams: else the next file that is opened would take their number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)


def _steady(stream: TextIO | None, number: int, errors: type[OSError]) -> TextIO:
    if stream is None:  # it was closed when Python started
        stream = io.TextIOWrapper(io.FileIO(number, "r+", closefd=False), "utf-8", line_buffering=True)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no reason to fail
    return cast(TextIO, _Steady(stream, errors))


class _Steady:
    """A stream that goes silent at the first of these errors."""

    def __init__(self, stream: TextIO, errors: type[OSError]) -> None:
        self._stream, self._errors = stream, errors

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except self._errors:
            self._silence()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._errors:
            self._silence()

    def _silence(self) -> None:
        """What is still in its buffer goes nowhere, too."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
