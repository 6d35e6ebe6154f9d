"""JSON that comes from elsewhere: refused where its values would take much more memory than its text."""

from __future__ import annotations

import json
from typing import Any

LENGTH = 32 << 20  # bytes
ENTRIES = 1 << 20  # lists, objects and values; each takes some hundred bytes at most


def check_entries(content: bytes, more: int = 0) -> None:
    """Raise ValueError where a text has more values than are read; brackets and commas in its strings count, too."""
    if sum(map(content.count, (b",", b"[", b"{"))) > ENTRIES + more:
        raise ValueError(f"more than {ENTRIES + more:,} values")


def parse(content: bytes) -> Any:
    """The value of a text in UTF-8; ValueError where it is no JSON, too deep or too large."""
    if len(content) > LENGTH:
        raise ValueError(f"more than {LENGTH:,} bytes")
    check_entries(content)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("values that are nested too deep") from None
