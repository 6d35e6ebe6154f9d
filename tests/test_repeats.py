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
from wdistill import Data, LeakError, Recipe, advise, best, cli, distill, unweighted
from wdistill.methods import crossfit
from wdistill.methods.context import one_hot
from wdistill.methods.crossfit import folds_of
from wdistill.methods.guards import TELLING, Keys, among, by_itself, keys_of, leaked, one_of_each, twice
from wdistill.training.data import check_split, drop_rows, to_device
from wdistill.training.inputs import InMemory, concatenate

K = 3


@pytest.fixture(autouse=True)
def a_small_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossfit, "TREES", 20)


# keys and folds -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=2), min_size=2, max_size=12), st.booleans())
def test_keys_are_equal_where_rows_are(rows: list[list[int]], whole: bool) -> None:
    given = np.array(rows, np.uint8 if whole else np.float32)
    keys = keys_of(given if whole else np.where(given == 0, -given, given))  # −0.0 is 0.0
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            assert (keys[i] == keys[j]) == (one == other)
        assert twice(keys)[i] == (rows.count(one) > 1)
    same = one_of_each(keys, keys[:0])
    if len({tuple(row) for row in rows}) == len(rows):
        assert same is None
    else:
        assert same is not None and [rows[i] for i in same] == rows and all(same[i] == i for i in same)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.integers(0, 9))
def test_rows_that_are_the_same_are_in_one_fold(rows: list[int], seed: int) -> None:
    labels = np.array(rows) % 2
    same = np.array([rows.index(row) for row in rows])
    if len(set(rows)) == 1:  # nobody would be left to learn from
        assert np.array_equal(folds_of(labels, seed=seed, same=same), folds_of(labels, seed=seed))
        return
    folds = folds_of(labels, seed=seed, same=same)
    assert all(len({folds[i] for i, row in enumerate(rows) if row == each}) == 1 for each in rows)
    assert len(np.unique(folds)) == min(5, len(set(rows)))
    assert np.array_equal(folds_of(labels, seed=seed, same=np.arange(len(rows))), folds_of(labels, seed=seed))


def test_what_others_do_as_often_is_no_leak() -> None:
    found = np.arange(200) < 20
    assert not leaked(found, 0.1).any() and leaked(found, 0.01).sum() == leaked(found, 0.0).sum() == 20
    assert not leaked(np.zeros(200, bool), 0.0).any()
    assert leaked(np.arange(200) < 1, 0.0).sum() == 1  # a single row where none is equal by chance


def distinct(first: int, count: int) -> Keys:
    """Rows that are equal to no others."""
    return keys_of(np.arange(first, first + count)[:, None])


def drawn(count: int, values: int, seed: int) -> Keys:
    """Rows of so many values, at random: equal by chance."""
    return keys_of(np.random.default_rng(seed).integers(0, values, (count, 1)))


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("labeled", [60, 500])
def test_labeled_rows_in_the_pool_are_no_chance(labeled: int, copies: int) -> None:
    known = np.tile(distinct(0, labeled), copies)
    pool = np.concatenate([distinct(5000, 900), known, distinct(5000, 3)])  # three rows of the pool are there twice
    assert among(pool, known) < 0.01
    gold = np.concatenate([distinct(20_000, 180), known[:20]])
    assert leaked(np.isin(gold, known), among(pool, known)).sum() == 20
    if copies == 1:  # labeled rows that the pool holds twice are rows that repeat by themselves
        assert leaked(np.isin(gold, pool), by_itself(pool)).sum() == 20


@pytest.mark.slow
@pytest.mark.parametrize("values", [80, 700, 5000, 100_000])
@pytest.mark.parametrize("labeled", [60, 600])
def test_equal_by_chance_is_no_leak(values: int, labeled: int) -> None:
    """From rows that all repeat to rows that seldom do."""
    flagged = 0
    for seed in range(20):
        known, pool, gold = (drawn(count, values, 3 * seed + i) for i, count in enumerate((labeled, 3000, 300)))
        flagged += leaked(np.isin(gold, known), among(pool, known)).any()
        flagged += one_of_each(gold, pool) is not None
        flagged += leaked(np.isin(gold, pool), by_itself(pool)).any()
    assert flagged <= 3


def test_few_unlabeled_rows_tell_nothing() -> None:
    assert among(drawn(TELLING - 1, 2, 0), drawn(10, 2, 1)) == by_itself(drawn(TELLING - 1, 2, 0)) == 0
    assert among(drawn(TELLING, 2, 0), drawn(10, 2, 1)) == by_itself(drawn(TELLING, 3, 0)) == 1


def test_keys_do_not_know_the_size_of_numbers() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    assert np.array_equal(keys_of(rows), keys_of(rows.astype(np.float32)))


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
    assert cli.main(["advise", *words, "--inputs", "x", "--details"]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_gold_rows_that_stand_twice_do_not_answer_for_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = columns(1, 150, 0)
    gold = {name: np.concatenate([values, values]) for name, values in once.items()} | {"id": np.arange(300)}
    said = advised(tmp_path, capsys, gold, columns(2, 1000, 1000))
    assert "Look first: 150 of 300 gold rows repeat the inputs of another one" in said
    alone = float(said.partition("forest alone │ ")[2].partition(" %")[0])
    assert alone < 50  # it guesses: one in three is right
    assert "Verdict: correct" not in said and "but look first" in said


@pytest.mark.slow
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


@pytest.mark.slow
def test_many_small_files_tell_as_much_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, rest = ternary(columns(1, 150, 0), 1), ternary(columns(2, 1000, 1000), 2)
    (tmp_path / "parts").mkdir()
    for i in range(20):
        write(tmp_path / "parts" / f"{i:02d}.parquet", {name: values[50 * i : 50 * i + 50] for name, values in rest.items()})
    whole = advised(tmp_path, capsys, gold, rest)
    words = [
        "--validation",
        str(tmp_path / "v.parquet"),
        "--unlabeled",
        str(tmp_path / "parts"),
        "--inputs",
        "x",
        "--details",
    ]
    assert cli.main(["advise", *words, "--details"]) == 0
    assert " ".join(capsys.readouterr().out.split()) == whole and "Look first" not in whole


@pytest.mark.slow
def test_ids_of_another_type_are_other_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, rest, labeled = columns(1, 150, 0), columns(2, 400, 0), columns(3, 100, 0)
    named = {**rest, "id": np.array([f"row{i}" for i in range(400)])}
    tables = {"v": gold, "u": named, "l": {**labeled, "id": np.array([str(i) for i in range(100)])}}
    words = [str(write(tmp_path / f"{name}.parquet", table)) for name, table in tables.items()]
    words = [part for pair in zip(("--validation", "--unlabeled", "--labeled"), words, strict=True) for part in pair]
    assert cli.main(["advise", *words, "--inputs", "x", "--plan", str(tmp_path / "next.csv")]) == 0
    assert "Look first" not in capsys.readouterr().out and len((tmp_path / "next.csv").read_text().splitlines()) > 300


# modules ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
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
    assert any("200 of 200 gold rows are among the labeled rows too" in each.text for each in found.concerns)
    assert "correct the targets" not in found.verdict and "look first" in found.verdict


def test_a_pool_that_holds_the_labeled_rows_hides_no_leak() -> None:
    """Rows without ids: their inputs are all that tells them apart."""
    random = torch.Generator().manual_seed(0)
    labeled, pool, gold = (torch.randn(n, 4, generator=random) for n in (60, 800, 88))
    everything, leaking = torch.cat([pool, labeled]), torch.cat([gold, labeled[:12]])
    labels = torch.arange(1000) % K

    def run(validation: torch.Tensor) -> None:
        recipe = Recipe(teacher_epochs=1, student_epochs=1, epochs=1)
        given = {"labeled": (labeled, labels[:60]), "validation": (validation, labels[:100]), "unlabeled": everything}
        distill(torch.nn.Linear(4, K), torch.nn.Linear(4, K), **given, rule=unweighted, recipe=recipe)

    for validation in (leaking, leaking.double()):
        with pytest.raises(LeakError, match="12 of 100 rows"):
            run(validation)


@pytest.mark.slow
def test_gold_of_another_size_is_taught_all_the_same() -> None:
    random = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {
        name: (torch.randn(n, 4, generator=random), torch.arange(n) % K)
        for name, n in {"labeled": 30, "validation": 30, "unlabeled": 60}.items()
    }
    given["validation"] = (given["validation"][0].double(), given["validation"][1])
    report = distill(torch.nn.Linear(4, K), torch.nn.Linear(4, K), **given, rule=best, recipe=Recipe(2, 2, 1))
    assert report.outcome.arms["best"].epochs[-1].examples == 120


def test_rows_that_are_left_out_go_to_the_device_with_the_others() -> None:
    split = check_split("labeled", (torch.randn(6, 2), torch.arange(6) % 2), labels=True, folder=Path())
    part = to_device(drop_rows(split, np.arange(6) < 2), torch.device("meta"))
    joined = concatenate([part.inputs, to_device(split, torch.device("meta")).inputs])
    assert len(joined) == 10 and isinstance(joined, InMemory) and joined.values.device.type == "meta"
