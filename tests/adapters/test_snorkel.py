"""snorkel: a label model as a teacher, whose rows without a vote are no answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from snorkel.labeling import LFApplier, labeling_function
from snorkel.labeling.model import LabelModel, MajorityLabelVoter

import wdistill
from wdistill import InputError, WdistillWarning
from wdistill.adapters.snorkel import ABSTAIN, teacher_from_label_model
from wdistill.adapters.table import read_targets

IMAGES, DIGITS = load_digits(return_X_y=True)
EITHER = np.isin(DIGITS, (3, 8))
INPUTS, LABELS = IMAGES[EITHER].reshape(-1, 8, 8) / 16, (DIGITS[EITHER] == 8).astype(int)
NAMES = ("three", "eight")
GOLD, TEST, POOL = np.split(np.random.default_rng(0).permutation(len(LABELS)), [40, 140])
ASKED = np.concatenate([GOLD, POOL])


@labeling_function()
def closed_below(image: Any) -> int:
    return 1 if image[5, 2] > 0.5 else ABSTAIN


@labeling_function()
def closed_above(image: Any) -> int:
    return 1 if image[2, 2] > 0.75 else ABSTAIN


@labeling_function()
def open_to_the_left(image: Any) -> int:
    return 0 if image[4:7, 1:3].sum() < 0.3 else ABSTAIN


@labeling_function()
def empty_middle(image: Any) -> int:
    return 0 if image[3, 3] < 0.3 else ABSTAIN


def cast(rows: Any) -> Any:
    return LFApplier([closed_below, closed_above, open_to_the_left, empty_middle]).apply([*rows], progress_bar=False)


@pytest.fixture(scope="module")
def votes() -> Any:
    return cast(INPUTS[ASKED])


@pytest.fixture(scope="module")
def model(votes: Any) -> Any:
    model = LabelModel(cardinality=2, verbose=False)
    model.fit(votes, n_epochs=100, seed=0, progress_bar=False)
    return model


def teacher(model: Any, votes: Any) -> pa.Table:
    with pytest.warns(WdistillWarning, match="no vote"):
        return teacher_from_label_model(model, votes, ASKED)


def test_posteriors_are_those_of_the_model_where_there_is_a_vote(model: Any, votes: Any) -> None:
    table, voted = teacher(model, votes), (votes != ABSTAIN).any(axis=1)
    assert np.array_equal(table["teacher"].is_valid().to_numpy(), voted)
    assert np.array_equal(np.stack(table["teacher"].drop_null().to_numpy()), model.predict_proba(votes)[voted])
    assert np.array_equal(table["id"].to_numpy(), ASKED)


def test_rows_without_a_vote_are_refusals_where_snorkel_gives_them_an_answer(model: Any, votes: Any) -> None:
    silent = ~(votes != ABSTAIN).any(axis=1)
    gold = {"id": GOLD, "label": np.array(NAMES)[LABELS[GOLD]]}
    naive_answers = model.predict_proba(votes)
    assert silent.sum() > 10 and np.ptp(naive_answers[silent], axis=0).max() < 1e-9  # all the same: the prior
    naive = wdistill.correct({"id": ASKED, "teacher": naive_answers}, gold, classes=NAMES)
    ours = wdistill.correct(teacher(model, votes), gold, classes=NAMES)
    assert sum(naive.record["answers"]["refused"].values()) == 0
    assert sum(ours.record["answers"]["refused"].values()) == silent.sum()
    assert set(ours.table["id"].to_pylist()).isdisjoint(map(str, np.setdiff1d(ASKED[silent], GOLD)))


def test_posteriors_of_votes_that_depend_on_each_other_are_too_sure_where_corrected_ones_are_not() -> None:
    """One function of seven in ten right votes four times: to the label model, four that agree."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 800)
    one, other, third = (np.where(rng.random(800) < right, truth, 1 - truth) for right in (0.7, 0.75, 0.75))
    repeated = np.stack([one, one, one, one, other, third], axis=1)
    model = LabelModel(cardinality=2, verbose=False)
    model.fit(repeated, n_epochs=100, seed=0, progress_bar=False)
    gold = {"id": np.arange(100), "label": np.array(NAMES)[truth[:100]]}
    ids = np.arange(800)
    table = read_targets(wdistill.correct(teacher_from_label_model(model, repeated, ids), gold, classes=NAMES))
    rows = ids[100:]
    naive, ours = model.predict_proba(repeated)[rows], table.select(rows).targets
    right = (naive.argmax(axis=1) == truth[rows]).mean()
    assert naive.max(axis=1).mean() > right + 0.15, "too sure"
    assert abs(ours.max(axis=1).mean() - (ours.argmax(axis=1) == truth[rows]).mean()) < 0.1
    losses = [-np.log(said[np.arange(700), truth[rows]]).mean() for said in (ours, naive)]
    assert losses[0] < losses[1] - 0.1


def test_a_majority_vote_is_a_label_model_too(votes: Any) -> None:
    table = teacher(MajorityLabelVoter(cardinality=2), votes)
    assert set(np.stack(table["teacher"].drop_null().to_numpy()).ravel()) <= {0.0, 0.5, 1.0}


def test_no_warning_where_all_rows_have_votes(model: Any, votes: Any) -> None:
    voted = (votes != ABSTAIN).any(axis=1)
    assert teacher_from_label_model(model, votes[voted], ASKED[voted])["teacher"].null_count == 0


def test_a_student_of_corrected_posteriors_knows_more_than_the_votes(model: Any, votes: Any) -> None:
    gold = {"id": GOLD, "label": np.array(NAMES)[LABELS[GOLD]]}
    corrected = wdistill.correct(teacher(model, votes), gold, classes=NAMES)
    table = read_targets(corrected)
    flat = INPUTS.reshape(len(INPUTS), -1)
    student = LogisticRegression(max_iter=500)
    student.fit(flat[table.ids.astype(int)], table.labels, sample_weight=table.weight)
    right = student.score(flat[TEST], LABELS[TEST])
    by_votes = (model.predict(cast(INPUTS[TEST]), tie_break_policy="random") == LABELS[TEST]).mean()
    assert right > by_votes + 0.02, (right, by_votes)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (np.array([[0, 2], [1, -1]]), "unknown classes"),
        (np.full((2, 2), -1), "not one vote"),
        (np.array([[0.5, 0.5], [1, 0]]), "no matrix of votes"),
        (np.array([[0, 1]]), "number of rows"),
    ],
)
def test_votes_that_are_none_are_refused(model: Any, wrong: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        teacher_from_label_model(model, wrong, [1, 2])
