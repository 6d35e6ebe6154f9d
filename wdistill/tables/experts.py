"""Experts in tables: predictions of teacher, student, further columns and a forest, for gold rows and other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, empty
from wdistill.methods.advice import SAMPLE
from wdistill.methods.best import check_enough_gold
from wdistill.methods.context import AuxiliaryPredictions, Context
from wdistill.methods.crossfit import FoldForests, Ints, fit_fold_forests, folds_of
from wdistill.methods.gold_design import GoldDesign, check_groups
from wdistill.methods.groups import shared_groups
from wdistill.methods.guards import (
    Concern,
    among,
    by_itself,
    duplicate_gold,
    gold_in_labeled,
    gold_in_unlabeled,
    gold_shares_groups,
    keys_of,
    leaked,
    one_of_each,
)
from wdistill.methods.metric import Metric
from wdistill.methods.metric_text import metric_of
from wdistill.tables.formats.table import Chunk, Table, open_tables
from wdistill.tables.gold import located_errors, named_rows, read_gold, same_class_names, table_with
from wdistill.tables.gold_design import column_values, naming_ids, read_design, with_design_columns
from wdistill.tables.join import check_ids
from wdistill.tables.options import Options, Paths
from wdistill.tables.rows import UnlabeledTables, chunk_rows
from wdistill.tables.sample import draw_ids, gather
from wdistill.weights.confidence import Floats, scan
from wdistill.weights.equations import probabilities
from wdistill.weights.evidence import Evidence

ENTRIES = 20_000_000  # predictions of each expert in a sample, at most
SEEN = 10_000  # unlabeled rows whose inputs are looked at before the forest learns
CHECKED = 1.0  # how far rows that were checked one table at a time may still sum from 1


@dataclass(frozen=True, eq=False)
class ExpertTables:
    """All experts, and their predictions for the gold rows, each as if it had never seen the row."""

    source: UnlabeledTables
    ids: pa.Array  # of the gold rows
    auxiliary: Mapping[str, Floats]  # (m, K) probabilities of the gold rows, by expert besides teacher and student
    named: bool  # whether gold and unlabeled rows have ids; else these are row numbers, and equal ones mean nothing
    inputs: NDArray[Any] | None = None  # (m, d) of the gold rows
    forest: FoldForests | None = None  # fitted to labeled and gold rows
    same: Ints | None = None  # (m,) of every gold row the first that is the same, where gold rows are repeated
    concerns: tuple[Concern, ...] = ()  # gold rows that are labeled rows too, or repeated
    design: GoldDesign = field(default_factory=GoldDesign)  # how the gold rows were drawn
    metric: Metric | None = None  # the user's, by which `best` says its gain too

    @property
    def options(self) -> Options:
        return self.source.options

    @property
    def evidence(self) -> Evidence:
        return self.source.evidence

    @property
    def classes(self) -> int:
        return self.source.classes

    def expert(self, column: str) -> str:
        """The name of the expert whose column it is."""
        return "forest" if column == self.options.inputs else column

    def predict(self, table: Table, chunk: Chunk, column: str) -> Floats:
        """Probabilities (rows, K) of the expert whose column it is, for the rows of a chunk."""
        values = self.read(table, chunk, column)
        if column == self.options.inputs:
            assert self.forest is not None
            return self.forest(values)
        distributions = probabilities(values, self.options.kind, self.options.renormalize)
        return np.asarray(distributions / distributions.sum(axis=1, keepdims=True))

    def read(self, table: Table, chunk: Chunk, column: str) -> NDArray[Any]:
        """A column of a chunk as it came, checked: predictions (rows, K), or inputs (rows, d)."""
        if column == self.options.inputs:
            with located_errors(table, chunk, column):
                return finite(chunk.columns[column], column, None if self.inputs is None else self.inputs.shape[1])
        self.source.scan(table, chunk, column)
        return checks.matrix(chunk.columns[column], column)


def finite(values: NDArray[Any], name: str, width: int | None) -> NDArray[np.float32]:
    """Inputs (rows, d) of finite numbers, as many a row as in the gold rows."""
    if width is not None and values.shape[1] != width:
        found, expected = f"{values.shape[1]} numbers a row", f"{width}, as in the validation table"
        remedy = "write the same inputs, in the same order, into all tables"
        raise bad_input("inputs of another length", name, found, expected, remedy)
    with np.errstate(over="ignore"):
        inputs = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(inputs).all(axis=1))
    if len(bad):
        found = f"such numbers in {len(bad)} row{'s' if len(bad) > 1 else ''}"
        remedy = "fill in or leave out what is missing"
        raise bad_input("NaN, infinite or huge inputs", name, found, "finite numbers", remedy, bad)
    return inputs


def open_experts(paths: Paths, options: Options) -> ExpertTables:
    """Open the tables, read the gold rows and, where there are inputs, fit a forest."""
    gold = open_tables(paths.validation, option="--validation")
    tables = open_tables(paths.unlabeled, option="--unlabeled")
    labeled = open_tables(paths.labeled, option="--labeled")
    check_ids(gold, tables, labeled)
    students = ("student",) if any(table.has("student") for table in (*gold, *tables)) else ()
    predictions = ("teacher", *students, *options.opinions)
    same_class_names((*gold, *tables), options.classes, predictions)
    options = with_design_columns(options, gold)
    evidence, ids = read_gold(gold, options, tables)
    check_enough_gold(len(ids), "--validation", "weigh with --method paper")
    evidence, ids, design = _by_id(evidence, ids, read_design(gold, options, ids))
    columns = {column: table_with(tables, column) for column in (*predictions, *filter(None, [options.inputs]))}
    for column in columns:
        table_with(gold, column)
    with named_rows(ids, "--validation"):
        for name in ("validation_teacher", *(f"validation_{student}" for student in students)):
            scan(getattr(evidence, name), name=name, **evidence.reading)
    source = UnlabeledTables(tables, options, evidence, columns)
    names = evidence.classes or [str(number) for number in range(source.classes)]
    metric = None if options.metric is None else metric_of(options.metric, names)
    experts = ExpertTables(source, ids, {}, named=_have_ids((*gold, tables[0])), design=design, metric=metric)
    auxiliary, _ = gather(gold, dict.fromkeys(options.opinions, experts.predict), ids, chunk_rows(source.classes), False)
    experts = replace(experts, auxiliary=auxiliary)
    return _with_forest(experts, gold, labeled) if options.inputs else experts


def _have_ids(tables: Sequence[Table]) -> bool:
    return all("id" in table.columns for table in tables)


def _by_id(evidence: Evidence, ids: pa.Array, design: GoldDesign) -> tuple[Evidence, pa.Array, GoldDesign]:
    """The gold rows in the order of their ids: folds, and all that comes of them, are the same for any order of a table."""
    order = pc.sort_indices(ids).to_numpy()
    names = ("validation_teacher", "validation_student", "validation_labels")
    arrays = {name: getattr(evidence, name) for name in names}
    sorted_arrays = {name: values[order] for name, values in arrays.items() if values is not None}
    drawn = GoldDesign(*(None if values is None else values[order] for values in (design.weights, design.groups)))
    return replace(evidence, **sorted_arrays), ids.take(pa.array(order)), drawn


def _with_forest(experts: ExpertTables, gold: Sequence[Table], labeled: Sequence[Table]) -> ExpertTables:
    """The forest, and predictions for the gold rows by forests that have not seen them."""
    name, labels, classes = experts.options.inputs or "", experts.evidence.validation_labels, experts.classes
    inputs = gather(gold, {name: experts.read}, experts.ids, chunk_rows(1), False)[0][name]
    experts = replace(experts, inputs=inputs)
    gold_keys, unlabeled_keys = keys_of(inputs), keys_of(_first_inputs(experts))
    more: tuple[NDArray[Any], NDArray[Any]] = inputs[:0], labels[:0]
    concerns: tuple[Concern, ...] = ()
    if labeled:
        ids, *rows = _labeled_rows(experts, labeled)
        named, labeled_keys = _have_ids((*gold, *labeled)), keys_of(rows[0])
        in_labeled = leaked(np.isin(gold_keys, labeled_keys), among(unlabeled_keys, labeled_keys))
        is_gold = np.isin(labeled_keys, gold_keys[in_labeled]) | (named & is_in(ids, experts.ids))
        in_labeled = in_labeled | (named & is_in(experts.ids, ids))
        more = rows[0][~is_gold], rows[1][~is_gold]
        concerns = (*gold_in_labeled(int(in_labeled.sum()), len(labels)), *_labeled_groups(experts, labeled, ids))
    same = one_of_each(gold_keys, unlabeled_keys)
    forest = fit_fold_forests(more, (inputs, labels), folds_of(labels, same=same, groups=experts.design.groups), classes)
    auxiliary = {**experts.auxiliary, "forest": forest(inputs, slice(None))}
    return replace(experts, forest=forest, auxiliary=auxiliary, same=same, concerns=(*concerns, *duplicate_gold(same)))


def _labeled_groups(experts: ExpertTables, labeled: Sequence[Table], ids: pa.Array) -> tuple[Concern, ...]:
    """A concern where labeled rows, whose ids are given, are of groups that gold rows are of too."""
    name, gold = experts.options.group, experts.design.groups
    if name is None or gold is None or not any(name in table.columns for table in labeled):
        return ()
    with naming_ids(ids):
        others = check_groups(column_values(labeled, name, ids), f"--labeled, column {name!r}", fewest=1)
    return gold_shares_groups(shared_groups(gold, others), len(gold), "labeled rows")


def _first_inputs(experts: ExpertTables) -> NDArray[Any]:
    """Inputs of the first unlabeled rows: enough to see how common repeats are."""
    name, parts, rows = experts.options.inputs or "", list[NDArray[Any]](), 0
    table = experts.source.columns[name]
    for chunk in table.chunks([name], rows=chunk_rows(1)):
        parts.append(experts.read(table, chunk, name)[: SEEN - rows])
        rows += len(parts[-1])
        if rows >= SEEN:
            break
    return np.concatenate(parts) if parts else np.empty((0, 1), np.float32)


def is_in(ids: pa.Array, others: pa.Array) -> NDArray[np.bool_]:
    """Which ids (n,) are among others; none where these are of another type."""
    return np.asarray(pc.is_in(ids, value_set=others)) if ids.type == others.type else np.zeros(len(ids), bool)


def _labeled_rows(experts: ExpertTables, tables: Sequence[Table]) -> tuple[pa.Array, NDArray[Any], NDArray[np.integer]]:
    """Ids, inputs and labels of the labeled rows; labels are written as in the validation table."""
    name, soft = experts.options.inputs or "", experts.options.soft_labels
    table, labels = table_with(tables, "label"), list[NDArray[Any]]()
    chunks = list(table.chunks(["label"] if soft else [], [] if soft else ["label"]))
    if not chunks:
        remedy = "leave out --labeled: the forest then learns from gold alone"
        raise empty("no labeled rows", f"--labeled {table.files[0]}", "at least 1 row", remedy)
    for chunk in chunks:
        with located_errors(table, chunk, "label"):
            names = experts.evidence.classes
            labels.append(checks.labels(chunk.columns["label"], experts.classes, "label", names, soft))
    ids = pa.concat_arrays([chunk.ids for chunk in chunks])
    rows, kept = gather(tables, {name: experts.read}, ids, chunk_rows(1), experts.options.allow_subset)
    return ids.take(pa.array(kept)), rows[name], np.concatenate(labels)[kept]


@dataclass(frozen=True, eq=False)
class SampledPredictions:
    """Predictions of all experts for the gold rows and for a random sample of the unlabeled rows."""

    context: Context
    ids: pa.Array  # of the sampled rows that all tables have
    rows: int  # unlabeled rows in all
    drawn: int  # of these, rows in the sample
    named: bool  # whether gold and unlabeled rows have ids
    concerns: tuple[Concern, ...]  # gold rows that are labeled or unlabeled rows too
    inputs: NDArray[np.float32] | None  # (n, d) of the sampled rows


def sample_size(classes: int) -> int:
    """How many unlabeled rows are looked at, of so many classes."""
    return max(1, min(SAMPLE, ENTRIES // classes))


def predict_sample(experts: ExpertTables, seed: int = 0) -> SampledPredictions:
    """Draw a sample of the unlabeled rows, and let all experts predict it."""
    source, options = experts.source, experts.options
    ids, rows, shared = draw_ids(source.tables[0], sample_size(experts.classes), seed, experts.ids)
    columns = {column: experts.predict if column in options.opinions else experts.read for column in source.columns}
    sample, kept = gather(source.tables, columns, ids, chunk_rows(experts.classes), options.allow_subset)
    auxiliary = {name: AuxiliaryPredictions(experts.auxiliary[name], sample[name]) for name in options.opinions}
    concerns = gold_in_unlabeled(shared, len(experts.ids), "ids") if experts.named else ()
    if experts.forest is not None and experts.inputs is not None:
        inputs = sample[options.inputs or ""]
        auxiliary["forest"] = AuxiliaryPredictions(experts.auxiliary["forest"], experts.forest(inputs))
        gold_keys, sample_keys = keys_of(experts.inputs), keys_of(inputs)
        shared_inputs = leaked(np.isin(gold_keys, sample_keys), by_itself(sample_keys))
        concerns = concerns or gold_in_unlabeled(int(shared_inputs.sum()), len(experts.ids), "inputs")
    evidence = replace(experts.evidence, teacher=sample["teacher"], student=sample.get("student"), tolerance=CHECKED)
    context = Context(
        evidence,
        auxiliary,
        options.targets,
        seed,
        experts.same,
        options.targets_from,
        gold_weights=experts.design.weights,
        gold_groups=experts.design.groups,
        metric=experts.metric,
    )
    all_concerns = (*experts.concerns, *concerns)
    own = sample.get(options.inputs or "")
    return SampledPredictions(context, ids.take(pa.array(kept)), rows, len(ids), experts.named, all_concerns, own)
