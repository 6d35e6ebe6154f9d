"""The unlabeled rows of a table job: their columns read chunk by chunk, and joined by id in the order of the first table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from wdistill.core import checks
from wdistill.core.progress import progress
from wdistill.tables.formats.table import Chunk, Table
from wdistill.tables.gold import located_errors, text_tolerance
from wdistill.tables.join import Numbers, align, aligned
from wdistill.tables.options import Options
from wdistill.tables.parts import Aligned, JobFolder
from wdistill.weights.confidence import SMALL, Scan, compiles, scan
from wdistill.weights.evidence import Evidence

ENTRIES = 1 << 21  # predictions of one model held at once
TOGETHER = 1 << 17  # rows that are processed together: neighbours of many rows are found several times faster …
HELD = 32 << 20  # … unless their ids and numbers take more bytes


def chunk_rows(classes: int) -> int:
    """Rows read at once."""
    return max(256, min(1 << 17, ENTRIES // classes))


@dataclass(frozen=True, eq=False)
class UnlabeledTables:
    """The tables of the unlabeled rows, opened, and how their columns are read."""

    tables: tuple[Table, ...]  # the first gives the order of the rows
    options: Options
    evidence: Evidence  # of the validation rows
    columns: dict[str, Table]  # the columns that are needed, and the table that has each
    gold_ids: pa.Array | None = None  # where gold and unlabeled rows have ids that can be compared
    corrections: dict[str, float] = field(default_factory=dict)  # largest so far, of columns whose rows were scaled

    @property
    def classes(self) -> int:
        return int(self.evidence.validation_teacher.shape[1])

    def columns_in(self, table: Table) -> list[str]:
        return [column for column, home in self.columns.items() if home is table]

    def chunks(self, table: Table, start: int = 0) -> Iterator[Chunk]:
        """The needed columns of a table, from file `start` on."""
        names, truth = self.columns_in(table), self.options.truth
        matrices, vectors = [name for name in names if name != truth], [name for name in names if name == truth]
        return table.chunks(matrices, vectors, start=start, rows=chunk_rows(self.classes))

    def reading(self, table: Table) -> dict[str, Any]:
        """How a table's predictions are to be read, as arguments of `scan`; text does not tell how exact numbers are."""
        return {**self.evidence.reading, "tolerance": text_tolerance([table], self.classes)}

    def scan(self, table: Table, chunk: Chunk, column: str, *, entropy: bool = False) -> Scan:
        """One pass over a column of predictions, checked."""
        with located_errors(table, chunk, column):
            values = chunk.columns[column]
            checks.same_classes({"--validation": self.classes, column: values.shape[1]})
            scanned = scan(values, entropy=entropy, name=column, **self.reading(table))
        if scanned.correction > checks.tolerance(values.dtype.name, self.classes):
            self.corrections[column] = max(scanned.correction, self.corrections.get(column, 0.0))
        return scanned

    def warn_of_scaling(self) -> None:
        """Warn of columns whose rows were scaled, by the largest correction of each."""
        for column, correction in self.corrections.items():
            checks.warn(
                f"--unlabeled, column {column!r}: rows were scaled to sum to 1; the largest correction is {correction:.3g}"
            )


@dataclass(frozen=True)
class OutputBatch:
    """The output for a stretch of rows: those that all tables have, their columns, and counts for the record."""

    kept: np.ndarray  # (rows,) indices into the stretch
    columns: tuple[pa.Array, ...]  # after the id, in the order of the schema
    counts: dict[str, int]


class TableJob(Protocol):
    """A prepared job: the opened tables, and something fitted that makes the output of some rows."""

    @property
    def source(self) -> UnlabeledTables: ...

    @property
    def state(self) -> bytes: ...  # what was fitted: parts made with another state belong to another job

    @property
    def metadata(self) -> Mapping[str, Any]: ...  # what the record says about what was fitted

    def schema(self, ids: pa.DataType) -> pa.Schema: ...

    def numbers(self, table: Table, chunk: Chunk) -> Numbers: ...  # all that is needed of a chunk's rows, as columns (rows,)

    def process(self, kept: np.ndarray, numbers: Numbers) -> OutputBatch: ...  # rows of a stretch, and their numbers

    def appended(self) -> pa.RecordBatch | None: ...  # rows of the output that come last, such as gold rows


def order_of(table: Table) -> str:
    """What the order of a table's rows depends on."""
    return json.dumps([[str(path), *stamp] for path, stamp in zip(table.files, table.stamps, strict=True)])


def align_table(job: TableJob, folder: JobFolder, number: int) -> Aligned:
    """Bring the numbers of another table's rows into the order of the first, on disk."""
    base, table = job.source.tables[0], job.source.tables[number]

    def ids() -> Iterator[pa.Array]:
        with progress("reading ids", base.rows) as tick:
            for chunk in base.chunks():
                tick(len(chunk.ids))
                yield chunk.ids

    def numbers() -> Iterator[tuple[pa.Array, Numbers]]:
        with progress(f"reading {table.files[0].name}", table.rows) as tick:
            for chunk in job.source.chunks(table):
                yield chunk.ids, job.numbers(table, chunk)
                tick(len(chunk.ids))

    names, allow_subset = (str(base.files[0]), str(table.files[0])), job.source.options.allow_subset
    target, scratch = folder.scratch(f"aligned-{number}"), folder.scratch("scratch")
    columns, files = align(target, scratch, ids(), numbers(), names, allow_subset)
    return Aligned(order_of(base), columns, files)


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows of one file, and all that is needed of them."""

    file: int  # index into the table's files
    ids: pa.Array
    numbers: Numbers

    @property
    def bytes(self) -> int:
        return int(self.ids.nbytes) + sum(values.nbytes for values in self.numbers.values())


def process_rows(
    job: TableJob, folder: JobFolder, start: int, stop: int, position: int
) -> Iterator[tuple[int, Stretch, OutputBatch]]:
    """Of files start … stop of the first table, whose first row is number `position`: how many rows were read, those of them
    that all tables have, and the output for these."""
    for stretch in stretches(job, start, stop):
        n = len(stretch.ids)
        kept, numbers = _join(folder, position, n)
        if len(kept) < n:
            chosen = {name: values[kept] for name, values in stretch.numbers.items()}
            stretch = Stretch(stretch.file, stretch.ids.take(pa.array(kept)), chosen)
        yield n, stretch, job.process(kept, numbers | stretch.numbers) if len(kept) else OutputBatch(kept, (), {})
        position += n


def stretches(job: TableJob, start: int, stop: int) -> Iterator[Stretch]:
    """The chunks of the first table, reduced to numbers; those of a file are put together while they take little memory."""
    source, held, rows = job.source, list[Stretch](), 0
    for chunk in source.chunks(source.tables[0], start):
        rows += len(chunk.ids)
        if source.columns and rows * source.classes > SMALL:
            compiles()  # each chunk is small, all of them are not
        if held and held[0].file != chunk.file:
            yield _together(held)
            held = []
        if chunk.file >= stop:
            break
        held.append(Stretch(chunk.file, chunk.ids, job.numbers(source.tables[0], chunk)))
        if sum(len(each.ids) for each in held) >= TOGETHER or sum(each.bytes for each in held) >= HELD:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _together(held: Sequence[Stretch]) -> Stretch:
    """One stretch of several that follow each other."""
    if len(held) == 1:
        return held[0]
    numbers = {name: np.concatenate([each.numbers[name] for each in held]) for name in held[0].numbers}
    return Stretch(held[0].file, pa.concat_arrays([each.ids for each in held]), numbers)


def _join(folder: JobFolder, position: int, n: int) -> tuple[np.ndarray, Numbers]:
    """Which of n rows of the first table from `position` on all others have, and their numbers there."""
    others = folder.aligned.items()
    parts = [aligned(folder.scratch(f"aligned-{number}"), table.columns, position, n) for number, table in others]
    kept = np.arange(n)
    for _, which in parts:
        kept = np.intersect1d(kept, which, assume_unique=True)
    numbers: Numbers = {}
    for values, which in parts:
        at = np.searchsorted(which, kept)
        numbers |= {name: column[at] for name, column in values.items()}
    return kept, numbers
