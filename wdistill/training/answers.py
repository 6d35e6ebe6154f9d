"""`distill_answers`: from a teacher's answers and gold labels to a trained student."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
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
from wdistill.answers.pool import AnswerPool, GoldRows, open_pool, survey, usable
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.core import checks
from wdistill.core.errors import LeakError, bad_value
from wdistill.core.progress import say
from wdistill.methods.best import best
from wdistill.runs.recipe import Recipe
from wdistill.training.data import Data
from wdistill.training.distill import train_arms
from wdistill.training.models.networks import NamedNetwork, TableMLP, build_with
from wdistill.training.models.text import TEXT_RECIPE, text_bag
from wdistill.training.prepare import prepare
from wdistill.training.run import Report, open_run
from wdistill.weights.confidence import Floats

TABLE_RECIPE: Mapping[str, str | int | float] = {"rate": 0.002, "schedule": "linear", "epochs": 20}  # as TEXT_RECIPE
LEAST_STEPS = {"text": 200, "table": 1_000}  # of a training, however few rows there are
STEPS = 32  # of an epoch with few rows; with many, of more rows each
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


def distill_answers(
    answers: Any,
    gold: Any = None,
    *,
    rows: Any = None,
    test: Any = None,
    student: str | nn.Module | Callable[[], nn.Module] | None = None,
    rule: Any = None,
    recipe: Recipe | None = None,
    run: str | Path | None = None,
    **options: Any,
) -> Report:
    """A student trained on answers and gold labels: paths, or frames in memory.

    `answers`, `gold`, `rows` and `options` are those of `correct`; text="text" or inputs=["age", "town"] name what the
    student reads. `test`: more labeled rows, to measure it on. `student`: "text" (the default with text), "table" (with
    inputs; "table:hidden=32x32"), or a module that reads such rows. `rule`, `recipe`, `run`: as in `distill`; by default
    the arm `best`, and settings that suit such a student and the number of rows.
    """
    settings = options_of(options)
    with as_files(answers=answers, gold=gold, rows=rows, test=test) as path:
        sources = Sources([path("answers") or ""], path("gold"), path("rows"))
        complete = (lambda defaults: Recipe(**defaults)) if recipe is None else (lambda defaults: recipe)
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
    complete(default_recipe(kind, 1, 1))  # its errors come before anything is read
    with checks.collect_warnings() as messages:
        splits = read_splits(sources, options, test)
        recipe = complete(default_recipe(kind, len(splits.validation.ids), len(splits.unlabeled.ids)))
        with open_run(rule, recipe, run) as this_run:
            this_run.messages.extend(messages)
            parts = (splits.labeled, splits.validation, splits.unlabeled, splits.test)
            made = make_student(student, splits)
            prepared = prepare(this_run, splits.teacher, made, *parts, gold_as_labeled=True)
            this_run.remember(**splits.record)
            return train_arms(this_run, prepared)


def read_splits(sources: Sources, options: AnswerOptions, test: str | None) -> AnsweredSplits:
    """Read answers, gold labels and rows, and make inputs of them."""
    if not options.text and not options.inputs:
        expected = "--text COLUMN or --inputs COLUMN,…: what the student shall read"
        raise bad_value("a student needs the rows themselves", "--answers", "neither of both", expected, "name a column")
    pool = open_pool(sources, options)
    with TemporaryDirectory(prefix="wdistill-") as scratch:
        seen = survey(pool, Path(scratch))
    gold = seen.gold
    assert gold is not None
    say(seen.said(pool))
    say(f"{pool.gold.said()}; classes: {', '.join(pool.classes.names[:20])}")
    judged = _test_labels(pool, test)
    encoder = fit_encoder(pool)
    ids, teacher = _unlabeled(pool, {*judged})
    splits = {
        "labeled": _unanswered(pool, gold, encoder),
        "validation": Data(encoder(gold.values, "gold rows"), gold.labels, _names(gold.ids)),
        "unlabeled": Data(encode_rows(pool, ids, encoder), None, _names(ids)),
        "test": _test_split(pool, test, judged, encoder),
    }
    predictions = {"validation": gold.teacher, "unlabeled": teacher}
    trimmed = _without_padding(splits) if options.text else splits
    return AnsweredSplits(predictions, **trimmed, classes=pool.classes.names, encoder=encoder)


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
    """Gold rows without a usable answer: they tell nothing of the teacher, and are labels all the same."""
    others = sorted({*pool.numbers} - {*gold.ids.to_pylist()})
    there = present_ids(pool, others)
    if not there:
        return None
    ids = pa.array(there, pa.string())
    return Data(encode_rows(pool, ids, encoder), np.array([pool.numbers[key] for key in there]), _names(ids))


def _unlabeled(pool: AnswerPool, judged: set[str]) -> tuple[pa.Array, Floats]:
    """Ids (n,) and probabilities (n, K) of the answers that can be used, without gold and test rows."""
    ids, teacher = list[pa.Array](), list[Floats]()
    others = pa.array([*pool.numbers, *judged], pa.string())
    for batch in pool.batches():
        kept = ~pc.is_in(batch.parsed.ids, value_set=others).to_numpy(zero_copy_only=False)
        if pool.options.refusals == "drop":
            kept &= batch.parsed.answered
        ids.append(batch.parsed.ids.filter(pa.array(kept)))
        teacher.append(usable(batch.parsed, pool)[kept])
    if not sum(map(len, ids)):
        raise checks.no_rows("--answers")
    return pa.concat_arrays(ids), np.concatenate(teacher)


def _test_labels(pool: AnswerPool, test: str | None) -> dict[str, int]:
    """The classes of the test rows, by id."""
    if test is None:
        return {}
    labels = read_gold_labels(test, pool.options.label, pool.options.gold_id or pool.options.id, "--test")
    numbers = labels_in(labels, pool.classes, f"--test {test}")
    shared = sorted(set(numbers) & set(pool.numbers))
    if shared:
        raise LeakError(
            "test rows are among the gold rows",
            where=f"--test {test}",
            found=f"{len(shared):,} of {len(numbers):,} rows, such as {', '.join(map(repr, shared[:5]))}",
            expected="rows that the student is not trained on",
            remedy="leave them out of one of the two files",
        )
    return numbers


def _test_split(
    pool: AnswerPool, test: str | None, numbers: Mapping[str, int], encoder: TextEncoder | InputEncoder
) -> Data | None:
    """The test rows: their texts or inputs stand in their own file, or where those of the answers stand."""
    if test is None:
        return None
    labels = read_gold_labels(test, pool.options.label, pool.options.gold_id or pool.options.id, "--test")
    ids, names = pa.array(list(numbers), pa.string()), pool.value_columns
    if all(name in labels.records[key] for key in numbers for name in names):
        values = {name: pa.array([labels.records[key][name] for key in numbers]) for name in names}
        inputs = encoder(values, f"--test {test}")
    else:
        inputs = encode_rows(pool, ids, encoder)
    return Data(inputs, np.array(list(numbers.values())), _names(ids))


def make_student(student: Any, splits: AnsweredSplits) -> nn.Module | Callable[[], nn.Module]:
    """A student that reads the rows of these splits, by its name; a module, or a function that makes one, as it is."""
    encoder, classes = splits.encoder, len(splits.classes)
    name = student or ("text" if isinstance(encoder, TextEncoder) else "table")
    if not isinstance(name, str):
        made: nn.Module | Callable[[], nn.Module] = name
        return made
    kind, _, arguments = name.partition(":")
    if kind == "text" and not arguments:
        if not isinstance(encoder, TextEncoder):
            expected = "--student table with --inputs, or --text COLUMN"
            raise bad_value("it reads texts", "--student text", "--inputs", expected, "name a student that reads numbers")
        return text_bag(encoder.features, classes)
    if kind == "table" and "inputs=" not in arguments:
        if isinstance(encoder, TextEncoder):
            expected = "--student text with --text, or --inputs COLUMN,…"
            raise bad_value("it reads numbers", f"--student {name}", "--text", expected, "name a student that reads texts")
        return _table_student(name, splits.unlabeled.inputs, classes)
    return NamedNetwork(name)


def _table_student(name: str, inputs: NDArray[np.float32], classes: int) -> Callable[[], nn.Module]:
    """A student on columns of numbers whose means and deviations are those of the unlabeled rows."""

    def make() -> nn.Module:
        network = build_with(name, inputs=inputs.shape[1], classes=classes)
        assert isinstance(network, TableMLP)
        network.mean.copy_(torch.from_numpy(inputs.mean(axis=0)))
        network.scale.copy_(torch.from_numpy(inputs.std(axis=0) + 1e-6))
        return network

    return make


def _names(ids: pa.Array) -> NDArray[Any]:
    return np.asarray(ids.to_pylist(), dtype=str)
