"""A student as ONNX predicts as it does, for any number of rows, or it is not written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests import killing
from tests.reliability import artefacts, rot
from wdistill import cli, export_student
from wdistill.core.errors import ConfigError
from wdistill.report.verify import verify
from wdistill.training import onnx_program
from wdistill.training.export import load_student
from wdistill.training.models.networks import CNN, MLP
from wdistill.training.models.text import TextBag

onnxruntime = pytest.importorskip("onnxruntime")
torch.set_num_threads(1)


def predicted(folder: Path, **inputs: Tensor) -> np.ndarray[Any, Any]:
    """By onnxruntime; the only input may have any name."""
    session = onnxruntime.InferenceSession(folder / "student.onnx")
    names = [each.name for each in session.get_inputs()]
    values = dict(zip(names, inputs.values(), strict=True)) if len(names) == 1 else inputs
    return np.asarray(session.run(["logits"], {name: value.numpy() for name, value in values.items()})[0])


class Pair(nn.Module):
    """Inputs by name, and more than logits in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.linear = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        mask = attention_mask[..., None].float()
        hidden = (self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return {"logits": self.linear(hidden), "hidden": hidden}


def seeded_mlp() -> MLP:
    torch.manual_seed(0)
    return MLP(6, 3, (4,))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student's folder; tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("onnx") / "student"
    export_student(seeded_mlp(), torch.zeros(1, 6), folder, None, onnx=True)
    return folder


def assert_predicts_as(student: nn.Module, folder: Path, *shape: int) -> None:
    for rows in (1, 2, 7):
        inputs = torch.randn(rows, *shape)
        with torch.no_grad():
            np.testing.assert_allclose(predicted(folder, inputs=inputs), student(inputs).numpy(), rtol=1e-5, atol=1e-5)


def test_any_number_of_rows_is_predicted_as_the_student_does(exported: Path, tmp_path: Path) -> None:
    assert_predicts_as(seeded_mlp(), exported, 6)
    student = CNN(1, 3, 2)
    student(torch.rand(9, 1, 8, 8))  # batch norm has seen something
    export_student(student, torch.rand(1, 1, 8, 8), tmp_path, None, onnx=True)
    assert_predicts_as(student.train(False), tmp_path, 1, 8, 8)


def test_it_is_recorded_verified_and_in_the_card(exported: Path) -> None:
    description = json.loads((exported / "student.json").read_text())
    assert description["onnx"] == "student.onnx" and "student.onnx" in description["sha256"]
    assert cli.main(["verify", str(exported)]) == 0 and "student.onnx" in (exported / "README.md").read_text()


def test_every_file_of_an_export_has_a_row_in_the_table_of_files(tmp_path: Path) -> None:
    def export(folder: Path) -> None:
        export_student(seeded_mlp(), torch.zeros(1, 6), folder / "student", None, onnx=True)

    written, left = artefacts.written(export, tmp_path / "new")
    assert "student/student.onnx" in left and {path for path in written | left if artefacts.row_of(path) is None} == set()


def test_no_damage_to_it_stays_unseen(exported: Path, tmp_path: Path) -> None:
    for number in range(60):
        folder, way = tmp_path / str(number), ("flip", "cut", "loss")[number % 3]
        shutil.copytree(exported, folder)
        rot.damage(folder / "student.onnx", way, np.random.default_rng(number))
        bad = [state.path.name for state in verify(folder)[1] if state.is_bad]
        assert bad == ["student.onnx"], (way, number)
        assert load_student(folder).state_dict().keys() == seeded_mlp().state_dict().keys()  # it does not read it


def test_inputs_by_name_keep_their_names(tmp_path: Path) -> None:
    student = Pair()
    inputs = {"input_ids": torch.randint(20, (5, 7)), "attention_mask": torch.randint(2, (5, 7))}
    export_student(student, {name: values[:1] for name, values in inputs.items()}, tmp_path, None, onnx=True)
    with torch.no_grad():
        np.testing.assert_allclose(predicted(tmp_path, **inputs), student(**inputs)["logits"].numpy(), rtol=0, atol=1e-5)


def export_again(folder: Path) -> None:
    code = (
        "import sys, torch; from wdistill import MLP, export_student; torch.manual_seed(0)\n"
        "export_student(MLP(6, 3, (4,)), torch.zeros(1, 6), sys.argv[1], None, onnx=True)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


def test_equal_students_give_the_same_bytes_without_paths_of_this_machine(exported: Path, tmp_path: Path) -> None:
    export_again(tmp_path / "there")
    content = (exported / "student.onnx").read_bytes()
    assert content == (tmp_path / "there" / "student.onnx").read_bytes()
    assert b".py" not in content and b"packages" not in content and b"forward" not in content


def test_a_student_that_onnx_cannot_hold_is_refused_and_the_export_stays_as_it_was(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "student")
    before = {path.name: path.read_bytes() for path in exported.iterdir()}
    with pytest.raises(ConfigError, match=r"(?s)no ONNX program of this student.*load_student"):
        export_student(TextBag(2, 16), torch.zeros(1, 8, dtype=torch.int32), tmp_path / "student", None, onnx=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "student").iterdir()} == before


class Branching(nn.Linear):
    """Its control flow depends on the data, which no export can follow."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs if inputs.sum() > 0 else -inputs)


def test_a_student_without_a_program_has_no_onnx_either(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data-dependent"):
        export_student(Branching(4, 3), torch.rand(1, 4), tmp_path / "student", None, onnx=True)
    assert not (tmp_path / "student").exists()


def test_a_program_that_predicts_otherwise_is_not_kept(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, student = (exported / "student.onnx").read_bytes(), seeded_mlp()
    monkeypatch.setattr(onnx_program, "_converted", lambda *_: content)
    with torch.no_grad():
        student.layers[1].weight[:, 0] += 0.01  # type: ignore[index, operator]
    with pytest.raises(ConfigError, match="predicts otherwise, by up to"):  # though not on the example, which is 0
        export_student(student, torch.zeros(1, 6), tmp_path / "bad", None, onnx=True)
    assert not (tmp_path / "bad").exists()


def test_the_command_writes_it_and_an_export_without_it_removes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killing.run(tmp_path / "run")
    command = ["export", str(tmp_path / "run"), "--output", str(tmp_path / "student")]
    assert cli.main([*command, "--onnx"]) == 0 and "student.onnx" in capsys.readouterr().out
    assert (tmp_path / "student" / "student.onnx").exists()
    assert cli.main(command) == 0 and not (tmp_path / "student" / "student.onnx").exists()
    assert json.loads((tmp_path / "student" / "student.json").read_text())["onnx"] is None
