"""A teacher's predictions as a pure function of batches: ids and inputs in, ids and predictions out, no files, no state.

The teacher is called on batches of a fixed length, counted from the first row that is given. Whoever gives rows in pieces
that begin at multiples of that length gets the same bits as whoever gives them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from wdistill.core import checks
from wdistill.core.errors import InputError, bad_input, empty, wrong_type
from wdistill.tables.formats.predictions import StoredPredictions
from wdistill.tables.formats.schema import is_listed, is_text
from wdistill.tables.label_options import LabelOptions
from wdistill.weights.confidence import scan
from wdistill.weights.equations import probabilities

Values = NDArray[Any] | list[str]  # of one input: numbers (b, …), or texts
Predict = Callable[[Values | Mapping[str, Values]], Any]  # one input by itself, or several by name → (b, K) numbers
SHOWN = 5  # ids in a message


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
        if not isinstance(rows, pa.RecordBatch):
            raise wrong_type("not a batch", "Labeler", rows, "a pyarrow.RecordBatch", "for tables use .stream(table)")
        self._check_columns(rows)
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

    def stream(self, rows: Any) -> pa.RecordBatchReader:
        """The same for what has an Arrow stream: tables and readers of pyarrow, Polars and DuckDB. Whoever calls the
        teacher on all rows in their order, so many at a time, gets the same bits."""
        whole = _whole_batches(pa.RecordBatchReader.from_stream(rows), self.options.batch_rows)
        made = map(self, whole)
        first = next(made, None)
        if first is None:
            raise empty("no rows", "Labeler", "at least 1 row", "give rows of ids and inputs")
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], made))

    def _check_columns(self, rows: pa.RecordBatch) -> None:
        missing = [name for name in ("id", *self.options.inputs) if name not in rows.schema.names]
        if missing:
            found, expected = f"columns {', '.join(rows.schema.names)}", f"a column {missing[0]!r}"
            remedy = "name the columns id and as the option inputs tells"
            raise bad_input(f"there is no column {missing[0]!r}", "a batch of rows", found, expected, remedy)
        if not rows.num_rows:
            raise empty("no rows", "a batch of rows", "at least 1 row", "leave out batches without rows")

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


def _whole_batches(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows, a multiple of `size` at a time; the last are fewer."""
    pending, count = list[pa.RecordBatch](), 0
    for batch in batches:
        pending, count = [*pending, batch], count + batch.num_rows
        whole = count // size * size
        if whole:
            held = pa.concat_batches(pending)
            yield held.slice(0, whole)
            pending, count = [held.slice(whole)], count - whole
    if count:
        yield pa.concat_batches(pending)


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
