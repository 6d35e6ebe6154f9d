"""The recipe: the settings of a run, and which of them fit together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wdistill.core import settings
from wdistill.core.checks import warn
from wdistill.core.errors import ConfigError, bad_value
from wdistill.core.settings import Word, check_settings, read_settings, setting, settings_of, shown
from wdistill.methods.best import AUXILIARY_MODELS
from wdistill.methods.metric_text import check_text
from wdistill.methods.targets import check_source
from wdistill.weights.rules import RuleSettings, missing_settings, unused_settings

PAIR = re.compile(r"[^\s=,]+=[^\s=,]+")  # dotted names of two layers
ARM = re.compile(r"\w+([.:-]\w+)*(,\w+([.:-]\w+)*)*")  # names of rules, with commas between


def _is_arm(text: str) -> bool:
    return bool(ARM.fullmatch(text)) and len(set(text.split(","))) == len(text.split(","))


LAYERS = Word(
    PAIR.fullmatch,
    "not a pair of layers",
    "the dotted name of a layer of the student, =, and that of one of the teacher, with no spaces",
    "layers.2=layers.5",
)
NAMED_ARM = Word(
    _is_arm, "not an arm", "the name of a rule, or names of different rules with commas and no spaces", "debiased,fidelity"
)


@dataclass(frozen=True)
class Recipe(RuleSettings):
    """Everything that determines the result of a run, and how it is computed; the command's flags are these fields."""

    # how long
    teacher_epochs: int = setting(200, "epochs of the teacher on the labeled rows; 0: it comes trained", least=0)
    student_epochs: int = setting(200, "epochs of the student on the labeled rows; 0: it comes trained", least=0)
    epochs: int = setting(200, "epochs of the student on the weighted union, for each arm", least=1)

    # how to step
    batch_size: int = setting(128, "rows of a step", least=1)
    micro_batches: int | None = setting(
        None,
        "parts of a batch, whose gradients are added in order by one process or several: results depend on their number, "
        "not on that of the processes; by default one, or for arms as many as torchrun started",
        least=1,
    )
    sharded: bool = setting(
        False,
        "students whose parameters, gradients and optimizer state do not fit in one process: each that torchrun started has "
        "a share of them (FSDP2)",
        negatable=True,
    )
    optimizer: Literal["adam", "sgd"] = setting("adam", "adam, or sgd with momentum")
    rate: float = setting(0.001, "initial learning rate", above=0)
    momentum: float = setting(0.9, "of sgd", least=0, below=1)
    weight_decay: float = setting(0.0, "added to the gradient as this multiple of a parameter (L2)", least=0)
    decayed: Literal["all", "kernels"] = setting("all", "parameters that decay: all, or the kernels of convolutions alone")
    schedule: Literal["steps", "warmup", "constant", "linear"] = setting(
        "steps", "of the rate: the paper's steps, its warmup for ImageNet, constant, or linear down to 0"
    )
    augmentation: tuple[Literal["flip", "translate"], ...] = setting(
        (),
        "of images in training: flip, translate (by up to a tenth), or both with a comma",
        metavar="KIND[,KIND]",
    )

    # what to match
    temperature: float = setting(1.0, "of both softmaxes: in loss, distortion and confidence", above=0)
    temperature_squared: bool = setting(False, "multiply the cross-entropy by the square of the temperature", negatable=True)
    vid: tuple[str, ...] = setting(
        (),
        "pairs STUDENT_LAYER=TEACHER_LAYER whose features are matched too (VID), several with a comma",
        word=LAYERS,
        metavar="S=T[,S=T…]",
    )
    vid_scale: float = setting(1.0, "of the VID loss, beside the cross-entropy", above=0)

    # how to weigh, besides the options of the rules, which RuleSettings has
    rule: tuple[str, ...] = setting(
        ("debiased",),
        "an arm: a rule, rules to multiply with commas, shuffled (the control), or best; repeat for more arms",
        word=NAMED_ARM,
        least=1,
        repeat=True,
        metavar="RULE[,RULE…]",
    )
    refresh: int | None = setting(None, "epochs from one estimation of the weights to the next; once unless given", least=1)
    validation_in_training: Literal["no", "yes", "half"] = setting(
        "no", "train the student on the validation rows too; half: one half trains, the other weighs"
    )

    targets_from: str = setting(
        "average",
        "what best teaches: average, posterior, or an expert such as teacher or retrained, also with -recalibrated",
    )

    # what counts
    metric: str = setting(
        "accuracy",
        "what counts: accuracy, balanced-accuracy, macro-f1, log-loss, f1:CLASS, average-precision:CLASS, "
        "recall@precision=0.9:CLASS, or cost:FILE; epochs and decisions are chosen by it, and the report shows it",
    )

    # what comes in
    kind: Literal["probabilities", "logits", "logprobs"] = setting("probabilities", "what a teacher given as a table holds")
    classes: int | None = setting(None, "number of classes; as the models have it unless given", least=2)

    # where and how it runs
    precision: Literal["float32", "bfloat16", "float16"] = setting("float32", "of the forward and backward pass")
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "where models are trained; auto: the fastest there is")
    seed: int = setting(0, "of initial parameters, batch order and augmentation", least=0, below=2**63)
    threads: int = setting(1, "of one training on a processor; more pay off for large models", least=1)
    workers: int = setting(1, "trainings side by side, each in a process of its own", least=1, compared=False)
    checkpoint_seconds: float = setting(
        30.0, "at most this much work is lost at a kill; 0: every epoch", least=0, compared=False
    )


def check_recipe(recipe: Recipe, beside: Sequence[str] = ()) -> None:
    """Raise on values out of range and on settings that exclude each other; warn where the result may surprise.

    `beside` names rules of other arms of the run: settings that only they use are allowed.
    """
    check_settings(recipe, "recipe")
    _check_conflicts(recipe, beside)
    if recipe.refresh is not None and recipe.validation_in_training == "yes":
        warn(
            f"refresh = {recipe.refresh} with validation_in_training = yes: the student is trained on the rows that weigh, "
            "and a memorised validation set distorts its own losses; validation_in_training = half keeps them apart"
        )
    if recipe.refresh is not None and recipe.refresh >= recipe.epochs:
        warn(f"refresh = {recipe.refresh} with epochs = {recipe.epochs}: the weights are estimated only once")


def read_recipe(paths: Sequence[Path], flags: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of TOML files and flags: later files win over earlier ones, flags over files; None is not given."""
    recipe = read_settings(Recipe, flags, paths, defaults)
    _check_conflicts(recipe)
    return recipe


def from_json(values: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """The recipe that `to_json` wrote; a field that it lacks has its default."""
    return settings.from_json(Recipe, values, where)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines such as "epochs: 200 → 100", one for each setting that differs and must not differ when a run resumes."""
    return settings.changes(Recipe, old, new)


def _check_conflicts(recipe: Recipe, beside: Sequence[str] = ()) -> None:
    """Raise on settings that no arm or optimizer uses, and on arms that lack a setting."""
    for name, rule in missing_settings(recipe, _rules_in(recipe.rule)):
        raise _conflict(recipe, name, "rule", f"the rule {rule} needs it")
    for name, rules in unused_settings(recipe, _rules_in((*recipe.rule, *beside))):
        if name != "targets":  # the loss uses it too
            raise _conflict(recipe, name, "rule", f"needs an arm with the rule {' or '.join(rules)}")
    default = settings_of(Recipe)
    if recipe.targets_from != default["targets_from"].default and "best" not in (*recipe.rule, *beside):
        raise _conflict(recipe, "targets_from", "rule", "needs the arm best")
    check_text(recipe.metric)
    check_source(recipe.targets_from, ("teacher", "student", *AUXILIARY_MODELS), "recipe: targets_from")
    if recipe.decayed != "all" and not recipe.weight_decay:
        raise _conflict(recipe, "decayed", "weight_decay", "needs a weight_decay above 0")
    if recipe.sharded and recipe.vid:
        raise _conflict(recipe, "sharded", "vid", "a student in shards cannot be trained with VID")
    if recipe.sharded and recipe.precision == "float16":
        raise _conflict(recipe, "sharded", "precision", "a student in shards is trained in float32 or bfloat16")
    if recipe.sharded and recipe.workers > 1:
        raise _conflict(recipe, "sharded", "workers", "arms of a student in shards are trained one after the other")
    if recipe.optimizer != "sgd" and recipe.momentum != default["momentum"].default:
        raise _conflict(recipe, "momentum", "optimizer", "needs the optimizer sgd")
    if not recipe.vid and recipe.vid_scale != default["vid_scale"].default:
        raise _conflict(recipe, "vid_scale", "vid", "needs pairs of layers")


def _rules_in(arms: Sequence[str]) -> set[str]:
    """The rules that arms consist of: shuffled-threshold of threshold, shuffled alone of debiased."""
    names = {name for arm in arms for name in re.split("[,-]", arm)}
    return names | ({"debiased"} if "shuffled" in names else set())


def _conflict(recipe: Recipe, name: str, other: str, what: str) -> ConfigError:
    """The error for two settings that do not fit together."""
    found = " with ".join(f"{setting} = {shown(getattr(recipe, setting))}" for setting in (name, other))
    return bad_value(what, f"recipe: {name}", found, "settings that belong together", f"change {name} or {other}")
