"""Files and frames of answers, recognised by what they hold, and read some rows at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from wdistill.answers import forms
from wdistill.answers.batch_files import BatchRow, is_batch_line, lines_of, read_batch_file
from wdistill.answers.classes import Classes, plain
from wdistill.answers.forms import Form, recognise
from wdistill.answers.ids import ids_of_records, text_ids
from wdistill.answers.parsed import MEASURED, REFUSED, Parsed, from_said, measured, vote
from wdistill.answers.said import Said, read_text
from wdistill.core.errors import FileError, InputError, bad_input, bad_value, unreadable
from wdistill.core.paths import refuse_remote
from wdistill.tables.formats.table import Table, files_of, open_tables, rows_of_text

ROWS = 1 << 15  # read at once
IDS = ("id", "custom_id")
BATCH = "batch output"  # the name of a form


@dataclass(frozen=True, eq=False)
class AnswerBatch:
    """Answers to some rows, and other columns of the same rows; `where` names the file and its first row."""

    parsed: Parsed
    columns: Mapping[str, pa.Array]
    where: str
    first: int = 0


@dataclass(frozen=True)
class Columns:
    """Columns that a user names: those of ids, answers and stated confidences, and those that are something else."""

    id: str | None = None
    answer: str | None = None
    stated: str | None = None
    used: tuple[str, ...] = ()  # text, inputs, labels


@dataclass(frozen=True)
class Reading:
    """How all files of a source are read, as the first of them has told; it can be sent anywhere."""

    columns: Columns
    option: str  # that names the files
    schema: pa.Schema | None  # the columns of the first; None for batch output


@dataclass(frozen=True, eq=False)
class AnswerFile:
    """One source of answers in one form: a file, or several with the same columns."""

    where: str
    form: str
    columns: tuple[str, ...]  # that rows have besides; nothing in batch files
    names: tuple[str, ...]  # of classes, where the form itself has them
    read: Callable[[Classes, Sequence[str]], Iterator[AnswerBatch]]  # the classes, and other columns that are wanted
    rows_about: int  # for showing progress: known, or guessed from the size of the files
    paths: tuple[Path, ...]  # one after the other
    reading: Reading
    counts_rows: bool = False  # there are no ids: the numbers of the rows stand for them


def open_answers(source: str, columns: Columns = Columns(), option: str = "--answers") -> AnswerFile:  # noqa: B008
    """A file, a folder or a glob of answers; the form is recognised by the first rows."""
    refuse_remote(source, option)
    path = Path(source)
    where, paths = f"{option} {path}", files_of(source, option)
    if _is_batch_output(paths, option):
        return _batch_output(where, paths, Reading(columns, option, None))
    table = open_tables([f"teacher={path}" if path.suffix == ".npy" else source], option=option)[0]
    return _answer_table(where, table, Reading(columns, option, table.schema))


def open_part(path: str, reading: Reading) -> AnswerFile:
    """One file of a source, read as all its files are."""
    where = f"{reading.option} {path}"
    if reading.schema is None:
        return _batch_output(where, (Path(path),), reading)
    return _answer_table(where, open_tables([path], option=reading.option)[0], reading)


def _batch_output(where: str, paths: tuple[Path, ...], reading: Reading) -> AnswerFile:
    def read(classes: Classes, wanted: Sequence[str]) -> Iterator[AnswerBatch]:
        for path in paths:
            yield from _batch_rows(path, reading.option, classes)

    _refuse_columns(BATCH, {"--answer": reading.columns.answer, "--stated": reading.columns.stated}, where)
    return AnswerFile(where, BATCH, (), (), read, rows_of_text(paths, quoted=False), paths, reading)


def _answer_table(where: str, table: Table, reading: Reading) -> AnswerFile:
    columns, schema = reading.columns, reading.schema
    assert schema is not None
    id_column = _id_column(schema.names, columns.id, where)
    form = recognise(schema, (*columns.used, *filter(None, [id_column])), where, columns.answer, columns.stated)
    _refuse_columns(form.name, {"--stated": None if form.name == forms.STATED_LABEL else columns.stated}, where)
    others = tuple(name for name in schema.names if name not in (*form.columns, id_column))
    if table.format == "jsonl" and any(types.is_struct(schema.field(name).type) for name in form.columns):
        reader = _line_reader(table.files, reading.option, form, id_column)
    else:
        reader = _table_reader(table, schema, form, id_column)
    names, counted = form.classes or _object_names(form, schema), id_column is None
    return AnswerFile(where, form.name, others, names, reader, table.rows_about, table.files, reading, counted)


def _refuse_columns(form: str, flags: Mapping[str, str | None], where: str) -> None:
    """Refuse columns that were named for nothing."""
    for flag, name in flags.items():
        if name is not None:
            expected = "answers that are a label in a column of a table"
            raise bad_value(f"{flag} has no meaning here", where, f"{flag} {name}, and {form}", expected, "leave it out")


def _is_batch_output(paths: Sequence[Path], option: str) -> bool:
    """Whether the first file with anything in it begins with a line of batch output."""
    for path in paths:
        head = _head(path)
        if head:
            first = _first_record(path, option) if head.startswith(b"{") else None
            return first is not None and is_batch_line(first)
    return False


def _head(path: Path) -> bytes:
    """The first bytes of a file that are no blanks; nothing where it cannot be read, which is told elsewhere."""
    if not path.is_file():  # a pipe that nobody writes to would be waited for
        return b""
    try:
        with path.open("rb") as file:
            return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return b""


def _first_record(path: Path, option: str) -> dict[str, Any] | None:
    for _, line in lines_of(path, option):
        try:
            record = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None
    return None


def _id_column(names: Sequence[str], given: str | None, where: str) -> str | None:
    """The column of ids: as it is named, or `id`; None where the rows are to be counted."""
    if given is not None and given not in names:
        raise bad_input("no such column", where, f"columns {', '.join(names)}", f"a column {given!r}", "correct --id")
    return given or next((name for name in IDS if name in names), None)


def _object_names(form: Form, schema: pa.Schema) -> tuple[str, ...]:
    """The classes that the objects of a struct column name."""
    kinds = [schema.field(name).type for name in form.columns]
    if form.name != forms.OBJECTS or not types.is_struct(kinds[0]):
        return ()
    numeric = [field.name for field in kinds[0] if types.is_floating(field.type) or types.is_integer(field.type)]
    return tuple(numeric) if len(numeric) > 1 else ()


# batch output ---------------------------------------------------------------------------------------------------------


def _batch_rows(path: Path, option: str, classes: Classes) -> Iterator[AnswerBatch]:
    rows: list[BatchRow] = []
    first = 0
    for row in read_batch_file(path, option):
        rows.append(row)
        if len(rows) == ROWS:
            yield AnswerBatch(_parse_batch(rows, classes), {}, f"{option} {path}", first)
            first, rows = first + len(rows), []
    if rows:
        yield AnswerBatch(_parse_batch(rows, classes), {}, f"{option} {path}", first)


def _parse_batch(rows: Sequence[BatchRow], classes: Classes) -> Parsed:
    """Rows of a batch: log-probabilities where they were reported, else votes where there are several answers."""
    said = [_said(row, classes) for row in rows]
    parsed = from_said([row.id for row in rows], said, classes)
    probabilities, source, outside = parsed.probabilities, parsed.source, parsed.outside
    refused = dict(parsed.refused)
    for number, row in enumerate(rows):
        if row.error or number in parsed.bad_confidence:
            continue
        shares = _measured(row, classes)
        total = 0.0 if shares is None else float(shares.sum())
        if shares is not None and total > 0:
            probabilities[number], source[number], outside[number] = shares / total, MEASURED, 1 - total
            refused.pop(number, None)
    return Parsed(parsed.ids, probabilities, source, outside, refused, parsed.unknown, parsed.bad_confidence)


def _said(row: BatchRow, classes: Classes) -> Said | str:
    if row.error:
        return row.error
    answers = [read_text(choice.text, classes) if choice.text is not None else None for choice in row.choices]
    known = [answer for answer in answers if answer is not None and answer.number >= 0]
    if known:
        return known[0]
    return REFUSED if answers[0] is None else answers[0]


def _measured(row: BatchRow, classes: Classes) -> np.ndarray | None:
    """What log-probabilities or votes say of the classes; None where there is one answer without them."""
    reported = [choice for choice in row.choices if choice.alternatives and read_text(choice.text, classes).number >= 0]
    if reported:
        each = [measured(choice.text, choice.tokens, choice.alternatives, classes) for choice in reported]
        return np.asarray(np.mean(each, axis=0))
    if len(row.choices) > 1:
        return vote([read_text(choice.text, classes) for choice in row.choices], len(classes))
    return None


# tables ---------------------------------------------------------------------------------------------------------------


def _table_reader(
    table: Table, schema: pa.Schema, form: Form, id_column: str | None
) -> Callable[..., Iterator[AnswerBatch]]:
    def read(classes: Classes, wanted: Sequence[str]) -> Iterator[AnswerBatch]:
        names = [*filter(None, [id_column]), *form.columns, *(name for name in wanted if name not in form.columns)]
        text = {id_column, *form.text} if table.format in ("csv", "jsonl") else set()
        fields = [schema.field(name) for name in names]
        retyped = [
            field.with_type(pa.string()) if table.format == "csv" and field.name in text else field for field in fields
        ]
        counted = 0
        for location, batch in table.batches(pa.schema(retyped), ROWS):
            ids = _ids(batch, id_column, counted, str(location), location.first)
            counted += batch.num_rows
            with_columns = {name: batch.column(name) for name in wanted}
            try:
                parsed = form.parse(batch, ids, classes)
            except InputError as error:
                bad = [ids[row].as_py() for row in error.rows]
                raise error.at(f"{location}, {error.where}", location.first, bad) from None
            yield AnswerBatch(parsed, with_columns, str(location), location.first)

    return read


def _ids(batch: pa.RecordBatch, column: str | None, counted: int, where: str, first: int) -> pa.Array:
    """Ids as strings; the numbers of the rows where there is no column of them."""
    if column is None:
        return pa.array(np.arange(counted, counted + batch.num_rows)).cast(pa.string())
    return text_ids(batch.column(column), column, where, first)


def _line_reader(
    paths: Sequence[Path], option: str, form: Form, id_column: str | None
) -> Callable[..., Iterator[AnswerBatch]]:
    """JSON lines whose objects may have other fields in every line, parsed line by line."""
    (column,) = form.columns

    def batch(records: list[dict[str, Any]], where: str, first: int, classes: Classes, wanted: Sequence[str]) -> AnswerBatch:
        ids = [str(row) for row in range(first, first + len(records))]
        if id_column is not None:
            named = [record.get(id_column) for record in records]
            ids = ids_of_records(named, id_column, where, first, all_rows=False)
        said = [forms.said_by(record.get(column), classes) for record in records]
        others = {name: pa.array([record.get(name) for record in records]) for name in wanted}
        return AnswerBatch(from_said(ids, said, classes), others, where, first)

    def read(classes: Classes, wanted: Sequence[str]) -> Iterator[AnswerBatch]:
        for path in paths:
            where, records, first = f"{option} {path}", list[dict[str, Any]](), 0
            for number, line in lines_of(path, option):
                records.append(_record(line, f"{where}, line {number}"))
                if len(records) == ROWS:
                    yield batch(records, where, first, classes, wanted)
                    first, records = first + len(records), []
            if records:
                yield batch(records, where, first, classes, wanted)

    return read


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _bad_line(where, str(error)) from None
    if not isinstance(record, dict):
        raise _bad_line(where, type(record).__name__)
    return record


def _bad_line(where: str, found: str) -> FileError:
    remedy = "correct the line; a last line that is not complete means that the file was cut off"
    return unreadable("a line cannot be read", where, found, "one JSON object", remedy)


def count_names(file: AnswerFile) -> Counter[str]:
    """What the answers of a file say, by plain name: to find the classes where nobody named them."""
    nobody, seen = Classes(("\0", "\1")), Counter[str]()
    for batch in file.read(nobody, ()):
        for text, count in batch.parsed.unknown.items():
            seen[plain(text)] += count
    return seen
