"""How long the items take: the headers of their files say what is computed, and that counts every row."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from experiments.catalogue import ITEMS
from experiments.protocol import Item
from experiments.times import SPEEDS, hours_of, rounded
from tests.reproducing import SHARED, TINY
from wdistill import Recipe, debiased, unweighted
from wdistill.arms import arm


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_header_of_an_item_says_its_time(item: Item) -> None:
    header = re.search(r"^Time: .*?(?=^\w|^$|\Z)", sys.modules[item.tables.__module__].__doc__ or "", re.M | re.S)
    assert header and rounded(hours_of(item)) in re.findall(r"\d[\d,.]*\d", header[0])


@pytest.mark.parametrize("repeats", [False, True])
def test_every_row_counts(repeats: bool) -> None:
    """3 trials, 12 labeled, 6 validation, 8 unlabeled and 6 test rows."""
    experiment = replace(
        SHARED,
        teacher="cnn:width=32",
        student="cnn:width=16",
        arms={"unweighted": unweighted, "debiased": arm(debiased, refresh=2, validation_in_training="yes")},
        recipe=Recipe(teacher_epochs=7, student_epochs=4, epochs=5),
        trials=3,
        repeats=repeats,
    )
    teacher, student = SPEEDS["cnn:width=32", 28], SPEEDS["cnn:width=16", 28]
    models = 12 * 7 / teacher.trained + 12 * 4 / student.trained
    labels = (12 + 6 + 8 + 6) / teacher.read
    plain = 5 * 20 / student.trained + (5 * 12 + 14) / student.read
    debiasing = 5 * 26 / student.trained + (5 * 12 + 3 * 14) / student.read  # weights before epochs 1, 3 and 5
    seconds = (3 if repeats else 1) * models + 3 * (labels + plain + debiasing)
    assert hours_of(replace(TINY, experiments=(experiment,))) == pytest.approx(seconds / 3600)


def test_hours_have_two_digits() -> None:
    assert [rounded(each) for each in (0.0234, 0.96, 1.04, 12.4, 23456.0)] == ["0.023", "0.96", "1.0", "12", "23,000"]
