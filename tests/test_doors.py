"""Arrays, tables, answers and modules lead to the same targets, gains, intervals, rows and costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from tests.tables import write
from wdistill import Data, Evidence, Prices, Recipe, advise_answers, cli
from wdistill import advise as advise_modules
from wdistill.cli import advise as command
from wdistill.methods.advice import Advice, advise
from wdistill.methods.best import supervise_best
from wdistill.methods.context import Context, MethodArm, Targets, one_hot
from wdistill.methods.metric import parse_metric
from wdistill.methods.questions import Questions

NAMES, K, M, N = ("ant", "bee", "cow"), 3, 160, 900
PRICES = Prices(gold=0.5, teacher=0.01, error=0.2)
MONEY = ["--serve", "50000", "--price-gold", "0.5", "--price-teacher", "0.01", "--price-error", "0.2"]
ASKED = ["--within", "3", "--metric", "macro-f1", *MONEY]


def rows(count: int, first: int, seed: int) -> dict[str, np.ndarray]:
    """Ids in their order, labels, and two experts."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, count)
    found = {"id": np.array([f"{number:05}" for number in range(first, first + count)]), "label": labels}
    for name, strength in (("teacher", 1.2), ("student", 1.5)):
        powers = np.exp(1.5 * (rng.normal(size=(count, K)) + strength * one_hot(labels, K)))
        found[name] = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    return found


GOLD, POOL, LABELED = rows(M, 0, 1), rows(N, 1000, 2), rows(30, 5000, 3)
Drawn = Mapping[str, np.ndarray]  # how gold rows were drawn: columns "group" and "inclusion"
DRAWN = [
    pytest.param({}, id="evenly"),
    pytest.param({"group": np.arange(M) % 40}, id="groups, numbers of one digit and of two"),
    pytest.param({"inclusion": np.where(GOLD["label"] == 0, 0.9, 0.3)}, id="unevenly"),
]


def by_arrays(*, student: bool, drawn: Drawn, shape: Targets = "soft", gold_alone: bool = False) -> Advice:
    own = (GOLD["student"], POOL["teacher"], POOL["student"]) if student else (None, POOL["teacher"], None)
    evidence = Evidence(GOLD["label"], GOLD["teacher"], *own)
    weights = 1 / drawn["inclusion"] if "inclusion" in drawn else None
    design: dict[str, Any] = {"gold_weights": weights, "gold_groups": drawn.get("group")}
    context = Context(evidence, targets=shape, gold_alone=gold_alone, **design)
    metric = parse_metric("macro-f1", NAMES)
    return advise(context, metric=metric, questions=Questions(3.0, PRICES, 50_000))


def by_tables(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, student: bool, drawn: Drawn, shape: Targets = "soft"
) -> tuple[Advice, np.ndarray]:
    """The advice that the command prints, and the targets that `weigh` writes."""
    left_out = {"label"} if student else {"label", "student"}
    columns = {name: v for name, v in GOLD.items() if name not in left_out - {"label"}} | drawn
    gold = write(folder / "gold.parquet", columns)
    pool = write(folder / "pool.parquet", {name: v for name, v in POOL.items() if name not in left_out})
    tables, printed = ["--validation", str(gold), "--unlabeled", str(pool), "--targets", shape], list[Advice]()
    monkeypatch.setattr(command, "print_advice", lambda advice, *_, **__: printed.append(advice))
    assert cli.main(["advise", *tables, *ASKED]) == 0
    assert cli.main(["weigh", "--method", "best", *tables, "--output", str(folder / "targets.parquet")]) == 0
    column = pq.read_table(folder / "targets.parquet")["targets"].combine_chunks()
    return printed[0], column.flatten().to_numpy().reshape(N, K)


def by_modules(drawn: Drawn, shape: Targets) -> Advice:
    """A teacher that is a table, and a student whose inputs are its own log-probabilities; nobody is trained."""
    student = nn.Linear(K, K, bias=False)
    student.load_state_dict({"weight": torch.eye(K)})

    def data(given: dict[str, np.ndarray], groups: Any = None, inclusion: Any = None) -> Data:
        inputs, labels = torch.from_numpy(np.log(given["student"])), torch.from_numpy(given["label"])
        return Data(inputs, labels, given["id"], groups, inclusion)

    teacher = {"validation": GOLD["teacher"], "unlabeled": POOL["teacher"]}
    return advise_modules(
        teacher,
        student,
        data(LABELED),
        data(GOLD, drawn.get("group"), drawn.get("inclusion")),
        data(POOL),
        rule=MethodArm("best", supervise_best, ("retrained",)),  # which a table cannot be
        recipe=Recipe(student_epochs=0, epochs=1, seed=0, targets=shape),
        metric="macro-f1",
        within=3,
        prices=PRICES,
        serve=50_000,
    )


def numbers(value: Any) -> list[float]:
    """All numbers of a record, whatever holds them."""
    if hasattr(value, "__dataclass_fields__"):
        return [number for name in value.__dataclass_fields__ for number in numbers(getattr(value, name))]
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    if isinstance(value, tuple | list):
        return [number for each in value for number in numbers(each)]
    return [float(value)] if isinstance(value, int | float) else []


def same(one: Advice, other: Advice, *names: str) -> None:
    for name in names:
        assert numbers(getattr(one, name)) == pytest.approx(numbers(getattr(other, name)), abs=1e-4, nan_ok=True), name


PLAIN = ("gold", "unlabeled", "teacher", "by_class", "gain", "steps", "judging", "accuracies", "needed")


def targets(advice: Advice, *, student: bool) -> np.ndarray:
    experts = {"teacher": POOL["teacher"], "student": POOL["student"]} if student else {"teacher": POOL["teacher"]}
    whole = {name: values / values.sum(axis=1, keepdims=True, dtype=np.float64) for name, values in experts.items()}
    return advice.correction.targets.of(whole)


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("shape", ["soft", "hard"])
def test_arrays_tables_and_modules_give_the_same(
    drawn: Drawn, shape: Targets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = by_arrays(student=True, drawn=drawn, shape=shape)
    tables, written = by_tables(tmp_path, monkeypatch, student=True, drawn=drawn, shape=shape)
    same(arrays, tables, *PLAIN, "judged", "pool", "costs")
    assert tables.verdict == arrays.verdict and tables.costs is not None and tables.costs.sentence == arrays.costs.sentence  # type: ignore[union-attr]
    expected = targets(arrays, student=True)
    assert np.abs(written - (expected if shape == "soft" else one_hot(expected.argmax(axis=1), K))).max() < 1e-6
    modules = by_modules(drawn, shape)
    same(arrays, modules, *PLAIN)
    assert np.abs(targets(modules, student=True) - targets(arrays, student=True)).max() < 1e-6
    assert numbers(modules.pool.accuracy) == pytest.approx(numbers(arrays.pool.accuracy), abs=1e-6)
    assert numbers(modules.pool.classes) == pytest.approx(numbers(arrays.pool.classes), abs=1e-6)
    assert (
        arrays.forecast is None and modules.forecast is not None and modules.pool.pilot is not None
    )  # only modules have pilots here


@pytest.mark.parametrize("drawn", DRAWN)
def test_arrays_tables_and_answers_give_the_same(drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = by_arrays(student=False, drawn=drawn, gold_alone=True)
    tables, written = by_tables(tmp_path, monkeypatch, student=False, drawn=drawn)
    everything = {name: np.concatenate([GOLD[name], POOL[name]]) for name in ("id", "teacher")}
    columns = {f"prob_{name}": everything["teacher"][:, number].tolist() for number, name in enumerate(NAMES)}
    labels = {"id": GOLD["id"].tolist(), "label": [NAMES[label] for label in GOLD["label"]]}
    labels |= {name: values.tolist() for name, values in drawn.items()}
    asked = {"metric": "macro-f1", "within": 3, "prices": PRICES, "serve": 50_000}
    answers = advise_answers({"id": everything["id"].tolist(), **columns}, labels, **asked)
    assert answers.classes == NAMES
    for found in (tables, answers.advice):
        same(arrays, found, *PLAIN, "judged", "pool", "costs")
        assert found.verdict == arrays.verdict
    assert np.abs(written - targets(arrays, student=False)).max() < 1e-6
    assert np.abs(targets(answers.advice, student=False) - targets(arrays, student=False)).max() < 1e-6
