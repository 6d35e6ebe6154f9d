"""Values as bytes for other processes of the same run: through a pipe or a connection, never from a file."""

from __future__ import annotations

import pickle
from typing import Any

from wdistill.core.errors import bad_value


def packed(value: Any, name: str) -> bytes:
    """A value as bytes; `name` is that of its training, for a message."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        what, found = "this cannot be sent to another process", f"{type(error).__name__}: {error}"
        expected = "modules, rules and Datasets that are defined at the top of an importable module"
        raise bad_value(what, f"workers: {name}", found, expected, "define them there, or use one process") from None


def unpacked(content: bytes | memoryview) -> Any:
    """The value that `packed` gave to another process of the run."""
    return pickle.loads(content)
