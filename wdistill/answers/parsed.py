"""Answers as distributions over the classes, each with the source of its confidence, and those that are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.answers.classes import Classes
from wdistill.answers.logprobs import class_probabilities
from wdistill.answers.said import Said, read_text
from wdistill.weights.confidence import Floats

NONE, STATED, MEASURED = 0, 1, 2
SOURCES = ("none", "stated", "measured")  # of a confidence: none, a number in the answer, log-probabilities or votes
EDGE = 1e-3  # by which the class that is named stays ahead of the others, whatever confidence is stated


@dataclass(frozen=True, eq=False)
class Parsed:
    """Answers to some rows. Refused rows have no distribution: zeros."""

    ids: pa.Array  # strings
    probabilities: Floats  # (n, K)
    source: NDArray[np.uint8]  # (n,) number of SOURCES
    outside: Floats  # (n,) probability that went to no class
    refused: Mapping[int, str] = field(default_factory=dict)  # by row, why
    unknown: Mapping[str, int] = field(default_factory=dict)  # texts that name no class, and how often
    bad_confidence: Sequence[int] = ()  # rows whose stated confidence is no number from 0 to 1

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which rows have a distribution (n,)."""
        mask = np.ones(len(self.ids), bool)
        mask[list(self.refused)] = False
        return mask


REFUSED, NO_CLASS, NO_ANSWER = "refused", "names no class", "no answer"


def with_confidence(numbers: NDArray[np.integer], confidence: Floats, classes: int) -> Floats:
    """Distributions (n, K): the named class has its stated confidence, or all where that is NaN; others share the rest."""
    named = np.clip(np.where(np.isnan(confidence), 1.0, confidence), (1 + EDGE) / classes, 1.0)
    rows = np.repeat((1 - named)[:, None] / (classes - 1), classes, axis=1)
    rows[np.arange(len(rows)), numbers] = named
    return rows


def from_said(ids: Sequence[str], said: Sequence[Said | str], classes: Classes) -> Parsed:
    """Rows from what each answer says; a text in place of an answer says why there is none."""
    n, k = len(ids), len(classes)
    probabilities, source, outside = np.zeros((n, k)), np.zeros(n, np.uint8), np.zeros(n)
    refused: dict[int, str] = {}
    unknown, bad = Counter[str](), []
    for row, answer in enumerate(said):
        if isinstance(answer, str):
            refused[row] = answer
        elif answer.number < 0:
            refused[row] = NO_CLASS if answer.text else NO_ANSWER
            unknown[answer.text] += bool(answer.text)
        elif answer.distribution is not None:
            masses = np.zeros(k)
            masses[list(answer.distribution)] = list(answer.distribution.values())
            total = masses.sum()
            if not (np.isfinite(masses).all() and (masses >= 0).all() and 0 < total <= 1 + 1e-2):
                bad.append(row)
                continue
            probabilities[row], source[row], outside[row] = masses / total, STATED, max(0.0, 1 - total)
        else:
            stated = answer.confidence
            if stated is not None and not 0 <= stated <= 1:
                bad.append(row)
                continue
            given = np.array([np.nan if stated is None else stated])
            probabilities[row] = with_confidence(np.array([answer.number]), given, k)[0]
            source[row] = NONE if stated is None else STATED
    return Parsed(pa.array(ids, pa.string()), probabilities, source, outside, refused, unknown, bad)


def vote(answers: Iterable[Said], classes: int) -> Floats:
    """The share (K,) of several answers that each class has; those that name none have none."""
    numbers = [answer.number for answer in answers]
    return np.asarray(np.bincount([n for n in numbers if n >= 0], minlength=classes) / max(1, len(numbers)))


def measured(
    text: str | None, tokens: Sequence[str], alternatives: Sequence[Mapping[str, float]], classes: Classes
) -> Floats:
    """The probabilities (K,) that a model reported for the tokens of an answer."""
    return class_probabilities(tokens, alternatives, read_text(text, classes).start, classes)
