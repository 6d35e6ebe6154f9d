"""Parquet files, read in batches that do not grow with the row groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from wdistill.readers.layout import Format, Layout, Place, ends_early

MAGIC = b"PAR1"
BUFFER = 1 << 20  # bytes read at once from every column


def _layout(place: Place) -> Layout:
    with _opened(place) as file:
        return Layout(file.schema_arrow, file.metadata.num_rows)


def _read(place: Place, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    with _opened(place) as file:
        yield from file.iter_batches(batch_size=rows, columns=schema.names, use_threads=False)


@contextmanager
def _opened(place: Place) -> Iterator[pq.ParquetFile]:
    with place.path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - len(MAGIC)))
        if stream.read() != MAGIC:
            raise ends_early(place, size, "a parquet file, which ends with its table of contents")
        yield pq.ParquetFile(stream, pre_buffer=False, buffer_size=BUFFER)


PARQUET = Format(_layout, _read)
