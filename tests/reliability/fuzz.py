"""Damaged files by the thousand: each is read as it was, or refused with an error of ours, and never hangs or crashes.

`python -m tests.reliability.fuzz --reader tables --mutants 1000 --seed 0` prints one line of JSON; `--mutant 17` tries that
one again. What is damaged, and how it is read, is in seeds.py.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn, TextIO

import pyarrow as pa

from tests.reliability.seeds import READERS, Seed, seeds
from wdistill.core.errors import WdistillError, WdistillWarning

MEMORY = 512 << 20  # bytes of addresses beyond those at the start
SECONDS = 5  # of the processor for one mutant
PATIENCE = 60.0  # seconds on the clock, on a machine that is busy
FAILURES = ("undeclared", "crashes", "hangs", "silent")
SHOWN = 20  # failures in the report


@dataclass
class Report:
    """What became of the mutants."""

    reader: str
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


VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|\[[^\[\]]*\]|\{[^{}]*\}|true|false|null')
OTHERS = (
    b"null", b"5", b"-1", b"0.5", b"1e999", b"1e-310", b"NaN", b"true", b"9" * 400, b'"x"', b'""', b"[]", b"{}",
    b"[[]]", b'{"a":1}', b'["a"]', b"[null]", b"[" * 3000 + b"]" * 3000,
)  # fmt: skip


def _value(data: bytearray, draw: Random, _: bytes) -> None:
    """A value of JSON, by one of another kind."""
    found = [match.span() for match in VALUE.finditer(data)]
    if found:
        start, end = draw.choice(found)
        data[start:end] = draw.choice(OTHERS)


MUTATORS = (_flip, _flip, _flip, _set, _cut, _number, _number, _digits, _word, _splice, _repeat, _remove)


def mutant(reader: str, seed: int, number: int) -> tuple[Seed, dict[str, bytes]]:
    """The mutant of that number: its origin, and the files that it consists of."""
    draw, every = Random(f"{seed}/{number}"), seeds(reader)
    mutators = MUTATORS if reader == "tables" else (*MUTATORS, *[_value] * len(MUTATORS))
    origin = every[number % len(every)]
    data = bytearray(origin.content)
    other = draw.choice([origin.content, origin.content, draw.choice(every).content])
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        if data:
            draw.choice(mutators)(data, draw, other)
    return origin, origin.files(bytes(data), draw)


# reading, in a process of its own --------------------------------------------------------------------------------------


def read(origin: Seed, files: dict[str, bytes], folder: Path) -> str:
    """What is read of a seed, or of a mutant of it, in words."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return origin.read(folder / origin.file)


def outcome(origin: Seed, files: dict[str, bytes], folder: Path, good: str) -> tuple[str, str]:
    """What became of one mutant, as a field of the report, and the error."""
    try:
        same = read(origin, files, folder) == good
    except WdistillError as error:
        return "refused", str(error)
    except BaseException as error:
        return "undeclared", f"{type(error).__name__}: {error}"
    return ("same" if same else "silent" if origin.covered else "other"), ""


def run(reader: str, numbers: range, seed: int) -> Report:
    """Read the mutants of these numbers in forked processes, a new one after each that died."""
    every, report, start, at = seeds(reader), Report(reader, len(numbers), seed), time.monotonic(), numbers.start
    with tempfile.TemporaryDirectory() as folder:
        while at < numbers.stop:
            for number, kind, error in _forked(reader, Path(folder), seed, range(at, numbers.stop)):
                at = number + 1
                setattr(report, kind, getattr(report, kind) + 1)
                if kind in FAILURES and len(report.failures) < SHOWN:
                    replay = f"python -m tests.reliability.fuzz --reader {reader} --seed {seed} --mutant {number}"
                    origin, found = every[number % len(every)].name, error[:500]
                    report.failures.append({"format": origin, "what": kind, "error": found, "replay": replay})
    report.seconds = round(time.monotonic() - start, 1)
    return report


def _forked(reader: str, folder: Path, seed: int, numbers: range) -> Iterator[tuple[int, str, str]]:
    """What became of the mutants that one process read, until it died or was done."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        _child(reader, folder, seed, numbers, os.fdopen(theirs, "w"))
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


def _child(reader: str, folder: Path, seed: int, numbers: range, pipe: TextIO) -> NoReturn:
    """Read mutants one by one, a line for each; never returns."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        faulthandler.disable()
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        warnings.simplefilter("error")  # NumPy's, for example
        warnings.simplefilter("ignore", WdistillWarning)
        goods = {origin.name: _good(folder, origin) for origin in seeds(reader)}
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_addresses() + MEMORY, resource.RLIM_INFINITY))
        for number in numbers:
            spent = int(time.process_time())
            resource.setrlimit(resource.RLIMIT_CPU, (spent + 1 + SECONDS, resource.RLIM_INFINITY))
            origin, files = mutant(reader, seed, number)
            print(json.dumps(outcome(origin, files, folder, goods[origin.name])), file=pipe, flush=True)
    finally:
        os._exit(0)


def _good(folder: Path, origin: Seed) -> str:
    return read(origin, origin.files(origin.content, Random(0)), folder)


def _addresses() -> int:
    """The size of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Try mutants, or one of them again; print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reader", choices=READERS, default="tables")
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutant", type=int, help="try this one alone")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="where that one's files go")
    arguments = parser.parse_args()
    numbers = range(arguments.mutants) if arguments.mutant is None else range(arguments.mutant, arguments.mutant + 1)
    if arguments.save and arguments.mutant is not None:
        for name, content in mutant(arguments.reader, arguments.seed, arguments.mutant)[1].items():
            (arguments.save / name).parent.mkdir(parents=True, exist_ok=True)
            (arguments.save / name).write_bytes(content)
    report = run(arguments.reader, numbers, arguments.seed)
    print(json.dumps(asdict(report)))
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
