"""`wdistill label`: a teacher's predictions of unlabeled rows, stored; a pure function of batches, and the job of files.

`Labeler` is the function: ids and inputs in, ids and predictions out, no files and no state that changes. It calls the
teacher on batches of a fixed length, counted from the first row that it is given. `LabelJob` gives it rows in the order of
their files, from multiples of that length: the bits do not depend on how many files there are, nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

import wdistill
from wdistill.core import checks
from wdistill.core.errors import InputError, bad_input
from wdistill.core.settings import to_json
from wdistill.tables.formats.predictions import StoredPredictions, class_count
from wdistill.tables.formats.schema import (
    Location,
    is_listed,
    is_text,
    listing,
    refuse_misnamed_ids,
    to_ids,
    to_matrix,
    wide,
)
from wdistill.tables.formats.table import Table, open_tables
from wdistill.tables.job import Piece, run_job
from wdistill.tables.label_options import LabelOptions
from wdistill.tables.parts import JobFolder, Part
from wdistill.tables.rows import chunk_rows
from wdistill.weights.confidence import scan
from wdistill.weights.equations import probabilities

Values = NDArray[Any] | list[str]  # of one input: numbers (b, …), or texts
Predict = Callable[[Values | Mapping[str, Values]], Any]  # one input by itself, or several by name → (b, K) numbers
SHOWN = 5  # ids in a message
ROWS = 1 << 13  # of inputs read at once
HELD = 64 << 20  # bytes of inputs that wait for more rows
PART = 1 << 14  # rows after which a part ends with the file that is being read: teachers are slow


@dataclass(frozen=True)
class Teacher:
    """A teacher that was named, loaded once for a process."""

    name: str
    predict: Predict
    digest: str  # of its parameters or of its code: parts that another teacher made belong to another job


@dataclass(frozen=True)
class Labeler:
    """From ids and inputs to ids and predictions, batch by batch."""

    teacher: Teacher
    options: LabelOptions

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `id` and inputs → as many of `id` and predictions; at least one row."""
        layout = StoredPredictions(self.options.precision, self.options.top_k)
        size, found, classes = self.options.batch_rows, list[pa.Array](), 0
        for first in range(0, rows.num_rows, size):
            values = self._predicted(rows.slice(first, size))
            if classes not in (0, values.shape[1]):
                raise self._bad(
                    "the teacher returns another number of classes", rows, values.shape[1], f"{classes}, as before"
                )
            classes = values.shape[1]
            if layout.top_k is not None and layout.top_k >= classes:
                remedy = "leave out --top-k: all classes are no more than these"
                found_there, expected = f"--top-k {layout.top_k}", f"at most {classes - 1}, of {classes} classes"
                raise bad_input("not fewer than all classes", "--top-k", found_there, expected, remedy)
            found.append(layout.column(values))
        fields = [pa.field("id", rows["id"].type), layout.field(self.options.column, classes)]
        column = pa.chunked_array(found, fields[1].type).combine_chunks()
        return pa.RecordBatch.from_arrays([rows["id"], column], schema=pa.schema(fields))

    def _predicted(self, batch: pa.RecordBatch) -> NDArray[np.float64]:
        """Probabilities (b, K) of a batch, checked, that sum to 1."""
        names, where = self.options.inputs, f"--teacher {self.teacher.name}"
        inputs: dict[str, Values] = {name: _values(batch[name], name, batch["id"]) for name in names}
        try:
            returned = self.teacher.predict(inputs[names[0]] if len(names) == 1 else inputs)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            told = f"a function that answers {batch.num_rows} rows"
            raise self._bad("the teacher fails", batch, found, told) from error
        try:
            values = checks.matrix(returned, where)
            if len(values) != batch.num_rows:
                expected = f"{batch.num_rows}, one for each"
                raise self._bad("the teacher returns another number of rows", batch, f"{len(values)} rows", expected)
            scan(values, self.options.kind, name=where)
        except InputError as error:
            if error.where != where:
                raise
            remedy = "let the teacher return a row of K finite numbers for each: probabilities, or logits with --kind logits"
            raise error.at(self._called_on(batch), 0, _ids(batch["id"], error.rows), remedy) from None
        rows = np.asarray(probabilities(values, self.options.kind, False), np.float64)
        return np.asarray(np.maximum(rows, 0.0) / rows.sum(axis=1, keepdims=True))

    def _bad(self, what: str, batch: pa.RecordBatch, found: object, expected: str) -> InputError:
        remedy = "call the teacher on these rows by itself; what is finished is kept"
        return bad_input(what, self._called_on(batch), str(found), expected, remedy)

    def _called_on(self, batch: pa.RecordBatch) -> str:
        """Where an error is: the teacher, and the first ids of the batch."""
        shown = ", ".join(map(repr, batch["id"][:SHOWN].to_pylist()))
        return f"--teacher {self.teacher.name}, called on ids {shown}{', …' if batch.num_rows > SHOWN else ''}"


def _ids(ids: pa.Array, rows: Sequence[int]) -> list[object]:
    return list(ids.take(pa.array(rows, pa.int64())).to_pylist()) if rows else []


def _values(column: pa.Array, name: str, ids: pa.Array) -> Values:
    """An input as a function reads it: numbers (b, …), or texts."""
    where, flat, shape = f"column {name!r}", column, list[int]()
    while True:
        if flat.null_count:
            rows = np.flatnonzero(pc.is_null(flat).to_numpy(zero_copy_only=False)) // max(1, len(flat) // max(1, len(ids)))
            found = f"no value in {len(np.unique(rows))} of {len(ids)} rows read together"
            expected, remedy = "a value in every row", "fill in the missing values, or leave these rows out"
            error = bad_input("values are missing", where, found, expected, remedy, np.unique(rows))
            raise error.at(where, 0, _ids(ids, error.rows))
        if not is_listed(flat.type):
            break
        lengths = pc.list_value_length(flat).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != lengths[0])
        if len(wrong):
            found, expected = f"{lengths[wrong[0]]} entries, and {lengths[0]} in the rows before", "lists of one length"
            raise bad_input("lists of different lengths", where, found, expected, "bring them to one length", wrong)
        shape.append(int(lengths[0]))
        flat = flat.flatten()
    if types.is_dictionary(flat.type):
        flat = flat.dictionary_decode()
    if is_text(flat.type) and not shape:
        return list(flat.to_pylist())
    if not (types.is_integer(flat.type) or types.is_floating(flat.type) or types.is_boolean(flat.type)):
        found, remedy = str(column.type), "write numbers, lists of numbers or texts, or name another column"
        raise bad_input("not an input", where, found, "numbers, lists of numbers of one length, or texts", remedy)
    return np.array(flat.to_numpy(zero_copy_only=False)).reshape(len(ids), *shape)  # a copy: a teacher may write into it


# files ----------------------------------------------------------------------------------------------------------------


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
            if known and _classes(labeled.schema.field(1)) != _classes(known[0].field(1)):
                found, expected = (f"{_classes(each.field(1))} classes" for each in (labeled.schema, known[0]))
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
            classes = classes or _classes(batch.schema.field(1))
        teacher = self.labeler.teacher
        return {
            "wdistill": wdistill.__version__,
            "options": to_json(self.labeler.options),
            "teacher": {"name": teacher.name, "sha256": teacher.digest},
            "classes": classes,
            "unlabeled_files": len(self.source.files),
            "rows": sum(part.kept for part in parts),
            "warnings": messages,
        }


def label_files(source: InputSource, labeler: Labeler, output: Path) -> dict[str, Any]:
    """Run the whole job; returns the record that the output carries."""
    return run_job(output, lambda: LabelJob(source, labeler))


def _classes(field: pa.Field) -> int:
    return class_count(field) or int(field.type.list_size)


def _rows_at_once(known: Sequence[pa.Schema], batch: int) -> int:
    """Rows that are held at once, in whole batches; one batch before the number of classes is known."""
    return max(1, chunk_rows(_classes(known[0].field(1))) // batch) * batch if known else batch


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


# tables of inputs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TableInputs:
    """The columns of a table that a teacher reads; a column may also be spread over NAME_0, NAME_1, …"""

    table: Table
    options: LabelOptions
    members: Mapping[str, tuple[str, ...]]  # the columns on disk of every input

    @classmethod
    def of(cls, unlabeled: str, options: LabelOptions) -> TableInputs:
        """Open a table, and find the columns."""
        (table,) = open_tables([unlabeled], option="--unlabeled")
        schema, where = table.schema, f"--unlabeled {table.files[0]}"
        members = {name: (name,) if name in schema.names else wide(schema, name) for name in options.inputs}
        needed = [name for name, each in members.items() if not each]
        counts = table.counts_rows and options.id == "id"
        needed += [] if counts or options.id in schema.names else [options.id]
        if needed:
            found, expected = f"columns {listing([repr(name) for name in schema.names])}", f"a column {needed[0]!r}"
            remedy = "name the columns: --inputs COLUMN, and --id COLUMN for that of ids"
            raise bad_input(f"there is no column {needed[0]!r}", where, found, expected, remedy)
        if counts:
            refuse_misnamed_ids(schema.names, where)
        return cls(table, options, members)

    @property
    def where(self) -> str:
        return f"--unlabeled {self.table.files[0]}"

    @property
    def files(self) -> Sequence[Path]:
        return self.table.files if self.table.format != "npy" else self.table.files[:1]

    @property
    def stamps(self) -> Sequence[tuple[int, int]]:
        return self.table.stamps[: len(self.files)]

    @property
    def rows(self) -> int | None:
        return self.table.rows

    def rows_from(self, file: int, position: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Ids and inputs, from a file on whose first row is number `position`; where there are no ids, rows are counted."""
        schema = self._schema()
        for number in range(file, len(self.files)):
            for location, batch in self.table.batches(schema, ROWS, start=number, stop=number + 1):
                self._check_same(batch.schema, schema, location)
                if self.options.id in batch.schema.names:
                    ids = to_ids(batch[self.options.id], location)
                else:
                    ids = pa.array(np.arange(position, position + batch.num_rows))
                columns = {name: _joined(batch, members, name, location) for name, members in self.members.items()}
                yield number, pa.RecordBatch.from_pydict({"id": ids, **columns})
                position += batch.num_rows

    def _schema(self) -> pa.Schema:
        """The columns on disk; ids in text stay text."""
        schema = self.table.schema
        names = dict.fromkeys([*filter(schema.names.__contains__, [self.options.id]), *sum(self.members.values(), ())])
        fields = {name: schema.field(name) for name in names}
        if self.table.format == "csv" and self.options.id in fields:
            fields[self.options.id] = pa.field(self.options.id, pa.string())
        return pa.schema(list(fields.values()))

    def _check_same(self, found: pa.Schema, expected: pa.Schema, location: Location) -> None:
        """Refuse a file whose columns have other types than those of the first: a batch may have rows of both."""
        for each in expected:
            kind = found.field(each.name).type
            if kind != each.type:
                remedy = "Write all files of one table with the same columns and types."
                what = f"the files of this table differ in column {each.name!r}"
                raise bad_input(what, str(location), str(kind), f"{each.type}, as in {self.files[0]}", remedy)


def _joined(batch: pa.RecordBatch, members: tuple[str, ...], name: str, location: Location) -> pa.Array:
    """A column as it is, or the columns NAME_0, NAME_1, … as lists."""
    if members == (name,):
        return batch[name]
    matrix = to_matrix([batch[member] for member in members], name, None, location)
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), len(members))
