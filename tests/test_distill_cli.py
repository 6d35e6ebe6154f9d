"""`wdistill distill` and the commands that look at its runs, as a user types them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import wdistill
from tests.distilling import splits, table, undrawn, unlike
from tests.tables import write
from wdistill import cli, load_student, read_run
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training.tensors import from_bytes

NAMES = ("labeled", "validation", "unlabeled", "test")
RECIPE = """
teacher_epochs = 1
student_epochs = 1
epochs = 5
batch_size = 16
rule = ["debiased", "unweighted"]
device = "cpu"
"""
MODELS = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, 3))

    def forward(self, inputs):
        return self.layers(inputs)

def small():
    return Net(4)

def pair():
    class Pair(Net):
        def forward(self, inputs):
            return super().forward(inputs), None
    return Pair(4)
"""
TEACHER, STUDENT = "mlp:inputs=6,classes=3,hidden=8", "mlp:inputs=6,classes=3,hidden=4"


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything: data in three forms, a recipe, a module of the user's."""
    folder = tmp_path_factory.mktemp("here")
    for name, (inputs, labels) in splits().items():
        columns = {"inputs": inputs.numpy(), "label": labels.numpy()}
        ids = np.array([f"{name}-{row}" for row in range(len(labels))])
        write(folder / f"{name}.npz", columns)
        write(folder / f"{name}.parquet", {"id": ids, **columns})
        (folder / name).mkdir()
        for column, values in columns.items():
            np.save(folder / name / f"{column}.npy", values)
        write(folder / f"teacher-{name}.parquet", {"id": ids[::-1], "teacher": table()[name][::-1].astype(np.float32)})
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "two.csv").write_text("0,1\n5,0\n")
    (folder / "their_models.py").write_text(MODELS)
    return folder


@pytest.fixture(autouse=True)
def in_that_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)


def words(run: object, *more: object, form: str = "{}.npz", teacher: str = TEACHER, student: str = STUDENT) -> list[str]:
    files = [word for name in NAMES for word in (f"--{name}", form.format(name))]
    given = ["distill", "--teacher", teacher, "--student", student, *files, "--run", run, "--recipe", "recipe.toml", *more]
    return [str(word) for word in given]


@pytest.fixture(scope="module")
def finished(here: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert cli.main(words(folder, "--epochs", 2, "--refresh", 1)) == 0
    return folder


def fails(capsys: pytest.CaptureFixture[str], *given: object, code: int = 2) -> str:
    capsys.readouterr()
    try:
        found = cli.main([str(word) for word in given])
    except SystemExit as leaving:
        found = leaving.code
    said = capsys.readouterr().err
    assert found == code and "error: " in said and "Traceback" not in said and "defect" not in said, said
    return said


@pytest.mark.slow
def test_flags_win_over_the_file_and_both_are_in_the_run(finished: Path) -> None:
    recipe = read_run(finished).recipe
    assert (recipe["epochs"], recipe["refresh"], recipe["batch_size"]) == (2, 1, 16)
    assert recipe["rule"] == ["debiased", "unweighted"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["{}", "{}.parquet"])
def test_every_form_of_data_comes_to_the_same(finished: Path, tmp_path: Path, form: str) -> None:
    assert cli.main(words(tmp_path / "run", "--epochs", 2, "--refresh", 1, form=form)) == 0
    parts = [name for name in unlike(tmp_path / "run", finished) if not name.endswith((" state", ".parquet"))]
    assert parts == []  # ids are other ones


@pytest.mark.slow
def test_worker_processes_find_a_network_of_the_current_folder(finished: Path, tmp_path: Path) -> None:
    models = {"teacher": "their_models:small", "student": "their_models:small"}
    for workers in (1, 2):
        run = tmp_path / str(workers)
        assert cli.main(words(run, "--epochs", 1, "--rule", "debiased", "--workers", workers, **models)) == 0
    assert unlike(tmp_path / "1", tmp_path / "2") == [". state"]  # which has the recipe


def test_a_finished_run_says_so(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words(finished, "--epochs", 2, "--refresh", 1)) == 0
    out = capsys.readouterr().out
    assert "was finished before: nothing has changed" in out and "debiased" in out


def test_a_changed_command_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fails(capsys, *words(finished, "--epochs", 3, "--refresh", 1))
    assert "epochs: 2 → 3" in said and "name another folder" in said


@pytest.mark.slow
def test_predictions_of_a_teacher_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [word for name in NAMES[1:] for word in ("--teacher", f"teacher-{name}.parquet")]
    given = words(tmp_path / "run", *files, form="{}.parquet", teacher="teacher-labeled.parquet")
    assert cli.main(given) == 0
    outcome = read_run(tmp_path / "run")
    assert outcome.teacher is None and outcome.accuracies["teacher"].keys() == set(NAMES)
    assert "joined by id" in fails(capsys, *words(tmp_path / "other", *files, teacher="teacher-labeled.parquet"))
    lacking = words(tmp_path / "third", form="{}.parquet", teacher="teacher-labeled.parquet")
    assert "30 of 30 validation ids are not in it" in fails(capsys, *lacking)


@pytest.mark.slow
def test_a_students_own_code_from_the_current_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words(tmp_path / "run", student="their_models:small")) == 0
    export = ["export", str(tmp_path / "run"), "--output", str(tmp_path / "student"), "--arm", "unweighted"]
    assert "--trust-code" in fails(capsys, *export) and not (tmp_path / "student").exists()
    assert cli.main([*export, "--trust-code"]) == 0
    assert "the student of unweighted" in capsys.readouterr().out
    with pytest.raises(wdistill.ConfigError, match="trust_code"):
        load_student(tmp_path / "student")
    assert_predicts_as(tmp_path / "run", "unweighted", load_student(tmp_path / "student", trust_code=True))


def assert_predicts_as(run: Path, arm: str, student: torch.nn.Module, file: str = "parameters.safetensors") -> None:
    stored = from_bytes((run / "arms" / arm / file).read_bytes(), arm)
    assert all(torch.equal(value, stored[name]) for name, value in student.state_dict().items())


@pytest.mark.slow
def test_export_and_load(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(finished), "--output", str(tmp_path / "student")]) == 0
    assert "the student of debiased" in capsys.readouterr().out
    student = load_student(tmp_path / "student")
    assert_predicts_as(finished, "debiased", student)
    inputs = splits()["test"][0]
    with torch.no_grad():
        accuracy = float((student(inputs).argmax(1) == splits()["test"][1]).float().mean())
    assert accuracy == pytest.approx(read_run(finished).arms["debiased"].final)
    program = torch.export.load(tmp_path / "student" / "student.pt2").module()
    torch.testing.assert_close(program(inputs), student(inputs), rtol=1e-5, atol=1e-6)
    assert "fidelity" in fails(capsys, "export", finished, "--output", tmp_path / "other", "--arm", "fidelity")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_the_chosen_epoch_is_exported_with_its_own_accuracy_and_without_the_decision_of_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "student"
    rate = ["--optimizer", "sgd", "--rate", "30", "--epochs", "9"]  # so large that the last epoch is not the best
    assert cli.main(words(run, "--metric", "macro-f1", "--rule", "unweighted", *rate)) == 0
    training = read_run(run).arms["unweighted"]
    chosen = training.chosen
    assert chosen is not None and chosen.epoch < len(training.epochs) and chosen.test != training.final
    capsys.readouterr()
    assert cli.main(["export", str(run), "--output", str(out), "--epoch", "chosen"]) == 0
    assert f"unweighted, after its epoch {chosen.epoch}, is in" in capsys.readouterr().out
    student = load_student(out)
    assert_predicts_as(run, "unweighted", student, "chosen.safetensors")
    inputs, labels = splits()["test"]
    with torch.no_grad():
        decided = student.decide(student(inputs).softmax(1).numpy())
    assert chosen.test is not None and np.mean(decided == labels.numpy()) == pytest.approx(chosen.test)
    assert "decision" not in json.loads((out / "student.json").read_text())
    card = (out / "README.md").read_text()
    assert f"after epoch {chosen.epoch} of 9, the best on the gold rows" in card
    assert f"the student is right on {100 * chosen.test:.1f} %" in card
    assert cli.main(["verify", str(out)]) == 0


def test_runs_show_and_report(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(finished.parent)]) == 0
    listed = capsys.readouterr().out
    assert "finished" in listed and "2 of 2" in listed and "debiased" in listed
    assert cli.main(["show", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("teacher", "pretrained student", "debiased", "unweighted"))
    assert cli.main(["report", str(finished), "--output", str(tmp_path / "page.html")]) == 0
    assert "one" in (tmp_path / "page.html").read_text() and "page.html" in capsys.readouterr().out
    for command in (["runs", tmp_path / "none"], ["show", tmp_path], ["report", tmp_path]):
        assert "no run" in fails(capsys, *command)
    assert "not a run" in fails(capsys, "export", tmp_path, "--output", tmp_path / "out")


@pytest.mark.slow
def test_show_says_that_a_run_is_not_finished(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(finished, tmp_path / "one")
    checkpoints = CheckpointStore(tmp_path / "one")
    checkpoints.commit({**checkpoints.state, "finished": False})
    assert cli.main(["show", str(tmp_path / "one")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "was interrupted; done so far: debiased 2 epochs" in said and "the same command resumes" in said


def damage(run: Path, kind: str) -> str:
    """Damage a run; returns the name of what is damaged."""
    files = {
        "an old manifest": sorted(run.glob("generation-*.json"))[0],
        "an arm's manifest": sorted((run / "arms" / "debiased").glob("generation-*.json"))[-1],
        "a student that is gone": run / "arms" / "unweighted" / "parameters.safetensors",
        "a fitted rule": sorted((run / "arms" / "debiased" / "weights").glob("*.npz"))[0],
        "short labels": sorted((run / "labels").glob("*.parquet"))[0],
    }
    path = files[kind]
    content = path.read_bytes()
    if "gone" in kind:
        path.unlink()
    else:
        path.write_bytes(content[:-1] if "short" in kind else content[:-20] + b"?" + content[-19:])
    return path.relative_to(run).as_posix()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["an old manifest", "an arm's manifest", "a student that is gone", "a fitted rule", "short labels"]
)
def test_runs_show_and_report_mention_damage(
    finished: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "one")
    name = damage(tmp_path / "one", kind)
    for command in (["runs", tmp_path], ["show", tmp_path / "one"], ["report", tmp_path / "one"]):
        capsys.readouterr()
        assert cli.main([str(word) for word in command]) == 0
        said = capsys.readouterr().err
        assert "warning: " in said and f"damaged or missing: {name}" in said and "wdistill verify" in said
    assert any(name in text for text in read_run(tmp_path / "one").warnings)


@pytest.mark.slow
def test_a_run_that_cannot_be_read_hides_no_other(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shutil.copytree(finished, tmp_path / "one")
    shutil.copytree(finished, tmp_path / "two")
    for path in (tmp_path / "two").glob("generation-*.json"):
        path.write_bytes(b"[" * 20_000)
    assert cli.main(["runs", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "damaged" in out and f"{tmp_path / 'two'}: files of this run are damaged" in err and "finished" in out
    for command in ("show", "report"):
        assert cli.main([command, str(tmp_path)]) == 0
        assert f"left out: {tmp_path / 'two'}" in capsys.readouterr().err
        assert "generation-" in fails(capsys, command, tmp_path / "two", code=3)


def test_the_files_of_a_run_are_what_they_say(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    weights = pq.read_table(finished / "arms" / "debiased" / "weights" / "00001.parquet")
    assert weights.column_names == ["id", "weight", "error", "distortion"] and weights.num_rows == 60
    labels = pq.read_table(finished / "labels" / "unlabeled-000000.parquet")
    assert labels.column_names == ["id", "teacher"]


Bad = Callable[[Path], list[Any]]
BAD: dict[str, tuple[Bad, str]] = {
    "an unknown flag": (lambda run: words(run, "--epoch", 3), "did you mean --epochs?"),
    "a flag out of range": (lambda run: words(run, "--epochs", 0), "at least 1"),
    "no number": (lambda run: words(run, "--rate", "fast"), "--rate"),
    "an unknown rule": (lambda run: words(run, "--rule", "debiassed"), "did you mean debiased?"),
    "an unknown factor": (lambda run: words(run, "--rule", "unweighted,debiassed"), "did you mean debiased?"),
    "best as a factor": (
        lambda run: words(run, "--rule", "unweighted,best"),
        "rule: best is a method: it can be neither multiplied with rules nor shuffled",
    ),
    "best as the first factor": (
        lambda run: words(run, "--rule", "best,fidelity,debiased"),
        "--rule fidelity,debiased --rule best",
    ),
    "best, shuffled": (lambda run: words(run, "--rule", "shuffled-best"), "to do: write --rule best"),
    "a control as a factor": (lambda run: words(run, "--rule", "fidelity,shuffled"), "--rule fidelity --rule shuffled"),
    "settings at odds": (lambda run: words(run, "--threshold", 0.5), "threshold"),
    "no such recipe": (lambda run: words(run, "--recipe", "none.toml"), "none.toml"),
    "no such data": (lambda run: words(run, form="none-{}.npz"), "none-labeled.npz"),
    "data of another kind": (lambda run: words(run, form="recipe.toml"), "recipe.toml"),
    "no such network": (lambda run: words(run, student="mpl:inputs=6,classes=3"), "did you mean mlp?"),
    "no such module": (lambda run: words(run, student="no_models:small"), "no_models"),
    "no such function": (lambda run: words(run, student="their_models:smal"), "did you mean small?"),
    "a file for a module": (lambda run: words(run, student="their_models.py:small"), "their_models:small"),
    "a pair of outputs": (lambda run: words(run, student="their_models:pair"), "logits"),
    "inputs of another size": (lambda run: words(run, student="mlp:inputs=7,classes=3"), "cannot read its input"),
    "classes of another number": (lambda run: words(run, student="mlp:inputs=6,classes=4"), "4"),
    "two teachers": (lambda run: words(run, "--teacher", TEACHER), "one teacher at a time"),
    "a leak": (lambda run: words(run, "--validation", "labeled.npz"), "validation rows are among the labeled rows"),
    "no run": (lambda run: words(run)[:-4], "--run"),
    "an unknown metric": (lambda run: words(run, "--metric", "f2"), "unknown metric"),
    "a metric of no class": (lambda run: words(run, "--metric", "f1:3"), "f1 of which class?"),
    "a metric without a decision": (lambda run: words(run, "--metric", "recall:1"), "no best decision"),
    "costs of other classes": (lambda run: words(run, "--metric", "cost:two.csv"), "a cost matrix of other classes"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_say_where_and_what_to_do(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, wanted = BAD[case]
    said = fails(capsys, *make(tmp_path / "run"))
    assert wanted in said and "to do: " in said
    assert not list((tmp_path / "run").glob("*/")) if (tmp_path / "run").exists() else True


@pytest.mark.slow
def test_a_metric_is_shown_and_its_decision_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "three.json").write_text("[[0, 1, 1], [9, 0, 1], [1, 1, 0]]")
    assert cli.main(words(tmp_path / "run", "--metric", f"cost:{tmp_path / 'three.json'}", "--rule", "unweighted")) == 0
    said = capsys.readouterr().out
    assert (
        "unweighted: cost" in said
        and "unweighted decides for the class of least expected cost, its probabilities recalibrated on the gold rows"
        in said
    )
    (tmp_path / "three.json").unlink()
    assert cli.main(["show", str(tmp_path / "run")]) == 0 and "cost by class" in capsys.readouterr().out
    assert cli.main(["export", str(tmp_path / "run"), "--output", str(tmp_path / "student")]) == 0
    described = json.loads((tmp_path / "student" / "student.json").read_text())["decision"]
    assert described["metric"] == "cost" and described["slope"] >= 0 and len(described["offsets"]) == 3
    assert described["costs"] == [[0.0, 1.0, 1.0], [9.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    assert cli.main(["verify", str(tmp_path / "run")]) == cli.main(["verify", str(tmp_path / "student")]) == 0


def test_an_unknown_key_of_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.toml").write_text("epoch = 3")
    said = fails(capsys, *words(tmp_path / "run", "--recipe", tmp_path / "r.toml"))
    assert "did you mean epochs?" in said and "r.toml" in said and not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_written_is_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in fails(capsys, *words(tmp_path / "file" / "run"), code=3)


def test_a_rate_that_is_too_large_is_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fails(capsys, *words(tmp_path / "run", "--optimizer", "sgd", "--rate", "1e30"), code=4)
    assert "not finite" in said and "smaller rate" in said


def test_help_needs_no_torch() -> None:
    code = "import sys; from wdistill.cli import main\ntry: main(['distill', '--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'numba', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout[-200:] + done.stderr
    assert "--validation-in-training" in done.stdout and "exit codes" in done.stdout
