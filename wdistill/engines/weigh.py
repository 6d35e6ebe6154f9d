"""`wdistill weigh --engine`: many files of rows to a folder of weights, by any engine, with the same bytes.

The rule or the targets are fitted here; the unlabeled rows are read by the engine's processes, one partition at a time. A
partition is one file of each table that --unlabeled names: the first file of one belongs to the first file of the others.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import wdistill
from wdistill.core import checks, sealed, store
from wdistill.core.errors import StorageError, WdistillWarning, bad_value, empty
from wdistill.core.places import Place, fetch, is_remote, place_of, remote_files
from wdistill.core.progress import progress, say
from wdistill.engines.partition import OPTION, Made, MeasureEntropy, Partition, Weigh, Work, asked, result_of
from wdistill.tables.formats.schema import Location
from wdistill.tables.formats.table import files_of, stamp
from wdistill.tables.join import IdCheck
from wdistill.tables.manifest import read_manifest, write_manifest
from wdistill.tables.options import Options, Paths, check_options, takes_mean
from wdistill.tables.portable import pack_job, pack_source
from wdistill.tables.rows import TableJob
from wdistill.tables.weigh import (
    fit,
    mean_of_labeled,
    open_rows,
    prepare_job,
    record_of,
    warn_if_nothing_changes,
    warn_of_gold,
)
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.rules import EntropyMean

Engine = Callable[[Work, Sequence[str]], Iterable[str]]  # the answers to all questions, in any order, some perhaps twice
Files = Sequence[
    tuple[tuple[str, ...], str]
]  # of every partition its files, one of each table, and what tells their versions
RECORD = re.compile(r"_(part-[0-9]{6}-[0-9a-f]{16})\.json")
PART = re.compile(r"(part-[0-9]{6}-[0-9a-f]{16})-[0-9a-f]{16}\.parquet")  # its record has the same name up to there


def weigh_partitions(paths: Paths, output: str, options: Options, engine: Engine) -> dict[str, Any]:
    """Run the whole job; returns the record in the manifest."""
    check_options(options, paths)
    files = _partition_files(paths.unlabeled)
    with checks.collect_warnings(WdistillWarning) as messages, _on_this_machine(paths, files[0][0]) as here:
        job = _prepare(here, options, engine, files)
        state = pack_job(job)
        place, partitions = place_of(output), _partitions(files, state)
        known = read_manifest(place, output)
        if known is not None:
            _check_same(known, partitions, state, output)
            say(f"{output} was finished before: nothing was left to do")
            return known
        _refuse_foreign(place, output)
        made = [Made(**record) for record in run_engine(engine, Weigh(state, output), partitions, "weighing")]
        return _finish(place, output, job, state, partitions, made, messages)


def run_engine(engine: Engine, work: Work, partitions: Sequence[Partition], what: str) -> list[dict[str, Any]]:
    """What became of every partition, in their order; two answers to one question must be the same."""
    found: dict[int, dict[str, Any]] = {}
    with progress(what, len(partitions), "files") as tick:
        for answer in engine(work, [asked(partition) for partition in partitions]):
            number, result = result_of(answer)
            if found.setdefault(number, result) != result:
                raise StorageError(
                    "two attempts at one file gave different results",
                    where=f"{OPTION} {partitions[number].files[0]}",
                    found=f"{found[number]} and {result}"[:500],
                    expected="the same bytes from every process",
                    remedy="install the same versions of wdistill, numpy and pyarrow on all machines, then run again",
                )
            tick(1)
    missing = [partition for partition in partitions if partition.number not in found]
    if missing:
        raise StorageError(
            "the engine lost files",
            where=f"{OPTION} {missing[0].files[0]}",
            found=f"no answer for {len(missing)} of {len(partitions)} files",
            expected="an answer for every file",
            remedy="run again: what is done is kept",
        )
    return [found[partition.number] for partition in partitions]


# what is read ---------------------------------------------------------------------------------------------------------


def _partition_files(named: Sequence[str]) -> Files:
    """The files of every partition: one of each table."""
    tables = [_table_files(text) for text in named]
    for text, table in zip(named[1:], tables[1:], strict=True):
        if len(table) != len(tables[0]):
            found, expected = (
                f"{len(table)} files",
                f"{len(tables[0])}, as in {named[0]}: with --engine, file belongs to file",
            )
            remedy = "write both tables in the same partitions, or join them first"
            raise bad_value("tables of different numbers of files", f"{OPTION} {text}", found, expected, remedy)
    return [
        (tuple(path for path, _ in files), "/".join(version for _, version in files)) for files in zip(*tables, strict=True)
    ]


def _table_files(text: str) -> list[tuple[str, str]]:
    """The files of a table, each with what tells its version."""
    if is_remote(text):
        return remote_files(text)
    if re.fullmatch(r"\w+=.*\.npy", text) or text.endswith(".npy"):
        remedy = "write a table with ids, such as parquet"
        raise bad_value("arrays have no ids", f"{OPTION} {text}", "an npy array", "files with ids", remedy)
    stamps = ((path, stamp(Location(OPTION, path))) for path in files_of(text, OPTION))
    return [(str(path.absolute()), f"{size}, {time}") for path, (size, time) in stamps]


@contextmanager
def _on_this_machine(paths: Paths, first: Sequence[str]) -> Iterator[Paths]:
    """The gold and labeled rows, and the first partition, as files of this machine."""
    with tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
        count = 0

        def here(text: str) -> list[str]:
            nonlocal count
            if not is_remote(text):
                return [text]
            copies = []
            for address, _ in remote_files(text):
                copies.append(str(Path(folder) / f"{count}-{address.rpartition('/')[2]}"))
                fetch(address, Path(copies[-1]))
                count += 1
            return copies

        validation, unlabeled, labeled = (
            [copy for text in group for copy in here(text)] for group in (paths.validation, first, paths.labeled)
        )
        yield Paths(validation, unlabeled, labeled, paths.settings)


def _prepare(here: Paths, options: Options, engine: Engine, files: Files) -> TableJob:
    """Fit what the method needs: on the gold rows, and on what the engine measures of the others."""
    if options.method == "best":
        if len(files) > 1:
            say(f"the gain is estimated on the rows of {files[0][0][0]}")
        return prepare_job(here, options)
    opened = open_rows(here, options)
    mean = None
    if takes_mean(options):
        state = pack_source(opened.source)
        measured = run_engine(engine, MeasureEntropy(state), _partitions(files, state), "mean entropy")
        mean = reduce(add, (EntropyMean(**record) for record in measured), mean_of_labeled(opened))
    return fit(opened, mean)


def _partitions(files: Files, state: bytes) -> list[Partition]:
    job = f"{wdistill.__version__} {store.digest(state)}"
    keys = (store.digest(f"{job} {version}".encode())[:16] for _, version in files)
    return [Partition(number, *each) for number, each in enumerate(zip((paths for paths, _ in files), keys, strict=True))]


# what is written ------------------------------------------------------------------------------------------------------


def _refuse_foreign(place: Place, output: str) -> None:
    """Refuse a folder that holds something that is not ours."""
    names = place.names()
    known = {match[1] for match in map(RECORD.fullmatch, names) if match}
    parts = {name: match[1] for name, match in zip(names, map(PART.fullmatch, names), strict=True) if match}
    foreign = [name for name in names if not RECORD.fullmatch(name) and parts.get(name) not in known]
    if foreign:
        found, expected = ", ".join(foreign[:5]), "an empty folder, or parts of the same job"
        raise bad_value("the output folder holds something else", output, found, expected, "name another folder")


def _check_same(known: Mapping[str, Any], partitions: Sequence[Partition], state: bytes, output: str) -> None:
    """Refuse a folder that another job has finished."""
    if known["state_sha256"] != store.digest(state) or [part["key"] for part in known["parts"]] != [
        partition.key for partition in partitions
    ]:
        found, expected = "the weights of other rows, gold rows or options", "an empty folder, or the same job"
        raise bad_value("the output folder holds another result", output, found, expected, "name another folder")


def _finish(
    place: Place,
    output: str,
    job: TableJob,
    state: bytes,
    partitions: Sequence[Partition],
    made: Sequence[Made],
    messages: list[str],
) -> dict[str, Any]:
    """Check the ids of all parts, write the manifest, and remove what it does not list."""
    rows = sum(each.rows for each in made)
    if rows == 0:
        remedy = "name the table with the rows that the teacher labeled"
        raise empty("no unlabeled rows", f"{OPTION} {partitions[0].files[0]}", "at least 1 row to weigh", remedy)
    _check_ids(place, made, partitions)
    counts = sum((Counter(each.counts) for each in made), Counter[str]())
    histogram = reduce(add, (Histogram(**{**each.histogram, "counts": tuple(each.histogram["counts"])}) for each in made))
    for text in dict.fromkeys(text for each in made for text in each.warnings):
        checks.warn(text)
    for column in sorted({column for each in made for column in each.corrections}):
        job.source.corrections[column] = max(each.corrections.get(column, 0.0) for each in made)
    job.source.warn_of_scaling()
    warn_of_gold(job.source, counts)
    warn_if_nothing_changes(job, histogram)
    listed = ("file", "size", "sha256", "rows")
    parts = [
        {"input": partition.files[0], "key": partition.key, **{name: getattr(each, name) for name in listed}}
        for partition, each in zip(partitions, made, strict=True)
    ]
    record = record_of(job, counts, rows, len(partitions), histogram, list(messages))
    record = {**record, "state_sha256": store.digest(state), "parts": parts}
    _sweep(place, {each.file for each in made})
    write_manifest(place, record)
    written = read_manifest(place, output)  # ours, or that of another process that was first
    assert written is not None
    _check_same(written, partitions, state, output)
    _remove_records(place)
    return written


def _check_ids(place: Place, made: Sequence[Made], partitions: Sequence[Partition]) -> None:
    """Every id once: told by the ranges of the ids where those do not overlap, else by all ids, read once more."""
    ranges = sorted(each.ids for each in made if each.ids is not None)
    numbered = len(ranges) == sum(each.rows > 0 for each in made)
    if numbered and all(one[1] < other[0] for one, other in pairwise(ranges)):
        return
    rows = sum(each.rows for each in made)
    with tempfile.TemporaryDirectory(prefix="wdistill-") as folder, progress("checking ids", rows) as tick:
        check = IdCheck(Path(folder), rows)
        for ids in _all_ids(place, made, Path(folder)):
            check.add(ids)
            tick(len(ids))
        check.finish(lambda: _all_ids(place, made, Path(folder)), f"{OPTION} {partitions[0].files[0]}")


def _all_ids(place: Place, made: Sequence[Made], folder: Path) -> Iterator[pa.Array]:
    for each in made:
        if each.file:
            place.fetch(each.file, folder / "part")
            with (folder / "part").open("rb") as file:
                batches = pq.ParquetFile(file, page_checksum_verification=True).iter_batches(1 << 16, columns=["id"])
                yield from (batch["id"] for batch in batches)


def _sweep(place: Place, listed: set[str]) -> None:
    """Remove what killed processes left, and parts of earlier versions of the input: records of ours name them."""
    place.sweep()
    names = set(place.names())
    for name in sorted(name for name in names if RECORD.fullmatch(name)):
        record = sealed.unseal(place.read(name) or b"")
        if isinstance(record, dict) and record.get("file") in names - listed:
            place.remove(record["file"])


def _remove_records(place: Place) -> None:
    """The manifest has taken their place."""
    for name in place.names():
        if RECORD.fullmatch(name):
            place.remove(name)
