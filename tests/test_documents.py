"""Figures in documents are made of the lines of results, never by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from experiments.catalogue import ITEMS
from experiments.documents import END, filled, mark, reproduced
from experiments.figures import rendered
from experiments.lines import Line
from experiments.protocol import Item
from experiments.reasons import reasons
from experiments.reproducing import HERE, read_lines

DOCUMENTS = (HERE / "README.md", HERE.parent / "README.md")
REMEDY = "run: wdistill reproduce all --trials 0"
PLACE = re.compile(r"-?\d+(?:\.\d+)?")  # a number in a figure, which rounding may touch
HASH = re.compile(r"\b[a-z][0-9a-f]{10}\b")  # a name that is made of such numbers


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
    for stem, figure in item.figures(known).items():
        path = HERE / "figures" / f"{stem}.svg"
        assert path.exists() and same_picture(path.read_text(), rendered(figure, "svg").decode()), f"{stem}: {REMEDY}"


def same_picture(one: str, other: str) -> bool:
    """Whether two figures have the same words and lines, their places to a hundredth."""
    named = []
    for text in (one, other):
        order = {name: f"name{i}" for i, name in enumerate(dict.fromkeys(HASH.findall(text)))}
        named.append(HASH.sub(lambda found, order=order: order[found[0]], text))  # type: ignore[misc]
    words, places = ([split(text) for text in named] for split in (PLACE.split, PLACE.findall))
    return words[0] == words[1] and np.allclose(*(np.array(each, float) for each in places), rtol=0, atol=0.02)


def test_a_stale_figure_is_seen() -> None:
    one = '<path d="M 1.500 2 L 3.25 4"/><text>3 trials</text>'
    assert same_picture(one, one) and same_picture(one, one.replace("3.25", "3.255").replace("1.500", "1.499"))
    assert same_picture('<use href="#m0123456789"/>', '<use href="#mabcdefabcd"/>')
    for stale in (one.replace("3.25", "3.5"), one.replace("3 trials", "4 trials"), one.replace("path", "line")):
        assert not same_picture(one, stale)


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
