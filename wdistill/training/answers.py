"""`distill_answers`: from a teacher's answers and gold labels to a trained student."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import nn

from wdistill.answers.api import options_of
from wdistill.answers.encoders import InputEncoder, TextEncoder, encode_rows, fit_encoder, present_ids
from wdistill.answers.frames import as_files
from wdistill.answers.gold_labels import labels_in, read_gold_labels
from wdistill.answers.input_columns import deviations
from wdistill.answers.pool import AnswerPool, GoldRows, open_pool, survey, usable
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.core import checks
from wdistill.core.errors import InputError, LeakError, bad_input, bad_value
from wdistill.core.progress import say
from wdistill.methods.best import best
from wdistill.runs.recipe import Recipe, read_recipe
from wdistill.training.data import Data
from wdistill.training.distill import train_arms
from wdistill.training.followers import led
from wdistill.training.models.networks import NamedNetwork, TableMLP, build_with
from wdistill.training.models.text import TEXT_RECIPE, text_bag
from wdistill.training.prepare import prepare
from wdistill.training.run import Report, Run, open_run
from wdistill.weights.confidence import Floats

TABLE_RECIPE: Mapping[str, str | int | float] = {"rate": 0.002, "schedule": "linear", "epochs": 20}  # as TEXT_RECIPE
LEAST_STEPS = {"text": 100, "table": 1_000}  # of a training, however few rows there are
STEPS = 8  # of an epoch with few rows; with many, of more rows each
SMALLEST, LARGEST = 16, 256  # rows of a step


@dataclass(frozen=True, eq=False)
class AnsweredSplits:
    """The splits of a run, made of answers, and how their inputs were made."""

    teacher: Mapping[str, Floats]  # probabilities by split
    labeled: Data | None  # gold rows without a usable answer
    validation: Data  # all others
    unlabeled: Data
    test: Data | None
    classes: tuple[str, ...]
    encoder: TextEncoder | InputEncoder

    @property
    def record(self) -> dict[str, Any]:
        """What is kept with the run: the classes by name, and the columns that the inputs were made of."""
        return {"class_names": list(self.classes), "columns": self.encoder.record}


def default_recipe(student: str, gold: int, pool: int) -> dict[str, Any]:
    """Settings of a Recipe that suit a student of texts ("text") or columns ("table"), and so many rows.

    Few rows are gone through more often, in smaller steps: ten epochs of a hundred rows would be ten steps.
    """
    size = min(LARGEST, max(SMALLEST, 1 << (max(1, pool // STEPS).bit_length() - 1)))
    settings = TEXT_RECIPE if student == "text" else TABLE_RECIPE
    epochs = {
        name: max(int(settings["epochs"]), ceil(LEAST_STEPS[student] * size / max(1, rows)))
        for name, rows in (("student_epochs", gold), ("epochs", pool))
    }
    return {**settings, **epochs, "batch_size": size, "rule": (best.name,)}


@led
def distill_answers(
    answers: Any,
    gold: Any = None,
    *,
    rows: Any = None,
    test: Any = None,
    student: str | nn.Module | Callable[[], nn.Module] | None = None,
    rule: Any = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    run: str | Path | None = None,
    **options: Any,
) -> Report:
    """A student trained on answers and gold labels: paths, or frames in memory.

    `answers`, `gold`, `rows` and `options` are those of `correct`; text="text" or inputs=["age", "town"] name what the
    student reads. `test`: more labeled rows, to measure it on. `student`: "text" (the default with text), "table" (with
    inputs; "table:hidden=32x32"), or a module that reads such rows. `rule`, `run`: as in `distill`; by default the arm
    `best`. `recipe`: settings that differ from those that suit such a student and the number of rows, such as
    {"epochs": 5}; or a whole Recipe, which then names the arms too.
    """
    settings = options_of(options)
    with as_files(answers=answers, gold=gold, rows=rows, test=test) as path:
        sources = Sources([path("answers") or ""], path("gold"), path("rows"))

        def complete(defaults: Mapping[str, Any]) -> Recipe:
            return recipe if isinstance(recipe, Recipe) else read_recipe([], recipe or {}, defaults)

        return distill_files(sources, settings, path("test"), student, rule, complete, run)


def distill_files(
    sources: Sources,
    options: AnswerOptions,
    test: str | None,
    student: str | nn.Module | Callable[[], nn.Module] | None,
    rule: Any,
    complete: Callable[[Mapping[str, Any]], Recipe],
    run: str | Path | None,
) -> Report:
    """The same from files; `rule` None: the arms that the recipe names. `complete` makes a recipe of default settings."""
    kind = "text" if options.text else "table"
    _check_student(student, kind)
    _check_recipe(complete(default_recipe(kind, 1, 1)), options)  # errors come before anything is read
    with checks.collect_warnings() as messages:
        splits = read_splits(sources, options, test)
        recipe = complete(default_recipe(kind, len(splits.validation.ids), len(splits.unlabeled.ids)))
        made = make_student(student, splits)
        with open_run(rule, recipe, run) as this_run:
            this_run.messages.extend(messages)
            parts = (splits.labeled, splits.validation, splits.unlabeled, splits.test)
            prepared = prepare(this_run, splits.teacher, made, *parts, gold_as_labeled=True, class_names=splits.classes)
            _check_same(this_run, splits.record)
            this_run.remember(**splits.record)
            return train_arms(this_run, prepared)


def _check_recipe(recipe: Recipe, options: AnswerOptions) -> None:
    """Refuse settings that answers decide themselves."""
    if recipe.kind != "probabilities":
        expected, remedy = "probabilities, as answers are read", "leave it out"
        raise bad_value("is for a teacher given as a table", "recipe: kind", recipe.kind, expected, remedy)
    usual = AnswerOptions()
    for name in ("targets", "targets_from", "metric"):
        given = getattr(options, name)
        if given not in (getattr(usual, name), getattr(recipe, name)):
            expected, remedy = "one of them", f'set it in the recipe: {{"{name}": "{given}"}}'
            verb = "are" if name == "targets" else "is"
            raise bad_value(f"{name} {verb} a setting of the recipe here", name, given, expected, remedy)


def _check_same(run: Run, record: Mapping[str, Any]) -> None:
    """Refuse a run of other classes or columns."""
    for name, value in record.items():
        then = run.store.state.get(name, value)
        if then != value:
            found, expected = f"{name}: {then} → {value}", "the answers that the run was begun with"
            remedy = "undo these changes to resume it, or name another folder for a new run"
            raise bad_value("this folder holds a run of something else", str(run.folder), found[:500], expected, remedy)


def read_splits(sources: Sources, options: AnswerOptions, test: str | None) -> AnsweredSplits:
    """Read answers, gold labels and rows, and make inputs of them."""
    if not options.text and not options.inputs:
        expected = "--text COLUMN or --inputs COLUMN,…: what the student shall read"
        raise bad_value(
            "a student needs the rows themselves", "--answers", "neither --text nor --inputs", expected, "name a column"
        )
    pool = open_pool(sources, options)
    with TemporaryDirectory(prefix="wdistill-") as scratch:
        seen = survey(pool, Path(scratch))
    gold = seen.gold
    assert gold is not None
    say(seen.said(pool))
    say(f"{pool.gold.said()}; classes: {', '.join(pool.classes.names[:20])}")
    judged = None if test is None else _test_rows(pool, test)
    encoder = fit_encoder(pool)
    answered = _answered(pool)
    held_out = pa.array([*pool.numbers, *(judged.labels if judged and not judged.apart else ())], pa.string())
    kept = ~pc.is_in(answered.ids, value_set=held_out).to_numpy(zero_copy_only=False)
    ids, teacher = answered.ids.filter(pa.array(kept)), answered.teacher[kept]
    if not len(ids):
        raise checks.no_rows("--answers")
    splits = {
        "labeled": _unanswered(pool, gold, encoder),
        "validation": _gold_split(gold, encoder),
        "unlabeled": Data(encode_rows(pool, ids, encoder), None, _names(ids)),
        "test": None if judged is None else _test_split(pool, judged, encoder),
    }
    predictions = {"validation": gold.teacher, "unlabeled": teacher}
    if judged is not None and not judged.apart:
        place = pc.index_in(pa.array(list(judged.labels), pa.string()), value_set=answered.ids)
        if not place.null_count:  # the teacher is measured on the same rows
            predictions["test"] = answered.teacher[place.to_numpy()]
    trimmed = _without_padding(splits) if options.text else splits
    return AnsweredSplits(predictions, **trimmed, classes=pool.classes.names, encoder=encoder)


def _gold_split(gold: GoldRows, encoder: TextEncoder | InputEncoder) -> Data:
    """The gold rows that have an answer, with what is known of how they were drawn."""
    weights = gold.design.weights
    inclusion = None if weights is None else 1.0 / weights
    return Data(encoder(gold.values, "gold rows"), gold.labels, _names(gold.ids), gold.design.groups, inclusion)


def _without_padding(splits: dict[str, Any]) -> dict[str, Any]:
    """The same rows of texts without the columns at their end that are 0 in all splits."""
    width = max(_used_columns(data.inputs) for data in splits.values() if data is not None)
    return {
        name: None if data is None else replace(data, inputs=np.ascontiguousarray(data.inputs[:, :width]))
        for name, data in splits.items()
    }


def _used_columns(rows: NDArray[np.integer]) -> int:
    """Columns up to the last that is not 0 everywhere, at least 1; every row is filled from its start."""
    return max(1, bisect_left(range(rows.shape[1]), True, key=lambda at: not rows[:, at].any()))


def _unanswered(pool: AnswerPool, gold: GoldRows, encoder: TextEncoder | InputEncoder) -> Data | None:
    """Gold rows without a usable answer, which are labels all the same: their texts or inputs stand in the gold file, or
    where those of the answers stand."""
    others = sorted({*pool.numbers} - {*gold.ids.to_pylist()})
    if not others:
        return None
    own = [key for key in others if _has_values(pool.gold.records[key], pool.value_columns)]
    there = present_ids(pool, [key for key in others if key not in {*own}])
    lost = len(others) - len(own) - len(there)
    if lost:
        checks.warn(f"{lost:,} gold rows are not among the rows, and have no text of their own: they are left out")
    parts = [encoder(_record_values(pool, pool.gold.records, own, "--gold"), "--gold")] if own else []
    parts += [encode_rows(pool, pa.array(there, pa.string()), encoder)] if there else []
    if not parts:
        return None
    ids = [*own, *there]
    labels = np.array([pool.numbers[key] for key in ids])
    return Data(np.concatenate(parts), labels, _names(pa.array(ids, pa.string())))


@dataclass(frozen=True, eq=False)
class _Answered:
    """All answers that can be used, of gold and test rows too."""

    ids: pa.Array  # (n,)
    teacher: Floats  # (n, K)


def _answered(pool: AnswerPool) -> _Answered:
    ids, teacher = list[pa.Array](), list[Floats]()
    for batch in pool.batches():
        kept = batch.parsed.answered | (pool.options.refusals == "uniform")
        ids.append(batch.parsed.ids.filter(pa.array(kept)))
        teacher.append(usable(batch.parsed, pool)[kept])
    return _Answered(pa.concat_arrays(ids), np.concatenate(teacher))


@dataclass(frozen=True, eq=False)
class _TestRows:
    """The file of test rows, read."""

    where: str
    labels: Mapping[str, int]  # by id
    records: Mapping[str, Mapping[str, Any]]  # by id, with all other fields
    apart: bool  # its ids are not those of the answers, whose rows are only counted


def _test_rows(pool: AnswerPool, test: str) -> _TestRows:
    where, key = f"--test {test}", pool.options.gold_id or pool.options.id
    try:
        found = read_gold_labels(test, pool.options.label, key, "--test")
    except InputError:
        found = read_gold_labels(test, None, key, "--test")  # its column of labels may have another name
    numbers = labels_in(found, pool.classes, where)
    apart = any(file.counts_rows for file in pool.files)
    shared = [] if apart else sorted(set(numbers) & set(pool.numbers))
    if shared:
        raise LeakError(
            "test rows are among the gold rows",
            where=where,
            found=f"{len(shared):,} of {len(numbers):,} rows, such as {', '.join(map(repr, shared[:5]))}",
            expected="rows that the student is not trained on",
            remedy="leave them out of one of the two files",
        )
    return _TestRows(where, numbers, found.records, apart)


def _test_split(pool: AnswerPool, rows: _TestRows, encoder: TextEncoder | InputEncoder) -> Data:
    """The test rows: their texts or inputs stand in their own file, or where those of the answers stand."""
    ids, names = pa.array(list(rows.labels), pa.string()), pool.value_columns
    if all(_has_values(rows.records[key], names) for key in rows.labels):
        inputs = encoder(_record_values(pool, rows.records, list(rows.labels), rows.where), rows.where)
    elif rows.apart:
        found, expected = "ids and labels alone", f"columns {', '.join(names)}: the answers have no ids to join by"
        raise bad_input("test rows without texts or inputs", rows.where, found, expected, "add them to the file")
    else:
        inputs = encode_rows(pool, ids, encoder, rows.where)
    return Data(inputs, np.array(list(rows.labels.values())), _names(ids))


def _has_values(record: Mapping[str, Any], names: Sequence[str]) -> bool:
    return all(record.get(name) is not None for name in names)


def _record_values(
    pool: AnswerPool, records: Mapping[str, Mapping[str, Any]], ids: Sequence[str], where: str
) -> dict[str, pa.Array]:
    """Texts or inputs of some rows, from the records of their own file."""
    try:
        return {name: pa.array([records[key][name] for key in ids]) for name in pool.value_columns}
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        remedy = "write one kind of values into a column"
        raise bad_input("values of different kinds in one column", where, error, "texts, or numbers", remedy) from None


def _check_student(student: Any, kind: str) -> None:
    """Refuse the name of a student that reads something else."""
    name = student.partition(":")[0] if isinstance(student, str) else kind
    if name in ("text", "table") and name != kind:
        reads = {"text": "texts", "table": "columns of numbers"}
        found, expected = (
            f"{reads[kind]} to read",
            f"--student {kind}, or --{'text' if kind == 'table' else 'inputs'} COLUMN",
        )
        raise bad_value(f"it reads {reads[name]}", f"--student {student}", found, expected, "name the other student")


def make_student(student: Any, splits: AnsweredSplits) -> nn.Module | Callable[[], nn.Module]:
    """A student that reads the rows of these splits, by its name; a module, or a function that makes one, as it is."""
    encoder, classes = splits.encoder, len(splits.classes)
    name = student or ("text" if isinstance(encoder, TextEncoder) else "table")
    if not isinstance(name, str):
        made: nn.Module | Callable[[], nn.Module] = name
        return made
    kind, _, arguments = name.partition(":")
    if kind == "text" and not arguments and isinstance(encoder, TextEncoder):
        return text_bag(encoder.features, classes)
    if kind == "table" and "inputs=" not in arguments:
        return _table_student(name, splits.unlabeled.inputs, classes)
    return NamedNetwork(name)


def _table_student(name: str, inputs: NDArray[np.float32], classes: int) -> Callable[[], nn.Module]:
    """A student on columns of numbers whose means and deviations are those of the unlabeled rows."""

    def make() -> nn.Module:
        network = build_with(name, inputs=inputs.shape[1], classes=classes)
        assert isinstance(network, TableMLP)
        network.mean.copy_(torch.from_numpy(inputs.mean(axis=0)))
        network.scale.copy_(torch.from_numpy(deviations(inputs)))
        return network

    return make


def _names(ids: pa.Array) -> NDArray[Any]:
    return np.asarray(ids.to_pylist(), dtype=str)
