"""The forms that answers have in a table: which columns they stand in, and how their rows become distributions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from wdistill.answers.classes import Classes
from wdistill.answers.parsed import MEASURED, NO_ANSWER, NO_CLASS, NONE, STATED, Parsed, from_said, vote, with_confidence
from wdistill.answers.said import (
    CONFIDENCES,
    DISTRIBUTIONS,
    LABELS,
    Said,
    confidence_of,
    parse_object,
    read_object,
    read_text,
)
from wdistill.core.errors import InputError, bad_input
from wdistill.tables.formats.predictions import is_top_k

VOTES = ("votes", "samples", "answers", "labels", "predictions", "completions", "generations")
PREFIXES = ("pred_probs", "probabilities", "probability", "proba", "probs", "prob", "p", "scores", "score", "teacher")
VOTE_PREFIXES = ("vote", "sample", "answer", "run", "label", "prediction", "completion")
OBJECTS, STATED_LABEL = "class → probability", "label with stated confidence"  # names of forms
LIKELY = re.compile(r"llm|gpt|claude|gemini|llama|model|pred|answer|response|output|teacher")  # in names of columns
SUMS = 1e-2  # how far probabilities as people write them may sum from 1


@dataclass(frozen=True)
class Form:
    """A form that was recognised: its name, its columns, the classes that it names itself, and how it is read."""

    name: str
    columns: tuple[str, ...]
    parse: Callable[[pa.RecordBatch, Sequence[str], Classes], Parsed]  # rows, their ids, classes
    classes: tuple[str, ...] = ()  # in the names of columns
    text: tuple[str, ...] = ()  # of the columns, those that are read as text


def recognise(
    schema: pa.Schema, used: Sequence[str], where: str, answer: str | None = None, stated: str | None = None
) -> Form:
    """The form of a table's answers; `used` columns are something else. `answer` and `stated` name columns, if given."""
    free = {field.name: field.type for field in schema if field.name not in used}
    for name in filter(None, (answer, stated)):
        if name not in free:
            raise _no_form(where, free, f"no column {name!r}")
    if answer is not None:
        return _single(answer, free[answer], free, stated) or _unfit(where, answer, free[answer])
    lowered = {name.casefold(): name for name in free}
    for known in (*DISTRIBUTIONS, "teacher"):
        name = lowered.get(known, "")
        if name and not _is_scalar(free[name]):
            return _single(name, free[name], free, stated) or _unfit(where, name, free[name])
    wide = _wide(free)
    if wide is not None:
        return wide
    for known in VOTES:
        name = lowered.get(known, "")
        if name and types.is_list(_list(free[name])) and not _holds_numbers(free[name]):
            return votes_form(name)
    several = _several(free)
    if several:
        return several
    labels = [lowered[known] for known in LABELS if known in lowered]
    if labels:
        return _single(labels[0], free[labels[0]], free, stated) or _unfit(where, labels[0], free[labels[0]])
    text = [lowered[known] for known in DISTRIBUTIONS if known in lowered]
    if text:
        return label_form(text[0], None)
    raise _no_form(where, free, f"columns {', '.join(free) or 'that are all something else'}")


def _no_form(where: str, free: Mapping[str, Any], found: str) -> InputError:
    expected = (
        f"a column named {', '.join(LABELS[:6])} …, with {', '.join(CONFIDENCES[:3])} … beside it if stated; "
        f"{', '.join(DISTRIBUTIONS[:3])} …; {', '.join(VOTES[:3])} …; or one column a class, such as prob_yes, prob_no"
    )
    likely = [name for name in free if LIKELY.search(name.casefold())]
    remedy = f"name the column of the answers: --answer {likely[0] if likely else 'COLUMN'}"
    return bad_input("no answers are recognised in this table", where, found, expected, remedy)


def _unfit(where: str, name: str, kind: pa.DataType) -> Form:
    expected = "a label, a list of probabilities, a list of votes, or an object of class → probability"
    remedy = "name another: --answer"
    if is_top_k(kind):
        remedy = (
            "name the table as --unlabeled, and gold rows with such predictions as --validation: advise, weigh --method best"
        )
    raise bad_input("this column holds no answers", f"{where}, column {name!r}", f"{kind}"[:100], expected, remedy)


def _single(name: str, kind: pa.DataType, free: Mapping[str, pa.DataType], stated: str | None) -> Form | None:
    """The form of answers that stand in one column."""
    if is_top_k(kind):
        return None
    if types.is_struct(kind) or types.is_map(kind):
        return object_form(name)
    if types.is_list(_list(kind)):
        return list_form(name) if _holds_numbers(kind) else votes_form(name)
    if not _is_scalar(kind):
        return None
    lowered = {other.casefold(): other for other in free if other != name and _is_scalar(free[other])}
    beside = [lowered[known] for known in (*CONFIDENCES, f"{name}_confidence".casefold()) if known in lowered]
    return label_form(name, stated or (beside[0] if beside else None))


def _is_scalar(kind: pa.DataType) -> bool:
    return bool(types.is_primitive(kind) or _is_text(kind) or types.is_null(kind) or types.is_dictionary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _list(kind: pa.DataType) -> pa.DataType:
    """Lists of any kind as plain ones."""
    listed = types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list(kind)
    return pa.list_(kind.value_type) if listed else kind


def _holds_numbers(kind: pa.DataType) -> bool:
    return bool(types.is_floating(_list(kind).value_type)) if types.is_list(_list(kind)) else False


def _wide(free: Mapping[str, pa.DataType]) -> Form | None:
    """Columns PREFIX_CLASS of numbers, one a class."""
    for prefix in PREFIXES:
        members = [name for name in free if name.casefold().startswith(f"{prefix}_") and types.is_floating(free[name])]
        if len(members) > 1:
            classes = [name[len(prefix) + 1 :] for name in members]
            if all(name.isdecimal() for name in classes):
                members = sorted(members, key=lambda name: int(name[len(prefix) + 1 :]))
                classes = sorted(classes, key=int)
            return wide_form(tuple(members), tuple(classes))
    return None


def _several(free: Mapping[str, pa.DataType]) -> Form | None:
    """Columns PREFIX_1, PREFIX_2 …: several votes."""
    for prefix in VOTE_PREFIXES:
        members = [
            name for name in free if name.casefold().startswith(prefix) and name[len(prefix) :].strip("_").isdecimal()
        ]
        if len(members) > 1:
            return vote_columns_form(tuple(members))
    return None


# how they are read ----------------------------------------------------------------------------------------------------


def label_form(label: str, confidence: str | None) -> Form:
    """A label, or a text that says one, and a stated confidence where there is a column for it."""

    def parse(batch: pa.RecordBatch, ids: Sequence[str], classes: Classes) -> Parsed:
        encoded = as_text(batch.column(label)).dictionary_encode()
        said = [read_text(text, classes) for text in encoded.dictionary.to_pylist()]
        codes = encoded.indices.fill_null(len(said)).to_numpy(zero_copy_only=False)
        if any(answer.distribution is not None or answer.confidence is not None for answer in said):
            each: list[Said | str] = [*said, NO_ANSWER]
            return from_said(ids, [each[code] for code in codes], classes)
        numbers = np.array([*(answer.number for answer in said), -1])[codes]
        stated = _confidences(batch.column(confidence)) if confidence else np.full(len(codes), np.nan)
        given = (
            batch.column(confidence).is_valid().to_numpy(zero_copy_only=False) if confidence else np.zeros(len(codes), bool)
        )
        none = numbers < 0
        bad = np.flatnonzero(~none & given & ~((stated >= 0) & (stated <= 1)))
        probabilities = with_confidence(np.maximum(numbers, 0), stated, len(classes))
        probabilities[none] = 0.0
        texts = [answer.text for answer in said]
        refused = {
            int(row): NO_CLASS if codes[row] < len(said) and texts[codes[row]] else NO_ANSWER for row in np.flatnonzero(none)
        }
        counts = np.bincount(codes[none], minlength=len(said) + 1)
        unknown = Counter({text: int(count) for text, count in zip(texts, counts, strict=False) if count and text})
        source = np.where(given & ~none, STATED, NONE).astype(np.uint8)
        return Parsed(pa.array(ids), probabilities, source, np.zeros(len(codes)), refused, unknown, bad.tolist())

    name = STATED_LABEL if confidence else "label"
    columns = (label, confidence) if confidence else (label,)
    return Form(name, columns, parse, text=columns)


def as_text(column: pa.Array) -> pa.Array:
    """Any scalar column as strings."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if column.type != pa.string() else column


def _confidences(column: pa.Array) -> np.ndarray:
    """Stated confidences (n,); NaN where there is none, or no number."""
    if types.is_floating(column.type) or types.is_integer(column.type):
        return np.asarray(column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False))
    encoded = as_text(column).dictionary_encode()
    values = [confidence_of(text) for text in encoded.dictionary.to_pylist()]
    table = np.array([*(np.nan if value is None else value for value in values), np.nan])
    return np.asarray(table[encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)])


def _from_matrix(ids: Sequence[str], matrix: np.ndarray, valid: np.ndarray, where: str) -> Parsed:
    """Rows from probabilities (n, K) as they stand in a table; `valid` (n,): rows that have them."""
    sums = np.nansum(matrix, axis=1)
    good = valid & (np.nan_to_num(matrix, nan=0.0) >= 0).all(axis=1) & np.isfinite(sums) & (sums > 0) & (sums <= 1 + SUMS)
    bad = np.flatnonzero(valid & ~good)
    if len(bad):
        found = f"{len(bad)} such rows; the first has {np.array2string(matrix[bad[0]], threshold=6, precision=4)}"
        expected = f"probabilities of at least 0 that sum to at most 1 (within {SUMS})"
        remedy = "write probabilities, not scores or log-probabilities: np.exp of those, divided by their sum"
        raise bad_input("these are no probabilities", where, found, expected, remedy, bad)
    probabilities = np.where(good[:, None], np.nan_to_num(matrix, nan=0.0) / np.where(good, sums, 1.0)[:, None], 0.0)
    refused = dict.fromkeys(np.flatnonzero(~valid).tolist(), NO_ANSWER)
    outside = np.where(good, np.maximum(0.0, 1 - sums), 0.0)
    outside[outside < SUMS] = 0.0
    return Parsed(pa.array(ids), probabilities, np.where(valid, MEASURED, NONE).astype(np.uint8), outside, refused)


def list_form(name: str) -> Form:
    """A list of probabilities, one a class."""

    def parse(batch: pa.RecordBatch, ids: Sequence[str], classes: Classes) -> Parsed:
        column, where = batch.column(name), f"column {name!r}"
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        lengths = pc.list_value_length(column).fill_null(len(classes)).to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(lengths != len(classes))
        if len(bad):
            found, expected = f"{lengths[bad[0]]} numbers", f"{len(classes)}: {', '.join(classes.names[:10])}"
            remedy = "name the classes in the order of the lists: --classes"
            raise bad_input("a list has not one number a class", where, found, expected, remedy, bad)
        flat = column.drop_null().flatten().cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        matrix = np.zeros((len(ids), len(classes)))
        matrix[valid] = flat.reshape(-1, len(classes))
        return _from_matrix(ids, matrix, valid, where)

    return Form("lists of probabilities", (name,), parse)


def wide_form(names: tuple[str, ...], known: tuple[str, ...]) -> Form:
    """One column of probabilities a class."""

    def parse(batch: pa.RecordBatch, ids: Sequence[str], classes: Classes) -> Parsed:
        numbered = all(name.isdecimal() for name in known)
        order = (
            list(range(len(known)))
            if numbered and not all(classes.number(name) >= 0 for name in known)
            else [classes.number(name) for name in known]
        )
        where = f"columns {names[0]!r} to {names[-1]!r}"
        if sorted(order) != list(range(len(classes))):
            remedy = "name the classes as the columns do: --classes, or --alias NAME=CLASS"
            raise bad_input("not one column a class", where, ", ".join(known[:10]), ", ".join(classes.names[:10]), remedy)
        matrix = np.empty((len(ids), len(classes)))
        for number, name in zip(order, names, strict=True):
            matrix[:, number] = batch.column(name).cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        return _from_matrix(ids, matrix, np.asarray(~np.isnan(matrix).all(axis=1)), where)

    return Form("one column of probabilities a class", names, parse, classes=known)


def _votes(rows: Sequence[Sequence[object] | None], ids: Sequence[str], classes: Classes) -> Parsed:
    """Rows from several answers each: the share of every class is a measured confidence."""
    probabilities, outside = np.zeros((len(ids), len(classes))), np.zeros(len(ids))
    refused: dict[int, str] = {}
    unknown, known = Counter[str](), dict[object, Said]()
    for row, votes in enumerate(rows):
        texts = [text for text in votes or () if text is not None and text != ""]
        said = [known.setdefault(text, read_text(str(text), classes)) for text in texts]
        unknown.update(answer.text for answer in said if answer.number < 0)
        shares = vote(said, len(classes))
        total = float(shares.sum())
        if total == 0:
            refused[row] = NO_CLASS if texts else NO_ANSWER
            continue
        probabilities[row], outside[row] = shares / total, 1 - total
    source = np.full(len(ids), MEASURED, np.uint8)
    source[list(refused)] = NONE
    return Parsed(pa.array(ids, pa.string()), probabilities, source, outside, refused, unknown)


def votes_form(name: str) -> Form:
    """A list of votes: labels that several runs or models gave."""
    return Form("votes", (name,), lambda batch, ids, classes: _votes(batch.column(name).to_pylist(), ids, classes))


def vote_columns_form(names: tuple[str, ...]) -> Form:
    """One column a vote."""

    def parse(batch: pa.RecordBatch, ids: Sequence[str], classes: Classes) -> Parsed:
        columns = [as_text(batch.column(name)).to_pylist() for name in names]
        return _votes(list(zip(*columns, strict=True)), ids, classes)

    return Form(f"{len(names)} votes", names, parse, text=names)


def object_form(name: str) -> Form:
    """An object of class → probability, or with a label and a confidence in it: a struct, a map, or JSON as text."""

    def parse(batch: pa.RecordBatch, ids: Sequence[str], classes: Classes) -> Parsed:
        return from_said(ids, [said_by(value, classes) for value in batch.column(name).to_pylist()], classes)

    return Form(OBJECTS, (name,), parse)


def said_by(value: Any, classes: Classes) -> Said | str:
    """What a value of an object says."""
    if isinstance(value, list):  # a map, as pairs
        value = dict(value)
    content = parse_object(value) if isinstance(value, str) else value
    return NO_ANSWER if content is None else read_object(content, classes)
