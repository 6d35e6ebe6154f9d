"""`wdistill label`: the job that stores a teacher's predictions, in whole batches whatever the number of files.

Batches are counted from the first row of all files. One that has rows of two files is made in the part of either: the rows
of the other file are read for that, and not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

import wdistill
from wdistill.core.errors import bad_input
from wdistill.core.settings import to_json
from wdistill.tables.formats.predictions import class_count
from wdistill.tables.job import Piece, run_job
from wdistill.tables.label_options import LabelOptions
from wdistill.tables.labeler import Labeler
from wdistill.tables.parts import JobFolder, Part
from wdistill.tables.rows import chunk_rows

HELD = 64 << 20  # bytes of inputs that wait for more rows
PART = 1 << 14  # rows after which a part ends with the file that is being read: teachers are slow


class InputSource(Protocol):
    """The rows to label, file by file."""

    @property
    def where(self) -> str: ...  # in messages

    @property
    def files(self) -> Sequence[Path]: ...

    @property
    def stamps(self) -> Sequence[tuple[int, int]]: ...  # what changes when a file does

    @property
    def rows(self) -> int | None: ...

    def rows_from(self, file: int, position: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Ids and inputs from a file on, whose first row is number `position`, each batch with the number of its file."""
        ...


@dataclass(frozen=True, eq=False)
class LabelJob:
    """The job that stores a teacher's predictions."""

    source: InputSource
    labeler: Labeler
    doing = "labeling"
    escape_formulas = False

    @property
    def where(self) -> str:
        return self.source.where

    @property
    def files(self) -> Sequence[Path]:
        return self.source.files

    @property
    def stamps(self) -> Sequence[tuple[int, int]]:
        return self.source.stamps

    @property
    def rows(self) -> int | None:
        return self.source.rows

    @property
    def read(self) -> Sequence[Path]:
        return self.source.files

    @property
    def part_rows(self) -> int:
        return PART

    @property
    def overlap(self) -> int:
        return self.labeler.options.batch_rows

    @property
    def identity(self) -> Mapping[str, Any]:
        teacher = self.labeler.teacher
        return {
            "version": wdistill.__version__,
            "teacher": [teacher.name, teacher.digest],
            "options": to_json(self.labeler.options),
            "files": [str(path) for path in self.source.files],
        }

    def begin(self, folder: JobFolder, keep: Callable[[], None]) -> None:
        """Nothing: there is one table."""

    def pieces(self, folder: JobFolder, start: int, stop: int) -> Iterator[Piece]:
        """Whole batches are predicted: those at both ends may have rows of other files, which are read again for that."""
        before = [part for part in folder.parts if part.start < start]
        position = sum(part.seen for part in before)
        file, begin = start, position
        while before and position - begin < position % self.overlap:
            part = before.pop()
            file, begin = part.start, begin - part.seen
        stream = _skipping(self.source.rows_from(file, begin), position - position % self.overlap - begin)
        for piece in self._labeled(stream, stop):
            if piece.file >= start:
                yield piece

    def _labeled(self, stream: Iterator[tuple[int, pa.RecordBatch]], stop: int) -> Iterator[Piece]:
        """The output, file by file, of rows that begin with a batch."""
        known: list[pa.Schema] = []  # of the output
        for rows in _stretches(stream, stop, self.overlap, lambda: _rows_at_once(known, self.overlap)):
            labeled = self.labeler(pa.concat_batches([batch for _, batch in rows]))
            if known and classes_of(labeled.schema) != classes_of(known[0]):
                found, expected = (f"{classes_of(each)} classes" for each in (labeled.schema, known[0]))
                remedy = "return one number a class, in the same order, for every row"
                where = f"--teacher {self.labeler.teacher.name}"
                raise bad_input("the teacher returns another number of classes", where, found, expected, remedy)
            known[:], at = [labeled.schema], 0
            for file, batch in rows:
                if file < stop:
                    yield Piece(file, batch.num_rows, labeled.slice(at, batch.num_rows), {})
                at += batch.num_rows

    def appended(self) -> None:
        """Nothing."""

    def review(self, batches: Iterator[pa.RecordBatch], parts: Sequence[Part], messages: list[str]) -> dict[str, Any]:
        """The record."""
        classes = 0
        for batch in batches:
            classes = classes or classes_of(batch.schema)
        teacher = {"name": self.labeler.teacher.name, "sha256": self.labeler.teacher.digest}
        rows = sum(part.kept for part in parts)
        return label_record(teacher, self.labeler.options, classes, len(self.source.files), rows, messages)


def label_record(
    teacher: Mapping[str, str], options: LabelOptions, classes: int, files: int, rows: int, messages: list[str]
) -> dict[str, Any]:
    """What is known of stored predictions besides their rows."""
    return {
        "wdistill": wdistill.__version__,
        "options": to_json(options),
        "teacher": dict(teacher),
        "classes": classes,
        "unlabeled_files": files,
        "rows": rows,
        "warnings": messages,
    }


def label_files(source: InputSource, labeler: Labeler, output: Path) -> dict[str, Any]:
    """Run the whole job; returns the record that the output carries."""
    return run_job(output, lambda: LabelJob(source, labeler))


def classes_of(schema: pa.Schema) -> int:
    """The number of classes of stored predictions."""
    field = schema.field(1)
    return class_count(field) or int(field.type.list_size)


def _rows_at_once(known: Sequence[pa.Schema], batch: int) -> int:
    """Rows that are held at once, in whole batches; one batch before the number of classes is known."""
    return max(1, chunk_rows(classes_of(known[0])) // batch) * batch if known else batch


Rows = list[tuple[int, pa.RecordBatch]]  # consecutive rows, each batch with the number of its file


def _skipping(stream: Iterator[tuple[int, pa.RecordBatch]], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The stream without its first rows."""
    for file, batch in stream:
        if rows < batch.num_rows:
            yield file, batch.slice(rows)
        rows = max(0, rows - batch.num_rows)


def _stretches(
    stream: Iterator[tuple[int, pa.RecordBatch]], stop: int, batch: int, size: Callable[[], int]
) -> Iterator[Rows]:
    """Rows of files before `stop` in stretches of at most `size()` rows; rows of further files complete the last batch."""
    pending, count, held = Rows(), 0, 0
    for file, rows in stream:
        if file >= stop:
            rows = rows.slice(0, -count % batch)
        if rows.num_rows:
            pending.append((file, rows))
            count, held = count + rows.num_rows, held + rows.nbytes
        while count >= (wanted := size()) or (held > HELD and count >= batch):
            wanted = min(wanted, count // batch * batch)
            stretch, pending = _cut(pending, wanted)
            count, held = count - wanted, sum(each.nbytes for _, each in pending)
            yield stretch
        if file >= stop and count % batch == 0:
            break
    if pending:
        yield pending


def _cut(pending: Rows, count: int) -> tuple[Rows, Rows]:
    """The first so many rows, and the others."""
    taken, rest = Rows(), Rows()
    for file, rows in pending:
        now = min(count, rows.num_rows)
        count -= now
        taken += [(file, rows.slice(0, now))] if now else []
        rest += [(file, rows.slice(now))] if now < rows.num_rows else []
    return taken, rest
