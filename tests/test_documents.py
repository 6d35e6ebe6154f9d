"""Figures in documents are made of the lines of results, never by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.catalogue import ITEMS
from experiments.documents import BEGIN, END, filled
from experiments.protocol import Item
from experiments.reproducing import HERE, read_lines

DOCUMENTS = (HERE / "README.md", HERE.parent / "README.md")
REMEDY = "run: wdistill reproduce all --trials 0"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(HERE.parent)))
def test_the_results_in_a_document_are_those_of_the_lines(document: Path) -> None:
    lines = {name: each for item in ITEMS for name, each in read_lines(item, HERE).items()}
    text = document.read_text()
    assert BEGIN in text and END in text
    assert filled(text, lines) == text, REMEDY


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_tables_in_the_repository_are_those_of_the_lines(item: Item) -> None:
    known, path = read_lines(item, HERE), HERE / "tables" / f"{item.name}.md"
    if not any(known.values()):
        assert not path.exists(), f"a table without lines: {path}"
        return
    assert path.read_text() == item.tables(known), REMEDY
    missing = [stem for stem in item.figures(known) if not (HERE / "figures" / f"{stem}.svg").exists()]
    assert not missing, REMEDY


def test_a_place_for_results_is_filled_and_nothing_else_is_touched() -> None:
    before = f"one\n{BEGIN}\nold\n{END}\ntwo\n"
    after = filled(before, {})
    assert after.startswith("one\n") and after.endswith(f"{END}\ntwo\n") and "old" not in after
    assert filled(after, {}) == after and filled("no place", {}) == "no place"
