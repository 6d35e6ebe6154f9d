"""What one answer says: a class, how sure it claims to be, and what cannot be used."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wdistill.answers.classes import Classes

LABELS = (
    "label",
    "answer",
    "class",
    "category",
    "prediction",
    "predicted",
    "pred",
    "output",
    "response",
    "sentiment",
    "teacher",
)
CONFIDENCES = ("confidence", "conf", "certainty", "score", "probability", "prob")
DISTRIBUTIONS = ("probabilities", "probs", "scores", "distribution", "pred_probs", "class_probabilities")
FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)
LONGEST = 1 << 16  # characters of an answer that is looked into
DEEPEST = 50  # brackets within each other


@dataclass(frozen=True)
class Said:
    """One answer: the number of the class, or −1; the confidence that it states; its words."""

    number: int
    confidence: float | None = None
    distribution: Mapping[int, float] | None = None  # by class, where the answer has one
    text: str = ""
    start: int = 0  # character at which the name of the class begins


def read_text(text: str | None, classes: Classes) -> Said:
    """What a text says: the name of a class, or JSON with it, in a code fence or by itself."""
    if text is None or len(text) > LONGEST:
        return Said(-1, text="")
    number = classes.number(text)
    if number >= 0:
        return Said(number, text=text.strip(), start=len(text) - len(text.lstrip()))
    fenced = FENCE.search(text)
    body = fenced[1] if fenced else text
    at = body.find("{")
    content = parse_object(body[at:]) if at >= 0 else None
    if content is None:
        return Said(-1, text=text.strip())
    said = read_object(content, classes)
    begin = (fenced.start(1) if fenced else 0) + at
    return Said(said.number, said.confidence, said.distribution, said.text, _value_start(text, begin, said.text))


def read_object(content: Mapping[str, Any], classes: Classes) -> Said:
    """What an object says: {"label": …, "confidence": …}, {"probabilities": {class: …}}, or {class: probability} itself."""
    lowered = {str(key).casefold(): value for key, value in content.items()}
    nested = next((lowered[key] for key in DISTRIBUTIONS if isinstance(lowered.get(key), Mapping)), None)
    distribution = class_masses(nested if nested is not None else content, classes)
    label = next((lowered[key] for key in LABELS if isinstance(lowered.get(key), str | int | float)), None)
    stated = next((lowered[key] for key in CONFIDENCES if key in lowered), None)
    if label is not None:
        return Said(classes.number(label), confidence_of(stated), distribution, str(label))
    if distribution:
        number = max(distribution, key=distribution.__getitem__)
        return Said(number, None, distribution, classes.names[number])
    return Said(-1, text=str(dict(content))[:200])


def class_masses(content: Mapping[str, Any], classes: Classes) -> dict[int, float] | None:
    """The numbers of an object whose keys are classes, by class; None where a key that is no class has one."""
    masses: dict[int, float] = {}
    for key, value in content.items():
        number = classes.number(key)
        if value is None:
            continue
        if number < 0 or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        masses[number] = masses.get(number, 0.0) + float(value)
    return masses or None


def confidence_of(value: object) -> float | None:
    """A stated confidence as a number: 0.9, "0.9" or "90 %"; NaN where it is something else, None where there is none."""
    if value is None or value == "":
        return None
    text = str(value).strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return float("nan")


def parse_object(text: str) -> dict[str, Any] | None:
    """The object that a text begins with, in JSON or as Python writes it; None where there is none."""
    if len(text) > LONGEST or max(text.count("{"), text.count("[")) > DEEPEST:
        return None
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        end = text.rfind("}") + 1
        try:
            content = ast.literal_eval(text[:end])
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return content if isinstance(content, dict) else None


def _value_start(text: str, begin: int, value: str) -> int:
    """Where in an answer the value of its label stands: behind a colon."""
    for match in re.finditer(r":\s*\"?", text[begin:]):
        at = begin + match.end()
        if value and text.startswith(value, at):
            return at
    return begin
