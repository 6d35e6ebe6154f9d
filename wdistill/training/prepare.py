"""The inputs of a run: data and models, read and checked before any training."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, wrong_type
from wdistill.methods.best import AUXILIARY_MODELS, check_enough_gold
from wdistill.methods.groups import SharedGroups
from wdistill.methods.guards import Concern, duplicate_gold, gold_in_labeled, gold_in_unlabeled, gold_shares_groups
from wdistill.methods.metric import Metric
from wdistill.methods.metric_text import metric_of
from wdistill.runs.arms import Arm
from wdistill.runs.recipe import Recipe
from wdistill.training import input_files
from wdistill.training.arm import rows_that_weigh
from wdistill.training.augmentation import check_images
from wdistill.training.auxiliary import available
from wdistill.training.batch import by_name, kind_of
from wdistill.training.data import (
    Duplicates,
    Split,
    check_leak,
    check_split,
    drop_rows,
    find_duplicates,
    groups_shared,
    has_ids,
)
from wdistill.training.identity import begin_or_resume
from wdistill.training.inputs import concatenate, first_row
from wdistill.training.labels import FOLDED_STUDENT
from wdistill.training.packing import packed
from wdistill.training.placed import check_shards
from wdistill.training.predict import count_classes
from wdistill.training.randomness import key, seed_generators
from wdistill.training.ranks import ranks
from wdistill.training.run import Run
from wdistill.training.teacher_table import read_tables
from wdistill.training.vid import check_vid


@dataclass(frozen=True, eq=False)
class Prepared:
    """The inputs of a run, read and checked."""

    splits: Mapping[str, Split]
    duplicates: Duplicates  # gold rows that are in other splits too
    teacher: nn.Module | None  # None where it is a table
    student: nn.Module
    tables: Mapping[str, NDArray[Any]] | None  # the teacher's predictions by split
    classes: int
    passed_splits: Mapping[str, Split]  # without gold rows among the labeled ones
    gold_as_labeled: bool = False  # the last labeled rows are the gold rows
    class_names: tuple[str, ...] = ()  # (K,), numbers where there are no names
    metric: Metric | None = None  # the recipe's, where it is not accuracy
    auxiliary: tuple[str, ...] = ()  # models that arms use, of those that can be trained

    @property
    def training_splits(self) -> dict[str, Split]:
        """The splits as auxiliary models are trained on them: labeled rows that are gold rows too are left out."""
        labeled, others = self.splits["labeled"], self.duplicates.labeled_in_gold
        if not self.gold_as_labeled:
            return {**self.splits, "labeled": drop_rows(labeled, others)}
        is_gold = np.arange(len(labeled)) >= len(labeled) - len(self.splits["validation"])
        is_gold[: len(others)] |= others
        return {**self.splits, "labeled": drop_rows(labeled, is_gold)}

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """Concerns about gold rows that are in other splits too."""
        duplicates, rows = self.duplicates, len(self.splits["validation"])
        in_labeled = gold_in_labeled(int(duplicates.gold_in_labeled.sum()), rows)
        return (
            *in_labeled,
            *gold_in_unlabeled(duplicates.gold_in_unlabeled, rows, "inputs"),
            *duplicate_gold(duplicates.same),
            *(concern for split, shared in self.shared for concern in gold_shares_groups(shared, rows, f"{split} rows")),
        )

    @property
    def shared(self) -> list[tuple[str, SharedGroups]]:
        """Groups of gold rows that labeled and test rows are of too, as they were passed."""
        return list(groups_shared(self.passed_splits).items())

    def with_auxiliary(self, arms: Mapping[str, Arm], recipe: Recipe) -> Prepared:
        """The same with the auxiliary models that arms use and that can be trained.

        Where the student is trained on gold rows alone, it is one of them, and a second one would be the same.
        """
        wanted = [name for name in AUXILIARY_MODELS if any(name in arm.auxiliary for arm in arms.values())]
        names = (
            available(wanted, recipe, self.splits["labeled"].inputs, self.student, table=self.teacher is None)
            if wanted
            else []
        )
        if self.gold_as_labeled and recipe.student_epochs:
            names = [FOLDED_STUDENT, *(name for name in names if name != "second")]
        return replace(self, auxiliary=tuple(names))


def prepare(
    run: Run,
    teacher: Any,
    student: Any,
    labeled: Any,
    validation: Any,
    unlabeled: Any,
    test: Any,
    *,
    gold_as_labeled: bool = False,
    class_names: Sequence[str] | None = None,
) -> Prepared:
    """Read and check all inputs; then begin the run, or check that the folder holds the same one.

    With `gold_as_labeled`, or without labeled rows, the gold rows are labeled rows too: see distill.
    """
    passed = {"labeled": labeled, "validation": validation, "unlabeled": unlabeled, "test": test}
    passed = {name: data for name, data in passed.items() if data is not None}
    for name in ("validation", "unlabeled"):
        if name not in passed:
            expected = "inputs" if name == "unlabeled" else "a pair (inputs, labels), or Data"
            raise wrong_type("no rows", name, None, expected, f"pass {name}=…")
    gold_as_labeled = gold_as_labeled or labeled is None
    splits, duplicates = _splits(run, passed, gold_as_labeled)
    if run.recipe.augmentation:
        check_images(first_row(splits["validation"].inputs), run.recipe.augmentation)
    student_module = _instantiate(student, "student", run.recipe.seed)
    teacher_module = None if _is_table(teacher) else _instantiate(teacher, "teacher", run.recipe.seed)
    models = (
        {"student": student_module} if teacher_module is None else {"teacher": teacher_module, "student": student_module}
    )
    classes = _classes(run.recipe, splits, models)
    with_ids = {name: split for name, split in splits.items() if has_ids(passed[name])}
    tables = read_tables(teacher, splits, with_ids, classes, run.recipe.kind, run.folder) if teacher_module is None else None
    _check_arms(run, splits)
    names = tuple(map(str, range(classes))) if class_names is None else tuple(class_names)
    metric = _metric(run.recipe, splits["validation"], names)
    if gold_as_labeled:
        _check_gold_as_labeled(run, splits, teacher_module)
    for recipe in dict.fromkeys(arm.recipe(run.recipe) for arm in run.arms.values()):
        check_vid(recipe, student_module, teacher_module, splits["validation"].inputs)
    if run.recipe.sharded:
        check_shards(student_module)
    begin_or_resume(run, splits, models, {"teacher": teacher, "student": student}, tables, classes)
    passed_splits = splits
    if gold_as_labeled:
        splits = {**splits, "labeled": _with_gold(splits)}
        if tables is not None and labeled is None:
            tables = {"labeled": tables["validation"], **tables}
    models_and_tables = (teacher_module, student_module, tables, classes)
    return Prepared(splits, duplicates, *models_and_tables, passed_splits, gold_as_labeled, names, metric)


def _splits(run: Run, passed: Mapping[str, Any], gold_as_labeled: bool) -> tuple[dict[str, Split], Duplicates]:
    with_labels, folder = ("labeled", "validation", "test"), run.folder / input_files.FOLDER
    to_file = run.recipe.workers > 1 or ranks().size > 1  # other processes read them there
    splits = {
        name: check_split(name, data, labels=name in with_labels, folder=folder, to_file=to_file)
        for name, data in passed.items()
    }
    _check_kinds(splits)
    duplicates = find_duplicates(splits, gold_as_labeled=gold_as_labeled)
    if "labeled" in splits:
        by_id = has_ids(passed["labeled"]) and has_ids(passed["validation"])
        check_leak(splits["labeled"], splits["validation"], duplicates, by_id=by_id)
    same = duplicates.same
    if duplicates.gold_in_unlabeled:
        rows = f"{duplicates.gold_in_unlabeled} validation rows"
        checks.warn(f"{rows} are also among the unlabeled rows: allowed, and worth knowing")
    if same is not None:
        checks.warn(f"{len(same) - len(np.unique(same))} validation rows repeat the inputs of another one")
    if duplicates.test_in_labeled:
        trained = "validation" if gold_as_labeled else "labeled"
        checks.warn(
            f"{duplicates.test_in_labeled} test rows are also among the {trained} rows: test accuracies are too good"
        )
    for name, shared in groups_shared(splits).items():
        for concern in gold_shares_groups(shared, len(splits["validation"]), f"{name} rows"):
            checks.warn(concern.text)
    return {**splits, "validation": replace(splits["validation"], same=same)}, duplicates


def _check_kinds(splits: Mapping[str, Split]) -> None:
    """Raise where splits have rows of different shapes or types; all floating-point types count as one."""
    rows = {name: first_row(split.inputs) for name, split in splits.items()}
    kinds = {name: kind_of(row) for name, row in rows.items()}
    if len(set(kinds.values())) > 1:
        found = "; ".join(f"{name}: {kind}" for name, kind in kinds.items())
        expected, remedy = "rows of one shape and type in all splits", "prepare all inputs in the same way"
        raise bad_input("the splits have rows of different kinds", "inputs", found, expected, remedy)
    for column, values in by_name(rows["validation"]).items():
        if column and values.dtype == torch.uint8 and values.max() == 1:
            checks.warn(f"{column}: 0 and 1 of type uint8 become 0 and 1/255, as pixels do; masks are of type bool or int64")


def _is_table(teacher: Any) -> bool:
    several = isinstance(teacher, Sequence) and bool(teacher) and all(isinstance(path, str | Path) for path in teacher)
    return isinstance(teacher, Mapping | str | Path) or several


def _instantiate(model: Any, name: str, seed: int) -> nn.Module:
    """A new module: built after seeding, or a copy of the caller's."""
    seed_generators(key(seed, "initial", name), torch.device("cpu"))
    try:
        module = copy.deepcopy(model) if isinstance(model, nn.Module) else model() if callable(model) else model
    except TypeError as error:
        raise bad_value(
            f"the {name} cannot be made",
            name,
            f"{type(error).__name__}: {error}",
            "a module, or a function without arguments that returns one",
            f"pass {name}=lambda: MyModule(…)",
        ) from error
    if not isinstance(module, nn.Module):
        expected = "a torch.nn.Module, or a function that makes one"
        raise wrong_type(f"not a {name}", name, module, expected, "pass the module itself")
    others = [tensor_name for tensor_name, value in module.state_dict().items() if not isinstance(value, Tensor)]
    if others:
        what, found = f"the {name} has state that is no tensor, and cannot be saved", ", ".join(others[:5])
        raise bad_value(what, type(module).__name__, found, "a state dict of tensors", "register it as a buffer")
    return module


def _classes(recipe: Recipe, splits: Mapping[str, Split], models: Mapping[str, nn.Module]) -> int:
    """The number of classes K, the same for both models, the labels and the recipe."""
    for name, model in models.items():
        trained = name == "student" or recipe.teacher_epochs > 0
        if trained and not any(parameter.requires_grad for parameter in model.parameters()):
            remedy = "call requires_grad_() on it" + (
                ", or set teacher_epochs=0 if it comes trained" if name == "teacher" else ""
            )
            found, expected = "no parameter that requires a gradient", "parameters to be trained"
            raise bad_value(f"the {name} has nothing to train", type(model).__name__, found, expected, remedy)
    inputs = splits["validation"].inputs
    widths = {name: count_classes(model, name, inputs, recipe.precision) for name, model in models.items()}
    if recipe.classes is not None:
        widths["recipe"] = recipe.classes
    k = checks.same_classes(widths)
    for name, split in splits.items():
        if split.labels is not None:
            checks.labels(split.labels.numpy(), k, f"{name} labels")
    return k


def _metric(recipe: Recipe, gold: Split, names: Sequence[str]) -> Metric | None:
    """The recipe's metric, which the gold rows must be able to tell; None where it is accuracy."""
    metric = metric_of(recipe.metric, names)
    if metric.name == "accuracy":
        return None
    check_enough_gold(len(gold), "validation", "leave the metric out")
    assert gold.labels is not None
    if metric.one is not None and not (gold.labels == metric.one).any():
        expected, remedy = f"gold rows of class {names[metric.one]}", "label some, or name another metric"
        raise bad_input("no gold row tells this metric", f"metric {recipe.metric}", "none of its class", expected, remedy)
    return metric


def _with_gold(splits: Mapping[str, Split]) -> Split:
    """The labeled rows, if there are any, and then the gold rows."""
    gold, labeled = splits["validation"], splits.get("labeled")
    if labeled is None:
        return replace(gold, name="labeled")
    assert labeled.labels is not None and gold.labels is not None
    ids = np.concatenate([part.ids.astype(object) for part in (labeled, gold)])
    return Split("labeled", concatenate([labeled.inputs, gold.inputs]), torch.cat([labeled.labels, gold.labels]), ids)


def _check_gold_as_labeled(run: Run, splits: Mapping[str, Split], teacher: nn.Module | None) -> None:
    """Raise what cannot be done where gold rows take the place of labeled ones; warn of what may surprise."""
    recipe = run.recipe
    if teacher is not None and recipe.teacher_epochs:
        expected = "labeled rows to train it on, or a teacher that comes trained, or its predictions"
        remedy = "pass labeled=…, or set teacher_epochs=0 (--teacher-epochs 0), or pass a table"
        raise bad_value("the teacher has no rows to be trained on", "labeled", "no rows", expected, remedy)
    if recipe.student_epochs:
        check_enough_gold(len(splits["validation"]), "validation", "pass labeled rows")
    for name, arm in run.arms.items():
        own = arm.recipe(recipe)
        if own.validation_in_training == "half":
            expected, remedy = "yes or no: without labeled rows gold rows take their place", "leave it out"
            raise bad_value(
                "all gold rows are trained on here", f"arm {name}: validation_in_training", "half", expected, remedy
            )
        if own.refresh is not None and own.validation_in_training == "no":
            checks.warn(
                f"refresh = {own.refresh} without labeled rows: the student is trained on the gold rows, and its losses on "
                "them are too small after the first estimate, which alone is out of fold"
            )


def _check_arms(run: Run, splits: Mapping[str, Split]) -> None:
    """Raise before any training what a rule would raise after it."""
    if splits["unlabeled"].labels is None and any("truth" in arm.rule.needs for arm in run.arms.values()):
        expected = "a pair (inputs, labels), of which only the oracle and the report use the labels"
        remedy = "pass the labels too, or leave the arm oracle out"
        raise bad_input("the oracle needs the truth", "unlabeled", "inputs alone", expected, remedy)
    if run.recipe.workers > 1 or ranks().size > 1:
        for name, arm in run.arms.items():
            packed(arm.rule, name)
    if any(arm.auxiliary for arm in run.arms.values()):
        check_enough_gold(len(splits["validation"]), "validation", "leave the arm best out")
    for name, arm in run.arms.items():
        recipe = arm.recipe(run.recipe)
        m = len(rows_that_weigh(len(splits["validation"]), recipe))
        takes_neighbors = any("neighbors" in part.options for part in arm.rule.parts)
        if takes_neighbors and recipe.neighbors is not None and recipe.neighbors > m:
            where = f"{f'arm {name}' if 'neighbors' in arm.settings else 'recipe'}: neighbors"
            expected = f"at most {m}, the number of validation rows that weigh"
            remedy = "leave it out for the paper's k = ceil(√m / 2)"
            raise bad_value("more neighbours than there are rows", where, str(recipe.neighbors), expected, remedy)
