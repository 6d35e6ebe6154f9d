"""`wdistill reproduce`: every item on a tiny budget, the protocol of a trial, resuming, and what is said of it all."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments.lab import results as lines
from experiments.lab import running
from experiments.lab import trial as protocol
from experiments.lab.items import Item
from experiments.lab.results import Line
from experiments.lab.trial import Experiment, Trial, full_budget_of, pretrain, shortened
from experiments.paper import reproduce as reproducing
from experiments.paper.catalogue import ITEMS
from tests.killing import timeless
from tests.reproducing import FRESH, SHARED, TEST, TINY, catalogue, ids, make_data, parameters, reproduce, trials, view
from wdistill import Evidence, arm, debiased, oracle, unweighted
from wdistill.core import store
from wdistill.core.errors import BusyError
from wdistill.datasets import Dataset, load, save_prepared
from wdistill.runs.arms import arms_of
from wdistill.runs.checkpoints import read_manifest
from wdistill.training import arm as training_arm
from wdistill.training.stage import Stage

LABELS = 6
BUDGET = "--labels 6 --trials 1 --pretraining 1 --unlabeled 2 --validation 4 --test 4 --batch-size 8 --size 32"
SMALL = BUDGET.split()  # a step for every arm and epoch
ROOT = Path(__file__).parent.parent


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all items put what they make: those that share an experiment run it once."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials of each tiny experiment, run without a break in this process."""
    folder = tmp_path_factory.mktemp("done")
    with catalogue(TINY):
        assert reproduce(data, folder, "tiny") == 0
    return folder


@pytest.fixture
def tiny() -> Iterator[None]:
    with catalogue(TINY):
        yield


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever would run a trial fails."""

    def run(trials: list[Trial], *others: Any) -> None:
        raise AssertionError(f"{len(trials)} trials would run")

    monkeypatch.setattr(reproducing, "run", run)


def read(folder: Path, experiment: Experiment = SHARED) -> list[Line]:
    return lines.read(folder / "results" / f"{experiment.name}.jsonl")


def comparable(folder: Path, experiment: Experiment) -> list[object]:
    """The lines without their times, by trial."""
    return [timeless(line) for line in sorted(read(folder, experiment), key=lambda line: line["trial"])]


# ---------------------------------------------------------------------------------------------------------------- items


FEW = ("small-fashion",)  # tried by `make test`; `make proofs` tries all


@pytest.mark.parametrize(
    "item", [pytest.param(item, id=item.name, marks=() if item.name in FEW else pytest.mark.proof) for item in ITEMS]
)
def test_every_item_is_run_and_drawn_and_not_run_again(
    item: Item, data: Path, results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set((results / "figures").glob("*.svg"))
    epochs = 2 if any(refreshed(each) for each in item.experiments) else 1  # weights are refreshed before the second
    budget = (*SMALL, "--epochs", str(epochs))
    assert reproduce(data, results, item.name, *budget) == 0
    for experiment in item.experiments:
        (line,) = (line for line in read(results, experiment) if line["budget"]["epochs"] == epochs)
        assert list(line["arms"]) == list(experiment.arms)
        assert all(0 <= each["final"] <= each["best"] <= 1 for each in line["arms"].values())
        assert all(len(each["trajectory"]) == epochs for each in line["arms"].values())
        for name in refreshed(experiment):
            assert [each["after"] for each in line["arms"][name]["weights"]] == [0, 1]
        alike = [each for each in item.experiments if list(each.arms) == list(experiment.arms)]
        assert shown(results / "tables" / f"{item.name}.md", experiment) >= len(alike)
    figures = set((results / "figures").glob("*.svg"))
    assert figures - before and all(ElementTree.parse(figure).getroot().tag.endswith("svg") for figure in figures)

    told, kept = capsys.readouterr(), {path: path.read_bytes() for path in (results / "results").glob("*.jsonl")}
    assert "instead of" in told.err or "nothing to run" in told.err
    monkeypatch.setattr(reproducing, "run", None)
    assert reproduce(data, results, item.name, *budget) == 0
    again = capsys.readouterr()
    assert "nothing to run" in again.err and again.out == told.out
    assert {path: path.read_bytes() for path in kept} == kept


def refreshed(experiment: Experiment) -> list[str]:
    """The arms whose weights are estimated anew after every epoch."""
    found = arms_of(dict(experiment.arms), experiment.recipe)
    return [name for name, each in found.items() if each.recipe(experiment.recipe).refresh]


def shown(table: Path, experiment: Experiment) -> int:
    """How many tables of a file have every arm of an experiment."""
    sections = re.split("^### ", table.read_text(), flags=re.M)[1:]
    wanted = [rf"^\| {re.escape(arm)}(<br>.*?)? \| .*?\d" for arm in experiment.arms]
    return sum(all(re.search(each, text, re.M) for each in wanted) for text in sections)


def test_all_is_every_item() -> None:
    assert reproducing.find(["all"]) == list(ITEMS) and reproducing.find(["svhn", "figure1"]) == [ITEMS[0], ITEMS[3]]


# ------------------------------------------------------------------------------------------------------------- protocol


@pytest.mark.parametrize("experiment", [SHARED, FRESH], ids=lambda each: each.name)
def test_no_row_is_in_two_splits(done: Path, experiment: Experiment) -> None:
    for trial in trials(done, experiment.name):
        parts = [ids(trial, split) for split in ("labeled", "validation", "unlabeled")]
        assert [len(part) for part in parts] == [12, 6, 8] and len({row for part in parts for row in part}) == 26
        assert ids(trial, "test") == list(range(TEST))


def test_trials_share_models_and_labels_and_are_dealt_another_split(done: Path) -> None:
    first, second = trials(done, "shared")
    assert ids(first, "labeled") == ids(second, "labeled") == list(range(12))
    assert all(ids(first, split) != ids(second, split) for split in ("validation", "unlabeled"))
    assert all(parameters(first, model) == parameters(second, model) for model in ("teacher", "student"))
    (stored,) = (done / "runs" / "models").glob("teacher-*-shared-*")
    assert store.digest_file(stored / "parameters.safetensors") == parameters(first, "teacher")
    assert [line["repeat"] for line in read(done)] == [None, None]


def test_repeats_have_labels_and_models_of_their_own(done: Path) -> None:
    first, second = trials(done, "fresh")
    assert set(ids(first, "labeled")) != set(ids(second, "labeled"))
    assert all(parameters(first, model) != parameters(second, model) for model in ("teacher", "student"))
    assert [line["repeat"] for line in read(done, FRESH)] == [0, 1]


def test_a_line_says_what_became_of_a_trial(done: Path, data: Path) -> None:
    number = (int, float)
    for line in [*read(done), *read(done, FRESH)]:
        budget = {"teacher_epochs": 2, "student_epochs": 1, "epochs": 2, "validation": 6, "unlabeled": 8, "test": 6}
        budget |= {"batch_size": 8, "teacher": "cnn:width=4", "student": "cnn:width=2", "shape": "1×28×28"}
        assert set(lines.NEEDED) <= set(line) and line["budget"] == budget
        assert line["paper_budget"] == (None if line["experiment"] == "fresh" else budget)
        assert line["data"] == load("fashion", data).metadata and not line["data"]["official"]
        assert set(line["teacher"]) >= {"validation", "unlabeled", "test"} and set(line["student"]) >= {"validation", "test"}
        counts = line["margins"]["right"] + line["margins"]["wrong"]
        assert len(counts) == 40 and sum(counts) == 8
        assert sum(line["margins"]["right"]) / 8 == pytest.approx(line["teacher"]["unlabeled"], abs=1e-5)
        for name, found in line["arms"].items():
            assert (
                found["best"] == max(found["trajectory"])
                and found["final"] == found["trajectory"][-1]
                and len(found["trajectory"]) == 2
            )
            assert found["chosen"] in found["trajectory"] and all(
                isinstance(each, number) for each in found["seconds"].values()
            )
            assert [each["after"] for each in found["weights"]] == ([0, 1] if name == "debiased-refresh" else [0])
        assert line["arms"]["unweighted"]["weights"][0]["mean"] == 1 and "error" not in line["arms"]["unweighted"]
        known = [value for value in line["arms"]["debiased"]["error"].values() if value is not None]
        assert (
            known
            and all(0 <= value <= 1 for value in known)
            and set(line["arms"]["debiased"]["distortion"]) == {"right", "wrong"}
        )
        assert set(line["settings"]) == set(line["arms"]) and line["recipe"]["epochs"] == 2 and line["seconds"] >= 0
        assert line["seed"] == line["trial"] and set(line["environment"]) == {"processor", "cores", "torch", "device"}


def losses(trial: Path, arm: str) -> list[float]:
    """By epoch, with all their bits: other batches, flips or initial parameters have others."""
    return [each["loss"] for each in read_manifest(trial / "arms" / arm).state["epochs"]]


def test_arms_of_a_trial_begin_alike(done: Path) -> None:
    """The refresh, which comes after the first epoch, is all that tells its arm from the one without."""
    for trial, line in zip(trials(done, "shared"), read(done), strict=True):
        once, refreshed = (line["arms"][name] for name in ("debiased", "debiased-refresh"))
        assert losses(trial, "debiased")[0] == losses(trial, "debiased-refresh")[0]
        assert once["trajectory"][0] == refreshed["trajectory"][0] and once["weights"][0] == refreshed["weights"][0]


def ones(evidence: Evidence) -> Any:
    return np.ones(len(evidence.teacher))


@pytest.mark.parametrize("paired", [True, False])
def test_arms_of_equal_weights_are_equal_unless_their_batches_differ(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paired: bool
) -> None:
    if not paired:  # each arm draws batches and flips of its own
        monkeypatch.setattr(
            training_arm, "Stage", lambda name, *others, **more: Stage(name, *others, **{**more, "order": name})
        )
    alike = replace(SHARED, arms={"unweighted": unweighted, "ones": ones}, trials=1)
    with catalogue(replace(TINY, views=(view(alike),))):
        assert reproduce(data, tmp_path, "tiny") == 0
    (trial,) = trials(tmp_path, "shared")
    assert (losses(trial, "unweighted") == losses(trial, "ones")) == paired
    assert (parameters(trial / "arms", "unweighted") == parameters(trial / "arms", "ones")) == paired


# --------------------------------------------------------------------------------------------------------------- budget


@pytest.mark.parametrize(
    ("asked", "epochs"),
    [
        ({}, (40, 20, 10)),
        ({"epochs": 5}, (20, 10, 5)),
        ({"epochs": 1}, (4, 2, 1)),
        ({"epochs": 20}, (80, 40, 20)),
        ({"pretraining": 3}, (3, 3, 10)),
        ({"epochs": 5, "pretraining": 7}, (7, 7, 5)),
    ],
)
def test_epochs_are_shortened_in_proportion(asked: dict[str, int], epochs: tuple[int, int, int]) -> None:
    recipe = replace(SHARED.recipe, teacher_epochs=40, student_epochs=20, epochs=10)
    found = shortened(replace(SHARED, recipe=recipe), **asked).recipe
    assert (found.teacher_epochs, found.student_epochs, found.epochs) == epochs
    assert replace(found, teacher_epochs=40, student_epochs=20, epochs=10) == recipe


def test_no_stage_is_shortened_to_nothing() -> None:
    recipe = replace(SHARED.recipe, teacher_epochs=2, student_epochs=1, epochs=200)
    found = shortened(replace(SHARED, recipe=recipe), epochs=1).recipe
    assert (found.teacher_epochs, found.student_epochs, found.epochs) == (1, 1, 1)


def test_a_size_is_for_images_that_have_none_of_their_own() -> None:
    assert shortened(SHARED, size=32) == SHARED and shortened(replace(SHARED, size=64), size=32).size == 32


CELEBA = replace(SHARED, dataset="celeba", size=64, validation=8, unlabeled=None, test=None)
SCHEDULE = "the schedule of the learning rate goes with the number of epochs"
NAMED: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"epochs": 4},
        ["teacher_epochs 4 instead of 2", "student_epochs 2 instead of 1", "epochs 4 instead of 2", SCHEDULE],
    ),
    ({"pretraining": 3}, ["teacher_epochs 3 instead of 2", "student_epochs 3 instead of 1", SCHEDULE]),
    ({"validation": 6}, ["validation 6 instead of 8", "unlabeled 12 instead of 162750"]),
    ({"unlabeled": 5}, ["unlabeled 5 instead of 162750"]),
    ({"test": 4}, ["test 4 instead of 19962"]),
    ({"batch_size": 16}, ["batch_size 16 instead of 8"]),
    ({"precision": "bfloat16"}, ["precision bfloat16 instead of float32"]),
    ({"size": 32}, ["shape 3×32×32 instead of 3×64×64"]),
]


@pytest.mark.parametrize(("asked", "told"), NAMED)
def test_nothing_is_changed_in_silence(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], told: list[str]
) -> None:
    """Beside the data, which have fewer rows than the published ones and say so, just what was changed is named."""
    kept = load("celeba", data, 32)
    monkeypatch.setattr(Trial, "dataset", property(lambda trial: resized(kept, trial.experiment.size)))

    def found(budget: dict[str, Any]) -> list[str]:
        trial, *_ = reproducing.trials_of(CELEBA, budget, data, tmp_path)
        return [text.removeprefix("shared: ") for text in reproducing.differences(trial)]

    always = found({})
    assert always[:2] == ["unlabeled 10 instead of 162750", "test 6 instead of 19962"]
    assert len(always) == 3 and always[2].startswith("the data are not from the official files: ")
    assert sorted(text for text in found(asked) if text not in always) == sorted(told)


def resized(dataset: Dataset, size: int | None) -> Dataset:
    assert size is not None
    parts = [
        replace(part, inputs=part.inputs[:, :, :1, :1].repeat(size, 2).repeat(size, 3))
        for part in (dataset.train, dataset.test)
    ]
    return replace(dataset, train=parts[0], test=parts[1])


def test_what_is_shortened_is_said(
    data: Path, tmp_path: Path, tiny: None, idle: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDISTILL_DEBUG", "1")
    with pytest.raises(AssertionError, match="4 trials would run"):
        reproduce(data, tmp_path, "tiny", "--epochs", "1", "--unlabeled", "5")
    told = capsys.readouterr().err
    for name in ("shared", "fresh"):
        assert f"{name}: epochs 1 instead of 2" in told and f"{name}: unlabeled 5 instead of 8" in told
        assert told.count(f"{name}: the data are not from the official files") == 1
    assert "4 trials to run, 0 run before" in told


@pytest.mark.parametrize("changed", ["precision", "data", "arms", "labels", "trial", "recipe", "settings", "rules"])
def test_a_line_of_something_else_is_not_this_trial(
    done: Path, data: Path, tmp_path: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, *_ = reproducing.trials_of(SHARED, {}, data, tmp_path)
    assert reproducing.is_done(trial, read(done)) and not reproducing.is_done(trial, [])
    others = {
        "precision": replace(trial, experiment=shortened(SHARED, precision="bfloat16")),
        "arms": replace(trial, experiment=replace(SHARED, arms={**SHARED.arms, "oracle": oracle})),
        "recipe": replace(trial, experiment=replace(SHARED, recipe=replace(SHARED.recipe, rate=0.1))),
        "settings": replace(trial, experiment=replace(SHARED, arms={**SHARED.arms, "debiased": arm(debiased, refresh=1)})),
        "rules": replace(
            trial, experiment=replace(SHARED, arms={**SHARED.arms, "debiased": debiased.using(estimate="ratio")})
        ),
        "labels": replace(trial, labels=11),
        "trial": replace(trial, number=2),
        "data": replace(trial, root=tmp_path),
    }
    save_prepared(tmp_path / "fashion" / "prepared", replace(load("fashion", data), official=True))
    assert not reproducing.is_done(others[changed], read(done))


def test_arms_of_two_lines_stand_side_by_side_where_the_code_is_the_same(done: Path) -> None:
    """Whatever the commit; with other code, or where it is not known with another commit, the older arms are left out."""
    whole = read(done)[0]
    arms = list(whole["arms"])

    def part(names: list[str], **changes: object) -> Line:
        own = {name: {arm: whole[name][arm] for arm in names} for name in ("arms", "settings", "rules")}
        return {**whole, **own, **changes}

    assert whole["code"] and len(whole["code"]) == 12
    (both,) = lines.together([part(arms[:1], commit="a"), part(arms[1:], commit="b+")]).values()
    assert set(both["arms"]) == set(arms)
    for older in (part(arms[:1], code="another"), {k: v for k, v in part(arms[:1], commit="a").items() if k != "code"}):
        with pytest.warns(UserWarning, match=f"other code or models: {arms[0]}"):
            (last,) = lines.together([older, part(arms[1:], commit="b")]).values()
        assert set(last["arms"]) == set(arms[1:])


def test_a_trial_that_another_process_is_at_waits_and_one_that_it_has_done_is_left_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (
        replace(reproducing.trials_of(SHARED, {}, data, tmp_path)[0], number=number) for number in range(3)
    )
    ran: list[int] = []

    def busy_once(trial: Trial) -> Line:
        ran.append(trial.number)
        if trial.number == 0 and ran.count(0) == 1:
            raise BusyError("another process is at it", where="x", found="y", expected="z")
        return {"number": trial.number}

    monkeypatch.setattr(running, "run_trial", busy_once)
    running.run([first, second, third], tmp_path, 1, lambda trial: trial.number == 1 and len(ran) > 0)
    assert ran == [0, 2, 0]
    with pytest.raises(BusyError):
        ran.clear()
        running.run([first], tmp_path, 1, lambda trial: False)


def test_the_list_counts_trials_and_those_of_the_full_budget(
    done: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [reproducing.is_full(SHARED, line) for line in read(done)] == [True, True]
    assert not reproducing.is_full(SHARED, {**read(done)[0], "trial": SHARED.trials})  # more than was asked for
    short = {**read(done)[0], "budget": full_budget_of(shortened(FRESH, epochs=1), 12)}
    few = {**read(done)[0], "arms": {"unweighted": {}}}
    assert not any(reproducing.is_full(FRESH, line) for line in (short, few, {**read(done)[0], "labels": 11}))
    with catalogue(TINY):
        assert reproduce(data, done, "--list") == 0 and reproduce(data, tmp_path) == 0
    full, empty = re.findall(r"(\d+)\s+(\d+ of \d+)\s*$", capsys.readouterr().out, re.M)
    assert full == ("4", "4 of 4") and empty == ("0", "0 of 4")


# ----------------------------------------------------------------------------------------------- stopped and side by side


@pytest.mark.kill
@pytest.mark.proof
def test_a_killed_command_goes_on_and_comes_to_the_same(data: Path, done: Path, tmp_path: Path, tiny: None) -> None:
    command = [sys.executable, "-m", "tests.reproducing", str(data), str(tmp_path)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    (trial,) = trials(tmp_path, "shared")
    assert read_manifest(trial / "arms" / "unweighted").state["finished"] and not (trial / "arms" / "debiased").exists()
    kept = (trial / "arms" / "unweighted" / "parameters.safetensors").stat().st_mtime_ns
    assert read(tmp_path) == []
    assert reproduce(data, tmp_path, "tiny") == 0
    assert (trial / "arms" / "unweighted" / "parameters.safetensors").stat().st_mtime_ns == kept
    for experiment in (SHARED, FRESH):
        assert comparable(tmp_path, experiment) == comparable(done, experiment)


@pytest.mark.proof
def test_two_workers_come_to_the_same_as_one(data: Path, done: Path, tmp_path: Path, tiny: None) -> None:
    assert reproduce(data, tmp_path, "tiny", "--workers", "2") == 0
    for experiment in (SHARED, FRESH):
        assert comparable(tmp_path, experiment) == comparable(done, experiment)


def test_who_finds_its_models_in_training_waits_for_them(data: Path, done: Path, tmp_path: Path) -> None:
    trial, *_ = reproducing.trials_of(SHARED, {}, data, tmp_path)
    found: list[Any] = []
    waiting = Thread(target=lambda: found.append(pretrain(trial, "student")))
    folder = trial.model_folder("student")
    store.make_folder(folder, parents=True)
    with store.waiting_for(folder):  # as another process that is training it
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive() and not (folder / "parameters.safetensors").exists()
    waiting.join()
    first = trials(done, "shared")[0]
    assert len(found) == 1 and store.digest_file(folder / "parameters.safetensors") == parameters(first, "student")


def test_a_line_says_which_code_trained_its_models(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial, *_ = reproducing.trials_of(SHARED, {}, data, tmp_path)
    monkeypatch.setattr(protocol, "code", lambda: "older")
    pretrain(trial, "teacher")
    monkeypatch.setattr(protocol, "code", lambda: "newer")
    line = protocol.run_trial(trial)
    told = {which: [each["code"] for each in by] for which, by in line["trained_by"].items()}
    assert told == {"teacher": ["older"], "student": ["newer"]} and line["code"] == "newer"
    (trial.model_folder("teacher") / protocol.TRAINED_BY).unlink()  # as one that was trained before that was noted
    assert protocol.run_trial(trial)["trained_by"]["teacher"] == []


def test_more_trials_are_added_to_those_there_are(
    data: Path, done: Path, tmp_path: Path, tiny: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(data, tmp_path, "tiny", "--trials", "1") == 0
    assert [line["trial"] for line in read(tmp_path)] == [0]
    capsys.readouterr()
    assert reproduce(data, tmp_path, "tiny") == 0
    assert "2 trials to run, 2 run before" in capsys.readouterr().err
    assert comparable(tmp_path, FRESH) == comparable(done, FRESH)


# ----------------------------------------------------------------------------------------------------------------- arms


def test_some_arms_and_then_the_others(data: Path, done: Path, tmp_path: Path, tiny: None) -> None:
    """Each is what it is among all, the table has both, and nothing is left to run."""
    with catalogue(replace(TINY, views=(view(SHARED),))):
        assert reproduce(data, tmp_path, "tiny", "--arms", "debiased,unweighted", "--trials", "1") == 0
        (line,) = read(tmp_path)
        assert list(line["arms"]) == ["unweighted", "debiased"]
        assert timeless(line["arms"]) == timeless({name: read(done)[0]["arms"][name] for name in line["arms"]})
        assert reproduce(data, tmp_path, "tiny", "--arms", "debiased-refresh", "--trials", "1") == 0
        assert all(f"| {name}" in (tmp_path / "tables" / "tiny.md").read_text() for name in SHARED.arms)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reproducing, "run", None)
            assert reproduce(data, tmp_path, "tiny", "--trials", "1") == 0


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            ["tiny", "--arms", "debiased,debaised"],
            ["--arms, shared: no such arm", "found: debaised", "unweighted, debiased, "],
        ),
        (["tinny"], ["no such table or figure", "'tinny'", "did you mean tiny?"]),
        (["tiny", "--trials", "-1"], ["--trials", "not a whole number"]),
        (["tiny", "--labels", "12,x"], ["--labels", "'x' is not a whole number"]),
        (["tiny", "--labels", "12,17"], ["the data set has fewer rows", "17 labeled, 6 validation and 8 unlabeled rows"]),
    ],
)
def test_what_cannot_be_run_is_one_clear_error(
    data: Path, tmp_path: Path, tiny: None, words: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = reproduce(data, tmp_path, *words)
    except SystemExit as left:
        code = left.code
    told = capsys.readouterr().err
    assert code == 2 and told.count("error: ") == 1 and all(text in told for text in found)
    assert not list(tmp_path.rglob("*.jsonl")) and not (tmp_path / "runs").exists()


def test_a_missing_data_set_says_how_to_get_it(
    data: Path, tmp_path: Path, idle: None, capsys: pytest.CaptureFixture[str]
) -> None:
    partial = make_data(tmp_path / "data", "fashion")
    item = replace(TINY, views=(view(SHARED), view(replace(FRESH, dataset="svhn"))))
    with catalogue(item):
        assert reproduce(partial, tmp_path / "results", "tiny") == 2
    told = capsys.readouterr().err
    assert told.count("error: ") == 1 and "wdistill data svhn" in told and "train_32x32.mat" in told


def test_no_trials_only_draws(
    done: Path, tmp_path: Path, tiny: None, idle: None, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "data"  # not even data are needed
    (tmp_path / "results").mkdir()
    assert reproduce(nowhere, tmp_path, "tiny", "--trials", "0") == 0
    assert "tiny: no lines yet" in capsys.readouterr().err and not (tmp_path / "tables").exists()
    for name in ("shared.jsonl", "fresh.jsonl"):
        (tmp_path / "results" / name).write_bytes((done / "results" / name).read_bytes())
    assert reproduce(nowhere, tmp_path, "tiny", "--trials", "0") == 0
    assert (tmp_path / "tables" / "tiny.md").read_bytes() == (done / "tables" / "tiny.md").read_bytes()
