"""How long the items take: the headers of their files say what is computed, and that counts every row."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from experiments.lab.items import Item
from experiments.paper.catalogue import ITEMS
from experiments.paper.times import SPEEDS, arms_seconds, as_run, hours_of, models_seconds, rounded, run_of
from tests.reproducing import SHARED, TINY, view
from tests.test_views import header_of
from wdistill import Recipe, debiased, unweighted
from wdistill.runs.arms import arm


@pytest.mark.slow
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_header_of_an_item_says_its_time(item: Item) -> None:
    header = re.search(r"^Time: .*?(?=^\w|^$|\Z)", header_of(item), re.M | re.S)
    same = [each for each in ITEMS if header_of(each) == header_of(item)]  # a file may have several items
    assert header and rounded(hours_of(item)) == re.findall(r"\d[\d,.]*\d", header[0])[same.index(item)]


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
    assert hours_of(replace(TINY, views=(view(experiment),))) == pytest.approx(seconds / 3600)


def test_hours_have_two_digits() -> None:
    assert [rounded(each) for each in (0.0234, 0.96, 1.04, 12.4, 23456.0)] == ["0.023", "0.96", "1.0", "12", "23,000"]


def test_what_was_run_is_predicted_with_the_budget_and_arms_of_its_lines() -> None:
    experiment = replace(SHARED, teacher="cnn:width=32", student="cnn:width=16")
    sizes = {"validation": 4, "unlabeled": 5, "test": 3}
    budget = {**sizes, "teacher_epochs": 3, "student_epochs": 2, "epochs": 1}
    arms = {"unweighted": {"seconds": {"training": 1800.0, "testing": 900.0}}}
    lines = [{"labels": 12, "repeat": None, "trial": trial, "budget": budget, "arms": arms} for trial in range(2)]
    recipe = replace(experiment.recipe, teacher_epochs=3, student_epochs=2, epochs=1)
    short = replace(experiment, recipe=recipe, arms={"unweighted": unweighted}, **sizes)
    assert as_run(experiment, lines[0]) == short
    run = run_of(experiment, lines)
    assert (run.trials, run.took) == (2, 1.5)
    assert run.arms == pytest.approx(2 * arms_seconds(short, 12) / 3600)
    assert run.models == pytest.approx(models_seconds(short, 12) / 3600)  # shared
    fresh = run_of(experiment, [{**line, "repeat": line["trial"]} for line in lines])
    assert fresh.models == pytest.approx(2 * run.models)
