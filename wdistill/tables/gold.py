"""The gold rows (--validation), read whole and joined by id into the evidence that rules are fitted on."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wdistill.core import checks
from wdistill.core.errors import InputError, bad_input, bad_value, empty
from wdistill.tables.formats.table import Chunk, Table, check_held, check_top_k
from wdistill.tables.join import different_ids, refuse_repeats, same_type
from wdistill.tables.options import Options
from wdistill.weights.evidence import Evidence


def read_gold(tables: Sequence[Table], options: Options, others: Sequence[Table]) -> tuple[Evidence, pa.Array]:
    """The evidence of the gold rows, and their ids; class names must agree with those of the other tables."""
    names = same_class_names((*tables, *others), options.classes)
    check_top_k((*tables, *others), options.kind)
    student = options.method == "paper" or any(table.has("student") for table in (*tables, *others))
    needed = ("label", "teacher", *(["student"] if student else []))
    homes = {column: table_with(tables, column) for column in needed}
    arrays: dict[str, Any] = {}
    ids: pa.Array | None = None
    for table in tables:
        columns = [column for column in needed if homes[column] is table]
        vectors = ["label"] if "label" in columns and not options.soft_labels else []
        check_held(table, columns)
        chunks = list(table.chunks([column for column in columns if column not in vectors], vectors))
        if not chunks:
            remedy = "label some rows that the teacher was not trained on"
            raise empty("the validation set is empty", table.option, "at least 1 row, better 100", remedy)
        table_ids = pa.concat_arrays([chunk.ids for chunk in chunks])
        refuse_repeats(table_ids, f"{table.option} {table.files[0]}")
        read = {column: np.concatenate([chunk.columns[column] for chunk in chunks]) for column in columns}
        if ids is None:
            ids, arrays = table_ids, read
            continue
        kept, order = _match(ids, table_ids, table, options.allow_subset)
        ids = ids.take(kept)
        arrays = {column: values[kept] for column, values in arrays.items()}
        arrays |= {column: values[order] for column, values in read.items()}
    assert ids is not None
    with named_rows(ids, "--validation"):
        evidence = Evidence(
            *(arrays[column] for column in needed),
            kind=options.kind,
            classes=names,
            soft_labels=options.soft_labels,
            renormalize=options.renormalize,
            tolerance=text_tolerance(tables, arrays["teacher"].shape[1]),
        )
    return evidence, ids


def text_tolerance(tables: Sequence[Table], classes: int) -> float | None:
    """Numbers written as text are taken to be as exact as float32, whatever they are read into."""
    text = any(table.format in ("csv", "jsonl") for table in tables)
    return checks.tolerance("float32", classes) if text else None


@contextmanager
def named_rows(ids: pa.Array, option: str) -> Iterator[None]:
    """Errors about rows of the validation arrays name the column and the ids of those rows."""
    try:
        yield
    except InputError as error:
        if not error.where.startswith("validation_"):
            raise
        column = error.where.removeprefix("validation_").removesuffix("s" if error.where.endswith("labels") else "")
        raise error.at(f"{option}, column {column!r}", 0, _ids_of(error, ids)) from None


@contextmanager
def located_errors(table: Table, chunk: Chunk, column: str) -> Iterator[None]:
    """Errors about rows of a chunk name its file, and the numbers and ids of the rows there."""
    try:
        yield
    except InputError as error:
        where = f"{table.option} {table.files[chunk.file]}, column {column!r}"
        raise error.at(where, chunk.first, _ids_of(error, chunk.ids)) from None


def _ids_of(error: InputError, ids: pa.Array) -> list[object]:
    return list(ids.take(pa.array(error.rows, pa.int64())).to_pylist()) if error.rows else []


def table_with(tables: Sequence[Table], column: str) -> Table:
    """The one table that has a column."""
    homes, option = [table for table in tables if table.has(column)], tables[0].option
    if len(homes) > 1:
        what, found = f"column {column!r} is in more than one table", " and ".join(str(table.files[0]) for table in homes)
        remedy = "leave the column out of one of them; shards of one table are given as a folder or a quoted 'glob*'"
        raise bad_value(what, option, found, "each column in one table", remedy)
    if not homes:
        present = sorted({name for table in tables for name in table.columns})
        close = difflib.get_close_matches(column, present, 1)
        where, found = f"{option} {', '.join(str(table.files[0]) for table in tables)}", f"columns {', '.join(present[:30])}"
        listed = f"{column!r} as a list column, or as {column}_0, {column}_1, …"
        expected = listed if column in ("teacher", "student") else f"a column {column!r}"
        remedy = f"rename {close[0]!r}, which looks alike" if close else "add the column, or name another table too"
        raise bad_input(f"no column {column!r}", where, found, expected, remedy)
    return homes[0]


def same_class_names(
    tables: Sequence[Table], given: Sequence[str] | None, columns: Sequence[str] = ("teacher", "student")
) -> Sequence[str] | None:
    """The names of the classes, where wide columns or --classes give them; two orders are an error."""
    lists: dict[str, tuple[str, ...]] = {"--classes": tuple(given)} if given else {}
    for table in tables:
        for column in columns:
            names = table.classes(column) if table.has(column) else None
            if names is not None:
                lists[f"{table.option} {table.files[0]}, column {column!r}"] = names
    if not lists:
        return None
    (first, names), *others = lists.items()
    for where, other in others:
        if other != names:
            what, expected = "classes in another order, or other classes", f"{', '.join(names[:10])}, as in {first}"
            raise bad_input(what, where, ", ".join(other[:10]), expected, "write the columns of all tables in one order")
    return names


def _match(ids: pa.Array, others: pa.Array, table: Table, allow_subset: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of the first table have a partner in this one, and its row there."""
    where = f"{table.option} {table.files[0]}"
    same_type(ids.type, others.type, where)
    partner = pc.index_in(ids, value_set=others)
    kept = np.flatnonzero(pc.is_valid(partner).to_numpy(zero_copy_only=False))
    missing, extra = len(ids) - len(kept), len(others) - len(kept)
    if missing or extra:
        absent = ids.filter(pc.is_null(partner)) if missing else others.filter(pc.invert(pc.is_in(others, value_set=ids)))
        found = f"{missing} ids missing and {extra} too many, such as {', '.join(map(repr, absent[:5].to_pylist()))}"
        if not allow_subset or not len(kept):
            raise different_ids(where, found)
        checks.warn(f"{where}: {found}; these rows are left out")
    return kept, partner.drop_null().to_numpy()
