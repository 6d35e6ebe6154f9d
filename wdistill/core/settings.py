"""Settings: frozen dataclasses whose fields carry help and limits. Flags, TOML keys, JSON and checks derive from them."""

from __future__ import annotations

import argparse
import difflib
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from wdistill.core.errors import article, bad_value, not_one_of, unreadable

T = TypeVar("T")

MAX_BYTES = 1 << 20  # of a file of settings


@dataclass(frozen=True)
class Settings:
    """Base class of settings: every field is declared with `setting`."""


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Word:
    """The constraint on every string of a list, where it is not one of a few choices."""

    valid: Callable[[str], object]
    what: str  # the error, such as "not a pair of layers"
    expected: str
    example: str


@dataclass(frozen=True)
class Setting:
    """One field: its type and default, and what was passed to `setting`."""

    name: str
    type: type  # int, float, bool, str or tuple (of strings)
    choices: tuple[str, ...]
    optional: bool  # None is allowed
    default: Any
    help: str
    least: float | None = None  # of a list: the number of its strings
    above: float | None = None
    below: float | None = None
    word: Word | None = None
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None  # of the flag's text, where the type does not decide
    repeat: bool = False  # a flag for each string of a list, not one flag with commas
    negatable: bool = False  # a flag --no-NAME too, to overrule a file
    compared: bool = True  # False: it never changes a result

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def setting(default: T, help: str, **more: Any) -> T:  # noqa: A002 (argparse's word)
    """A field with its default and its help; `more` are fields of `Setting`, such as least=1."""
    return field(default=default, metadata={"help": help, **more})


def settings_of(cls: type[Settings]) -> dict[str, Setting]:
    """The fields of a class of settings by name: its own, then those of its base class."""
    types, declared = get_type_hints(cls), sorted(fields(cls), key=lambda item: item.name not in cls.__annotations__)
    return {item.name: Setting(item.name, *_type(types[item.name]), item.default, **item.metadata) for item in declared}


def _type(hint: Any) -> tuple[type, tuple[str, ...], bool]:
    """The plain type of a field, its choices where it has some, and whether it may be None."""
    optional = isinstance(hint, UnionType)
    if optional:
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is tuple:
        return tuple, get_args(get_args(hint)[0]), optional
    return (str, get_args(hint), optional) if get_origin(hint) is Literal else (hint, (), optional)


# checks ---------------------------------------------------------------------------------------------------------------


def check_settings(settings: Settings, where: str) -> None:
    """Raise on values of a wrong type, unknown choices and numbers out of range."""
    for item in settings_of(type(settings)).values():
        check_value(item, getattr(settings, item.name), f"{where}: {item.name}")


def check_value(setting: Setting, value: Any, where: str) -> Any:
    """A value as its field holds it: lists become tuples, whole numbers floats where a float is expected."""
    kind = setting.type
    if value is None and setting.optional:
        return None
    if kind is tuple and isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return _check_words(setting, tuple(value), where)
    if kind is str and isinstance(value, str):
        return _check_choice(setting, value, where)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(_check_range(setting, value, where))
    if kind is int and type(value) is int:
        return _check_range(setting, value, where)
    if kind is bool and type(value) is bool:
        return value
    example = setting.word.example if setting.word else next(iter(setting.choices), "name")
    strings = f'a list of strings, such as ["{example}"]'
    wanted = {int: "a whole number", float: "a number", bool: "true or false", tuple: strings}
    expected = wanted.get(kind, "one of " + ", ".join(setting.choices) if setting.choices else "a string")
    found = f"{value!r}, {article(type(value).__name__)}"
    raise bad_value("a value of the wrong type", where, found, expected, "write it as that")


def _check_words(setting: Setting, words: tuple[str, ...], where: str) -> tuple[str, ...]:
    for word in words:
        if setting.word is not None and not setting.word.valid(word):
            example = f'write "{setting.word.example}", for example'
            raise bad_value(setting.word.what, where, word, setting.word.expected, example)
        _check_choice(setting, word, where)
    twice = next((word for word in words if words.count(word) > 1), None)
    if twice is not None:
        raise bad_value("a name is given twice", where, repr(twice), "every name once", "leave one out")
    if len(words) < (setting.least or 0):
        raise bad_value(
            "an empty list", where, "no name", "at least one name", f"write {list(setting.default)}, for example"
        )
    return words


def _check_choice(setting: Setting, value: str, where: str) -> str:
    if setting.choices and value not in setting.choices:
        raise not_one_of("unknown choice", where, value, setting.choices, "choose one of them")
    return value


def _check_range(setting: Setting, value: float, where: str) -> float:
    least, above, below = setting.least, setting.above, setting.below
    inside = (least is None or value >= least) and (above is None or value > above) and (below is None or value < below)
    if not (inside and abs(value) <= sys.float_info.max):
        bounds = [(least, "at least"), (above, "above"), (below, "below")]
        limits = " and ".join(f"{word} {bound}" for bound, word in bounds if bound is not None)
        expected = f"a finite number {limits}".rstrip()
        raise bad_value("a number out of range", where, str(value), expected, f"{setting.name}: {setting.help}")
    return value


# files and JSON -------------------------------------------------------------------------------------------------------


def read_settings(
    cls: type[S], flags: Mapping[str, Any], paths: Sequence[Path] = (), defaults: Mapping[str, Any] | None = None
) -> S:
    """Settings of TOML files and flags: later files win over earlier ones, flags over files; None is not given.

    `defaults` take the place of those of the class.
    """
    values = dict(defaults or {})
    for path in paths:
        values |= _check_values(cls, _read_toml(path), partial("{}: {}".format, path))
    settings = settings_of(cls)
    values |= _check_values(
        cls,
        {name: value for name, value in flags.items() if value is not None},
        lambda name: settings[name].flag if name in settings else name,
    )
    return cls(**values)


def to_json(settings: Settings) -> dict[str, Any]:
    """Every field, as JSON can hold it."""
    return {name: _plain(getattr(settings, name)) for name in settings_of(type(settings))}


def from_json(cls: type[S], values: Mapping[str, Any], where: str) -> S:
    """The settings that `to_json` wrote; a field that they lack has its default."""
    return cls(**_check_values(cls, values, partial("{}: {}".format, where)))


def changes(cls: type[Settings], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines such as "epochs: 200 → 100", one for each setting that differs between two JSON forms and is compared.

    A setting that one lacks, because it was written before the setting existed, has its default.
    """
    settings = settings_of(cls)
    names = [*settings, *sorted({*old, *new} - {*settings})]
    defaults = {**dict.fromkeys(names, "absent"), **{name: item.default for name, item in settings.items()}}
    compared = [name for name in names if name not in settings or settings[name].compared]
    pairs = {name: tuple(_plain(values.get(name, defaults[name])) for values in (old, new)) for name in compared}
    return [f"{name}: {shown(before)} → {shown(after)}" for name, (before, after) in pairs.items() if before != after]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        return tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise unreadable("the settings cannot be read", path, error, "a TOML file", "correct the path") from None
    except (ValueError, RecursionError) as error:
        remedy = "mend that line; strings need quotes, lists need brackets"
        raise unreadable("not a TOML file", path, str(error), "lines such as: epochs = 200", remedy) from None


def _check_values(cls: type[Settings], values: Mapping[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    """The values as the fields hold them; `place` maps a name to the location of its value."""
    settings = settings_of(cls)
    for name in values:
        if name not in settings:
            close = difflib.get_close_matches(name, settings, 1) or difflib.get_close_matches(
                name.replace("-", "_"), settings, 1
            )
            remedy = f"did you mean {close[0]}?" if close else "name one of them, or leave it out"
            raise bad_value("unknown setting", place(name), repr(name), f"one of {', '.join(settings)}", remedy)
    return {name: check_value(settings[name], value, place(name)) for name, value in values.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def shown(value: Any) -> str:
    """A value in a message; the strings of a list are separated by spaces, since they may hold commas."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


# flags ----------------------------------------------------------------------------------------------------------------


def add_flags(parser: argparse.ArgumentParser, cls: type[Settings], names: Sequence[str] = ()) -> None:
    """One flag for every field, or for those named; a flag that is absent is None, and the default applies."""
    for item in settings_of(cls).values():
        if not names or item.name in names:
            default = "" if item.default is None else f" (default: {shown(item.default)})"
            parser.add_argument(item.flag, help=(item.help + default).replace("%", "%%"), **_flag_reader(item))


def _flag_reader(setting: Setting) -> dict[str, Any]:
    """How argparse reads the flag of a setting."""
    if setting.type is bool:
        return {"action": argparse.BooleanOptionalAction if setting.negatable else "store_true", "default": None}
    if setting.parse is not None:
        return {"type": setting.parse, "metavar": setting.metavar}
    if setting.type is tuple and setting.repeat:
        return {"type": _trimmed, "action": "append", "metavar": setting.metavar}
    if setting.type is tuple:
        return {"type": words, "metavar": setting.metavar}
    if setting.choices:
        return {"choices": setting.choices}
    return {"type": setting.type, "metavar": setting.metavar or {int: "N", float: "X"}.get(setting.type, "NAME")}


def flags_given(arguments: argparse.Namespace, cls: type[Settings]) -> dict[str, Any]:
    """The settings given on the command line, for `read_settings`."""
    values = {name: getattr(arguments, name, None) for name in settings_of(cls)}
    return {name: value for name, value in values.items() if value is not None}


def words(text: str) -> tuple[str, ...]:
    """Strings with commas between; "none" is an empty list, to overrule a file."""
    return () if text.strip() == "none" else tuple(word.strip() for word in text.split(","))


def _trimmed(text: str) -> str:
    return ",".join(word.strip() for word in text.split(","))
