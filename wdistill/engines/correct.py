"""`wdistill correct --engine`: many files of answers to a folder of targets, by any engine, with the same rows.

Gold rows, models of the rows and recalibration are fitted here, from files that stream by; what was fitted is sent to the
engine's processes, which read the answers once more, one file at a time. The gold rows are a file of their own, the last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from wdistill.answers.canonical import answer_paths, warn_of_empty, write_answers
from wdistill.answers.classes import Classes
from wdistill.answers.pool import AnswerPool, AnswerRows, Survey, open_pool, survey
from wdistill.answers.read import Reading, open_part
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.row_models import RowModels
from wdistill.answers.targets import AnswersJob, fit_answers, gold_rows, say_what_was_found
from wdistill.core import checks, store
from wdistill.core.errors import WdistillWarning, bad_value
from wdistill.core.progress import say
from wdistill.core.threads import one_thread
from wdistill.engines.folder import check_output_folder
from wdistill.engines.inputs import copies, file_to_file, table_files
from wdistill.engines.partition import Made, NewFile, Partition, local_files, no_ids
from wdistill.engines.run import Engine, Files, run_partitions
from wdistill.engines.weigh import histogram_of, sum_of_counts, sum_of_histograms
from wdistill.tables.correct import CorrectJob
from wdistill.tables.formats.table import open_tables
from wdistill.tables.job import make_part
from wdistill.tables.output import parquet_writer
from wdistill.tables.parts import JobFolder
from wdistill.tables.portable import pack_job, unpack_job
from wdistill.tables.weigh import TableParts, record_of
from wdistill.weights.diagnostics import Histogram

OPTION = "--answers"


def correct_partitions(sources: Sources, output: str, options: AnswerOptions, engine: Engine) -> dict[str, Any]:
    """Run the whole job; returns the record in the manifest."""
    if options.escape_formulas:
        raise bad_value(
            "has no meaning with --engine", "--escape-formulas", "parquet files", "a .csv output", "leave it out"
        )
    check_output_folder(output)
    files = _files(sources)
    with copies() as here, tempfile.TemporaryDirectory(prefix="wdistill-") as folder:
        gold, rows = (None if text is None else here([text])[0] for text in (sources.gold, sources.rows))
        with checks.collect_warnings():
            pool = open_pool(Sources(here(sources.answers), gold, rows, sources.settings), options)
            for file in pool.files:
                if file.counts_rows:
                    raise no_ids(file.where)
            if pool.hint:
                say(pool.hint)
            seen = survey(pool, Path(folder))
        say_what_was_found(pool, seen)
        with checks.collect_warnings(WdistillWarning) as messages:
            job, models, digest = fit_answers(pool, seen, Path(folder))
            maker = _maker(pool, job, models)
            return run_partitions(CorrectPartitions(job, maker, digest, files, pool, seen), output, engine, messages)


def _files(sources: Sources) -> Files:
    """Of every partition its answers, and its rows where those have files of their own; last, the file of gold labels."""
    answers = [each for text in sources.answers for each in table_files(text, OPTION)]
    tables = [(f"{OPTION} {sources.answers[0]}", answers)]
    if sources.rows is not None:
        tables.append((f"--pool {sources.rows}", table_files(sources.rows, "--pool")))
    gold, version = answers[0] if sources.gold is None else table_files(sources.gold, "--gold")[0]
    return [*file_to_file(tables), ((gold,), version)]


def _maker(pool: AnswerPool, job: AnswersJob, models: RowModels | None) -> CorrectFile:
    readings = tuple(file.reading for file in pool.files for _ in file.paths)
    read = (pool.classes, pool.options, dict(pool.numbers), readings, pool.row_schema)
    return CorrectFile(pack_job(job.job), job.origin, *read, models, _sklearn())


@dataclass(frozen=True, eq=False)
class CorrectPartitions:
    """The job that corrects answers."""

    job: AnswersJob
    maker: CorrectFile
    state: str  # the digest of all that was fitted
    files: Files
    pool: AnswerPool
    seen: Survey
    doing = "correcting"

    def expected_rows(self, made: Sequence[Made]) -> int:
        return self.seen.unlabeled(self.pool) + len(self.pool.numbers)

    def record(self, made: Sequence[Made], messages: list[str]) -> dict[str, Any]:
        """The same as for a file, after the same warnings."""
        rows = made[:-1]  # the last are the gold rows
        warn_of_empty(sum(each.notes["empty"] for each in rows))
        total = sum(each.rows for each in rows)
        return record_of(self.job, sum_of_counts(rows), total, len(rows), sum_of_histograms(made), list(messages))


@dataclass(frozen=True, eq=False)
class CorrectFile:
    """Makes the targets of the answers of a file."""

    fitted: bytes  # of pack_job
    origin: str  # of the targets
    classes: Classes
    answer_options: AnswerOptions
    gold: Mapping[str, int]  # classes of the gold rows, by id
    readings: tuple[Reading, ...]  # how the answers of each partition are read
    row_schema: pa.Schema | None  # of the rows, where they stand in files of their own
    models: RowModels | None
    sklearn: str  # its version where the models were fitted
    option = OPTION

    def __call__(self, partition: Partition, scratch: Path) -> NewFile:
        if partition.number == len(self.readings):
            return self._gold_rows(scratch / "gold.parquet")
        if self.models is not None and self.sklearn != _sklearn():
            found, expected = _sklearn(), f"{self.sklearn}, as where the job was started"
            remedy = "install the same versions of scikit-learn and wdistill on all machines"
            where = "a process of the engine"
            raise bad_value("scikit-learn is of another version", where, found, expected, remedy)
        with local_files(partition, scratch, OPTION) as files, one_thread():
            table = open_tables(files[1:], option="--pool")[0] if len(files) > 1 else None
            part = open_part(files[0], self.readings[partition.number])
            rows = AnswerRows((part,), table, self.row_schema, self.gold, self.classes, self.answer_options)
            written = write_answers(rows, self.models, scratch)
            if not written.rows:
                return NewFile(None, 0, _notes(None))
            fitted = unpack_job(self.fitted, "the job")(open_tables(answer_paths(scratch), option=OPTION))
            assert isinstance(fitted, CorrectJob)
            job = AnswersJob(fitted, self.classes.names, self.origin, {}, {})
            made = make_part(TableParts(job), JobFolder(scratch, {}, "0"))
        assert made is not None
        path = scratch / made.file
        return NewFile(path, made.seen, _notes(path, made.counts, written.empty))

    def _gold_rows(self, path: Path) -> NewFile:
        batch = gold_rows(self.gold, self.classes.names)
        with store.synced(path) as file, parquet_writer(file, batch.schema) as writer:
            writer.write_batch(batch)
        return NewFile(path, batch.num_rows, _notes(path))


def _notes(path: Path | None, counts: Mapping[str, int] | None = None, empty: int = 0) -> dict[str, Any]:
    histogram = Histogram() if path is None else histogram_of(path)
    return {"counts": dict(counts or {}), "histogram": asdict(histogram), "empty": empty}


def _sklearn() -> str:
    import sklearn

    return str(sklearn.__version__)
