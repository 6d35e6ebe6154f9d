"""Costs of serving rows by the teacher, by a student of gold, by both, and after labeling more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdistill.core.errors import ConfigError
from wdistill.methods.costs import (
    Prices,
    break_even,
    compare_costs,
    distilled,
    gold_alone,
    labeling_more,
    teacher_alone,
)
from wdistill.methods.statistics import Interval

PRICES = Prices(gold=0.5, teacher=0.01, student=0.0001, error=0.2)
WAYS = (
    teacher_alone(Interval(0.10, 0.08, 0.12)),
    gold_alone(Interval(0.20, 0.18, 0.22), gold=300),
    distilled(Interval(0.09, 0.07, 0.11), gold=300, answers=10_000),
    labeling_more(Interval(0.08, 0.06, 0.10), 1_000, gold=300, answers=10_000),
)


def test_totals_are_sums_of_what_is_bought_and_what_is_served() -> None:
    totals = {each.name: each for each in compare_costs(PRICES, 100_000, WAYS).totals}
    assert totals["the teacher"].total.value == pytest.approx(100_000 * (0.01 + 0.2 * 0.10))
    assert totals["a student of labels alone"].total.value == pytest.approx(150 + 100_000 * (0.0001 + 0.2 * 0.20))
    assert totals["a distilled student"].total.value == pytest.approx(150 + 100 + 100_000 * (0.0001 + 0.2 * 0.09))
    more = totals["a distilled student, with 1,000 more gold rows"]
    assert more.before == 750 and more.total.value == pytest.approx(750 + 100_000 * (0.0001 + 0.2 * 0.08))
    assert more.total.low == pytest.approx(750 + 100_000 * (0.0001 + 0.2 * 0.06))


def test_the_sentence_names_the_cheapest_and_when_another_would_be() -> None:
    few, many = (compare_costs(PRICES, served, WAYS) for served in (1_000, 10_000_000))
    assert few.totals[0].name == "the teacher"
    assert many.totals[0].name == "a distilled student, with 1,000 more gold rows"
    text = "for 1,000 rows the teacher costs least: 30.00, 160.10 less than a student of labels alone"
    assert few.sentence == text
    assert "though their intervals overlap" in many.sentence and "they are even at 250,000 rows" in many.sentence


@given(st.integers(1, 10**7))
def test_the_cheapest_comes_first(served: int) -> None:
    totals = [each.total.value for each in compare_costs(PRICES, served, WAYS).totals]
    assert totals == sorted(totals)


@given(*[st.floats(0, 1) for _ in range(4)], st.floats(0.001, 0.1), st.integers(0, 1_000))
def test_costs_are_even_where_they_break_even(a: float, b: float, c: float, d: float, price: float, gold: int) -> None:
    ways = [teacher_alone(Interval(a, a, a)), distilled(Interval(b, b, b), gold=gold, answers=10)]
    first, second = compare_costs(Prices(c + 0.1, price, 0, d), 1_000, ways).totals
    rows = break_even(first, second)
    if rows is not None:
        at = [each.before + rows * each.each.value for each in (first, second)]
        assert at[0] == pytest.approx(at[1], abs=1.5)


def test_what_is_no_price_is_an_error() -> None:
    with pytest.raises(ConfigError, match="price of gold"):
        Prices(gold=-1, teacher=0.1)
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare_costs(PRICES, 10, WAYS[:1])
