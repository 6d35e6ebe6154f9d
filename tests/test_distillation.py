"""`distill` as a user calls it: paired arms, any data, models as they come, errors before training, runs that go on."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import wdistill
from tests.distilling import (
    MADE,
    QUICK,
    Dropping,
    bits,
    contents,
    failing,
    go,
    seeded,
    splits,
    student,
    students,
    table,
    teacher,
    undrawn,
    unlike,
)
from tests.tables import Items, write
from wdistill import (
    ConfigError,
    Data,
    Evidence,
    FileError,
    InputError,
    LeakError,
    Outcome,
    Report,
    Streamed,
    debiased,
    distill,
    fidelity,
    oracle,
    read_run,
    shuffled,
    unweighted,
)
from wdistill.training import logits
from wdistill.training.inputs import InMemory, MemoryMapped, Subset, materialise
from wdistill.training.labels import read_table, table_bytes

pytestmark = pytest.mark.slow  # nearly all of them train


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture(scope="module")
def reference() -> Report:
    return go()


# arms and models -------------------------------------------------------------------------------------------------------


def test_arms_are_paired(reference: Report) -> None:
    """What an arm comes to does not depend on the others: same start, same batches."""
    several = go(rule=[unweighted, debiased, fidelity, oracle, shuffled(), wdistill.compose(debiased, fidelity)])
    assert list(several.students) == ["unweighted", "debiased", "fidelity", "oracle", "shuffled", "debiased,fidelity"]
    alone = go(rule=unweighted)
    for name, single in (("unweighted", alone), ("debiased", reference)):
        for key, value in single.students[name].state_dict().items():  # up to rounding: several are trained as one model
            torch.testing.assert_close(several.students[name].state_dict()[key], value, rtol=0, atol=1e-6)
    losses = {name: each.epochs[0].loss for name, each in several.outcome.arms.items()}
    assert losses["unweighted"] > losses["fidelity"] > losses["debiased,fidelity"]
    means = {name: each.refreshes[0].weights.mean for name, each in several.outcome.arms.items()}
    assert means["unweighted"] == 1 and means["shuffled"] == pytest.approx(means["debiased"])
    assert several.student is several.students["debiased"]  # the first that is not a control
    constant = go(rule={"mine": lambda evidence: np.ones(len(evidence.teacher))})
    assert students(constant)["mine"] == students(alone)["unweighted"]


def test_the_callers_models_and_random_numbers_stay_as_they_are() -> None:
    models = [seeded(Dropping, 1), seeded(Dropping, 2).eval()]
    before, modes = [bits(each) for each in models], [each.training for each in models]
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    first = go(*models)
    assert torch.equal(torch.rand(3), wanted)
    assert [bits(each) for each in models] == before and [each.training for each in models] == modes
    assert not any(each.training for each in first.students.values())
    assert students(go(*models)) == students(first)


def test_a_function_makes_its_model_from_the_seed(reference: Report) -> None:
    torch.manual_seed(123)
    assert students(go()) == students(reference)
    assert students(go(recipe=replace(QUICK, seed=1))) != students(reference)


def test_trained_models_are_taken_as_they_are(tmp_path: Path) -> None:
    master, pupil = seeded(teacher, 1).requires_grad_(False), seeded(student, 2)  # a frozen teacher is the usual one
    report = go(master, pupil, MADE, run=tmp_path / "run")
    from wdistill.training.labels import read_labels
    from wdistill.training.predict import predict

    found = read_labels(tmp_path / "run" / "labels", "unlabeled")
    assert found is not None and (found == predict(master, InMemory(splits()["unlabeled"][0]))).all()
    assert report.outcome.student.epochs == () and report.outcome.teacher is not None
    with pytest.raises(ConfigError, match="teacher_epochs=0"):
        go(master, pupil)
    with pytest.raises(ConfigError, match="student has nothing to train"):
        go(teacher, seeded(student).requires_grad_(False))


class Wrong(nn.Module):
    """Returns what a subclass makes of the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = student()

    def forward(self, inputs: Tensor) -> Any:
        return self.wrong(self.inner(inputs))


class Pair(Wrong):
    wrong = staticmethod(lambda logits: (logits, None))


class Soft(Wrong):
    wrong = staticmethod(lambda logits: logits.softmax(1))


class Stateful(Wrong):
    def get_extra_state(self) -> Any:
        return {"step": 1}


class Flat(Wrong):
    wrong = staticmethod(lambda logits: logits[:, 0])


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (Pair, "a tuple"),
        (Soft, "probabilities"),
        (Flat, r"shape \(2,\)"),
        (lambda: nn.Linear(5, 3), "cannot read its input"),
        (lambda: nn.Linear(6, 4), "4"),
        (lambda: 3, "not a student"),
        ("student", "not a student"),
        (lambda: student().double(), "call .float"),
        (Stateful, "cannot be saved"),
    ],
    ids=["tuple", "probabilities", "one number", "other inputs", "other classes", "no module", "text", "double", "state"],
)
def test_a_model_that_does_not_fit_is_refused_before_training(model: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, InputError), match=match):
        go(teacher, model, run=tmp_path / "run")
    assert not list((tmp_path / "run").glob("generation-*"))


def test_labels_out_of_range_name_their_split() -> None:
    inputs, labels = splits()["validation"]
    with pytest.raises(InputError, match="validation labels"):
        go(validation=(inputs, labels + 1))
    with pytest.raises(InputError, match="validation"):
        go(validation=inputs)
    with pytest.raises(InputError, match="labeled"):
        go(labeled=(inputs, labels[:-1]))
    with pytest.raises(InputError, match="unlabeled"):
        go(unlabeled=inputs[:0])
    with pytest.raises(InputError, match="NaN or infinite"):
        go(unlabeled=torch.where(inputs > 2, torch.nan, inputs))


# rules -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (lambda n: np.zeros(n), "only zeros"),
        (lambda n: np.full(n, -0.5), "-0.5"),
        (lambda n: np.full(n, 1.5), "1.5"),
        (lambda n: np.full(n, np.nan), "weights of bad"),
        (lambda n: np.ones(n - 1), "59"),
        (lambda n: np.ones((n, 2)), "weights of bad"),
        (lambda n: None, "weights of bad"),
    ],
    ids=["zeros", "negative", "above 1", "nan", "too few", "a matrix", "nothing"],
)
def test_a_function_that_returns_no_weights_is_refused(weights: Any, match: str) -> None:
    def bad(evidence: Evidence) -> Any:
        return weights(len(evidence.teacher))

    with pytest.raises(InputError, match=match):
        go(table(), student, MADE, rule=bad)


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        ("debiased", "the function itself"),
        (["debiased"], "the function itself"),
        ({"one": "debiased"}, "the function itself"),
        ([], "empty"),
        ({"a b": debiased, "a_b": unweighted}, "told apart"),
        ({"student": debiased}, "other names"),
    ],
    ids=["text", "texts", "a text by name", "none", "names alike", "the name of a stage"],
)
def test_what_is_no_rule_is_refused_at_once(rule: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        go(rule=rule)


def test_what_a_rule_lacks_is_said_before_training(tmp_path: Path) -> None:
    inputs, _ = splits()["unlabeled"]
    for rule in (oracle, shuffled(oracle), wdistill.compose(debiased, oracle)):
        with pytest.raises(InputError, match="the oracle needs the truth"):
            go(unlabeled=inputs, rule=rule, run=tmp_path / "run")
    with pytest.raises(ConfigError, match="defined at the top"):
        go(recipe=replace(QUICK, workers=2), rule=lambda evidence: np.ones(60), run=tmp_path / "run")
    with pytest.raises(ConfigError, match="at most 15"):
        go(recipe=replace(QUICK, neighbors=16, validation_in_training="half"), run=tmp_path / "run")
    assert not list((tmp_path / "run").glob("generation-*"))


# data ------------------------------------------------------------------------------------------------------------------


def as_arrays(name: str, inputs: Tensor, labels: Tensor, folder: Path) -> Any:
    return inputs.numpy(), labels.numpy()


def as_files(name: str, inputs: Tensor, labels: Tensor, folder: Path) -> Any:
    np.save(folder / f"{name}.npy", inputs.numpy())
    return np.load(folder / f"{name}.npy", mmap_mode="r"), labels


def as_datasets(name: str, inputs: Tensor, labels: Tensor, folder: Path) -> Any:
    return TensorDataset(inputs, labels)


def as_streams(name: str, inputs: Tensor, labels: Tensor, folder: Path) -> Any:
    return Streamed(Items(inputs, labels))


def as_a_mixture(name: str, inputs: Tensor, labels: Tensor, folder: Path) -> Any:
    ways = {"labeled": as_arrays, "validation": as_streams, "unlabeled": as_files, "test": as_datasets}
    return ways[name](name, inputs, labels, folder)


def as_other_layouts(name: str, inputs: Tensor, labels: Tensor, folder: Path) -> Any:
    return np.asfortranarray(inputs.numpy().astype(">f4")), labels.tolist()


def as_picked_rows(name: str, inputs: Tensor, labels: Tensor, folder: Path) -> Any:
    """Rows of one file that holds more, in another order."""
    order = torch.randperm(2 * len(inputs), generator=torch.Generator().manual_seed(0))
    whole = torch.full((2 * len(inputs), *inputs.shape[1:]), 7.0)
    whole[order[: len(inputs)]] = inputs
    np.save(folder / f"{name}.npy", whole.numpy())
    return Subset(MemoryMapped(folder / f"{name}.npy"), order[: len(inputs)]), labels


WAYS = [as_arrays, as_files, as_datasets, as_streams, as_a_mixture, as_other_layouts, as_picked_rows]


@pytest.mark.parametrize("way", WAYS)
def test_every_form_of_data_gives_the_same_bits(way: Any, tmp_path: Path, reference: Report) -> None:
    data = {name: way(name, *pair, tmp_path) for name, pair in splits().items()}
    assert students(go(**data)) == students(reference)


def test_streams_give_the_same_rows_with_any_number_of_workers() -> None:
    inputs, labels = splits()["unlabeled"]
    orders = [torch.tensor([3, 1, 59]), torch.tensor([0]), torch.arange(40)]
    wanted = list(InMemory(inputs).batches(orders))
    for workers in (0, 2):
        random = torch.get_rng_state()
        found = list(Streamed(Items(inputs, labels), workers).batches(orders))
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
        assert torch.equal(torch.get_rng_state(), random)


def test_whole_numbers_of_8_bits_are_scaled(tmp_path: Path) -> None:
    coarse = {name: ((inputs * 20 + 100).clamp(0, 255).byte(), labels) for name, (inputs, labels) in splits().items()}
    scaled = {name: (inputs.float() / 255, labels) for name, (inputs, labels) in coarse.items()}
    data = {name: as_files(name, *pair, tmp_path) for name, pair in coarse.items()}
    assert students(go(**coarse)) == students(go(**scaled)) == students(go(**data))
    half = {name: (inputs.bfloat16(), labels) for name, (inputs, labels) in splits().items()}
    wide = {name: (inputs.float(), labels) for name, (inputs, labels) in half.items()}
    assert students(go(**half)) == students(go(**wide))


def test_validation_rows_that_were_trained_on_are_refused() -> None:
    data = splits()
    (inputs, labels), (known, truth) = data["validation"], data["labeled"]
    leaking = torch.cat([inputs, known[3:5]]), torch.cat([labels, truth[3:5]])
    with pytest.raises(LeakError, match="2 of 32 rows, first ids 30, 31"):
        go(validation=leaking)
    with pytest.raises(LeakError, match="2 of 32 rows"):
        go(validation=TensorDataset(*leaking))
    for form in (Data, lambda inputs, labels, ids: {"inputs": inputs, "labels": labels, "ids": ids}):
        with pytest.raises(LeakError, match=r"(?s)1 of 30 rows, first ids c.*ids of their own"):
            go(
                labeled=form(known, truth, [f"a{row}" for row in range(29)] + ["c"]),
                validation=form(inputs, labels, ["c"] + [f"b{row}" for row in range(29)]),
            )


def test_picked_rows_are_told_apart_and_looked_at(tmp_path: Path) -> None:
    """Other rows of the same file are other data; the same rows in two splits are a leak."""
    data = {name: as_picked_rows(name, *pair, tmp_path) for name, pair in splits().items()}
    go(**data, run=tmp_path / "run")
    before = contents(tmp_path / "run")
    go(
        **{name: Data(Subset(picked.inputs, picked.rows.clone()), labels) for name, (picked, labels) in data.items()},
        run=tmp_path / "run",
    )
    assert contents(tmp_path / "run") == before
    picked, labels = data["unlabeled"]
    for rows in (picked.rows.flip(0), torch.cat([picked.rows[1:], picked.rows[:1]])):
        with pytest.raises(ConfigError, match="data unlabeled rows"):
            go(**{**data, "unlabeled": (Subset(picked.inputs, rows), labels)}, run=tmp_path / "run")
    (known, truth), (others, gold) = data["labeled"], data["validation"]
    with pytest.raises(LeakError, match="30 of 30 rows"):
        go(**{**data, "validation": (Subset(known.inputs, known.rows.flip(0)), truth.flip(0))})
    with pytest.raises(LeakError, match="3 of 30 rows, first ids 0, 1, 2"):
        held = torch.cat([next(known.batches([torch.arange(3)])), next(others.batches([torch.arange(3, 30)]))])
        go(**{**data, "validation": (held, gold)})
    with pytest.raises(InputError, match="labels"):
        go(**{**data, "test": (data["test"][0], labels)})


def test_without_test_rows_the_table_shows_validation_accuracies() -> None:
    data = {name: part for name, part in splits().items() if name != "test"}
    report = distill(teacher, student, **data, rule=[unweighted, debiased], recipe=QUICK)
    final = report.outcome.arms["debiased"].epochs[-1].validation
    assert final is not None and f"{100 * final:.2f}" in str(report) and "no test rows" in str(report)


def test_another_activation_is_another_model(tmp_path: Path) -> None:
    def made(activation: torch.nn.Module) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(6, 4), activation, torch.nn.Linear(4, 3))

    go(teacher, made(torch.nn.ReLU()), run=tmp_path / "run", rule=unweighted)
    with pytest.raises(ConfigError, match="student layers"):
        go(teacher, made(torch.nn.Tanh()), run=tmp_path / "run", rule=unweighted)


def test_rows_that_look_alike_are_told_apart_by_their_ids() -> None:
    (inputs, labels), (known, truth) = splits()["validation"], splits()["labeled"]
    leaking = torch.cat([inputs, known[3:5]]), torch.cat([labels, truth[3:5]])
    named = {"labeled": Data(known, truth, [f"a{row}" for row in range(30)])}
    report = go(**named, validation=Data(*leaking, [f"b{row}" for row in range(32)]), rule=unweighted)
    assert any(text.startswith("2 validation rows have the same inputs") for text in report.outcome.warnings)


class Counted(TensorDataset):
    """Notes how often items are read."""

    reads = 0

    def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
        type(self).reads += 1
        return super().__getitem__(row)


def test_a_dataset_is_read_once_for_all_starts(tmp_path: Path) -> None:
    inputs, labels = torch.randn(2000, 3), torch.arange(2000) % 3
    first, classes = materialise(Counted(inputs, labels), tmp_path / "rows.npy")
    assert Counted.reads >= 2000 and classes is not None and (classes == labels.numpy()).all()
    Counted.reads = 0
    again, classes = materialise(Counted(inputs, labels), tmp_path / "rows.npy")
    assert Counted.reads < 300 and classes is not None and (classes == labels.numpy()).all()
    assert (again.array == first.array).all() and (again.array == inputs.numpy()).all()
    changed, _ = materialise(Counted(inputs + 1, labels), tmp_path / "rows.npy")
    assert (changed.array == (inputs + 1).numpy()).all()


def test_rows_in_two_sets_are_noted() -> None:
    (inputs, _), (pool, _), (tested, truth) = (splits()[name] for name in ("validation", "unlabeled", "test"))
    report = go(unlabeled=torch.cat([pool, inputs[:4]]), rule=unweighted)
    assert any(text.startswith("4 validation rows are also among the unlabeled") for text in report.outcome.warnings)
    known, classes = splits()["labeled"]
    report = go(labeled=(torch.cat([known, tested[:2]]), torch.cat([classes, truth[:2]])), rule=unweighted)
    assert any(text.startswith("2 test rows") for text in report.outcome.warnings)


class Random(Items):
    def __getitem__(self, row: int) -> Any:
        return self.inputs[row] + torch.rand(6)


class Broken(Items):
    def __getitem__(self, row: int) -> Any:
        if row == 17:
            raise OSError("a torn image")
        return self.inputs[row]


class Growing(Items):
    grown = 0

    def __len__(self) -> int:
        return len(self.inputs) - 10 + self.grown

    def __getitem__(self, row: int) -> Any:
        self.grown = min(10, self.grown + (row > 5))
        return self.inputs[row]


class Ragged(Items):
    def __getitem__(self, row: int) -> Any:
        return self.inputs[row][: 6 - (row == 9)]


def test_datasets_that_cannot_be_trusted() -> None:
    inputs, _ = splits()["unlabeled"]
    report = go(unlabeled=Random(inputs), rule=unweighted)
    assert any("drawing an item twice" in text for text in report.outcome.warnings)
    for way in (lambda dataset: dataset, Streamed):
        with pytest.raises(InputError, match=r"(?s)Broken, item 17.*a torn image"):
            go(unlabeled=way(Broken(inputs)))
    with pytest.raises(InputError, match=r"(?s)changed its length.*60 items.*50 items"):
        go(unlabeled=Growing(inputs))
    with pytest.raises(InputError, match=r"(?s)item 9.*\(5,\)"):
        go(unlabeled=Ragged(inputs))


@pytest.mark.parametrize("item", [lambda inputs: {"image": "a.png"}, lambda inputs: (inputs, "cat"), lambda inputs: "text"])
def test_items_of_another_kind_are_refused(item: Any) -> None:
    class Other(Items):
        def __getitem__(self, row: int) -> Any:
            return item(self.inputs[row])

    with pytest.raises(InputError, match="item 0"):
        go(unlabeled=Other(splits()["unlabeled"][0]))


def test_splits_of_different_kinds_are_refused(tmp_path: Path) -> None:
    inputs, labels = splits()["unlabeled"]
    with pytest.raises(InputError, match="different kinds"):
        go(unlabeled=as_files("unlabeled", inputs.byte(), labels, tmp_path))


def test_fewer_rows_than_a_batch_and_one_row_alone(tmp_path: Path) -> None:
    inputs, labels = splits()["labeled"]
    assert go(labeled=(inputs[:3], labels[:3])).outcome.rows["labeled"] == 3
    go(labeled=(inputs[:1], labels[:1]))
    with pytest.raises(ConfigError, match="the student cannot read its input"):  # batch norm cannot
        go(teacher, Dropping, labeled=(inputs[:1], labels[:1]))


# teachers that are tables ----------------------------------------------------------------------------------------------


def named() -> dict[str, Data]:
    """The splits with ids of their own."""
    return {
        name: Data(inputs, labels, [f"{name}-{row}" for row in range(len(labels))])
        for name, (inputs, labels) in splits().items()
    }


@pytest.mark.parametrize("held", [1 << 24, 100])  # predictions that are in memory at once: all of them, or hardly any
def test_a_table_gives_the_same_bits_in_any_form_and_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    recipe = replace(MADE, student_epochs=1)
    wanted = go(table(), student, recipe)
    monkeypatch.setattr(logits, "HELD", held)
    torch_table = {name: torch.from_numpy(values) for name, values in table().items()}
    assert students(go(torch_table, student, recipe)) == students(wanted)
    data, values = named(), table()
    ids = np.array([each for name in values for each in data[name].ids])
    rows = np.concatenate([values[name] for name in values])
    order = np.random.default_rng(0).permutation(len(ids))
    whole = write(tmp_path / "t.parquet", {"id": ids[order], "teacher": rows[order]})
    one, two = order[:70], order[70:]
    shards = [write(tmp_path / f"s{i}.parquet", {"id": ids[at], "teacher": rows[at]}) for i, at in enumerate((one, two))]
    for files in (whole, str(whole), shards, shards[::-1]):
        assert students(go(files, student, recipe, **data)) == students(wanted)
    with pytest.raises(FileError, match=r"(?s)of 30 validation ids are not in it, first 'validation-"):
        go(shards[0], student, recipe, **data)
    with pytest.raises(InputError, match="joined by id"):  # row numbers would be those of every split
        go(whole, student, recipe)
    with pytest.raises(InputError, match="occurs twice"):
        go([whole, shards[0]], student, recipe, **data)


def test_the_kinds_of_a_table_agree() -> None:
    found = {kind: go(table(kind), student, replace(QUICK, kind=kind)) for kind in ("probabilities", "logits", "logprobs")}
    wanted = found["probabilities"].student.state_dict()
    for report in found.values():
        for name, value in report.student.state_dict().items():
            torch.testing.assert_close(value, wanted[name], rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="logits"):
        go(table("logits"), student)
    with pytest.raises(InputError, match="unlabeled"):
        go({"validation": table()["validation"]}, student)
    with pytest.raises(InputError, match="extra"):
        go({**table(), "extra": table()["test"]}, student)
    with pytest.raises(InputError, match="59"):
        go({**table(), "unlabeled": table()["unlabeled"][1:]}, student)
    with pytest.raises(InputError, match="4"):
        go({**table(), "unlabeled": np.full((60, 4), 0.25)}, student)


# runs ------------------------------------------------------------------------------------------------------------------


def test_without_a_folder_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    go(labeled=TensorDataset(*splits()["labeled"]))
    with pytest.raises(LeakError):
        go(validation=splits()["labeled"])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    return folder, go(seeded(teacher), seeded(student), replace(QUICK, refresh=1), rule=[debiased, unweighted], run=folder)


def plain(outcome: Outcome) -> Outcome:
    """Without the fitted rules, whose arrays have no equality."""
    return replace(outcome, arms={name: replace(each, fitted=()) for name, each in outcome.arms.items()})


def again(folder: Path, **changes: Any) -> Report:
    recipe = replace(QUICK, refresh=1, **changes.pop("settings", {}))
    models = changes.pop("models", (seeded(teacher, 3), seeded(student, 4)))  # other random numbers: the stored ones count
    return go(*models, recipe, **{"rule": [debiased, unweighted], **changes}, run=folder)


def test_a_finished_run_started_again_changes_nothing(finished: tuple[Path, Report]) -> None:
    folder, first = finished
    before, started = contents(folder), time.perf_counter()
    report = again(folder)
    assert time.perf_counter() - started < 2 and contents(folder) == before
    assert students(report) == students(first) and plain(report.outcome) == plain(first.outcome)


def test_a_finished_run_of_datasets_leaves_no_copy_of_them(tmp_path: Path) -> None:
    data = {name: TensorDataset(*pair) for name, pair in splits().items()}
    go(**data, run=tmp_path / "run")
    before = contents(tmp_path / "run")
    go(**data, run=tmp_path / "run")
    assert contents(tmp_path / "run") == before and not (tmp_path / "run" / ".inputs").exists()


def test_what_others_keep_in_the_folder_of_a_run_stays(tmp_path: Path) -> None:
    """A folder .inputs, a page, a lock: where they are in the way that is said, and else they are left alone."""
    run, data = tmp_path / "run", {name: TensorDataset(*pair) for name, pair in splits().items()}
    (run / ".inputs").mkdir(parents=True)
    mine = run / ".inputs" / "labeled.npy"
    mine.write_bytes(b"mine")
    with pytest.raises(ConfigError, match=r"something else\n.*\.inputs"):
        go(run=run)
    assert list(contents(run)) == [".inputs/labeled.npy"] and mine.read_bytes() == b"mine"
    mine.unlink()
    (run / "lock").write_bytes(b"my list of locks")
    with pytest.raises(ConfigError, match=r"something else\n.*lock"):
        go(run=run)
    assert contents(run) == {} and (run / "lock").read_bytes() == b"my list of locks"
    (run / "lock").unlink()
    go(run=run)
    (run / ".inputs").mkdir(exist_ok=True)
    mine.write_bytes(b"mine")
    (run / "report.html").write_bytes(b"mine")
    go(run=run)
    assert mine.read_bytes() == (run / "report.html").read_bytes() == b"mine"
    with pytest.raises(ConfigError, match=r"\.inputs: this folder is not the run's"):
        go(**data, run=run)
    assert mine.read_bytes() == b"mine" and not (run / ".inputs" / "inputs.json").exists()


def test_a_page_of_others_is_not_replaced_at_the_end_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    go(run=run)
    for path in sorted((run / "arms").rglob("generation-*.json"))[-1:]:
        path.unlink()  # the arm is not finished
    (run / "report.html").write_bytes(b"mine")
    go(run=run)
    assert "report.html is not a page of wdistill" in capsys.readouterr().err
    assert (run / "report.html").read_bytes() == b"mine"


def test_a_copy_of_inputs_that_was_damaged_is_named_and_made_again_once_it_is_removed(tmp_path: Path) -> None:
    inputs, labels = torch.arange(12.0).reshape(6, 2), torch.zeros(6, dtype=torch.int64)
    path = tmp_path / "copies" / "rows.npy"
    materialise(TensorDataset(inputs, labels), path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    with pytest.raises(FileError, match="not the file that the run wrote") as caught:
        materialise(TensorDataset(inputs, labels), path)
    assert caught.value.where == str(path)
    path.unlink()
    materialise(TensorDataset(inputs, labels), path)
    assert path.read_bytes() == content


def test_tables_of_a_run_have_a_checksum_for_every_page() -> None:
    """Read without the ledger, a flipped bit in their numbers is still seen."""
    content = bytearray(table_bytes({"id": np.arange(1000), "weight": np.random.default_rng(0).random(1000)}))
    content[len(content) // 2] ^= 1
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        read_table(bytes(content), ["weight"])


ODD = {
    "nothing": None,
    "a number": 3,
    "words": "rows.npz",
    "no rows": (),
    "three of a pair": (1, 2, 3),
    "a pair of nothing": (None, None),
    "sparse": (torch.zeros(3, 6).to_sparse(), [0, 1, 2]),
    "complex": (torch.zeros(3, 6, dtype=torch.complex64), [0, 1, 2]),
    "one id": Data(torch.zeros(3, 6), [0, 1, 2], ids=5),
    "ragged ids": Data(torch.zeros(3, 6), [0, 1, 2], ids=[[1], [2, 3], [4]]),
}


@pytest.mark.parametrize("what", ODD)
def test_what_are_no_rows_is_said_of_every_split(what: str) -> None:
    for name in ("labeled", "validation", "unlabeled", *(["test"] if ODD[what] is not None else [])):
        with pytest.raises((InputError, ConfigError)) as caught:
            go(**{name: ODD[what]})
        assert name in caught.value.where and caught.value.expected and caught.value.remedy


def test_a_folder_that_is_no_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="run: not a folder"):
        go(run=3)


def test_a_page_that_is_missing_is_drawn_again(tmp_path: Path) -> None:
    go(run=tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink()
    go(run=tmp_path / "run")
    assert "run" in (tmp_path / "run" / "report.html").read_text()


def changed(name: str, change: Any) -> dict[str, Any]:
    inputs, labels = splits()[name]
    return {name: change(inputs.clone(), labels.clone())}


def other_row(inputs: Tensor, labels: Tensor) -> Any:
    inputs[-1, -1] += 1
    return inputs, labels


def other_label(inputs: Tensor, labels: Tensor) -> Any:
    labels[0] = (labels[0] + 1) % 3
    return inputs, labels


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"settings": {"epochs": 3}}, "epochs: 2 → 3"),
        ({"settings": {"seed": 1, "rate": 0.5}}, r"rate: 0.01 → 0.5; seed: 0 → 1"),
        ({"rule": [debiased]}, "rule: debiased unweighted → debiased"),
        ({"rule": [debiased.using(neighbors=4), unweighted]}, r"rule debiased: .*neighbors=4"),
        (changed("unlabeled", other_row), "data unlabeled sha256"),
        (changed("validation", other_label), "data validation labels"),
        (changed("labeled", lambda inputs, labels: (inputs[1:], labels[1:])), "data labeled shape"),
        ({"test": None}, "data test"),
        ({"models": (teacher, lambda: wdistill.MLP(6, 3, (5,)))}, "student arguments hidden"),
        ({"models": (Dropping, student)}, "teacher type: MLP → Dropping"),
        ({"models": (table(), student)}, "teacher table"),
    ],
    ids=lambda each: str(each)[:40] if isinstance(each, str) else "",
)
def test_a_run_of_something_else_is_refused_with_what_changed(
    finished: tuple[Path, Report], changes: dict[str, Any], match: str
) -> None:
    folder, _ = finished
    before = contents(folder)
    with pytest.raises(ConfigError, match=match) as caught:
        again(folder, **changes)
    assert contents(folder) == before and caught.value.exit_code == 2


def test_settings_that_change_no_bit_may_change(finished: tuple[Path, Report]) -> None:
    again(finished[0], settings={"checkpoint_seconds": 9.0, "workers": 2})


def test_a_run_goes_on_with_other_workers_and_the_same_bits(tmp_path: Path, finished: tuple[Path, Report]) -> None:
    """Interrupted inside the student's pretraining with one worker, and ended with two."""
    with failing(60, errno.ENOSPC) as seen, pytest.raises(wdistill.StorageError):
        again(tmp_path / "run", models=(seeded(teacher), seeded(student)))
    assert len(seen) == 60 and not (tmp_path / "run" / "arms").exists()
    again(tmp_path / "run", settings={"workers": 2})
    assert unlike(tmp_path / "run", finished[0]) == []


def test_another_environment_is_said_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(60, errno.EIO), pytest.raises(wdistill.StorageError):
        go(run=tmp_path / "run")
    known = wdistill.training.identity.environment
    monkeypatch.setattr(wdistill.training.identity, "environment", lambda *where: {**known(*where), "torch": "1.0"})
    report = go(run=tmp_path / "run")
    assert any("→ 1.0): the same bits are not promised" in text for text in report.outcome.warnings)


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(ConfigError, match=r"(?s)thesis.tex.*nothing was touched"):
        go(run=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ConfigError, match="a file"):
        go(run=tmp_path / "thesis.tex")


def test_a_run_stored_with_another_version_of_a_module_lists_its_keys(tmp_path: Path) -> None:
    from wdistill.training.tensors import load_parameters

    with pytest.raises(
        ConfigError, match=r"(?s)not in the file: extra.weight; not in the network: layers.1.bias.*shape"
    ) as caught:
        state = {**student().state_dict(), "layers.3.bias": torch.zeros(7)}
        model = student()
        model.layers[1].bias = None
        model.extra = nn.Linear(1, 1, bias=False)
        load_parameters(model, state, "student")
    assert "layers.3.bias (7,) instead of (3,)" in caught.value.found


def test_warnings_of_every_stage_are_in_the_record(tmp_path: Path) -> None:
    inputs, labels = splits()["validation"]
    few = (inputs[:10], labels[:10])
    report = go(validation=few, run=tmp_path / "run")
    assert any("only 10 validation rows" in text for text in report.outcome.warnings)
    assert read_run(tmp_path / "run").warnings == report.outcome.warnings


# what comes out --------------------------------------------------------------------------------------------------------


def test_the_report_says_what_happened(finished: tuple[Path, Report]) -> None:
    folder, report = finished
    outcome = report.outcome
    assert plain(read_run(folder)) == plain(outcome) and outcome.state == "finished" and outcome.folder == folder
    assert outcome.rows == {"labeled": 30, "validation": 30, "unlabeled": 60, "test": 20} and outcome.classes == 3
    assert outcome.recipe["epochs"] == 2 and outcome.recipe["rule"] == ["debiased", "unweighted"]
    assert outcome.environment["torch"] == torch.__version__ and outcome.environment["threads"] == 1
    assert outcome.accuracies["teacher"].keys() == {"labeled", "validation", "unlabeled", "test"}
    assert outcome.accuracies["student"].keys() == {"validation", "test"}
    arm = outcome.arms["debiased"]
    assert [each.epoch for each in arm.epochs] == [1, 2] and all(each.examples == 90 for each in arm.epochs)
    assert [each.after for each in arm.refreshes] == [0, 1] and len(arm.fitted) == 2
    assert all(0 <= each.test <= 1 and 0 <= each.validation <= 1 for each in arm.epochs)
    assert arm.seconds.keys() == {"train", "evaluate", "forward", "estimate", "store"}
    assert all(arm.seconds[kind] > 0 for kind in ("train", "evaluate", "forward", "estimate"))
    assert outcome.seconds.keys() == {"teacher", "student", "labels", "debiased", "unweighted"}
    first = arm.refreshes[0]
    assert first.weights.rows == 60 and first.right + first.wrong == first.weights
    assert "unweighted" in str(report) and "debiased" in str(report)


def test_metrics_are_json_lines_of_every_epoch(finished: tuple[Path, Report]) -> None:
    folder, report = finished
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [
        ("teacher", 1),
        ("student", 1),
        *[("debiased", epoch) for epoch in (1, 2)],
        *[("unweighted", epoch) for epoch in (1, 2)],
    ]
    assert all("weights" in line for line in lines[2:]) and "weights" not in lines[0]
    assert lines[3]["test"] == report.outcome.arms["debiased"].final


def test_weights_lie_in_parquet_by_id(tmp_path: Path) -> None:
    data = named()
    report = go(**data, run=tmp_path / "run", rule=wdistill.compose(debiased, fidelity))
    (arm,) = report.outcome.arms.values()
    path = tmp_path / "run" / "arms" / "debiased,fidelity" / arm.refreshes[0].file
    columns = ["id", "weight", "weight_debiased", "weight_fidelity", "error", "distortion"]
    found = read_table(path.read_bytes(), columns)
    assert found["id"].tolist() == data["unlabeled"].ids
    np.testing.assert_allclose(found["weight"], found["weight_debiased"] * found["weight_fidelity"], rtol=1e-6)
    assert ((found["weight"] > 0) & (found["weight"] <= 1)).all()


def test_nobody_has_to_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error whose reader has gone: `wdistill distill … 2>&1 | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1) as broken:  # noqa: PTH123 (a handle, not a path)
        monkeypatch.setattr(sys, "stderr", broken)
        report = go(validation=tuple(each[:10] for each in splits()["validation"]))
        monkeypatch.undo()
        with suppress(BrokenPipeError):
            broken.close()
    assert report.outcome.state == "finished" and report.outcome.warnings


def test_distill_needs_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="not a recipe"):
        go(recipe={"epochs": 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unlabeled: no rows"):
        distill(teacher, student, *list(splits().values())[:2])
