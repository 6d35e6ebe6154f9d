"""`wdistill advise` for answers: the verdict, the teacher class by class, and the rows to look at and to label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.answers.canonical import table_options, table_paths, warn_of_empty, write_tables
from wdistill.answers.input_columns import texts_of
from wdistill.answers.pool import AnswerPool, Survey, open_pool, survey
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.row_models import RowModels, fit_experts
from wdistill.core import checks
from wdistill.methods.advice import Advice, advise
from wdistill.methods.agreement import (
    MISSING,
    AccuracyBeyondCeiling,
    AnnotatorAgreement,
    accuracy_beyond_ceiling,
    agreement,
)
from wdistill.methods.context import Context, one_hot
from wdistill.methods.gold_design import GoldDesign
from wdistill.methods.gold_plan import inclusion_column, judging_inclusion, rows_to_label
from wdistill.methods.interval import estimate_by_class
from wdistill.methods.metric import PLAIN
from wdistill.methods.metric_text import metric_of
from wdistill.methods.on_gold import mean_of, share_of
from wdistill.methods.pilots import PilotPredictions, Pilots
from wdistill.methods.posterior import cross_fitted
from wdistill.methods.questions import USUAL, Questions
from wdistill.methods.statistics import Interval, Z, share
from wdistill.methods.targets import Targets
from wdistill.tables.experts import SampledPredictions, open_experts, predict_sample
from wdistill.text.linear_pilots import announce_linear_pilots, drawn_rows, linear_pilots
from wdistill.weights.confidence import Floats

SHOWN = 20  # texts whose label would change, and as many to label next
RESAMPLES = 500  # of the gold rows, for the interval of F1


@dataclass(frozen=True)
class ClassFigures:
    """The teacher on the gold rows of one class."""

    name: str
    rows: int
    precision: Interval
    recall: Interval
    f1: Interval


@dataclass(frozen=True)
class Confusion:
    """Gold rows of one class that the teacher takes for another."""

    truth: str
    answered: str
    rows: int


@dataclass(frozen=True)
class Example:
    """A row to look at: its text, what the teacher says, and what it would be taught as."""

    id: str
    text: str
    teacher: str
    target: str
    confidence: float  # of the target


@dataclass(frozen=True, eq=False)
class AnswersAdvice:
    """All that `wdistill advise --answers` prints."""

    hint: str  # what could be named and was not
    found: str  # what the answers are, in one line
    labels: str  # what the gold labels are
    classes: tuple[str, ...]
    advice: Advice
    figures: tuple[ClassFigures, ...]
    confusions: tuple[Confusion, ...]  # most rows first
    recalibrated: Interval  # accuracy on gold, out of fold, of the teacher recalibrated on gold
    recalibrated_likelihood: float  # mean gain in log-likelihood on gold, out of fold, over the teacher as it is
    changed: tuple[Example, ...]  # rows whose label would change
    next: tuple[Example, ...]  # rows to label next
    plan: pa.Table  # all rows to label next, in their order: id, use (judge or teach), inclusion, text if any, teacher
    agreement: AnnotatorAgreement | None  # of annotators, and the ceiling that it sets; None where nobody was asked twice
    beyond_ceiling: AccuracyBeyondCeiling | None  # the teacher's accuracy, corrected for the annotators' errors

    @property
    def verdict(self) -> str:
        return self.advice.verdict

    def _repr_html_(self) -> str:
        """In notebooks: the verdict, the teacher class by class, and the rows to look at."""
        figures = [
            (each.name, f"{each.rows:,}", *(part.percent for part in (each.precision, each.recall, each.f1)))
            for each in self.figures
        ]
        lines = [f"<p><b>{escape(self.verdict)}</b></p>", f"<p>{escape(self.found)}<br>{escape(self.labels)}</p>"]
        lines += [_html(("class", "gold rows", "precision", "recall", "F1"), figures)]
        for title, examples in (("Rows whose label would change", self.changed), ("Rows to label next", self.next)):
            rows = [(each.id, each.text[:200], each.teacher, each.target, f"{each.confidence:.0%}") for each in examples]
            lines += [f"<p>{title}</p>", _html(("id", "text", "teacher", "target", "sure"), rows)] if rows else []
        return "\n".join(lines)


def _html(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all cells are text."""
    lines = [
        "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
        for tag, cells in (("th", header), *(("td", row) for row in rows))
    ]
    return f"<table>{''.join(lines)}</table>"


def advise_answers(
    sources: Sources, options: AnswerOptions, metric: str | NDArray[Any] | None = None, questions: Questions = USUAL
) -> AnswersAdvice:
    """Read everything, let the experts predict a sample, and judge; by a metric of the user's too, where there is one."""
    pool = open_pool(sources, options)
    judging = None if metric is None else metric_of(metric, pool.classes.names)
    with TemporaryDirectory(prefix="wdistill-") as name, checks.collect_warnings():
        folder = Path(name)
        seen = survey(pool, folder)
        assert seen.gold is not None
        row_experts = fit_experts(pool, seen.gold)
        warn_of_empty(write_tables(pool, seen.gold, row_experts, folder).empty)
        experts = open_experts(table_paths(folder), table_options(pool))
        sample = predict_sample(experts)
        pilots = None if row_experts is None else _pilots(pool, row_experts.models, sample, experts.ids)
        context = replace(sample.context, gold_alone=True, metric=judging)
        advice = advise(context, sample.concerns, pilots, judging, questions)
        advice = replace(advice, unlabeled=sample.rows, sampled=sample.drawn)
    return _judged(pool, seen, advice, sample.context, sample.ids, sample.rows)


def _pilots(pool: AnswerPool, models: RowModels, sample: SampledPredictions, gold: pa.Array) -> Pilots:
    """Linear pilot students, which read what the linear expert reads; it says what they will take."""
    text = pool.options.text
    reads = f"the words of column {text!r}" if text else "the columns of inputs"
    announce_linear_pilots(len(gold), len(sample.ids), len(pool.classes), reads)

    def pilots(targets: Targets) -> PilotPredictions:
        drawn = drawn_rows(len(sample.ids), sample.context.seed)
        rows, own = _features(pool, models, sample.ids.take(pa.array(drawn))), _features(pool, models, gold)
        return linear_pilots(sample.context, targets, own, drawn, rows)

    return pilots


def _features(pool: AnswerPool, models: RowModels, wanted: pa.Array) -> Any:
    """Sparse features of some rows, in the order of their ids."""
    from scipy.sparse import vstack

    parts, found = [], []
    for ids, values, where in pool.value_batches("reading rows for pilots"):
        rows = pa.array(np.flatnonzero(pc.is_in(ids, value_set=wanted).to_numpy(zero_copy_only=False)))
        if len(rows):
            found.append(ids.take(rows))
            parts.append(models.rows({name: column.take(rows) for name, column in values.items()}, where))
    place = pc.index_in(wanted, value_set=pa.concat_arrays(found)).to_numpy(zero_copy_only=False)
    return vstack(parts, format="csr")[place]


def _judged(
    pool: AnswerPool, seen: Survey, advice: Advice, context: Context, ids: pa.Array, unlabeled_rows: int
) -> AnswersAdvice:
    teacher, labels, m = context.validation["teacher"], context.labels, len(context.labels)
    again = cross_fitted({"teacher": teacher}, labels, context.folds, context.gold_weights)
    rows = np.arange(m)
    gains = np.log(again[rows, labels]) - np.log(np.maximum(teacher[rows, labels], 1e-4))
    unlabeled = context.unlabeled["teacher"]
    targets = advice.correction.targets.of(context.unlabeled)
    shown, coming = _changed(unlabeled, targets), advice.next[:SHOWN]
    judging, teaching = rows_to_label(len(ids), advice.next, np.arange(0))  # gold rows are not in the pool
    planned = np.concatenate([judging, teaching])
    texts = _texts(pool, ids.take(pa.array(np.unique(np.concatenate([shown, coming, planned])))))

    def examples(rows: NDArray[np.int64]) -> tuple[Example, ...]:
        return tuple(
            _example(ids[int(row)].as_py(), texts, unlabeled[row], targets[row], pool.classes.names) for row in rows
        )

    use = np.repeat(["judge", "teach"], [len(judging), len(teaching)])
    inclusion = inclusion_column(judging_inclusion(context, unlabeled_rows), len(judging), len(teaching))
    return AnswersAdvice(
        hint=pool.hint,
        found=seen.said(pool),
        labels=pool.gold.said(),
        classes=pool.classes.names,
        advice=advice,
        figures=class_figures(teacher.argmax(axis=1), labels, pool.classes.names, context.design),
        confusions=confusions(teacher.argmax(axis=1), labels, pool.classes.names),
        recalibrated=share_of(again.argmax(axis=1) == labels, context.design),
        recalibrated_likelihood=mean_of(gains, context.design)[0],
        changed=examples(shown),
        next=examples(coming),
        plan=_plan(pool, examples(planned), use, inclusion),
        agreement=_agreement(pool),
        beyond_ceiling=_beyond_ceiling(pool, seen),
    )


def _agreement(pool: AnswerPool) -> AnnotatorAgreement | None:
    """How often annotators agree, those without a majority too."""
    ids, labels = _annotated(pool)
    if not ids:
        return None
    drawn = pool.drawn.of(ids)
    return agreement(labels, len(pool.classes), drawn.weights, drawn.groups)


def _beyond_ceiling(pool: AnswerPool, seen: Survey) -> AccuracyBeyondCeiling | None:
    """The teacher's accuracy on the rows with several labels that it answered, corrected for the annotators' errors."""
    ids, labels = _annotated(pool)
    rows = [row for row, key in enumerate(ids) if key in seen.annotated]
    if not rows:
        return None
    kept = [ids[row] for row in rows]
    decisions, drawn = np.array([seen.annotated[key] for key in kept]), pool.drawn.of(kept)
    return accuracy_beyond_ceiling(decisions, labels[rows], len(pool.classes), drawn.weights, drawn.groups)


def _annotated(pool: AnswerPool) -> tuple[list[str], NDArray[np.int64]]:
    """Ids and labels (m, A) of rows with two labels or more that are classes, −1 where one is missing."""
    rows = [
        (row.id, [number for label in row.labels if (number := pool.classes.number(label)) >= 0])
        for row in pool.gold.several
    ]
    asked = {key: numbers for key, numbers in rows if len(numbers) > 1}
    table = np.full((len(asked), max(map(len, asked.values()), default=0)), MISSING)
    for place, numbers in enumerate(asked.values()):
        table[place, : len(numbers)] = numbers
    return list(asked), table


def _changed(teacher: Floats, targets: Floats) -> NDArray[np.int64]:
    """Rows that would get another class, the surest first."""
    rows = np.flatnonzero(teacher.argmax(axis=1) != targets.argmax(axis=1))
    return rows[np.argsort(-targets[rows].max(axis=1), kind="stable")][:SHOWN]


def _example(key: str, texts: Mapping[str, str], teacher: Floats, target: Floats, names: Sequence[str]) -> Example:
    """A row by its id, from what the teacher says of it (K,) and what it would be taught as (K,)."""
    return Example(key, texts.get(key, ""), names[int(teacher.argmax())], names[int(target.argmax())], float(target.max()))


def _plan(pool: AnswerPool, rows: Sequence[Example], use: NDArray[np.str_], inclusion: Sequence[float | None]) -> pa.Table:
    """What an annotator is given: the rows in the order to label."""
    columns: dict[str, Sequence[Any]] = {"id": [row.id for row in rows], "use": use.tolist(), "inclusion": inclusion}
    if pool.options.text:
        columns["text"] = [row.text for row in rows]
    columns["teacher"] = [row.teacher for row in rows]
    kinds = [(name, pa.float64() if name == "inclusion" else pa.string()) for name in columns]
    return pa.table(columns, pa.schema(kinds))


def _texts(pool: AnswerPool, wanted: pa.Array) -> Mapping[str, str]:
    """The texts of some rows, by id; nothing where there are none."""
    column, texts = pool.options.text, dict[str, str]()
    if column is None or not len(wanted):
        return texts
    if pool.rows is not None:
        batches = ((ids, values[column]) for ids, values, _ in pool.row_batches("finding texts"))
    else:
        batches = ((batch.parsed.ids, batch.columns[column]) for batch in pool.batches([column], "finding texts"))
    for ids, values in batches:
        rows = pa.array(np.flatnonzero(pc.is_in(ids, value_set=wanted).to_numpy(zero_copy_only=False)))
        texts |= {key: text or "" for key, text in zip(ids.take(rows).to_pylist(), texts_of(values.take(rows)), strict=True)}
        if len(texts) == len(wanted):
            break
    return texts


def class_figures(
    answered: NDArray[np.integer], labels: NDArray[np.integer], names: Sequence[str], design: GoldDesign
) -> tuple[ClassFigures, ...]:
    """Precision, recall and F1 of every class, from the classes answered (m,) and the labels (m,) of the gold rows."""
    if not design.even:
        return _drawn_figures(answered, labels, names, design)
    figures = []
    draws = np.random.default_rng(0).integers(0, len(labels), (RESAMPLES, len(labels)))
    for number, name in enumerate(names):
        said, true = answered == number, labels == number
        both = said & true
        resampled = [_f1(int(both[draw].sum()), int(said[draw].sum()), int(true[draw].sum())) for draw in draws]
        value = _f1(int(both.sum()), int(said.sum()), int(true.sum()))
        half = Z * float(np.nanstd(resampled)) if np.isfinite(resampled).any() else float("nan")
        f1 = Interval(value, max(0.0, value - half), min(1.0, value + half))
        precision, recall = share(int(both.sum()), int(said.sum())), share(int(both.sum()), int(true.sum()))
        figures.append(ClassFigures(name, int(true.sum()), precision, recall, f1))
    return tuple(figures)


def _drawn_figures(
    answered: NDArray[np.integer], labels: NDArray[np.integer], names: Sequence[str], design: GoldDesign
) -> tuple[ClassFigures, ...]:
    """The same for gold rows with weights or groups."""
    drawn = design.weights, design.groups
    scores = estimate_by_class(PLAIN["macro-f1"], one_hot(answered, len(names)), labels, *drawn)
    figures = []
    for number, (name, f1) in enumerate(zip(names, scores, strict=True)):
        said, true = answered == number, labels == number
        precision, recall = share_of(said & true, design, said), share_of(said & true, design, true)
        figures.append(ClassFigures(name, int(true.sum()), precision, recall, f1))
    return tuple(figures)


def _f1(both: int, said: int, true: int) -> float:
    return 2 * both / (said + true) if said + true else float("nan")


def confusions(answered: NDArray[np.integer], labels: NDArray[np.integer], names: Sequence[str]) -> tuple[Confusion, ...]:
    """Pairs of classes that the teacher confuses on gold, most rows first."""
    table = np.zeros((len(names), len(names)), np.int64)
    np.add.at(table, (labels, answered), 1)
    np.fill_diagonal(table, 0)
    order = np.argsort(-table, axis=None, kind="stable")
    pairs = [(int(at) // len(names), int(at) % len(names)) for at in order if table.flat[at]]
    return tuple(Confusion(names[truth], names[said], int(table[truth, said])) for truth, said in pairs)
