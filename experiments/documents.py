"""The results that stand in documents: made of the lines, between two marks, never by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.claims import claims
from experiments.lines import Line
from experiments.reasons import reasons
from experiments.tables import summary
from wdistill import store

END = "<!-- end -->"


def mark(name: str, command: str) -> str:
    """What a place begins with: whose it is, and the command that fills it."""
    return f"<!-- {name} made by `{command}` -->"


def reproduced(lines: Mapping[str, Sequence[Line]]) -> dict[str, str]:
    """All that is made of the lines of the paper's experiments, by mark."""
    known = {name: found for name, found in lines.items() if found}
    made = {"results": summary, "claims": claims, "reasons": reasons}
    return {mark(name, "wdistill reproduce"): make(known) for name, make in made.items()}


def fill(documents: Sequence[Path], made: Mapping[str, str]) -> None:
    """Put what is made, by mark, into every document that has a place for it."""
    for document in documents:
        text = document.read_text() if document.exists() else ""
        if filled(text, made) != text:
            store.write_bytes(document, filled(text, made).encode())


def filled(text: str, made: Mapping[str, str]) -> str:
    """A document with everything that is made in its place."""
    for begin, each in made.items():
        text = _put(text, begin, each)
    return text


def _put(text: str, begin: str, made: str) -> str:
    return re.sub(re.escape(begin) + ".*?" + re.escape(END), lambda _: f"{begin}\n{made}{END}", text, flags=re.S)
