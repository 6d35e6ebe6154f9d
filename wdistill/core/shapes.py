"""Whether JSON has the shape that a type says: a record whose digest is right may lack a key, or hold something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from wdistill.core.errors import article

LARGEST_INT, LARGEST_FLOAT = 1 << 128, 1e200  # numbers beyond these cannot be computed with
PLAIN = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


def fault_of(value: Any, kind: Any, where: str = "") -> str:
    """What is wrong with a value of JSON, in words; "" where it has the shape of the type.

    A dataclass stands for an object with its fields and no others, a TypedDict for one with its keys and any others.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return ""
    if kind in PLAIN:
        return "" if _is_plain(value, kind) else _wrong(value, PLAIN[kind], where)
    if origin in (Union, UnionType):
        faults = [fault_of(value, each, where) for each in arguments]
        return "" if "" in faults else faults[0]
    if origin is Literal:
        return (
            "" if value in arguments and isinstance(value, str) else _wrong(value, " or ".join(map(repr, arguments)), where)
        )
    if origin in (dict, Mapping):
        return _first(value, dict, "an object", where, lambda: ((each, arguments[1], key) for key, each in value.items()))
    if origin in (list, Sequence):
        return _first(value, list, "a list", where, lambda: ((each, arguments[0], str(i)) for i, each in enumerate(value)))
    if origin is tuple:
        return _of_tuple(value, arguments, where)
    return _of_record(value, kind, where)


def _of_tuple(value: Any, kinds: tuple[Any, ...], where: str) -> str:
    if kinds[-1] is ...:
        return fault_of(value, list[kinds[0]], where)  # type: ignore[valid-type]
    if not isinstance(value, list) or len(value) != len(kinds):
        return _wrong(value, f"a list of {len(kinds)}", where)
    parts = zip(value, kinds, strict=True)
    return _first(value, list, "", where, lambda: ((each, kind, str(i)) for i, (each, kind) in enumerate(parts)))


def _of_record(value: Any, kind: Any, where: str) -> str:
    """Of an object with fields that are known."""
    hints, needed, closed = _fields(kind)
    if not isinstance(value, dict):
        return _wrong(value, "an object", where)
    if missing := sorted(needed - {*value}):
        return f"no {_at(where, missing[0])}"
    if closed and (others := sorted({*value} - {*hints})):
        return f"an unknown {_at(where, others[0])}"
    return _first(value, dict, "", where, lambda: ((value[name], hints[name], name) for name in hints if name in value))


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], frozenset[str], bool]:
    """The types of the fields of a record, those that must be there, and whether there may be no others."""
    hints = get_type_hints(kind)
    if is_typeddict(kind):
        marked = get_type_hints(kind, include_extras=True)
        return hints, frozenset(name for name in hints if get_origin(marked[name]) is not NotRequired), False
    if not is_dataclass(kind):
        raise TypeError(f"JSON has no {kind}")
    needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    return {each.name: hints[each.name] for each in fields(kind)}, frozenset(needed), True


def _first(value: Any, kind: type, words: str, where: str, parts: Any) -> str:
    """The fault of the first part that has one."""
    if not isinstance(value, kind):
        return _wrong(value, words, where)
    return next((fault for each, hint, name in parts() if (fault := fault_of(each, hint, _at(where, name)))), "")


def _is_plain(value: Any, kind: Any) -> bool:
    if kind is float:
        return type(value) in (int, float) and abs(value) < LARGEST_FLOAT  # neither is NaN
    return type(value) is kind and (kind is not int or abs(value) < LARGEST_INT)


def _wrong(value: Any, expected: str, where: str) -> str:
    found = "null" if value is None else article(type(value).__name__)
    return f"{where or 'the record'}: {found} in place of {expected}"


def _at(where: str, name: str) -> str:
    return f"{where}.{name[:50]}" if where else name[:50]
