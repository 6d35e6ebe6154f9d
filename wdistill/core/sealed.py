"""Sealed JSON: a record that begins with the SHA-256 of its content, so that damage to it is always seen.

Records that people read keep it in a field of their own, `digest`: see `digest_of`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wdistill.core import store

HEAD = b'{"sha256": "'
MIDDLE = b'", "content": '


def seal(content: Any) -> bytes:
    """The bytes of a record."""
    text = json.dumps(content, allow_nan=False)
    return HEAD + store.digest(text.encode()).encode() + MIDDLE + text.encode() + b"}\n"


def unseal(raw: bytes) -> Any:
    """The content of a sealed record; None where it is damaged."""
    start = len(HEAD) + 64 + len(MIDDLE)
    text = raw[start:].removesuffix(b"}\n")
    try:
        return json.loads(text) if raw[:start] == HEAD + store.digest(text).encode() + MIDDLE else None
    except (ValueError, RecursionError):
        return None


def digest_of(record: Mapping[str, Any]) -> str:
    """The SHA-256 of all fields of a record but `digest`."""
    content = {name: value for name, value in record.items() if name != "digest"}
    return store.digest(json.dumps(content, sort_keys=True).encode())


def read_sealed(path: Path) -> Any:
    """The content of a sealed file; None where it is missing or damaged."""
    try:
        return unseal(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None
