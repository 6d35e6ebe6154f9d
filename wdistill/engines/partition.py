"""What is done to one partition of the input, by whichever process of whichever machine.

A partition is one file of each table. Its rows become one file of the output, whose name carries its SHA-256, and a record
that names it. Doing it twice does no harm: the second time the record is found, or the same bytes are written again. So an
engine may retry, reorder, and run the same partition in two places at once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from wdistill.core import sealed, store
from wdistill.core.errors import WORDS, InputError, StorageError, WdistillError, bad_input, from_words, in_words, unreadable
from wdistill.core.places import Place, fetch, is_remote, place_of, remote_version
from wdistill.tables.formats.parquet import parquet_file
from wdistill.tables.formats.schema import Location
from wdistill.tables.formats.table import Table, open_tables, stamp
from wdistill.tables.join import IdCheck

ROWS = 1 << 16  # ids read at once


@dataclass(frozen=True)
class Listed:
    """A file of the output, as the manifest lists it."""

    file: str  # "" where the partition has no rows
    size: int
    sha256: str
    rows: int


def stem(number: int, key: str) -> str:
    """How the names of the file and of the record of a partition begin, after the record's underscore."""
    return f"part-{number:06d}-{key}"


@dataclass(frozen=True)
class Partition:
    """One file of each table."""

    number: int
    files: tuple[str, ...]  # paths or addresses
    version: str  # of these files, as they were when the job was started
    key: str  # of the job and of the version
    listed: Listed | None = None  # what became of it, where the job was finished before

    @property
    def stem(self) -> str:
        return stem(self.number, self.key)

    @property
    def record(self) -> str:
        """The name of the record of what was made of it; readers of the folder leave out names that begin so."""
        return f"_{self.stem}.json"


@dataclass(frozen=True)
class Made(Listed):
    """What became of a partition: a file of the output, and what its rows do not tell."""

    number: int
    key: str
    job: str  # the digest of all that was prepared
    seen: int  # rows of the partition
    ids: list[int] | None  # the smallest and the largest, where they are numbers
    schema: str  # of its file; "" where there is none
    packed_notes: str  # in JSON: as text, those of many files take a fifth of the memory

    @property
    def notes(self) -> dict[str, Any]:
        """What the job needs to know of all files."""
        notes: dict[str, Any] = json.loads(self.packed_notes)
        return notes

    @property
    def stem(self) -> str:
        return stem(self.number, self.key)


class Work(Protocol):
    """A pure function of partitions that can be sent anywhere: the JSON of a partition → the JSON of what became of it."""

    def __call__(self, partition: str) -> str: ...


@dataclass(frozen=True)
class NewFile:
    """The output for a partition, as a file of this machine."""

    path: Path | None  # None where there are no rows
    seen: int
    notes: dict[str, Any]


class Maker(Protocol):
    """Makes the output for a partition, as a file in a folder for the time being; it can be sent anywhere."""

    @property
    def option(self) -> str: ...  # that names the files

    def __call__(self, partition: Partition, scratch: Path) -> NewFile: ...


@dataclass(frozen=True)
class MakeFile:
    """The work of making the files of the output."""

    maker: Maker
    job: str
    output: str

    def __call__(self, partition: str) -> str:
        return answered(partition, self._make)

    def _make(self, partition: Partition) -> dict[str, Any]:
        place = place_of(self.output)
        with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
            known = read_made(place, partition, self.job)
            if known is not None and _is_counted(place, known, Path(folder)):
                return asdict(known)
            made, path = self.built(partition, Path(folder))
            place.put_bytes(partition.record, sealed.seal(asdict(made)))  # first: no file without a record
            if path is not None:
                place.put(made.file, path)
        return asdict(made)

    def built(self, partition: Partition, scratch: Path) -> tuple[Made, Path | None]:
        """What becomes of a partition, and its file on this machine."""
        new, about = self.maker(partition, scratch), (partition.number, partition.key, self.job)
        notes = json.dumps(new.notes)
        if new.path is None:
            return Made("", 0, "", 0, *about, new.seen, None, "", notes), None
        rows, ids, schema = _look_at(new.path, scratch, f"{self.maker.option} {partition.files[0]}")
        sha256 = store.digest_file(new.path)
        name = f"{partition.stem}-{sha256[:16]}.parquet"
        return Made(name, new.path.stat().st_size, sha256, rows, *about, new.seen, ids, schema, notes), new.path


@dataclass(frozen=True)
class KeepFile:
    """The work of looking at the files of a finished job, and of making those again that are not as they were."""

    make: MakeFile

    def __call__(self, partition: str) -> str:
        return answered(partition, self._keep)

    def _keep(self, partition: Partition) -> dict[str, Any]:
        place, listed = place_of(self.make.output), partition.listed
        assert listed is not None
        with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
            if is_whole(place, listed, Path(folder)):
                return {"again": False}
            made, path = self.make.built(partition, Path(folder))
            if (made.file, made.size, made.sha256, made.rows) != (listed.file, listed.size, listed.sha256, listed.rows):
                raise StorageError(
                    "a file that is not whole becomes another one when it is made again",
                    where=f"{self.make.output}/{listed.file}",
                    found=f"{made.rows} rows, SHA-256 {made.sha256}",
                    expected=f"{listed.rows} rows, SHA-256 {listed.sha256}, as the manifest lists it",
                    remedy="install the versions of numpy and pyarrow that made it, or choose another output",
                )
            if path is not None:
                place.put(made.file, path)
        return {"again": True}


def read_made(place: Place, partition: Partition, job: str) -> Made | None:
    """What was made of a partition, if it is known."""
    made = made_of(place.read(partition.record))
    return made if made is not None and (made.number, made.key, made.job) == (partition.number, partition.key, job) else None


def made_of(content: bytes | None) -> Made | None:
    """What a record says; None where it is damaged or none of ours."""
    record = sealed.unseal(content or b"")
    return Made(**record) if isinstance(record, dict) and {*record} == {each.name for each in fields(Made)} else None


def is_whole(place: Place, listed: Listed, scratch: Path) -> bool:
    """Whether a file of the output is as it was made."""
    if not listed.file:
        return True
    return place.has(listed.file) and store.is_intact(place.local(listed.file, scratch), (listed.size, listed.sha256))


def _is_counted(place: Place, made: Made, scratch: Path) -> bool:
    """Whether a file of the output is as it was made, with the rows and ids that its record tells."""
    if not is_whole(place, made, scratch):
        return False
    found = _look_at(place.local(made.file, scratch), scratch, made.file) if made.file else (0, None, "")
    return found == (made.rows, made.ids, made.schema)


def _look_at(path: Path, scratch: Path, where: str) -> tuple[int, list[int] | None, str]:
    """The rows of a file of the output, the range of their ids, where those are numbers, each of which must be there once,
    and the columns."""
    with path.open("rb") as file:
        part = parquet_file(file)
        check, rows, ends = IdCheck(scratch, part.metadata.num_rows), 0, list[int]()
        for batch in part.iter_batches(ROWS, columns=["id"], use_threads=False):
            check.add(batch["id"])
            rows += batch.num_rows
            if pa.types.is_integer(batch["id"].type):
                ends += pc.min_max(batch["id"]).as_py().values()
        check.finish(lambda: (batch["id"] for batch in part.iter_batches(ROWS, columns=["id"])), where)
        schema = str(part.schema_arrow.remove_metadata())
    return rows, [min(ends), max(ends)] if ends else None, schema


@contextmanager
def local_files(partition: Partition, folder: Path, option: str) -> Iterator[list[str]]:
    """The files of a partition as files of this machine; errors name them as they were given."""
    names: dict[str, str] = {}
    for number, file in enumerate(partition.files):
        path = folder / f"{number}-{Path(file).name}" if is_remote(file) else Path(file)
        if is_remote(file):
            fetch(file, path)
        names[str(path)] = file
    with naming(names):
        yield [*names]
    refuse_changed(partition, "/".join(version_of(file, option) for file in partition.files))


def version_of(file: str, option: str) -> str:
    """What tells the version of a file: size and time of change, or what a store says."""
    if is_remote(file):
        return remote_version(file)
    size, time = stamp(Location(option, Path(file)))
    return f"{size}, {time}"


def refuse_changed(partition: Partition, version: str) -> None:
    """Raise where the files of a partition are not those that the job was started with."""
    if version != partition.version:
        found, expected = version[:200], partition.version[:200]
        remedy = "wait until all files are complete, then run again: what is done is kept"
        what = "the file changed after the job was started"
        raise unreadable(what, partition.files[0], found, expected, remedy)


@contextmanager
def local_tables(partition: Partition, folder: Path, option: str) -> Iterator[tuple[Table, ...]]:
    """The tables of a partition, which have ids."""
    with local_files(partition, folder, option) as files:
        tables = open_tables(files, option=option)
        if any(table.counts_rows for table in tables):
            raise no_ids(f"{option} {files[0]}")
        yield tables


def no_ids(where: str) -> InputError:
    """The error for a file whose rows would be counted."""
    found, remedy = "row numbers, which begin again in every file", "save the ids in every file, as id"
    return bad_input("there are no ids in this file", where, found, "ids", remedy)


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Errors in the block name files as they were given, by the paths that they have here."""
    try:
        yield
    except WdistillError as error:
        if not names:
            raise
        said = {word: getattr(error, word) for word in WORDS}
        for path, file in names.items():
            said = {word: text.replace(path, file) for word, text in said.items()}
        raise type(error)(said.pop("what"), **said) from None


# between processes ----------------------------------------------------------------------------------------------------


def answered(line: str, work: Callable[[Partition], dict[str, Any]]) -> str:
    """What the work returns; an error of ours is an answer too, so that no engine tries again what cannot succeed."""
    given = json.loads(line)
    listed = None if given["listed"] is None else Listed(**given["listed"])
    partition = Partition(given["number"], tuple(given["files"]), given["version"], given["key"], listed)
    try:
        return json.dumps({"number": partition.number, "made": work(partition)})
    except WdistillError as error:
        return json.dumps({"number": partition.number, "error": in_words(error)})


def asked(partition: Partition) -> str:
    return json.dumps(asdict(partition))


def result_of(answer: str) -> tuple[int, dict[str, Any]]:
    """The number of the partition and what became of it; raises the error that ended it."""
    given = json.loads(answer)
    if "error" in given:
        raise from_words(given["error"])
    return given["number"], given["made"]


def sequence_of(listed: Sequence[dict[str, Any]]) -> list[Listed]:
    """The files that a manifest lists."""
    return [Listed(**{each.name: part[each.name] for each in fields(Listed)}) for part in listed]
