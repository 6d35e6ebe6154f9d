"""Predictions of the teacher and of auxiliary models for a whole split: computed once, stored by row id in chunks, read
back."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import nn

from wdistill.core import store
from wdistill.methods.context import AuxiliaryPredictions
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.tables.formats.parquet import parquet_file
from wdistill.training import input_files, tensors
from wdistill.training.data import Split
from wdistill.training.logits import FiledLogits, Logits, is_held, most_likely
from wdistill.training.predict import GRID, predict
from wdistill.training.stage import Callbacks, StoppedError
from wdistill.weights.equations import log_probabilities, probabilities

if TYPE_CHECKING:
    from wdistill.training.prepare import Prepared
    from wdistill.training.run import Run

CHUNK = 1 << 24  # predictions of a chunk
FILED = ("labeled", "unlabeled")  # splits whose logits are in a file of their own, where they are too many to hold
LABELS, FOLDED = "labels", "auxiliary/student"  # folders below that of a run
FOLDED_STUDENT = "student"  # the auxiliary model of runs without labeled rows: students trained on gold rows, by folds


def label_splits(run: Run, prepared: Prepared, callbacks: Callbacks) -> None:
    """Lines 2 to 4 of Algorithm 1: the teacher predicts every split once."""
    splits, recipe, teacher = prepared.splits, run.recipe, prepared.teacher
    if teacher is None:
        tables = prepared.tables or {}
        with_table = {name: split for name, split in splits.items() if name in tables}
        store_predictions(run.folder / "labels", with_table, by_table(tables, recipe.kind), callbacks)
        return
    parameters = CheckpointStore(run.folder / "teacher").read("parameters.safetensors")
    tensors.load_parameters(teacher, tensors.from_bytes(parameters, "teacher"), "teacher")
    predict_part = by_module(teacher.to(run.device), recipe.precision, callbacks)
    store_predictions(run.folder / "labels", splits, predict_part, callbacks)


def store_predictions(
    folder: Path,
    splits: Mapping[str, Split],
    predict_part: Callable[[Split, slice], NDArray[Any]],
    callbacks: Callbacks,
    name: str = "labels",
) -> None:
    """Store the logits (n, K) of every split, chunk by chunk; chunks that are already stored are not predicted again.

    `name` is shown in the progress.
    """
    checkpoints = CheckpointStore(folder)
    checkpoints.clean()
    if checkpoints.state.get("finished"):
        return
    total = sum(len(split) for split in splits.values())
    done = 0
    for split in splits.values():
        width = int(predict_part(split, slice(0, 1)).shape[1])
        for number, part in enumerate(_chunks(len(split), width)):
            file = f"{split.name}-{number:06d}.parquet"
            if file not in checkpoints.snapshot.files:
                content = table_bytes({"id": split.ids[part], "teacher": predict_part(split, part)})
                checkpoints.commit({"finished": False}, {file: content})
            done += part.stop - part.start
            callbacks.on_event({"stage": name, "what": "labels", "rows": done, "total": total})
            if callbacks.stopping():
                raise StoppedError(f"stopped after {done} of {total} rows were labeled")
    checkpoints.commit({"finished": True})


def by_module(teacher: nn.Module, precision: str, callbacks: Callbacks) -> Callable[[Split, slice], NDArray[Any]]:
    """Predictions of a teacher module."""

    def on_batch(rows: int) -> None:
        if callbacks.stopping():
            raise StoppedError("stopped inside a chunk of labels")

    return lambda split, part: predict(teacher, split.inputs, precision, part, on_batch)


def by_table(tables: Mapping[str, NDArray[Any]], kind: str) -> Callable[[Split, slice], NDArray[Any]]:
    """Stored predictions (n, K) of a teacher, by split: logits unchanged, probabilities as their logarithms."""

    def read(split: Split, part: slice) -> NDArray[Any]:
        values = tables[split.name][part]
        logits: NDArray[Any] = values if kind == "logits" else log_probabilities(values, kind, False)
        return logits.astype(np.float32)

    return read


def read_labels(folder: Path, split: str) -> NDArray[np.float32] | None:
    """The stored logits (n, K) of one split, or None where it was not labeled."""
    parts = list(_read_parts(CheckpointStore(folder), split))
    return np.concatenate(parts) if parts else None


def read_classes(run: Path, splits: Mapping[str, Split], classes: int) -> dict[str, NDArray[np.int64]]:
    """The teacher's most likely class (n,) of every row, by the splits that it labeled; after `file_stored`."""
    checkpoints, found = CheckpointStore(run / LABELS), dict[str, NDArray[np.int64]]()
    for name, split in splits.items():
        filed = _filed(run, LABELS, name, (len(split), classes))
        if _files_of(checkpoints, name):
            read = (part.argmax(axis=1) for part in _read_parts(checkpoints, name))
            found[name] = np.concatenate(list(read)) if filed is None else most_likely(filed)
    return found


def _read_parts(checkpoints: CheckpointStore, split: str) -> Iterator[NDArray[np.float32]]:
    return (read_table(checkpoints.read(name), ["teacher"])["teacher"] for name in _files_of(checkpoints, split))


def _files_of(checkpoints: CheckpointStore, split: str) -> list[str]:
    return sorted(name for name in checkpoints.snapshot.files if name.rpartition("-")[0] == split)


def file_stored(run: Path, source: str, splits: Mapping[str, Split], classes: int) -> None:
    """Bring stored logits that are too many to hold, of the rows that are trained on, into files that are read row by row.

    `source`: the folder below that of the run where they are stored.
    """
    checkpoints = CheckpointStore(run / source)
    for name, split in splits.items():
        filed = _filed(run, source, name, (len(split), classes))
        if filed is None or not _files_of(checkpoints, name):
            continue
        input_files.claim(filed.path.parent)
        input_files.check_recorded(filed.path)
        if not filed.path.exists():
            _write(filed, _read_parts(checkpoints, name))


def _write(filed: FiledLogits, parts: Iterator[NDArray[np.float32]]) -> None:
    header, path = store.npy_header(filed.shape, np.dtype(np.float32)), filed.path
    store.check_space(path.parent, len(header) + 4 * filed.shape[0] * filed.shape[1], "logits that are too many to hold")
    digest = hashlib.sha256(header)
    with store.writing(path) as file:
        file.write(header)
        for part in parts:
            file.write(part.data)
            digest.update(part.data)
        input_files.note(path.parent, {path.name: digest.hexdigest()})


def open_stored(run: Path, source: str, splits: Mapping[str, Split], classes: int) -> dict[str, Logits]:
    """Stored logits of gold rows and of those that are trained on, by split: arrays, or what `file_stored` wrote."""
    checkpoints, found = CheckpointStore(run / source), dict[str, Logits]()
    for name in ("validation", "labeled", "unlabeled"):
        filed = _filed(run, source, name, (len(splits[name]), classes))
        if _files_of(checkpoints, name):
            found[name] = filed or np.concatenate(list(_read_parts(checkpoints, name)))
    return found


def _filed(run: Path, source: str, split: str, shape: tuple[int, int]) -> FiledLogits | None:
    """Where the logits of a split are that are too many to hold; None where they are held, as those of gold rows always."""
    if split not in FILED or is_held(*shape):
        return None
    return FiledLogits(run / input_files.FOLDER / f"{Path(source).name}.{split}.npy", shape)


def read_predictions(folder: Path) -> AuxiliaryPredictions:
    """The stored probabilities of an auxiliary model."""
    stored = [read_labels(folder, name) for name in ("validation", "unlabeled")]
    gold, unlabeled = (probabilities(logits, "logits") for logits in stored if logits is not None)
    return AuxiliaryPredictions(gold, unlabeled)


def table_bytes(columns: Mapping[str, NDArray[Any] | None]) -> bytes:
    """A parquet file in memory: vectors as columns, matrices as lists of one length, None left out."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if values is None:
            continue
        if values.ndim == 2:
            arrays[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        else:
            arrays[name] = pa.array(values.tolist() if values.dtype.kind in "UO" else values)
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays), buffer, write_page_checksum=True)
    return buffer.getvalue()


def read_table(content: bytes, columns: list[str]) -> dict[str, NDArray[Any]]:
    table = parquet_file(pa.BufferReader(content)).read(columns)
    arrays: dict[str, NDArray[Any]] = {}
    for name in columns:
        column = table[name].combine_chunks()
        width = getattr(column.type, "list_size", None)
        flat = column.to_numpy(zero_copy_only=False) if width is None else column.flatten().to_numpy()
        arrays[name] = flat if width is None else flat.reshape(-1, width)
    return arrays


def column_names(content: bytes) -> list[str]:
    """Column names of a table that `table_bytes` wrote."""
    return list(parquet_file(io.BytesIO(content)).schema_arrow.names)


def _chunks(n: int, width: int) -> Iterator[slice]:
    """Slices of whole cells of the prediction grid, so that predictions do not depend on the chunks."""
    size = min(1 << 16, max(1, CHUNK // width // GRID) * GRID)
    return (slice(first, min(first + size, n)) for first in range(0, n, size))
