"""What is asked of the students of both libraries of trees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from tests.adapters.answers import Answers
from wdistill import ConfigError, InputError
from wdistill.adapters.sklearn import Distiller, fit_student
from wdistill.adapters.table import TargetTable, read_targets
from wdistill.adapters.tree_student import TargetRows, TreeStudent
from wdistill.training.losses import weighted_loss

Array = NDArray[Any]
Student = Callable[[], TreeStudent]


def rows(classes: int, seed: int = 0, n: int = 200) -> tuple[Array, Array, Array]:
    """Inputs with few values, whose bins are the same however often a row is repeated; targets; weights, some of them 0."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(0, 6, (n, 4)).astype(np.float64)
    targets = rng.dirichlet(np.ones(classes), n) * 0.4 + 0.6 * np.eye(classes)[inputs[:, 0].astype(int) % classes]
    return inputs, targets, rng.integers(0, 4, n).astype(np.float64)


def table_of(targets: Array, weight: Array) -> TargetTable:
    return TargetTable(np.arange(len(targets)), targets, weight)


def rows_to_stop_by() -> tuple[Array, ...]:
    """Inputs, targets and weights, and the same of rows held out, of which two thirds have weight 0 and other targets."""
    inputs, targets, weight = rows(3)
    held, taught, counts = rows(3, seed=1, n=90)
    counts = np.where(np.arange(90) % 3 == 0, 1.0, 0.0)
    taught[counts == 0] = np.roll(taught[counts == 0], 1, axis=1)
    return inputs, targets, weight, held, taught, counts


def expanded(inputs: Array, targets: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Rows × classes, with weight w · t: what the libraries' own objectives can be given."""
    n, classes = targets.shape
    mass = (weight[:, None] * targets).ravel()
    kept = mass > 0
    return np.repeat(inputs, classes, axis=0)[kept], np.tile(np.arange(classes), n)[kept], mass[kept]


def as_matrix(predictions: Array) -> Array:
    return predictions if predictions.ndim == 2 else np.stack([1 - predictions, predictions], axis=1)


def assert_weight_0_leaves_out(student: Student, classes: int) -> None:
    inputs, targets, weight = rows(classes)
    kept = weight > 0
    whole = student().fit(inputs, targets, weight)
    part = student().fit(inputs[kept], targets[kept], weight[kept])
    assert 0 < kept.sum() < len(kept)
    assert np.array_equal(whole.predict_proba(inputs), part.predict_proba(inputs))


def assert_integer_weights_repeat(student: Student, classes: int) -> None:
    inputs, targets, weight = rows(classes)
    times = weight.astype(int)
    weighted = student().fit(inputs, targets, weight)
    repeated = student().fit(np.repeat(inputs, times, axis=0), np.repeat(targets, times, axis=0))
    np.testing.assert_allclose(weighted.predict_proba(inputs), repeated.predict_proba(inputs), atol=1e-5)
    plain = student().fit(inputs, targets)
    assert np.abs(plain.predict_proba(inputs) - weighted.predict_proba(inputs)).max() > 0.01


def assert_starts_from_the_mean(stump: Student, classes: int) -> None:
    """Trees without a split predict the weighted mean of the targets."""
    inputs, targets, weight = rows(classes)
    mean = np.average(targets, axis=0, weights=weight)
    np.testing.assert_allclose(stump().fit(inputs, targets, weight).predict_proba(inputs), [mean] * len(inputs), atol=1e-6)


def assert_one_round_is_the_references(
    one_round: Callable[[Array, Array, Array, float], tuple[Array, Array, float]],
) -> None:
    """Two classes: each leaf of the first tree is −rate · Σ gradient / Σ Hessian of the core's own loss, and the loss that
    the library reports is the core's.

    `one_round` (inputs, targets, weight, rate) gives the leaf of every row, its log odds, and that loss, which the libraries
    divide by Σ weight.
    """
    rate, (inputs, targets, weight) = 0.3, rows(2)
    share = np.average(targets[:, 1], weights=weight)
    first = torch.full((len(inputs),), float(np.log(share / (1 - share))), dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(reference(first, targets, weight), first, create_graph=True)
    (bends,) = torch.autograd.grad(slopes.sum(), first)
    leaves, odds, loss = one_round(inputs, targets, weight, rate)
    assert len(np.unique(leaves)) > 3
    for leaf in np.unique(leaves):
        of_leaf = torch.tensor(leaves == leaf)
        wanted = first[of_leaf] - rate * slopes[of_leaf].sum() / bends[of_leaf].sum()
        np.testing.assert_allclose(odds[leaves == leaf], wanted.detach(), rtol=0, atol=1e-6)
    wanted = reference(torch.tensor(odds, dtype=torch.float64), targets, weight).item()
    np.testing.assert_allclose(loss * weight.sum() / len(weight), wanted, rtol=0, atol=1e-6)


def reference(odds: torch.Tensor, targets: Array, weight: Array) -> torch.Tensor:
    """The core's weighted loss of two classes by the log odds (n,) of the second."""
    logits = torch.stack([torch.zeros_like(odds), odds], dim=1)
    return weighted_loss(logits, torch.tensor(targets), torch.tensor(weight))


def assert_alone_in_a_fresh_process(fitted: TreeStudent, inputs: Array, folder: Path, code: str) -> None:
    """The saved booster predicts the wrapper's probabilities where nothing of wdistill is imported."""
    np.save(folder / "inputs.npy", inputs)
    lines = ["import sys, numpy as np", "X = np.load('inputs.npy')", code, "np.save('said.npy', said)"]
    script = "\n".join([*lines, "print('wdistill' in sys.modules)"])
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"
    np.testing.assert_allclose(np.load(folder / "said.npy"), fitted.predict_proba(inputs), atol=1e-6)


def assert_stops_by_the_last_set(student: Student, rounds: Callable[[TreeStudent], int], classes: int) -> None:
    """A set before the last, of which the first tree already is wrong, changes nothing."""
    inputs, targets, weight = rows(classes)
    held, taught, counts = rows(classes, seed=1, n=80)
    last, noise = (held, TargetTable(np.arange(80), taught, counts)), (held, np.roll(taught, 1, axis=1))
    stopped, by_both, by_noise = (
        student().fit(inputs, targets, weight, eval_set=sets) for sets in ([last], [noise, last], [last, noise])
    )
    assert rounds(by_noise) == 1 < rounds(stopped) < 60
    assert rounds(by_both) == rounds(stopped)
    assert np.array_equal(by_both.predict_proba(held), stopped.predict_proba(held))


def assert_refuses_classes_in_another_order(student: Student) -> None:
    inputs, targets, _ = rows(3)

    def table(*names: str) -> TargetTable:
        return TargetTable(np.arange(len(targets)), targets, np.ones(len(targets)), names or None)

    taught = table("a", "b", "c")
    with pytest.raises(InputError, match=r"(?s)eval_set 1.*a, c, b"):
        student().fit(inputs, taught, eval_set=[(inputs, taught), (inputs, table("a", "c", "b"))])
    student().fit(inputs, taught, eval_set=[(inputs, taught), (inputs, table()), (inputs, targets)])


def assert_refuses_what_is_no_list_of_pairs(student: Student) -> None:
    inputs, targets, weight = rows(3)
    for wrong in ((inputs, targets), [(inputs, targets, weight)], [inputs], inputs):
        with pytest.raises(ConfigError, match="these are no sets to judge on"):
            student().fit(inputs, targets, eval_set=wrong)
    with pytest.raises(InputError, match="one value a row"):
        student().fit(inputs, targets, eval_set=[(inputs, targets.argmax(axis=1))])
    with pytest.raises(ConfigError, match="read_targets"):
        student().fit(inputs, "targets.parquet")


def assert_not_fitted(student: Student) -> None:
    for ask in (student().predict, student().predict_proba):
        with pytest.raises(NotFittedError):
            ask(np.zeros((1, 4)))


def assert_takes_what_the_file_says(student: Student, found: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifier trains on targets and weights in the order of the ids that were asked for, bit for bit."""
    file = pq.read_table(found.targets)
    targets = np.stack(file["targets"].to_numpy()).astype(np.float64)
    ids, weight = file["id"].to_numpy().astype(int), np.random.default_rng(2).integers(1, 4, len(file)) / 3
    order = np.random.default_rng(1).permutation(len(ids))
    table, seen = read_targets({"id": ids, "targets": targets, "weight": weight}), list[TargetRows]()
    fitted, plain = student(), student()
    train = type(fitted)._train

    def look(self: TreeStudent, rows: TargetRows, *others: Any) -> Any:
        seen.append(rows)
        return train(self, rows, *others)

    monkeypatch.setattr(type(fitted), "_train", look)
    fitted.fit(found.inputs[ids[order]], table.select(ids[order]))
    assert np.array_equal(seen[0].targets, targets[order]) and np.array_equal(seen[0].weight, weight[order])
    assert np.array_equal(seen[0].inputs, found.inputs[ids[order]])
    of_file = read_targets(found.targets)
    assert np.array_equal(of_file.select(ids[order]).targets, targets[order]) and (of_file.weight == 1).all()
    plain.fit(found.inputs[ids[order]], targets[order], weight[order])
    assert np.array_equal(fitted.predict_proba(found.inputs), plain.predict_proba(found.inputs))


def assert_learns(student: Student, found: Answers) -> None:
    """From the file to a student that knows more than gold labels alone teach, and names classes as the file does."""
    table = read_targets(found.targets)
    taught = student().fit(found.inputs[table.ids.astype(int)], table)
    names, numbers = np.unique(found.labels[found.gold], return_inverse=True)
    alone = student().fit(found.inputs[found.gold], np.eye(len(names))[numbers])
    truth = found.labels[found.test]
    right = (taught.predict(found.inputs[found.test]) == truth).mean()
    right_alone = (names[alone.predict(found.inputs[found.test])] == truth).mean()
    assert right > right_alone + 0.02, (right, right_alone)
    assert taught.score(found.inputs[found.test], truth) == right


def assert_a_distiller_hands_on_targets(student: Student) -> None:
    """To a student that takes soft targets itself they are passed as they are, with the weights."""
    inputs, targets, _ = rows(3, n=300)
    wrong = np.random.default_rng(3).random(300) < 0.15
    truth = np.array(["a", "b", "c"])[(targets.argmax(axis=1) + wrong) % 3]
    y = np.where(np.arange(300) < 90, truth, None)
    seen = np.arange(300) < 30
    for method, mask in (("best", None), ("paper", seen)):
        model = Distiller(student(), method).fit(inputs, y, teacher=targets, seen_by_teacher=mask)
        plain = student().fit(inputs, model.targets_, model.weight_)
        assert np.array_equal(model.predict_proba(inputs), plain.predict_proba(inputs))
        assert [*model.classes_] == [*model.student_.classes_] == ["a", "b", "c"] and {*model.predict(inputs)} <= {*"abc"}
        assert (model.weight_ == 1).all() == (method == "best") and model.advice_.gold == (90 if mask is None else 60)
    labels = Distiller(make_pipeline(MinMaxScaler(), student())).fit(inputs, truth)
    assert labels.score(inputs, truth) > 0.7 and [*labels.classes_] == [*"abc"]
    again = fit_student(student(), inputs, table_of(model.targets_, model.weight_))
    assert np.array_equal(again.predict_proba(inputs), model.predict_proba(inputs))
    with pytest.raises(ConfigError, match="weights cannot be refreshed"):
        Distiller(student(), "paper", refresh=2).fit(inputs, y, teacher=targets, seen_by_teacher=seen)
    with pytest.raises(InputError, match="other classes than targets"):
        student().fit(inputs, targets, classes=["a", "b"])
