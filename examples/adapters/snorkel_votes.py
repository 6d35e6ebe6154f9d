"""From labeling functions and 40 gold rows to a student:  python examples/adapters/snorkel_votes.py

Threes and eights of scikit-learn's digits; four functions look at single places of the image, and often abstain.
"""

from __future__ import annotations

import warnings
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import numpy as np
from paired import paired
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from snorkel.labeling import LFApplier, labeling_function
from snorkel.labeling.model import LabelModel

import wdistill
from wdistill.adapters.snorkel import ABSTAIN, teacher_from_label_model
from wdistill.adapters.table import TargetTable, read_targets

TRAPS = (
    "a row without any vote gets the prior, as if that were an answer",
    "posteriors of votes that depend on each other are too sure",
)
TRIALS, GOLD, TEST = range(5), 40, 100
CLASSES = ["three", "eight"]


@labeling_function()
def closed_below(image: Any) -> int:
    return 1 if image[5, 2] > 8 else ABSTAIN


@labeling_function()
def closed_above(image: Any) -> int:
    return 1 if image[2, 2] > 12 else ABSTAIN


@labeling_function()
def open_to_the_left(image: Any) -> int:
    return 0 if image[4:7, 1:3].sum() < 5 else ABSTAIN


@labeling_function()
def empty_middle(image: Any) -> int:
    return 0 if image[3, 3] < 5 else ABSTAIN


FUNCTIONS = [closed_below, closed_above, open_to_the_left, empty_middle]


def corrected(label_model: LabelModel, votes: np.ndarray, ids: np.ndarray, gold: Any, rows: Any) -> TargetTable:
    """Targets of all rows that have a vote, and of the gold rows."""
    # --- wdistill
    teacher = teacher_from_label_model(label_model, votes, ids)
    return read_targets(wdistill.correct(teacher, gold, rows=rows, classes=CLASSES, inputs="inputs"))
    # ---


def trial(seed: int) -> dict[str, float]:
    """Accuracy of a student by what it is taught; gold rows have their true label in all arms."""
    images, digits = load_digits(return_X_y=True)
    either = np.isin(digits, (3, 8))
    inputs, truth = images[either], (digits[either] == 8).astype(int)
    gold, test, pool = np.split(np.random.default_rng(seed).permutation(len(truth)), [GOLD, GOLD + TEST])
    ids = np.concatenate([gold, pool])
    votes = LFApplier(FUNCTIONS).apply([*inputs[ids].reshape(-1, 8, 8)], progress_bar=False)
    model = LabelModel(cardinality=2, verbose=False)
    model.fit(votes, seed=seed, progress_bar=False)
    known = {"id": gold, "label": np.array(CLASSES)[truth[gold]]}
    with redirect_stderr(StringIO()), warnings.catch_warnings():  # what was read, and how many rows have no vote
        warnings.simplefilter("ignore")
        table = corrected(model, votes, ids, known, {"id": ids, "inputs": inputs[ids] / 16})
    taught = table.ids.astype(int)
    posterior = np.where(np.arange(len(ids)) < GOLD, truth[ids], model.predict(votes, tie_break_policy="random"))
    voted = (votes != ABSTAIN).any(axis=1) | (np.arange(len(ids)) < GOLD)
    fitted = {
        "all posteriors + gold": student().fit(inputs[ids], posterior),
        "posteriors where there is a vote + gold": student().fit(inputs[ids[voted]], posterior[voted]),
        "best targets": student().fit(inputs[taught], table.labels, sample_weight=table.weight),
        "gold alone": student().fit(inputs[gold], truth[gold]),
    }
    return {arm: float((model.predict(inputs[test]) == truth[test]).mean()) for arm, model in fitted.items()}


def student() -> LogisticRegression:
    return LogisticRegression(C=0.01, max_iter=300)


if __name__ == "__main__":
    found = [trial(seed) for seed in TRIALS]
    arms = {arm: [each[arm] for each in found] for arm in found[0]}
    print(paired(arms, "posteriors where there is a vote + gold", "digits, threes and eights"))
