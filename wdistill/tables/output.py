"""The file of weights: parquet, csv or npz by its extension, with a record of how it was made."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wdistill.core import sealed, store
from wdistill.core.errors import unreadable
from wdistill.core.progress import progress
from wdistill.tables.formats import npz

ROWS = 1 << 16  # read at once
RECORD = b"wdistill"  # key of the record in a parquet file


@dataclass(frozen=True)
class Assembly:
    """What a writer needs: the columns, how many rows, and the parts (again and again, one batch at a time)."""

    schema: Any  # a pyarrow.Schema
    rows: int
    batches: Callable[[], Iterator[Any]]
    escape_formulas: bool = False  # in columns of text
    names: tuple[str, ...] | None = None  # of the classes, where lists of K numbers become columns of text


def write_output(path: Path, temporary: Path | None, assembly: Assembly, record: dict[str, Any]) -> None:
    """Write all rows and the record, and only then let `path` appear."""
    with store.writing(path, temporary=temporary) as file:
        WRITERS[path.suffix.lower()](file, assembly, record)


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a file of weights, if it has one."""
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic == b"PAR1":
            with path.open("rb") as file:  # not by its name, which pyarrow cannot say in every locale
                text = (pq.read_metadata(file).metadata or {}).get(RECORD)
        elif magic == b"PK\x03\x04":
            with zipfile.ZipFile(path) as archive:
                text = archive.read(npz.RECORD) if npz.RECORD in archive.namelist() else None
        else:
            return None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        expected = "a file that `wdistill weigh` wrote"
        raise unreadable("its record cannot be read", path, error, expected, "weigh again") from None
    if not text:
        return None
    record = sealed.unseal(text)
    if not isinstance(record, dict):
        found, expected = "a record that is not as it was written", "a file that `wdistill weigh` wrote"
        raise unreadable("its record is damaged", path, found, expected, "weigh again")
    return record


def has_its_content(path: Path) -> bool:
    """Whether a file of weights says what its record says that it says."""
    from wdistill.tables.content import ContentDigest

    record, content = read_record(path), ContentDigest()
    if record is None or "sha256" not in record:
        return False
    for batch in read_batches(path):
        content.add(batch)
    return bool(content.hexdigest() == record["sha256"])


def read_batches(path: Path) -> Iterator[Any]:
    """All columns of a file of weights as they were written, some rows at a time."""
    import pyarrow.parquet as pq

    from wdistill.tables.formats.schema import Location

    location = Location("verify", path)
    try:
        if path.suffix.lower() == ".npz":
            yield from npz.NPZ.read(location, npz.NPZ.layout(location).schema, ROWS)
        else:
            with path.open("rb") as file:
                yield from pq.ParquetFile(file, page_checksum_verification=True).iter_batches(ROWS, use_threads=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        expected = "a file that `wdistill weigh` wrote"
        raise unreadable("the file is damaged", path, error, expected, "weigh again") from None


def parquet_writer(file: BinaryIO, schema: Any) -> Any:
    """A writer of a parquet file whose pages carry checksums."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(file, schema, write_page_checksum=True)


def _parquet(file: BinaryIO, assembly: Assembly, record: dict[str, Any]) -> None:
    with parquet_writer(file, assembly.schema) as writer, progress("writing", assembly.rows) as tick:
        for batch in assembly.batches():
            writer.write_batch(batch)
            tick(batch.num_rows)
        writer.add_key_value_metadata({RECORD: sealed.seal(record)})


def _csv(file: BinaryIO, assembly: Assembly, record: dict[str, Any]) -> None:
    import pyarrow as pa
    from pyarrow import csv

    empty = pa.RecordBatch.from_pylist([], schema=assembly.schema)
    schema = _wide(empty, assembly.names).schema
    with csv.CSVWriter(file, schema) as writer, progress("writing", assembly.rows) as tick:
        for batch in assembly.batches():
            writer.write_batch(_wide(_escaped(batch) if assembly.escape_formulas else batch, assembly.names))
            tick(batch.num_rows)


def _escaped(batch: Any) -> Any:
    """A batch with a ' before text that a spreadsheet would run as formulas."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for number, field in enumerate(batch.schema):
        if pa.types.is_string(field.type):
            risky = pc.match_substring_regex(batch[number], r"^[=+\-@\t\r]")
            quoted = pc.if_else(risky, pc.binary_join_element_wise("'", batch[number], ""), batch[number])
            batch = batch.set_column(number, field.name, quoted)
    return batch


def _wide(batch: Any, names: tuple[str, ...] | None) -> Any:
    """A batch with lists of K numbers spread over columns NAME_0, NAME_1, …, or NAME_class, …: text has no lists."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for field in batch.schema:
        if pa.types.is_fixed_size_list(field.type):
            flat, width = batch[field.name].flatten(), field.type.list_size
            ends = names or tuple(map(str, range(width)))
            parts = [flat.take(pa.array(np.arange(c, len(flat), width))) for c in range(width)]
            columns |= {f"{field.name}_{end}": part for end, part in zip(ends, parts, strict=True)}
        else:
            columns[field.name] = batch[field.name]
    return pa.RecordBatch.from_pydict(columns)


def _npz(file: BinaryIO, assembly: Assembly, record: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = assembly.rows * len(assembly.schema)
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive, progress("writing", cells, "cells") as tick:
        for field in assembly.schema:
            listed = pa.types.is_fixed_size_list(field.type)
            shape = (assembly.rows, field.type.list_size) if listed else (assembly.rows,)
            if pa.types.is_string(field.type):
                longest = max((pc.max(pc.utf8_length(batch[field.name])).as_py() for batch in assembly.batches()), default=1)
                dtype = np.dtype(f"<U{max(1, longest)}")
            else:
                dtype = np.dtype((field.type.value_type if listed else field.type).to_pandas_dtype())
            with archive.open(_timeless(f"{field.name}.npy"), "w", force_zip64=True) as member:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for batch in assembly.batches():
                    column = batch[field.name].flatten() if listed else batch[field.name]
                    member.write(column.to_numpy(zero_copy_only=False).astype(dtype).tobytes())
                    tick(batch.num_rows)
        archive.writestr(_timeless(npz.RECORD), sealed.seal(record))


def _timeless(name: str) -> zipfile.ZipInfo:
    """A member without the time of writing: equal jobs give equal bytes."""
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


Writer = Callable[[BinaryIO, Assembly, dict[str, Any]], None]
WRITERS: dict[str, Writer] = {".parquet": _parquet, ".pq": _parquet, ".csv": _csv, ".npz": _npz}
