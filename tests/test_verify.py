"""`wdistill verify`: all is whole, or the damaged and missing files are named, with exit code 3."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import killing
from tests.tables import write
from tests.test_cli import UNLABELED, VALIDATION, fail, weigh_command
from tests.test_parts import interrupted, place, small_parts, wanted  # noqa: F401  (fixtures)
from wdistill import cli
from wdistill.datasets.prepared import Dataset, ImageSplit, save_prepared
from wdistill.report.verify import verify
from wdistill.runs.folder import find_runs, lacks_manifests
from wdistill.training.export import export_student
from wdistill.training.models.networks import MLP

pytestmark = pytest.mark.slow


def make_weights(folder: Path, suffix: str) -> Path:
    gold, pool = write(folder / "v.parquet", VALIDATION), write(folder / "u.parquet", UNLABELED)
    assert cli.main(weigh_command(gold, pool, folder / f"w.{suffix}")) == 0
    return folder / f"w.{suffix}"


def make_prepared(folder: Path) -> Path:
    images = [ImageSplit(np.arange(n * 12, dtype=np.uint8).reshape(n, 3, 2, 2), np.arange(n) % 2) for n in (6, 4)]
    save_prepared(folder / "data", Dataset("mnist", 2, *images, official=False, source="made up"))
    return folder / "data"


def make_student(folder: Path) -> Path:
    torch.manual_seed(0)
    export_student(MLP(6, 3, (4,)), torch.zeros(1, 6), folder / "student", None)
    return folder / "student"


def make_run(folder: Path) -> Path:
    killing.run(folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("whole"))


MAKERS: dict[str, Callable[[Path], Path]] = {
    "weights.parquet": lambda folder: make_weights(folder, "parquet"),
    "weights.npz": lambda folder: make_weights(folder, "npz"),
    "prepared data": make_prepared,
    "student": make_student,
    "run": make_run,
}


@pytest.fixture(scope="module", params=[*MAKERS, "parts"])
def artefact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "parts":
        return Path(request.getfixturevalue("interrupted"))
    return MAKERS[request.param](tmp_path_factory.mktemp("artefact"))


def files_of(artefact: Path) -> list[Path]:
    """All files that a digest covers: not the lock, or a part that was being written."""
    if artefact.is_file():
        return [artefact]
    _, findings = verify(artefact)
    return sorted(finding.path for finding in findings if finding.state == "whole")


def test_what_is_whole_is_said_to_be(artefact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(artefact)]) == 0
    files = len(files_of(artefact))
    assert f"{files} of {files}" in capsys.readouterr().out


def test_every_file_is_listed(artefact: Path) -> None:
    every = {path for path in artefact.rglob("*") if path.is_file()} if artefact.is_dir() else {artefact}
    names = {path.name for path in every - set(files_of(artefact)) if not path.name.startswith("part-000003.")}
    assert names <= {"lock", "owner.txt"}  # and a part that was being written


@pytest.mark.proof
def test_flips_cuts_and_losses_are_seen(artefact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for number, path in enumerate(files_of(artefact) * (1 if artefact.is_dir() else 60)):
        for way in ("flip", "cut", "loss"):
            copy = copied(artefact, tmp_path / f"{number}-{way}")
            victim = copy / path.relative_to(artefact) if artefact.is_dir() else copy
            content = bytearray(victim.read_bytes())
            at = int(rng.integers(len(content)))
            content[at] ^= 1 << int(rng.integers(8))
            if way == "loss":
                victim.unlink()
            else:
                victim.write_bytes(content if way == "flip" else content[:at])
            if way == "loss" and not copy.exists():
                continue
            code = cli.main(["verify", str(copy)])
            printed = capsys.readouterr()
            equal = way == "flip" and code == 0 and not artefact.is_dir()  # a byte that no reader looks at
            assert code in (2, 3) or equal, (path.name, way, at)
            if artefact.is_dir() and code == 3:
                named = path.name in printed.out or path.name.startswith("generation-")  # or the one beside it
                assert named and "to do: " in printed.err
            if equal:
                assert same_rows(victim, path)


def copied(artefact: Path, target: Path) -> Path:
    if artefact.is_dir():
        shutil.copytree(artefact, target)
        return target
    target.mkdir()
    return Path(shutil.copy(artefact, target / artefact.name))


def same_rows(one: Path, other: Path) -> bool:
    from wdistill.tables.output import read_batches

    rows = [[batch.to_pydict() for batch in read_batches(path)] for path in (one, other)]
    return str(rows[0]) == str(rows[1])


def test_nothing_of_ours_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "none", write(tmp_path / "v.parquet", VALIDATION)):
        assert "nothing to verify" in fail(capsys, "verify", path)
    (tmp_path / "t.csv").write_text("id,weight\n1,1\n")
    assert "csv, which has no record" in fail(capsys, "verify", tmp_path / "t.csv")


@pytest.mark.parametrize("lost", ["arms/debiased", "arms", "labels", "teacher", "student"])
@pytest.mark.parametrize("manifests", [False, True])
def test_a_finished_run_without_one_of_its_folders_is_not_whole(
    whole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str, manifests: bool
) -> None:
    run = shutil.copytree(whole_run, tmp_path / "run")
    if manifests:
        for path in (run / lost).rglob("generation-*.json"):
            path.unlink()
    else:
        shutil.rmtree(run / lost)
    named = run / ("arms/debiased" if lost == "arms" else lost)
    assert str(named) in fail(capsys, "verify", run, code=3)
    for command in ("show", "runs", "report"):
        assert cli.main([command, str(run)]) == 0
        assert named.relative_to(run).as_posix() in capsys.readouterr().err


def test_a_folder_of_ours_without_its_manifest_is_damaged(
    whole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data, student = shutil.copytree(whole_run, tmp_path / "run"), make_prepared(tmp_path), make_student(tmp_path)
    for path in (*run.glob("generation-*.json"), data / "dataset.json", student / "student.json"):
        path.unlink()
    for folder, name in ((run, "generation-"), (data, "dataset.json"), (student, "student.json")):
        assert name in fail(capsys, "verify", folder, code=3)
    for command in ("show", "report"):
        assert "generation-" in fail(capsys, command, run, code=3)
    assert cli.main(["runs", str(tmp_path)]) == 0 and "damaged" in capsys.readouterr().out
    assert not lacks_manifests(tmp_path)


def test_a_folder_of_runs_that_are_named_as_parts_of_one_is_no_run(whole_run: Path, tmp_path: Path) -> None:
    for name in ("student", "arms/first"):
        shutil.copytree(whole_run, tmp_path / name)
    assert find_runs(tmp_path) == [tmp_path / "arms" / "first", tmp_path / "student"]


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_weights_whose_first_bytes_are_damaged_are_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    path = make_weights(tmp_path, suffix)
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    assert "damaged" in fail(capsys, "verify", path, code=3)
