"""`wdistill correct`: from answers and gold labels to one table to train on, streaming, resumable, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import wdistill
from wdistill.answers.canonical import table_options, table_paths, write_tables
from wdistill.answers.pool import AnswerPool, Survey, open_pool, survey
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.row_models import fit_experts
from wdistill.core import checks, store
from wdistill.core.errors import FileError, InputError
from wdistill.core.progress import say
from wdistill.core.settings import to_json
from wdistill.methods.context import one_hot
from wdistill.methods.targets import RECALIBRATED
from wdistill.tables.correct import CorrectJob, lists, prepare_best
from wdistill.tables.formats.table import Chunk, Table
from wdistill.tables.join import Numbers
from wdistill.tables.options import Paths, check_output
from wdistill.tables.output import WRITERS
from wdistill.tables.parts import Aligned, JobFolder, open_folder, refuse_foreign
from wdistill.tables.rows import OutputBatch, UnlabeledTables
from wdistill.tables.weigh import run_table_job

TABLES = "aligned-tables"  # in the folder of a job that is not finished: answers, experts and gold rows as tables
GOLD, CORRECTED = "gold", "corrected"  # where the targets of a row come from: a label, several experts,
TEACHER = "teacher"  # or the teacher alone, recalibrated on gold


@dataclass(frozen=True, eq=False)
class AnswersJob:
    """The job that corrects answers: the same as for tables, with names of classes, sources, and the gold rows in it."""

    job: CorrectJob
    pool: AnswerPool
    seen: Survey

    @property
    def source(self) -> UnlabeledTables:
        return self.job.source

    @property
    def state(self) -> bytes:
        return self.job.state + repr(self.pool.classes.names).encode()

    @property
    def metadata(self) -> dict[str, Any]:
        answers = {
            "rows": self.seen.answers,
            "refused": dict(self.seen.refused),
            "refusals": self.seen.refusals,
            "confidence": dict(self.seen.sources),
        }
        named = {"class_names": list(self.pool.classes.names), "gold": len(self.pool.numbers)}
        return {**self.job.metadata, **named, "answers": answers}

    def schema(self, ids: pa.DataType) -> pa.Schema:
        named = [("label", pa.string()), ("weight", pa.float32()), ("source", pa.string())]
        return pa.schema([("id", ids), ("targets", pa.list_(pa.float32(), len(self.pool.classes))), *named])

    def numbers(self, table: Table, chunk: Chunk) -> Numbers:
        return self.job.numbers(table, chunk)

    def process(self, kept: np.ndarray, numbers: Numbers) -> OutputBatch:
        targets, changed = self.job.targets(numbers)
        alone = len(self.source.columns) == 1 or self.job.metadata["targets_from"].removesuffix(RECALIBRATED) == TEACHER
        columns = self._columns(targets, targets.argmax(axis=1), TEACHER if alone else CORRECTED)
        return OutputBatch(kept, columns, {"changed": int(changed.sum())})

    def appended(self) -> pa.RecordBatch:
        """The gold rows with their true labels, those without an answer too."""
        ids = sorted(self.pool.numbers)
        labels = np.array([self.pool.numbers[key] for key in ids])
        columns = self._columns(one_hot(labels, len(self.pool.classes)), labels, GOLD)
        return pa.RecordBatch.from_arrays([pa.array(ids, pa.string()), *columns], schema=self.schema(pa.string()))

    def _columns(self, targets: np.ndarray, numbers: np.ndarray, source: str) -> tuple[pa.Array, ...]:
        n = len(targets)
        names = pa.array(self.pool.classes.names, pa.string()).take(pa.array(numbers))
        return lists(targets), names, pa.array(np.ones(n, np.float32)), pc.cast(pa.repeat(source, n), pa.string())


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
        identity = {"version": wdistill.__version__, "options": to_json(options), "files": sources.stamps}
        held = open_folder(folder, identity)
        try:
            with checks.collect_warnings():
                seen, paths = _tables(pool, held)
            say(seen.said(pool))
            say(f"{pool.gold.said()}; classes: {', '.join(pool.classes.names[:20])}")
            record = run_table_job(output, lambda: _prepare(paths, pool, seen))
        except (InputError, FileError):  # of bad input nothing is worth keeping
            held.clear()
            raise
        held.clear()
    return record


def _prepare(paths: Paths, pool: AnswerPool, seen: Survey) -> AnswersJob:
    return AnswersJob(prepare_best(paths, table_options(pool)), pool, seen)


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
        write_tables(pool, seen.gold, fit_experts(pool, seen.gold), place)
        files = {path.name: [path.stat().st_size, store.digest_file(path)] for path in sorted(place.iterdir())}
        held.aligned["tables"] = Aligned("", [], files)
        held.commit()
    return seen, table_paths(place)
