"""A model card says what is known of a student, the same for equal runs, and its code runs."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from tests import killing
from wdistill import cli, export_student
from wdistill.core.errors import ConfigError
from wdistill.core.sealed import digest_of
from wdistill.methods.statistics import Interval
from wdistill.report.card import StudentFacts, model_card, plain, provenance_of, read_provenance
from wdistill.report.exported import facts_of
from wdistill.report.verify import verify
from wdistill.runs.judgement import JudgedStudent, Judgement, Measured, PoolGain
from wdistill.runs.outcome import Epoch, Outcome, Training
from wdistill.runs.recipe import Recipe
from wdistill.training import onnx_program
from wdistill.training.export import load_student
from wdistill.training.models.networks import MLP, TableMLP
from wdistill.training.models.text import TextBag

torch.set_num_threads(1)
FACTS = StudentFacts("mlp", "pytorch", "", "It reads rows.", ("cat", "dog"), "pass")
SPLIT = {"shape": [50, 4], "dtype": "float32", "sha256": "a" * 64, "sampled": False, "labels": "b" * 64, "ids": "c" * 64}


def outcome(student: float | None = 0.9, teacher: float | None = 0.8, test: int = 100, **changes: Any) -> Outcome:
    """Of a run with one arm."""
    epochs = tuple(Epoch(number, 0.5, 0.1, 0.7, student, 10, 0.1) for number in (1, 2, 3))
    rows = {"labeled": 20, "validation": 50, "unlabeled": 400, **({"test": test} if student is not None else {})}
    known = {"teacher": {"validation": 0.7, **({} if None in (student, teacher) else {"test": teacher})}}
    recipe = json.loads(json.dumps(vars(Recipe(epochs=3))))
    made = Outcome(
        Path("run"), "finished", recipe, {"wdistill": "0.1.0"}, rows, 2, None, Training("student", ()), known, {}, {}
    )
    return replace(made, arms={"debiased": Training("debiased", epochs, rule="debiased")}, **changes)


def identity(**split: Any) -> dict[str, Any]:
    data = {name: {**SPLIT, **split} for name in ("labeled", "validation", "unlabeled", "test")}
    table = {"validation": "d" * 64, "unlabeled": "e" * 64}
    return {"data": data, "teacher": {"table": table}, "rules": {"debiased": "debiased(estimate='paper')"}}


def card(known: Outcome, **split: Any) -> str:
    return model_card(FACTS, provenance_of(known, identity(**split), "debiased"))


def percent(right: int, rows: int) -> str:
    ends = binomtest(right, rows).proportion_ci(method="wilson")
    return f"{100 * right / rows:.1f} % ({100 * ends.low:.1f}–{100 * ends.high:.1f})"


@pytest.mark.parametrize(
    ("student", "teacher", "verdict"),
    [(0.9, 0.7, "the student is better"), (0.6, 0.9, "the teacher is better"), (0.9, 0.88, "do not tell which is better")],
)
def test_the_verdict_is_told_by_wilsons_intervals(student: float, teacher: float, verdict: str) -> None:
    text = card(outcome(student, teacher))
    said = f"On 100 test rows the student is right on {percent(round(100 * student), 100)}, the teacher on "
    assert f"{said}{percent(round(100 * teacher), 100)}: " in text and verdict in text
    assert f"| teacher | accuracy | {percent(35, 50)} | 50 gold rows |" in text


def test_what_was_not_measured_is_said_to_be_unknown() -> None:
    assert "There were no test rows: how often this student is right was not measured." in card(outcome(None))
    assert "the teacher was not measured there" in card(outcome(teacher=None))
    assert "Nothing is recorded here of its teacher" in model_card(FACTS)


def test_teacher_sizes_digests_and_recipe_are_there() -> None:
    text = card(outcome())
    assert "Teacher: a table of its predictions" in text and "| gold | 50 |" in text and "| pool | 400 |" in text
    for row in ("gold | inputs | aaaa", "pool | labels | bbbb", "test | ids | cccc", "gold | teacher's predictions | dddd"):
        assert f"| {row}" in text
    assert "| epochs | 3 |" in text and "| optimizer | adam |" in text and "| seed | 0 |" in text
    assert "momentum" not in text and "device" not in text  # a default that does not matter, and this machine's
    assert "divided by 255" not in text and "divided by 255" in card(outcome(), dtype="uint8")
    assert "| gold | inputs, evenly spaced rows | aaaa" in card(outcome(), sampled=True)


def test_a_trained_teacher_is_described() -> None:
    told = {"type": "MLP", "network": "mlp", "arguments": {"inputs": 4}, "parameters": 1234, "values": "f" * 64}
    known = {**identity(), "teacher": told}
    assert "mlp (inputs 4), 1,234 parameters, trained on the labeled rows for 200 epochs" in model_card(
        FACTS, provenance_of(outcome(), known, "debiased")
    )
    trained = outcome(recipe={**outcome().recipe, "teacher_epochs": 0})
    assert f"SHA-256 of its parameters {'f' * 64}" in model_card(FACTS, provenance_of(trained, known, "debiased"))


def test_the_metric_the_decision_and_the_gain_on_the_pool_are_those_of_the_arm() -> None:
    near, far = Interval(0.5, 0.4, 0.6), Interval(0.75, 0.7, 0.8)
    judged = JudgedStudent(
        "macro-f1", ("a", "b"), (0.0, -1.0), None, "pool", True, "test", 100, (Measured("macro-f1", near, far),), ()
    )
    gains = tuple(PoolGain(name, "unweighted", "accuracy", Interval(0.03, 0.01, 0.05), 400) for name in ("debiased", "best"))
    text = card(outcome(judgement=Judgement({"debiased": judged, "best": judged}, gains)))
    assert "| student, as it decides | macro-f1 | 0.750 (0.700–0.800) | 100 test rows |" in text
    assert "debiased gains +3.0 (+1.0 to +5.0) points over unweighted" in text and "best" not in text
    assert "debiased decides for class b from a probability of 0.731 on" in text


def test_the_front_matter_is_that_of_hugging_face() -> None:
    head, _, body = model_card(replace(FACTS, task="text-classification"), None).removeprefix("---\n").partition("\n---\n")
    lines = head.split("\n")
    assert lines == [
        *("library_name: pytorch", "pipeline_tag: text-classification", "tags:", "- wdistill", "- knowledge-distillation")
    ]
    assert body.startswith("\n# A distilled student\n")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_names_of_classes_never_become_markup(names: list[str]) -> None:
    text = model_card(replace(FACTS, classes=tuple(names)))
    assert text.count("\n") == model_card(replace(FACTS, classes=("x",) * len(names))).count("\n")
    for name in names:
        assert not re.search(r"(?<!\\)(\\\\)*[`*_#\[\]<>|]", plain(name)) and plain(name).isprintable()


# of files --------------------------------------------------------------------------------------------------------------


def code_of(folder: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    return str(code)


@pytest.mark.parametrize("kind", ["mlp", "text", "table", "named"])
def test_the_code_of_the_card_runs(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(torch.nn.Linear):
        def forward(self, left: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return super().forward(left)

    students = {"mlp": MLP(4, 3), "text": TextBag(3, 16), "table": TableMLP(4, 3), "named": Named(4, 3)}
    examples: dict[str, Any] = {"text": torch.zeros(1, 512, dtype=torch.int32), "named": {"left": torch.rand(1, 4)}}
    kinds = {"inputs": [{"name": "age", "width": 1}, {"name": "town|", "categories": ["Rome", "Oslo", "Bath"]}]}
    made_of = {"text": {"columns": {"text": "body"}, "class_names": ["a", "b", "c"]}, "table": {"columns": kinds}}
    export_student(students[kind], examples.get(kind, torch.rand(1, 4)), tmp_path, None, made_of.get(kind))
    text = (tmp_path / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    rows: Any = {"left": torch.rand(2, 4)} if kind == "named" else torch.rand(2, 4)
    names = {"rows": rows, "your_network": Named(4, 3)}
    exec(code_of(tmp_path), names)
    assert np.asarray(names["classes"]).shape == (2,)
    assert ("- town\\|: 3 numbers, 1 for the category that it has and 0 for the others: Rome, Oslo, Bath" in text) == (
        kind == "table"
    )
    assert ("the column body" in text) == ("0. a\n1. b" in text) == (kind == "text")


def test_code_of_the_users_own_is_named_and_a_missing_program_is_not() -> None:
    described = {"network": "their.module:make", "arguments": {}, "input_shape": [4], "input_dtype": "float32", "classes": 2}
    text = model_card(facts_of({**described, "program": None, "onnx": None}, 7))
    assert 'load_student(".", trust_code=True)' in text and "runs their.module:make" in text and "7 numbers" in text
    assert "torch.export" not in text and "onnxruntime" not in text
    decided = {"metric": "f1", "offsets": [0.0, -1.0], "costs": None}
    text = model_card(facts_of({**described, "program": "student.pt2", "onnx": "student.onnx", "decision": decided}, 7))
    assert 'torch.export.load("student.pt2")' in text and 'InferenceSession("student.onnx")' in text
    assert "decided for the metric f1" in text


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two equal runs in different folders."""
    folder = tmp_path_factory.mktemp("card")
    for name in ("one", "two"):
        killing.run(folder / name)
    return folder / "one", folder / "two"


@pytest.mark.slow
def test_equal_runs_give_the_same_bytes_and_the_card_is_verified(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for name, run in zip(("one", "two"), runs, strict=True):
        assert cli.main(["export", str(run), "--output", str(tmp_path / name)]) == 0
    for name in ("README.md", "student.json", "student.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    text = (tmp_path / "one" / "README.md").read_text()
    assert str(tmp_path) not in text and not re.search(r"\b20\d\d-\d\d", text)
    assert read_provenance(runs[0]).digests["test"]["inputs"] in text and "On 20 test rows the student" in text
    assert json.loads((tmp_path / "one" / "student.json").read_text())["sha256"].keys() >= {"README.md"}
    assert len(verify(tmp_path / "one")[1]) == 4 and cli.main(["verify", str(tmp_path / "one")]) == 0
    os.truncate(tmp_path / "one" / "README.md", 100)
    assert cli.main(["verify", str(tmp_path / "one")]) == 3
    with pytest.raises(ConfigError, match=r"something else\n  found: README\.md"):  # edited: theirs now
        export_student(MLP(6, 3, (4,)), torch.zeros(1, 6), tmp_path / "one", None)


@pytest.mark.slow
def test_a_student_that_was_exported_in_python_can_have_the_runs_card(runs: tuple[Path, Path], tmp_path: Path) -> None:
    export_student(MLP(6, 3, (4,)), torch.zeros(1, 6), tmp_path, None, provenance=read_provenance(runs[0], "fidelity"))
    assert "Arm: fidelity()." in (tmp_path / "README.md").read_text()
    with pytest.raises(ConfigError, match="no such student"):
        read_provenance(runs[0], "best")


def test_an_export_from_before_there_were_cards_is_read_and_replaced(tmp_path: Path) -> None:
    export_student(MLP(4, 3), torch.rand(1, 4), tmp_path, None)
    (tmp_path / "README.md").unlink()
    old = json.loads((tmp_path / "student.json").read_text())
    old = {name: value for name, value in old.items() if name not in ("card", "onnx")}
    old["sha256"] = {name: digest for name, digest in old["sha256"].items() if name != "README.md"}
    (tmp_path / "student.json").write_text(json.dumps(old | {"digest": digest_of(old)}))
    assert isinstance(load_student(tmp_path), MLP) and cli.main(["verify", str(tmp_path)]) == 0
    export_student(MLP(4, 3), torch.rand(1, 4), tmp_path, None)
    assert (tmp_path / "README.md").exists()


def test_onnx_without_its_libraries_says_how_to_install_them_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_program, "find_spec", lambda name: None if name == "onnxruntime" else name)
    with pytest.raises(ConfigError, match=r"(?s)no module onnxruntime\n.*pip install 'wdistill\[onnx\]'"):
        export_student(MLP(4, 3), torch.rand(1, 4), tmp_path / "student", None, onnx=True)
    assert not (tmp_path / "student").exists()
