"""Tables are joined by id, or refused, whatever their formats, orders and files; more cases in `make reliability`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings

from tests.reliability.joins import Join, Side, attempt, joined, joins

WITHOUT = Side("npz", "", False, 0, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
@settings(max_examples=max(30, settings().max_examples // 3))
@given(joins())
@example(Join(WITHOUT, replace(WITHOUT, order=1), WITHOUT, swapped=False))
@example(Join(replace(WITHOUT, column="ids"), replace(WITHOUT, column="ids", order=1), WITHOUT, swapped=False))
def test_tables_are_joined_by_id_or_refused(case: Join) -> None:
    assert attempt(case) == ""


def test_a_case_that_must_work_does() -> None:
    side = Side("npz", "id", False, 2, 3)
    case = Join(Side("jsonl", "id", False, 1, 1), side, side, swapped=True)
    assert case.must_work and attempt(case) == "" and len({*joined().values()}) > 10
