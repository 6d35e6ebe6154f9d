"""From a file of answers and gold labels to a trained student, on the command line and in Python."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.answer_forms import ANSWERS, BATCHES, CLASSES, gold_csv, make, part, texts
from tests.distilling import failing, students, undrawn, unlike
from tests.texts import texts as any_text
from wdistill import (
    ConfigError,
    InputError,
    LeakError,
    Recipe,
    Report,
    StorageError,
    WdistillWarning,
    best,
    cli,
    distill_answers,
    load_student,
    read_run,
    unweighted,
)
from wdistill.answers.frames import as_files
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.text.integers import ngrams_in, text_rows
from wdistill.text.ngrams import ngrams
from wdistill.training.answers import default_recipe, read_splits

ROWS = make(300)
GOLD, TEST = part(ROWS, 0, 80), part(ROWS, 80, 140)
FEW = ("label", "openai", "anthropic")  # by `make test`; `make proofs` tries all
QUICK = Recipe(**{**default_recipe("text", 80, 220), "epochs": 2, "student_epochs": 2})


def frame(rows: Any, **more: Any) -> dict[str, Any]:
    return {"id": list(rows.ids), "text": list(rows.texts), **more}


def labels(rows: Any) -> dict[str, Any]:
    return {"id": list(rows.ids), "label": [CLASSES[number] for number in rows.truth]}


def go(**changes: Any) -> Report:
    """A student of texts, from frames in memory."""
    given_frames = {"answers": frame(ROWS, label=ROWS.labels), "gold": labels(GOLD), "text": "text", "recipe": QUICK}
    with undrawn():
        return distill_answers(**{**given_frames, **changes})


def words(folder: Path, form: str, *more: object) -> list[str]:
    answers = ["--answers", str(ANSWERS[form](ROWS, folder)), "--gold", str(gold_csv(GOLD, folder))]
    rows = ["--pool", str(texts(ROWS, folder))] if form in BATCHES else []
    return ["distill", *answers, *rows, "--text", "text", "--run", str(folder / "run"), *map(str, more)]


def held_out(rows: Any, folder: Path) -> Path:
    """Test rows by id and label."""
    (folder / "other").mkdir()
    return gold_csv(rows, folder / "other")


@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param(form, marks=() if form in FEW else pytest.mark.proof) for form in ANSWERS])
def test_every_form_trains_a_student_with_no_code_in_between(form: str, tmp_path: Path) -> None:
    with undrawn():
        assert cli.main(words(tmp_path, form, "--student", "text", "--test", held_out(TEST, tmp_path))) == 0
    outcome = read_run(tmp_path / "run")
    dropped = {"vllm_votes": 1, "anthropic": 2}.get(form, 0)
    assert sum(outcome.rows.values()) == 300 - dropped
    assert list(outcome.arms) == ["best"]
    assert (outcome.arms["best"].final or 0) > 0.9  # the words tell; the teacher has 0.8


@pytest.mark.slow
def test_the_command_and_python_train_the_same_student(tmp_path: Path) -> None:
    with undrawn():
        assert (
            cli.main(words(tmp_path, "label", "--epochs", 2, "--student-epochs", 2, "--test", held_out(TEST, tmp_path))) == 0
        )
        again = go(answers=str(tmp_path / "label.csv"), gold=str(tmp_path / "gold.csv"), test=labels(TEST))
        resumed = distill_answers(
            str(tmp_path / "label.csv"),
            str(tmp_path / "gold.csv"),
            text="text",
            test=labels(TEST),
            recipe=QUICK,
            run=tmp_path / "run",
        )
    assert students(resumed) == students(again)


def test_all_rows_have_one_place_and_gold_without_an_answer_is_taught() -> None:
    said = ["I cannot say" if row in (0, 1, 90) else label for row, label in enumerate(ROWS.labels)]
    with pytest.warns(WdistillWarning, match="2 of 80 gold rows have no usable answer"):
        splits = read_all(answers=frame(ROWS, label=said), test=labels(TEST))
    ids = {name: set(getattr(splits, name).ids.tolist()) for name in ("labeled", "validation", "unlabeled", "test")}
    assert ids == {
        "labeled": set(ROWS.ids[:2]),
        "validation": set(ROWS.ids[2:80]),
        "unlabeled": set(ROWS.ids[140:]),
        "test": set(TEST.ids),
    }
    outcome = go(answers=frame(ROWS, label=said)).outcome
    assert any("2 of 80 gold rows have no usable answer" in text for text in outcome.warnings)
    assert outcome.arms["best"].epochs[-1].examples == 80 + 219


def read_all(**changes: Any) -> Any:
    test = changes.pop("test", None)
    with as_files(**{"answers": frame(ROWS, label=ROWS.labels), "gold": labels(GOLD), **changes}, test=test) as path:
        sources = Sources([path("answers") or ""], path("gold"), path("rows") if "rows" in changes else None)
        return read_splits(sources, AnswerOptions(text="text"), path("test"))


def test_rows_in_a_table_of_their_own_are_joined_by_id(tmp_path: Path) -> None:
    inside = read_all()
    order = np.random.default_rng(0).permutation(300)
    shuffled = {"id": [ROWS.ids[i] for i in order], "text": [ROWS.texts[i] for i in order]}
    apart = read_all(answers={"id": list(ROWS.ids), "label": ROWS.labels}, rows=shuffled)
    for name in ("validation", "unlabeled"):
        one, other = getattr(inside, name), getattr(apart, name)
        assert one.ids.tolist() == other.ids.tolist() and np.array_equal(one.inputs, other.inputs)
        assert np.array_equal(inside.teacher[name], apart.teacher[name])


def test_test_rows_bring_their_texts_or_stand_in_the_pool() -> None:
    own = read_all(test={**frame(TEST), **labels(TEST)})
    pool = read_all(test=labels(TEST))
    assert np.array_equal(own.test.inputs, pool.test.inputs) and np.array_equal(own.test.labels, TEST.truth)
    with pytest.raises(LeakError, match=r"test rows are among the gold rows(.|\n)*80 of 80"):
        read_all(test=labels(GOLD))


def test_an_id_twice_among_the_rows_is_refused() -> None:
    rows = {"id": [*ROWS.ids, ROWS.ids[150]], "text": [*ROWS.texts, "another text"]}
    with pytest.raises(InputError, match=r"ids that occur more than once(.|\n)*r00150"):
        read_all(answers={"id": list(ROWS.ids), "label": ROWS.labels}, rows=rows)


def test_gold_rows_that_nobody_answered_bring_their_texts_or_are_told_to_be_left_out() -> None:
    strangers = part(make(320), 300, 320)
    both = {name: [*labels(GOLD)[name], *labels(strangers)[name]] for name in ("id", "label")}
    with pytest.warns(WdistillWarning) as told:
        assert read_all(gold=both).labeled is None
    assert any("20 gold rows are not among the rows" in str(each.message) for each in told)
    with pytest.warns(WdistillWarning, match="20 of 100 gold rows have no usable answer"):
        found = read_all(gold={**both, "text": [*GOLD.texts, *strangers.texts]}).labeled
    assert set(found.ids) == set(strangers.ids)
    numbers = dict(zip(strangers.ids, strangers.truth.tolist(), strict=True))
    assert [numbers[key] for key in found.ids.tolist()] == found.labels.tolist()


def test_rows_without_ids_are_not_joined_to_test_rows() -> None:
    truth = [CLASSES[number] if row < 80 else None for row, number in enumerate(ROWS.truth)]
    one_table = {"text": list(ROWS.texts), "answer": ROWS.labels, "truth": truth}
    options = AnswerOptions(text="text", label="truth")
    test = {"id": list(range(60)), "label": labels(TEST)["label"]}
    with as_files(answers=one_table, test=test, texts={**test, "text": list(TEST.texts)}) as path:
        sources = Sources([path("answers") or ""], None, None)
        with pytest.raises(InputError, match="test rows without texts or inputs"):
            read_splits(sources, options, path("test"))
        splits = read_splits(sources, options, path("texts"))
    assert len(splits.unlabeled.ids) == 220 and splits.test is not None and len(splits.test.ids) == 60


def test_a_list_of_records_is_a_frame_and_the_report_names_the_classes() -> None:
    records = [
        {"id": key, "text": text, "label": said} for key, text, said in zip(ROWS.ids, ROWS.texts, ROWS.labels, strict=True)
    ]
    report = go(answers=records)
    assert report.classes == CLASSES and students(report) == students(go())


def test_the_teacher_is_measured_on_test_rows_that_it_answered() -> None:
    outcome = go(test=labels(TEST)).outcome
    right = np.mean(TEST.teacher.argmax(axis=1) == TEST.truth)
    assert outcome.accuracies["teacher"]["test"] == pytest.approx(right)


def test_twins_of_gold_rows_that_nobody_answered_do_not_judge() -> None:
    said = [label if row >= 40 else "I am sorry, but this I cannot tell" for row, label in enumerate(ROWS.labels)]
    doubled = [ROWS.texts[row + 40] if row < 40 else text for row, text in enumerate(ROWS.texts)]
    answers = {"id": list(ROWS.ids), "text": doubled, "label": said}
    with undrawn(), TemporaryDirectory() as folder:
        go(answers=answers, run=Path(folder) / "run")
        trained = CheckpointStore(Path(folder) / "run" / "auxiliary" / "student-0").state["epochs"][-1]["examples"]
    assert trained == 32  # four fifths of the 40 gold rows that were answered, and none of their twins


def test_a_column_that_is_constant_in_the_pool_does_not_explode() -> None:
    rare = ["rare" if row in (3, 85) else "common" for row in range(300)]
    answers = {"id": list(ROWS.ids), "label": ROWS.labels, "town": rare, "one": [0.1] * 300}
    recipe = {"student_epochs": 2, "epochs": 2}
    report = go(answers=answers, text=None, inputs=["town", "one"], recipe=recipe, test=labels(TEST))
    assert float(report.student.scale.min()) > 1e-3 and list(report.outcome.arms) == ["best"]  # type: ignore[operator]
    assert report.outcome.recipe["batch_size"] == 16 and report.outcome.recipe["epochs"] == 2


def test_large_whole_numbers_are_inputs_and_texts_among_numbers_are_refused() -> None:
    answers = {"id": list(ROWS.ids), "label": ROWS.labels, "income": [20_000_001 + row for row in range(300)]}
    given_inputs = {"answers": answers, "text": None, "inputs": ["income"], "recipe": {"student_epochs": 1, "epochs": 1}}
    assert go(**given_inputs).outcome.state == "finished"
    with pytest.raises(InputError, match="values of another kind"):
        go(**given_inputs, test={**labels(TEST), "income": ["much"] * 60})


def test_a_run_of_other_classes_is_refused(tmp_path: Path) -> None:
    go(run=tmp_path / "run")
    renamed = {"id": list(ROWS.ids), "text": list(ROWS.texts), "label": [f"z{label}" for label in ROWS.labels]}
    gold = {"id": list(GOLD.ids), "label": [f"z{label}" for label in labels(GOLD)["label"]]}
    with pytest.raises(ConfigError, match=r"a run of something else(.|\n)*class_names"):
        go(answers=renamed, gold=gold, run=tmp_path / "run")


@pytest.mark.slow
def test_a_metric_names_a_class_as_the_answers_do(tmp_path: Path) -> None:
    metric = f"f1:{CLASSES[-1]}"
    recipe = {"epochs": 2, "student_epochs": 2, "metric": metric}
    found = go(recipe=recipe, test=labels(TEST), rule=[unweighted, best]).outcome.judgement
    assert {*found.students} == {"unweighted", "best"} and [gain.metric for gain in found.pool] == ["accuracy", metric]
    for student in found.students.values():
        assert student.fitted_on == "pool" and student.measured_on == "test" and student.rows == len(TEST.ids)
        assert student.overall[0].name == metric and {each.name for each in student.by_class} == {*CLASSES}
    with pytest.raises(ConfigError, match="of which class"):
        go(recipe={**recipe, "metric": "f1:1"})


def test_settings_that_answers_decide_are_refused() -> None:
    with pytest.raises(ConfigError, match="recipe: kind"):
        go(recipe={"kind": "logits"})
    with pytest.raises(ConfigError, match="targets are a setting of the recipe here"):
        go(targets="hard")
    with pytest.raises(ConfigError, match="targets_from is a setting of the recipe here"):
        go(targets_from="teacher")
    with pytest.raises(ConfigError, match="metric is a setting of the recipe here"):
        go(metric="macro-f1")


def test_rows_are_no_longer_than_the_longest_text_needs() -> None:
    splits = read_all(test=labels(TEST))
    arrays = [getattr(splits, name).inputs for name in ("validation", "unlabeled", "test")]
    assert len({rows.shape[1] for rows in arrays}) == 1 and any(rows[:, -1].any() for rows in arrays)


def test_students_of_columns_learn_numbers_and_categories() -> None:
    sides = {"length": np.random.default_rng(0).normal(size=300) + 2 * ROWS.truth, "kind": [f"k{i}" for i in ROWS.truth]}
    answers = {"id": list(ROWS.ids), "label": ROWS.labels, **sides}
    changes = {"answers": answers, "text": None, "inputs": ["length", "kind"], "recipe": None, "test": labels(TEST)}
    report = go(**changes, student="table:hidden=8")
    assert type(report.student).__name__ == "TableMLP" and report.student.arguments == {
        "inputs": 3,
        "classes": 2,
        "hidden": [8],
    }
    assert (report.outcome.arms["best"].final or 0) > 0.95
    assert abs(float(report.student.mean[0]) - 1) < 0.3  # type: ignore[operator]


@pytest.mark.slow
def test_it_resumes_with_the_same_bits(tmp_path: Path) -> None:
    go(run=tmp_path / "whole")
    for at in (15, 70, 100):
        with pytest.raises(StorageError), failing(at, 28):
            go(run=tmp_path / str(at))
        go(run=tmp_path / str(at))
        assert unlike(tmp_path / str(at), tmp_path / "whole") == []


@pytest.mark.slow
def test_an_exported_student_knows_its_classes_and_columns(tmp_path: Path) -> None:
    report = go(run=tmp_path / "run")
    assert cli.main(["export", str(tmp_path / "run"), "--output", str(tmp_path / "student")]) == 0
    description = json.loads((tmp_path / "student" / "student.json").read_text())
    assert description["class_names"] == list(CLASSES) and description["columns"] == {"text": "text"}
    rows = torch.from_numpy(text_rows(TEST.texts, length=None))
    with torch.no_grad():
        loaded, trained = load_student(tmp_path / "student")(rows), report.student(rows)
    assert torch.equal(loaded, trained)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--teacher", "mlp"], "--teacher: does not belong here"),
        (["--advise"], "use wdistill advise --answers"),
        (["--student", "table"], "it reads columns of numbers"),
        (["--kind", "logits"], "--kind: does not belong here"),
        (["--teacher-epochs", "7"], "--teacher-epochs: does not belong here"),
        (["--classes", "3"], "the file of class names cannot be read"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words(tmp_path, "label", *more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_answers_models_and_splits_are_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["distill", "--run", str(tmp_path / "run")]) == 2
    assert "no --teacher, --student, --validation, --unlabeled" in capsys.readouterr().err
    splits = ["--teacher", "t", "--student", "s", "--validation", "v", "--unlabeled", "u", "--run", str(tmp_path / "run")]
    assert cli.main(["distill", *splits, "--text", "text"]) == 2
    assert "--text: does not belong here" in capsys.readouterr().err
    assert cli.main(["distill", *splits, "--classes", "a,b"]) == 2
    assert "not a number of classes" in capsys.readouterr().err


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.sampled_from(["text", "table"]))
def test_however_few_the_rows_are_there_are_enough_steps(gold: int, pool: int, student: str) -> None:
    settings = default_recipe(student, gold, pool)
    size, least = settings["batch_size"], {"text": 100, "table": 1000}[student]
    assert 16 <= size <= 256 and Recipe(**settings).rule == ("best",)
    assert settings["epochs"] * max(1, pool) >= least * size and settings["student_epochs"] * max(1, gold) >= least * size


def test_a_student_needs_something_to_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a student needs the rows themselves"):
        go(text=None)


@given(st.lists(any_text, min_size=1, max_size=5))
def test_rows_hold_the_ngrams_of_their_texts(batch: list[str | None]) -> None:
    found, wanted = ngrams_in(text_rows(batch, length=None)), ngrams(batch)
    assert np.array_equal(found.offsets, wanted.offsets) and np.array_equal(found.columns, wanted.columns)
    assert np.array_equal(found.counts, np.minimum(wanted.counts, 1023))
