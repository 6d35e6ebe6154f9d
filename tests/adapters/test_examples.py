"""The examples of adapters still train their students: one or two trials each, where the programs run five."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
FOLDER = Path(__file__).parents[2] / "examples" / "adapters"

pytestmark = [
    pytest.mark.usefixtures("examples_folder"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the trainers: the examples are programs, and show what they show
]


def accuracies(table: str) -> dict[str, float]:
    """Of every arm, as a table of paired trials has them."""
    return {arm: float(value) for arm, value in re.findall(r"^\| ([^|]+) \| (\d+\.\d+) \|", table, re.M)}


def assert_taught(arms: dict[str, float]) -> None:
    """Targets teach, and only the rows that they are of."""
    assert arms["best targets"] > arms["best targets, of other rows"] + 5, arms


@pytest.mark.parametrize("name", ["pytorch", "lightning_student", "skorch_student", "keras_student"])
def test_students_of_images_learn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = import_module("images")
    monkeypatch.setattr(images, "TRIALS", range(2))
    assert_taught(accuracies(images.trials(import_module(name).train)))


@pytest.mark.parametrize("name", ["lightgbm_student", "xgboost_student"])
def test_students_of_tables_learn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tabular = import_module("tabular")
    monkeypatch.setattr(tabular, "TRIALS", range(2))
    for title, (inputs, labels) in tabular.tables(None).items():
        assert_taught(accuracies(tabular.trials(title, inputs, labels, import_module(name).train)))


def test_students_of_texts_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("huggingface")
    monkeypatch.setattr(module, "TRIALS", range(2))
    assert_taught(accuracies(module.trials(module.made_up(600))))


@pytest.mark.parametrize(
    ("name", "arm", "worse"),
    [
        ("scikit_learn", ("boosted trees", "best"), ("boosted trees", "gold alone")),
        ("cleanlab_issues", "without the issues of corrected targets", "all labels"),
        ("snorkel_votes", "best targets", "all posteriors + gold"),
    ],
)
def test_a_trial_of_the_others_is_as_the_page_says(name: str, arm: Any, worse: Any) -> None:
    found = import_module(name).trial(0)
    assert all(0 < value <= 1 for value in found.values()) and found[arm] > found[worse], found


def test_trials_are_written_where_a_file_is_asked_for_and_take_the_place_of_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paired, file = import_module("paired").paired, tmp_path / "results.jsonl"
    monkeypatch.setattr(sys, "argv", ["examples/adapters/pytorch.py"])
    arms = {"base": [0.5, 0.7], "best": [0.6, 0.9]}
    shown = paired(arms, "base", "digits")
    assert not file.exists() and "| best | 75.00 | +15.00 ± 5.00 |" in shown
    monkeypatch.setenv("RESULTS", str(file))
    assert paired({"base": [0.1, 0.2], "best": [0.2, 0.2]}, "base", "digits") and paired(arms, "base", "letters")
    assert paired(arms, "base", "digits") == shown
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    said = [(each["example"], each["data"], each["trial"], each["accuracies"]["best"]) for each in lines]
    assert said == [("pytorch", data, trial, arms["best"][trial]) for data in ("letters", "digits") for trial in (0, 1)]
    assert {each["base"] for each in lines} == {"base"} and all(each["processor"] for each in lines)
    assert all(re.fullmatch(r"[0-9a-f]{12}\+?|none", each["commit"]) for each in lines)
