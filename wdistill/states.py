"""Fitted rules as files: an npz of plain arrays and one line of JSON, never a pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wdistill import store
from wdistill.confidence import entropy, margin
from wdistill.errors import ConfigError, FileError
from wdistill.evidence import Scores
from wdistill.rules import Debiased, EntropyMean, Fidelity, Fitted, Oracle, Product, Threshold, Unweighted

_ARRAYS = ("points", "wrong", "truth_loss", "target_loss", "margins", "certainty")
_FORMAT = 1


def save(fitted: Fitted, path: str | Path) -> None:
    """Write a fitted rule to a file."""
    store.write_bytes(Path(path), to_bytes(fitted))


def load(path: str | Path) -> Fitted:
    """Read a fitted rule back."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(
            "cannot read it",
            where=str(path),
            found=error.strerror or str(error),
            expected="a file that wdistill.save wrote",
            remedy="correct the path, or fit the rule and save it",
        ) from None
    return from_bytes(content, str(path))


def to_bytes(fitted: Fitted) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({"wdistill": _FORMAT, "rule": _describe(fitted, "", arrays)})
    buffer = io.BytesIO()
    np.savez(buffer, **{"rule.json": np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def from_bytes(content: bytes, where: str) -> Fitted:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            text = json.loads(file["rule.json"].tobytes())
            if text["wdistill"] != _FORMAT:
                raise FileError(
                    "written by another version of wdistill",
                    where=where,
                    found=f"format {text['wdistill']}",
                    expected=f"format {_FORMAT}",
                    remedy="fit the rule again with this version",
                )
            return _rebuild(text["rule"], "", file)
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile) as error:
        raise FileError(
            "not a fitted rule",
            where=where,
            found=f"{type(error).__name__}: {error}",
            expected="a file that wdistill.save wrote",
            remedy="fit the rule again and save it anew",
        ) from None


def _describe(fitted: Fitted, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    match fitted:
        case Unweighted() | Oracle():
            return {"name": fitted.name}
        case Fidelity(mean):
            return {"name": fitted.name, "quanta": mean.quanta, "count": mean.count}
        case Threshold(at, confidence):
            return {"name": fitted.name, "at": at, "confidence": _confidence_name(confidence)}
        case Debiased():
            arrays |= {prefix + name: getattr(fitted, name) for name in _ARRAYS}
            options = {"targets": fitted.targets, "estimate": fitted.estimate, "k": fitted.k, "classes": fitted.classes}
            return {"name": fitted.name, "confidence": _confidence_name(fitted.confidence), **options}
        case Product(parts):
            return {
                "name": "product",
                "parts": [_describe(part, f"{prefix}{i}.", arrays) for i, part in enumerate(parts)],
            }
    raise ConfigError(
        "this rule cannot be saved",
        where="save",
        found=type(fitted).__name__,
        expected="a rule of wdistill's own",
        remedy="fit a rule of your own again from its evidence",
    )


def _rebuild(text: dict[str, Any], prefix: str, arrays: Mapping[str, np.ndarray]) -> Fitted:
    match text["name"]:
        case "unweighted":
            return Unweighted()
        case "oracle":
            return Oracle()
        case "fidelity":
            return Fidelity(EntropyMean(int(text["quanta"]), int(text["count"])))
        case "threshold":
            return Threshold(float(text["at"]), _confidence(text["confidence"]))
        case "debiased":
            saved = {name: arrays[prefix + name] for name in _ARRAYS}
            measure = Scores(*saved["points"].T) if text["confidence"] == "scores" else _confidence(text["confidence"])
            return Debiased(
                confidence=measure,
                targets=text["targets"],
                estimate=text["estimate"],
                k=int(text["k"]),
                classes=int(text["classes"]),
                **saved,
            )
        case "product":
            return Product(tuple(_rebuild(part, f"{prefix}{i}.", arrays) for i, part in enumerate(text["parts"])))
    raise ValueError(f"unknown rule {text['name']!r}")


def _confidence(name: str) -> Any:
    return {"margin": margin, "entropy": entropy}[name]


def _confidence_name(measure: Any) -> str:
    if isinstance(measure, Scores):
        return "scores"
    if measure is margin or measure is entropy:
        return str(measure.__name__)
    raise ConfigError(
        "a rule with a confidence function of your own cannot be saved",
        where="confidence",
        found=repr(measure),
        expected="margin, entropy or Scores",
        remedy="fit it on Scores: compute the confidences yourself and pass them",
    )
