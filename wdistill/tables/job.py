"""A job that makes its output part by part: streaming, resumable, all or nothing.

Finished parts wait in a folder beside the output (parts.py) until all are there; then the output appears in one piece and
the folder is removed. A part covers whole input files, so that a job that was interrupted makes only the missing parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from wdistill.core import checks, store
from wdistill.core.errors import FileError, InputError, empty
from wdistill.core.progress import Progress, progress, say
from wdistill.tables.content import ContentDigest
from wdistill.tables.formats.parquet import parquet_file
from wdistill.tables.join import IdCheck
from wdistill.tables.output import Assembly, Sink, open_output, parquet_writer, rows_at_once, scratch_writer
from wdistill.tables.parts import JobFolder, Part, open_folder, refuse_foreign

PART = 1 << 18  # rows after which every part ends with the file that is being read


@dataclass(frozen=True)
class Piece:
    """The output for some rows of one input file."""

    file: int  # index into the job's files
    seen: int  # rows of the input
    rows: pa.RecordBatch  # of the output, which may be fewer
    counts: Mapping[str, int]  # for the record


class PartsJob(Protocol):
    """A prepared job: the input files in their order, and what makes the output of any of them."""

    @property
    def doing(self) -> str: ...  # as the progress shows it

    @property
    def where(self) -> str: ...  # the input, in messages

    @property
    def files(self) -> Sequence[Path]: ...

    @property
    def stamps(self) -> Sequence[tuple[int, int]]: ...  # what changes when a file does: size and time, for each file

    @property
    def rows(self) -> int | None: ...  # of the input, where that is known

    @property
    def read(self) -> Sequence[Path]: ...  # all files that are read, also those that are not in that order

    @property
    def identity(self) -> Mapping[str, Any]: ...  # what finished parts depend on besides the files that each part names

    @property
    def part_rows(self) -> int: ...  # after so many a part ends with the file that is being read

    @property
    def overlap(self) -> int: ...  # rows of which one is made with the others, also across files; 1 where none is

    @property
    def escape_formulas(self) -> bool: ...  # in an output of text

    def begin(
        self, folder: JobFolder, keep: Callable[[], None]
    ) -> None: ...  # before any part; `keep` what is in the folder

    def pieces(self, folder: JobFolder, start: int, stop: int) -> Iterator[Piece]: ...  # of files start … stop

    def appended(self) -> pa.RecordBatch | None: ...  # rows of the output that come last, such as gold rows

    def review(
        self, batches: Iterator[pa.RecordBatch], parts: Sequence[Part], messages: list[str]
    ) -> dict[
        str, Any
    ]: ...  # the record, after a look at all rows of the output; when they end, their ids have been checked


def run_job(output: Path, prepare: Callable[[], PartsJob]) -> dict[str, Any]:
    """Prepare a job, make its parts and its output; returns the record that the output carries."""
    folder = output.with_name(f"{output.name}.parts")
    refuse_foreign(folder)
    with checks.collect_warnings() as messages:
        job = prepare()
        refuse_foreign(folder, job.read)
        with store.lock(folder):
            parts = open_folder(folder, job.identity)
            try:
                _stream(job, parts, messages)
            except (InputError, FileError):
                if not parts.parts:
                    parts.clear()
                raise
            try:
                record = _assemble(job, parts, output, messages)
            except InputError:  # repeated ids: no part of this is worth keeping
                parts.clear()
                raise
            parts.clear()
    return record


def make_part(job: PartsJob, folder: JobFolder) -> Part | None:
    """All rows of a job as one part that stays, in a folder of its own; None where there are none."""
    job.begin(folder, lambda: None)
    return next(_new_parts(job, folder, 0, len(job.files), lambda rows: None, parquet_writer), None)


def counts_of(parts: Sequence[Part]) -> Counter[str]:
    """What was counted in all parts."""
    counts = Counter[str]()
    for part in parts:
        counts.update(part.counts)
    return counts


def _stream(job: PartsJob, folder: JobFolder, messages: list[str]) -> None:
    """Make all parts that are not finished; warnings so far are kept in the record for a run that resumes."""

    def keep() -> None:
        folder.warnings = list(messages)
        folder.commit()

    job.begin(folder, keep)
    missing = _missing(job, folder)
    if folder.parts:
        done = sum(part.next - part.start for part in folder.parts)
        say(f"resuming after {done} finished files of an earlier run")
    with progress(job.doing, job.rows) as tick:
        tick(sum(part.seen for part in folder.parts))
        for start, stop in missing:
            for part in _new_parts(job, folder, start, stop, tick, scratch_writer):
                folder.parts = sorted([*folder.parts, part], key=lambda part: part.start)
                keep()


def _missing(job: PartsJob, folder: JobFolder) -> list[tuple[int, int]]:
    """Files that no part covers, as first and last + 1.

    Once an input file has changed, it and all files after it are done again, and those before it that end in a batch that
    goes on in it.
    """
    for number, part in enumerate(folder.parts):
        if part.stamps != [list(stamp) for stamp in job.stamps[part.start : part.next]]:
            first = job.files[min(part.start, len(job.files) - 1)]
            say(f"{first} or a file after it has changed: {job.doing} again from there")
            while number and sum(part.seen for part in folder.parts[:number]) % job.overlap:
                number -= 1
            folder.parts = folder.parts[:number]
            break
    ends = [0, *(part.next for part in folder.parts)]
    starts = [*(part.start for part in folder.parts), len(job.files)]
    return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]


def _new_parts(
    job: PartsJob, folder: JobFolder, start: int, stop: int, tick: Progress, writer_of: Callable[[BinaryIO, pa.Schema], Any]
) -> Iterator[Part]:
    """Process file after file; a part ends with a file once it is large enough."""
    pieces = job.pieces(folder, start, stop)
    ahead = next(pieces, None)
    while ahead is not None:
        name = f"part-{start:06d}.parquet"
        seen, kept, counts = 0, 0, Counter[str]()
        with folder.writing(name) as file, writer_of(file, ahead.rows.schema) as writer:
            while ahead is not None:
                piece = ahead
                if piece.rows.num_rows:
                    writer.write_batch(piece.rows)
                    counts.update(piece.counts)
                seen, kept = seen + piece.seen, kept + piece.rows.num_rows
                tick(piece.seen)
                ahead = next(pieces, None)
                if ahead is not None and ahead.file != piece.file and seen >= min(PART, job.part_rows):
                    break
        end = stop if ahead is None else ahead.file
        stamps = [list(stamp) for stamp in job.stamps[start:end]]
        yield Part(start, end, stamps, seen, kept, dict(counts), **folder.file(name))
        start = end


def _assemble(job: PartsJob, folder: JobFolder, output: Path, messages: list[str]) -> dict[str, Any]:
    """Write the output in one piece, checking the ids of all parts on the way."""
    parts = folder.parts
    appended = job.appended()
    total = sum(part.kept for part in parts)
    if total == 0:
        raise empty("no unlabeled rows", job.where, "at least 1 row", "name the table with the unlabeled rows")
    with (folder.folder / parts[0].file).open("rb") as file:
        schema = parquet_file(file).schema_arrow.remove_metadata()

    def batches(columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        for part in parts:
            with (folder.folder / part.file).open("rb") as file:  # pyarrow cannot say every name in every locale
                table = parquet_file(file)
                yield from table.iter_batches(rows_at_once(schema), columns=columns, use_threads=False)
        if appended is not None:
            yield appended if columns is None else appended.select(columns)

    scratch = folder.scratch("scratch")
    store.make_folder(scratch)
    rows = total + (appended.num_rows if appended else 0)
    check, content = IdCheck(scratch, rows), ContentDigest()

    def written(sink: Sink) -> Iterator[pa.RecordBatch]:
        """All batches on their way into the output, once the ids have been looked at."""
        with progress("writing", rows) as tick:
            for batch in batches():
                check.add(batch["id"])
                content.add(batch)
                sink.add(batch)
                yield batch
                tick(batch.num_rows)
        check.finish(lambda: (batch["id"] for batch in batches(["id"])), job.where)

    with open_output(output, folder.scratch("output"), Assembly(schema, rows, batches, job.escape_formulas)) as sink:
        record = {**job.review(written(sink), parts, messages), "sha256": content.hexdigest()}
        sink.finish(record)
    return record
