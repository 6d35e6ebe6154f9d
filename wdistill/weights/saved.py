"""Fitted rules as files: an npz of plain arrays and one line of JSON, never a pickle.

A fitted rule is a frozen record; its arrays become members of the npz, everything else becomes JSON. So a new rule of RULES
can be saved without another line here.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from wdistill.core import checks, store
from wdistill.core.errors import bad_value, unreadable, wrong_type
from wdistill.core.paths import as_path
from wdistill.weights.evidence import Scores
from wdistill.weights.rule import Fitted, Product
from wdistill.weights.rules import CONFIDENCES, RULES

FORMAT = 3
Arrays = Mapping[str, np.ndarray]


def save(fitted: Fitted, path: str | Path) -> None:
    """Write a fitted rule to a file."""
    store.write_bytes(as_path(path, "path"), to_bytes(fitted))


def load(path: str | Path) -> Fitted:
    """Read a fitted rule back."""
    try:
        content = as_path(path, "path").read_bytes()
    except OSError as error:
        raise unreadable(
            "cannot read it", path, error, "a file that wdistill.save wrote", "correct the path, or fit the rule and save it"
        ) from None
    return from_bytes(content, str(path))


def to_bytes(fitted: Fitted) -> bytes:
    """The content of the file; equal rules give equal bytes at any time."""
    if not hasattr(fitted, "weigh_rows"):
        raise wrong_type("not a fitted rule", "save", fitted, "what a rule's fit() returned", "fit the rule first")
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({"wdistill": FORMAT, "rule": _encode(fitted, "rule", arrays)})
    buffer = io.BytesIO()
    np.savez(buffer, **{"rule.json": np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def from_bytes(content: bytes, where: str) -> Fitted:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            text = json.loads(arrays["rule.json"].tobytes())
            if text["wdistill"] != FORMAT:
                found, remedy = f"format {text['wdistill']}", "fit the rule again with this version"
                raise unreadable("written by another version of wdistill", where, found, f"format {FORMAT}", remedy)
            return _fitted(text["rule"], "rule", arrays)
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile) as error:
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
        return Product(tuple(_fitted(part, f"{name}.{i}", arrays) for i, part in enumerate(text["product"])))
    record: Fitted = _decode(text, _records()[text["name"]], name, arrays)
    return record


def _decode(value: Any, hint: Any, name: str, arrays: Arrays) -> Any:
    """The inverse of `_encode`, by the annotated type of the field."""
    if name in arrays:
        return arrays[name]
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        names = [field.name for field in fields(hint)]
        return hint(**{key: _decode(value[key], hints[key], f"{name}.{key}", arrays) for key in names})
    if isinstance(value, dict):
        return Scores(arrays[f"{name}.0"], arrays[f"{name}.1"])
    return value if hint in (str, int, float) else CONFIDENCES[value]


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
