"""The columns of gold tables that say how their rows were drawn: groups, and inclusion probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.core.errors import InputError, bad_input
from wdistill.methods.gold_design import GROUP, INCLUSION, GoldDesign, check_groups, inclusion_weights
from wdistill.tables.formats.table import Table
from wdistill.tables.gold import table_with
from wdistill.tables.options import Options

Check = Callable[[NDArray[Any], str], NDArray[Any]]


def with_design_columns(options: Options, gold: Sequence[Table]) -> Options:
    """The options with the columns of groups and inclusion probabilities that gold tables have by their usual names."""
    others = {*options.opinions, options.inputs}
    there = {name for table in gold for name in table.columns} - others
    return replace(
        options,
        group=options.group or (GROUP if GROUP in there else None),
        inclusion=options.inclusion or (INCLUSION if INCLUSION in there else None),
    )


def read_design(gold: Sequence[Table], options: Options, ids: pa.Array) -> GoldDesign:
    """How the gold rows with these ids were drawn."""

    def read(column: str | None, check: Check) -> NDArray[Any] | None:
        if column is None:
            return None
        with naming_ids(ids):
            return check(column_values(gold, column, ids), f"--validation, column {column!r}")

    return GoldDesign(read(options.inclusion, inclusion_weights), read(options.group, check_groups))


@contextmanager
def naming_ids(ids: pa.Array) -> Iterator[None]:
    """Errors about gold rows name their ids."""
    try:
        yield
    except InputError as error:
        if not error.rows:
            raise
        raise error.at(error.where, 0, list(ids.take(pa.array(error.rows, pa.int64())).to_pylist())) from None


def column_values(tables: Sequence[Table], column: str, ids: pa.Array) -> NDArray[Any]:
    """The values (m,) of a column of the rows with these ids, as objects; None where there is none."""
    table = table_with(tables, column)
    if column not in table.columns:
        found, expected = f"columns {column}_0, {column}_1, …", f"one column {column!r}"
        remedy = "write one value a row, or name another column"
        raise bad_input("several columns in place of one", f"{table.option} {table.files[0]}", found, expected, remedy)
    own = pa.concat_arrays([chunk.ids for chunk in table.chunks()])
    kind = pa.string() if table.format == "csv" else table.schema.field(column).type  # text stays as it is written
    read = table.batches(pa.schema([(column, kind)]))
    values = [value for _, batch in read for value in batch.column(column).to_pylist()]
    rows = np.empty(len(values), object)
    rows[:] = values
    return np.asarray(rows[pc.index_in(ids, value_set=own).to_numpy(zero_copy_only=False)])
