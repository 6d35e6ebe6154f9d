"""Gold rows that stand elsewhere too, or twice: leaks are found, and rows that are equal by nature are not called so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import write
from wdistill import Data, Recipe, advise, cli
from wdistill.methods import forest
from wdistill.methods.folds import folds_of
from wdistill.methods.lessons import one_hot
from wdistill.methods.repeats import TELLING, keys_of, leaked, one_of_each, twice

K = 3


@pytest.fixture(autouse=True)
def a_small_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "TREES", 20)


# keys and folds -----------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=2), min_size=2, max_size=12), st.booleans())
def test_keys_are_equal_where_rows_are(rows: list[list[int]], whole: bool) -> None:
    given = np.array(rows, np.uint8 if whole else np.float32)
    keys = keys_of(given if whole else np.where(given == 0, -given, given))  # −0.0 is 0.0
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            assert (keys[i] == keys[j]) == (one == other)
        assert twice(keys)[i] == (rows.count(one) > 1)
    same = one_of_each(keys)
    if len({tuple(row) for row in rows}) in (1, len(rows)):
        assert same is None  # nothing is repeated, or nobody is left to learn from
    else:
        assert same is not None and [rows[i] for i in same] == rows and all(same[i] == i for i in same)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.integers(0, 9))
def test_rows_that_are_the_same_are_in_one_fold(rows: list[int], seed: int) -> None:
    labels = np.array(rows) % 2
    same = np.array([rows.index(row) for row in rows])
    folds = folds_of(labels, seed=seed, same=same)
    assert all(len({folds[i] for i, row in enumerate(rows) if row == each}) == 1 for each in rows)
    assert len(np.unique(folds)) == min(5, len(set(rows)))
    assert np.array_equal(folds_of(labels, seed=seed, same=np.arange(len(rows))), folds_of(labels, seed=seed))


def test_what_others_do_as_often_is_no_leak() -> None:
    found = np.arange(200) < 20
    often, seldom, few = (np.arange(1000) < count for count in (100, 10, 0))
    assert not leaked(found, often).any() and leaked(found, seldom).sum() == leaked(found, few).sum() == 20
    assert leaked(found, often, few).sum() == 20  # the rarest counts
    assert leaked(found, often[: TELLING - 1]).sum() == 20  # so few rows tell nothing
    assert not leaked(np.zeros(200, bool), few).any()
    assert leaked(np.arange(200) < 1, few).sum() == 1  # a single row where none is equal by chance


# tables -------------------------------------------------------------------------------------------------------------


def columns(seed: int, rows: int, first: int) -> dict[str, np.ndarray]:
    """Experts who are right more often than not, and inputs that tell nothing."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, rows)
    table = {"id": np.arange(first, first + rows), "label": labels}
    for name, strength in {"teacher": 1.2, "student": 0.6}.items():
        powers = np.exp(1.5 * (rng.normal(size=(rows, K)) + strength * one_hot(labels, K)))
        table[name] = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    return table | {"x": rng.normal(size=(rows, 6)).astype(np.float32)}


def ternary(table: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The same rows with four inputs of three values each, which tell something: 81 different rows at most."""
    rng = np.random.default_rng(seed)
    guess = rng.integers(0, K, (len(table["label"]), 4))
    return {**table, "x": np.where(rng.random(guess.shape) < 0.8, table["label"][:, None], guess).astype(np.float32)}


def advised(folder: Path, capsys: pytest.CaptureFixture[str], gold: Any, rest: Any, labeled: Any = None) -> str:
    words = ["--validation", str(write(folder / "v.parquet", gold)), "--unlabeled", str(write(folder / "u.parquet", rest))]
    words += ["--labeled", str(write(folder / "l.parquet", labeled))] if labeled is not None else []
    assert cli.main(["advise", *words, "--inputs", "x"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_gold_rows_that_stand_twice_do_not_answer_for_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = columns(1, 150, 0)
    gold = {name: np.concatenate([values, values]) for name, values in once.items()} | {"id": np.arange(300)}
    said = advised(tmp_path, capsys, gold, columns(2, 1000, 1000))
    assert "Look first: 150 of 300 gold rows have the inputs of another one" in said
    alone = float(said.partition("forest alone │ ")[2].partition(" %")[0])
    assert alone < 50  # it guesses: one in three is right
    assert "Verdict: correct" not in said and "but look first" in said


def test_rows_of_few_values_are_no_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, rest, labeled = (
        ternary(columns(i, n, first), i) for i, (n, first) in enumerate([(150, 0), (1000, 1000), (600, 5000)])
    )
    assert np.isin(keys_of(labeled["x"]), keys_of(gold["x"])).mean() > 0.5
    said = advised(tmp_path, capsys, gold, rest, labeled)
    assert "Look first" not in said
    alone = float(said.partition("forest alone │ ")[2].partition(" %")[0])
    assert alone > 85  # it learns from all of the labeled rows
    leaking = {name: np.concatenate([labeled[name], gold[name]]) for name in ("id", "label", "x")}  # under the same ids
    assert "Look first: 150 of 150 gold rows are among the labeled rows too" in advised(
        tmp_path, capsys, gold, rest, leaking
    )


# modules ------------------------------------------------------------------------------------------------------------


def test_second_opinions_do_not_learn_from_gold_rows_under_other_ids(capsys: pytest.CaptureFixture[str]) -> None:
    random = torch.Generator().manual_seed(3)

    def rows(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(n, 6, generator=random), torch.randint(0, K, (n,), generator=random)

    def said(labels: torch.Tensor) -> np.ndarray:
        scores = torch.randn(len(labels), K, generator=random) + 1.5 * torch.eye(K)[labels]
        return torch.softmax(scores, 1).numpy()

    (inputs, truth), gold, rest = rows(60), rows(200), rows(300)
    table = {"validation": said(gold[1]), "unlabeled": said(rest[1])}
    labeled = Data(torch.cat([inputs, gold[0]]), torch.cat([truth, gold[1]]), [f"l{i}" for i in range(260)])
    found = advise(
        table,
        torch.nn.Linear(6, K),
        labeled,
        Data(*gold, [f"v{i}" for i in range(200)]),
        Data(*rest, [f"u{i}" for i in range(300)]),
        recipe=Recipe(student_epochs=3, epochs=1, kind="probabilities"),
    )
    assert "200 validation rows have the same inputs as labeled rows, under other ids" in capsys.readouterr().err
    assert found.accuracies["forest alone"].value < 0.5 and found.accuracies["second alone"].value < 0.5
    assert any("200 of 200 gold rows are among the labeled rows too" in each.text for each in found.findings)
    assert "correct the targets" not in found.verdict and "look first" in found.verdict
