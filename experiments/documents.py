"""The results that stand in documents: made of the lines, between two marks, never by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.lines import Line
from experiments.tables import summary
from wdistill import store

BEGIN, END = "<!-- made by `wdistill reproduce`: begin -->", "<!-- end -->"


def fill(documents: Sequence[Path], lines: Mapping[str, Sequence[Line]]) -> None:
    """Put the summary of all lines into every document that has a place for it."""
    for document in documents:
        text = document.read_text() if document.exists() else ""
        if filled(text, lines) != text:
            store.write_bytes(document, filled(text, lines).encode())


def filled(text: str, lines: Mapping[str, Sequence[Line]]) -> str:
    """A document with the summary of these lines in its place."""
    block = f"{BEGIN}\n{summary({name: found for name, found in lines.items() if found})}{END}"
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, text, flags=re.S)
