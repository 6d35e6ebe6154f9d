"""What an adapter says where its trainer is not installed: which of our extras brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ELSEWHERE = ("", "wdistill", "tensorflow", "jax")  # what no extra brings: Keras says itself that a backend is missing


@contextmanager
def brought_by(extra: str, adapter: str) -> Iterator[None]:
    """Imports of an adapter; a library that is missing is named with the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ELSEWHERE:
            raise
        text = f"{adapter} needs {missing}: pip install 'wdistill[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from None
