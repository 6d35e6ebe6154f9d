"""`wdistill correct`: from answers and gold labels to one table to train on, streaming, resumable, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import wdistill
from wdistill.answers.canonical import table_options, table_paths, warn_of_empty, write_tables
from wdistill.answers.pool import AnswerPool, Survey, open_pool, survey
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.row_models import RowModels, fit_experts
from wdistill.core import checks, store
from wdistill.core.errors import FileError, InputError
from wdistill.core.progress import say
from wdistill.core.settings import to_json
from wdistill.methods.context import one_hot
from wdistill.methods.targets import RECALIBRATED
from wdistill.tables.correct import CorrectJob, lists, prepare_best
from wdistill.tables.experts import sample_size
from wdistill.tables.formats.table import Chunk, Table
from wdistill.tables.join import Numbers
from wdistill.tables.options import Paths, check_output
from wdistill.tables.output import WRITERS
from wdistill.tables.parts import Aligned, JobFolder, open_folder, refuse_foreign
from wdistill.tables.rows import OutputBatch, UnlabeledTables
from wdistill.tables.sample import drawn
from wdistill.tables.weigh import run_table_job

TABLES = "aligned-tables"  # in the folder of a job that is not finished: answers, experts and gold rows as tables
GOLD, CORRECTED = "gold", "corrected"  # where the targets of a row come from: a label, several experts,
TEACHER = "teacher"  # or the teacher alone, recalibrated on gold


@dataclass(frozen=True, eq=False)
class AnswersJob:
    """The job that corrects answers: the same as for tables, with names of classes, sources, and the gold rows in it."""

    job: CorrectJob
    classes: tuple[str, ...]
    origin: str  # where the targets come from, in the column `source`
    gold: Mapping[str, int]  # classes of the gold rows that come last, by id
    metadata: Mapping[str, Any]

    @property
    def source(self) -> UnlabeledTables:
        return self.job.source

    @property
    def state(self) -> bytes:
        return self.job.state + repr(self.classes).encode()

    def schema(self, ids: pa.DataType) -> pa.Schema:
        return _schema(ids, self.classes)

    def numbers(self, table: Table, chunk: Chunk) -> Numbers:
        return self.job.numbers(table, chunk)

    def process(self, kept: np.ndarray, numbers: Numbers) -> OutputBatch:
        targets, changed = self.job.targets(numbers)
        columns = _columns(self.classes, targets, targets.argmax(axis=1), self.origin)
        return OutputBatch(kept, columns, {"changed": int(changed.sum())})

    def appended(self) -> pa.RecordBatch | None:
        return gold_rows(self.gold, self.classes) if self.gold else None


def gold_rows(gold: Mapping[str, int], classes: tuple[str, ...]) -> pa.RecordBatch:
    """The gold rows, whose classes are given by id, with their true labels, those without an answer too."""
    ids = sorted(gold)
    labels = np.array([gold[key] for key in ids])
    columns = _columns(classes, one_hot(labels, len(classes)), labels, GOLD)
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.string()), *columns], schema=_schema(pa.string(), classes))


def _schema(ids: pa.DataType, classes: tuple[str, ...]) -> pa.Schema:
    named = [("label", pa.string()), ("weight", pa.float32()), ("source", pa.string())]
    return pa.schema([("id", ids), ("targets", pa.list_(pa.float32(), len(classes))), *named])


def _columns(classes: tuple[str, ...], targets: np.ndarray, numbers: np.ndarray, source: str) -> tuple[pa.Array, ...]:
    n = len(targets)
    names = pa.array(classes, pa.string()).take(pa.array(numbers))
    return lists(targets), names, pa.array(np.ones(n, np.float32)), pc.cast(pa.repeat(source, n), pa.string())


def answers_job(job: CorrectJob, pool: AnswerPool, seen: Survey) -> AnswersJob:
    """The job on all answers, from that on their tables."""
    alone = len(job.source.columns) == 1 or job.metadata["targets_from"].removesuffix(RECALIBRATED) == TEACHER
    answers = {
        "rows": seen.answers,
        "refused": dict(seen.refused),
        "refusals": seen.refusals,
        "confidence": dict(seen.sources),
    }
    names = pool.classes.names
    metadata = {**job.metadata, "class_names": list(names), "gold": len(pool.numbers), "answers": answers}
    return AnswersJob(job, names, TEACHER if alone else CORRECTED, pool.numbers, metadata)


def fit_answers(pool: AnswerPool, seen: Survey, folder: Path) -> tuple[AnswersJob, RowModels | None, str]:
    """What the rows of any file need, fitted on gold and on a sample of the unlabeled rows, as if all of them were tables:
    the job, the models of the rows, and the digest of all that was fitted. `folder` is for the time being."""
    assert seen.gold is not None
    experts = fit_experts(pool, seen.gold)
    write_tables(pool, seen.gold, experts, folder, _sample(pool, seen))
    paths = table_paths(folder)
    models = None if experts is None else experts.models
    job = answers_job(prepare_best(paths, table_options(pool)), pool, seen)
    read = [file.reading for file in pool.files]
    known = to_json(pool.options), pool.classes, sorted(pool.numbers.items()), read, str(pool.row_schema)
    fitted = store.digest_file(Path(paths.validation[0])), store.digest(b"" if models is None else models.state)
    return job, models, store.digest(repr((known, fitted)).encode() + job.state)


def _sample(pool: AnswerPool, seen: Survey) -> pa.Array | None:
    """The ids of the unlabeled rows that are looked at; None where they are all."""
    count = sample_size(len(pool.classes))
    if seen.unlabeled(pool) <= count:
        return None
    batches = (batch.parsed.ids.filter(pa.array(pool.unlabeled(batch.parsed))) for batch in pool.batches((), "drawing rows"))
    return drawn(batches, count, 0)


def say_what_was_found(pool: AnswerPool, seen: Survey) -> None:
    say(seen.said(pool))
    say(f"{pool.gold.said()}; classes: {', '.join(pool.classes.names[:20])}")


def correct_files(sources: Sources, output: Path, options: AnswerOptions) -> dict[str, Any]:
    """Run the whole job; returns the record that the output carries, and prints what was found."""
    tables = Paths(sources.all, settings=sources.settings)
    check_output(output, WRITERS, tables, escape_formulas=options.escape_formulas)
    pool = open_pool(sources, options)
    if pool.hint:
        say(pool.hint)
    folder = output.with_name(f"{output.name}.answers")
    refuse_foreign(folder, [Path(name) for name in sources.all])
    with store.lock(folder):
        identity = {"version": wdistill.__version__, "options": to_json(pool.options), "files": sources.stamps}
        held = open_folder(folder, identity)
        try:
            with checks.collect_warnings():
                seen, paths = _tables(pool, held)
            say_what_was_found(pool, seen)
            record = run_table_job(output, lambda: answers_job(prepare_best(paths, table_options(pool)), pool, seen))
        except (InputError, FileError):  # of bad input nothing is worth keeping
            held.clear()
            raise
        held.clear()
    return record


def _tables(pool: AnswerPool, held: JobFolder) -> tuple[Survey, Paths]:
    """The answers as tables: those of an earlier run, or made now. The answers are counted anew in any case."""
    place = held.scratch(TABLES)
    scratch = held.scratch("scratch")
    store.make_folder(scratch)
    seen = survey(pool, scratch)
    store.remove(scratch)
    assert seen.gold is not None
    if "tables" not in held.aligned:
        store.make_folder(place)
        warn_of_empty(write_tables(pool, seen.gold, fit_experts(pool, seen.gold), place).empty)
        files = {path.name: [path.stat().st_size, store.digest_file(path)] for path in sorted(place.iterdir())}
        held.aligned["tables"] = Aligned("", [], files)
        held.commit()
    return seen, table_paths(place)
