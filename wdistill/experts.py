"""Experts in tables: what teacher, student, further columns of opinions and a forest say about gold and other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill import checks
from wdistill.confidence import Floats, scan
from wdistill.errors import InputError
from wdistill.evidence import Evidence
from wdistill.methods.advising import SAMPLE
from wdistill.methods.choosing import enough
from wdistill.methods.folds import Ints, folds_of
from wdistill.methods.forest import Forest, cross_fitted_forest, fit_forest, need_learning
from wdistill.methods.guards import Finding, doubled, learned_from, repeated
from wdistill.methods.lessons import Case, Opinion
from wdistill.methods.repeats import among, by_itself, keys_of, leaked, one_of_each
from wdistill.options import BestOptions, check_best
from wdistill.readers import Chunk, Table, open_tables
from wdistill.sampling import draw_ids, gather
from wdistill.task import chunk_rows, read_gold
from wdistill.validation import holder, naming_ids, naming_place, same_class_names, text_tolerance
from wdistill.weighting import probabilities

ENTRIES = 20_000_000  # and predictions of each expert
SEEN = 10_000  # unlabeled rows whose inputs are looked at before the forest learns
CHECKED = 1.0  # how far rows that were checked one table at a time may still sum from 1


@dataclass(frozen=True, eq=False)
class Panel:
    """All experts, and what they say about the gold rows, each as if it had never seen the row."""

    tables: tuple[Table, ...]  # of the unlabeled rows; the first gives their order
    options: BestOptions
    evidence: Evidence  # of the gold rows
    ids: pa.Array  # of the gold rows
    opinions: Mapping[str, Floats]  # (m, K) probabilities of the gold rows, by expert besides teacher and student
    inputs: NDArray[Any] | None = None  # (m, d) of the gold rows
    forest: Forest | None = None  # which has learned from all labeled and gold rows
    same: Ints | None = None  # (m,) of every gold row the first that is the same, where gold rows are repeated
    findings: tuple[Finding, ...] = ()  # gold rows that are labeled rows too, or repeated
    named: bool = True  # whether gold and unlabeled rows have ids; else these are row numbers, and equal ones mean nothing
    corrections: dict[str, float] = field(default_factory=dict)  # largest so far, of columns whose rows were scaled

    @property
    def classes(self) -> int:
        return int(self.evidence.validation_teacher.shape[1])

    @cached_property
    def sides(self) -> dict[str, Table]:
        """The columns of the unlabeled rows that the experts speak by, and the table that has each."""
        names = ("teacher", "student", *self.options.opinions, *([self.options.inputs] if self.options.inputs else []))
        return {name: holder(self.tables, name) for name in names}

    def said(self, table: Table, chunk: Chunk, side: str) -> Floats:
        """What the expert behind a column says about the rows of a chunk: probabilities (rows, K)."""
        values = self.read(table, chunk, side)
        if side == self.options.inputs:
            assert self.forest is not None
            return self.forest(values)
        return _sum_to_1(probabilities(values, self.options.kind, self.options.renormalize))

    def read(self, table: Table, chunk: Chunk, side: str) -> NDArray[Any]:
        """A column of a chunk as it came, checked: predictions (rows, K), or inputs (rows, d)."""
        with naming_place(table, chunk, side):
            if side == self.options.inputs:
                width = None if self.inputs is None else self.inputs.shape[1]
                return finite(chunk.columns[side], side, width)
            values = checks.matrix(chunk.columns[side], side)
            checks.same_classes({"--validation": self.classes, side: values.shape[1]})
            reading = {**self.evidence.reading, "tolerance": text_tolerance([table], self.classes)}
            found = scan(values, name=side, **reading)
        if found.correction > checks.tolerance(values.dtype, self.classes):
            self.corrections[side] = max(found.correction, self.corrections.get(side, 0.0))
        return values

    def name(self, side: str) -> str:
        """The expert behind a column."""
        return "forest" if side == self.options.inputs else side


def finite(values: NDArray[Any], name: str, width: int | None) -> NDArray[np.float32]:
    """Inputs (rows, d) of finite numbers, as many a row as in the gold rows."""
    if width is not None and values.shape[1] != width:
        raise InputError(
            "inputs of another length",
            where=name,
            found=f"{values.shape[1]} numbers a row",
            expected=f"{width}, as in the validation table",
            remedy="write the same inputs, in the same order, into all tables",
        )
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(bad):
        raise InputError(
            "NaN, infinite or huge inputs",
            where=name,
            found=f"such numbers in {len(bad)} row{'s' if len(bad) > 1 else ''}",
            expected="finite numbers",
            remedy="fill in or leave out what is missing",
            rows=bad[:5].tolist(),
        )
    return found


def panel(validation: Sequence[str], unlabeled: Sequence[str], labeled: Sequence[str], options: BestOptions) -> Panel:
    """Open the tables, read the gold rows and, where there are inputs, let a forest learn."""
    check_best(options, bool(labeled))
    if options.inputs:
        need_learning("--inputs")
    gold = open_tables(validation, option="--validation")
    tables = open_tables(unlabeled, option="--unlabeled")
    own = open_tables(labeled, option="--labeled") if labeled else ()
    same_class_names((*gold, *tables), options.classes, ("teacher", "student", *options.opinions))
    evidence, ids = read_gold(gold, options, tables)
    enough(len(ids), "--validation", "weigh with --method paper")
    evidence, ids = _by_id(evidence, ids)
    found = Panel(tables, options, evidence, ids, {}, named=_named((*gold, tables[0])))
    for side in found.sides:
        holder(gold, side)
    with naming_ids(ids, "--validation"):
        for side in ("teacher", "student"):
            scan(getattr(evidence, f"validation_{side}"), name=f"validation_{side}", **evidence.reading)
    found = replace(found, opinions=_columns(found, gold, options.opinions))
    return _with_forest(found, gold, own) if options.inputs else found


def _named(tables: Sequence[Table]) -> bool:
    return all("id" in table.columns for table in tables)


def _by_id(evidence: Evidence, ids: pa.Array) -> tuple[Evidence, pa.Array]:
    """The gold rows in the order of their ids: folds, and all that comes of them, are the same for any order of a table."""
    order = pc.sort_indices(ids).to_numpy()
    names = ("validation_teacher", "validation_student", "validation_labels")
    return replace(evidence, **{name: getattr(evidence, name)[order] for name in names}), ids.take(pa.array(order))


def _columns(found: Panel, gold: Sequence[Table], names: Sequence[str]) -> dict[str, Floats]:
    """Further opinions about the gold rows."""
    rows, _ = gather(gold, dict.fromkeys(names, found.said), found.ids, chunk_rows(found.classes), False)
    return rows


def _with_forest(found: Panel, gold: Sequence[Table], labeled: Sequence[Table]) -> Panel:
    """The forest, and what forests that have not seen them say about the gold rows."""
    name, labels, classes = found.options.inputs or "", found.evidence.validation_labels, found.classes
    inputs = gather(gold, {name: found.read}, found.ids, chunk_rows(1), False)[0][name]
    found = replace(found, inputs=inputs)
    mine, rest, more = keys_of(inputs), keys_of(_some_inputs(found)), (inputs[:0], labels[:0])
    findings = found.findings
    if labeled:
        ids, *own = _labeled(found, labeled)
        named = _named((*gold, *labeled))
        theirs = keys_of(own[0])
        learned = leaked(np.isin(mine, theirs), among(rest, theirs))
        again = np.isin(theirs, mine[learned]) | (named & is_in(ids, found.ids))
        learned = learned | (named & is_in(found.ids, ids))
        more = own[0][~again], own[1][~again]
        findings = learned_from(int(learned.sum()), len(labels))
    same = one_of_each(mine, rest)
    said = cross_fitted_forest(inputs, labels, folds_of(labels, same=same), more, classes)
    forest = fit_forest(np.concatenate([more[0], inputs]), np.concatenate([more[1], labels]), classes)
    opinions = {**found.opinions, "forest": said}
    return replace(found, forest=forest, opinions=opinions, same=same, findings=(*findings, *doubled(same)))


def _some_inputs(found: Panel) -> NDArray[Any]:
    """Inputs of the first unlabeled rows: enough to see how common repeats are."""
    name, parts, rows = found.options.inputs or "", [], 0
    table = found.sides[name]
    for chunk in table.chunks([name], rows=chunk_rows(1)):
        parts.append(found.read(table, chunk, name)[: SEEN - rows])
        rows += len(parts[-1])
        if rows >= SEEN:
            break
    return np.concatenate(parts) if parts else np.empty((0, 1), np.float32)


def is_in(ids: pa.Array, others: pa.Array) -> NDArray[np.bool_]:
    """Which ids (n,) are among others; none where these are of another type."""
    return np.asarray(pc.is_in(ids, value_set=others)) if ids.type == others.type else np.zeros(len(ids), bool)


def _labeled(found: Panel, tables: Sequence[Table]) -> tuple[pa.Array, NDArray[Any], NDArray[np.integer]]:
    """Ids, inputs and labels of the labeled rows; labels are written as in the validation table."""
    name, soft = found.options.inputs or "", found.options.soft_labels

    def label(table: Table, chunk: Chunk, column: str) -> NDArray[Any]:
        with naming_place(table, chunk, column):
            return checks.labels(chunk.columns[column], found.classes, column, found.evidence.classes, soft)

    table = holder(tables, "label")
    chunks = list(table.chunks(["label"] if soft else [], [] if soft else ["label"]))
    if not chunks:
        raise InputError(
            "no labeled rows",
            where=f"--labeled {table.files[0]}",
            found="0 rows",
            expected="at least 1 row",
            remedy="leave out --labeled: the forest then learns from gold alone",
        )
    labels = np.concatenate([label(table, chunk, "label") for chunk in chunks])
    ids = pa.concat_arrays([chunk.ids for chunk in chunks])
    rows, kept = gather(tables, {name: found.read}, ids, chunk_rows(1), found.options.allow_subset)
    return ids.take(pa.array(kept)), rows[name], labels[kept]


@dataclass(frozen=True, eq=False)
class Consulted:
    """What all experts say about the gold rows and about a random sample of the unlabeled rows."""

    case: Case
    ids: pa.Array  # of the sampled rows that all tables have
    rows: int  # unlabeled rows in all
    drawn: int  # of these, rows in the sample
    named: bool  # whether gold and unlabeled rows have ids
    findings: tuple[Finding, ...]  # gold rows that are labeled or unlabeled rows too


def consult(found: Panel, seed: int = 0) -> Consulted:
    """Ask all experts."""
    base, options = found.tables[0], found.options
    count = max(1, min(SAMPLE, ENTRIES // found.classes))
    ids, rows, met = draw_ids(base, count, seed, found.ids)
    columns = {side: found.said if side in options.opinions else found.read for side in found.sides}
    given, kept = gather(found.tables, columns, ids, chunk_rows(found.classes), options.allow_subset)
    opinions = {name: Opinion(found.opinions[name], given[name]) for name in options.opinions}
    findings = repeated(met, len(found.ids), "ids") if found.named else ()
    if found.forest is not None and found.inputs is not None:
        inputs = given[options.inputs or ""]
        opinions["forest"] = Opinion(found.opinions["forest"], found.forest(inputs))
        mine, rest = keys_of(found.inputs), keys_of(inputs)
        met_by_inputs = leaked(np.isin(mine, rest), by_itself(rest))
        findings = findings or repeated(int(met_by_inputs.sum()), len(found.ids), "inputs")
    evidence = replace(found.evidence, teacher=given["teacher"], student=given["student"], tolerance=CHECKED)
    case = Case(evidence, opinions, "hard" if options.targets == "hard" else "soft", seed, found.same)
    return Consulted(case, ids.take(pa.array(kept)), rows, len(ids), found.named, (*found.findings, *findings))


def _sum_to_1(values: Floats) -> Floats:
    return np.asarray(values / values.sum(axis=1, keepdims=True))
