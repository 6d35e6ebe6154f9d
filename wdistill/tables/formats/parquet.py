"""Parquet files, read in batches that do not grow with the row groups; page checksums are compared where there are some."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from wdistill.tables.formats.pages import Guard, check_empty
from wdistill.tables.formats.schema import Format, Layout, Location, ends_early

MAGIC = b"PAR1"
BUFFER = 1 << 20  # bytes read at once from every column


def _layout(location: Location) -> Layout:
    with _opened(location) as (stream, file):
        rows = file.metadata.num_rows
        if rows == 0:  # else the rows that are read are counted
            check_empty(location, stream.fileno())
        return Layout(file.schema_arrow, rows)


def _read(location: Location, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    with _opened(location) as (stream, file):
        guard = Guard.of(location, stream.fileno(), file.metadata.schema, schema.names)
        rows, seen = guard.batch(rows), 0
        guard.check(rows)
        for batch in file.iter_batches(batch_size=rows, columns=schema.names, use_threads=False):
            yield batch
            seen += batch.num_rows
            guard.check(seen + rows)


@contextmanager
def _opened(location: Location) -> Iterator[tuple[IO[bytes], pq.ParquetFile]]:
    with location.path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - len(MAGIC)))
        if stream.read() != MAGIC:
            raise ends_early(location, size, "a parquet file, which ends with its table of contents")
        yield stream, parquet_file(stream)


def parquet_file(file: Any) -> pq.ParquetFile:
    """An open file, whose page checksums are compared where there are some: all that is read of parquet is read by it."""
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER, page_checksum_verification=True)


PARQUET = Format(_layout, _read)
