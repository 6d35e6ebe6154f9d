"""Figures in documents are made of the lines of results, never by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.catalogue import ITEMS
from experiments.documents import END, filled, mark, reproduced
from experiments.lines import Line
from experiments.protocol import Item
from experiments.reasons import reasons
from experiments.reproducing import HERE, read_lines

DOCUMENTS = (HERE / "README.md", HERE.parent / "README.md")
REMEDY = "run: wdistill reproduce all --trials 0"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(HERE.parent)))
def test_the_results_in_a_document_are_those_of_the_lines(document: Path) -> None:
    lines = {name: each for item in ITEMS for name, each in read_lines(item, HERE).items()}
    text = document.read_text()
    assert mark("results", "wdistill reproduce") in text and END in text
    assert filled(text, reproduced(lines)) == text, REMEDY


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_tables_in_the_repository_are_those_of_the_lines(item: Item) -> None:
    known, path = read_lines(item, HERE), HERE / "tables" / f"{item.name}.md"
    if not any(known.values()):
        assert not path.exists(), f"a table without lines: {path}"
        return
    assert path.read_text() == item.tables(known), REMEDY
    missing = [stem for stem in item.figures(known) if not (HERE / "figures" / f"{stem}.svg").exists()]
    assert not missing, REMEDY


def test_no_figure_is_left_over() -> None:
    made = {stem for item in ITEMS if any((known := read_lines(item, HERE)).values()) for stem in item.figures(known)}
    assert {path.stem for path in (HERE / "figures").glob("*.svg")} == made


@pytest.mark.parametrize("begin", reproduced({}))
def test_a_place_is_filled_and_nothing_else_is_touched(begin: str) -> None:
    made = reproduced({})
    before = f"one\n{begin}\nold\n{END}\ntwo\n"
    after = filled(before, made)
    assert after == f"one\n{begin}\n{made[begin]}{END}\ntwo\n"
    assert filled(after, made) == after and filled("no place", made) == "no place"


def test_reasons_are_the_mean_weights_of_wrong_and_right_rows() -> None:
    def line(trial: int, wrong: float, right: float) -> Line:
        weights = [{"after": 0, "wrong": 1.0, "right": 1.0}, {"after": 3, "wrong": wrong, "right": right}]
        arms = {"unweighted": {}, "debiased": {"weights": weights, "error": {"wrong": wrong / 2, "right": None}}}
        known = {"experiment": "x", "labels": 1500, "trial": trial, "repeat": None, "paper_budget": None}
        known["budget"] = {"epochs": 3, "unlabeled": 40}
        return {**known, "data": {}, "arms": arms, "teacher": {"unlabeled": 0.9 - trial / 10}}

    text = reasons({"x": [line(0, 0.5, 0.9), line(1, 0.7, 1.0)]})
    assert "| 1,500 | 15.0 % | – | – | 0.600 / 0.950 | – | – | – |" in text
    known = line(0, 0.5, 0.9)
    known["arms"]["debiased"]["error"]["right"] = 0.125
    assert "| 1,500 | 10.0 % | 0.250 / 0.125 | – | 0.500 / 0.900 | – | – | – |" in reasons({"x": [known]})
