"""The file of weights: parquet, csv or npz by its extension, with a record of how it was made."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wdistill import store
from wdistill.errors import ConfigError, FileError

RECORD = b"wdistill"  # key of the record in a parquet file
MEMBER = "record.json"  # its name in an npz file


@dataclass(frozen=True)
class Assembly:
    """What a writer needs: the columns, how many rows, and the parts (again and again, one batch at a time)."""

    schema: Any  # a pyarrow.Schema
    rows: int
    batches: Callable[[], Iterator[Any]]


def check_output(path: Path) -> None:
    """Refuse an output that could not be written, before any work is done."""
    if path.suffix.lower() not in WRITERS:
        raise ConfigError(
            "unknown kind of output",
            where=f"--output {path}",
            found=path.suffix or "no extension",
            expected=", ".join(WRITERS),
            remedy="name the output weights.parquet, for example",
        )
    if path.is_dir():
        raise ConfigError(
            "the output is a folder",
            where=f"--output {path}",
            found="a folder",
            expected="a file name",
            remedy=f"name a file in it: {path / 'weights.parquet'}",
        )
    if not path.parent.is_dir():
        raise ConfigError(
            "the output's folder does not exist",
            where=f"--output {path}",
            found=f"no folder {path.parent}",
            expected="an existing folder",
            remedy=f"make it first: mkdir -p {path.parent}",
        )


def write(path: Path, temporary: Path, assembly: Assembly, record: dict[str, Any]) -> None:
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
            text = (pq.read_metadata(path).metadata or {}).get(RECORD)
        elif magic == b"PK\x03\x04":
            with zipfile.ZipFile(path) as archive:
                text = archive.read(MEMBER) if MEMBER in archive.namelist() else None
        else:
            return None
        found = json.loads(text) if text else None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise FileError(
            "its record cannot be read",
            where=str(path),
            found=f"{type(error).__name__}: {error}",
            expected="a file that `wdistill weigh` wrote",
            remedy="weigh again",
        ) from None
    return found if isinstance(found, dict) else None


def _parquet(file: BinaryIO, assembly: Assembly, record: dict[str, Any]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, assembly.schema) as writer:
        for batch in assembly.batches():
            writer.write_batch(batch)
        writer.add_key_value_metadata({RECORD: json.dumps(record)})


def _csv(file: BinaryIO, assembly: Assembly, record: dict[str, Any]) -> None:
    import pyarrow as pa
    from pyarrow import csv

    empty = pa.RecordBatch.from_pylist([], schema=assembly.schema)
    with csv.CSVWriter(file, _wide(empty).schema) as writer:
        for batch in assembly.batches():
            writer.write_batch(_wide(batch))


def _wide(batch: Any) -> Any:
    """A batch with lists of K numbers spread over columns NAME_0, NAME_1, …: text has no lists."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for field in batch.schema:
        if pa.types.is_fixed_size_list(field.type):
            flat, width = batch[field.name].flatten(), field.type.list_size
            columns |= {f"{field.name}_{c}": flat.take(pa.array(np.arange(c, len(flat), width))) for c in range(width)}
        else:
            columns[field.name] = batch[field.name]
    return pa.RecordBatch.from_pydict(columns)


def _npz(file: BinaryIO, assembly: Assembly, record: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for field in assembly.schema:
            listed = pa.types.is_fixed_size_list(field.type)
            shape = (assembly.rows, field.type.list_size) if listed else (assembly.rows,)
            if pa.types.is_string(field.type):
                longest = max((pc.max(pc.utf8_length(batch[field.name])).as_py() for batch in assembly.batches()), default=1)
                dtype = np.dtype(f"<U{max(1, longest)}")
            else:
                dtype = np.dtype((field.type.value_type if listed else field.type).to_pandas_dtype())
            with archive.open(f"{field.name}.npy", "w", force_zip64=True) as member:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for batch in assembly.batches():
                    column = batch[field.name].flatten() if listed else batch[field.name]
                    member.write(column.to_numpy(zero_copy_only=False).astype(dtype).tobytes())
        archive.writestr(MEMBER, json.dumps(record))


Writer = Callable[[BinaryIO, Assembly, dict[str, Any]], None]
WRITERS: dict[str, Writer] = {".parquet": _parquet, ".pq": _parquet, ".csv": _csv, ".npz": _npz}
