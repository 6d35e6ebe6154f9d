"""`distill` without labeled rows: the gold rows take their place, and weights come from students that have not seen them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.distilling import QUICK, failing, go, student, students, table, teacher, undrawn, unlike
from tests.killing import splits
from wdistill import (
    ConfigError,
    Evidence,
    InputError,
    Report,
    StorageError,
    arm,
    best,
    debiased,
    oracle,
    unweighted,
)
from wdistill.training.labels import read_labels, read_table

ANSWERS = {name: values for name, values in table().items() if name != "labeled"}
LEARNED = replace(QUICK, student_epochs=15, rate=0.03)  # better than chance
GOLD, POOL = len(splits()["validation"][1]), len(splits()["unlabeled"][1])


def alone(rule: Any = debiased, given_teacher: Any = ANSWERS, recipe: Any = LEARNED, **changes: Any) -> Report:
    """A distillation from stored answers and gold rows."""
    with undrawn():
        return go(given_teacher, student, recipe, rule=rule, labeled=None, **changes)


def test_weights_are_those_of_students_that_have_not_seen_the_row_they_predict(tmp_path: Path) -> None:
    alone(run=tmp_path / "run")
    folded = [read_labels(tmp_path / "run" / "auxiliary" / "student", name) for name in ("validation", "unlabeled")]
    logs = [np.log(ANSWERS[name]).astype(np.float32) for name in ("validation", "unlabeled")]
    gold = splits()["validation"][1].numpy()
    wanted = debiased(Evidence(gold, logs[0], folded[0], logs[1], folded[1], kind="logits"))
    stored = (tmp_path / "run" / "arms" / "debiased" / "weights" / "00000.parquet").read_bytes()
    assert np.array_equal(read_table(stored, ["weight"])["weight"], wanted.astype(np.float32))


def test_gold_rows_are_trained_on_once_whatever_the_arm_says_of_them() -> None:
    report = alone({"plain": unweighted, "gold": arm(unweighted, validation_in_training="yes"), "best": best})
    assert {each.epochs[-1].examples for each in report.outcome.arms.values()} == {GOLD + POOL}
    assert all(each.gold for each in report.outcome.arms.values())
    assert students(report)["plain"] == students(report)["gold"]


def test_the_report_knows_of_no_labeled_rows_and_judges_the_student_out_of_fold(tmp_path: Path) -> None:
    outcome = alone(run=tmp_path / "run").outcome
    assert "labeled" not in outcome.rows and "labeled" not in outcome.accuracies["teacher"]
    folded = read_labels(tmp_path / "run" / "auxiliary" / "student", "validation")
    assert folded is not None
    right = float(np.mean(folded.argmax(axis=1) == splits()["validation"][1].numpy()))
    assert outcome.accuracies["student"]["validation"] == pytest.approx(right)


def test_best_has_the_student_as_expert_once_and_recalibrates_a_teacher_that_it_does_not_correct(tmp_path: Path) -> None:
    gold, pool = splits()["validation"], splits()["unlabeled"]
    sure = {"validation": np.eye(3)[gold[1]] * 0.34 + 0.22, "unlabeled": np.eye(3)[pool[1]] * 0.34 + 0.22}
    drawn = torch.Generator().manual_seed(0)
    noise = {
        name: (torch.randn(inputs.shape, generator=drawn), labels)
        for name, (inputs, labels) in splits().items()
        if name != "labeled"
    }
    outcome = alone(best, sure, run=tmp_path / "run", **noise).outcome
    assert "recalibrated" in outcome.arms["best"].why
    assert sorted(path.name for path in (tmp_path / "run" / "auxiliary").iterdir() if "-" not in path.name) == [
        "forest",
        "student",
    ]
    stored = (tmp_path / "run" / "arms" / "best" / "weights" / "00000.parquet").read_bytes()
    assert (read_table(stored, ["targets"])["targets"].max(axis=1) > 0.62).all()  # the teacher said 0.56, and was right


def test_it_resumes_with_the_same_bits(tmp_path: Path) -> None:
    with undrawn():
        alone([debiased, best], run=tmp_path / "whole")
        for at in (12, 60, 110):
            with pytest.raises(StorageError), failing(at, 28):
                alone([debiased, best], run=tmp_path / str(at))
            alone([debiased, best], run=tmp_path / str(at))
            assert unlike(tmp_path / str(at), tmp_path / "whole") == []


@pytest.mark.slow
def test_two_workers_give_the_same_bits() -> None:
    assert students(alone([debiased, best])) == students(alone([debiased, best], recipe=replace(LEARNED, workers=2)))


def test_a_teacher_that_comes_trained_is_enough() -> None:
    report = alone([debiased, oracle], teacher, replace(LEARNED, teacher_epochs=0))
    assert set(report.outcome.accuracies["teacher"]) == {"validation", "unlabeled", "test"}


def test_a_student_that_comes_trained_needs_no_folds(tmp_path: Path) -> None:
    alone(run=tmp_path / "run", recipe=replace(LEARNED, student_epochs=0))
    assert not (tmp_path / "run" / "auxiliary").exists()


def test_what_cannot_be_done_without_labeled_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the teacher has no rows to be trained on(.|\n)*teacher_epochs=0"):
        alone(debiased, teacher)
    with pytest.raises(ConfigError, match=r"validation_in_training: all gold rows are trained on here"):
        alone(arm(debiased, validation_in_training="half"))
    few = {name: (rows[:8], labels[:8]) for name, (rows, labels) in splits().items() if name == "validation"}
    with pytest.raises(InputError, match=r"too few gold rows(.|\n)*8 rows"):
        alone(debiased, {**ANSWERS, "validation": ANSWERS["validation"][:8]}, **few)
    with pytest.raises(InputError, match="no such split"):
        alone(debiased, table())
    with pytest.raises(ConfigError, match="validation: no rows"):
        alone(validation=None)


def test_what_may_surprise_is_told() -> None:
    refreshed = alone(arm(debiased, refresh=1)).outcome.warnings
    assert any("refresh = 1 without labeled rows" in text for text in refreshed)
    (inputs, labels), gold = splits()["test"], splits()["validation"]
    overlapping = torch.cat([inputs, gold[0][:5]]), torch.cat([labels, gold[1][:5]])
    judged = alone(test=overlapping, given_teacher={name: ANSWERS[name] for name in ("validation", "unlabeled")})
    assert any("5 test rows are also among the validation rows" in text for text in judged.outcome.warnings)
