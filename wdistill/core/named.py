"""Objects that users name as package.module:name, from an installed package or the current folder."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wdistill.core.errors import bad_value

_folders: dict[str, None] = {}  # in which modules that users named were found


def folders_of_modules() -> tuple[str, ...]:
    """The folders in which this process found modules that users named; other processes of a run need them, too."""
    return tuple(_folders)


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """Modules of the current folder can be imported inside the block."""
    folder = str(Path.cwd())
    with importable(folder):
        yield
    _folders[folder] = None


@contextmanager
def importable(*folders: str, last: bool = False) -> Iterator[None]:
    """Modules of these folders can be imported inside the block; `last`: only those that are found nowhere else."""
    at = len(sys.path) if last else 0
    sys.path[at:at] = folders
    try:
        yield
    finally:
        for folder in folders:
            sys.path.remove(folder)


def named_object(spec: str, module_name: str, name: str, expected: str) -> Any:
    """The attribute `name` of a module; `spec` is how the user named it, and `expected` what it should be."""
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        if module_name.endswith(".py") or "/" in module_name:
            dotted = module_name.removesuffix(".py").replace("/", ".")
            remedy = f"write {dotted}:{name}, with no .py and dots for slashes"
        elif missing:
            remedy = "correct the name, or run from the folder that has it"
        else:
            remedy = "fix the module; importing it alone shows where it fails"
        what, found = "no such module" if missing else "the module cannot be imported", f"{type(error).__name__}: {error}"
        raise bad_value(what, spec, found, "a module in the current folder or an installed package", remedy) from error
    if not hasattr(module, name):
        close = difflib.get_close_matches(name, dir(module), 1)
        remedy = f"did you mean {close[0]}?" if close else "correct the name after the colon"
        raise bad_value(f"the module {module_name} has no such name", spec, repr(name), expected, remedy)
    return getattr(module, name)
