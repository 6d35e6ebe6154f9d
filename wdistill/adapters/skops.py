"""For users of scikit-learn: a trained student as one file that skops reads, which no unpickling makes run code.

student.skops   the student, for `load_student` and skops.io.load
student.md      its model card, where one was given
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from wdistill.adapters.extras import brought_by
from wdistill.core import store
from wdistill.core.errors import FileError, bad_value, unreadable, wrong_extension
from wdistill.core.paths import as_path, refuse_remote

with brought_by("skops", __name__):
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted
    from skops import io

EXTENSION = ".skops"
FAULTS = (  # of damaged archives, and of what skops makes of them
    BadZipFile,
    zlib.error,
    RuntimeError,  # a flag says that it is encrypted, or compressed in another way
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    ImportError,
    EOFError,
    OSError,
    MemoryError,
)


def save_student(student: Any, path: str | os.PathLike[str], card: str | None = None) -> tuple[str, ...]:
    """Write a fitted student, or that of a fitted `Distiller`, and its card; returns the types that loading must be told of.

    Both files are written whole or not at all; the card is written last.
    """
    path = _named(path)
    model = getattr(student, "student_", student)
    try:
        check_is_fitted(model)
        content = io.dumps(model)
        types = tuple(io.get_untrusted_types(data=content))
    except NotFittedError:
        found, remedy = f"{type(model).__name__} that is not fitted", "fit it first"
        raise bad_value("nothing to save", "student", found, "a fitted student", remedy) from None
    except Exception as error:
        found, expected = f"{type(error).__name__}: {error}", "a student of types that skops can write"
        remedy = "take functions and lambdas out of it, or export it as ONNX"
        raise bad_value("this student cannot be saved without pickle", "student", found, expected, remedy) from error
    here = [name for name in types if "<" in name or name.startswith("__main__.")]
    if here:
        found, remedy = ", ".join(here), "move it into a module that is installed there too"
        raise bad_value("part of this student exists in this program alone", "student", found, "types to import", remedy)
    beside = path.with_suffix(".md")
    if card is not None and beside.exists() and not path.exists():
        found, remedy = "a file that no student belongs to", "move it, or choose another name for the student"
        raise bad_value("something else has the name of the card", str(beside), found, "no such file", remedy)
    store.make_folder(path.parent, parents=True)
    store.write_bytes(path, content)
    if card is not None:
        store.write_bytes(beside, card.encode())
    return types


def load_student(path: str | os.PathLike[str], trusted: Collection[str] = ()) -> Any:
    """The student in a file; types beside those that skops knows must be named in `trusted`, or nothing is made of them."""
    path = _named(path)
    try:
        content = path.read_bytes()
        unknown = sorted({*io.get_untrusted_types(data=content)} - {*trusted})
    except FAULTS as error:
        raise _damaged(path, error) from None
    if unknown:
        what, expected = "the file names types that nobody vouched for", "types of scikit-learn and NumPy that skops knows"
        remedy = f"if you know where the file comes from: load_student(path, trusted={unknown!r})"
        raise unreadable(what, path, ", ".join(unknown), expected, remedy)
    try:
        return io.loads(content, trusted=list(trusted))
    except FAULTS as error:
        raise _damaged(path, error) from None


def _named(path: str | os.PathLike[str]) -> Path:
    refuse_remote(str(path), "path")
    named = as_path(path, "path")
    if named.suffix != EXTENSION:
        raise wrong_extension("not the name of a student", f"path {named}", named, (EXTENSION,))
    return named


def _damaged(path: Path, error: Exception) -> FileError:
    expected, remedy = "a file of save_student or skops.io.dump", "copy the file again, or save the student again"
    return unreadable("no student can be read", path, error, expected, remedy)
