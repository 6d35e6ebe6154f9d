"""`wdistill weigh`: from tables of predictions to a file of weights, streaming, resumable, all or nothing.

Finished parts wait in a folder beside the output (parts.py) until all are there; then the output appears in one piece and
the folder is removed. A part covers whole input files, so that a job that was interrupted makes only the missing parts.
"""

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
import pyarrow.parquet as pq

import wdistill
from wdistill.core import checks, store
from wdistill.core.errors import FileError, InputError, empty
from wdistill.core.progress import Progress, progress, say
from wdistill.methods.guards import gold_in_unlabeled, surer_on_gold
from wdistill.tables.content import ContentDigest
from wdistill.tables.formats.table import Chunk, Table, open_tables
from wdistill.tables.gold import located_errors, named_rows, read_gold, table_with
from wdistill.tables.join import IdCheck, Numbers, check_ids
from wdistill.tables.options import Options, Paths, check_options, check_output, option_record, takes_mean
from wdistill.tables.output import STATE_LIMIT, WRITERS, Assembly, parquet_writer, write_output
from wdistill.tables.parts import JobFolder, Part, open_folder, refuse_foreign
from wdistill.tables.rows import OutputBatch, TableJob, UnlabeledTables, align_table, chunk_rows, order_of, process_rows
from wdistill.weights import saved
from wdistill.weights.confidence import Scan, scan
from wdistill.weights.debiased import debiased
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.evidence import Rows
from wdistill.weights.rule import Fitted, Rule
from wdistill.weights.rules import EntropyMean, rule_named, rule_options

BINS = 200  # of the margins of the unlabeled rows
PART = 1 << 18  # rows after which a part ends with the file that is being read


def weigh_files(paths: Paths, output: Path, options: Options) -> dict[str, Any]:
    """Run the whole job; returns the record that the output carries."""
    check_options(options, paths)
    check_output(output, WRITERS, paths, escape_formulas=options.escape_formulas)
    return run_table_job(output, lambda: prepare_job(paths, options))


def run_table_job(output: Path, prepare: Callable[[], TableJob]) -> dict[str, Any]:
    """Prepare a job, make its parts and its output; returns the record that the output carries."""
    folder = output.with_name(f"{output.name}.parts")
    refuse_foreign(folder)
    with checks.collect_warnings() as messages:
        job = prepare()
        refuse_foreign(folder, [file for table in job.source.tables for file in table.files])
        with store.lock(folder):
            parts = open_folder(folder, _identity(job))
            try:
                _stream(job, parts, messages)
            except (InputError, FileError):
                if not parts.parts:
                    parts.clear()
                raise
            try:
                record = _assemble(job, parts, output, messages)
            except InputError:  # repeated ids: no part of this is worth keeping
                parts.clear()
                raise
            parts.clear()
    return record


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


def _identity(job: TableJob) -> dict[str, Any]:
    """What finished parts depend on besides the unlabeled files, which each part names."""
    tables = job.source.tables
    return {
        "version": wdistill.__version__,
        "state": store.digest(job.state),
        "options": option_record(job.source.options),
        "files": [[str(path) for path in table.files] for table in tables],
        "others": [[list(stamp) for stamp in table.stamps] for table in tables[1:]],
    }


def _stream(job: TableJob, folder: JobFolder, messages: list[str]) -> None:
    """Make all parts that are not finished; warnings so far are kept in the record for a run that resumes."""
    source, base = job.source, job.source.tables[0]
    for number, table in enumerate(source.tables[1:], 1):
        known = folder.aligned.get(str(number))
        if table in source.columns.values() and (known is None or known.order != order_of(base)):
            folder.aligned.pop(str(number), None)
            folder.sweep()
            folder.aligned[str(number)] = align_table(job, folder, number)
            _keep(folder, messages)
    missing = _missing(folder, base)
    if folder.parts:
        done = sum(part.next - part.start for part in folder.parts)
        say(f"resuming after {done} finished files of an earlier run")
    with progress("weighing", base.rows) as tick:
        tick(sum(part.seen for part in folder.parts))
        for start, stop in missing:
            for part in _new_parts(job, folder, start, stop, tick):
                folder.parts = sorted([*folder.parts, part], key=lambda part: part.start)
                _keep(folder, messages)
    source.warn_of_scaling()


def _keep(folder: JobFolder, messages: list[str]) -> None:
    folder.warnings = list(messages)
    folder.commit()


def _missing(folder: JobFolder, base: Table) -> list[tuple[int, int]]:
    """Files of the first table that no part covers, as first and last + 1.

    Once an input file has changed, it and all files after it are done again.
    """
    for number, part in enumerate(folder.parts):
        if part.stamps != [list(stamp) for stamp in base.stamps[part.start : part.next]]:
            say(f"{base.files[part.start]} or a file after it has changed: weighing again from there")
            folder.parts = folder.parts[:number]
            break
    ends = [0, *(part.next for part in folder.parts)]
    starts = [*(part.start for part in folder.parts), len(base.files)]
    return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]


def make_part(job: TableJob, folder: JobFolder) -> Part | None:
    """All rows of the job's tables as one part; None where there are none."""
    for number, table in enumerate(job.source.tables[1:], 1):
        if table in job.source.columns.values():
            folder.aligned[str(number)] = align_table(job, folder, number)
    return next(_new_parts(job, folder, 0, len(job.source.tables[0].files), lambda rows: None), None)


def _new_parts(job: TableJob, folder: JobFolder, start: int, stop: int, tick: Progress) -> Iterator[Part]:
    """Process file after file; a part ends with a file once it is large enough."""
    base = job.source.tables[0]
    position = sum(part.seen for part in folder.parts if part.start < start)
    rows = process_rows(job, folder, start, stop, position)
    ahead = next(rows, None)
    while ahead is not None:
        name = f"part-{start:06d}.parquet"
        seen, kept, counts = 0, 0, Counter[str]()
        with folder.writing(name) as file:
            schema = job.schema(ahead[0].ids.type)
            with parquet_writer(file, schema) as writer:
                while ahead is not None:
                    chunk, batch = ahead
                    if len(batch.kept):
                        ids = chunk.ids.take(pa.array(batch.kept))
                        counts["gold"] += _count_gold(ids, job.source.gold_ids)
                        writer.write_batch(pa.RecordBatch.from_arrays([ids, *batch.columns], schema=schema))
                        counts.update(batch.counts)
                    seen, kept = seen + len(chunk.ids), kept + len(batch.kept)
                    tick(len(chunk.ids))
                    ahead = next(rows, None)
                    if ahead is not None and ahead[0].file != chunk.file and seen >= PART:
                        break
        end = stop if ahead is None else ahead[0].file
        stamps = [list(stamp) for stamp in base.stamps[start:end]]
        yield Part(start, end, stamps, seen, kept, dict(counts), **folder.file(name))
        start = end


def _assemble(job: TableJob, folder: JobFolder, output: Path, messages: list[str]) -> dict[str, Any]:
    """Check the ids of all parts, then write the output in one piece."""
    parts, where = folder.parts, f"--unlabeled {job.source.tables[0].files[0]}"
    appended = job.appended()
    total = sum(part.kept for part in parts)
    if total == 0:
        remedy = "name the table with the rows that the teacher labeled"
        raise empty("no unlabeled rows", where, "at least 1 row to weigh", remedy)

    def batches(columns: list[str] | None = None) -> Iterator[Any]:
        for part in parts:
            with (folder.folder / part.file).open("rb") as file:  # pyarrow cannot say every name in every locale
                table = pq.ParquetFile(file, page_checksum_verification=True)
                yield from table.iter_batches(1 << 16, columns=columns, use_threads=False)
        if appended is not None:
            yield appended if columns is None else appended.select(columns)

    scratch = folder.scratch("scratch")
    store.make_folder(scratch)
    rows = total + (appended.num_rows if appended else 0)
    check, histogram, content = IdCheck(scratch, rows), Histogram(), ContentDigest()
    with progress("checking", rows) as tick:
        for batch in batches():
            check.add(batch["id"])
            content.add(batch)
            histogram = histogram.plus(batch["weight"].to_numpy())
            tick(batch.num_rows)
    check.finish(lambda: (batch["id"] for batch in batches(["id"])), where)
    warn_of_gold(job.source, _counts(parts))
    warn_if_nothing_changes(job, histogram)
    rows, files = sum(part.kept for part in parts), len(job.source.tables[0].files)
    record = {**record_of(job, _counts(parts), rows, files, histogram, messages), "sha256": content.hexdigest()}
    escape = job.source.options.escape_formulas
    with (folder.folder / parts[0].file).open("rb") as file:
        schema = pq.read_schema(file).remove_metadata()
    assembly = Assembly(schema, rows, batches, escape, record.get("class_names") and tuple(record["class_names"]))
    write_output(output, folder.scratch("output"), assembly, record)
    return record


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


def _counts(parts: Sequence[Part]) -> Counter[str]:
    counts = Counter[str]()
    for part in parts:
        counts.update(part.counts)
    return counts


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
