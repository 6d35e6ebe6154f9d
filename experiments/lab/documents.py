"""Marked places in documents, which commands fill with what is made of the lines: blocks, or a part of a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from wdistill.core import store

END = "<!-- end -->"


def mark(name: str, command: str) -> str:
    """What a place in a document begins with: its name, and the command that fills it."""
    return f"<!-- {name} made by `{command}` -->"


def fill(documents: Sequence[Path], texts: Mapping[str, str]) -> None:
    """Put texts, by mark, into every document that has a place for them."""
    for document in documents:
        text = document.read_text() if document.exists() else ""
        if filled(text, texts) != text:
            store.write_bytes(document, filled(text, texts).encode())


def filled(text: str, texts: Mapping[str, str]) -> str:
    """A document with every text in its place: on lines of its own where the place begins with a new line."""
    for begin, new in texts.items():
        place = re.compile(re.escape(begin) + r"(\n?).*?" + re.escape(END), re.S)
        text = place.sub(lambda found, begin=begin, new=new: f"{begin}{found[1]}{new}{END}", text)  # type: ignore[misc]
    return text
