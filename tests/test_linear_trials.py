"""Trials of linear pilot students: what they hold, and what documents say of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.confirmation import linear
from experiments.confirmation.rivals import BASE
from experiments.confirmation.run import LINES
from experiments.lab import results
from experiments.lab.documents import filled
from tests.test_leaderboard import GOLD, TINY


def line(task: str, number: int, told: float, came: float) -> dict[str, Any]:
    """A made-up trial with 100 gold rows."""
    reached = {BASE: 80.0, "best": 80.0 + came}
    reached |= {f"{name}, hard": value for name, value in reached.items()}
    said = {metric: [told, told - 1.5, told + 1.5] for metric in ("accuracy", "macro-f1")}
    both = {"soft": said, "hard": said}
    return {"task": task, "gold": 100, "trial": number, "accuracy": reached, "macro_f1": reached, "forecast": both}


@pytest.mark.slow
def test_a_trial_has_students_and_linear_forecasts_of_both_kinds_of_targets() -> None:
    found = linear.trial(TINY, None, GOLD, 0)
    assert set(found["accuracy"]) == set(found["macro_f1"]) == {BASE, "best", f"{BASE}, hard", "best, hard"}
    assert all(low < value < high for each in found["forecast"].values() for value, low, high in each.values())
    assert json.loads(json.dumps(found)) == found


def test_linear_pilots_stand_beside_copies_of_the_student_on_the_same_trials() -> None:
    lines = [line("mnist", 0, 1.0, 3.0), line("mnist", 1, 2.0, 3.0), line("fars", 0, 9.0, 1.0)]
    copies = [
        line("mnist", 0, 2.5, 3.0),
        line("mnist", 1, 2.5, 3.0),
        line("mnist", 2, 9.0, 3.0),
        line("letter", 0, 9.0, 0.0),
    ]
    rows = [row.strip("| ").split(" | ") for row in linear.linear_table(lines, copies).splitlines()]
    assert rows[2] == ["linear", "soft", "3", "0 of 2", "1, 1", "−1.67", "67 %"]
    assert rows[4] == ["copies of the student", "soft", "2", "1 of 1", "0, 0", "+0.50", "100 %"]
    assert "0 of 2 tasks and sizes, too low in 1 and too high in 1, with 67 %" in linear.said(lines, copies)


def test_the_document_says_what_the_lines_say() -> None:
    lines, copies = results.read(linear.LINES, linear.NEEDED), results.read(LINES, linear.CONFIRMED)
    text = linear.DOCUMENT.read_text()
    assert lines and linear.MARK in text
    remedy = "run: python -m experiments.confirmation.linear --trials 0"
    assert filled(text, {linear.MARK: linear.said(lines, copies)}) == text, remedy
