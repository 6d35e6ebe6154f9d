"""Records whose seal is right and whose content is not: damage that is named, with what to do, and never a defect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import killing
from tests.distilling import QUICK, go, undrawn
from wdistill import cli, debiased
from wdistill.core import sealed
from wdistill.core.errors import CheckpointError, ConfigError, FileError
from wdistill.core.paths import is_name
from wdistill.core.shapes import fault_of
from wdistill.runs.folder import read_run
from wdistill.runs.outcome import Epoch
from wdistill.runs.states import RunShape, fault_of_manifest
from wdistill.tables.parts import RECORDS, open_folder

OPTIONAL = {"rules", "settings", "parts", "warnings", "seconds", "accuracies", "judged", "finished", "why", "gold"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with undrawn():  # killing leaves pages undrawn, for a process of its own
        killing.run(folder)
    return folder


def reseal(folder: Path, change: Any) -> None:
    """Change the state in all manifests of a folder, and seal them again."""
    for path in folder.glob("generation-*.json"):
        manifest = sealed.read_sealed(path)
        change(manifest)
        path.write_bytes(sealed.seal(manifest))


def changes(state: dict[str, Any]) -> dict[str, Any]:
    """Ways to spoil a state, by name."""

    def without(name: str) -> Any:
        return lambda manifest: manifest["state"].pop(name, None)

    def with_other(name: str, value: Any) -> Any:
        return lambda manifest: manifest["state"].update({name: value})

    removed = {f"without {name}": without(name) for name in state if name not in OPTIONAL}
    return removed | {
        f"{name} = {other!r}": with_other(name, other)
        for name, value in state.items()
        for other in (None, "x", 5, [5], {"x": 5}, [{"x": 5}])
        if type(other) is not type(value) and not (isinstance(value, float) and other == 5)
        if name not in ("run", "checkpoint", "scale")
    }


@pytest.mark.slow
def test_a_manifest_of_another_shape_is_damage_that_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = 0
    for part in (".", "arms/debiased"):
        (newest, *_) = sorted((run / part).glob("generation-*.json"), reverse=True)
        for number, (name, change) in enumerate(changes(sealed.read_sealed(newest)["state"]).items()):
            copy = shutil.copytree(run, tmp_path / f"{part.replace('/', '-')}{number}")
            reseal(copy / part, change)
            with pytest.raises(CheckpointError) as caught:
                killing.run(copy)
            assert str(copy) in caught.value.where and "generation" in caught.value.found, name
            for command in ("runs", "show") if number % 8 else ("runs", "show", "report"):
                code = cli.main([command, str(copy)])
                said = "".join(capsys.readouterr())
                assert code in (0, 3) and "generation" in said and "defect" not in said, (name, command, said)
            shutil.rmtree(copy)
            tried += 1
    assert tried > 60


def test_the_shape_of_a_record_is_that_of_its_type(run: Path) -> None:
    state = sealed.read_sealed(max(run.glob("generation-*.json")))
    assert fault_of_manifest(state) == ""
    assert fault_of(state["state"], RunShape) == ""
    epoch = {"epoch": 1, "loss": 0.5, "rate": 1, "validation": None, "test": 0.5, "examples": 3, "seconds": 0.1}
    assert fault_of(epoch, Epoch) == "" and fault_of({**epoch, "score": 2}, Epoch) == ""
    assert fault_of({**epoch, "epoch": True}, Epoch) == "epoch: a bool in place of a whole number"
    assert fault_of({**epoch, "loss": float("inf")}, Epoch) == "loss: a float in place of a number"
    assert fault_of({**epoch, "others": 1}, Epoch) == "an unknown others"
    assert fault_of([[1, "a"], [1, 2]], list[tuple[int, str]]) == "1.1: an int in place of text"
    assert fault_of({"a": [1]}, dict[str, list[str]]) == "a.0: an int in place of text"


def job(folder: Path, **changed: Any) -> Path:
    record = {
        "identity": {"options": {}},
        "token": "0123456789abcdef",
        "parts": [],
        "aligned": {},
        "warnings": [],
        **changed,
    }
    folder.mkdir()
    (folder / "part-000000.0123456789abcdef.parquet").touch()
    for name in RECORDS:
        (folder / name).write_bytes(sealed.seal(record))
    return folder


PART = {"start": 0, "next": 1, "stamps": [[1, 2]], "seen": 1, "kept": 1, "counts": {}, "file": "p", "size": 1, "sha256": ""}


@pytest.mark.parametrize(
    "changed",
    [
        {"identity": []},
        {"identity": {}},
        {"warnings": 5},
        {"warnings": [5]},
        {"token": 5},
        {"aligned": {"1": {"files": {}}}},
        {"aligned": {"1": {"order": "", "columns": [], "files": {"x": ["1", "2"]}}}},
        {"parts": [{"file": "p"}]},
        {"parts": [{**PART, "size": "1"}]},
        {"parts": [{**PART, "counts": []}]},
        {"parts": [{**PART, "start": 7}]},
        {"parts": [{**PART, "more": 7}]},
        {"parts": [PART, PART]},
    ],
)
def test_a_job_record_of_another_shape_is_damage_that_is_named(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert open_folder(job(tmp_path / "whole.parts"), {"options": {}}).parts == []
    with pytest.raises((FileError, ConfigError), match=r"x\.parts") as caught:
        open_folder(job(tmp_path / "x.parts", **changed), {"options": {}})
    assert f"remove {tmp_path / 'x.parts'}" in caught.value.remedy
    (tmp_path / "x.parts" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"notes\.txt") as caught:
        open_folder(tmp_path / "x.parts", {"options": {}})
    assert "remove" not in caught.value.remedy and len(list((tmp_path / "x.parts").iterdir())) == 4


def test_a_record_of_somebody_else_is_not_said_to_be_removed(tmp_path: Path) -> None:
    folder = tmp_path / "q.parquet.parts"
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps({"job": "mine"}))
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="something else is") as caught:
        open_folder(folder, {"options": {}})
    assert caught.value.remedy == "move it away, or choose another output" and "job.json" in caught.value.found


def test_a_manifest_under_the_number_of_another_is_damaged(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (newest, *others) = sorted(copy.glob("generation-*.json"), reverse=True)
    number = int(newest.stem.partition("-")[2])
    newest.rename(newest.with_name(f"generation-{number + 5:06d}.json"))
    for path in others:
        path.unlink()
    with pytest.raises(CheckpointError):
        read_run(copy)


@pytest.mark.parametrize("name", ["unweighted + gold", "der erste, der beste", "\x1b[31mred", "-", "7"])
def test_arms_may_have_names_that_a_recipe_in_a_file_may_not(name: str, tmp_path: Path) -> None:
    with undrawn():
        began = go(recipe=QUICK, rule={name: debiased}, run=tmp_path / "run")
    assert [*read_run(tmp_path / "run").arms] == [name] == [*began.outcome.arms]


@pytest.mark.parametrize(
    ("name", "right"),
    [("a" * 200, True), ("ä" * 100, True), ("a" * 201, False), ("ä" * 101, False), ("\udcff", True), ("\ud800", False)],
)
def test_a_name_that_no_disk_can_hold_is_none(name: str, right: bool) -> None:
    assert is_name(name) == right


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400, -(10**400), 1e201, "1"])
def test_numbers_that_nothing_can_be_computed_with_are_none(number: Any) -> None:
    assert fault_of(number, float) and not fault_of(1, float) and not fault_of(-1.5e199, float)
