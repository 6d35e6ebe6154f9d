"""cleanlab: its predictions as a teacher, and label quality scores that gold rows stand behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import wdistill
from tests.adapters.answers import Answers, answers
from wdistill import ConfigError, InputError
from wdistill.adapters.cleanlab import label_issues, teacher_from_pred_probs, teacher_quality
from wdistill.adapters.table import TargetTable, read_targets
from wdistill.cli import main


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return answers(tmp_path_factory.mktemp("answers"), classes=10)


@pytest.fixture(scope="module")
def weights(found: Answers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `wdistill weigh` wrote of the pool, from the teacher and a student that sees every second pixel."""
    folder = tmp_path_factory.mktemp("weights")
    student = LogisticRegression(max_iter=500).fit(found.inputs[found.labeled, ::2], found.labels[found.labeled])
    numbers = np.unique(found.labels, return_inverse=True)[1]
    pool = np.setdiff1d(np.arange(len(numbers)), np.concatenate([found.labeled, found.gold, found.test]))
    said = student.predict_proba(found.inputs[:, ::2])
    names = ("gold", "pool")
    for name, ids in zip(names, (found.gold, pool), strict=True):
        columns = {"id": ids, "teacher": list(found.teacher[ids]), "student": list(said[ids]), "label": numbers[ids]}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    gold, unlabeled = (str(folder / f"{name}.parquet") for name in names)
    output = folder / "weights.parquet"
    assert main(["weigh", "--validation", gold, "--unlabeled", unlabeled, "--output", str(output)]) == 0
    return output


def noisy(found: Answers, rows: Any) -> Any:
    """Labels of these rows, 45 of 100 of them the class below."""
    names, numbers = np.unique(found.labels, return_inverse=True)
    return names[numbers[rows] - (np.random.default_rng(0).random(len(rows)) < 0.45)]


def test_pred_probs_as_a_teacher_are_corrected_as_the_core_does(found: Answers) -> None:
    ids = pq.read_table(found.targets)["id"].to_numpy().astype(int)
    names = [str(name) for name in np.unique(found.labels)]
    gold = {"id": found.gold, "label": found.labels[found.gold]}
    corrected = wdistill.correct(teacher_from_pred_probs(ids, found.teacher[ids]), gold, classes=names)
    ours, theirs = read_targets(corrected), read_targets(found.targets)
    assert np.array_equal(ours.select(theirs.ids).targets, theirs.targets)


def test_scores_and_issues_are_those_of_cleanlab_on_the_targets(found: Answers) -> None:
    table = read_targets(found.targets)
    labels = noisy(found, table.ids.astype(int))
    issues = label_issues(table, table.ids, labels)
    numbers = np.searchsorted(np.array(table.classes), labels)
    assert np.array_equal(issues["label_quality"], table.targets[np.arange(len(table)), numbers])
    assert np.array_equal(issues["given_label"], numbers) and list(issues.index) == list(table.ids)
    assert np.array_equal(
        issues["is_label_issue"], find_label_issues(numbers, table.targets, filter_by="predicted_neq_given")
    )
    margin = label_issues(table, table.ids, labels, method="normalized_margin")["label_quality"]
    assert np.array_equal(margin, get_label_quality_scores(numbers, table.targets, method="normalized_margin"))


def test_scores_are_of_the_labels_with_the_same_ids_where_a_position_would_be_another_row(found: Answers) -> None:
    table = read_targets(found.targets)
    labels = noisy(found, table.ids.astype(int))
    order = np.random.default_rng(0).permutation(len(table))
    issues = label_issues(table, table.ids[order], labels[order])
    pd.testing.assert_frame_equal(issues, label_issues(table, table.ids, labels).iloc[order])
    numbers = np.searchsorted(np.array(table.classes), labels[order])
    naive = get_label_quality_scores(numbers, table.targets)
    assert np.abs(naive - issues["label_quality"]).mean() > 0.2
    with pytest.raises(InputError, match="rows without targets"):
        label_issues(table, [*table.ids[1:], "elsewhere"], labels)


def test_gold_rows_have_the_quality_that_their_truth_says(found: Answers) -> None:
    table = read_targets(found.targets).select(found.gold)
    labels = noisy(found, found.gold)
    assert np.array_equal(label_issues(table, table.ids, labels)["label_quality"] == 1, labels == found.labels[found.gold])


def test_cleanlab_trains_on_the_labels_that_are_left_and_learns_more_than_from_all(found: Answers) -> None:
    table = read_targets(found.targets)
    rows = table.ids.astype(int)
    labels = noisy(found, rows)
    issues = label_issues(table, table.ids, labels)
    numbers = np.searchsorted(np.array(table.classes), labels)
    student = CleanLearning(LogisticRegression(max_iter=500), verbose=False)
    student.fit(found.inputs[rows], numbers, label_issues=issues)
    naive = LogisticRegression(max_iter=500).fit(found.inputs[rows], numbers)
    truth = np.searchsorted(np.array(table.classes), found.labels[found.test])
    right, right_naive = (each.score(found.inputs[found.test], truth) for each in (student, naive))
    assert right > right_naive + 0.02, (right, right_naive)


def test_the_teachers_own_probabilities_find_no_issue_in_its_own_labels(found: Answers, weights: Path) -> None:
    quality = teacher_quality(weights)
    rows = quality.index.to_numpy()
    own = found.teacher[rows]
    numbers = np.searchsorted(np.unique(found.labels), found.labels[rows])
    wrong = own.argmax(axis=1) != numbers
    naive = find_label_issues(own.argmax(axis=1), own, filter_by="predicted_neq_given")
    assert wrong.mean() > 0.1 and not naive.any()
    table = read_targets(found.targets).select(rows)
    names = np.array(table.classes)
    assert roc_auc_score(~wrong, quality) > 0.7
    doubted = label_issues(table, table.ids, names[own.argmax(axis=1)])["is_label_issue"].to_numpy()
    assert doubted.any() and wrong[doubted].mean() > 2 * wrong.mean()


def test_a_score_of_1_is_good_and_the_error_would_rank_the_wrong_way_round(found: Answers, weights: Path) -> None:
    frame, quality = pq.read_table(weights).to_pandas(), teacher_quality(weights)
    assert np.array_equal(quality.to_numpy(), 1 - frame["error"].to_numpy().astype(np.float64))
    assert list(quality.index) == list(frame["id"]) and quality.between(0, 1).all() and quality.name == "label_quality"
    right = found.teacher[frame["id"]].argmax(axis=1) == np.unique(found.labels, return_inverse=True)[1][frame["id"]]
    assert roc_auc_score(right, frame["error"]) < 0.4 < 0.6 < roc_auc_score(right, quality)
    pd.testing.assert_series_equal(teacher_quality(frame), quality)


def test_labels_that_do_not_fit_the_table_are_refused(found: Answers) -> None:
    table = read_targets(found.targets)
    with pytest.raises(InputError, match="number of rows"):
        label_issues(table, table.ids, found.labels[:3])
    with pytest.raises(InputError, match="not in the class list"):
        label_issues(table, table.ids, np.full(len(table), "digit 10"))
    with pytest.raises(ConfigError, match="read_targets"):
        label_issues(found.targets, table.ids, found.labels[:3])
    with pytest.raises(InputError, match="sum to 1"):
        teacher_from_pred_probs([1, 2], np.array([[0.5, 0.6], [0.5, 0.5]]))


def test_weights_without_estimated_errors_are_refused(found: Answers) -> None:
    plain = {"id": [1, 2], "weight": [0.5, 1.0]}
    with pytest.raises(ConfigError, match="no estimate of errors"):
        teacher_quality(plain)
    with pytest.raises(InputError, match="no probabilities"):
        teacher_quality(plain | {"error": [0.5, 1.5]})


def test_numbers_are_labels_where_classes_have_no_names() -> None:
    table = TargetTable(np.array(["a", "b"]), np.array([[0.9, 0.1], [0.6, 0.4]]), np.ones(2))
    assert label_issues(table, table.ids, [0, 1])["is_label_issue"].tolist() == [False, True]
