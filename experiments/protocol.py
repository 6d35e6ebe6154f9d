"""What an experiment and an item of the paper are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.lines import Line
from wdistill.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Experiment:
    """One data set, pair of models and recipe, for several numbers of labels; its lines are in results/NAME.jsonl."""

    name: str
    dataset: str  # as `wdistill data` names it: svhn cifar10 cifar100 celeba imagenet fashion mnist
    teacher: str  # network spec without channels and classes: "mobilenet:width=2", "resnet_cifar:depth=110"
    student: str
    labels: tuple[int, ...]
    validation: int
    arms: Mapping[str, Any]  # rules or Arms by name: unweighted, debiased, arm(debiased, refresh=1), …
    recipe: Recipe
    unlabeled: int | None = None  # of the rows that are left; None: all
    trials: int = 3
    repeats: bool = False  # every trial has a labeled set, teacher and student of its own; else only the split varies
    teacher_changes: Mapping[str, Any] = field(default_factory=dict)  # of the recipe, for the teacher alone
    size: int | None = None  # of the images, where the data set has no own size


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper: the experiments whose lines it is made of, and how it is made."""

    name: str  # `wdistill reproduce NAME`
    shows: str  # "Figure 4, table; Figure 11, trajectories: SVHN"
    experiments: tuple[Experiment, ...]
    tables: Callable[[Mapping[str, list[Line]]], str]  # lines by experiment name → Markdown
    figures: Callable[[Mapping[str, list[Line]]], dict[str, Figure]]  # file stem → figure
