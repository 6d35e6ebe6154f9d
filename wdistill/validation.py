"""The validation table, read whole and joined by id into the evidence that rules are fitted on."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wdistill import checks
from wdistill.errors import ConfigError, InputError
from wdistill.evidence import Evidence
from wdistill.joining import refuse_repeats, same_type
from wdistill.readers import Chunk, Table


def read_validation(
    tables: Sequence[Table],
    *,
    kind: Any,
    classes: Sequence[str] | None,
    soft_labels: bool,
    renormalize: bool,
    allow_subset: bool,
) -> tuple[Evidence, pa.Array]:
    """The evidence of the validation rows, and their ids."""
    found: dict[str, Any] = {}
    ids: pa.Array | None = None
    for table in tables:
        own = [name for name in ("label", "teacher", "student") if holder(tables, name) is table]
        vectors = [name for name in own if name == "label" and not soft_labels]
        chunks = list(table.chunks([name for name in own if name not in vectors], vectors))
        if not chunks:
            raise InputError(
                "the validation set is empty", where=table.option, found="0 rows", expected="at least 1 row, better 100"
            )
        these = pa.concat_arrays([chunk.ids for chunk in chunks])
        refuse_repeats(these, f"{table.option} {table.files[0]}")
        columns = {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in own}
        if ids is None:
            ids, found = these, columns
            continue
        kept, order = _match(ids, these, table, allow_subset)
        ids = ids.take(kept)
        found = {name: values[kept] for name, values in found.items()}
        found |= {name: values[order] for name, values in columns.items()}
    assert ids is not None
    with naming_ids(ids, "--validation"):
        evidence = Evidence(
            found["label"],
            found["teacher"],
            found["student"],
            kind=kind,
            classes=classes,
            soft_labels=soft_labels,
            renormalize=renormalize,
            tolerance=text_tolerance(tables, found["teacher"].shape[1]),
        )
    return evidence, ids


def text_tolerance(tables: Sequence[Table], classes: int) -> float | None:
    """Numbers written as text are taken to be as exact as float32, whatever they are read into."""
    text = any(table.format in ("csv", "jsonl") for table in tables)
    return checks.tolerance(np.dtype(np.float32), classes) if text else None


@contextmanager
def naming_ids(ids: pa.Array, option: str) -> Iterator[None]:
    """Errors about rows of the validation arrays get the ids of those rows."""
    try:
        yield
    except InputError as error:
        if not error.where.startswith("validation_"):
            raise
        column = error.where.removeprefix("validation_").removesuffix("s" if error.where.endswith("labels") else "")
        shown = ids.take(pa.array(error.rows, pa.int64())).to_pylist() if error.rows else []
        raise error.at(f"{option}, column {column!r}", 0, shown) from None


@contextmanager
def naming_place(table: Table, chunk: Chunk, column: str) -> Iterator[None]:
    """Errors about rows of a chunk get its file, and the numbers and ids of the rows there."""
    try:
        yield
    except InputError as error:
        shown = chunk.ids.take(pa.array(error.rows, pa.int64())).to_pylist() if error.rows else []
        where = f"{table.option} {table.files[chunk.file]}, column {column!r}"
        raise error.at(where, chunk.first, shown) from None


def holder(tables: Sequence[Table], column: str) -> Table:
    """The one table that has a column."""
    holders = [table for table in tables if table.has(column)]
    option = tables[0].option
    if len(holders) > 1:
        raise ConfigError(
            f"column {column!r} is in more than one table",
            where=option,
            found=" and ".join(str(table.files[0]) for table in holders),
            expected="each column in one table",
            remedy="leave the column out of one of them; shards of one table are given as a folder or a quoted 'glob*'",
        )
    if not holders:
        present = sorted({name for table in tables for name in table.columns})
        close = difflib.get_close_matches(column, present, 1)
        raise InputError(
            f"no column {column!r}",
            where=f"{option} {', '.join(str(table.files[0]) for table in tables)}",
            found=f"columns {', '.join(present[:30])}",
            expected=f"{column!r} as a list column, or as {column}_0, {column}_1, …"
            if column in ("teacher", "student")
            else f"a column {column!r}",
            remedy=f"rename {close[0]!r}, which looks alike" if close else "add the column, or name another table too",
        )
    return holders[0]


def same_class_names(
    tables: Sequence[Table], given: Sequence[str] | None, columns: Sequence[str] = ("teacher", "student")
) -> Sequence[str] | None:
    """The names of the classes, where wide columns or --classes give them; two orders are an error."""
    known: dict[str, tuple[str, ...]] = {"--classes": tuple(given)} if given else {}
    for table in tables:
        for column in columns:
            names = table.classes(column) if table.has(column) else None
            if names is not None:
                known[f"{table.option} {table.files[0]}, column {column!r}"] = names
    if not known:
        return None
    (first, names), *others = known.items()
    for where, other in others:
        if other != names:
            raise InputError(
                "classes in another order, or other classes",
                where=where,
                found=", ".join(other[:10]),
                expected=f"{', '.join(names[:10])}, as in {first}",
                remedy="write the columns of all tables in one order",
            )
    return names


def _match(ids: pa.Array, these: pa.Array, table: Table, allow_subset: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of the first table have a partner here, and where it stands."""
    where = f"{table.option} {table.files[0]}"
    same_type(ids.type, these.type, where)
    place = pc.index_in(ids, value_set=these)
    kept = np.flatnonzero(pc.is_valid(place).to_numpy(zero_copy_only=False))
    missing, extra = len(ids) - len(kept), len(these) - len(kept)
    if missing or extra:
        absent = ids.filter(pc.is_null(place)) if missing else these.filter(pc.invert(pc.is_in(these, value_set=ids)))
        found = f"{missing} ids missing and {extra} too many, such as {', '.join(map(repr, absent[:5].to_pylist()))}"
        if not allow_subset or not len(kept):
            raise InputError(
                "the tables do not hold the same ids",
                where=where,
                found=found,
                expected="the ids of the first table",
                remedy="complete the tables, or use only the ids in both with --allow-subset",
            )
        checks.warn(f"{where}: {found}; these rows are left out")
    return kept, place.drop_null().to_numpy()
