"""The folder of an unfinished job: what is finished is listed in a record, with its SHA-256, and nothing else is removed.

The record is kept twice. A file belongs to the job if the record lists it, or if its name carries the job's token, a random
word that only the record knows: such a file is not finished yet. A folder with anything else in it is refused.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from wdistill.core import checks, sealed, store
from wdistill.core.errors import ConfigError, bad_value, unreadable
from wdistill.core.paths import is_name
from wdistill.core.progress import say
from wdistill.core.shapes import fault_of

RECORDS = ("job.json", "job.copy.json")
TOKENED = re.compile(r"(part-[0-9]+|aligned-([0-9]+|tables)|scratch|output)\.[0-9a-f]{16}(\.parquet)?")  # of any job
BELOW = re.compile(
    r"(rows|first|other|keys)-[0-9]+|(answers|experts|gold)\.parquet"
)  # files in folders that carry the token


@dataclass(frozen=True)
class Part:
    """One finished part: what it covers, its file, and counts that the weights do not tell."""

    start: int  # the first input file of the first table that it covers
    next: int  # the first one after it
    stamps: list[list[int]]  # size and time of change of those files
    seen: int  # rows of the first table that it covers
    kept: int  # rows that it holds
    counts: dict[str, int]
    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Aligned:
    """Another table, brought into the order of the first."""

    order: str  # what that order depends on
    columns: list[str]
    files: Mapping[str, Sequence[Any]]  # size and SHA-256 by name


class IdentityShape(TypedDict):
    """What finished parts depend on, as a record has it."""

    options: dict[str, Any]


class AlignedShape(TypedDict):
    """An aligned table, as a record has it."""

    order: str
    columns: list[str]
    files: dict[str, tuple[int, str]]


class RecordShape(TypedDict):
    """The record of a job."""

    identity: IdentityShape
    token: str
    parts: list[Part]
    aligned: dict[str, AlignedShape]
    warnings: list[str]


@dataclass
class JobFolder:
    """The folder, which is locked, and its record."""

    folder: Path
    identity: Mapping[str, Any]  # what finished parts depend on, besides the files that each part names
    token: str
    parts: list[Part] = field(default_factory=list)
    aligned: dict[str, Aligned] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def scratch(self, name: str) -> Path:
        """The path of a file or folder that the record does not list yet."""
        stem, dot, suffix = name.partition(".")
        return self.folder / f"{stem}.{self.token}{dot}{suffix}"

    def commit(self) -> None:
        """Write the record, twice."""
        content = {
            "identity": self.identity,
            "token": self.token,
            "parts": [vars(part) for part in self.parts],  # not asdict, which copies every count
            "aligned": {name: vars(table) for name, table in self.aligned.items()},
            "warnings": self.warnings,
        }
        for name in RECORDS:
            store.write_bytes(self.folder / name, sealed.seal(content))

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file of the folder, synced when the block ends."""
        with store.synced(self.scratch(name)) as file:
            yield file

    def file(self, name: str) -> dict[str, Any]:
        """Name, size and SHA-256 of a file that has been written, as `Part` keeps them."""
        path = self.scratch(name)
        return {"file": path.name, "size": path.stat().st_size, "sha256": store.digest_file(path)}

    def check(self) -> None:
        """Forget parts and aligned tables that are damaged or missing, and say so: they are made anew."""
        for part in [part for part in self.parts if not store.is_intact(self.folder / part.file, (part.size, part.sha256))]:
            say(f"{self.folder / part.file} is damaged or missing, and is made anew")
            self.parts.remove(part)
        for number, table in list(self.aligned.items()):
            folder = self.scratch(f"aligned-{number}")
            damaged = [
                name for name, (size, digest) in table.files.items() if not store.is_intact(folder / name, (size, digest))
            ]
            if damaged:
                say(f"{folder / damaged[0]} is damaged or missing, and is made anew")
                del self.aligned[number]

    def sweep(self) -> None:
        """Remove what carries the token and is not listed: a killed process left it."""
        listed = {part.file for part in self.parts} | {self.scratch(f"aligned-{number}").name for number in self.aligned}
        for path in _with_token(self.folder, self.token):
            if path.name not in listed:
                store.remove(path, scratch=True)

    def clear(self) -> None:
        """Remove all that is ours, and the folder, if it is empty then."""
        self.parts, self.aligned = [], {}
        self.sweep()
        for name in (*RECORDS, "lock"):
            store.remove(self.folder / name, scratch=True)
        if not any(self.folder.iterdir()):
            store.remove(self.folder)


def refuse_foreign(folder: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse a folder of parts that is not ours, or has something else in it, or that is read as an input."""
    inside = [path for path in inputs if path.resolve().is_relative_to(folder.resolve())]
    if inside:
        remedy = "copy the table elsewhere, or choose another output"
        raise bad_value(
            "a table would be read from the folder of parts", str(folder), str(inside[0]), "other tables", remedy
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise _foreign(folder, "a link" if folder.is_symlink() else "a file")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set[str]()
    record = _read(folder) if names else None
    if names & {*RECORDS} and record is None:
        found, expected = "a record that is damaged", "the record of an unfinished job, in one of two copies"
        ours = {name for name in names if TOKENED.fullmatch(name)}
        began = ours or any(_may_be_record(folder / name) for name in names & {*RECORDS})
        if not began or (others := names - ours - {*RECORDS, "lock"}):
            raise _foreign(folder, ", ".join(sorted(others if began else names)[:5]))
        remedy = f"remove {folder} to begin again, or choose another output"
        raise unreadable("the record of an unfinished job cannot be read", folder / RECORDS[0], found, expected, remedy)
    ours = {path.name for path in store.unfinished_writes(folder, *RECORDS)}
    ours |= {name for name in names & {*RECORDS} if _may_be_record(folder / name)}
    ours |= {name for name in names & {"lock"} if store.is_lock(folder / name)}
    foreign = {name for name in names if (folder / name).is_symlink()}
    if record is not None:
        ours |= {path.name for path in _with_token(folder, record["token"])}
        foreign |= _foreign_below(folder, record["token"])
    if names - ours or foreign:
        raise _foreign(folder, ", ".join(sorted(names - ours | foreign)[:5]))


def open_folder(folder: Path, identity: Mapping[str, Any]) -> JobFolder:
    """The folder of this job, locked by the caller: the finished parts of an earlier run, or nothing yet."""
    refuse_foreign(folder)
    record = _read(folder)
    for path in store.unfinished_writes(folder, *RECORDS):
        store.remove(path)
    if record is not None:
        parts = [Part(**part) for part in record["parts"]]
        aligned = {number: Aligned(**table) for number, table in record["aligned"].items()}
        job = JobFolder(folder, identity, record["token"], parts, aligned, record["warnings"])
        if record["identity"] == identity:
            job.check()
            job.sweep()
            for text in job.warnings:
                checks.warn(text)
            return job
        if parts:
            raise _another_job(folder, parts, record["identity"], identity)
        job.aligned = {}
        job.sweep()
    job = JobFolder(folder, identity, secrets.token_hex(8))
    job.commit()
    return job


def check_files(folder: Path) -> dict[str, bool]:
    """Both copies of the record, and every file that it lists, by name: whether it is what was written."""
    intact = {name: _is_record(sealed.read_sealed(folder / name)) for name in RECORDS}
    record = _read(folder)
    if record is None:
        return intact
    intact |= {
        part["file"]: store.is_intact(folder / part["file"], (part["size"], part["sha256"])) for part in record["parts"]
    }
    for number, table in record["aligned"].items():
        for name, (size, digest) in table["files"].items():
            path = f"aligned-{number}.{record['token']}/{name}"
            intact[path] = store.is_intact(folder / path, (size, digest))
    return intact


def _another_job(folder: Path, parts: Sequence[Part], old: Mapping[str, Any], new: Mapping[str, Any]) -> ConfigError:
    differing = [name for name in new if old.get(name) != new[name]]
    options = [f"--{name.replace('_', '-')}" for name in new["options"] if old["options"].get(name) != new["options"][name]]
    found = f"{len(parts)} finished parts of a job with other {', '.join(options or differing)}"
    remedy = f"finish that job with the command that began it, or remove {folder}, or choose another output"
    return bad_value("another job for this output is not finished", str(folder), found, "the same job", remedy)


def _foreign(folder: Path, found: str) -> ConfigError:
    what, expected = "finished parts would be written where something else is", "nothing, or the parts of an earlier run"
    return bad_value(what, str(folder), found, expected, "move it away, or choose another output")


def _read(folder: Path) -> dict[str, Any] | None:
    """The record: that of both copies which lists more."""
    read = [sealed.read_sealed(folder / name) for name in RECORDS]
    copies = [record for record in read if _is_record(record)]
    return max(copies, key=lambda record: len(record["parts"]) + len(record["aligned"]), default=None)


def _is_record(record: Any) -> bool:
    """Whether it is the content of a record; the files that it lists are in the folder."""
    if fault_of(record, RecordShape):
        return False
    parts, tables = record["parts"], record["aligned"].values()
    names = [
        *(part["file"] for part in parts),
        record["token"],
        *record["aligned"],
        *(n for t in tables for n in t["files"]),
    ]
    ends = [0, *(part["next"] for part in parts)]
    follow = all(end <= part["start"] < part["next"] for end, part in zip(ends, parts, strict=False))
    stamped = all(len(part["stamps"]) == part["next"] - part["start"] for part in parts)
    return follow and stamped and all(map(is_name, names))


def _with_token(folder: Path, token: str) -> list[Path]:
    """The files and folders of the job, by names that nobody else can give them."""
    word = re.escape(token)
    name = re.compile(rf"part-[0-9]+\.{word}\.parquet|(aligned-([0-9]+|tables)|scratch|output)\.{word}")
    return sorted(path for path in folder.glob(f"*.{token}*") if name.fullmatch(path.name))


def _foreign_below(folder: Path, token: str) -> set[str]:
    """What is in folders that carry the token, and not of the job."""
    folders = [path for path in _with_token(folder, token) if path.is_dir() and not path.is_symlink()]
    inside = [path for above in folders for path in above.iterdir()]
    foreign = [path for path in inside if path.is_symlink() or not path.is_file() or not BELOW.fullmatch(path.name)]
    return {path.relative_to(folder).as_posix() for path in foreign}


def _may_be_record(path: Path) -> bool:
    """Whether a file is a record, or was one before it was damaged: then it begins as sealed records do."""
    if path.is_symlink() or not path.is_file():
        return False
    content = sealed.read_sealed(path)
    with path.open("rb") as file:
        begins = sealed.HEAD.startswith(file.read(len(sealed.HEAD)))
    return begins and (content is None or _is_record(content))
