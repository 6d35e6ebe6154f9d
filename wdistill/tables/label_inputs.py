"""Tables of inputs for a teacher: ids, and columns of numbers, lists or texts as they stand in the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from wdistill.core.errors import bad_input
from wdistill.tables.formats.schema import Location, listing, refuse_misnamed_ids, to_ids, to_matrix, wide
from wdistill.tables.formats.table import Table, open_tables
from wdistill.tables.label_options import LabelOptions

ROWS = 1 << 13  # of inputs read at once


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
