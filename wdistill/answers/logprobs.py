"""Probabilities of the classes from the log-probabilities that a language model reports for the tokens of its answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from wdistill.answers.classes import MARKS, STOPS, Classes, plain
from wdistill.weights.confidence import Floats

NO_LOGPROB = -1000.0  # at most this: no log-probability; vLLM writes −9999
Alternatives = Mapping[str, float]  # token → log-probability, of one position of the answer


def class_probabilities(tokens: Sequence[str], alternatives: Sequence[Alternatives], start: int, classes: Classes) -> Floats:
    """The probability (K,) of every class; the rest is outside the classes: tokens that begin none, or were not reported.

    tokens: the answer; alternatives: the reported ones at each of its positions, the chosen token among them; start: the
    character of the answer at which the name of the class begins. Spellings of a token that mean the same beginning are
    added up. Where a token begins several classes, the next ones decide between them.
    """
    probabilities, path, written = np.zeros(len(classes)), 1.0, ""
    position, at = _token_at(tokens, start)
    for token, others in zip(tokens[position:], alternatives[position:], strict=True):
        masses: dict[str, float] = {}
        for text, logprob in {token: others.get(token, NO_LOGPROB), **others}.items():
            beginning = _beginning(written + text[at if text == token else 0 :])
            if logprob > NO_LOGPROB and beginning:
                masses[beginning] = masses.get(beginning, 0.0) + math.exp(min(logprob, 0.0))
        written += token[at:]
        at, chosen = 0, _beginning(written)
        if not chosen:
            continue  # a quote or a blank before the name
        for beginning, mass in masses.items():
            numbers = _begun(beginning, classes)
            if len(numbers) == 1 and beginning != chosen:
                probabilities[numbers] += path * mass
        numbers = _begun(chosen, classes)
        path *= masses.get(chosen, 0.0)
        if len(numbers) <= 1:
            probabilities[numbers] += path
            break
    else:
        number = classes.number(written)  # the whole answer is a class that begins another one
        if number >= 0:
            probabilities[number] += path
    return np.asarray(probabilities / max(1.0, float(probabilities.sum())))


def _token_at(tokens: Sequence[str], start: int) -> tuple[int, int]:
    """The token in which a character of the text lies, and where in it."""
    seen = 0
    for number, token in enumerate(tokens):
        if start < seen + len(token):
            return number, start - seen
        seen += len(token)
    return len(tokens), 0


def _beginning(text: str) -> str:
    """What has been written of a name: without case and what may stand before it; a closed name ends with a mark."""
    bare = text.lstrip(MARKS)
    name = plain(bare)
    ended = bare.rstrip(MARKS + STOPS) != bare and name and not bare[len(bare.rstrip()) :]
    return f"{name}\0" if ended else name


def _begun(beginning: str, classes: Classes) -> list[int]:
    """The classes that a beginning may become, or is, where it has ended."""
    name = beginning.rstrip("\0")
    if beginning.endswith("\0"):
        return [classes.index[name]] if name in classes.index else []
    return sorted({number for known, number in classes.index.items() if known.startswith(name)})
