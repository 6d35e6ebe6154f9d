"""From what stands on the command line to tables: files, folders, globs and npy columns."""

from __future__ import annotations

import codecs
import errno
import glob
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wdistill.errors import FileError, InputError
from wdistill.readers.delimited import CSV, DELIMITERS
from wdistill.readers.jsonlines import JSONL
from wdistill.readers.layout import Format, Place
from wdistill.readers.npz import NPZ, npy_columns
from wdistill.readers.parquet import PARQUET
from wdistill.readers.table import Table, stamp, unreadable

HEAD = 4096  # bytes that tell the format of a file
MAGICS = {b"PAR1": "parquet", b"PK\x03\x04": "npz", b"\x93NUMPY": "npy"}
READERS = {"parquet": PARQUET, "npz": NPZ, "csv": CSV, "jsonl": JSONL}
NPY_STEMS = ("teacher", "student", "label", "id")
SYNTAX = "COLUMN=PATH.npy, for example teacher=predictions.npy"


@dataclass(frozen=True)
class Source:
    """One argument: its files in order, their format, and the column they were given, if any."""

    files: tuple[Path, ...]
    format: str
    column: str


def open_tables(sources: Sequence[str], *, option: str) -> tuple[Table, ...]:
    """One table for every file, folder and glob; all npy arrays together are the columns of one table."""
    found = [_source(text, option) for text in sources]
    arrays = [source for source in found if source.format == "npy"]
    tables = []
    for source in found:
        if source.format != "npy":
            tables.append(_table(option, source.files, source.format, READERS[source.format]))
        elif source is arrays[0]:
            columns = _npy_names(arrays, option)
            tables.append(_table(option, tuple(columns.values()), "npy", npy_columns(option, columns)))
    return tuple(tables)


def _table(option: str, files: tuple[Path, ...], kind: str, reader: Format) -> Table:
    return Table(option, files, kind, tuple(stamp(Place(option, path)) for path in files), reader)


def _source(text: str, option: str) -> Source:
    if not text.strip():
        raise FileError(
            "an empty path",
            where=option,
            found=repr(text),
            expected="a file, a folder or a glob",
            remedy="Check the variable that should hold the path.",
        )
    column, equals, rest = text.partition("=")
    named = equals and column.isidentifier() and not os.path.lexists(text)
    if named and (os.path.lexists(rest) or rest.endswith(".npy")):
        return _npy_source(column, Place(option, Path(rest)))
    try:
        files = _files(text, option)
    except (OSError, ValueError) as error:
        raise unreadable(Place(option, Path(text)), error) from error
    kinds = [_format(Place(option, path)) for path in files]
    for path, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise FileError(
                "the files of one table have different formats",
                where=str(Place(option, path)),
                found=kind,
                expected=f"{kinds[0]}, as in {files[0]}",
                remedy="Name the files of each format in an argument of their own.",
            )
    return Source(files, kinds[0], "")


def _npy_source(column: str, place: Place) -> Source:
    kind = _format(place)
    if kind != "npy":
        raise FileError(
            "only npy files are given the name of a column",
            where=str(place),
            found=kind,
            expected=SYNTAX,
            remedy=f"Name the file without {column}= before it.",
        )
    return Source((place.path,), kind, column)


def _files(text: str, option: str) -> tuple[Path, ...]:
    """The files that an argument stands for; a path that exists is never taken for a glob."""
    path = Path(text)
    if path.is_dir():
        files = [entry for entry in path.iterdir() if not entry.name.startswith(".") and not entry.is_dir()]
    elif os.path.lexists(path) or not glob.has_magic(text):
        return (path,)
    else:
        files = [Path(name) for name in glob.glob(text)]  # noqa: PTH207 (the text may be an absolute path)
    if not files:
        raise FileError(
            "there are no files here",
            where=str(Place(option, path)),
            found="an empty folder" if path.is_dir() else "no file that matches",
            expected="at least one file",
            remedy="Correct the path, or write the files first.",
        )
    return tuple(sorted(files))


def _npy_names(arrays: Sequence[Source], option: str) -> dict[str, Path]:
    """The npy files by the names of their columns."""
    columns: dict[str, Path] = {}
    for source in arrays:
        for path in source.files:
            name = source.column or path.stem
            if name in columns or (not source.column and name not in NPY_STEMS):
                raise InputError(
                    "a column is given twice" if name in columns else "it is not clear which column this array is",
                    where=str(Place(option, path)),
                    found=f"an array named {name!r}",
                    expected=f"one file a column, named {', '.join(NPY_STEMS)}, or with the column before it: {SYNTAX}",
                    remedy=f"Write COLUMN={path} with the name of the column in place of COLUMN.",
                )
            columns[name] = path
    return columns


def _format(place: Place) -> str:
    """The format of a file, told by its first bytes."""
    head = _head(place)
    for magic, kind in MAGICS.items():
        if head.startswith(magic):
            return kind
    if head.startswith(b"\x1f\x8b"):
        raise FileError(
            "the file is compressed",
            where=str(place),
            found="gzip",
            expected="parquet, npz, npy, CSV or JSON lines",
            remedy="Decompress it first, for example with gunzip.",
        )
    text = _text(head)
    if text.startswith("{"):
        return "jsonl"
    line = text.partition("\n")[0].rstrip("\r")
    if any(mark in line for mark in DELIMITERS) or re.fullmatch(r"\S+", line):
        return "csv"
    raise FileError(
        "cannot tell what this is",
        where=str(place),
        found=f"a file that begins with {head[:16]!r}",
        expected="parquet, npz, npy, CSV or JSON lines",
        remedy="Write the table in one of these formats; CSV and JSON lines have to be UTF-8 text.",
    )


def _text(head: bytes) -> str:
    """The first bytes as text without blank lines before it, or nothing if they are no text."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text else text.lstrip()


def _head(place: Place) -> bytes:
    """The first bytes of a regular file that is not empty."""
    try:
        mode = place.path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        with place.path.open("rb") as stream:
            head = stream.read(HEAD)
    except (OSError, ValueError) as error:
        raise unreadable(place, error) from error
    if not head:
        raise FileError(
            "the file is empty",
            where=str(place),
            found="0 bytes",
            expected="a table",
            remedy="Write the file again, or leave it out.",
        )
    return head
