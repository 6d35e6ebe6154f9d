"""Items of a map-style Dataset: numbers, or numbers by name, with or without a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wdistill.core.errors import InputError, wrong_shape
from wdistill.training.batch import LABELS, by_name, check_names, from_names

Item = NDArray[Any] | Mapping[str, NDArray[Any]]


def read_item(dataset: Any, row: int) -> tuple[Item, int | None]:
    """The inputs of an item, and its class: the second of a pair, or `label` or `labels` among the names; None: no class."""
    where = f"{type(dataset).__name__}, item {row}"
    expected = "numbers, a mapping of names to numbers, or a pair of either and a class"
    try:
        item = dataset[row]
    except Exception as error:
        what, found, remedy = "an item cannot be read", f"{type(error).__name__}: {error}", "repair or remove it"
        raise InputError(what, where=where, found=found, expected=expected, remedy=remedy) from error
    given, label = (*item, None)[:2] if isinstance(item, tuple | list) and len(item) in (1, 2) else (item, None)
    names = [name for name in LABELS if name in given] if isinstance(given, Mapping) else []
    try:
        if len(names) > (label is None):
            raise TypeError(f"more than one class: {', '.join(names)}{'' if label is None else ' and that of the pair'}")
        label = given[names[0]] if names else label
        inputs = {name: _numbers(name, values) for name, values in by_name(given).items() if name not in names}
        number = None if label is None else int(label)
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = 'wrap the Dataset in one with such items, or select columns: set_format("torch", columns=[…])'
        raise wrong_shape("an item of another kind", where, str(error), expected, remedy) from error
    if isinstance(given, Mapping):
        check_names(inputs, where)
    return from_names(inputs), number


def check_like_first(dataset: Any, row: int, item: Item, first: Item) -> None:
    """Refuse an item whose names, shapes or types are not those of item 0."""
    if _kind(item) != _kind(first):
        where, expected = f"{type(dataset).__name__}, item {row}", f"{_described(first)}, as item 0"
        remedy = "resize or pad all items to one shape"
        raise wrong_shape("an item of another kind", where, _described(item), expected, remedy)


def equal(item: Item, other: Item) -> bool:
    """Whether two items have the same kind and numbers."""
    numbers = by_name(other)
    return _kind(item) == _kind(other) and all(np.array_equal(v, numbers[name]) for name, v in by_name(item).items())


def _numbers(name: Any, given: Any) -> NDArray[Any]:
    values: NDArray[Any] = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{name}: a {type(given).__name__}" if name else f"a {type(given).__name__}")
    return values


def _kind(item: Item) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (values.shape, values.dtype) for name, values in by_name(item).items()}


def _described(item: Item) -> str:
    return ", ".join(f"{name} {shape} of {dtype}".lstrip() for name, (shape, dtype) in sorted(_kind(item).items()))
