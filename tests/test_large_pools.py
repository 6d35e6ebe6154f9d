"""Pools whose predictions are too many to hold: the bits of arrays in memory, and memory that does not grow with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from tests.distilling import MADE, QUICK, Dropping, go, seeded, student, table, teacher, undrawn
from tests.killing import child, differences, fingerprint, killer, operations
from wdistill import Evidence, arm, best, compose, debiased, entropy, fidelity, oracle, shuffled, threshold, unweighted
from wdistill.core import store
from wdistill.core.errors import FileError, NumericalError
from wdistill.training import logits
from wdistill.training.inputs import InMemory
from wdistill.training.logits import FiledLogits, most_likely, parts, whole
from wdistill.training.predict import predict
from wdistill.training.targets import OneHot, SoftRows, targets_on
from wdistill.weights.confidence import Scan, scan
from wdistill.weights.rule import Rule
from wdistill.weights.rules import confidences_of

FEW = 100  # predictions that are held: fewer than any split of the small runs here has
SCANNED = {
    "debiased": debiased,
    "by entropy": debiased.using(confidence=entropy, targets="hard"),
    "ratio": debiased.using(estimate="ratio"),
    "fidelity": fidelity,
    "of the pool": fidelity.using(over="unlabeled"),
    "threshold": threshold.using(threshold=0.4),
    "oracle": oracle,
    "unweighted": unweighted,
    "control": shuffled(fidelity, seed=3),
    "product": compose(debiased, fidelity),
}


def sure(predictions: Any) -> Any:
    return predictions.max(axis=1)


@dataclass
class Powered:
    """A confidence that has no hash."""

    power: float

    def __call__(self, predictions: Any) -> Any:
        return sure(predictions) ** self.power


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hardly any predictions are held."""
    with monkeypatch.context() as patched:
        patched.setattr(logits, "HELD", FEW)
        yield


def written(path: Path, values: Any) -> FiledLogits:
    np.save(path, values.astype(np.float32))
    return FiledLogits(path, values.shape)


def evidence() -> Evidence:
    random = np.random.default_rng(5)
    labels = random.integers(0, 4, 1000)
    rows = [(random.normal(size=(1000, 4)) + factor * np.eye(4)[labels]).astype(np.float32) for factor in (2, 1)]
    gold, pool, labeled = slice(0, 200), slice(200, 900), slice(900, 1000)
    arrays = [values[part] for part in (gold, pool) for values in rows]
    return Evidence(labels[gold], *arrays, rows[0][labeled], labels[pool], kind="logits")


@pytest.mark.parametrize("name", SCANNED)
def test_scans_of_parts_give_the_weights_of_predictions(name: str) -> None:
    known, rule = evidence(), SCANNED[name]
    confidences = confidences_of(rule)
    assert confidences is not None

    def scanned(values: Any) -> Scan:
        return Scan.joined([scan(part, "logits", entropy=entropy in confidences) for part in np.array_split(values, 5)])

    given = {column: scanned(getattr(known, column)) for column in ("teacher", "student", "labeled_teacher")}
    found, wanted = rule.explain(replace(known, **given)), rule.explain(known)
    assert np.array_equal(found.weights, wanted.weights) and len(np.unique(wanted.weights)) > (name != "unweighted")
    assert (found.clipped, found.tied, found.floored) == (wanted.clipped, wanted.tied, wanted.floored)


def test_what_may_look_at_predictions_is_not_given_scans() -> None:
    by_own_confidence = debiased.using(confidence=sure)
    composed = compose(debiased, Rule(lambda known: known))
    for rule in (
        by_own_confidence,
        debiased.using(confidence=Powered(2.0)),
        Rule(sure),
        shuffled(by_own_confidence),
        composed,
    ):
        assert confidences_of(rule) is None


def test_rows_of_a_part_that_cannot_be_predicted_are_named_by_their_number_among_all() -> None:
    values = torch.zeros(600, 6)
    values[300] = torch.nan
    with pytest.raises(NumericalError, match=r"1 rows, first 300 \(from 0\)"):
        predict(seeded(student, 2), InMemory(values), rows=slice(256, 512))


@pytest.mark.usefixtures("few")
def test_rows_of_a_file_are_those_of_the_array(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(700, 3)).astype(np.float32)
    filed, rows = written(tmp_path / "x.npy", values), np.array([699, 0, 5, 5, 312])
    for at in (rows, rows[:0], slice(128, 256), slice(600, 900), slice(0, 0)):
        assert np.array_equal(filed[at], values[at])
    assert [part.stop - part.start for part in parts(*filed.shape)] == [128] * 5 + [60]
    assert np.array_equal(most_likely(filed), values.argmax(axis=1)) and np.array_equal(whole(filed), values)


def test_a_file_that_lost_its_end_or_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    filed = written(path, np.ones((50, 3)))
    os.truncate(path, path.stat().st_size - 1)
    assert len(filed[np.array([48])]) == 1
    for at in (np.array([49]), slice(0, 50)):
        with pytest.raises(FileError, match=r"x\.npy[\s\S]*fewer bytes[\s\S]*run again"):
            filed[at]
    path.unlink()
    with pytest.raises(FileError, match=r"x\.npy[\s\S]*No such file"):
        filed[slice(0, 1)]


def test_targets_of_a_batch_are_those_of_all_rows(tmp_path: Path) -> None:
    """Beside a slow reference in NumPy: one-hot rows, softmax of the teacher's, one-hot rows."""
    random = np.random.default_rng(1)
    values, before, after = random.normal(size=(40, 3)) * 4, torch.tensor([2, 0, 1]), torch.tensor([1, 1])
    filed = written(tmp_path / "x.npy", values)
    powers = np.exp(values.astype(np.float32).astype(np.float64) / 2.5)
    wanted = np.concatenate([np.eye(3)[before], powers / powers.sum(axis=1, keepdims=True), np.eye(3)[after]])
    soft, hard = SoftRows(before, filed, after, 2.5), OneHot(torch.from_numpy(wanted.argmax(axis=1)), 3)
    at = torch.tensor([44, 0, 3, 42, 43, 7, 2, 3])
    assert len(soft) == 45 and np.abs(soft.rows(at).numpy() - wanted[at]).max() < 1e-7
    assert torch.equal(soft.rows(at[:2]), one_hot(torch.tensor([1, 2]), 3).float())  # none of the teacher's
    both = targets_on(torch.device("cpu"), [soft, hard, torch.from_numpy(wanted).float()]).rows(at)
    assert torch.equal(both[0], soft.rows(at)) and torch.equal(both[1], hard.rows(at)) and both.shape == (3, 8, 3)


ARMS = {
    "soft": debiased,
    "hard": arm(fidelity, targets="hard"),
    "warm": arm(debiased, temperature=3.0),
    "control": shuffled(),
}
MANY = torch.randn(300, 6, generator=torch.Generator().manual_seed(4)) + 1, torch.arange(300) % 3
CASES: dict[str, dict[str, Any]] = {
    "one model": {"rule": ARMS, "unlabeled": MANY},
    "each alone": {"rule": ARMS, "given_student": Dropping, "unlabeled": MANY},
    "a table": {"rule": debiased, "given_teacher": table()},
    "no labeled rows": {"rule": debiased, "labeled": None, "given_teacher": {**table(), "labeled": None}},
    "gold is taught": {"rule": fidelity, "recipe": {"validation_in_training": "half"}},
    "best, and a function": {
        "rule": {"best": best, "own": lambda known: sure(known.validation_teacher).mean() + 0 * known.truth}
    },
    "in parts": {"rule": debiased, "recipe": {"micro_batches": 2}},
}


def trained(folder: Path, case: dict[str, Any]) -> dict[str, str]:
    recipe = replace(QUICK, refresh=1, **case.get("recipe", {}))
    models = {"given_teacher": seeded(teacher, 1), "given_student": seeded(student, 2)}
    given = {name: value for name, value in {**models, **case}.items() if name != "recipe"}
    if isinstance(given["given_teacher"], dict):
        given["given_teacher"] = {name: values for name, values in given["given_teacher"].items() if values is not None}
    go(recipe=recipe, run=folder, **given)
    return fingerprint(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_run_of_a_large_pool_has_the_bits_of_a_small_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters, weights, labels, metrics and states; and nothing is left of the files."""
    held = trained(tmp_path / "held", CASES[name])
    monkeypatch.setattr(logits, "HELD", FEW)
    opened = list[Path]()
    monkeypatch.setattr(store, "before", lambda operation, path: opened.append(path))
    filed = trained(tmp_path / "filed", CASES[name])
    assert differences(filed, held) == []
    assert any(path.name.startswith(".labels.unlabeled.npy") for path in opened)  # the files were there


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_run_of_a_large_pool_that_is_killed_resumes_with_the_same_bits(tmp_path: Path) -> None:
    recipe = replace(MADE, checkpoint_seconds=0.0)
    models = seeded(teacher, 1), seeded(student, 2)

    def begin(folder: Path) -> None:
        go(*models, recipe, rule=debiased, run=folder)

    plan = operations(tmp_path / "wanted", begin)
    wanted = fingerprint(tmp_path / "wanted")
    points = [at for at, line in enumerate(plan, 1) if "labels.unlabeled.npy" in line]
    assert len(points) >= 4  # it is opened, synced, renamed and removed
    for at in sorted({*points, sum(points[2:4]) // 2}):  # and while an arm reads it
        assert child(tmp_path / "run", killer(at), begin) < 0
        assert child(tmp_path / "run", lambda operation, path: None, begin) == 0
        assert differences(fingerprint(tmp_path / "run"), wanted) == [], plan[at - 1]
        shutil.rmtree(tmp_path / "run")


PROGRAM = """
import json, resource, sys, tempfile
import torch
from wdistill import Recipe, debiased, distill, fidelity
rows, classes, arms, workers = map(int, sys.argv[1:5])
if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gold = torch.randn(600, 4), torch.arange(600) % classes
    teacher, student = torch.nn.Linear(4, classes), torch.nn.Linear(4, classes)
    recipe = Recipe(teacher_epochs=0, student_epochs=0, epochs=1, batch_size=512, workers=workers, device="cpu")
    rule = [debiased, fidelity][:arms]
    unlabeled = torch.randn(rows, 4)
    distill(teacher, student, gold, (gold[0] + 1, gold[1]), unlabeled, rule=rule, recipe=recipe, run=sys.argv[5])
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def alone(folder: Path, rows: int, arms: int = 1, workers: int = 1) -> float:
    """The peak memory in MB of a run in a process of its own."""
    program = folder.with_suffix(".py")
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), *map(str, (rows, 1000, arms, workers)), str(folder)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[1])
    return float(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.proof
@pytest.mark.parametrize("arms", [1, 2])
def test_memory_does_not_grow_with_the_predictions(arms: int, tmp_path: Path) -> None:
    """60,000 rows more, of 1,000 classes, are 240 MB in every array of predictions, of which there were half a dozen."""
    small, large = (alone(tmp_path / f"{rows}", rows, arms) for rows in (20_000, 80_000))
    assert large - small < 100


@pytest.mark.proof
def test_worker_processes_read_the_same_files(tmp_path: Path) -> None:
    """17,000 × 1,000 predictions are too many to hold without any patch."""
    assert logits.HELD < 17_000 * 1000
    for workers in (1, 2):
        alone(tmp_path / f"{workers}", 17_000, 1, workers)
    one, two = (fingerprint(tmp_path / f"{workers}") for workers in (1, 2))
    assert [name for name in differences(one, two) if name != "metrics.jsonl" and not name.endswith("state")] == []
