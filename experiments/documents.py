"""The results that stand in documents: made of the lines, between two marks, never by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from experiments.lines import Line
from experiments.reasons import reasons
from experiments.tables import summary
from wdistill import store

MADE: dict[str, Callable[[Mapping[str, Sequence[Line]]], str]] = {"results": summary, "reasons": reasons}
BEGIN, END = "<!-- {} made by `wdistill reproduce` -->", "<!-- end -->"


def fill(documents: Sequence[Path], lines: Mapping[str, Sequence[Line]]) -> None:
    """Put what is made of all lines into every document that has a place for it."""
    for document in documents:
        text = document.read_text() if document.exists() else ""
        if filled(text, lines) != text:
            store.write_bytes(document, filled(text, lines).encode())


def filled(text: str, lines: Mapping[str, Sequence[Line]]) -> str:
    """A document with everything that is made of these lines in its place."""
    known = {name: found for name, found in lines.items() if found}
    for name, make in MADE.items():
        if BEGIN.format(name) in text:
            text = _put(text, BEGIN.format(name), make(known))
    return text


def _put(text: str, begin: str, made: str) -> str:
    return re.sub(re.escape(begin) + ".*?" + re.escape(END), lambda _: f"{begin}\n{made}{END}", text, flags=re.S)
