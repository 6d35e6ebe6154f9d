"""Values as bytes for other processes of the same run: through a pipe or a connection, never from a file."""

from __future__ import annotations

import io
import pickle
from typing import Any

from wdistill.core.errors import bad_value
from wdistill.core.named import folders_of_modules, importable


def packed(value: Any, name: str) -> bytes:
    """A value as bytes; `name` is that of its training, for a message."""
    stream = io.BytesIO()
    pickle.dump(folders_of_modules(), stream)
    try:
        pickle.dump(value, stream, protocol=5)
        return stream.getvalue()
    except Exception as error:
        what, found = "this cannot be sent to another process", f"{type(error).__name__}: {error}"
        expected = "modules, rules and Datasets that are defined at the top of an importable module"
        raise bad_value(what, f"workers: {name}", found, expected, "define them there, or use one process") from None


def unpacked(content: bytes | memoryview) -> Any:
    """The value that `packed` gave to another process of the run, with the modules that were found there."""
    stream = io.BytesIO(content)
    try:
        with importable(*pickle.load(stream), last=True):
            return pickle.load(stream)
    except ImportError as error:
        what, expected = "a module cannot be imported in another process of the run", "the same modules in every process"
        remedy = "run from a folder that all processes have, or set PYTHONPATH to the one that has the module"
        raise bad_value(what, error.name or "a module", str(error), expected, remedy) from None
