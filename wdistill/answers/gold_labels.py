"""Gold labels in the forms in which people hold them: tables, and exports of Label Studio, doccano and Argilla."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wdistill.answers.batch_files import lines_of
from wdistill.answers.classes import Classes, plain
from wdistill.answers.ids import WITHOUT_IDS, ids_of_records
from wdistill.core import foreign_json
from wdistill.core.errors import InputError, bad_input, empty, unreadable
from wdistill.core.paths import refuse_remote
from wdistill.tables.formats.nesting import DEPTH_LIMIT, Nesting
from wdistill.tables.formats.table import open_tables

LABELS = (
    "label",
    "gold",
    "gold_label",
    "truth",
    "true_label",
    "ground_truth",
    "y",
    "class",
    "category",
    "annotation",
    "labels",
)
ANNOTATORS = ("annotator", "annotators", "annotator_id", "worker", "worker_id", "user", "username", "rater")
RESERVED = (
    "id",
    "annotator",
    "annotation_id",
    "created_at",
    "updated_at",
    "lead_time",
    "text",
)  # of Label Studio's JSON_MIN
SIZE_LIMIT = 256 << 20  # bytes of a file of gold labels
ROW_LIMIT = 1_000_000
BYTES_A_VALUE = 16  # that an export has on average at least; what has more values than that beyond the first million is none

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Annotated:
    """One row as it was annotated: its id, all labels that it was given, and the record that they come from."""

    id: str
    labels: tuple[str, ...]
    record: Record


@dataclass(frozen=True)
class GoldLabels:
    """Gold rows: each id with the label that most annotators gave."""

    form: str
    labels: Mapping[str, str]  # by id
    records: Mapping[str, Record]  # by id, with all other fields
    agreement: float | None  # share of single labels that are the majority's; None where nobody was asked twice
    tied: tuple[str, ...]  # ids without a majority, which are left out
    blank: int  # rows without any label, which are left out
    several: tuple[Annotated, ...]  # rows with two labels or more, also those without a majority
    where: str  # the option that named them

    def said(self) -> str:
        """In one line."""
        more = [f"{self.blank:,} without a label left out"] if self.blank else []
        more += [f"{len(self.tied):,} without a majority left out"] if self.tied else []
        more += [f"annotators agree with the majority in {self.agreement:.1%}"] if self.agreement is not None else []
        return ", ".join([f"{len(self.labels):,} gold labels: {self.form}", *more])


def read_gold_labels(source: str, label: str | None = None, key: str | None = None, option: str = "--gold") -> GoldLabels:
    """The gold labels of a file; `label` and `key` name the columns of labels and ids where they have other names."""
    refuse_remote(source, option)
    path = Path(source)
    where = f"{option} {path}"
    form, records = _records(path, option)
    if not records:
        raise empty("no gold rows", where, "at least 10 rows, better some hundred", "label some rows")
    return collect(form, list(annotate(form, records, label, key, where)), where)


def collect(form: str, rows: Sequence[Annotated], where: str) -> GoldLabels:
    """Majorities of what was annotated. An id that stands twice without an annotator being named is an error."""
    labels: dict[str, Counter[str]] = {}
    records: dict[str, Record] = {}
    blank = sum(not row.labels for row in rows)
    for row in rows:
        labels.setdefault(row.id, Counter()).update(map(plain, row.labels))
        records.setdefault(row.id, row.record)
    _refuse_repeats(rows, where)
    written = {plain(text): text for row in rows for text in row.labels}
    majority, tied = dict[str, str](), list[str]()
    right = total = 0
    for key, counts in labels.items():
        if not counts:
            continue
        (first, most), *others = counts.most_common()
        if others and others[0][1] == most:
            tied.append(key)
            continue
        majority[key] = written[first]
        if sum(counts.values()) > 1:
            right, total = right + most, total + sum(counts.values())
    if not majority:
        raise empty("no gold labels", where, "rows with a label", "name the column of the labels: --label COLUMN")
    agreement = right / total if total else None
    several = tuple(
        Annotated(key, tuple(written[label] for label in counts.elements()), records[key])
        for key, counts in labels.items()
        if sum(counts.values()) > 1
    )
    return GoldLabels(form, majority, {key: records[key] for key in majority}, agreement, tuple(tied), blank, several, where)


def _refuse_repeats(rows: Sequence[Annotated], where: str) -> None:
    several = any(name in row.record for row in rows[:1] for name in ANNOTATORS)
    counts = Counter(row.id for row in rows if row.labels)
    twice = [key for key, count in counts.items() if count > 1]
    if twice and not several:
        found = f"{len(twice)} ids twice, such as {', '.join(map(repr, twice[:5]))}"
        remedy = "leave one of each out, or name who labeled each row in a column 'annotator': the majority then counts"
        raise bad_input("ids that stand twice", where, found, "each id once", remedy)


def annotate(form: str, records: Sequence[Record], label: str | None, key: str | None, where: str) -> Iterator[Annotated]:
    """What each record says."""
    if form == LABEL_STUDIO:
        tasks: list[tuple[Any, tuple[str, ...], Record]] = []
        for record in records:
            try:
                data = record.get("data") or {}
                row_id, choices = data.get(key or "id", record.get("id")), tuple(_choices(record, label))
                tasks.append((row_id, choices, {**data, "annotator": True}))
            except (AttributeError, TypeError) as error:
                found, expected = f"{type(error).__name__}: {error}", "data, and annotations with results"
                raise bad_input("not a task of Label Studio", where, found, expected, "export the labels again") from None
        ids = ids_of_records([row_id for row_id, _, _ in tasks], key or "id", where, all_rows=True)
        yield from (Annotated(each, choices, fields) for each, (_, choices, fields) in zip(ids, tasks, strict=True))
        return
    field = label or _label_field(form, records, where)
    named = key if key in records[0] else next((name for name in ("id", "custom_id") if name in records[0]), None)
    if named is None:
        expected = f"a column {key!r}" if key else "ids in a column 'id', as in the answers"
        remedy = "name the column of the ids: --gold-id COLUMN, or --id COLUMN for answers and gold labels" + WITHOUT_IDS
        columns = ", ".join(dict.fromkeys(str(name) for record in records for name in record))
        raise bad_input("no ids", where, f"columns {columns}", expected, remedy)
    if not any(field in record for record in records):
        close = f"columns {', '.join(map(str, records[0]))[:300]}"
        raise bad_input(f"no column {field!r}", where, close, "the labels", "name the column of the labels: --label COLUMN")
    ids = ids_of_records([record.get(named) for record in records], named, where, all_rows=True)
    for row_id, record in zip(ids, records, strict=True):
        yield Annotated(row_id, tuple(values_of(record.get(field))), record)


def values_of(value: Any) -> Iterator[str]:
    """The labels in a cell: one, a list of them, or what Label Studio and Argilla wrap them in; none where it is blank."""
    if isinstance(value, Mapping):
        for name in ("choices", "value", "label", "values"):
            if name in value:
                yield from values_of(value[name])
                return
    elif isinstance(value, list | tuple):
        for each in value:
            yield from values_of(each)
    elif value is not None and value == value and str(value).strip():
        yield str(value).strip()


def _choices(task: Record, label: str | None) -> Iterator[str]:
    """The choices of all annotations of a Label Studio task that were not cancelled."""
    for annotation in task.get("annotations") or task.get("completions") or ():
        if annotation.get("was_cancelled") or annotation.get("skipped"):
            continue
        for result in annotation.get("result") or ():
            if result.get("type", "choices") == "choices" and label in (None, result.get("from_name")):
                yield from values_of(result.get("value"))


def _label_field(form: str, records: Sequence[Record], where: str) -> str:
    """The field of the labels: by its name, or the only one with few different texts."""
    names = list(records[0])
    if form == ARGILLA:
        return next(name for name in names if str(name).endswith(".responses"))
    lowered = {str(name).casefold(): str(name) for name in names}
    known = next((lowered[name] for name in LABELS if name in lowered), None)
    if known is not None:
        return known
    few = [name for name in names if str(name) not in RESERVED and _is_label(name, records)]
    if len(few) == 1:
        return str(few[0])
    found = f"columns {', '.join(map(str, names))[:300]}"
    raise _no_labels(where, found)


def _no_labels(where: str, found: str) -> InputError:
    expected, remedy = f"a column named {', '.join(LABELS[:5])} …", "name the column of the labels: --label COLUMN"
    return bad_input("it is not clear which column has the labels", where, found, expected, remedy)


def _is_label(name: str, records: Sequence[Record]) -> bool:
    values = [text for record in records for text in values_of(record.get(name))]
    return len(records) / 2 <= len(values) and 1 < len(set(values)) <= max(2, len(records) // 3)


# files ----------------------------------------------------------------------------------------------------------------

LABEL_STUDIO, LABEL_STUDIO_MIN, ARGILLA, DOCCANO = "Label Studio", "Label Studio's JSON_MIN", "Argilla", "doccano"


def _records(path: Path, option: str) -> tuple[str, list[Record]]:
    """All records of a file, and the form that they are in."""
    where = f"{option} {path}"
    try:
        size, head = path.stat().st_size, b""
        if path.is_file():  # a pipe that nobody writes to would be waited for; it is refused below
            with path.open("rb") as file:
                head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        remedy = "correct the path, or ask for the right to read it"
        raise unreadable("the file cannot be read", where, error, "a file of gold labels", remedy) from None
    if head[:1] == b"[" and size <= SIZE_LIMIT:
        return _form_of(_json_array(path, where))
    if head[:1] == b"{":
        return _form_of([_object(line, f"{where}, line {number}") for number, line in lines_of(path, option)])
    (table,) = open_tables([str(path)], option=option)
    records: list[Record] = []
    for _, batch in table.batches(table.schema):
        records += batch.to_pylist()
        if len(records) > ROW_LIMIT:
            raise bad_input(
                "too many gold rows", where, f"more than {ROW_LIMIT:,}", "rows that people labeled", "leave some out"
            )
    return "table", records


def _json_array(path: Path, where: str) -> list[Record]:
    content = path.read_bytes()
    try:
        foreign_json.check_entries(content, len(content) // BYTES_A_VALUE)
    except ValueError as error:
        found, expected = f"{error} in {len(content):,} bytes", "labels with texts, ids and names, as tools export them"
        raise unreadable("too many values", where, found, expected, "export the labels again, as JSON lines") from None
    if Nesting().too_deep(content) is not None:
        found = f"more than {DEPTH_LIMIT} open brackets"
        raise unreadable("a value is nested too deep", where, found, f"at most {DEPTH_LIMIT}", "export the labels again")
    try:
        records = json.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        raise unreadable("the file is no JSON", where, str(error), "a list of objects", "export the labels again") from None
    return [_checked(record, where) for record in records]


def _object(line: bytes, where: str) -> Record:
    try:
        return _checked(json.loads(line.decode("utf-8-sig")), where)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        remedy = "correct the line; a last line that is not complete means that the file was cut off"
        raise unreadable("a line cannot be read", where, str(error), "one JSON object", remedy) from None


def _checked(record: object, where: str) -> Record:
    if not isinstance(record, dict):
        found = type(record).__name__
        raise bad_input("this is no list of rows", where, found, "one object a row", "export the labels again")
    return record


def _form_of(records: list[Record]) -> tuple[str, list[Record]]:
    first = records[0] if records else {}
    tests: dict[str, Callable[[], bool]] = {
        LABEL_STUDIO: lambda: "data" in first and ("annotations" in first or "completions" in first),
        LABEL_STUDIO_MIN: lambda: "annotation_id" in first,
        ARGILLA: lambda: any(str(name).endswith(".responses") for name in first),
        DOCCANO: lambda: isinstance(first.get("label", first.get("labels")), list),
    }
    return next((name for name, holds in tests.items() if holds()), "JSON"), records


def labels_in(gold: GoldLabels, classes: Classes, where: str) -> dict[str, int]:
    """The class of every gold row, by id; labels that name none are an error."""
    numbers = {key: classes.number(text) for key, text in gold.labels.items()}
    unknown = Counter(gold.labels[key] for key, number in numbers.items() if number < 0)
    if unknown:
        listed = ", ".join(f"{text!r} ({count})" for text, count in unknown.most_common(5))
        near = classes.nearest(unknown.most_common(1)[0][0])
        remedy = f"did you mean {near!r}? add" if near else "add"
        remedy += " the class to --classes, or --alias LABEL=CLASS"
        raise bad_input("gold labels that are no class", where, listed, f"one of {', '.join(classes.names[:20])}", remedy)
    return numbers
