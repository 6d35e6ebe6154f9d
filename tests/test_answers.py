"""Answers of an LLM and gold labels in every form in which people hold them, and what is said of those that are none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.answer_forms import ANSWERS, BATCHES, CLASSES, GOLD, Rows, gold_csv, make, part, texts
from wdistill import advise_answers, cli, correct, read_answers
from wdistill.answers.batch_files import read_batch_file
from wdistill.answers.classes import make_classes, ordered, plain
from wdistill.answers.gold_labels import read_gold_labels
from wdistill.answers.logprobs import class_probabilities
from wdistill.answers.pool import AnswerPool, Survey, open_pool, survey
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.said import read_text
from wdistill.core.errors import FileError, InputError, WdistillError, WdistillWarning
from wdistill.tables.output import read_record

ROWS = make(300)
GOLD_ROWS = part(ROWS, 0, 80)
NAMES = make_classes(CLASSES)


def surveyed(folder: Path, answers: Path, rows: Path | None = None, **options: Any) -> tuple[AnswerPool, Survey]:
    gold = gold_csv(GOLD_ROWS, folder)
    pool = open_pool(Sources([str(answers)], str(gold), str(rows) if rows else None), AnswerOptions(**options))
    (folder / "scratch").mkdir(exist_ok=True)
    return pool, survey(pool, folder / "scratch")


# names ----------------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(CLASSES),
    st.sampled_from(["{}", "{}.", " {}\n", '"{}"', "**{}**", "'{}'!", "Label: {}", "answer = {}", "({})", "`{}`."]),
    st.sampled_from([str.lower, str.upper, str.title]),
)
def test_a_name_is_known_whatever_its_case_blanks_quotes_or_trailing_stop(
    name: str, around: str, case: Callable[[str], str]
) -> None:
    assert NAMES.names[NAMES.number(around.format(case(name)))] == name
    assert read_text(around.format(case(name)), NAMES).number == CLASSES.index(name)


@pytest.mark.parametrize(
    "text", ["", "  ", "not positive", "positive or negative", "I cannot say.", "posit", "x" * 5000, None]
)
def test_what_names_no_class_is_taken_for_none(text: str | None) -> None:
    assert NAMES.number(text) == -1 and read_text(text, NAMES).number == -1


def test_classes_keep_their_order_numbers_by_size_and_aliases_are_names() -> None:
    assert ordered(["b", "B", "b ", "a"]) == ("a", "b") and ordered([10, "2", 3.0]) == ("2", "3.0", "10")
    classes = make_classes(["good", "bad"], {"fine": "good", "1": "good", "0": "bad"})
    assert [classes.number(text) for text in ("Fine.", 1, 0.0, "bad", "poor")] == [0, 0, 1, 1, -1]
    for names, aliases in ((["a", "A."], {}), (["a"], {}), (["a", "b"], {"x": "c"}), (["a", "b"], {"a": "b"})):
        with pytest.raises(WdistillError):
            make_classes(names, aliases)
    assert plain(" “Néw” ") == "néw"


@pytest.mark.parametrize(
    ("text", "number", "confidence"),
    [
        ('{"label": "positive", "confidence": 0.7}', 1, 0.7),
        ("{'answer': 'Negative.', 'score': '80%'}", 0, 0.8),
        ('Sure! ```json\n{"category": "POSITIVE"}\n```', 1, None),
        ('{"reason": "it is {odd}", "label": "negative", "confidence": "0.55"}', 0, 0.55),
        ('{"label": "so-so"}', -1, None),
        ("[" * 5000, -1, None),
    ],
)
def test_answers_inside_json_are_read(text: str, number: int, confidence: float | None) -> None:
    said = read_text(text, NAMES)
    assert said.number == number and (said.confidence == confidence or number < 0)


# log-probabilities ----------------------------------------------------------------------------------------------------


def spoken(*alternatives: dict[str, float]) -> tuple[list[str], list[dict[str, float]]]:
    """The first token of each position is the one that was chosen."""
    logs = [{token: math.log(value) for token, value in each.items()} for each in alternatives]
    return [next(iter(each)) for each in alternatives], logs


@given(st.lists(st.floats(0.001, 0.2), min_size=4, max_size=4))
def test_spellings_of_a_class_are_added_up_and_the_rest_is_missing(masses: list[float]) -> None:
    first = dict(zip(("positive", " Positive", "neg", "NEG"), masses, strict=True)) | {"Well": 0.05}
    tokens, logs = spoken(first)
    found = class_probabilities(tokens, logs, 0, NAMES)
    np.testing.assert_allclose(found, [masses[2] + masses[3], masses[0] + masses[1]], rtol=1e-12)


def test_where_a_token_begins_two_classes_the_next_ones_decide() -> None:
    classes = make_classes(["very good", "very bad", "poor", "1", "10"])
    tokens, logs = spoken({"very": 0.6, "Very": 0.2, "poor": 0.1}, {" good": 0.7, " bad": 0.25})
    np.testing.assert_allclose(class_probabilities(tokens, logs, 0, classes), [0.56, 0.2, 0.1, 0, 0])
    tokens, logs = spoken({"1": 0.9, "poor": 0.1})
    np.testing.assert_allclose(class_probabilities(tokens, logs, 0, classes), [0, 0, 0.1, 0.9, 0])
    tokens, logs = spoken({"1": 0.9}, {"0": 0.8})
    np.testing.assert_allclose(class_probabilities(tokens, logs, 0, classes), [0, 0, 0, 0, 0.72])


def test_inside_json_the_name_is_found_where_it_begins_and_missing_numbers_are_left_out() -> None:
    text = '{"label": "positive"}'
    parts = ['{"', "label", '":', ' "', "positive", '"}']
    logs: list[dict[str, float]] = [{each: 0.0} for each in parts]
    logs[4] = {"positive": math.log(0.9), "negative": math.log(0.08), "neutral": -9999.0}
    found = class_probabilities(parts, logs, read_text(text, NAMES).start, NAMES)
    np.testing.assert_allclose(found, [0.08, 0.9])


# forms ----------------------------------------------------------------------------------------------------------------

STATED, MEASURED, NEITHER = "stated confidence", "measured confidence", "no confidence"
SOURCES = dict.fromkeys(("label_and_confidence", "percentages", "objects", "struct", "object_text", "anthropic"), STATED)
EXACT = {*SOURCES, "wide", "lists", "openai"}


@pytest.mark.parametrize("form", ANSWERS)
def test_every_form_is_recognised_and_says_the_same(form: str, tmp_path: Path) -> None:
    answers = ANSWERS[form](ROWS, tmp_path)
    pool, seen = surveyed(tmp_path, answers, texts(ROWS, tmp_path) if form in BATCHES else None, text="text")
    assert seen.gold is not None and seen.gold.ids.to_pylist() == list(GOLD_ROWS.ids)
    assert pool.classes.names == CLASSES and np.array_equal(seen.gold.labels, GOLD_ROWS.truth)
    assert (SOURCES.get(form) or (NEITHER if form == "label" else MEASURED)) in seen.said(pool)
    assert seen.gold.values["text"].to_pylist() == list(GOLD_ROWS.texts)
    if form in EXACT:
        assert np.abs(seen.gold.teacher - GOLD_ROWS.teacher).max() < 1e-9
    elif form == "label":
        assert np.array_equal(seen.gold.teacher, np.eye(2)[GOLD_ROWS.teacher.argmax(axis=1)])
    else:  # votes, of five
        assert np.array_equal(np.round(5 * seen.gold.teacher), 5 * seen.gold.teacher)
        assert np.abs(seen.gold.teacher - GOLD_ROWS.teacher).mean() < 0.2


@pytest.mark.parametrize(("form", "reasons"), [("vllm_votes", {"error: too long": 1}), ("anthropic", {"error: expired": 1})])
def test_refusals_and_errors_are_counted_and_listed_by_id(form: str, reasons: dict[str, int], tmp_path: Path) -> None:
    _, seen = surveyed(tmp_path, ANSWERS[form](ROWS, tmp_path))
    assert {reason: seen.refused[reason] for reason in reasons} == reasons
    assert seen.refusals[ROWS.ids[-1]] in reasons
    assert sum(seen.refused.values()) == (2 if form == "anthropic" else 1)


@pytest.mark.parametrize("form", GOLD)
def test_gold_labels_are_read_in_every_form(form: str, tmp_path: Path) -> None:
    found = read_gold_labels(str(GOLD[form](GOLD_ROWS, tmp_path)))
    assert {key: NAMES.number(label) for key, label in found.labels.items()} == dict(
        zip(GOLD_ROWS.ids, GOLD_ROWS.truth.tolist(), strict=True)
    )
    agreement = 1 - 1 / 30 if form == "gold_annotators" else None
    assert found.agreement is None if agreement is None else found.agreement == pytest.approx(agreement)
    assert "80 gold labels" in found.said()


def test_annotators_without_a_majority_leave_a_row_out(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("id,label,annotator\na,yes,1\na,no,2\nb,yes,1\nb,Yes.,2\nb,no,3\nc,,1\n")
    found = read_gold_labels(str(path))
    assert dict(found.labels) == {"b": "Yes."} and found.tied == ("a",) and found.blank == 1


# commands -------------------------------------------------------------------------------------------------------------


def words(command: str, folder: Path, form: str, *more: object) -> list[str]:
    answers = ["--answers", str(ANSWERS[form](ROWS, folder)), "--gold", str(gold_csv(GOLD_ROWS, folder))]
    rows = ["--pool", str(texts(ROWS, folder))] if form in BATCHES else []
    return [command, *answers, *rows, "--text", "text", *map(str, more)]


FEW = ("label", "openai", "anthropic")  # corrected by `make test`; `make proofs` corrects all


@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param(form, marks=() if form in FEW else pytest.mark.proof) for form in ANSWERS])
def test_every_form_is_corrected_with_no_code_in_between(form: str, tmp_path: Path) -> None:
    output = tmp_path / "targets.parquet"
    assert cli.main(words("correct", tmp_path, form, "--output", output)) == 0
    table = pq.read_table(output)
    assert table.column_names == ["id", "targets", "label", "weight", "source"]
    dropped = {"vllm_votes": 1, "anthropic": 2}.get(form, 0)
    ids = table["id"].to_pylist()
    assert len(ids) == len(set(ids)) == 300 - dropped
    truth = dict(zip(ROWS.ids, ROWS.truth.tolist(), strict=True))
    right = [CLASSES.index(label) == truth[key] for key, label in zip(ids, table["label"].to_pylist(), strict=True)]
    gold = [source == "gold" for source in table["source"].to_pylist()]
    assert sum(gold) == 80 and all(r for r, g in zip(right, gold, strict=True) if g)
    assert np.mean([r for r, g in zip(right, gold, strict=True) if not g]) > 0.9  # the words tell; the teacher has 0.8
    targets = np.stack(table["targets"].to_pylist())
    assert np.allclose(targets.sum(axis=1), 1, atol=1e-6)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("targets.parquet.")]
    record = read_record(output)
    assert record is not None and record["class_names"] == list(CLASSES) and record["answers"]["rows"] == 300
    assert cli.main(["verify", str(output)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["label", "openai"])
def test_the_verdict_comes_first_then_the_teacher_class_by_class(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words("advise", tmp_path, form)) == 0
    told = capsys.readouterr().out
    lines = told.splitlines()
    assert lines[0].startswith("Verdict: correct the targets") and lines[1].startswith("300 answers: ")
    for text in ("80 gold labels", "Recalibrated on gold", "precision", "What it confuses", "Rows to label next"):
        assert text in told
    assert any(word in told for word in ("tedious", "superb", "clumsy"))  # texts are shown


@pytest.mark.slow
def test_what_the_targets_gain_by_a_metric_is_said_and_they_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for name, more in {"plain": [], "named": ["--metric", "f1:positive"]}.items():
        assert cli.main(words("correct", tmp_path, "label", "--output", tmp_path / f"{name}.parquet", *more)) == 0
        found[name] = pq.read_table(tmp_path / f"{name}.parquet").replace_schema_metadata()
    assert found["named"].equals(found["plain"])
    plain, named = capsys.readouterr().out.split("Targets: ")[1:]
    assert "by f1:positive a gain of +" in named and "by f1" not in plain
    assert cli.main(words("correct", tmp_path, "label", "--output", tmp_path / "n.parquet", "--metric", "f1:none")) == 2
    assert "of which class" in capsys.readouterr().err and not (tmp_path / "n.parquet").exists()


@pytest.mark.slow
def test_without_texts_the_teacher_is_recalibrated(tmp_path: Path) -> None:
    output = tmp_path / "t.csv"
    gold = gold_csv(GOLD_ROWS, tmp_path)
    answers = ANSWERS["label"](ROWS, tmp_path)
    assert cli.main(["correct", "--answers", str(answers), "--gold", str(gold), "--output", str(output)]) == 0
    head, *lines = output.read_text().splitlines()
    assert head == '"id","targets_negative","targets_positive","label","weight","source"' and len(lines) == 300
    sure = [max(map(float, line.split(",")[1:3])) for line in lines if line.endswith('"teacher"')]
    accuracy = np.mean(GOLD_ROWS.teacher.argmax(axis=1) == GOLD_ROWS.truth)
    assert abs(np.mean(sure) - accuracy) < 0.1  # a label is worth what the gold rows say


@pytest.mark.slow
def test_one_table_with_labels_on_some_rows_needs_no_ids(tmp_path: Path) -> None:
    lines = ["text,llm,truth"]
    for number, (text, label, truth) in enumerate(zip(ROWS.texts, ROWS.labels, ROWS.truth, strict=True)):
        lines.append(f"{text},{label},{CLASSES[truth] if number < 80 else ''}")
    path = tmp_path / "data.csv"
    path.write_text("\n".join(lines) + "\n")
    given_words = ["correct", "--answers", str(path), "--label", "truth", "--answer", "llm", "--text", "text"]
    assert cli.main([*given_words, "--output", str(tmp_path / "t.parquet")]) == 0
    table = pq.read_table(tmp_path / "t.parquet")
    gold = [
        key for key, source in zip(table["id"].to_pylist(), table["source"].to_pylist(), strict=True) if source == "gold"
    ]
    assert sorted(map(int, gold)) == list(range(80)) and len(table) == 300


@pytest.mark.proof
@pytest.mark.slow
def test_inputs_are_numbers_categories_and_vectors(tmp_path: Path) -> None:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    columns = {
        "id": list(ROWS.ids),
        "label": ROWS.labels,
        "age": ROWS.truth + rng.normal(0, 0.4, 300),
        "town": [("Ulm" if t else "Bonn") if rng.random() < 0.9 else "Köln" for t in ROWS.truth],
        "vector": rng.normal(size=(300, 3)).tolist(),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    gold = gold_csv(GOLD_ROWS, tmp_path)
    sources = ["--answers", str(tmp_path / "a.parquet"), "--gold", str(gold), "--inputs", "age,town,vector"]
    assert cli.main(["correct", *sources, "--output", str(tmp_path / "t.parquet")]) == 0
    table = pq.read_table(tmp_path / "t.parquet").to_pydict()
    truth = dict(zip(ROWS.ids, ROWS.truth.tolist(), strict=True))
    assert (
        np.mean([truth[key] == CLASSES.index(label) for key, label in zip(table["id"], table["label"], strict=True)]) > 0.9
    )
    assert cli.main(["advise", *sources]) == 0


def test_uniform_refusals_stay_in_the_pool(tmp_path: Path) -> None:
    answers = ANSWERS["anthropic"](ROWS, tmp_path)
    for choice, rows in (("drop", 298), ("uniform", 300)):
        output = tmp_path / f"{choice}.parquet"
        gold = gold_csv(GOLD_ROWS, tmp_path)
        given_words = ["correct", "--answers", str(answers), "--gold", str(gold), "--refusals", choice]
        assert cli.main([*given_words, "--output", str(output)]) == 0
        assert len(pq.read_table(output)) == rows


# in Python ------------------------------------------------------------------------------------------------------------


def frames() -> dict[str, Any]:
    import pyarrow as pa

    columns = {"id": list(ROWS.ids), "text": list(ROWS.texts), "label": ROWS.labels, "confidence": ROWS.teacher.max(axis=1)}
    table = pa.table(columns)
    views = table.cast(table.schema.set(1, pa.field("text", pa.string_view())))
    return {"a dict": columns, "an Arrow table": table, "string views": views, "a reader": table.to_reader()}


@pytest.mark.parametrize("kind", ["a dict", "an Arrow table", "string views", "a reader"])
def test_frames_in_memory_are_read_as_files_are(kind: str, tmp_path: Path) -> None:
    wanted = read_answers(ANSWERS["label_and_confidence"](ROWS, tmp_path))
    found = read_answers(frames()[kind])
    assert (
        str(found) == str(wanted) == "300 answers: label with stated confidence, stated confidence, 2 classes, no refusals"
    )
    assert np.array_equal(found.probabilities, wanted.probabilities) and found.ids.tolist() == list(ROWS.ids)
    assert found.classes == CLASSES


def test_arrays_are_lists_of_probabilities() -> None:
    for given_array in (ROWS.teacher, torch.from_numpy(ROWS.teacher)):
        found = read_answers(given_array, classes=CLASSES)
        np.testing.assert_allclose(found.probabilities, ROWS.teacher, atol=1e-9)
        assert found.ids[:2].tolist() == ["0", "1"]
    with pytest.raises(WdistillError, match="this is no table"):
        read_answers(3)


@pytest.mark.slow
def test_targets_in_python_are_those_of_the_command(tmp_path: Path) -> None:
    gold = {"id": list(GOLD_ROWS.ids), "label": [CLASSES[number] for number in GOLD_ROWS.truth]}
    found = correct(frames()["an Arrow table"], gold, text="text")
    output = tmp_path / "t.parquet"
    assert cli.main(words("correct", tmp_path, "label_and_confidence", "--output", output)) == 0
    assert found.table.equals(pq.read_table(output).replace_schema_metadata())
    assert found.classes == CLASSES and "averaged with their correction by teacher, trees" in found.why
    advice = advise_answers(frames()["a dict"], gold, text="text")
    assert advice.verdict.startswith("correct the targets") and len(advice.changed) == 20 == len(advice.next)
    page = advice._repr_html_()
    assert page.startswith("<p><b>correct the targets") and page.count("<table>") == 3 and "superb" in page
    with pytest.raises(WdistillError, match="unknown setting"):
        correct(frames()["a dict"], gold, texts="text")


# bad input ------------------------------------------------------------------------------------------------------------


def lines_of(*changes: tuple[int, dict[str, Any]]) -> str:
    records = [
        {"id": key, "text": text, "label": label, "confidence": 0.8}
        for key, text, label in zip(ROWS.ids, ROWS.texts, ROWS.labels, strict=True)
    ]
    for row, change in changes:
        records[row] |= change
    return "".join(json.dumps(record) + "\n" for record in records)


def gold_of(*labels: str, key: str = "r{:05d}", head: str = "id,label") -> str:
    rows = [f"{key.format(number)},{labels[number % len(labels)]}\n" for number in range(20)]
    return f"{head}\n{''.join(rows)}"


MIXED = [(row, {"label": "mixed"}) for row in range(20)]
NEAR = [(row, {"label": "positiv"}) for row in range(9)]
BAD: dict[str, tuple[str, str | None, list[str]]] = {
    "unknown classes": (lines_of(*MIXED), None, ["'mixed' (20 times in 300 answers)", "--classes", "no answer"]),
    "a near name": (lines_of(*NEAR), None, ["--alias 'positiv'='positive'"]),
    "a confidence above 1": (lines_of((7, {"confidence": 90.0})), None, ["confidences that are none", "'r00007'", "divide"]),
    "an id twice": (lines_of((7, {"id": "r00008"})), None, ["r00008"]),
    "no text": (lines_of().replace('"text"', '"body"'), None, ["no column 'text'", "--pool"]),
    "other ids": (
        lines_of(),
        gold_of("positive", "negative", key="x{}"),
        ["--gold", "no gold row has an answer", "'r00000'"],
    ),
    "other classes": (lines_of(), gold_of("great", "awful"), ["a class that is not known"]),
    "few gold rows": (lines_of(), "id,label\nr00000,positive\nr00001,negative\n", ["too few gold rows"]),
    "gold without labels": (lines_of(), "id,label\nr00000,\n", ["no gold labels"]),
    "a gold label misspelled": (lines_of(), gold_of("positive", "negative", "postive"), ["--alias 'postive'='positive'"]),
    "gold labels shortened": (lines_of(), gold_of("pos", "negative", "positive"), ["--alias 'pos'='positive'"]),
    "another name of the texts": (lines_of().replace('"text"', '"texts"'), None, ["did you mean 'texts'?"]),
    "gold without ids": (
        lines_of(),
        gold_of("positive", "negative", head="row,label"),
        ["no ids", "--id", "columns row, label", "number the rows"],
    ),
    "gold rows without an id": (
        lines_of(),
        gold_of("positive", "negative") + 5 * ",positive\n",
        ["without an id", "5 rows"],
    ),
    "gold twice": (lines_of(), "id,label\nr00001,positive\nr00001,negative\n", ["twice", "annotator"]),
    "half a line": (lines_of()[:-30], None, ["cannot be read", "line 300"]),
    "a page": ("<html><body>502 Bad Gateway</body></html>", None, ["web page", "fetch the file again"]),
    "nothing": ("", None, ["empty"]),
    "other columns": (lines_of().replace('"label"', '"note"'), None, ["no answers are recognised", "--answer"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_error_and_nothing_is_written(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, gold, expected = BAD[case]
    (tmp_path / "a.jsonl").write_text(answers)
    path = gold_csv(GOLD_ROWS, tmp_path) if gold is None else tmp_path / "gold.csv"
    if gold is not None:
        path.write_text(gold)
    before = sorted(tmp_path.iterdir())
    sources = ["--answers", str(tmp_path / "a.jsonl"), "--gold", str(path), "--text", "text"]
    code = cli.main(["correct", *sources, "--output", str(tmp_path / "t.parquet")])
    told = capsys.readouterr().err
    assert code == 2 and told.startswith("error: "), told
    for text in (*expected, "found:", "expected:", "to do:"):
        assert text in told, told
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("<html>502</html>", "HTML"),
        ('{"custom_id": "a", "response": {"body"', "line 301"),
        ('{"custom_id": "a", "note": 1}', "custom_id, and response or result"),
        ("[" * 5000, "open brackets"),
    ],
)
def test_a_bad_line_of_a_batch_file_is_named(line: str, expected: str, tmp_path: Path) -> None:
    path = ANSWERS["openai"](ROWS, tmp_path)
    path.write_text(path.read_text() + line)
    with pytest.raises(WdistillError, match="line 301") as error:
        surveyed(tmp_path, path)
    assert expected in str(error.value)


def test_gold_rows_without_an_answer_are_a_warning_and_taught_as_labels(tmp_path: Path) -> None:
    kept = part(ROWS, 10, 300)
    with pytest.warns(WdistillWarning, match="10 of 80 gold rows have no usable answer"):
        pool, seen = surveyed(tmp_path, ANSWERS["label"](kept, tmp_path))
    assert seen.gold is not None and len(seen.gold.ids) == 70 and len(pool.numbers) == 80


def test_answers_for_rows_that_have_no_text_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = ANSWERS["openai"](ROWS, tmp_path)
    rows = texts(part(ROWS, 0, 290), tmp_path)
    sources = [
        "--answers",
        str(answers),
        "--gold",
        str(gold_csv(GOLD_ROWS, tmp_path)),
        "--pool",
        str(rows),
        "--text",
        "text",
    ]
    assert cli.main(["correct", *sources, "--output", str(tmp_path / "t.parquet")]) == 2
    assert "10 of 220 answers have no row there" in capsys.readouterr().err


def test_a_gold_label_that_is_no_class_names_the_nearest(tmp_path: Path) -> None:
    gold = gold_csv(GOLD_ROWS, tmp_path)
    gold.write_text(gold.read_text().replace("positive", "positve", 1))
    with pytest.raises(InputError, match="did you mean 'positive'"):
        open_pool(Sources([str(ANSWERS["label"](ROWS, tmp_path))], str(gold), None), AnswerOptions(classes=CLASSES))


def test_aliases_merge_gold_labels_and_labels_that_nobody_answers_are_told(tmp_path: Path) -> None:
    gold = gold_csv(GOLD_ROWS, tmp_path)
    answers = ANSWERS["label"](ROWS, tmp_path)
    (tmp_path / "scratch").mkdir()
    gold.write_text(gold.read_text().replace("positive", "pos", 9))
    pool = open_pool(Sources([str(answers)], str(gold), None), AnswerOptions(alias=("pos=positive",)))
    assert pool.classes.names == CLASSES
    gold.write_text(gold.read_text().replace("pos\n", "mixed\n").replace("pos\r", "mixed\r"))
    with pytest.warns(WdistillWarning, match="'mixed' in 9 gold labels, and in no answer"):
        survey(open_pool(Sources([str(answers)], str(gold), None), AnswerOptions()), tmp_path / "scratch")


def test_gold_labels_may_have_a_column_of_ids_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = gold_csv(GOLD_ROWS, tmp_path)
    gold.write_text(gold.read_text().replace("id,label", "review,label"))
    given_words = ["correct", "--answers", str(ANSWERS["label"](ROWS, tmp_path)), "--gold", str(gold), "--gold-id", "review"]
    assert cli.main([*given_words, "--output", str(tmp_path / "t.parquet")]) == 0
    told = capsys.readouterr().err
    assert "300 answers: label, no confidence, 2 classes, no refusals" in told and "classes: negative, positive" in told
    assert "The answers have a column 'text': with --text text" in told


def test_flags_of_answers_and_of_tables_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise"]) == 2 and "--answers FILE and --gold FILE" in capsys.readouterr().err
    assert cli.main([*words("advise", tmp_path, "label"), "--validation", "v.parquet"]) == 2
    assert "--validation" in capsys.readouterr().err
    assert cli.main(["advise", "--validation", "v", "--unlabeled", "u", "--text", "text"]) == 2
    assert "needs --answers" in capsys.readouterr().err


def test_rows_of_the_test_are_made_the_same_every_time() -> None:
    again: Rows = make(300)
    assert again.texts == ROWS.texts and np.array_equal(again.teacher, ROWS.teacher)


@pytest.mark.parametrize("part", ['"data": 5', '"annotations": [3]', '"annotations": [{"result": ["x"]}]'])
def test_a_task_of_label_studio_that_is_none_is_an_error_of_ours(tmp_path: Path, part: str) -> None:
    good = '{"data": {"id": 1}, "annotations": [{"result": [{"value": {"choices": ["a"]}}]}]}'
    (tmp_path / "gold.json").write_text(f'[{good}, {{"data": {{"id": 2}}, "annotations": [], {part}}}]')
    with pytest.raises(InputError, match="not a task of Label Studio"):
        read_gold_labels(str(tmp_path / "gold.json"))


def test_gold_labels_that_are_no_text_are_an_error_of_ours(tmp_path: Path) -> None:
    bad = pa.StringArray.from_buffers(2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xa5"))
    pq.write_table(pa.table({"id": ["1", "2"], "label": bad}), tmp_path / "gold.parquet", write_statistics=False)
    with pytest.raises(FileError, match="cannot be read as parquet"):
        read_gold_labels(str(tmp_path / "gold.parquet"))


@pytest.mark.parametrize("body", ['{"choices": [{"message": {"content": 5}}]}', '{"choices": []}, "status_code": 1e999'])
def test_a_line_of_a_batch_with_impossible_values_is_an_error_of_ours(tmp_path: Path, body: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"custom_id": "1", "response": {{"body": {body}}}}}\n')
    with pytest.raises(FileError, match="line 1"):
        list(read_batch_file(tmp_path / "a.jsonl", "--answers"))
