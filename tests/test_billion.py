"""The page "To a billion rows" says what its command prints, and the command computes what can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.billion import END, PAGE, Assumptions, Costs, bill, blocks, filled, mark, seconds_of_a_file

ASSUMED = Assumptions(rows=1e6, rows_a_file=1e4, workers=4, megabytes=10, sent_gb=0.5)
COSTS = Costs(
    shapes={"some": {"seconds": 1e-3, "read": 1000.0, "written": 100.0}},
    start=3.0,
    file=2.0,
    driven={"seconds": 0.01, "memory": 50_000.0, "manifest": 300.0},
    id=1e-7,
    told="nowhere",
)


@pytest.mark.slow
def test_the_page_has_the_tables_that_the_command_prints() -> None:
    made, text = blocks(Assumptions(), Costs.measured()), PAGE.read_text()
    assert all(mark(name) in text for name in made) and text.count(END) == len(made)
    assert filled(text, made) == text, "run: python -m benchmarks.billion --write"


def test_a_place_is_filled_with_its_table_and_nothing_else_is_touched() -> None:
    page = f"one\n{mark('ids')}\nold\n{END}\ntwo\n"
    assert filled(page, {"ids": "new\n", "bill": "other\n"}) == f"one\n{mark('ids')}\n\nnew\n\n{END}\ntwo\n"


def test_a_bill_is_the_sum_of_its_parts() -> None:
    """100 files of 10,000 rows: of each 2 s for itself, 10 s for its rows and 1 s of waiting for 10 MB."""
    assert seconds_of_a_file(ASSUMED, COSTS, "some") == pytest.approx(13.0)
    found = bill(ASSUMED, COSTS, "some")
    assert found.core_hours * 3600 == pytest.approx(1300 + 4 * 3)
    assert found.hours * 3600 == pytest.approx(1312 / 4 + 100 * 0.01)
    assert (found.read, found.written) == pytest.approx((1.0, 0.1))
    wanted = {"cores": 1313 / 3600 * 0.05, "storage": 1.1 * 0.023, "network": 0.5, "requests": 1000 / 1000 * 0.005}
    assert found.money == pytest.approx(wanted)


def test_twice_the_rows_take_twice_as_much_and_twice_the_workers_half_the_time() -> None:
    costs = replace(COSTS, start=0.0, driven={**COSTS.driven, "seconds": 0.0})
    one = bill(ASSUMED, costs, "some")
    two, wide = bill(replace(ASSUMED, rows=2e6), costs, "some"), bill(replace(ASSUMED, workers=8), costs, "some")
    assert (two.core_hours, two.hours) == pytest.approx((2 * one.core_hours, 2 * one.hours))
    assert (wide.core_hours, wide.hours) == pytest.approx((one.core_hours, one.hours / 2))
