"""An exported student predicts as the live one did, and a folder that does not hold one says why."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.hostile import harmless
from wdistill.core import store
from wdistill.core.errors import ConfigError, FileError, InputError, WdistillWarning
from wdistill.core.sealed import digest_of
from wdistill.training import export
from wdistill.training.export import export_student, load_student
from wdistill.training.models.networks import CNN, EXAMPLES, MLP, build

torch.set_num_threads(1)


class Tied(nn.Module):
    """Two names for one parameter, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.drop, self.other = nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)
        self.other.weight = self.one.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.other(self.drop(self.one(inputs)))


class Branching(Tied):
    """Its control flow depends on the data, which no export can follow."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs if inputs.sum() > 0 else -inputs)


def trained_cnn() -> CNN:
    network = CNN(channels=1, classes=3, width=2)
    network(torch.rand(8, 1, 8, 8))  # batch norm has seen something
    return network


def predictions(student: nn.Module, inputs: Tensor) -> Tensor:
    """Of a copy, so that the student's mode stays as it is."""
    with torch.no_grad():
        return copy.deepcopy(student).train(False)(inputs)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> tuple[CNN, Path, dict[str, Any]]:
    """An exported student; tests that change the folder copy it first."""
    network, folder = trained_cnn(), tmp_path_factory.mktemp("exports") / "student"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return network, folder, export_student(network, torch.rand(1, 1, 8, 8), folder, None)


@pytest.fixture
def damaged(cnn: tuple[CNN, Path, dict[str, Any]], tmp_path: Path) -> Path:
    for path in cnn[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.slow
def test_a_reference_network_comes_back_bit_by_bit(cnn: tuple[CNN, Path, dict[str, Any]]) -> None:
    network, folder, description = cnn
    inputs = torch.rand(5, 1, 8, 8)
    state = torch.get_rng_state()
    student = load_student(folder)
    assert isinstance(student, CNN) and not student.training and torch.equal(torch.get_rng_state(), state)
    assert torch.equal(predictions(student, inputs), predictions(network, inputs))
    assert description == json.loads((folder / "student.json").read_text())
    assert {name: value for name, value in description.items() if name not in ("sha256", "digest")} == {
        "format": 2,
        "network": "cnn",
        "arguments": {"channels": 1, "classes": 3, "width": 2},
        "input_shape": [1, 8, 8],
        "input_dtype": "float32",
        "classes": 3,
        "program": "student.pt2",
        "program_missing": None,
        "onnx": None,
        "card": "README.md",
    }
    assert names_in(folder) == ["README.md", "student.json", "student.pt2", "student.safetensors"]


@pytest.mark.slow
def test_the_program_needs_no_code_and_takes_any_number_of_rows(cnn: tuple[CNN, Path, dict[str, Any]]) -> None:
    network, folder, _ = cnn
    program = torch.export.load(folder / "student.pt2").module()
    for rows in (1, 2, 7):
        inputs = torch.rand(rows, 1, 8, 8)
        torch.testing.assert_close(program(inputs), predictions(network, inputs), rtol=1e-5, atol=1e-6)


def test_the_student_stays_as_it_is(tmp_path: Path) -> None:
    student = MLP(4, 3, (2,))
    student.layers[1].train(False)
    before, modes = copy.deepcopy(student.state_dict()), [each.training for each in student.modules()]
    example, random = torch.rand(1, 4), torch.get_rng_state()
    export_student(student, example, tmp_path / "student", "their.module:make")
    assert [each.training for each in student.modules()] == modes and torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in student.state_dict().items())
    assert json.loads((tmp_path / "student" / "student.json").read_text())["network"] == "mlp"  # whoever made it


@pytest.mark.slow
def test_the_memory_format_of_the_student_does_not_matter(tmp_path: Path) -> None:
    student = CNN(channels=3, classes=5, width=16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    export_student(student, torch.rand(1, 3, 32, 32).to(memory_format=torch.channels_last), tmp_path, None)
    assert all(torch.equal(value, student.state_dict()[name]) for name, value in load_student(tmp_path).state_dict().items())


def test_shared_parameters_are_kept(tmp_path: Path) -> None:
    student, inputs = Tied(), torch.rand(3, 4)
    export_student(student, inputs[:1], tmp_path, None)
    again = load_student(tmp_path, Tied())
    assert torch.equal(predictions(again, inputs), predictions(student, inputs)) and not again.training
    assert set(load_file(tmp_path / "student.safetensors")) == set(student.state_dict())
    with pytest.raises(ConfigError, match="module"):
        load_student(tmp_path)


def test_a_student_that_cannot_be_exported_is_stored_all_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export_student(Tied(), torch.rand(1, 4), tmp_path, None)  # an earlier export, with a program
    student, inputs = Branching(), torch.rand(3, 4)
    with pytest.warns(WdistillWarning, match="student.pt2 is left out"):
        description = export_student(student, inputs[:1], tmp_path, None)
    assert description["program"] is None and "data-dependent" in description["program_missing"]
    assert names_in(tmp_path) == ["README.md", "student.json", "student.safetensors"]
    assert torch.equal(predictions(load_student(tmp_path, Branching()), inputs), predictions(student, inputs))
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "their_student.py").write_text("from torch import nn\ndef make(): return nn.Linear(4, 3)\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("their_student", None)


def test_the_users_code_runs_only_with_consent(theirs: Path) -> None:
    student, folder = nn.Linear(4, 3), theirs / "student"
    export_student(student, torch.rand(1, 4), folder, "their_student:make")
    with pytest.raises(ConfigError, match="import and call their_student:make"):
        load_student(folder)
    assert "their_student" not in sys.modules
    assert torch.equal(load_student(folder, trust_code=True).weight, student.weight)  # type: ignore[arg-type]
    assert torch.equal(load_student(folder, nn.Linear(4, 3)).weight, student.weight)  # type: ignore[arg-type]


def test_states_that_do_not_fit_are_listed(damaged: Path) -> None:
    with pytest.raises(ConfigError, match=r"of another shape: layers.0.weight \(2, 1, 3, 3\) instead of \(4, 1, 3, 3\)"):
        load_student(damaged, CNN(channels=1, classes=3, width=4))
    with pytest.raises(ConfigError, match=r"(?s)not in the file: weight; not in the network: layers.0.weight.* more"):
        load_student(damaged, nn.Linear(2, 2, bias=False))


@pytest.mark.parametrize("keep", [0, 20, -1])
def test_truncated_parameters_are_refused(damaged: Path, keep: int) -> None:
    path = damaged / "student.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileError, match=r"student\.safetensors"):
        load_student(damaged)


def test_one_flipped_bit_is_found(damaged: Path) -> None:
    path = damaged / "student.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="other bytes"):
        load_student(damaged)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 2}', '{"format": 1, "network": 3, "arguments": {}, "sha256": {}}', "[" * 100_000]
)
def test_damaged_descriptions_are_refused(damaged: Path, text: str) -> None:
    (damaged / "student.json").write_text(text)
    with pytest.raises(FileError, match="not the description"):
        load_student(damaged)


def test_a_flipped_bit_in_the_description_is_found(damaged: Path) -> None:
    path = damaged / "student.json"
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with contextlib.suppress(FileError):
            load_student(damaged)
            assert json.loads(path.read_bytes()) == json.loads(content)  # white space


@pytest.mark.parametrize("name", ["student.safetensors", "student.pt2", "student.onnx", "student.json", "README.md"])
def test_files_of_others_are_not_replaced_by_a_student(damaged: Path, name: str) -> None:
    (damaged / name).write_bytes(b"mine")
    before = {path.name: path.read_bytes() for path in damaged.iterdir()}
    with pytest.raises(ConfigError, match=rf"something else\n  found: .*{name}"):
        export_student(nn.Linear(4, 3), torch.rand(1, 4), damaged, None)
    assert {path.name: path.read_bytes() for path in damaged.iterdir()} == before


@pytest.mark.proof
@pytest.mark.slow
def test_an_export_over_another_that_stops_anywhere_is_made_good(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    count = fail_at = 0

    def before(operation: str, path: Path) -> None:
        nonlocal count
        count += 1
        if count == fail_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "before", before)
    student, failed = nn.Linear(4, 3), True
    while failed:
        folder = tmp_path_factory.mktemp("over") / "student"
        shutil.copytree(damaged, folder)
        fail_at, count = fail_at + 1, 0
        try:
            export_student(student, torch.rand(1, 4), folder, None)
        except KeyboardInterrupt:
            export_student(nn.Linear(4, 3), torch.rand(1, 4), folder, None)
            export_student(student, torch.rand(1, 4), folder, None)
        else:
            failed = False
        assert names_in(folder) == ["README.md", "student.json", "student.pt2", "student.safetensors"]
        assert torch.equal(load_student(folder, nn.Linear(4, 3)).weight, student.weight)  # type: ignore[arg-type]
    assert fail_at > 15


def test_what_is_missing_is_named(damaged: Path) -> None:
    with pytest.raises(FileError, match="no student here"):
        load_student(damaged / "elsewhere")
    (damaged / "student.safetensors").unlink()
    with pytest.raises(FileError, match=r"student\.safetensors"):
        load_student(damaged)


def test_arguments_that_build_nothing_are_refused(damaged: Path) -> None:
    path = damaged / "student.json"
    description = json.loads(path.read_text().replace('"width"', '"depth"'))
    path.write_text(json.dumps(description | {"digest": digest_of(description)}))
    with pytest.raises(FileError, match="depth"):
        load_student(damaged)


def described(folder: Path, **fields: Any) -> None:
    """Change a description, and its digest with it."""
    path = folder / "student.json"
    description = {name: value for name, value in (json.loads(path.read_text()) | fields).items() if name != "digest"}
    path.write_text(json.dumps(description | {"digest": digest_of(description)}))


@pytest.mark.parametrize(
    "fields",
    [
        {"decision": 5},
        {"decision": {}},
        {"decision": {"offsets": ["x"] * 3, "costs": None}},
        {"decision": {"offsets": ["1"] * 3, "costs": None}},
        {"decision": {"offsets": [0.0] * 7, "costs": None}},
        {"decision": {"offsets": [0.0, 0.0, float("nan")], "costs": None}},
        {"decision": {"offsets": [0.0, 0.0, 10**400], "costs": None}},
        {"decision": {"offsets": [0.0] * 3, "costs": [[1], [2, 3]]}},
        {"decision": {"offsets": [0.0] * 3, "costs": [[0, 1], [1, 0]]}},
        {"classes": None},
        {"classes": 10**15},
    ],
    ids=str,
)
def test_a_decision_that_is_none_is_refused(damaged: Path, fields: dict[str, Any]) -> None:
    described(damaged, **fields)
    with pytest.raises(FileError, match="decision cannot be read"):
        load_student(damaged)


def rebuilt(sources: list[str]) -> int:
    return len(list(load_student(sources[0]).parameters()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"network": "mlp", "arguments": {"inputs": 20_000, "classes": 2, "hidden": [20_000]}}, "do not fit the network"),
        ({"network": "mlp", "arguments": {"inputs": 1, "classes": 2, "hidden": [1] * 500_000}}, "more than"),
        ({"network": "resnet_cifar", "arguments": {"channels": 1, "classes": 2, "depth": 9_000_002}}, "more than"),
        ({"network": "mlp", "arguments": {"inputs": 2**62, "classes": 2**62, "hidden": []}}, "do not build its network"),
        ({"network": "mobilenet", "arguments": {"channels": 1, "classes": 2, "width": 1e308}}, "do not build its network"),
        ({"notes": [[]] * 2_000_000}, "values"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_description_of_a_huge_network_needs_little_memory(damaged: Path, fields: dict[str, Any], words: str) -> None:
    described(damaged, **fields)
    harmless(damaged, read=rebuilt, words=[words])


@pytest.mark.parametrize("spec", EXAMPLES.values())
def test_every_network_that_can_be_named_is_rebuilt(tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "torch_program", lambda *_: "not tried")
    monkeypatch.setattr(export, "logits_from", lambda *_: torch.zeros(2, 10))
    torch.manual_seed(1)
    network = build(spec)
    with pytest.warns(WdistillWarning, match="not tried"):
        export_student(network, torch.zeros(1, 4), tmp_path, None)
    for (name, value), stored in zip(
        network.state_dict().items(), load_student(tmp_path).state_dict().values(), strict=True
    ):
        assert stored.device.type == "cpu" and torch.equal(value, stored), name


class Pair(nn.Linear):
    def forward(self, inputs: Tensor) -> Any:
        return super().forward(inputs), inputs


class Noisy(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + torch.rand(())


class Remembering(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"seen": 3}

    def set_extra_state(self, state: Any) -> None: ...


def test_students_that_cannot_be_stored_are_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tuple"):
        export_student(Pair(4, 3), torch.rand(1, 4), tmp_path, None)
    with pytest.raises(ConfigError, match="_extra_state"):
        export_student(Remembering(4, 3), torch.rand(1, 4), tmp_path, None)
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(WdistillWarning, match="predicts otherwise"), pytest.raises(ConfigError, match="randomness"):
        export_student(Noisy(4, 3), torch.rand(1, 4), tmp_path, None)


def test_what_is_no_path_or_no_module_is_an_error_of_ours(tmp_path: Path) -> None:
    nothing: Any = None
    for call in (lambda: load_student(nothing), lambda: export_student(Tied(), torch.zeros(1, 4), nothing, None)):
        with pytest.raises(ConfigError, match="not a path"):
            call()
    with pytest.raises(ConfigError, match="not a module"):
        load_student(tmp_path, "student")  # type: ignore[arg-type]
