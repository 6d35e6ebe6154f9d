"""A prepared table job as bytes: all that another process or machine needs to go on with it, and nothing that it would run.

What was fitted is in them as numbers, so that every process makes the same of the same rows, bit by bit. Of the gold rows
only the first is there: it says how predictions are read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from wdistill.core import archive
from wdistill.core.errors import FileError, bad_value, unreadable
from wdistill.core.settings import from_json, to_json
from wdistill.methods.targets import targets_of_record
from wdistill.tables.correct import CorrectJob
from wdistill.tables.experts import ExpertTables
from wdistill.tables.formats.table import Table
from wdistill.tables.gold import table_with
from wdistill.tables.options import Options
from wdistill.tables.rows import TableJob, UnlabeledTables
from wdistill.tables.weigh import WeighJob
from wdistill.weights import saved
from wdistill.weights.evidence import Evidence

FORMAT = 1
TEXT = "job.json"  # the member that is no array
GOLD = ("labels", "teacher", "student")  # of the first gold row


def pack_source(source: UnlabeledTables) -> bytes:
    """How the unlabeled rows are read, before anything is fitted."""
    return _packed(source, {}, {})


def pack_job(job: TableJob) -> bytes:
    """A prepared job; equal jobs give equal bytes."""
    if isinstance(job, WeighJob):
        return _packed(job.source, {}, {"rule": np.frombuffer(job.state, np.uint8)})
    assert isinstance(job, CorrectJob)
    if job.experts.forest is not None:
        remedy = "leave out --inputs, or run without --engine"
        raise bad_value("a forest stays in the process that grew it", "--inputs", "a forest", "other experts", remedy)
    return _packed(job.source, {"targets": job.fitted.record}, {})


def unpack_source(content: bytes, where: str) -> Callable[[Sequence[Table]], UnlabeledTables]:
    """From tables, such as one part of the unlabeled rows, to their rows, to be read in that way."""
    return _unpacked(content, where)[0]


def unpack_job(content: bytes, where: str) -> Callable[[Sequence[Table]], TableJob]:
    """From tables, such as one part of the unlabeled rows, to the job on them."""
    source, text, arrays = _unpacked(content, where)
    if "rule" in arrays:
        fitted = saved.from_bytes(arrays["rule"].tobytes(), where)
        return lambda tables: WeighJob(source(tables), fitted)
    try:
        targets = targets_of_record(text["targets"])
    except archive.DAMAGE as error:
        raise _damaged(where, error) from None
    return lambda tables: CorrectJob(ExpertTables(source(tables), pa.array([]), {}, named=True), targets, {})


def _packed(source: UnlabeledTables, content: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    evidence = source.evidence
    gold = (evidence.validation_labels, evidence.validation_teacher, evidence.validation_student)
    first = {name: values[:1] for name, values in zip(GOLD, gold, strict=True) if values is not None}
    text = {
        "wdistill": FORMAT,
        "options": to_json(source.options),
        "classes": None if evidence.classes is None else list(evidence.classes),
        "columns": list(source.columns),
        "gold": None if source.gold_ids is None else source.gold_ids.to_pylist(),
        **content,
    }
    return archive.to_bytes(TEXT, text, {**first, **arrays})


def _unpacked(
    content: bytes, where: str
) -> tuple[Callable[[Sequence[Table]], UnlabeledTables], dict[str, Any], dict[str, np.ndarray]]:
    try:
        text, arrays = archive.read(io.BytesIO(content), TEXT)
        if text["wdistill"] != FORMAT:
            raise ValueError(f"format {text['wdistill']}, not {FORMAT}")
        options, needed = from_json(Options, text["options"], where), [str(column) for column in text["columns"]]
        gold = None if text["gold"] is None else pa.array(text["gold"])
        labels, teacher, student = (arrays.get(name) for name in GOLD)
        assert labels is not None and teacher is not None
        reading = {"kind": options.kind, "classes": text["classes"], "renormalize": options.renormalize}
        evidence = Evidence(labels, teacher, student, **reading)
    except (*archive.DAMAGE, AssertionError) as error:
        raise _damaged(where, error) from None

    def on(tables: Sequence[Table]) -> UnlabeledTables:
        columns = {column: table_with(tables, column) for column in needed}
        return UnlabeledTables(tuple(tables), options, evidence, columns, gold)

    return on, text, arrays


def _damaged(where: str, error: Exception) -> FileError:
    expected, remedy = "the bytes of a prepared job", "prepare the job again, with this version on all machines"
    return unreadable("not a prepared job", where, error, expected, remedy)
