"""The settings of a run: one frozen record, read from TOML files and flags, checked, compared and stored."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from wdistill.checks import warn
from wdistill.errors import ConfigError, FileError

T = TypeVar("T")


def setting(
    default: T, meaning: str, *, least: float | None = None, above: float | None = None, below: float | None = None
) -> T:
    """A field of the recipe: its default, what it means (also the help of its flag), and the numbers it may be."""
    limits = {"least": least, "above": above, "below": below}
    return field(default=default, metadata={"meaning": meaning, "limits": limits})


@dataclass(frozen=True)
class Recipe:
    """All that decides what a run comes to, and how it goes about it; the flags of the command are these fields."""

    # how long
    teacher_epochs: int = setting(200, "epochs of the teacher on the labeled rows; 0: it comes trained", least=0)
    student_epochs: int = setting(200, "epochs of the student on the labeled rows; 0: it comes trained", least=0)
    epochs: int = setting(200, "epochs of the student on the weighted union, for each arm", least=1)

    # how to step
    batch_size: int = setting(128, "rows of a step", least=1)
    optimizer: Literal["adam", "sgd"] = setting("adam", "adam, or sgd with momentum")
    rate: float = setting(0.001, "initial learning rate", above=0)
    momentum: float = setting(0.9, "of sgd", least=0, below=1)
    weight_decay: float = setting(0.0, "added to the gradient as this multiple of a parameter (L2)", least=0)
    decayed: Literal["all", "kernels"] = setting("all", "parameters that decay: all, or the kernels of convolutions alone")
    schedule: Literal["steps", "warmup", "constant"] = setting(
        "steps", "of the rate: the paper's steps, its warmup for ImageNet, or constant"
    )
    augmentation: tuple[Literal["flip", "translate"], ...] = setting(
        (), "of images in training: flip, translate (by up to a tenth), or both with a comma"
    )

    # what to match
    targets: Literal["soft", "hard"] = setting("soft", "the teacher's distribution, or its most likely class")
    temperature: float = setting(1.0, "of both softmaxes: in loss, distortion and confidence", above=0)
    temperature_squared: bool = setting(False, "multiply the cross-entropy by the square of the temperature")
    vid: tuple[str, ...] = setting(
        (), "pairs STUDENT_LAYER=TEACHER_LAYER whose features are matched too (VID), several with a comma"
    )
    vid_scale: float = setting(1.0, "of the VID loss, beside the cross-entropy", above=0)

    # how to weigh
    rule: tuple[str, ...] = setting(
        ("debiased",), "an arm: a rule, rules to multiply with commas, shuffled (the control), or best; repeat for more arms"
    )
    confidence: Literal["margin", "entropy"] = setting("margin", "of teacher and student")
    estimate: Literal["paper", "conditional", "ratio"] = setting("paper", "how neighbours are averaged")
    neighbors: int | None = setting(None, "neighbours to average; ceil(sqrt(validation rows) / 2) unless given", least=1)
    threshold: float | None = setting(None, "of the rule threshold: smallest margin (or largest entropy) kept")
    refresh: int | None = setting(None, "epochs from one estimation of the weights to the next; once unless given", least=1)
    validation_in_training: Literal["no", "yes", "half"] = setting(
        "no", "train the student on the validation rows too; half: one half trains, the other weighs"
    )

    # what comes in
    kind: Literal["probabilities", "logits", "logprobs"] = setting("probabilities", "what a teacher given as a table holds")
    classes: int | None = setting(None, "number of classes; as the models have it unless given", least=2)

    # where and how it runs
    precision: Literal["float32", "bfloat16", "float16"] = setting("float32", "of the forward and backward pass")
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "where models are trained; auto: the fastest there is")
    seed: int = setting(0, "of initial parameters, batch order and augmentation", least=0, below=2**63)
    threads: int = setting(1, "of one training on a processor; more pay off for large models", least=1)
    workers: int = setting(1, "trainings side by side, each in a process of its own", least=1)
    checkpoint_seconds: float = setting(30.0, "at most this much work is lost at a kill; 0: every epoch", least=0)


TYPES: dict[str, Any] = get_type_hints(Recipe)  # of the fields, in their order
_FIELDS = {each.name: each for each in fields(Recipe)}
SAFE = frozenset({"workers", "checkpoint_seconds"})  # may differ when a run goes on: they change no bit of its result
ARM = re.compile(r"\w+([.:-]\w+)*(,\w+([.:-]\w+)*)*")  # names of rules, with commas between
PAIR = re.compile(r"[^\s=,]+=[^\s=,]+")  # dotted names of two layers
LISTS = {"augmentation": "KIND[,KIND]", "vid": "S=T[,S=T…]"}  # lists that may be empty, and stand in one flag
EXAMPLES = {"augmentation": "flip", "vid": "layers.2=layers.5", "rule": "debiased"}  # of one word in a list


def check_recipe(recipe: Recipe, beside: Sequence[str] = ()) -> None:
    """Refuse values out of their range and settings that exclude each other; warn where the result may surprise.

    `beside` names rules of other arms of the run: what they look at may be set, though no arm of this recipe looks at it.
    """
    for name in TYPES:
        checked(name, getattr(recipe, name), f"recipe: {name}")
    _check_conflicts(recipe, beside)
    if recipe.refresh is not None and recipe.validation_in_training == "yes":
        warn(
            f"refresh = {recipe.refresh} with validation_in_training = yes: the student is trained on the rows that weigh, "
            "and a memorised validation set distorts its own losses; validation_in_training = half keeps them apart"
        )
    if recipe.refresh is not None and recipe.refresh >= recipe.epochs:
        warn(f"refresh = {recipe.refresh} with epochs = {recipe.epochs}: the weights are estimated only once")


def read_recipe(paths: Sequence[Path], flags: Mapping[str, Any]) -> Recipe:
    """The recipe of TOML files and flags: later files win over earlier ones, flags over files; None is not given."""
    values: dict[str, Any] = {}
    for path in paths:
        values |= _checked_all(_read_toml(path), partial("{}: {}".format, path))
    values |= _checked_all({name: value for name, value in flags.items() if value is not None}, _flag)
    recipe = Recipe(**values)
    _check_conflicts(recipe)
    return recipe


def to_json(recipe: Recipe) -> dict[str, Any]:
    """Every field, as JSON can hold it."""
    return {name: _plain(value) for name, value in asdict(recipe).items()}


def from_json(values: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """The recipe that `to_json` wrote; a field it lacks has its default."""
    return Recipe(**_checked_all(values, partial("{}: {}".format, where)))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines such as "epochs: 200 → 100", one for each setting that differs and may not differ when a run goes on.

    A setting that a recipe lacks, because it was written before there was such a setting, has its default.
    """
    names = [*TYPES, *sorted({*old, *new} - {*TYPES})]
    defaults = {**dict.fromkeys(names, "absent"), **{name: each.default for name, each in _FIELDS.items()}}
    pairs = {
        name: tuple(_plain(values.get(name, defaults[name])) for values in (old, new)) for name in names if name not in SAFE
    }
    return [f"{name}: {_shown(before)} → {_shown(after)}" for name, (before, after) in pairs.items() if before != after]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for every field; a flag that is not given stays None, so that files and defaults decide."""
    for each in fields(Recipe):
        flag, default = _flag(each.name), _shown(_plain(each.default))
        text = each.metadata["meaning"] + (f" (default: {default})" if each.default is not None else "")
        text = text.replace("%", "%%")
        kind, choices = _kind(each.name)
        if each.name in LISTS:
            parser.add_argument(flag, type=_words, metavar=LISTS[each.name], help=text)
        elif kind is tuple:
            parser.add_argument(flag, type=_arm, action="append", metavar="RULE[,RULE…]", help=text)
        elif kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        elif choices:
            parser.add_argument(flag, choices=choices, help=text)
        else:
            parser.add_argument(flag, type=kind, metavar="N" if kind is int else "X", help=text)


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that stand on the command line, for `read_recipe`."""
    values = {name: getattr(arguments, name, None) for name in TYPES}
    return {name: value for name, value in values.items() if value is not None}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise FileError(
            "not a TOML file",
            where=str(path),
            found=str(error),
            expected="lines such as: epochs = 200",
            remedy="mend that line; strings stand in quotes, lists in brackets",
        ) from None
    except OSError as error:
        raise FileError(
            "the recipe cannot be read",
            where=str(path),
            found=error.strerror or str(error),
            expected="a TOML file",
            remedy="correct the path",
        ) from None


def _checked_all(values: Mapping[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    """The values as the fields hold them; `place` says where a setting of some name was found."""
    for name in values:
        if name not in TYPES:
            close = difflib.get_close_matches(name, TYPES, 1) or difflib.get_close_matches(name.replace("-", "_"), TYPES, 1)
            raise ConfigError(
                "unknown setting",
                where=place(name),
                found=repr(name),
                expected=f"a field of the recipe: {', '.join(TYPES)}",
                remedy=f"did you mean {close[0]}?" if close else "name one of them, or leave it out",
            )
    return {name: checked(name, value, place(name)) for name, value in values.items()}


def checked(name: str, value: Any, where: str) -> Any:
    """One value, as its field holds it: lists become tuples, whole numbers floats where a float is wanted."""
    kind, choices = _kind(name)
    if kind is tuple and isinstance(value, list):
        value = tuple(value)
    if value is None and type(None) in get_args(TYPES[name]):
        return None
    if kind is tuple and isinstance(value, tuple) and all(isinstance(word, str) for word in value):
        return _checked_words(name, value, choices, where)
    if choices and kind is str and isinstance(value, str):
        _check_choice(value, choices, where)
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(_in_range(name, value, where))
    if kind is int and type(value) is int:
        return _in_range(name, value, where)
    if kind is bool and type(value) is bool:
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "one of " + ", ".join(choices)}
    raise ConfigError(
        "a value of the wrong type",
        where=where,
        found=f"{value!r}, {_article(type(value).__name__)}",
        expected=wanted.get(kind, f'a list of strings, such as ["{EXAMPLES.get(name)}"]'),
        remedy="write it as that",
    )


def _checked_words(name: str, words: tuple[str, ...], choices: tuple[str, ...], where: str) -> tuple[str, ...]:
    """A list of names: choices, pairs of layers, or arms, which are names of rules with commas between."""
    for word in words:
        if choices:
            _check_choice(word, choices, where)
        elif name == "vid":
            _check_pair(word, where)
        elif not ARM.fullmatch(word) or len(set(word.split(","))) < len(word.split(",")):
            raise ConfigError(
                "not an arm",
                where=where,
                found=repr(word),
                expected="the name of a rule, or names of different rules with commas and no spaces",
                remedy='write "debiased" or "debiased,fidelity", for example',
            )
    twice = next((word for word in words if words.count(word) > 1), None)
    if twice is not None or not (words or name in LISTS):
        raise ConfigError(
            f"{twice} stands twice" if words else "an empty list",
            where=where,
            found=", ".join(words) or "no name",
            expected="every name once" if words else "at least one arm",
            remedy="leave one out" if words else 'write ["debiased"], for example',
        )
    return words


def _check_pair(value: str, where: str) -> None:
    if not PAIR.fullmatch(value):
        raise ConfigError(
            "not a pair of layers",
            where=where,
            found=repr(value),
            expected="the dotted name of a layer of the student, =, and that of one of the teacher, with no spaces",
            remedy=f'write "{EXAMPLES["vid"]}", for example',
        )


def _check_choice(value: str, choices: tuple[str, ...], where: str) -> None:
    if value not in choices:
        close = difflib.get_close_matches(value, choices, 1)
        raise ConfigError(
            "unknown choice",
            where=where,
            found=repr(value),
            expected=" or ".join(choices),
            remedy=f"did you mean {close[0]}?" if close else "choose one of them",
        )


def _in_range(name: str, value: float, where: str) -> float:
    limits = _FIELDS[name].metadata["limits"]
    least, above, below = limits["least"], limits["above"], limits["below"]
    inside = (least is None or value >= least) and (above is None or value > above) and (below is None or value < below)
    if not (inside and abs(value) <= sys.float_info.max):
        bounds = [(least, "at least"), (above, "above"), (below, "below")]
        said = " and ".join(f"{word} {bound}" for bound, word in bounds if bound is not None)
        raise ConfigError(
            "a number out of range",
            where=where,
            found=str(value),
            expected=f"a finite number {said}".rstrip(),
            remedy=f"{name}: {_FIELDS[name].metadata['meaning']}",
        )
    return value


def _check_conflicts(recipe: Recipe, beside: Sequence[str] = ()) -> None:
    """Settings that no arm or optimizer would look at, and arms that lack a setting."""
    own, rules = (
        {name for arm in arms for name in re.split("[,-]", arm)}  # shuffled-threshold is made of threshold
        for arms in (recipe.rule, (*recipe.rule, *beside))
    )
    neighbors = bool(rules & {"debiased", "shuffled"})
    conflicts = [
        ("threshold" in own and recipe.threshold is None, "threshold", "the rule threshold needs it"),
        ("threshold" not in rules and recipe.threshold is not None, "threshold", "needs an arm with the rule threshold"),
        (not neighbors and recipe.neighbors is not None, "neighbors", "needs an arm with the rule debiased"),
        (not neighbors and recipe.estimate != "paper", "estimate", "needs an arm with the rule debiased"),
        (
            not neighbors and "threshold" not in rules and recipe.confidence != "margin",
            "confidence",
            "needs an arm with the rule debiased or threshold",
        ),
    ]
    for holds, name, what in conflicts:
        if holds:
            raise _conflict(recipe, name, "rule", what)
    if recipe.decayed != "all" and not recipe.weight_decay:
        raise _conflict(recipe, "decayed", "weight_decay", "needs a weight_decay above 0")
    if recipe.optimizer != "sgd" and recipe.momentum != _FIELDS["momentum"].default:
        raise _conflict(recipe, "momentum", "optimizer", "needs the optimizer sgd")
    if not recipe.vid and recipe.vid_scale != _FIELDS["vid_scale"].default:
        raise _conflict(recipe, "vid_scale", "vid", "needs pairs of layers")


def _conflict(recipe: Recipe, name: str, other: str, what: str) -> ConfigError:
    values = to_json(recipe)
    return ConfigError(
        what,
        where=f"recipe: {name}",
        found=f"{name} = {_shown(values[name])} with {other} = {_shown(values[other])}",
        expected="settings that belong together",
        remedy=f"change {name} or {other}",
    )


def _kind(name: str) -> tuple[type, tuple[str, ...]]:
    """The plain type of a field, and what may be chosen where it is a choice."""
    hint = TYPES[name]
    if isinstance(hint, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is tuple:
        return tuple, get_args(get_args(hint)[0])
    return (str, get_args(hint)) if get_origin(hint) is Literal else (hint, ())


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _words(text: str) -> tuple[str, ...]:
    """Names with commas between; "none" is no name at all, to overrule a file."""
    return () if text.strip() == "none" else tuple(word.strip() for word in text.split(","))


def _arm(text: str) -> str:
    return ",".join(word.strip() for word in text.split(","))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    """A value in a message: arms are separated by spaces, since a comma multiplies rules."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
