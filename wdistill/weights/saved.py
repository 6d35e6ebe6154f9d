"""Fitted rules as files: an npz of plain arrays and one line of JSON, never a pickle.

A fitted rule is a frozen record; its arrays become members of the npz, everything else becomes JSON. So a new rule of RULES
can be saved without another line here.
"""

from __future__ import annotations

import io
import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import IO, Any, get_type_hints

import numpy as np

from wdistill.core import archive, checks, store
from wdistill.core.archive import Arrays
from wdistill.core.errors import bad_value, unreadable, wrong_type
from wdistill.core.paths import as_path
from wdistill.weights.confidence import Floats
from wdistill.weights.evidence import Scores
from wdistill.weights.rule import Fitted, Product
from wdistill.weights.rules import CONFIDENCES, RULES

FORMAT = 3
TEXT = "rule.json"  # the member that is no array
LARGEST = 1e150  # number in an array


def save(fitted: Fitted, path: str | Path) -> None:
    """Write a fitted rule to a file."""
    store.write_bytes(as_path(path, "path"), to_bytes(fitted))


def load(path: str | Path) -> Fitted:
    """Read a fitted rule back."""
    try:
        stream = as_path(path, "path").open("rb")
    except OSError as error:
        raise unreadable(
            "cannot read it", path, error, "a file that wdistill.save wrote", "correct the path, or fit the rule and save it"
        ) from None
    with stream:
        return _read(stream, str(path))


def to_bytes(fitted: Fitted) -> bytes:
    """The content of the file; equal rules give equal bytes at any time."""
    if not hasattr(fitted, "weigh_rows"):
        raise wrong_type("not a fitted rule", "save", fitted, "what a rule's fit() returned", "fit the rule first")
    arrays: dict[str, np.ndarray] = {}
    return archive.to_bytes(TEXT, {"wdistill": FORMAT, "rule": _encode(fitted, "rule", arrays)}, arrays)


def from_bytes(content: bytes, where: str) -> Fitted:
    return _read(io.BytesIO(content), where)


def _read(stream: IO[bytes], where: str) -> Fitted:
    try:
        text, arrays = archive.read(stream, TEXT)
        if text["wdistill"] != FORMAT:
            found, remedy = f"format {text['wdistill']}", "fit the rule again with this version"
            raise unreadable("written by another version of wdistill", where, found, f"format {FORMAT}", remedy)
        return _fitted(text["rule"], "rule", arrays)
    except archive.DAMAGE as error:
        expected = "a file that wdistill.save wrote"
        raise unreadable("not a fitted rule", where, error, expected, "fit the rule again and save it") from None


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON; arrays go into `arrays` under the dotted name of their field."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    if isinstance(value, Product):
        return {"product": [_encode(part, f"{name}.{i}", arrays) for i, part in enumerate(value.parts)]}
    if isinstance(value, Scores):
        return {"scores": [_encode(column, f"{name}.{i}", arrays) for i, column in enumerate(_of_validation(value))]}
    if hasattr(value, "weigh_rows") and type(value) not in _records().values():
        return _unsaved(value)
    if is_dataclass(value) and not isinstance(value, type):
        record = {field.name: _encode(getattr(value, field.name), f"{name}.{field.name}", arrays) for field in fields(value)}
        return {"name": getattr(value, "name", ""), **record}
    if callable(value):
        return _confidence_name(value)
    return value if isinstance(value, str | int | float) else _unsaved(value)


def _fitted(text: dict[str, Any], name: str, arrays: Arrays) -> Fitted:
    if "product" in text:
        if not text["product"]:
            raise ValueError("a product of no rules")
        return Product(tuple(_fitted(part, f"{name}.{i}", arrays) for i, part in enumerate(text["product"])))
    record: Fitted = _decode(text, _records()[text["name"]], name, arrays)
    return record


def _decode(value: Any, hint: Any, name: str, arrays: Arrays) -> Any:
    """The inverse of `_encode`, by the annotated type of the field."""
    if name in arrays:
        return _checked(arrays[name], hint, name)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        names = [field.name for field in fields(hint)]
        return hint(**{key: _decode(value[key], hints[key], f"{name}.{key}", arrays) for key in names})
    if isinstance(value, dict):
        return Scores(*(_checked(arrays[f"{name}.{i}"], Floats, f"{name}.{i}") for i in (0, 1)))
    if hint in (str, int, float):
        if type(value) not in ((int, float) if hint is float else (hint,)) or (hint is float and not math.isfinite(value)):
            raise TypeError(f"{value!r} in place of {hint.__name__} in {name}")
        return value
    return CONFIDENCES[value]


def _checked(values: np.ndarray, hint: Any, name: str) -> np.ndarray:
    """An array of the annotated type, without NaN and numbers that no fitted rule has."""
    if values.dtype.kind not in ("fiu" if hint == Floats else "b") or not (np.abs(values) <= LARGEST).all():
        raise ValueError(f"an array of shape {values.shape} and dtype {values.dtype} in {name}")
    return values


def _records() -> dict[str, type[Fitted]]:
    return {name: rule.record for name, rule in RULES.items()}


def _of_validation(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    return checks.array(scores.validation_teacher, "scores"), checks.array(scores.validation_student, "scores")


def _confidence_name(confidence: Any) -> str:
    for name, function in CONFIDENCES.items():
        if confidence is function:
            return name
    raise bad_value(
        "a rule with a confidence function of your own cannot be saved",
        "confidence",
        confidence,
        "margin, entropy or Scores",
        "fit it on Scores: compute the confidences yourself and pass them",
    )


def _unsaved(value: Any) -> Any:
    kind, remedy = type(value).__name__, "fit a rule of your own again from its evidence"
    raise bad_value("this rule cannot be saved", "save", kind, "a rule of wdistill's own", remedy)
