"""`wdistill weigh`: from tables of predictions to a file of weights, streaming, resumable, all or nothing."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import wdistill
from wdistill.core import checks, store
from wdistill.core.progress import progress
from wdistill.methods.guards import gold_in_unlabeled, surer_on_gold
from wdistill.tables.formats.table import Chunk, Table, open_tables
from wdistill.tables.gold import located_errors, named_rows, read_gold, table_with
from wdistill.tables.job import PART, Piece, counts_of, run_job
from wdistill.tables.join import Numbers, check_ids
from wdistill.tables.options import Options, Paths, check_options, check_output, option_record, takes_mean
from wdistill.tables.output import STATE_LIMIT, WRITERS
from wdistill.tables.parts import JobFolder, Part
from wdistill.tables.rows import OutputBatch, TableJob, UnlabeledTables, align_table, chunk_rows, order_of, process_rows
from wdistill.weights import saved
from wdistill.weights.confidence import Scan, scan
from wdistill.weights.debiased import debiased
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.evidence import Rows
from wdistill.weights.rule import Fitted, Rule
from wdistill.weights.rules import EntropyMean, rule_named, rule_options

BINS = 200  # of the margins of the unlabeled rows


def weigh_files(paths: Paths, output: Path, options: Options) -> dict[str, Any]:
    """Run the whole job; returns the record that the output carries."""
    check_options(options, paths)
    check_output(output, WRITERS, paths, escape_formulas=options.escape_formulas)
    return run_table_job(output, lambda: prepare_job(paths, options))


def run_table_job(output: Path, prepare: Callable[[], TableJob]) -> dict[str, Any]:
    """Prepare a job, make its parts and its output; returns the record that the output carries."""
    return run_job(output, lambda: TableParts(prepare()))


def prepare_job(paths: Paths, options: Options) -> TableJob:
    """Open the tables and fit what the method needs."""
    if options.method == "paper":
        return prepare(paths, options)
    from wdistill.tables.correct import prepare_best

    return prepare_best(paths, options)


# weights by rules -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WeighJob:
    """The job that weighs by a fitted rule."""

    source: UnlabeledTables
    fitted: Fitted

    @property
    def state(self) -> bytes:
        return saved.to_bytes(self.fitted)

    @cached_property
    def rounding(self) -> dict[str, float]:
        """Of the columns with predictions: by the type of their first row, as all rows of a table have the same."""
        source, found = self.source, dict[str, float]()
        for column, table in source.columns.items():
            if column != source.options.truth:
                first = next(table.chunks([column], rows=1)).columns[column]
                found[column] = checks.rounding(first.dtype.name, source.options.kind)
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        state = base64.b64encode(self.state).decode()
        return {"state": state} if len(state) <= STATE_LIMIT else {}

    def schema(self, ids: pa.DataType) -> pa.Schema:
        names = self.fitted.name.split(",")
        factors = [f"weight_{name}" for name in names] if len(names) > 1 else []
        return pa.schema([("id", ids), *((name, pa.float32()) for name in ("weight", "error", "distortion", *factors))])

    def numbers(self, table: Table, chunk: Chunk) -> Numbers:
        options, numbers = self.source.options, dict[str, Any]()
        for column in self.source.columns_in(table):
            if column == options.truth:
                with located_errors(table, chunk, column):
                    names = self.source.evidence.classes
                    labels = checks.labels(chunk.columns[column], self.source.classes, column, names)
                numbers[column] = labels.astype(np.float64)
                continue
            entropy = takes_mean(options) or options.confidence == "entropy"
            scanned = self.source.scan(table, chunk, column, entropy=entropy)
            numbers |= {f"{column}.argmax": scanned.argmax.astype(np.float64), f"{column}.margin": scanned.margin}
            if scanned.entropy is not None:
                numbers[f"{column}.entropy"] = scanned.entropy
        return numbers

    def process(self, kept: np.ndarray, numbers: Numbers) -> OutputBatch:
        columns: dict[str, Any] = {}
        for column in self.source.columns:
            if column == self.source.options.truth:
                columns["truth"] = numbers[column].astype(np.int64)
            else:
                argmax, margin = numbers[f"{column}.argmax"].astype(np.int32), numbers[f"{column}.margin"]
                entropy, rounding = numbers.get(f"{column}.entropy"), self.rounding[column]
                columns[column] = Scan(argmax, margin, entropy, rounding=rounding)
        weighed = self.fitted.weigh_rows(Rows(**columns or {"truth": kept}))  # a rule without columns counts the rows
        counts = Counter({"clipped": weighed.clipped, "tied": weighed.tied})
        for column in ("teacher", "student"):
            if column in columns:
                bins = np.minimum((numbers[f"{column}.margin"] * BINS).astype(np.int64), BINS - 1)
                counts.update({f"{column}.{at}": int(count) for at, count in enumerate(np.bincount(bins)) if count})
        arrays = (weighed.weights, weighed.error, weighed.distortion, *weighed.factors.values())
        nulls = pa.nulls(len(kept), pa.float32())
        output = tuple(nulls if values is None else pa.array(values.astype(np.float32)) for values in arrays)
        return OutputBatch(kept, output, dict(counts))

    def appended(self) -> None:
        """Nothing."""


@dataclass(frozen=True, eq=False)
class OpenedRows:
    """The unlabeled rows, opened, before the rule is fitted."""

    source: UnlabeledTables
    ids: pa.Array  # of the gold rows
    labeled: tuple[Table, ...]


def prepare(paths: Paths, options: Options) -> WeighJob:
    """Open the tables, check what can be checked without reading the unlabeled rows, and fit the rule."""
    opened = open_rows(paths, options)
    return fit(opened, mean_of_all(opened) if takes_mean(options) else None)


def open_rows(paths: Paths, options: Options) -> OpenedRows:
    """Open the tables, and read the gold rows."""
    gold = open_tables(paths.validation, option="--validation")
    tables = open_tables(paths.unlabeled, option="--unlabeled")
    labeled = open_tables(paths.labeled, option="--labeled")
    check_ids(gold, tables, labeled)
    evidence, ids = read_gold(gold, options, (*tables, *labeled))
    needed = [options.truth or "" if column == "truth" else column for column in _rule(options).needs]
    source = UnlabeledTables(tables, options, evidence, {column: table_with(tables, column) for column in needed})
    if not any(table.counts_rows for table in (*gold, *tables)):
        source = replace(source, gold_ids=ids)
    return OpenedRows(source, ids, labeled)


def fit(opened: OpenedRows, mean: EntropyMean | None) -> WeighJob:
    """The job, once the mean entropy of all rows is known, if the rule takes it."""
    options = opened.source.options
    with named_rows(opened.ids, "--validation"):
        rule = _rule(options).defaulting(**rule_options(options), mean=mean)
        return WeighJob(opened.source, rule.fit(opened.source.evidence))


def _rule(options: Options) -> Rule[...]:
    rule = rule_named(",".join(options.rule))
    assert rule is not None  # the names have been checked
    return rule


def mean_of_all(opened: OpenedRows) -> EntropyMean:
    """The teacher's mean entropy over the unlabeled rows and, if given, the labeled ones."""
    return mean_of_labeled(opened) + mean_entropy(opened.source, opened.source.columns["teacher"])


def mean_of_labeled(opened: OpenedRows) -> EntropyMean:
    """The part of it that comes of the labeled rows."""
    if not opened.labeled:
        checks.warn("fidelity's mean entropy runs over the unlabeled rows only: --labeled names no labeled rows")
        return EntropyMean()
    return mean_entropy(opened.source, table_with(opened.labeled, "teacher"))


def mean_entropy(source: UnlabeledTables, table: Table) -> EntropyMean:
    """The teacher's mean entropy over the rows of a table."""
    mean = EntropyMean()
    with progress(f"mean entropy of {table.option}", table.rows) as tick:
        for chunk in table.chunks(["teacher"], rows=chunk_rows(source.classes)):
            with located_errors(table, chunk, "teacher"):
                teacher = chunk.columns["teacher"]
                checks.same_classes({"--validation": source.classes, "teacher": teacher.shape[1]})
                mean = mean.plus(teacher, name="teacher", **source.reading(table))
            tick(len(chunk.ids))
    return mean


def describe_validation(paths: Paths, options: Options) -> dict[str, Any]:
    """What the validation rows alone tell, as a record without weights."""
    check_options(options, paths)
    with checks.collect_warnings() as messages:
        gold = open_tables(paths.validation, option="--validation")
        check_ids(gold)
        evidence, ids = read_gold(gold, options, ())
        with named_rows(ids, "--validation"):
            fitted = debiased.defaulting(**rule_options(options)).fit(evidence)
    state = base64.b64encode(saved.to_bytes(fitted)).decode()
    return {"options": option_record(options), "warnings": messages, "state": state}


# parts ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TableParts:
    """A job of tables that are joined by id and weighed, file by file of the first of them."""

    job: TableJob
    part_rows = PART
    overlap = 1
    doing = "weighing"

    @property
    def base(self) -> Table:
        return self.job.source.tables[0]

    @property
    def where(self) -> str:
        return f"--unlabeled {self.base.files[0]}"

    @property
    def files(self) -> Sequence[Path]:
        return self.base.files

    @property
    def stamps(self) -> Sequence[tuple[int, int]]:
        return self.base.stamps

    @property
    def rows(self) -> int | None:
        return self.base.rows

    @property
    def read(self) -> Sequence[Path]:
        return [file for table in self.job.source.tables for file in table.files]

    @property
    def identity(self) -> Mapping[str, Any]:
        tables = self.job.source.tables
        return {
            "version": wdistill.__version__,
            "state": store.digest(self.job.state),
            "options": option_record(self.job.source.options),
            "files": [[str(path) for path in table.files] for table in tables],
            "others": [[list(stamp) for stamp in table.stamps] for table in tables[1:]],
        }

    @property
    def escape_formulas(self) -> bool:
        return self.job.source.options.escape_formulas

    def begin(self, folder: JobFolder, keep: Callable[[], None]) -> None:
        """Bring the other tables into the order of the first, where an earlier run has not."""
        source = self.job.source
        for number, table in enumerate(source.tables[1:], 1):
            known = folder.aligned.get(str(number))
            if table in source.columns.values() and (known is None or known.order != order_of(self.base)):
                folder.aligned.pop(str(number), None)
                folder.sweep()
                folder.aligned[str(number)] = align_table(self.job, folder, number)
                keep()

    def pieces(self, folder: JobFolder, start: int, stop: int) -> Iterator[Piece]:
        position = sum(part.seen for part in folder.parts if part.start < start)
        for seen, stretch, batch in process_rows(self.job, folder, start, stop, position):
            schema = self.job.schema(stretch.ids.type)
            if not len(batch.kept):
                yield Piece(stretch.file, seen, pa.RecordBatch.from_pylist([], schema=schema), {})
                continue
            counts = {**batch.counts, "gold": _count_gold(stretch.ids, self.job.source.gold_ids)}
            rows = pa.RecordBatch.from_arrays([stretch.ids, *batch.columns], schema=schema)
            yield Piece(stretch.file, seen, rows, counts)

    def appended(self) -> pa.RecordBatch | None:
        return self.job.appended()

    def review(self, batches: Iterator[pa.RecordBatch], parts: Sequence[Part], messages: list[str]) -> dict[str, Any]:
        """The record, with the histogram of all weights."""
        source, histogram = self.job.source, Histogram()
        source.warn_of_scaling()
        for batch in batches:
            histogram = histogram.plus(batch["weight"].to_numpy())
        counts = counts_of(parts)
        warn_of_gold(source, counts)
        warn_if_nothing_changes(self.job, histogram)
        return record_of(self.job, counts, sum(part.kept for part in parts), len(self.files), histogram, messages)


def _count_gold(ids: pa.Array, gold: pa.Array | None) -> int:
    """How many of these ids are ids of gold rows."""
    return int(pc.sum(pc.is_in(ids, value_set=gold)).as_py() or 0) if gold is not None and gold.type == ids.type else 0


def warn_if_nothing_changes(job: TableJob, histogram: Histogram) -> None:
    """Warn where all weights are 1 although a rule was to lower some."""
    if histogram.mean == 1 and job.source.options.method == "paper" and job.source.options.rule != ("unweighted",):
        checks.warn("every weight is 1: these weights change nothing")


def warn_of_gold(source: UnlabeledTables, counts: Mapping[str, int]) -> None:
    """Warn where gold rows are weighed too, or where a model was probably trained on them; counts are those of all rows."""
    evidence = source.evidence
    concerns = list(gold_in_unlabeled(counts.get("gold", 0), len(evidence.validation_labels), "ids"))
    models = {"teacher": evidence.validation_teacher, "student": evidence.validation_student}
    for column, values in ((column, values) for column, values in models.items() if values is not None):
        others = np.array([counts.get(f"{column}.{at}", 0) for at in range(BINS)])
        concerns += surer_on_gold(column, scan(values, name=column, **evidence.reading).margin, others)
    for concern in concerns:
        checks.warn(concern.text)


def record_of(
    job: TableJob, counts: Mapping[str, int], rows: int, files: int, histogram: Histogram, messages: list[str]
) -> dict[str, Any]:
    """What the output says about itself: so many rows, of so many files."""
    source = job.source
    return {
        "wdistill": wdistill.__version__,
        "options": option_record(source.options),
        "validation_rows": len(source.evidence.validation_labels),
        "classes": source.classes,
        "unlabeled_files": files,
        "rows": rows,
        **{name: counts[name] for name in ("clipped", "tied", "changed") if name in counts},
        "histogram": asdict(histogram),
        "warnings": messages,
        **job.metadata,
    }
