"""Arms with settings of their own: as if the whole run had them, paired with the others, told apart, shown and exported."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import wdistill
from tests.distilling import MADE, bits, contents, failing, go, seeded, splits, student, students, table, teacher, undrawn
from tests.killing import fingerprint
from tests.test_distillation import as_picked_rows
from wdistill import (
    Arm,
    ConfigError,
    Evidence,
    Fitted,
    Recipe,
    Report,
    StorageError,
    arm,
    compose,
    debiased,
    fidelity,
    oracle,
    read_run,
    shuffled,
    threshold,
    unweighted,
)
from wdistill.runs.arms import SETTINGS, WEIGHING
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training.export import export_run, load_student
from wdistill.training.inputs import InMemory, Subset
from wdistill.training.labels import read_table
from wdistill.training.tensors import from_bytes
from wdistill.weights.rules import Unweighted

pytestmark = pytest.mark.slow  # nearly all of them train


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


def run(folder: Path, rule: Any, recipe: Recipe = MADE, **changes: Any) -> Report:
    return go(seeded(teacher, 1), seeded(student, 2), recipe, rule=rule, run=folder, **changes)


def arm_of(folder: Path, name: str = "own") -> dict[str, str]:
    """Digests of all that an arm came to: parameters, weights, fitted rule, accuracies; its checkpoints are of the way."""
    return {file: found for file, found in fingerprint(folder / "arms" / name).items() if "checkpoint" not in file}


def assert_alike(one: Path, other: Path, name: str = "own") -> None:
    """An arm of two runs came to the same, up to the rounding of a stack: parameters, weights, losses and accuracies."""
    found, wanted = (CheckpointStore(folder / "arms" / name) for folder in (one, other))
    mine, theirs = (from_bytes(each.read("parameters.safetensors"), name) for each in (found, wanted))
    for key, value in mine.items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-5, atol=1e-6)
    files = [file for file in wanted.snapshot.files if file.endswith(".parquet")]
    assert files and sorted(found.snapshot.files) == sorted(wanted.snapshot.files)
    for file in files:
        weights = (read_table(each.read(file), ["weight"])["weight"] for each in (found, wanted))
        np.testing.assert_allclose(*weights, rtol=1e-5)
    for epoch, expected in zip(found.state["epochs"], wanted.state["epochs"], strict=True):
        assert epoch["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert (epoch["validation"], epoch["test"]) == (expected["validation"], expected["test"])


# as if the whole run had them ------------------------------------------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    "targets": {"targets": "hard"},
    "temperature": {"temperature": 4},
    "temperature squared": {"temperature": 2.0, "temperature_squared": True},
    "confidence": {"confidence": "entropy"},
    "estimate": {"estimate": "ratio"},
    "neighbors": {"neighbors": 7},
    "refresh": {"refresh": 1},
    "gold": {"validation_in_training": "yes"},
    "half of the gold": {"validation_in_training": "half"},
    "features": {"vid": ["layers.1=layers.1"], "vid_scale": 0.5},
    "several": {"targets": "hard", "refresh": 1, "temperature": 2.0},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_an_arm_with_settings_is_the_arm_of_a_run_with_those_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    report = run(tmp_path / "one", {"plain": debiased, "own": arm(debiased, **settings)})
    whole = replace(MADE, **arm(debiased, **settings).settings)
    alone = run(tmp_path / "two", {"own": debiased}, whole)
    assert_alike(tmp_path / "one", tmp_path / "two")
    assert report.students.keys() == {"plain", "own"} and alone.students.keys() == {"own"}
    assert students(report)["own"] != students(report)["plain"]


def test_the_plain_arm_does_not_see_the_settings_of_others(tmp_path: Path) -> None:
    others = {str(i): arm(debiased, **settings) for i, settings in enumerate(CASES.values())}
    run(tmp_path / "many", {**others, "own": debiased})
    run(tmp_path / "one", {"own": debiased})
    assert_alike(tmp_path / "many", tmp_path / "one")


def test_a_threshold_of_an_arms_own(tmp_path: Path) -> None:
    """Rules that need a setting find it in their own arm; other arms need not have it."""
    rules = {"low": arm(threshold, threshold=0.05), "own": arm(threshold, threshold=0.4), "plain": unweighted}
    report = run(tmp_path / "one", rules)
    run(tmp_path / "two", {"own": threshold}, replace(MADE, threshold=0.4))
    assert_alike(tmp_path / "one", tmp_path / "two")
    means = {name: each.refreshes[0].weights.mean for name, each in report.outcome.arms.items()}
    assert means["plain"] == 1 > means["low"] > means["own"]
    with pytest.raises(ConfigError, match="the rule threshold needs it"):
        go(rule={"low": threshold, "high": arm(threshold, threshold=0.4)})


def test_a_shuffled_rule_inside_an_arm(tmp_path: Path) -> None:
    control = shuffled(debiased, seed=3)
    report = run(tmp_path / "one", {"own": arm(control, targets="hard"), "dealt": arm(debiased, targets="hard")})
    run(tmp_path / "two", {"own": control}, replace(MADE, targets="hard"))
    assert_alike(tmp_path / "one", tmp_path / "two")
    mine, theirs = (report.outcome.arms[name].refreshes[0].weights for name in ("own", "dealt"))
    assert mine.counts == theirs.counts and mine.mean == pytest.approx(theirs.mean) and mine.mean < 1
    assert report.outcome.arms["own"].rule == "shuffled" and report.student is report.students["dealt"]


def test_what_a_caller_has_filled_in_wins_over_the_arms_settings() -> None:
    found = arm(debiased.using(neighbors=3), neighbors=9)
    report = go(table(), student, MADE, rule={"own": found, "nine": arm(debiased, neighbors=9)})
    assert [report.outcome.arms[name].fitted[0].k for name in ("own", "nine")] == [3, 9]  # type: ignore[attr-defined]


# paired ----------------------------------------------------------------------------------------------------------------


class Noting(torch.nn.Module):
    """Notes every batch that it is trained on; what it does depends on values, so that it is never in a stack."""

    seen: list[bytes] = []  # noqa: RUF012 (a copy of the module shall write here too)

    def __init__(self) -> None:
        super().__init__()
        self.inner = student()

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and inputs.isfinite().all():
            self.seen.append(inputs.numpy().tobytes())
        return self.inner(inputs)


def test_arms_of_the_same_rows_see_the_same_batches_whatever_their_settings() -> None:
    ways: list[dict[str, Any]] = [{}, {"targets": "hard"}, {"temperature": 3}, {"refresh": 1}, {"confidence": "entropy"}]
    Noting.seen.clear()
    go(table(), Noting, MADE, rule={str(i): arm(debiased, **way) for i, way in enumerate(ways)})
    steps = len(Noting.seen) // len(ways)
    assert steps == 2 * 6 and len(Noting.seen) == steps * len(ways)
    assert all(Noting.seen[i * steps : (i + 1) * steps] == Noting.seen[:steps] for i in range(len(ways)))
    assert Noting.seen[:6] != Noting.seen[6:12]


def test_all_arms_begin_with_the_same_student() -> None:
    seen: dict[int, Evidence] = {}

    def spy(number: int) -> Any:
        def weigh(evidence: Evidence) -> Any:
            seen[number] = evidence
            return np.ones(len(evidence.teacher))

        return weigh

    settings = [{}, {"targets": "hard"}, {"validation_in_training": "yes"}, {"temperature": 2.0}]
    go(table(), student, MADE, rule={str(i): arm(spy(i), **each) for i, each in enumerate(settings)})
    first, hard, gold, warm = (seen[i].validation_student for i in range(4))
    assert (first == hard).all() and (first == gold).all() and (first == 2 * warm).all()


# refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"epochs": 3}, r"(?s)arm debiased: not a setting that an arm can have.*'epochs'.*in the recipe, for all arms"),
        ({"seed": 1}, "in the recipe, for all arms"),
        ({"rate": 0.1}, "'rate'"),
        ({"temprature": 2}, "did you mean temperature"),
        ({"targets": "harsh"}, r"(?s)arm debiased: targets.*did you mean hard"),
        ({"refresh": 0}, "arm debiased: refresh"),
        ({"temperature": "warm"}, "arm debiased: temperature"),
        ({"vid": "a=b"}, "arm debiased: vid"),
    ],
    ids=str,
)
def test_unknown_settings_and_bad_values_are_refused_at_once(settings: dict[str, Any], match: str) -> None:
    for make in (lambda: arm(debiased, **settings), lambda: Arm(debiased, settings)):
        with pytest.raises(ConfigError, match=match):
            make()


@pytest.mark.parametrize(
    "make",
    [lambda: arm("debiased"), lambda: arm(arm(debiased)), lambda: shuffled(arm(debiased)), lambda: shuffled("debiased")],  # type: ignore[arg-type]
    ids=["text", "an arm in an arm", "an arm in a control", "text in a control"],
)
def test_what_is_no_rule_is_refused_inside_an_arm_too(make: Any) -> None:
    with pytest.raises(ConfigError, match="not a rule"):
        go(rule={"own": make()})


def test_settings_at_odds_are_refused_before_training() -> None:
    with pytest.raises(ConfigError, match=r"(?s)arm own: neighbors.*at most 15"):
        go(rule={"all": debiased, "own": arm(debiased, neighbors=16, validation_in_training="half")})
    with pytest.raises(ConfigError, match="vid_scale"):
        go(rule={"all": debiased, "own": arm(debiased, vid_scale=2)})
    with pytest.raises(ConfigError, match="vid"):
        go(table(), student, MADE, rule={"all": debiased, "own": arm(debiased, vid=("layers.1=layers.1",))})
    with pytest.raises(ConfigError, match="confidence"):
        go(rule={"all": unweighted, "own": arm(fidelity, confidence="entropy")})
    report = go(
        table(), student, MADE, rule={"all": debiased, "own": arm(debiased, refresh=1, validation_in_training="yes")}
    )
    assert any("memorised" in text for text in report.outcome.warnings)


def test_a_setting_that_only_other_arms_look_at_is_no_conflict() -> None:
    recipe = replace(MADE, confidence="entropy", neighbors=16)
    rules = {"hard": arm(unweighted, targets="hard", validation_in_training="half"), "debiased": debiased}
    assert go(table(), student, recipe, rule=rules).outcome.state == "finished"


# told apart ------------------------------------------------------------------------------------------------------------

RULES: Mapping[str, Any] = {"unweighted": unweighted, "own": arm(debiased, targets="hard", refresh=1)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("arms") / "run"
    return folder, run(folder, RULES)


@pytest.mark.parametrize(
    ("own", "match"),
    [
        (arm(debiased, targets="hard", refresh=2), r"rule own: .*refresh=1 → .*refresh=2"),
        (arm(debiased, targets="hard"), r"rule own: .* with targets=hard, refresh=1 → .* with targets=hard"),
        (debiased, r"rule own: .* with targets=hard, refresh=1 → debiased\(.*targets='soft'\)"),
        (arm(debiased, targets="hard", refresh=1, temperature=2), "temperature=2.0"),
        (arm(shuffled(), targets="hard", refresh=1), r"→ shuffled\(debiased"),
    ],
    ids=["another value", "one less", "none", "one more", "another rule"],
)
def test_a_run_with_other_settings_is_refused_with_what_changed(finished: tuple[Path, Report], own: Any, match: str) -> None:
    folder, _ = finished
    before = contents(folder)
    with pytest.raises(ConfigError, match=match) as caught:
        run(folder, {**RULES, "own": own})
    assert contents(folder) == before and "something else" in str(caught.value)


def test_the_order_of_settings_does_not_matter(finished: tuple[Path, Report]) -> None:
    before = contents(finished[0])
    run(finished[0], {**RULES, "own": arm(debiased, refresh=1, targets="hard")})
    assert contents(finished[0]) == before


def test_the_identity_of_an_arm_covers_every_setting() -> None:
    """With every setting changed in turn, all identities differ."""
    values = {name: value for settings in CASES.values() for name, value in settings.items()} | {"threshold": 0.3}
    assert set(values) == set(SETTINGS) > set(WEIGHING)
    found = {str(arm(debiased)), *(str(arm(debiased, **{name: value})) for name, value in values.items())}
    assert len(found) == len(SETTINGS) + 1


def test_an_interrupted_run_goes_on_with_the_arms_settings(finished: tuple[Path, Report], tmp_path: Path) -> None:
    with failing(10**6, errno.ENOSPC) as whole:
        run(tmp_path / "whole", RULES)
    for at in (len(whole) - 45, len(whole) - 25):
        folder = tmp_path / str(at)
        with failing(at, errno.ENOSPC), pytest.raises(StorageError):
            run(folder, RULES)
        assert (folder / "arms" / "own").exists()
        run(folder, RULES)
        assert arm_of(folder) == arm_of(finished[0])


def test_two_workers_give_the_same_bits(finished: tuple[Path, Report], tmp_path: Path) -> None:
    """Arms with settings and picked rows, of files and of memory, go to other processes."""
    data = {name: as_picked_rows(name, *pair, tmp_path) for name, pair in splits().items()}
    held = Subset(InMemory(splits()["unlabeled"][0].flip(0)), torch.arange(59, -1, -1))
    run(tmp_path / "run", RULES, replace(MADE, workers=2), **{**data, "unlabeled": (held, splits()["unlabeled"][1])})
    for name in RULES:
        assert arm_of(tmp_path / "run", name) == arm_of(finished[0], name)


# kept and exported -----------------------------------------------------------------------------------------------------


@wdistill.rule
def mine(evidence: Evidence) -> Fitted:
    return Unweighted()


def test_rules_and_settings_are_kept_in_the_run(tmp_path: Path) -> None:
    rules = {
        "base": arm(unweighted, temperature=1),  # as the recipe has it
        "both": arm(compose(debiased, fidelity), refresh=1, vid=["layers.1=layers.1"]),
        "mine": mine,
    }
    report = run(tmp_path / "run", rules)
    found = read_run(tmp_path / "run").arms
    assert {name: each.rule for name, each in found.items()} == {
        "base": "unweighted",
        "both": "debiased,fidelity",
        "mine": "mine",
    }
    assert {name: each.settings for name, each in found.items()} == {
        "base": {},
        "both": {"vid": ["layers.1=layers.1"], "refresh": 1},
        "mine": {},
    }
    assert report.outcome.recipe["refresh"] is None and report.outcome.teacher is not None
    assert report.outcome.teacher.rule == "" and report.student is report.students["both"]
    checkpoints = CheckpointStore(tmp_path / "run")  # of a version that kept neither
    checkpoints.commit({name: value for name, value in checkpoints.state.items() if name not in ("rules", "settings")})
    older = read_run(tmp_path / "run").arms["both"]
    assert older.rule == "both" and older.settings == {} and older.epochs == found["both"].epochs


def test_the_student_of_an_arm_with_settings_can_be_exported(finished: tuple[Path, Report], tmp_path: Path) -> None:
    folder, report = finished
    assert export_run(folder, tmp_path / "student")["arm"] == "own"  # the first that is not a control
    assert bits(load_student(tmp_path / "student")) == students(report)["own"]
    assert export_run(folder, tmp_path / "control", "unweighted")["arm"] == "unweighted"
    assert bits(load_student(tmp_path / "control")) == students(report)["unweighted"] != students(report)["own"]


def test_controls_are_known_by_their_rule_not_by_their_name() -> None:
    rules = {"base": arm(unweighted, targets="hard"), "dealt": shuffled(), "best": oracle, "ours": arm(debiased, refresh=1)}
    report = go(table(), student, MADE, rule=rules)
    assert report.student is report.students["ours"]
