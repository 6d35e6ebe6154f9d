"""`wdistill advise --answers` and `wdistill correct` as a user calls them: every flag, every kind of bad input, progress."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from tests.answer_forms import ANSWERS, BATCHES, CLASSES, gold_csv, make, part
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
    assert list(plan) == ["id", "use", "inclusion", "text", "teacher"]
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
    assert list(read_plan(tmp_path / "n.csv")) == ["id", "use", "inclusion", "teacher"]
    assert cli.main([*map(str, sources), "--text", "text", "--escape-formulas"]) == 0
    assert all(text.startswith("'=1+1, ") for text in read_plan(tmp_path / "n.csv")["text"])
    assert cli.main([*map(str, sources), "--text", "text"]) == 0
    assert all(text.startswith("=1+1, ") for text in read_plan(tmp_path / "n.csv")["text"])


@pytest.mark.slow
def test_what_linear_pilots_take_is_told_before_they_are_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words("advise", tmp_path, "label")) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "pilot students" in line]
    assert told == [
        "for the forecast two linear pilot students will be trained on the words of column 'text', one regression each, of "
        f"{len(CLASSES)} classes: each learns 80 gold rows and 165 of the unlabeled rows, and predicts 55 others"
    ]
    assert cli.main(words("advise", tmp_path, "label")[:-2]) == 0  # without --text nothing is trained on rows
    assert "pilot students" not in capsys.readouterr().err


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
    "refusals metric targets_from within price_gold price_teacher price_student price_error serve group inclusion"
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


def test_plain_lines_say_of_how_many_and_estimate_after_a_few(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core_progress, "QUIET", 0.0)
    with core_progress.progress("correcting", 40, "files") as tick:
        for _ in range(3):
            tick(1)
    first, second, third = capsys.readouterr().err.splitlines()
    assert "1 of 40 files" in first and "s left" not in first + second and "3 of 40 files" in third and "s left" in third


# bad input ------------------------------------------------------------------------------------------------------------


def records(**change: Any) -> list[dict[str, Any]]:
    """Answers with a stated confidence; `change` replaces fields of all of them, None takes one out."""
    rows = zip(ROWS.ids, ROWS.texts, ROWS.labels, strict=True)
    found = [{"id": key, "text": text, "label": label, "confidence": 0.8, **change} for key, text, label in rows]
    return [{name: value for name, value in record.items() if value is not None} for record in found]


def changed(rows: range, **change: Any) -> list[dict[str, Any]]:
    return [{**record, **change} if i in rows else record for i, record in enumerate(records())]


def labeled(*labels: str, rows: int = 80) -> str:
    return "id,label\n" + "".join(f"{key},{labels[i % len(labels)]}\n" for i, key in enumerate(ROWS.ids[:rows]))


def lines(found: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in found)


BATCH = "batch"
PAGE = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>\n"
VOTES = {"label": None, "confidence": None}
ERRORS: dict[str, tuple[str, str | None, list[str], list[str]]] = {  # answers, gold labels, flags, what is said
    "unknown classes, often": (
        lines(changed(range(100, 140), label="so-so")), None, [], ["'so-so' (40 times in 300 answers)", "--classes"],
    ),
    "an unknown class near another": (lines(changed(range(9), label="negativ")), None, [], ["--alias 'negativ'='negative'"]),
    "a confidence above 1": (lines(changed(range(7, 8), confidence=1.2)), None, [], ["1 of the first 300 rows", "'r00007'"]),
    "confidences in percent": (lines(records(confidence=80)), None, [], ["300 of the first 300 rows", "by 100"]),
    "confidences in words": (lines(records(confidence="high")), None, [], ["300 of the first 300 rows", "words"]),
    "votes of other classes": (
        lines(records(**VOTES, votes=[1, 0, 1])), None, [], ["'1' (600 times in 300 answers)", "'0' (300 times"],
    ),
    "counts of votes": (
        lines(records(**VOTES, probs={"positive": 3, "negative": 2})), None, [], ["counts of votes by their sum"],
    ),
    "lists for other classes": (
        lines(records(**VOTES, pred_probs=[0.2, 0.3, 0.5])), None, [],
        ["a.jsonl, column 'pred_probs'", "3 numbers", "2: negative, positive", "'r00000'"],
    ),
    "other names for all classes": (
        lines(records(**VOTES, probs={"ja": 0.3, "nein": 0.7})), None, [],
        ["no answer names a class of the gold labels", "nein", "--alias"],
    ),
    "an id twice": (lines([*records(), records()[3]]), None, [], ["1 such id: 'r00003'"]),
    "no id": (lines(changed(range(4, 5), id=None)), None, [], ["rows without an id", "row 4"]),
    "ids that are rounded": (
        lines([{**record, "id": 10637199005029101436 + i} for i, record in enumerate(records())]), None, [],
        ["ids that are no exact whole numbers", "2^53", "as text, in quotes"],
    ),
    "no id beside objects": (
        lines([{**({} if i == 7 else {"id": f"r{i:05d}"}), "answer": {"a": 0.3, "b": [i]}} for i in range(300)]), None, [],
        ["rows without an id", "row 7"],
    ),
    "gold of other rows": (lines(records()), labeled(*CLASSES).replace("r0", "x0"), [], ["no gold row has an answer"]),
    "gold outside the classes": (
        lines(records()), labeled("positive", "great"), ["--classes", "positive,negative"], ["'great' (40)", "--alias"],
    ),
    "gold of one class": (lines(records()), labeled("positive"), [], ["1 names: 'positive'", "--classes"]),
    "nine gold rows": (lines(records()), labeled(*CLASSES, rows=9), [], ["too few gold rows", "9 rows", "at least 10"]),
    "a page in place of gold": (lines(records()), PAGE, [], ["--gold", "web page", "fetch the file again"]),
    "a page in place of answers": (PAGE, None, [], ["--answers", "web page", "fetch the file again"]),
    "a page among the lines": (lines(records()) + PAGE, None, [], ["line 301", "HTML"]),
    "half a line": (lines(records())[:-30], None, [], ["line 300", "cut off"]),
    "batch: a page": (f"{BATCH}{PAGE}", None, [], ["line 301", "HTML: the answer of a server"]),
    "batch: half a line": (f'{BATCH}{{"custom_id": "r1", "resp', None, [], ["line 301", "cut off"]),
    "batch: an id twice": (f"{BATCH}{BATCH}", None, [], ["300 such ids", "'r00000'"]),
}  # fmt: skip


@pytest.mark.parametrize("command", ["advise", "correct"])
@pytest.mark.parametrize("case", ERRORS)
def test_bad_input_is_one_clear_error_of_either_command(
    case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, gold, flags, expected = ERRORS[case]
    batch = ANSWERS["openai"](ROWS, tmp_path).read_text()
    (tmp_path / "a.jsonl").write_text(answers.replace(BATCH, batch))
    (tmp_path / "gold.csv").write_text(gold or gold_csv(GOLD_ROWS, tmp_path).read_text())
    before = sorted(tmp_path.iterdir())
    output = {"advise": ["--plan", "next.csv"], "correct": ["--output", "t.parquet"]}[command]
    sources = ["--answers", "a.jsonl", "--gold", "gold.csv", *flags]
    with chdir(tmp_path):
        code = cli.main([command, *sources, *output])
    told = capsys.readouterr().err
    assert code == 2 and told.count("error: ") == 1, told
    for text in (*expected, "found:", "expected:", "to do:"):
        assert text in told, told
    assert sorted(tmp_path.iterdir()) == before


def test_files_that_options_name_are_no_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold_csv(GOLD_ROWS, tmp_path)
    (tmp_path / "a.jsonl").write_text(lines(records()))
    (tmp_path / "names.csv").write_text("negative\npositive\n")
    (tmp_path / "costs.csv").write_text("0,1\n2,0\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    sources = ["--answers", "a.jsonl", "--gold", "gold.csv"]
    with chdir(tmp_path):
        for command in (
            ["correct", *sources, "--classes", "names.csv", "--output", "names.csv"],
            ["advise", *sources, "--metric", "cost:costs.csv", "--plan", "costs.csv"],
            ["advise", *sources, "--classes", "names.csv", "--plan", "names.csv"],
        ):
            assert cli.main(command) == 2
            assert "the output is among the inputs" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_corrected_tables_are_escaped_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text(lines([*records(), {"id": "=1+1", "label": "positive", "confidence": 0.9}]))
    common = ["correct", "--answers", str(tmp_path / "a.jsonl"), "--gold", str(gold_csv(GOLD_ROWS, tmp_path))]
    output = tmp_path / "t.csv"
    assert cli.main([*common, "--escape-formulas", "--output", str(output)]) == 0
    assert '"\'=1+1"' in output.read_text()
    assert cli.main([*common, "--output", str(output)]) == 0
    assert '"=1+1"' in output.read_text()
    assert cli.main([*common, "--escape-formulas", "--output", str(output.with_suffix(".parquet"))]) == 2
    assert "needs --output FILE.csv" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["next.parquet", "next.csv"])
def test_a_plan_is_verified_as_whole_and_damage_to_it_is_seen(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(records()))
    sources = ["--answers", str(tmp_path / "a.jsonl"), "--gold", str(gold_csv(GOLD_ROWS, tmp_path))]
    plan = tmp_path / name
    assert cli.main(["advise", *sources, "--plan", str(plan)]) == 0
    if plan.suffix == ".csv":  # it has no place for a record
        assert cli.main(["verify", str(plan)]) == 2
        return
    assert cli.main(["verify", str(plan)]) == 0
    content = bytearray(plan.read_bytes())
    content[len(content) // 3] ^= 4
    plan.write_bytes(content)
    assert cli.main(["verify", str(plan)]) == 3


WARNINGS: dict[str, tuple[str, str | None, list[str], str]] = {
    "gold rows without an answer": (lines(records()[10:]), None, [], "10 of 80 gold rows have no usable answer"),
    "a class without gold": (
        lines(changed(range(100, 130), label="mixed")), None, ["--classes", "positive,negative,mixed"],
        "1 of 3 classes have no gold row: mixed. The teacher gives them to 13.6% of the rows",
    ),
    "answers without a text": (
        lines(changed(range(100, 105), text=" ")), None, ["--text", "text"], "5 rows have no text",
    ),
    "unknown classes, rarely": (lines(changed(range(100, 102), label="hm")), None, [], "2 refusals"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", WARNINGS)
def test_what_can_be_worked_with_is_counted(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers, gold, flags, expected = WARNINGS[case]
    (tmp_path / "a.jsonl").write_text(answers)
    (tmp_path / "gold.csv").write_text(gold or gold_csv(GOLD_ROWS, tmp_path).read_text())
    with chdir(tmp_path):
        assert cli.main(["correct", "--answers", "a.jsonl", "--gold", "gold.csv", *flags, "--output", "t.parquet"]) == 0
    assert expected in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "gold.csv", "t.parquet"]


# texts in another table -----------------------------------------------------------------------------------------------


def pool_of(folder: Path, order: Sequence[int], more: Sequence[tuple[str, str]] = (), name: str = "pool.csv") -> Path:
    """Texts in some order, and rows that nobody answered."""
    rows = [*((ROWS.ids[i], ROWS.texts[i]) for i in order), *more]
    pq_table = pa.table({"text": [text for _, text in rows], "id": [key for key, _ in rows]})
    path = folder / name
    pq.write_table(pq_table, path) if path.suffix == ".parquet" else arrow_csv.write_csv(pq_table, path)
    return path


def with_pool(folder: Path, pool: Path, output: Path) -> int:
    answers, gold = ANSWERS["openai"](ROWS, folder), gold_csv(GOLD_ROWS, folder)
    sources = ["--answers", answers, "--gold", gold, "--pool", pool, "--text", "text", "--output", output]
    return cli.main(["correct", *map(str, sources)])


@pytest.mark.slow
def test_texts_of_another_table_are_joined_by_id_in_any_order(tmp_path: Path) -> None:
    shuffled = np.random.default_rng(7).permutation(300).tolist()
    unanswered = [(f"x{i}", "a film that nobody was asked about") for i in range(50)]
    found = []
    for name, order, more in (
        ("sorted.csv", range(300), []),
        ("backwards.parquet", range(299, -1, -1), []),
        ("shuffled.csv", shuffled, []),
        ("others.csv", shuffled, unanswered),
    ):
        assert with_pool(tmp_path, pool_of(tmp_path, order, more, name), tmp_path / "t.parquet") == 0
        rows = {row["id"]: row for row in pq.read_table(tmp_path / "t.parquet").to_pylist()}
        assert {*rows} == {*ROWS.ids}
        found.append(rows)
    for rows in found[1:3]:  # texts that nobody was asked about change what words are worth
        assert all(np.allclose(rows[key]["targets"], found[0][key]["targets"], atol=0.05) for key in rows)
    truth = dict(zip(ROWS.ids, (CLASSES[number] for number in ROWS.truth), strict=True))
    for rows in found:
        assert np.mean([row["label"] == truth[key] for key, row in rows.items()]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([*range(300), 3], "ids that occur more than once"),  # a gold row
        ([*range(300), 200], "ids that occur more than once"),
        (range(290), "10 of 220 answers have no row there"),
        (range(5, 300), "5 gold rows missing"),
    ],
)
def test_a_pool_with_too_many_or_too_few_rows_is_refused(
    order: Sequence[int], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = pool_of(tmp_path, order)
    assert with_pool(tmp_path, pool, tmp_path / "t.parquet") == 2
    told = capsys.readouterr().err
    assert expected in told and f"--pool {pool}" in told
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("t.parquet")]


def test_a_pool_without_ids_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = pool_of(tmp_path, range(300))
    pool.write_text(pool.read_text().replace('"id"', '"key"', 1))
    assert with_pool(tmp_path, pool, tmp_path / "t.parquet") == 2
    assert "no ids" in capsys.readouterr().err


MEASURE = """
import sys
from tests.hostile import status
from wdistill import cli
assert cli.main(sys.argv[1:]) == 0
print(status("VmHWM") >> 20)
"""  # not ru_maxrss, which begins with the size of the process that started this one


@pytest.mark.proof
@pytest.mark.slow
def test_memory_does_not_grow_with_the_texts_of_another_table(tmp_path: Path) -> None:
    """Ten times the rows, some 75 MB of texts more, in several passes: what grows, by 60 to 70 MB, are predictions."""
    peaks = []
    for n in (10_000, 100_000):
        rng = np.random.default_rng(0)
        ids = [f"r{i:06d}" for i in range(n)]
        words = rng.choice(ROWS.texts, (n, 9))
        texts = [" ".join(row) for row in words]
        labels = rng.choice(CLASSES, n)
        lines_written = [json.dumps({"id": key, "label": str(label)}) for key, label in zip(ids, labels, strict=True)]
        (tmp_path / "a.jsonl").write_text("\n".join(lines_written) + "\n")
        arrow_csv.write_csv(pa.table({"id": ids[::-1], "text": texts}), tmp_path / "pool.csv")
        (tmp_path / "gold.csv").write_text(
            "id,label\n" + "".join(f"{key},{CLASSES[i % 2]}\n" for i, key in enumerate(ids[:80]))
        )
        files = {"answers": "a.jsonl", "gold": "gold.csv", "pool": "pool.csv", "output": f"t{n}.parquet"}
        flags = [word for name, path in files.items() for word in (f"--{name}", str(tmp_path / path))]
        command = [sys.executable, "-c", MEASURE, "correct", *flags, "--text", "text"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]))
    assert (tmp_path / "pool.csv").stat().st_size > 75e6
    assert peaks[1] - peaks[0] < 90, peaks
