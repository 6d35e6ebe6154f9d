"""What is done to one partition of the unlabeled rows, by whichever process of whichever machine.

A partition is one file of each table. Its rows become one file of the output, whose name carries its SHA-256, and a record
that names it. Doing it twice does no harm: the second time the record is found, or the same bytes are written again. So an
engine may retry, reorder, and run the same partition in two places at once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wdistill.core import checks, errors, sealed, store
from wdistill.core.errors import WdistillError, WdistillWarning, bad_input
from wdistill.core.places import Place, fetch, is_remote, place_of
from wdistill.tables.formats.table import Table, open_tables
from wdistill.tables.job import make_part
from wdistill.tables.join import IdCheck
from wdistill.tables.parts import JobFolder
from wdistill.tables.portable import unpack_job, unpack_source
from wdistill.tables.weigh import TableParts, mean_entropy
from wdistill.weights.diagnostics import Histogram

OPTION = "--unlabeled"
WORDS = ("what", "where", "found", "expected", "remedy")  # of an error


@dataclass(frozen=True)
class Partition:
    """One file of each table."""

    number: int
    files: tuple[str, ...]  # paths or addresses
    key: str  # of the job, and of these versions of these files

    @property
    def record(self) -> str:
        """The name of the record of what was made of it; readers of the folder leave out names that begin so."""
        return f"_part-{self.number:06d}-{self.key}.json"


@dataclass(frozen=True)
class Made:
    """What became of a partition: a file of the output, and what its rows do not tell."""

    number: int
    file: str  # "" where the partition has no rows
    size: int
    sha256: str
    seen: int
    rows: int
    ids: list[int] | None  # the smallest and the largest, where they are numbers
    counts: dict[str, int]
    histogram: dict[str, Any]
    corrections: dict[str, float]
    warnings: list[str]


class Work(Protocol):
    """A pure function of partitions that can be sent anywhere: the JSON of a partition → the JSON of what became of it."""

    def __call__(self, partition: str) -> str: ...


@dataclass(frozen=True)
class Weigh:
    """The work of weighing, or of correcting targets."""

    job: bytes  # of pack_job
    output: str

    def __call__(self, partition: str) -> str:
        return _answered(partition, self._make)

    def _make(self, partition: Partition) -> dict[str, Any]:
        place = place_of(self.output)
        known = read_made(place, partition)
        if known is not None and _is_whole(place, known):
            return asdict(known)
        with _local(partition) as (tables, scratch), checks.collect_warnings(WdistillWarning) as messages:
            job = self._on(tables)
            part = make_part(TableParts(job), JobFolder(scratch, {}, "0"))
            corrections = dict(job.source.corrections)
            if part is None:
                made = Made(partition.number, "", 0, "", 0, 0, None, {}, asdict(Histogram()), corrections, messages)
            else:
                path = scratch / part.file
                name = f"part-{partition.number:06d}-{partition.key}-{part.sha256[:16]}.parquet"
                ids, histogram = _ids_and_weights(path, scratch, f"{OPTION} {partition.files[0]}")
                found = (name, part.size, part.sha256, part.seen, part.kept, ids, part.counts, asdict(histogram))
                made = Made(partition.number, *found, corrections, messages)
            place.put_bytes(partition.record, sealed.seal(asdict(made)))  # first: no file without a record
            if part is not None:
                place.put(made.file, path)
        return asdict(made)

    @cached_property
    def _on(self) -> Callable[[Sequence[Table]], Any]:
        return unpack_job(self.job, "the job")

    def __reduce__(self) -> tuple[type[Weigh], tuple[bytes, str]]:
        return Weigh, (self.job, self.output)


@dataclass(frozen=True)
class MeasureEntropy:
    """The work of summing the teacher's entropies: exact, in any order."""

    source: bytes  # of pack_source

    def __call__(self, partition: str) -> str:
        return _answered(partition, self._measure)

    def _measure(self, partition: Partition) -> dict[str, Any]:
        with _local(partition) as (tables, _):
            source = unpack_source(self.source, "the job")(tables)
            return asdict(mean_entropy(source, source.columns["teacher"]))


def read_made(place: Place, partition: Partition) -> Made | None:
    """What was made of a partition, if it is known."""
    record = sealed.unseal(place.read(partition.record) or b"")
    return Made(**record) if isinstance(record, dict) and {*record} == {each.name for each in fields(Made)} else None


def _is_whole(place: Place, made: Made) -> bool:
    """Whether the file that was made is as it was made."""
    if not made.file:
        return True
    if not place.has(made.file):
        return False
    with tempfile.TemporaryDirectory(prefix="wdistill-") as scratch:
        path = Path(scratch) / "part"
        place.fetch(made.file, path)
        return store.is_intact(path, (made.size, made.sha256))


@contextmanager
def _local(partition: Partition) -> Iterator[tuple[tuple[Table, ...], Path]]:
    """The tables of a partition as files of this machine, and a scratch folder; errors name the files as they were given."""
    with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
        names: dict[str, str] = {}
        for number, file in enumerate(partition.files):
            path = Path(folder) / f"{number}-{Path(file).name}" if is_remote(file) else Path(file)
            if is_remote(file):
                fetch(file, path)
            names[str(path)] = file
        try:
            tables = open_tables([*names], option=OPTION)
            if any(table.counts_rows for table in tables):
                found, remedy = "row numbers, which begin again in every file", "save the ids in every file, as id"
                raise bad_input("there are no ids in this file", f"{OPTION} {partition.files[0]}", found, "ids", remedy)
            yield tables, Path(folder)
        except WdistillError as error:
            raise _renamed(error, names) from None


def _renamed(error: WdistillError, names: dict[str, str]) -> WdistillError:
    said = {word: getattr(error, word) for word in WORDS}
    for path, file in names.items():
        said = {word: text.replace(path, file) for word, text in said.items()}
    return type(error)(said.pop("what"), **said)


def _ids_and_weights(path: Path, scratch: Path, where: str) -> tuple[list[int] | None, Histogram]:
    """The range of the ids of a file of the output, where they are numbers; all weights; an error where ids are repeated."""
    with path.open("rb") as file:
        part = pq.ParquetFile(file)
        check, histogram, ends = IdCheck(scratch, part.metadata.num_rows), Histogram(), list[int]()
        for batch in part.iter_batches(1 << 16, columns=["id", "weight"], use_threads=False):
            check.add(batch["id"])
            histogram = histogram.plus(batch["weight"].to_numpy())
            if pa.types.is_integer(batch["id"].type):
                ends += pc.min_max(batch["id"]).as_py().values()
        check.finish(lambda: (batch["id"] for batch in part.iter_batches(1 << 16, columns=["id"])), where)
    return [min(ends), max(ends)] if ends else None, histogram


# between processes ----------------------------------------------------------------------------------------------------


def _answered(line: str, work: Callable[[Partition], dict[str, Any]]) -> str:
    """What the work returns; an error of ours is an answer too, so that no engine tries again what cannot succeed."""
    given = json.loads(line)
    partition = Partition(given["number"], tuple(given["files"]), given["key"])
    try:
        return json.dumps({"number": partition.number, "made": work(partition)})
    except WdistillError as error:
        said = {word: getattr(error, word) for word in WORDS}
        return json.dumps({"number": partition.number, "error": type(error).__name__, **said})


def asked(partition: Partition) -> str:
    return json.dumps(asdict(partition))


def result_of(answer: str) -> tuple[int, dict[str, Any]]:
    """The number of the partition and what became of it; raises the error that ended it."""
    given = json.loads(answer)
    if "error" in given:
        raise getattr(errors, given["error"])(given["what"], **{word: given[word] for word in WORDS[1:]})
    return given["number"], given["made"]
