"""A job in partitions by any engine, from prepared state to a finished folder: the same bytes, whatever comes between.

Every partition is made by a process of the engine (partition.py). When all are there, their ids are compared, and the
manifest is written. Of a job that is finished, the files are looked at, and those that are not whole are made again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

import wdistill
from wdistill.core import store
from wdistill.core.errors import StorageError, bad_input, bad_value, empty
from wdistill.core.places import Place, place_of
from wdistill.core.progress import progress, say
from wdistill.engines.folder import OutputFolder
from wdistill.engines.partition import (
    ROWS,
    KeepFile,
    Listed,
    Made,
    MakeFile,
    Maker,
    Partition,
    Work,
    asked,
    result_of,
    sequence_of,
)
from wdistill.tables.formats.parquet import parquet_file
from wdistill.tables.join import IdCheck
from wdistill.tables.manifest import read_manifest, write_manifest

Engine = Callable[[Work, Sequence[str]], Iterable[str]]  # the answers to all questions, in any order, some perhaps twice
Files = Sequence[
    tuple[tuple[str, ...], str]
]  # of every partition its files, one of each table, and what tells their versions


class PartitionedJob(Protocol):
    """A prepared job: what makes the output for any partition, and what is said of them all."""

    @property
    def doing(self) -> str: ...  # as the progress shows it

    @property
    def maker(self) -> Maker: ...

    @property
    def state(self) -> str: ...  # the digest of all that the output depends on besides the partitions

    @property
    def files(self) -> Files: ...

    def expected_rows(self, made: Sequence[Made]) -> int | None: ...  # of the output; None where rows may be left out

    def record(self, made: Sequence[Made], messages: list[str]) -> dict[str, Any]: ...  # for the manifest; it may warn


def run_partitions(job: PartitionedJob, output: str, engine: Engine, messages: list[str]) -> dict[str, Any]:
    """Make every partition, and finish the folder; returns the record in the manifest. `messages` are warnings so far."""
    place, partitions = place_of(output), partitions_of(job.files, job.state)
    folder, make = OutputFolder(place, output, job.state, partitions), MakeFile(job.maker, job.state, output)
    known = read_manifest(place, output)
    if known is not None:
        _check_same(known, partitions, job.state, output)
        _keep(engine, make, folder, known)
        return known
    folder.refuse_others()
    made = [Made(**record) for record in run_engine(engine, make, partitions, job.doing)]
    _check_columns(made, job)
    _check_rows(place, made, job)
    record = {**job.record(made, messages), "state_sha256": job.state, "parts": _listed(partitions, made)}
    folder.sweep({each.file for each in made})
    write_manifest(place, record)
    written = read_manifest(place, output)  # ours, or that of another process that was first
    assert written is not None
    _check_same(written, partitions, job.state, output)
    folder.remove_records()
    return written


def run_engine(engine: Engine, work: Work, partitions: Sequence[Partition], what: str) -> list[dict[str, Any]]:
    """What became of every partition, in their order; two answers to one question must be the same."""
    found: dict[int, dict[str, Any]] = {}
    with progress(what, len(partitions), "files") as tick:
        for answer in engine(work, [asked(partition) for partition in partitions]):
            number, result = result_of(answer)
            if found.setdefault(number, result) != result:
                raise StorageError(
                    "two attempts at one file gave different results",
                    where=partitions[number].files[0],
                    found=f"{found[number]} and {result}"[:500],
                    expected="the same bytes from every process",
                    remedy="install the same versions of wdistill, numpy and pyarrow on all machines, then run again",
                )
            tick(1)
    missing = [partition for partition in partitions if partition.number not in found]
    if missing:
        raise StorageError(
            "the engine lost files",
            where=missing[0].files[0],
            found=f"no answer for {len(missing)} of {len(partitions)} files",
            expected="an answer for every file",
            remedy="run again: what is done is kept",
        )
    return [found[partition.number] for partition in partitions]


def partitions_of(files: Files, state: str) -> list[Partition]:
    """The partitions of a job; the key of each changes with the job and with the versions of its files."""
    job = f"{wdistill.__version__} {state}"
    return [
        Partition(number, paths, version, store.digest(f"{job} {version}".encode())[:16])
        for number, (paths, version) in enumerate(files)
    ]


def _check_same(known: Mapping[str, Any], partitions: Sequence[Partition], state: str, output: str) -> None:
    """Refuse a folder that another job has finished."""
    if known["state_sha256"] != state or [part["key"] for part in known["parts"]] != [each.key for each in partitions]:
        found, expected = "the output for other rows, gold rows or options", "an empty folder, or the same job"
        raise bad_value("the output folder holds another result", output, found, expected, "name another folder")


def _keep(engine: Engine, make: MakeFile, folder: OutputFolder, known: Mapping[str, Any]) -> None:
    """Look at the files of a finished job, make those again that are not whole, and remove what a killed process left."""
    folder.refuse_others()
    listed = sequence_of(known["parts"])
    partitions = [replace(partition, listed=each) for partition, each in zip(folder.partitions, listed, strict=True)]
    again = sum(result["again"] for result in run_engine(engine, KeepFile(make), partitions, "checking"))
    folder.sweep({each.file for each in listed})
    folder.remove_records()
    files = 1 + sum(bool(each.file) for each in listed)  # with the manifest, as `verify` counts them
    done = f"damaged or missing, and made anew: {again} of {files} files" if again else "nothing was left to do"
    say(f"{folder.where} was finished before: {done}")


def _listed(partitions: Sequence[Partition], made: Sequence[Made]) -> list[dict[str, Any]]:
    """What the manifest says of the files."""
    return [
        {"input": partition.files[0], "key": partition.key, **asdict(Listed(each.file, each.size, each.sha256, each.rows))}
        for partition, each in zip(partitions, made, strict=True)
    ]


def _check_columns(made: Sequence[Made], job: PartitionedJob) -> None:
    """Refuse files whose rows become columns of other types than those of the first, such as ids that are text."""
    files = [each for each in made if each.file]
    for each in files:
        if each.schema != files[0].schema:
            where = f"{job.maker.option} {job.files[each.number][0][0]}"
            found, expected = (" ".join(one.schema.split()) for one in (each, files[0]))
            first, remedy = job.files[files[0].number][0][0], "write all files with the same columns and types"
            raise bad_input("the files of this table differ", where, found, f"{expected}, as in {first}", remedy)


# exactly one row for every id -----------------------------------------------------------------------------------------


def _check_rows(place: Place, made: Sequence[Made], job: PartitionedJob) -> None:
    """As many rows as were read, and every id once: told by the ranges of the ids where those do not overlap, else by all
    ids, read once more."""
    where = f"{job.maker.option} {job.files[0][0][0]}"
    rows, expected = sum(each.rows for each in made), job.expected_rows(made)
    if rows == 0:
        raise empty("no unlabeled rows", where, "at least 1 row", "name the table with the rows that the teacher labeled")
    if expected is not None and rows != expected:
        raise _lost(where, f"{rows} rows", f"{expected}, one for each that was read")
    ranges = sorted(each.ids for each in made if each.ids is not None)
    numbered = len(ranges) == sum(each.rows > 0 for each in made)
    if numbered and all(one[1] < other[0] for one, other in pairwise(ranges)):
        return
    with tempfile.TemporaryDirectory(prefix="wdistill-") as folder, progress("checking ids", rows) as tick:
        check, counted = IdCheck(Path(folder), rows), 0
        for ids in _all_ids(place, made, Path(folder)):
            check.add(ids)
            counted += len(ids)
            tick(len(ids))
        if counted != rows:
            raise _lost(where, f"{counted} rows in the files", f"{rows}, as were written")
        check.finish(lambda: _all_ids(place, made, Path(folder)), where)


def _lost(where: str, found: str, expected: str) -> StorageError:
    remedy = "remove the folder, and run again"
    return StorageError("rows of the output are missing", where=where, found=found, expected=expected, remedy=remedy)


def _all_ids(place: Place, made: Sequence[Made], folder: Path) -> Iterator[pa.Array]:
    for each in made:
        if each.file:
            with place.local(each.file, folder).open("rb") as file:
                batches = parquet_file(file).iter_batches(ROWS, columns=["id"])
                yield from (batch["id"] for batch in batches)
