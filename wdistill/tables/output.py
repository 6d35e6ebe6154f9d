"""The file of weights: parquet, csv or npz by its extension, with a record of how it was made."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wdistill.core import foreign_json, sealed, store
from wdistill.core.errors import WdistillError, unreadable
from wdistill.core.progress import progress
from wdistill.tables.formats import npz
from wdistill.tables.formats.archive import opened
from wdistill.tables.formats.parquet import PARQUET, parquet_file
from wdistill.tables.formats.schema import Location

ROWS = 1 << 16  # read at once
ENTRIES = 1 << 21  # numbers of lists read at once
PIECE = 8 << 20  # bytes whose digest is computed at once
RECORD = b"wdistill"  # key of the record in a parquet file
RECORD_LIMIT = 32 << 20  # bytes of a record
STATE_LIMIT = RECORD_LIMIT - (4 << 20)  # of the state of a rule in it, as text: half a million gold rows
FOOTER_LIMIT = RECORD_LIMIT + (16 << 20)  # bytes at the end of a parquet file, where its record is
OURS = "a file that `wdistill weigh` wrote"


@dataclass(frozen=True)
class Assembly:
    """What a writer needs: the columns, how many rows, and the parts (again and again, one batch at a time)."""

    schema: Any  # a pyarrow.Schema
    rows: int
    batches: Callable[[], Iterator[Any]]
    escape_formulas: bool = False  # in columns of text


@dataclass(frozen=True)
class Sink:
    """Where an output goes: all its batches in their order, then the record."""

    add: Callable[[Any], None]
    finish: Callable[[dict[str, Any]], None]


def rows_at_once(schema: Any) -> int:
    """How many rows to hold in memory while the output is written."""
    import pyarrow as pa

    longest = max(each.type.list_size if pa.types.is_fixed_size_list(each.type) else 1 for each in schema)
    return max(256, min(ROWS, ENTRIES // longest))


@contextmanager
def open_output(path: Path, temporary: Path | None, assembly: Assembly) -> Iterator[Sink]:
    """A sink for all rows and the record; only when the block ends well does `path` appear."""
    with store.writing(path, temporary=temporary) as file, WRITERS[path.suffix.lower()](file, assembly) as sink:
        yield sink


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a file of weights, if it has one."""
    with _damage(path, "its record cannot be read"):
        with path.open("rb") as file:
            magic = file.read(4)
        text = MAGICS[magic](path) if magic in MAGICS else None
        if not text:
            return None
        if len(text) > RECORD_LIMIT:
            raise ValueError(f"a record of {len(text)} bytes")
        foreign_json.check_entries(text)
    record = sealed.unseal(text)
    if not isinstance(record, dict):
        raise unreadable("its record is damaged", path, "a record that is not as it was written", OURS, "weigh again")
    return record


def has_lost_its_beginning(path: Path) -> bool:
    """Whether a file is no parquet or npz by its first bytes, and ends as one of ours does, with a record."""
    if path.suffix.lower() not in (".parquet", ".npz"):
        return False
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(max(0, file.seek(0, os.SEEK_END) - FOOTER_LIMIT))
        tail = b"" if magic in MAGICS else file.read()
    return sealed.HEAD in tail and (RECORD in tail or npz.RECORD.encode() in tail)


@contextmanager
def _damage(path: Path, what: str) -> Iterator[None]:
    """Whatever goes wrong with a file in here becomes an error that names it: pyarrow and zipfile raise all kinds."""
    try:
        yield
    except WdistillError:
        raise
    except Exception as error:
        raise unreadable(what, path, error, OURS, "weigh again") from None


def _record_of_parquet(path: Path) -> bytes | None:
    with path.open("rb") as file:  # not by its name, which pyarrow cannot say in every locale
        file.seek(-8, os.SEEK_END)
        footer = int.from_bytes(file.read(4), "little")
        if footer > FOOTER_LIMIT:
            raise ValueError(f"a footer of {footer} bytes")
        return (parquet_file(file).metadata.metadata or {}).get(RECORD)


def _record_of_npz(path: Path) -> bytes | None:
    with opened(Location("the record of", path)) as members:
        for member in members:
            if member.info.filename == npz.RECORD:
                if not member.stored or member.info.file_size > RECORD_LIMIT:
                    raise ValueError(f"a record of {member.info.file_size} bytes, or compressed")
                with member.open() as stream:
                    return stream.read()
    return None


def has_its_content(path: Path) -> bool:
    """Whether a file of weights says what its record says that it says."""
    from wdistill.tables.content import ContentDigest

    record, content = read_record(path), ContentDigest()
    if record is None or "sha256" not in record:
        return False
    with _damage(path, "the file is damaged"):
        for batch in read_batches(path):
            for piece in _pieces(batch):
                content.add(piece)
    return bool(content.hexdigest() == record["sha256"])


def read_batches(path: Path) -> Iterator[Any]:
    """All columns of a file of weights as they were written, some rows at a time."""
    location, reader = Location("verify", path), npz.NPZ if path.suffix.lower() == ".npz" else PARQUET
    with _damage(path, "the file is damaged"):
        yield from reader.read(location, reader.layout(location).schema, ROWS)


def _pieces(batch: Any) -> Iterator[Any]:
    """The same rows, a few bytes at a time: a digest of strings has them in memory several times."""
    if batch.nbytes <= PIECE:
        yield batch
        return
    if batch.num_rows == 1:
        raise ValueError(f"a row of {batch.nbytes} bytes")
    for piece in (batch.slice(0, batch.num_rows // 2), batch.slice(batch.num_rows // 2)):
        yield from _pieces(piece)


def parquet_writer(file: BinaryIO, schema: Any) -> Any:
    """A writer of a parquet file whose pages carry checksums."""
    import pyarrow.parquet as pq

    from wdistill.tables.formats.predictions import writing

    return pq.ParquetWriter(file, schema, write_page_checksum=True, **writing(schema))


def scratch_writer(file: BinaryIO, schema: Any) -> Any:
    """The same for a file that is soon read again, and removed: its pages are not compressed."""
    import pyarrow.parquet as pq

    from wdistill.tables.formats.predictions import writing

    return pq.ParquetWriter(file, schema, write_page_checksum=True, **{**writing(schema), "compression": "none"})


@contextmanager
def _parquet(file: BinaryIO, assembly: Assembly) -> Iterator[Sink]:
    with parquet_writer(file, assembly.schema) as writer:
        yield Sink(writer.write_batch, lambda record: writer.add_key_value_metadata({RECORD: sealed.seal(record)}))


@contextmanager
def _csv(file: BinaryIO, assembly: Assembly) -> Iterator[Sink]:
    yield Sink(lambda batch: None, lambda record: _write_csv(file, assembly, record.get("class_names")))


@contextmanager
def _npz(file: BinaryIO, assembly: Assembly) -> Iterator[Sink]:
    yield Sink(lambda batch: None, lambda record: _write_npz(file, assembly, record))


def _write_csv(file: BinaryIO, assembly: Assembly, names: Sequence[str] | None) -> None:
    import pyarrow as pa
    from pyarrow import csv

    empty = pa.RecordBatch.from_pylist([], schema=assembly.schema)
    schema = _wide(empty, names).schema
    with csv.CSVWriter(file, schema) as writer, progress("writing", assembly.rows) as tick:
        for batch in assembly.batches():
            writer.write_batch(_wide(_escaped(batch) if assembly.escape_formulas else batch, names))
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


def _wide(batch: Any, names: Sequence[str] | None) -> Any:
    """A batch with lists of K numbers spread over columns NAME_0, NAME_1, …, or NAME_class, …: text has no lists."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for field in batch.schema:
        if pa.types.is_fixed_size_list(field.type):
            flat, width = batch[field.name].flatten(), field.type.list_size
            ends = names or [str(number) for number in range(width)]
            parts = [flat.take(pa.array(np.arange(c, len(flat), width))) for c in range(width)]
            columns |= {f"{field.name}_{end}": part for end, part in zip(ends, parts, strict=True)}
        else:
            columns[field.name] = batch[field.name]
    return pa.RecordBatch.from_pydict(columns)


def _write_npz(file: BinaryIO, assembly: Assembly, record: dict[str, Any]) -> None:
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


MAGICS: dict[bytes, Callable[[Path], bytes | None]] = {b"PAR1": _record_of_parquet, b"PK\x03\x04": _record_of_npz}
Writer = Callable[[BinaryIO, Assembly], AbstractContextManager[Sink]]
WRITERS: dict[str, Writer] = {".parquet": _parquet, ".pq": _parquet, ".csv": _csv, ".npz": _npz}
