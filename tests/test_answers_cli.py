"""`wdistill advise --answers` and `wdistill correct` as a user calls them: every flag, every kind of bad input, progress."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from tests.answer_forms import ANSWERS, BATCHES, gold_csv, make, part
from tests.test_answers import words
from wdistill import cli
from wdistill.answers import pool as answer_pool
from wdistill.cli.advise import TABLE_FLAGS
from wdistill.cli.entry import parser
from wdistill.core import progress as core_progress
from wdistill.tables.formats.table import open_tables, rows_of_text

ROWS = make(300)
GOLD_ROWS = part(ROWS, 0, 80)


# which rows to label next ---------------------------------------------------------------------------------------------


def read_plan(path: Path) -> dict[str, list[Any]]:
    table = arrow_csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    columns: dict[str, list[Any]] = table.to_pydict()
    return columns


@pytest.mark.slow
@pytest.mark.parametrize("form", ["label_and_confidence", "openai"])
@pytest.mark.parametrize("name", ["next.csv", "next.parquet"])
def test_a_plan_can_be_handed_to_an_annotator_as_it_is(
    form: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert cli.main(words("advise", tmp_path, form, "--plan", path)) == 0
    assert f"Rows to label next: {path}" in capsys.readouterr().out.splitlines()
    plan = read_plan(path)
    assert list(plan) == ["id", "use", "text", "teacher"]
    truth = dict(zip(ROWS.ids, zip(ROWS.texts, ROWS.labels, strict=True), strict=True))
    assert [truth[key] for key in plan["id"]] == list(zip(plan["text"], plan["teacher"], strict=True))
    assert len(plan["id"]) == len(set(plan["id"])) and not {*plan["id"]} & {*GOLD_ROWS.ids}
    assert plan["use"] == ["judge"] * 110 + ["teach"] * 110  # of 220 rows in the pool


@pytest.mark.slow
def test_a_plan_without_texts_has_the_teachers_label_and_formulas_are_escaped(tmp_path: Path) -> None:
    answers = ANSWERS["label"](ROWS, tmp_path)
    with answers.open(newline="") as file:
        head, *lines = csv.reader(file)
    with answers.open("w", newline="") as file:
        csv.writer(file).writerows([head, *([key, f"=1+1, {text}", label] for key, text, label in lines)])
    sources = ["advise", "--answers", answers, "--gold", gold_csv(GOLD_ROWS, tmp_path), "--plan", tmp_path / "n.csv"]
    assert cli.main([*map(str, sources)]) == 0
    assert list(read_plan(tmp_path / "n.csv")) == ["id", "use", "teacher"]
    assert cli.main([*map(str, sources), "--text", "text", "--escape-formulas"]) == 0
    assert all(text.startswith("'=1+1, ") for text in read_plan(tmp_path / "n.csv")["text"])
    assert cli.main([*map(str, sources), "--text", "text"]) == 0
    assert all(text.startswith("=1+1, ") for text in read_plan(tmp_path / "n.csv")["text"])


@pytest.mark.slow
def test_details_are_all_tables_and_all_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words("advise", tmp_path, "label")) == 0
    brief = capsys.readouterr().out
    assert cli.main(words("advise", tmp_path, "label", "--details")) == 0
    whole = capsys.readouterr().out
    for title in ("Who finds the teacher's errors", "What each method would change", "What more gold rows would do"):
        assert title in whole and title not in brief
    assert "--details" in brief and "--details" not in whole
    shown = [sum(line.count(f"│ {key} ") for line in told.splitlines() for key in ROWS.ids) for told in (brief, whole)]
    assert shown == [10, 40]


# flags ----------------------------------------------------------------------------------------------------------------

WORKING = (
    "help answers gold pool plan details inputs targets classes escape_formulas text label id gold_id answer stated alias "
    "refusals"
)
VALUES = {"kind": "logits", "soft_labels": None, "renormalize": None, "allow_subset": None}


def advise_flags() -> set[str]:
    commands = next(action for action in parser()._actions if action.dest == "command")
    assert isinstance(commands.choices, dict)
    return {action.dest for action in commands.choices["advise"]._actions}


def test_every_flag_of_advise_works_with_answers_or_is_refused() -> None:
    assert {*WORKING.split(), *TABLE_FLAGS} == advise_flags()


@pytest.mark.parametrize("name", TABLE_FLAGS)
def test_flags_of_tables_are_refused_with_answers(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flag = f"--{name.replace('_', '-')}"
    value = VALUES.get(name, "none")
    assert cli.main([*words("advise", tmp_path, "label"), flag, *filter(None, [value])]) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag}: is for tables of predictions")


@pytest.mark.parametrize(
    ("form", "more", "expected"),
    [
        ("label", ["--escape-formulas"], "needs --plan FILE.csv"),
        ("label", ["--escape-formulas", "--plan", "n.parquet"], "needs --plan FILE.csv"),
        ("label", ["--plan", "n.txt"], "unknown kind of output"),
        ("label", ["--plan", "no/such/folder.csv"], "folder does not exist"),
        ("label", ["--gold-id", "key"], "a column 'key'"),
        ("label", ["--id", "key"], "correct --id"),
        ("wide", ["--stated", "prob_positive"], "--stated has no meaning here"),
        ("openai", ["--stated", "confidence"], "--stated has no meaning here"),
        ("openai", ["--answer", "label"], "--answer has no meaning here"),
        ("openai", ["--id", "key"], "names a column that nothing has"),
    ],
)
def test_flags_that_would_do_nothing_are_refused(
    form: str, more: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words("advise", tmp_path, form, *more)) == 2
    assert expected in capsys.readouterr().err


def test_a_plan_is_checked_before_anything_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = ANSWERS["label"](ROWS, tmp_path)
    before = answers.read_bytes()
    (tmp_path / "gold.csv").write_text("no gold labels")
    sources = ["--answers", str(answers), "--gold", str(tmp_path / "gold.csv")]
    assert cli.main(["advise", *sources, "--plan", str(answers)]) == 2
    assert "the output is among the inputs" in capsys.readouterr().err and answers.read_bytes() == before


# progress -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("form", ["label", "label_and_confidence", "openai", "struct"])
def test_long_reads_say_how_many_rows_there_are(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int | None, int]] = []

    @contextmanager
    def watched(what: str, total: int | None, unit: str = "rows") -> Iterator[Any]:
        done = [0]
        yield lambda rows: done.append(rows)
        seen.append((what, total, sum(done)))

    monkeypatch.setattr(answer_pool, "progress", watched)
    assert cli.main(words("correct", tmp_path, form, "--output", tmp_path / "t.parquet")) == 0
    passes = {"counting answers", "reading texts", "reading answers"}
    assert {what for what, _, _ in seen} == passes | ({"finding gold rows", "reading rows"} if form in BATCHES else set())
    for what, total, done in seen:
        assert total is not None and done == 300 and abs(total - done) <= 3, what


def test_rows_of_text_are_guessed_from_the_first_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *((i, 'two\nlines, "quoted"') for i in range(5_000))])
    monkeypatch.setattr("wdistill.tables.formats.table.SAMPLE", 10_000)
    assert abs(open_tables([str(path)], option="--pool")[0].rows_about - 5_000) < 300
    assert rows_of_text([path], quoted=False) > 9_000


class Terminal:
    """Standard error as a terminal that keeps what is written."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


def test_a_bar_shows_rows_of_how_many_and_a_total_that_was_guessed_too_low_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stderr", terminal)
    with core_progress.progress("counting answers", 1_000) as tick:
        tick(400)
    assert "counting answers" in terminal.text and "400 of 1,000 rows" in terminal.text
    with core_progress.progress("counting answers", 1_000) as tick:
        tick(1_010)
    assert "1,010 of 1,010 rows" in terminal.text
    with core_progress.progress("reading", None) as tick:
        tick(7)
    assert "7 rows" in terminal.text and "None" not in terminal.text
