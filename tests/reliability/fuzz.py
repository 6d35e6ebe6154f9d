"""Damaged tables by the thousand: each is read as it was, or refused with an error of ours, and never hangs or crashes.

`python -m tests.reliability.fuzz --mutants 1000 --seed 0` prints one line of JSON; `--mutant 17` tries that one again.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NoReturn, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wdistill.core.errors import WdistillError
from wdistill.tables.formats.table import open_tables

MEMORY = 512 << 20  # bytes of addresses beyond those at the start
SECONDS = 5  # of the processor for one mutant
PATIENCE = 60.0  # seconds on the clock, on a machine that is busy
FAILURES = ("undeclared", "crashes", "hangs", "silent")
SHOWN = 20  # failures in the report
ROWS, CLASSES = 12, 3


@dataclass(frozen=True)
class Seed:
    """A small valid file, and whether checksums cover its rows, so that no other rows may come from it."""

    name: str
    file: str
    content: bytes
    covered: bool
    packed: bool = False  # what is damaged is an array, packed into an archive afterwards


@dataclass
class Report:
    """What became of the mutants."""

    mutants: int
    seed: int
    same: int = 0  # read as the file was
    other: int = 0  # other rows, from formats without checksums
    refused: int = 0
    undeclared: int = 0
    crashes: int = 0
    hangs: int = 0
    silent: int = 0  # other rows, though the format has checksums
    seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return not any(getattr(self, kind) for kind in FAILURES)


# valid files -----------------------------------------------------------------------------------------------------------


@cache
def seeds() -> tuple[Seed, ...]:
    """One small file of every format."""
    draw = np.random.default_rng(0)
    teacher, student = draw.random((ROWS, CLASSES)), draw.random((ROWS, CLASSES)).astype(np.float32)
    ids, label = np.array([f"row {i}" for i in range(ROWS)]), np.arange(ROWS) % CLASSES
    arrays = {"id": ids, "teacher": teacher, "student": student, "label": label}
    fortran = {**arrays, "teacher": np.asfortranarray(teacher)}
    columns = {"id": ids, "teacher": teacher.tolist(), "student": student.tolist(), "label": label}
    names = ["id", *(f"{name}_{c}" for name in ("teacher", "student") for c in range(CLASSES)), "label"]
    rows = [[i, *t, *s, y] for i, t, s, y in zip(ids, teacher, student.tolist(), label, strict=True)]
    lines = [
        dict(zip(columns, row, strict=True))
        for row in zip(ids.tolist(), teacher.tolist(), student.tolist(), label.tolist(), strict=True)
    ]
    return (
        Seed("parquet", "x.parquet", _parquet(columns, checksums=True), True),
        Seed(
            "parquet, wide",
            "x.parquet",
            _parquet(dict(zip(names, zip(*rows, strict=True), strict=True)), checksums=True),
            True,
        ),
        Seed("parquet without checksums", "x.parquet", _parquet(columns, checksums=False), False),
        Seed("csv", "x.csv", "".join(",".join(map(str, row)) + "\n" for row in [names, *rows]).encode(), False),
        Seed("jsonl", "x.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode(), False),
        Seed("npz", "x.npz", _saved(np.savez, **arrays), True),
        Seed("npz, compressed", "x.npz", _saved(np.savez_compressed, **arrays), True),
        Seed("npz, Fortran", "x.npz", _saved(np.savez, **fortran), True),
        Seed("npz, compressed, Fortran", "x.npz", _saved(np.savez_compressed, **fortran), True),
        Seed("npz, of damaged arrays", "x.npz", _saved(np.save, teacher), False, packed=True),
        Seed("npy", "teacher.npy", _saved(np.save, teacher), False),
        Seed("npy, Fortran", "teacher.npy", _saved(np.save, np.asfortranarray(teacher)), False),
    )


def _parquet(columns: dict[str, Any], *, checksums: bool) -> bytes:
    stream = io.BytesIO()
    pq.write_table(
        pa.table(columns), stream, row_group_size=7, write_page_checksum=checksums, use_dictionary=["id", "label"]
    )
    return stream.getvalue()


def _saved(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *arrays, **named)
    return stream.getvalue()


# damage ----------------------------------------------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, 10**12)
LETTERS = (
    b"\0",
    b"\r",
    b"\n",
    b'"',
    b"\\",
    b",",
    b";",
    b"[" * 99,
    b"{",
    b"]",
    b"}",
    b"-",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
)
MARKS = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PAR1", b"\x93NUMPY")
WORDS = (*LETTERS, *MARKS, b"1e999", b"NaN", b"null", b"\\ud800", b"True", b"|O", b"<U9")


def _cut(data: bytearray, draw: Random, _: bytes) -> None:
    del data[draw.randrange(len(data)) :]


def _flip(data: bytearray, draw: Random, _: bytes) -> None:
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _set(data: bytearray, draw: Random, _: bytes) -> None:
    data[draw.randrange(len(data))] = draw.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, draw.randrange(256)])


def _number(data: bytearray, draw: Random, _: bytes) -> None:
    """A size or an offset, where one may stand."""
    size, number = draw.choice([2, 4, 8]), draw.choice([*NUMBERS, len(data)])
    at = draw.randrange(max(1, len(data) - size))
    data[at : at + size] = (number % 256**size).to_bytes(size, draw.choice(["little", "little", "big"]))


def _digits(data: bytearray, draw: Random, _: bytes) -> None:
    """A number that is written in letters: a shape, a value."""
    found = [match.span() for match in re.finditer(rb"\d+", data)]
    if found:
        start, end = draw.choice(found)
        data[start:end] = str(draw.choice(NUMBERS)).encode()


def _word(data: bytearray, draw: Random, _: bytes) -> None:
    at, word = draw.randrange(len(data) + 1), draw.choice(WORDS)
    data[at : at + draw.choice([0, len(word)])] = word


def _splice(data: bytearray, draw: Random, other: bytes) -> None:
    start, at = draw.randrange(len(other)), draw.randrange(len(data) + 1)
    piece = other[start : start + draw.choice([1, 4, 16, 64, 1024])]
    data[at : at + draw.choice([0, len(piece)])] = piece


def _repeat(data: bytearray, draw: Random, _: bytes) -> None:
    start, length = draw.randrange(len(data)), draw.choice([1, 4, 16, 64, 1024])
    data[start:start] = data[start : start + length] * draw.choice([1, 1, 2, 100])


def _remove(data: bytearray, draw: Random, _: bytes) -> None:
    start = draw.randrange(len(data))
    del data[start : start + draw.choice([1, 2, 4, 16, 64])]


MUTATORS = (_flip, _flip, _flip, _set, _cut, _number, _number, _digits, _word, _splice, _repeat, _remove)


def mutant(seed: int, number: int) -> tuple[Seed, bytes]:
    """The mutant of that number: its origin, and the bytes of the damaged file."""
    draw, every = Random(f"{seed}/{number}"), seeds()
    origin = every[number % len(every)]
    data = bytearray(origin.content)
    other = draw.choice([origin.content, origin.content, draw.choice(every).content])
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        if data:
            draw.choice(MUTATORS)(data, draw, other)
    return origin, _packed(bytes(data), draw) if origin.packed else bytes(data)


def _packed(array: bytes, draw: Random) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        archive.writestr("teacher.npy", array)
    return stream.getvalue()


# reading, in a process of its own --------------------------------------------------------------------------------------


def value(path: Path) -> str:
    """Everything that a table holds, in words."""
    (table,) = open_tables([str(path)], option="--unlabeled")
    bare = table.columns == ("teacher",)
    chunks = table.chunks(["teacher"]) if bare else table.chunks(["teacher", "student"], ["label"], rows=5)
    rows = []
    for chunk in chunks:
        columns = [[(values.dtype.str, row) for row in values.tolist()] for values in chunk.columns.values()]
        rows += list(zip(chunk.ids.to_pylist(), *columns, strict=True))
    return repr(rows)


def outcome(path: Path, good: str, covered: bool) -> tuple[str, str]:
    """What became of one mutant, as a field of the report, and the error."""
    try:
        same = value(path) == good
    except WdistillError as error:
        return "refused", str(error)
    except BaseException as error:
        return "undeclared", f"{type(error).__name__}: {error}"
    return ("same" if same else "silent" if covered else "other"), ""


def run(numbers: range, seed: int) -> Report:
    """Read the mutants of these numbers in forked processes, a new one after each that died."""
    report, start, at = Report(len(numbers), seed), time.monotonic(), numbers.start
    with tempfile.TemporaryDirectory() as folder:
        while at < numbers.stop:
            for number, kind, error in _forked(Path(folder), seed, range(at, numbers.stop)):
                at = number + 1
                setattr(report, kind, getattr(report, kind) + 1)
                if kind in FAILURES and len(report.failures) < SHOWN:
                    replay = f"python -m tests.reliability.fuzz --seed {seed} --mutant {number}"
                    origin, found = seeds()[number % len(seeds())].name, error[:500]
                    report.failures.append({"format": origin, "what": kind, "error": found, "replay": replay})
    report.seconds = round(time.monotonic() - start, 1)
    return report


def _forked(folder: Path, seed: int, numbers: range) -> Iterator[tuple[int, str, str]]:
    """What became of the mutants that one process read, until it died or was done."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        _child(folder, seed, numbers, os.fdopen(theirs, "w"))
    os.close(theirs)
    at, rest = numbers.start, b""
    while select.select([ours], [], [], PATIENCE)[0] and (piece := os.read(ours, 1 << 16)):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield at, *json.loads(line)
            at += 1
    os.close(ours)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if at < numbers.stop:
        ended = os.waitstatus_to_exitcode(status)
        yield at, "hangs" if -ended in (signal.SIGXCPU, signal.SIGKILL) else "crashes", f"the process ended with {ended}"


def _child(folder: Path, seed: int, numbers: range, pipe: TextIO) -> NoReturn:
    """Read mutants one by one, a line for each; never returns."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        faulthandler.disable()
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        goods = {origin.name: _good(folder, origin) for origin in seeds()}
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_addresses() + MEMORY, resource.RLIM_INFINITY))
        for number in numbers:
            spent = int(time.process_time())
            resource.setrlimit(resource.RLIMIT_CPU, (spent + 1 + SECONDS, resource.RLIM_INFINITY))
            origin, content = mutant(seed, number)
            path = folder / origin.file
            path.write_bytes(content)
            print(json.dumps(outcome(path, goods[origin.name], origin.covered)), file=pipe, flush=True)
    finally:
        os._exit(0)


def _good(folder: Path, origin: Seed) -> str:
    path = folder / origin.file
    path.write_bytes(_packed(origin.content, Random(0)) if origin.packed else origin.content)
    return value(path)


def _addresses() -> int:
    """The size of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Try mutants, or one of them again; print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutant", type=int, help="try this one alone")
    parser.add_argument("--save", type=Path, metavar="PATH", help="where that one's file goes")
    arguments = parser.parse_args()
    numbers = range(arguments.mutants) if arguments.mutant is None else range(arguments.mutant, arguments.mutant + 1)
    if arguments.save and arguments.mutant is not None:
        arguments.save.write_bytes(mutant(arguments.seed, arguments.mutant)[1])
    report = run(numbers, arguments.seed)
    print(json.dumps(asdict(report)))
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
