"""The pure function at the heart of every table job: arrow batches of predictions → batches of weights or targets.

It reads no file and writes none; all that it knows is in the bytes of a prepared job (portable.py). Rows may come in any
order and in batches of any size: a row's output depends on that row alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wdistill.core.errors import wrong_type
from wdistill.tables.formats.schema import Format, Layout, Location, to_ids
from wdistill.tables.formats.table import Table
from wdistill.tables.options import Paths, check_options, read_options
from wdistill.tables.portable import pack_job, unpack_job
from wdistill.tables.rows import Stretch, TableJob, stretches
from wdistill.tables.weigh import prepare_job

Named = str | os.PathLike[str]


def prepare_batches(
    validation: Named | Sequence[Named],
    unlabeled: Named | Sequence[Named],
    labeled: Named | Sequence[Named] = (),
    **options: Any,
) -> bytes:
    """Fit what `wdistill weigh` with these options would fit: a prepared job, as bytes, for `BatchFunction`.

    `unlabeled` is some of the rows, such as the first of many files: their columns are looked at, and the gain of
    method="best" is estimated on them. The mean entropy that fidelity takes is theirs alone.
    """
    listed = ([given] if isinstance(given, str | os.PathLike) else given for given in (validation, unlabeled, labeled))
    paths, chosen = Paths(*([os.fspath(path) for path in each] for each in listed)), read_options(options)
    check_options(chosen, paths)
    return pack_job(prepare_job(paths, chosen))


@dataclass(frozen=True)
class BatchFunction:
    """A batch of rows (id, teacher, student: the columns that `wdistill weigh` reads) → id, weight and what goes with it.

    Make one in every process, as it prepares itself when it is first called; pickled, it is its bytes.
    """

    state: bytes  # a prepared job

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not isinstance(batch, pa.RecordBatch):
            raise wrong_type("not a batch", "BatchFunction", batch, "a pyarrow.RecordBatch", "for tables use .stream(table)")
        reader = Format(lambda _: Layout(batch.schema, None), _read(batch))
        table = _BatchTable("a batch", (Path("of rows"),), "parquet", (), reader)
        job = self._on([table])
        made = [_output(job, stretch) for stretch in stretches(job, 0, 1)]
        if made:
            return pa.concat_batches(made)
        ids = to_ids(batch.column("id"), Location(table.option, table.files[0]))
        return pa.RecordBatch.from_pylist([], schema=job.schema(ids.type))

    def stream(self, rows: Any) -> pa.RecordBatchReader:
        """The same for all batches of what has an Arrow stream: tables and readers of pyarrow, Polars and DuckDB."""
        reader = pa.RecordBatchReader.from_stream(rows)
        empty = pa.RecordBatch.from_pylist([], schema=reader.schema)
        return pa.RecordBatchReader.from_batches(self(empty).schema, map(self, reader))

    def __reduce__(self) -> tuple[type[BatchFunction], tuple[bytes]]:
        return BatchFunction, (self.state,)

    @cached_property
    def _on(self) -> Callable[[Sequence[Table]], TableJob]:
        return unpack_job(self.state, "BatchFunction")


class _BatchTable(Table):
    """A table in memory."""

    def _check_unchanged(self, number: int) -> None:
        """It cannot change."""


def _read(batch: pa.RecordBatch) -> Callable[[Location, pa.Schema, int], Iterator[pa.RecordBatch]]:
    def read(location: Location, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        return (batch.select(schema.names).slice(first, rows) for first in range(0, batch.num_rows, rows))

    return read


def _output(job: TableJob, rows: Stretch) -> pa.RecordBatch:
    made = job.process(np.arange(len(rows.ids)), rows.numbers)
    return pa.RecordBatch.from_arrays([rows.ids, *made.columns], schema=job.schema(rows.ids.type))
