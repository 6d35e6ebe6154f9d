"""`python -m experiments.llm`: fresh rows in every trial, one line each, and a table of paired differences."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.llm.run import main, read_file, table
from experiments.llm.trial import BASE, split
from tests.answer_forms import make
from wdistill.core.errors import WdistillError


def answers(folder: Path) -> Path:
    rows = make(500)
    lines = [
        {"text": text, "said": int(said), "true": int(true)}
        for text, said, true in zip(rows.texts, rows.teacher.argmax(axis=1), rows.truth, strict=True)
    ]
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_rows_of_a_trial_are_apart_and_its_test_rows_are_the_same_for_every_number_of_gold_rows() -> None:
    few, many = split(500, 50, 200, seed=3), split(500, 150, 200, seed=3)
    for parts in (few, many):
        assert sorted(np.concatenate([parts.gold, parts.pool, parts.test])) == list(range(500))
    assert (few.test == many.test).all() and len(many.gold) == 150
    assert (split(500, 50, 200, seed=4).test != few.test).any()


def test_differences_are_paired_by_trial() -> None:
    lines = [
        {"gold": 100, "accuracies": {BASE: base, "best": base + gain}, "targets": {"teacher": 50.0, "best": 60.0}}
        for base, gain in ((40.0, 1.0), (60.0, 2.0), (50.0, 3.0))
    ]
    shown = table(lines)
    assert f"| {BASE} | 50.00 % |" in shown and "| best | +2.00 ± 0.58 |" in shown and "| trials | 3 |" in shown


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WdistillError, match="the answers cannot be read"):
        read_file(answers(tmp_path), "text", "nothing", "true")


@pytest.mark.slow
def test_a_trial_is_one_line_that_holds_no_text_and_is_not_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, lines = answers(tmp_path), tmp_path / "lines.jsonl"
    columns = ["--answer", "said", "--label", "true", "--lines", str(lines)]
    run = [str(path), *columns, "--gold", "60", "--test", "200", "--trials", "1"]
    assert main(run) == 0
    (line,) = map(json.loads, lines.read_text().splitlines())
    accuracies = line["accuracies"]
    assert accuracies["truth"] > accuracies[BASE] and line["rows"] == {"pool": 240, "test": 200}
    assert "film" not in lines.read_text() and line["environment"]["commit"] and line["why"]
    before, printed = lines.read_bytes(), capsys.readouterr().out
    assert main(run) == 0 and lines.read_bytes() == before and capsys.readouterr().out == printed
