"""`wdistill weigh --engine`: many files of rows to a folder of weights, by any engine, with the same bytes.

The rule or the targets are fitted here; the unlabeled rows are read by the engine's processes, one partition at a time. A
partition is one file of each table that --unlabeled names: the first file of one belongs to the first file of the others.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any

from wdistill.core import checks, store
from wdistill.core.errors import WdistillWarning
from wdistill.core.progress import say
from wdistill.engines.folder import check_output_folder
from wdistill.engines.inputs import copies, partition_files
from wdistill.engines.partition import ROWS, Made, NewFile, Partition, answered, local_tables
from wdistill.engines.run import Engine, Files, partitions_of, run_engine, run_partitions
from wdistill.tables.formats.parquet import parquet_file
from wdistill.tables.formats.table import Table
from wdistill.tables.job import make_part
from wdistill.tables.options import Options, Paths, check_options, takes_mean
from wdistill.tables.parts import JobFolder
from wdistill.tables.portable import pack_job, pack_source, unpack_job, unpack_source
from wdistill.tables.rows import TableJob
from wdistill.tables.weigh import (
    TableParts,
    fit,
    mean_entropy,
    mean_of_labeled,
    open_rows,
    prepare_job,
    record_of,
    warn_if_nothing_changes,
    warn_of_gold,
)
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.rules import EntropyMean

OPTION = "--unlabeled"


def weigh_partitions(paths: Paths, output: str, options: Options, engine: Engine) -> dict[str, Any]:
    """Run the whole job; returns the record in the manifest."""
    check_output_folder(output)
    check_options(options, paths)
    files = partition_files(paths.unlabeled, OPTION)
    with checks.collect_warnings(WdistillWarning) as messages, copies() as here:
        local = Paths(here(paths.validation), here(files[0][0]), here(paths.labeled), paths.settings)
        job = _prepare(local, options, engine, files)
        return run_partitions(WeighPartitions(job, pack_job(job), files), output, engine, messages)


@dataclass(frozen=True, eq=False)
class WeighPartitions:
    """The job that weighs, or corrects targets."""

    job: TableJob
    packed: bytes  # the job
    files: Files
    doing = "weighing"

    @property
    def maker(self) -> WeighFile:
        return WeighFile(self.packed)

    @property
    def state(self) -> str:
        return store.digest(self.packed)

    def expected_rows(self, made: Sequence[Made]) -> int | None:
        return None if self.job.source.options.allow_subset else sum(each.seen for each in made)

    def record(self, made: Sequence[Made], messages: list[str]) -> dict[str, Any]:
        """The same as for a file, after the same warnings."""
        source, warnings, corrections = self.job.source, dict[str, None](), dict[str, float]()
        for notes in (each.notes for each in made):
            warnings |= dict.fromkeys(notes["warnings"])
            for column, correction in notes["corrections"].items():
                corrections[column] = max(corrections.get(column, 0.0), correction)
        counts = sum_of_counts(made)
        histogram = sum_of_histograms(made)
        for text in warnings:
            checks.warn(text)
        source.corrections.update(sorted(corrections.items()))
        source.warn_of_scaling()
        warn_of_gold(source, counts)
        warn_if_nothing_changes(self.job, histogram)
        return record_of(self.job, counts, sum(each.rows for each in made), len(made), histogram, list(messages))


@dataclass(frozen=True)
class WeighFile:
    """Makes the weights, or the targets, of a partition."""

    packed: bytes  # of pack_job
    option = OPTION

    def __call__(self, partition: Partition, scratch: Path) -> NewFile:
        with local_tables(partition, scratch, OPTION) as tables, checks.collect_warnings(WdistillWarning) as messages:
            job = self._on(tables)
            part = make_part(TableParts(job), JobFolder(scratch, {}, "0"))
        path = None if part is None else scratch / part.file
        notes = {
            "counts": {} if part is None else part.counts,
            "histogram": asdict(Histogram() if path is None else histogram_of(path)),
            "corrections": dict(job.source.corrections),
            "warnings": messages,
        }
        return NewFile(path, 0 if part is None else part.seen, notes)

    @cached_property
    def _on(self) -> Callable[[Sequence[Table]], TableJob]:
        return unpack_job(self.packed, "the job")

    def __reduce__(self) -> tuple[type[WeighFile], tuple[bytes]]:
        return WeighFile, (self.packed,)


def sum_of_counts(made: Sequence[Made]) -> Counter[str]:
    """What was counted in all files, from the counts in the notes of each; those that are 0 too."""
    counts = Counter[str]()
    for each in made:
        counts.update(each.notes["counts"])
    return counts


def sum_of_histograms(made: Sequence[Made]) -> Histogram:
    """The histogram of all files, from that in the notes of each."""
    records = (each.notes["histogram"] for each in made)
    return reduce(add, (Histogram(**{**record, "counts": tuple(record["counts"])}) for record in records))


def histogram_of(path: Path) -> Histogram:
    """All weights of a file."""
    histogram = Histogram()
    with path.open("rb") as file:
        for batch in parquet_file(file).iter_batches(ROWS, columns=["weight"], use_threads=False):
            histogram = histogram.plus(batch["weight"].to_numpy())
    return histogram


def _prepare(here: Paths, options: Options, engine: Engine, files: Files) -> TableJob:
    """Fit what the method needs: on the gold rows, and on what the engine measures of the others."""
    if options.method == "best":
        if len(files) > 1:
            say(f"the gain is estimated on the rows of {files[0][0][0]}")
        return prepare_job(here, options)
    opened = open_rows(here, options)
    mean = None
    if takes_mean(options):
        packed = pack_source(opened.source)
        partitions = partitions_of(files, store.digest(packed))
        measured = run_engine(engine, MeasureEntropy(packed), partitions, "mean entropy")
        mean = reduce(add, (EntropyMean(**record) for record in measured), mean_of_labeled(opened))
    return fit(opened, mean)


@dataclass(frozen=True)
class MeasureEntropy:
    """The work of summing the teacher's entropies: exact, in any order."""

    source: bytes  # of pack_source

    def __call__(self, partition: str) -> str:
        return answered(partition, self._measure)

    def _measure(self, partition: Partition) -> dict[str, Any]:
        with (
            tempfile.TemporaryDirectory(prefix="wdistill-") as folder,
            local_tables(partition, Path(folder), OPTION) as tables,
        ):
            source = unpack_source(self.source, "the job")(tables)
            return asdict(mean_entropy(source, source.columns["teacher"]))
