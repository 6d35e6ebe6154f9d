"""Schedules against the paper's tables, written out epoch by epoch."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdistill.core.settings import settings_of
from wdistill.runs.recipe import Recipe
from wdistill.training.optimizer import SCHEDULES, constant, linear, steps, warmup


def test_steps_are_the_papers() -> None:
    table = [1.0] * 80 + [0.1] * 40 + [0.01] * 40 + [0.001] * 20 + [0.0005] * 20  # epochs 1 to 200
    for epoch, wanted in enumerate(table):
        assert steps(epoch, 200) == steps(epoch + 0.999, 200) == wanted


def test_warmup_is_the_papers() -> None:
    table = [1.0] * 30 + [0.1] * 30 + [0.01] * 20 + [0.001] * 20  # epochs 1 to 100
    for epoch, wanted in enumerate(table):
        assert epoch < 5 or warmup(epoch, 100) == warmup(epoch + 0.999, 100) == wanted
    assert [warmup(progress, 100) for progress in (0.0, 0.5, 1.0, 2.5, 4.0)] == pytest.approx([0, 0.1, 0.2, 0.5, 0.8])


def test_shorter_runs_have_the_same_shape() -> None:
    assert [steps(epoch, 20) for epoch in range(20)] == [1.0] * 8 + [0.1] * 4 + [0.01] * 4 + [0.001] * 2 + [0.0005] * 2
    assert [steps(epoch, 5) for epoch in range(5)] == [1.0, 1.0, 0.1, 0.01, 0.0005]
    assert steps(0, 1) == 0.0005 and constant(0, 1) == 1.0
    assert warmup(0.5, 20) == pytest.approx(0.5) and warmup(1.0, 20) == 1.0


def test_linear_falls_from_one_to_nothing() -> None:
    assert [linear(progress, 10) for progress in (0, 2.5, 5, 9.5, 10)] == [1, 0.75, 0.5, pytest.approx(0.05), 0]


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 300), st.data())
def test_factors_lie_within_zero_and_one_and_fall_after_the_warmup(name: str, epochs: int, data: st.DataObject) -> None:
    points = sorted(data.draw(st.lists(st.floats(0, epochs, exclude_max=True), min_size=2, max_size=20)))
    factors = [SCHEDULES[name](point, epochs) for point in points]
    assert all(0 <= factor <= 1 for factor in factors)
    start = 0.05 * epochs if name == "warmup" else 0
    late = [factor for point, factor in zip(points, factors, strict=True) if point > start]
    assert all(before >= after for before, after in pairwise(late))


def test_the_recipe_knows_these_schedules() -> None:
    assert set(settings_of(Recipe)["schedule"].choices) == set(SCHEDULES)
