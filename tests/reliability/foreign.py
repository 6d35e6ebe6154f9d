"""Files of others under names that we use: whatever a job does, and however it ends, they stay as they are.

A case is a job in an empty place, or in that of an earlier start that was killed, and strangers: files, folders and links
that somebody else has put there. The only ones that may be replaced are those that the user names as the output.

python -m tests.reliability.foreign '{"job": "weigh", …}'      replays one
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.killing import MEMORY, child, killer
from tests.reliability.artefacts import ARTEFACTS, written_by
from tests.reliability.jobs import JOBS, OTHERS, as_command, inputs, prepare_process
from tests.reliability.rot import results
from wdistill.core import sealed
from wdistill.datasets import prepared
from wdistill.tables import parts

DECLARED = (0, 2, 3, 5)
KINDS = ("file", "folder", "link", "link to a folder")
CONTENTS = {  # some begin as our own files do
    "notes": b"notes\n",
    "nothing": b"",
    "a lock": b"process of the work\n",
    "the beginning of a record": sealed.HEAD,
    "a record of something else": sealed.seal({"mine": [1]}),
    "JSON": b'{"mine": ["1"]}\n',
}
STOPS = 5  # points of a job at which it may have been killed
TOKEN = "TOKEN"  # in names of strangers: the random word of the unfinished job


@dataclass(frozen=True)
class Stranger:
    """Something that is not ours, by its path below the folder of the job."""

    path: str
    kind: str
    content: str


@dataclass(frozen=True)
class Case:
    job: str
    killed: int  # the number of the stop at which an earlier start was killed; 0: there was none
    strangers: tuple[Stranger, ...]


RUNS = {**JOBS, **{name: OTHERS[name] for name in ("distill of Datasets", "report")}}
OWNED = {"data": "data", "data of images": "imagenet/prepared-9"}  # folders whose owner.txt says that all is replaced
QUICK = ("weigh", "joined weigh", "data", "distill of Datasets")


# a job alone --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """What a job does where nothing is in its way."""

    operations: int
    names: tuple[str, ...]  # of all that it writes
    results: dict[str, str]


def _start(job: str, folder: Path, before: Callable[[str, Path], None]) -> int:
    inputs()  # here, so that all children share them

    def run(folder: Path) -> None:
        prepare_process()
        as_command(RUNS[job].run)(folder)

    return child(folder, before, run)


@cache
def _place() -> Path:
    return Path(tempfile.mkdtemp(prefix="foreign-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))


def forget() -> None:
    """Remove what all cases share."""
    shutil.rmtree(_place(), ignore_errors=True)
    for made in (_place, whole, unfinished):
        made.cache_clear()


@cache
def whole(job: str) -> Whole:
    log, folder = _place() / f"{job}.log", _place() / f"{job} alone"
    log.write_text("")

    def before(operation: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(f"{operation} {path}\n")

    assert _start(job, folder, before) == 0
    lines = log.read_text().splitlines()
    made = [Path(line.removeprefix("make ")) for line in lines if line.startswith("make ")]
    names = written_by(lines, folder) | {path.relative_to(folder).as_posix() for path in made if path != folder} | {"lock"}
    return Whole(len(lines), tuple(sorted({_of_nobody(name) for name in names})), results(folder, RUNS[job].fingerprint))


def _of_nobody(name: str) -> str:
    """The name of a temporary file without the mark by which we know our own."""
    return re.sub(r"\.[0-9]+(\.[0-9a-f]{16})?\.tmp$", ".123.tmp", name)


@cache
def unfinished(job: str, stop: int) -> Path:
    """The place of a job that was killed at a stop."""
    folder = _place() / f"{job} {stop}"
    _start(job, folder, killer(1 + stop * whole(job).operations // (STOPS + 1)))
    return folder


def _token(folder: Path) -> str:
    records = [sealed.read_sealed(folder / f"w.parquet.{name}" / parts.RECORDS[0]) for name in ("parts", "answers")]
    return next((str(record["token"]) for record in records if record), TOKEN)


# cases --------------------------------------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn, jobs: Sequence[str] = tuple(RUNS)) -> Case:
    """Jobs, with one to three strangers each."""
    job = draw(st.sampled_from(jobs))
    killed = draw(st.integers(0, STOPS))
    names = whole(job).names
    paths = st.one_of(st.sampled_from(names), _like(names), _inside(job, killed))
    strangers = st.builds(Stranger, paths, st.sampled_from(KINDS), st.sampled_from(list(CONTENTS)))
    return Case(job, killed, tuple(draw(st.lists(strangers, min_size=1, max_size=3, unique_by=lambda each: each.path))))


def _like(names: Sequence[str]) -> st.SearchStrategy[str]:
    """Paths of the kinds that a job writes, by the table of files, in the folders that it makes."""
    folders = "|".join(sorted({re.escape(f"{above}/") for name in names for above in Path(name).parents if above.name}))
    rows = [row.pattern for row in ARTEFACTS if any(re.fullmatch(row.pattern, name) for name in names)]
    rows += [r"(.*/)?\.[a-z]+\.(json|npy)\.\d+(\.[0-9a-f]{16})?\.tmp"]
    patterns = [row.replace("(.*/)?", f"({folders})?").replace(r"w\.\w+", r"w\.parquet") for row in rows]
    letters = st.characters(codec="ascii", categories=["L", "N"], include_characters="-._/")
    found = [st.from_regex(pattern, fullmatch=True, alphabet=letters) for pattern in patterns]
    return st.one_of(found).filter(_is_path)


def _is_path(text: str) -> bool:
    return all(0 < len(piece) < 100 and piece not in (".", "..") for piece in text.split("/"))


def _inside(job: str, killed: int) -> st.SearchStrategy[str]:
    """Files beside those of an unfinished job, in every folder that it has made."""
    if not killed:
        return st.nothing()
    place = unfinished(job, killed)
    folders = [path.relative_to(place).as_posix() for path in sorted(place.rglob("*")) if path.is_dir()]
    names = st.sampled_from(["notes.txt", "rows-000000.bak", ".x.json.123.tmp", f"part-000000.{TOKEN}.parquet.bak"])
    return st.builds(
        lambda folder, name: f"{folder}/{name}".replace(_token(place), TOKEN), st.sampled_from([".", *folders]), names
    )


# what becomes of strangers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Put:
    """A stranger that was put into the place of a job; its bytes are in `kept`, outside of it where it is a link."""

    stranger: Stranger
    path: Path
    kept: Path

    @property
    def is_unchanged(self) -> bool:
        kind, path = self.stranger.kind, self.path
        if kind.startswith("link"):
            return path.is_symlink() and path.resolve() in (self.kept, self.kept.parent)
        return not path.is_symlink() and self.has_its_bytes

    @property
    def has_its_bytes(self) -> bool:
        return self.kept.is_file() and self.kept.read_bytes() == CONTENTS[self.stranger.content]


def put(stranger: Stranger, folder: Path, elsewhere: Path, token: str) -> Put | None:
    """Put a stranger there, unless something is in its way."""
    path = folder / stranger.path.replace(TOKEN, token)
    taken = os.path.lexists(path) or any(os.path.lexists(above) and not above.is_dir() for above in path.parents)
    empty_lock = path.name == "lock" and stranger.content == "nothing"  # as ours is when nobody holds it
    if taken or empty_lock:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    target = elsewhere if stranger.kind.startswith("link") else path
    kept = target / "kept.txt" if stranger.kind.endswith("folder") else target
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(CONTENTS[stranger.content])
    if target != path:
        path.symlink_to(target)
    return Put(stranger, path, kept.resolve())


def may_be_replaced(job: str, each: Put, folder: Path) -> bool:
    """The output that the user names; what is written in a folder whose owner.txt says that what is in it is replaced."""
    if each.stranger.kind == "folder":
        return False
    if each.path == folder / "w.parquet":
        return True
    owned = folder / OWNED.get(job, "") / prepared.OWNER
    return owned.is_file() and each.path.parent == owned.parent and each.stranger.path in whole(job).names


def attempt(case: Case) -> str:
    """What is wrong; nothing if every stranger stays, and the job comes to the same or says what is in its way."""
    place = Path(tempfile.mkdtemp(dir=_place()))
    try:
        folder = place / "job"
        if case.killed and unfinished(case.job, case.killed).exists():
            shutil.copytree(unfinished(case.job, case.killed), folder)
        folder.mkdir(exist_ok=True)
        token = _token(folder)
        found = [put(each, folder, place / f"elsewhere-{i}", token) for i, each in enumerate(case.strangers)]
        there = [each for each in found if each is not None]
        replaceable = [each for each in there if may_be_replaced(case.job, each, folder)]
        ended = _start(case.job, folder, lambda operation, path: None)
        if ended not in DECLARED:
            return f"ended with {ended}"
        for each in there:
            linked = each.stranger.kind.startswith("link")
            if not (each.is_unchanged or each in replaceable) or (linked and not each.has_its_bytes):
                return f"{each.stranger.kind} {each.stranger.path} is gone or changed"
        if ended == 0 and not any(each.stranger.kind == "link to a folder" for each in there):  # it may be written there
            wanted, reached = whole(case.job).results, results(folder, RUNS[case.job].fingerprint)
            other = [name for name in wanted if reached.get(name) != wanted[name]]
            return f"other bytes: {', '.join(other[:3])}" if other else ""
        return ""
    finally:
        shutil.rmtree(place, ignore_errors=True)


def prove(number: int, seed: int, jobs: Sequence[str] = tuple(RUNS)) -> tuple[int, list[str]]:
    """So many cases: how many were tried, and what went wrong, with the command that replays it."""
    failures, tried = [], 0

    @seeded(seed)
    @settings(
        max_examples=number, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(cases(jobs))
    def each(case: Case) -> None:
        nonlocal tried
        tried += 1
        if wrong := attempt(case):
            failures.append(f"{wrong}: python -m tests.reliability.foreign '{json.dumps(asdict(case))}'")

    try:
        each()
    finally:
        forget()
    return tried, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay one case.")
    parser.add_argument("case", help="as JSON")
    given = json.loads(parser.parse_args().case)
    strangers = tuple(Stranger(**each) for each in given["strangers"])
    wrong = attempt(Case(given["job"], given["killed"], strangers))
    forget()
    print(wrong or "every stranger stays as it was")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
