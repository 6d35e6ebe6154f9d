"""`correct --engine`: the rows of the one-process command, gold rows included, whatever form the answers have."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.answer_forms import ANSWERS, BATCHES, CLASSES, Rows, gold_csv, make, part, texts
from tests.partitions import bytes_of, failing_after, rows_of
from tests.test_cli import fail
from tests.test_engines import unruly
from wdistill import cli
from wdistill.adapters.table import read_targets
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.targets import correct_files
from wdistill.core.errors import ConfigError, InputError, StorageError, UnfinishedError
from wdistill.engines import correct as correct_engine
from wdistill.engines.correct import correct_partitions
from wdistill.engines.local import run_here
from wdistill.tables.manifest import MANIFEST

ROWS = make(300)
ENDS = (0, 110, 150, 300)  # the rows of three files
FEW = ("objects", "anthropic")  # corrected by `make test`; `make proofs` corrects all
TEXT = AnswerOptions(text="text")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdistill.methods.crossfit.TREES", 10)


def in_files(form: str, folder: Path, rows: Rows = ROWS) -> Sources:
    """Answers in a folder of three files, gold labels, and a folder of the texts, where the answers have none."""
    for number, (first, last) in enumerate(itertools.pairwise(ENDS)):
        here = folder / str(number)
        here.mkdir()
        for name, write in {"answers": ANSWERS[form], "texts": texts}.items():
            path = write(part(rows, first, last), here)
            (folder / name).mkdir(exist_ok=True)
            shutil.move(path, folder / name / f"{number}{path.suffix}")
    gold = gold_csv(part(rows, 60, 140), folder)
    return Sources([str(folder / "answers")], str(gold), str(folder / "texts") if form in BATCHES else None)


def both(given: Sources, folder: Path, options: AnswerOptions = TEXT) -> tuple[dict[str, Any], dict[str, Any]]:
    """Correct by one process and by an engine, and compare all rows, bit by bit; the records of both."""
    alone = json.loads(json.dumps(correct_files(given, folder / "alone.parquet", options)))
    record = correct_partitions(given, str(folder / "o"), options, run_here)
    assert rows_of(folder / "o").equals(rows_of(folder / "alone.parquet"))
    return alone, record


@pytest.mark.parametrize("form", [pytest.param(form, marks=() if form in FEW else pytest.mark.proof) for form in ANSWERS])
def test_every_form_in_files_becomes_the_rows_of_one_process(form: str, tmp_path: Path) -> None:
    alone, record = both(in_files(form, tmp_path), tmp_path)
    for name in ("rows", "gold", "changed", "why", "class_names", "answers", "fitted", "prospect", "histogram", "warnings"):
        assert record[name] == alone[name], name
    assert len(record["parts"]) == 4 and record["parts"][-1]["input"].endswith("gold.csv")
    assert record["parts"][-1]["rows"] == 80


@pytest.mark.parametrize(
    "options",
    [
        AnswerOptions(),
        AnswerOptions(refusals="uniform", targets="hard"),
        AnswerOptions(inputs=("confidence", "text"), targets_from="trees"),
    ],
    ids=str,
)
def test_all_options_give_the_rows_of_one_process(tmp_path: Path, options: AnswerOptions) -> None:
    both(in_files("label_and_confidence", tmp_path), tmp_path, options)


def test_a_sample_of_the_rows_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdistill.tables.experts.SAMPLE", 40)
    alone, record = both(in_files("label", tmp_path), tmp_path, AnswerOptions(inputs=("text",)))
    assert record["prospect"] == alone["prospect"] and alone["prospect"]["sampled"] == 40


def test_types_are_those_of_the_first_file(tmp_path: Path) -> None:
    """In the second file the texts look like numbers, and the answers like whole ones."""
    header, rows = "id,text,answer\n", [(f"a{i}", f"{word} film", i % 2) for i, word in enumerate(ROWS.texts)]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.csv").write_text(header + "".join(f"{key},{text},{label}.0\n" for key, text, label in rows))
    (tmp_path / "a" / "1.csv").write_text(header + "".join(f"b{i},007,{i % 2}\n" for i in range(20)))
    (tmp_path / "gold.csv").write_text("id,label\n" + "".join(f"a{i},{(i + (i % 7 == 0)) % 2}\n" for i in range(60)))
    both(Sources([str(tmp_path / "a")], str(tmp_path / "gold.csv"), None), tmp_path)


def test_several_sources_have_their_own_forms_and_gold_may_stand_among_the_answers(tmp_path: Path) -> None:
    gold = [CLASSES[truth] if i % 4 == 0 else None for i, truth in enumerate(ROWS.truth)]
    one = {"id": ROWS.ids[:200], "text": ROWS.texts[:200], "pred_probs": ROWS.teacher[:200].tolist(), "truth": gold[:200]}
    other = {"id": ROWS.ids[200:], "text": ROWS.texts[200:], "label": ROWS.labels[200:], "truth": gold[200:]}
    pq.write_table(pa.table(one), tmp_path / "one.parquet")
    pq.write_table(pa.table(other), tmp_path / "other.parquet")
    given = Sources([str(tmp_path / "one.parquet"), str(tmp_path / "other.parquet")], None, None)
    _, record = both(given, tmp_path, AnswerOptions(text="text", label="truth"))
    assert record["parts"][-1]["rows"] == 75


def test_a_file_of_gold_rows_and_refusals_alone_has_no_file(tmp_path: Path) -> None:
    given = in_files("label", tmp_path, make(300, seed=2))
    prose = "I cannot judge a film about my own family, or that of a friend"
    (tmp_path / "answers" / "1.csv").write_text(f"id,text,label\nr00110,gold,negative\nx,prose,{prose.replace(',', '')}\n")
    _, record = both(given, tmp_path, AnswerOptions())
    assert [part["rows"] for part in record["parts"]] == [60, 0, 150, 80]


def test_a_teacher_that_is_right_on_all_gold_rows_is_changed_nowhere(tmp_path: Path) -> None:
    right = replace(ROWS, truth=ROWS.teacher.argmax(axis=1))
    alone, record = both(in_files("label", tmp_path, right), tmp_path, AnswerOptions())
    assert record["changed"] == alone["changed"] == 0


def test_what_an_engine_repeats_reorders_or_gives_up_changes_no_byte(tmp_path: Path) -> None:
    given, options = in_files("label_and_confidence", tmp_path), AnswerOptions()
    correct_partitions(given, str(tmp_path / "plain"), options, run_here)
    correct_partitions(given, str(tmp_path / "unruly"), options, partial(unruly, seed=1))
    with pytest.raises(UnfinishedError):
        correct_partitions(given, str(tmp_path / "resumed"), options, failing_after(2))
    assert not (tmp_path / "resumed" / MANIFEST).exists()
    correct_partitions(given, str(tmp_path / "resumed"), options, run_here)
    for name in ("unruly", "resumed"):
        assert bytes_of(tmp_path / name) == bytes_of(tmp_path / "plain")
    with pytest.raises(ConfigError, match="the output folder holds another result"):
        correct_partitions(given, str(tmp_path / "plain"), AnswerOptions(refusals="uniform"), run_here)


def test_remote_answers_make_the_same_rows_and_errors_name_their_addresses(tmp_path: Path) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    given = in_files("openai", tmp_path)
    assert given.rows is not None
    for name in ("answers", "texts"):
        system.put(str(tmp_path / name), f"/b/{name}", recursive=True)
    system.put_file(str(given.gold), "/b/gold.csv")
    remote = Sources(["memory://b/answers"], "memory://b/gold.csv", "memory://b/texts")
    correct_files(Sources(given.answers, given.gold, given.rows), tmp_path / "alone.parquet", TEXT)
    correct_partitions(remote, "memory://b/o", TEXT, run_here)
    system.get("/b/o", str(tmp_path / "o"), recursive=True)
    assert rows_of(tmp_path / "o").equals(rows_of(tmp_path / "alone.parquet"))
    system.pipe_file("/b/answers/1.jsonl", b"{}\n")
    with pytest.raises(Exception, match=r"memory:///b/answers/1.jsonl, line 1"):
        correct_partitions(remote, str(tmp_path / "x"), TEXT, run_here)
    system.store.clear()


# the command ----------------------------------------------------------------------------------------------------------


def command(given: Sources, output: Path, *more: str) -> list[str]:
    rows = ["--pool", given.rows] if given.rows else []
    return [
        "correct",
        "--answers",
        *given.answers,
        "--gold",
        given.gold or "",
        *rows,
        "--text",
        "text",
        "--output",
        str(output),
        "--engine",
        "local",
        *more,
    ]


def test_the_command_writes_a_folder_that_others_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = in_files("label", tmp_path)
    assert cli.main(command(given, tmp_path / "o", "--workers", "2")) == 0
    correct_partitions(given, str(tmp_path / "one"), TEXT, run_here)
    assert bytes_of(tmp_path / "o") == bytes_of(tmp_path / "one")
    assert "220 rows of the pool and 80 gold rows" in capsys.readouterr().out
    assert cli.main(["verify", str(tmp_path / "o")]) == 0
    assert "5 of 5 files whole" in capsys.readouterr().out
    assert cli.main(["inspect", str(tmp_path / "o"), "--picture", str(tmp_path / "o.svg")]) == 0
    shown = capsys.readouterr().out
    assert "recalibrated" in shown and "classes, in order" in shown and ", ".join(CLASSES) in shown and "refused" in shown
    assert read_targets(tmp_path / "o").classes == CLASSES
    capsys.readouterr()
    assert cli.main(command(given, tmp_path / "o")) == 0
    assert "nothing was left to do" in capsys.readouterr().err


def test_what_an_engine_cannot_do_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = in_files("anthropic", tmp_path)
    shutil.copy(tmp_path / "texts" / "0.csv", tmp_path / "one.csv")
    message = fail(capsys, *command(Sources(given.answers, given.gold, str(tmp_path / "one.csv")), tmp_path / "o"))
    assert "tables of different numbers of files" in message and "leave out --engine" in message
    assert "has no meaning with --engine" in fail(capsys, *command(given, tmp_path / "o", "--escape-formulas"))
    np.save(tmp_path / "a.npy", ROWS.teacher)
    array = Sources([str(tmp_path / "a.npy")], given.gold, None)
    assert "arrays have no ids" in fail(capsys, *command(array, tmp_path / "o"))
    inside = {"text": ROWS.texts, "label": ROWS.labels, "truth": [None, *ROWS.labels[1:]]}
    pq.write_table(pa.table(inside), tmp_path / "counted.parquet")
    with pytest.raises(InputError, match="there are no ids in this file"):
        given = Sources([str(tmp_path / "counted.parquet")], None, None)
        correct_partitions(given, str(tmp_path / "o"), AnswerOptions(label="truth"), run_here)
    assert not (tmp_path / "o").exists()


def test_what_can_be_told_at_once_is_told_before_answers_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = in_files("label", tmp_path)

    def reads(*given: Any) -> None:
        raise AssertionError("answers are read")

    monkeypatch.setattr(correct_engine, "open_pool", reads)
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "notes.txt").write_text("mine")
    assert "holds something else" in fail(capsys, *command(given, tmp_path / "o"))
    assert "with --engine the output is a folder" in fail(capsys, *command(given, tmp_path / "o" / "notes.txt"))
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for engine in ("ray", "spark"):
        asked = [engine if word == "local" else word for word in command(given, tmp_path / "p")]
        assert f"wdistill[{engine}]" in fail(capsys, *asked)


def test_rows_of_another_file_of_the_pool_are_told(tmp_path: Path) -> None:
    given = in_files("openai", tmp_path)
    (tmp_path / "texts" / "0.csv").rename(tmp_path / "texts" / "x.csv")
    with pytest.raises(InputError, match=r"--pool .*texts/1.csv: answers for rows that are not there"):
        correct_partitions(given, str(tmp_path / "o"), TEXT, run_here)


def test_lost_rows_and_another_scikit_learn_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = in_files("label", tmp_path)

    def losing(work: Any, questions: Any) -> Iterator[str]:
        for question in questions:
            yield work(question).replace('"rows": 150', '"rows": 149')

    with pytest.raises(StorageError, match=r"rows of the output are missing\n.*299 rows\n.*300"):
        correct_partitions(given, str(tmp_path / "o"), AnswerOptions(), losing)
    versions = itertools.chain(["1.0"], itertools.repeat("2.0"))
    monkeypatch.setattr(correct_engine, "_sklearn", lambda: next(versions))
    with pytest.raises(ConfigError, match="scikit-learn is of another version"):
        correct_partitions(given, str(tmp_path / "p"), TEXT, run_here)
