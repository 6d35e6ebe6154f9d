"""`--within`, prices and `--serve` as a user gives them: to tables, to answers and to runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.distilling import splits
from tests.tables import write
from tests.test_answers import words
from tests.test_best_tables import GOLD, REST
from tests.test_cli import fail
from wdistill import cli

MONEY = ["--serve", "100000", "--price-gold", "0.5", "--price-teacher", "0.01"]
MORE = ["--price-student", "0.001", "--price-error", "0.2"]


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    gold = write(tmp_path / "v.parquet", GOLD)
    rest = write(tmp_path / "u.parquet", {name: values for name, values in REST.items() if name != "label"})
    return ["--validation", str(gold), "--unlabeled", str(rest)]


@pytest.mark.slow
def test_tables_tell_rows_pool_and_costs(tables: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", *tables, "--details", "--within", "3", *MONEY, *MORE]) == 0
    told = capsys.readouterr().out
    assert "For ± 3 points of accuracy: " in told and "with the pool; you have 150." in told
    for line in ("Costs: for 100,000 rows ", "What it costs", "What is known of the unlabeled rows", "The same, class by"):
        assert line in told
    assert all(len(line) <= 80 for line in told.splitlines() if line.startswith(("│", "┃")))
    assert cli.main(["advise", *tables]) == 0
    brief = capsys.readouterr().out
    assert "For ± 2 points of accuracy: " in brief and "Costs" not in brief and "What is known of" not in brief


@pytest.mark.slow
def test_answers_tell_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words("advise", tmp_path, "label_and_confidence", "--within", "1.5", "--details", *MONEY, *MORE)) == 0
    told = capsys.readouterr().out
    assert "For ± 1.5 points of accuracy: " in told and "Costs: for 100,000 rows " in told and "student, on gold" in told
    assert "What is known of the unlabeled rows" in told and "pilot student" in told


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*validation rows")
def test_runs_tell_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, (inputs, labels) in splits().items():
        np.savez(f"{name}.npz", inputs=inputs.numpy(), label=labels.numpy())
    given = ["distill", "--teacher", "mlp:inputs=6,classes=3,hidden=8", "--student", "mlp:inputs=6,classes=3,hidden=4"]
    given += [word for name in splits() for word in (f"--{name}", f"{name}.npz")]
    given += ["--teacher-epochs", "1", "--student-epochs", "1", "--epochs", "1", "--run", "run", "--method", "best"]
    assert "needs --advise" in fail(capsys, *given, "--within", "3") and not Path("run").exists()
    assert "--serve" in fail(capsys, *given, "--advise", "--price-gold", "1") and not Path("run").exists()
    assert cli.main([*given, "--advise", "--within", "3", *MONEY, *MORE]) == 0
    told = capsys.readouterr().out
    assert "For ± 3 points of accuracy: " in told and "Costs: for 100,000 rows " in told and "pilot student" in told


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--serve", "10"], "--serve without --price-gold, --price-teacher"),
        (["--price-gold", "1", "--price-teacher", "1"], "--price-gold, --price-teacher without --serve"),
        (["--price-error", "1", "--serve", "5"], "without --price-gold, --price-teacher"),
        ([*MONEY, "--price-error", "-1"], "--price-error: a number out of range"),
        ([*MONEY, "--price-student", "nan"], "--price-student: a number out of range"),
        (["--price-gold", "inf", "--price-teacher", "1", "--serve", "5"], "--price-gold: a number out of range"),
        (["--price-gold", "1", "--price-teacher", "1", "--serve", "0"], "--serve: a number out of range"),
        (["--price-gold", "1", "--price-teacher", "1", "--serve", "1.5"], "--serve"),
        (["--within", "0"], "--within: a number out of range"),
        (["--within", "nan"], "--within: a number out of range"),
        (["--within", "101"], "not a width"),
        (["--within", "two"], "--within"),
    ],
)
@pytest.mark.parametrize(
    "files", [["--validation", "no.parquet", "--unlabeled", "no.parquet"], ["--answers", "no.csv", "--gold", "no.csv"]]
)
def test_bad_questions_are_refused_before_a_file_is_opened(
    files: list[str], flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in fail(capsys, "advise", *files, *flags)


def test_answers_are_trained_on_without_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fail(capsys, "distill", "--answers", "no.csv", "--run", tmp_path / "run", "--within", "3")
    assert "--within: does not belong here" in said and "wdistill advise --answers" in said
