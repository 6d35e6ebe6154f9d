"""The arm `best` in a run: second opinions that never saw the row they speak of, gold as labels, and nothing lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.distilling import QUICK, go, seeded, student, students, table, teacher
from tests.killing import child, differences, fingerprint, killer, splits
from wdistill import ConfigError, InputError, Recipe, advise, best, cli, debiased, distill, read_run, unweighted
from wdistill.methods import corrected, robust
from wdistill.methods.context import Context, CrossEntropy, MethodArm, Supervision, by_rule
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training import tensors
from wdistill.training.arm import LossOnUnlabeled
from wdistill.training.auxiliary import gold_folds
from wdistill.training.data import check_split
from wdistill.training.labels import read_labels, read_table
from wdistill.training.predict import predict
from wdistill.weights.equations import log_probabilities
from wdistill.weights.evidence import Evidence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*validation rows"),  # so few of them are part of the tests
]
SLOW = replace(QUICK, teacher_epochs=6, student_epochs=6, schedule="constant")  # enough for folds to differ


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "best"
    go(rule={"plain": unweighted, "best": best}, recipe=SLOW, run=folder)
    return folder


def folds() -> np.ndarray[Any, Any]:
    validation = check_split("validation", splits()["validation"], labels=True, folder=Path())
    return gold_folds(validation, QUICK)


def test_the_arm_says_why_and_is_taught_the_gold_rows(run: Path) -> None:
    found = read_run(run)
    assert found.state == "finished"
    assert "recalibrated on 30 gold rows" in found.arms["best"].why and not found.arms["plain"].why
    rows = found.rows
    assert found.arms["plain"].epochs[-1].examples == rows["labeled"] + rows["unlabeled"]
    assert found.arms["best"].epochs[-1].examples == sum(rows[name] for name in ("labeled", "unlabeled", "validation"))
    assert found.seconds["auxiliary"] > 0
    page = (run / "report.html").read_text()
    assert "recalibrated on 30 gold rows" in page
    assert found.arms["best"].gold and not found.arms["plain"].gold
    assert "Note: best was trained on the validation rows: its accuracy on them is too good" in page


def test_labels_alone_can_be_an_arm_and_does_not_depend_on_what_the_teacher_says() -> None:
    arm = {"alone": MethodArm("alone", corrected.supervised_only)}
    said = table()
    other = {name: values[:, ::-1].copy() for name, values in said.items()}
    first, second = (students(go(predictions, rule=arm)) for predictions in (said, other))
    assert first == second


def test_too_few_gold_rows_are_refused_before_any_training(tmp_path: Path) -> None:
    inputs, labels = splits()["validation"]
    with pytest.raises(InputError, match="too few gold rows"):
        go(rule=best, validation=(inputs[:9], labels[:9]), run=tmp_path / "run")
    assert not (tmp_path / "run" / "teacher").exists()


def test_what_teaches_more_than_weights_gives_no_weights() -> None:
    random = np.random.default_rng(0)
    gold, rest = (random.dirichlet(np.ones(3), n).astype(np.float32) for n in (40, 50))
    seen = Evidence(random.integers(0, 3, 40), gold, gold, rest, rest)
    others = {"corrected": corrected.corrected("teacher", "student"), "mixed": robust.mixed, "forward": robust.forward}
    others["refreshed"] = by_rule(debiased, refresh=True)
    for arm in (best, *(MethodArm(name, method) for name, method in others.items())):
        with pytest.raises(ConfigError, match="weights are not all that this method gives"):
            arm(seen)
    assert np.array_equal(MethodArm("paper", by_rule(debiased))(seen), by_rule(debiased)(Context(seen)).weights)


def test_targets_are_kept_by_id(run: Path) -> None:
    kept = read_table(CheckpointStore(run / "arms" / "best").read("weights/00000.parquet"), ["id", "weight", "targets"])
    assert kept["targets"].shape == (60, 3) and np.allclose(kept["targets"].sum(axis=1), 1, atol=1e-6)
    assert kept["weight"].tolist() == [1.0] * 60 and kept["id"].tolist() == list(range(60))


@pytest.mark.parametrize("name", ["second", "retrained"])
def test_of_a_gold_row_the_model_speaks_that_has_not_seen_it(run: Path, name: str) -> None:
    inputs = check_split("validation", splits()["validation"], labels=True, folder=Path()).inputs
    said = []
    for fold in range(5):
        model = (student if name == "second" else teacher)()
        content = CheckpointStore(run / "auxiliary" / f"{name}-{fold}").read("parameters.safetensors")
        tensors.load_parameters(model, tensors.from_bytes(content, name), name)
        said.append(log_probabilities(predict(model, inputs), "logits"))
    wanted = np.stack(said)[folds(), np.arange(30)]
    found = read_labels(run / "auxiliary" / name, "validation")
    assert found is not None and np.allclose(found, wanted, atol=1e-6)
    assert not np.allclose(said[0], said[1], atol=1e-3)  # they are not all the same


def test_no_model_learns_from_its_own_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every stage was trained on, by row id."""
    seen: dict[str, set[str]] = {}
    from wdistill.training import jobs

    real = jobs.run_stage

    def spy(stage: Any, *more: Any) -> None:
        seen[stage.name] = {str(each) for each in stage.examples.ids}
        real(stage, *more)

    monkeypatch.setattr(jobs, "run_stage", spy)
    named = {name: (each[0], each[1]) for name, each in splits().items()}
    from wdistill import Data

    data = {name: Data(*pair, ids=[f"{name}{i}" for i in range(len(pair[1]))]) for name, pair in named.items()}
    distill(teacher, student, **data, rule=best, recipe=QUICK)
    for name in ("second", "retrained"):
        for fold in range(5):
            own = {f"validation{i}" for i in np.flatnonzero(folds() == fold)}
            others = {f"validation{i}" for i in np.flatnonzero(folds() != fold)}
            assert seen[f"{name}-{fold}"] == others | {f"labeled{i}" for i in range(30)}
            assert not own & seen[f"{name}-{fold}"]


def test_a_forest_that_could_remember_knows_nothing_of_noise(tmp_path: Path) -> None:
    """Labels without any sense: in sample a forest is always right, out of fold as often as chance."""
    generator = torch.Generator().manual_seed(3)
    noise = {name: (torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator))
             for name, n in {"labeled": 30, "validation": 200, "unlabeled": 60, "test": 20}.items()}  # fmt: skip
    go(**noise, rule=best, run=tmp_path / "run")
    said = read_labels(tmp_path / "run" / "auxiliary" / "forest", "validation")
    assert said is not None
    assert np.mean(said.argmax(axis=1) == noise["validation"][1].numpy()) < 0.5


def test_a_teacher_that_is_a_table_is_not_retrained(tmp_path: Path) -> None:
    go(table(), rule=best, run=tmp_path / "run")
    there = {path.name for path in (tmp_path / "run" / "auxiliary").iterdir()}
    assert "second" in there and "forest" in there and not any("retrained" in name for name in there)
    assert "retrained" not in read_run(tmp_path / "run").arms["best"].why


def test_models_that_come_trained_are_not_trained_again(tmp_path: Path) -> None:
    recipe = replace(QUICK, teacher_epochs=0, student_epochs=0)
    go(seeded(teacher), seeded(student), recipe, rule=best, run=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "auxiliary").iterdir()} == {"forest"}


@pytest.mark.proof
def test_many_processes_come_to_the_same_bits(run: Path, tmp_path: Path) -> None:
    go(recipe=replace(SLOW, workers=2), rule={"plain": unweighted, "best": best}, run=tmp_path / "run")
    wanted = {name: value for name, value in fingerprint(run).items() if "initial" not in name}
    found = fingerprint(tmp_path / "run")
    students_of = [name for name in wanted if name.endswith((".safetensors", ".parquet"))]
    assert students_of and all(found[name] == wanted[name] for name in students_of)


def _run(folder: Path) -> None:
    go(rule=best, recipe=replace(QUICK, checkpoint_seconds=0), run=folder)


@pytest.mark.kill
@pytest.mark.proof
def test_killed_anywhere_it_ends_the_same(tmp_path: Path) -> None:
    def counting(operation: str, path: Path) -> None:
        with (tmp_path / "count").open("a") as file:
            file.write(".")

    assert child(tmp_path / "whole", counting, _run) == 0
    count = len((tmp_path / "count").read_text())
    wanted = fingerprint(tmp_path / "whole")
    for at in np.linspace(5, count - 5, 5).astype(int).tolist():
        folder = tmp_path / f"killed-{at}"
        assert child(folder, killer(at), _run) != 0
        assert child(folder, lambda operation, path: None, _run) == 0
        assert differences(fingerprint(folder), wanted) == []


def test_any_method_can_be_an_arm(tmp_path: Path) -> None:
    """A loss of its own on unlabeled rows; and weights of a rule, the same as by the rule itself."""
    arms = {
        "mixed": MethodArm("mixed", robust.mixed),
        "plain": MethodArm("plain", by_rule(unweighted)),
        "unweighted": unweighted,
        "paper": MethodArm("paper", by_rule(debiased)),
        "debiased": debiased,
    }
    report = go(rule=arms, recipe=replace(QUICK, epochs=3))
    found = {
        name: np.concatenate([p.detach().numpy().ravel() for p in each.parameters()])
        for name, each in report.students.items()
    }
    assert np.allclose(found["plain"], found["unweighted"], atol=1e-5)
    assert np.allclose(found["paper"], found["debiased"], atol=1e-5)
    assert not np.allclose(found["mixed"], found["plain"], atol=1e-4)


def test_a_method_may_weigh_anew_after_every_epoch(tmp_path: Path) -> None:
    rule = {"once": MethodArm("once", by_rule(debiased)), "anew": MethodArm("anew", by_rule(debiased, refresh=True))}
    report = go(rule=rule, recipe=replace(QUICK, epochs=3), run=tmp_path / "run")
    assert [len(each.refreshes) for each in report.outcome.arms.values()] == [1, 3]


def test_an_opinion_that_nobody_was_asked_for_is_named() -> None:
    with pytest.raises(ConfigError, match="no predictions of this auxiliary model") as caught:
        go(rule=MethodArm("again", corrected.retrained))
    assert "auxiliary=('retrained',)" in str(caught.value)


def test_targets_have_the_temperature_of_the_recipe(tmp_path: Path) -> None:
    """Those of a plain method are the teacher's logits at that temperature, as an arm without a method has them."""
    for temperature in (1.0, 4.0):
        recipe = replace(QUICK, temperature=temperature)
        folder = tmp_path / f"{temperature}"
        go(rule={"plain": MethodArm("plain", by_rule(unweighted))}, recipe=recipe, run=folder)
        kept = read_table(CheckpointStore(folder / "arms" / "plain").read("weights/00000.parquet"), ["targets"])["targets"]
        logits = read_labels(folder / "labels", "unlabeled")
        assert logits is not None
        assert np.allclose(kept, np.exp(log_probabilities(logits / temperature, "logits")), atol=1e-5)


def test_advice_before_the_second_stage_and_a_run_that_goes_on(tmp_path: Path) -> None:
    given, folder = splits(), tmp_path / "run"
    advice = advise(teacher, student, **given, recipe=QUICK, run=folder)
    assert advice.gold == len(given["validation"][1]) and advice.verdict
    assert (folder / "auxiliary").is_dir() and not (folder / "arms").exists()
    assert advice.forecast is not None and {path.name for path in (folder / "pilots").iterdir()} == {"plain", "corrected"}
    before = {path: path.stat().st_mtime_ns for path in (folder / "teacher").iterdir()}
    report = go(rule=best, run=folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before  # nothing is trained again
    assert report.outcome.arms["best"].why == advice.correction.why
    again = advise(teacher, student, **given, recipe=QUICK, run=folder)  # of a finished run
    assert again.verdict == advice.verdict
    with pytest.raises(ConfigError, match="about the arm best"):
        advise(teacher, student, **given, rule=debiased, recipe=QUICK)


def test_the_special_loss_is_that_of_unlabeled_rows() -> None:
    logits, targets = torch.randn(4, 3), torch.eye(3)[[0, 1, 2, 0]]
    duplicate_gold = LossOnUnlabeled(lambda logits, targets, rows: 10.0 + rows.to(logits.dtype), first=2, count=5)(
        logits, targets, torch.tensor([0, 2, 6, 7])
    )
    plain = CrossEntropy()(logits, targets, None)
    assert torch.allclose(duplicate_gold, torch.stack([plain[0], torch.tensor(10.0), torch.tensor(14.0), plain[3]]))


def test_the_caller_is_asked_what_it_wants_taught() -> None:
    """A method of the user's own: everything is class 0, and no gold."""

    def stubborn(case: Context) -> Supervision:
        return Supervision(np.eye(3)[np.zeros(60, int)], np.full(60, 0.5))

    report = go(rule={"stubborn": MethodArm("stubborn", stubborn)}, recipe=replace(QUICK, epochs=30))
    inputs = splits()["test"][0]
    assert (report.students["stubborn"](inputs).argmax(dim=1) == 0).float().mean() > 0.5
    assert stubborn(Context(Evidence([0, 1, 2], np.eye(3), np.eye(3)))).weights.mean() == 0.5
    assert students(report)


@pytest.mark.proof
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, (inputs, labels) in splits().items():
        np.savez(f"{name}.npz", inputs=inputs.numpy(), label=labels.numpy())
    given = ["distill", "--teacher", "mlp:inputs=6,classes=3,hidden=8", "--student", "mlp:inputs=6,classes=3,hidden=4"]
    given += [word for name in splits() for word in (f"--{name}", f"{name}.npz")]
    given += ["--teacher-epochs", "1", "--student-epochs", "1", "--epochs", "1", "--run", "run"]
    assert cli.main([*given, "--method", "best", "--advise"]) == 0
    advice = capsys.readouterr().out
    assert advice.startswith("Verdict: ") and "without --advise resumes" in advice and not Path("run/arms").exists()
    assert cli.main([*given, "--advise"]) == 2 and "about the arm best" in capsys.readouterr().err
    assert cli.main([*given, "--method", "best"]) == 0
    assert read_run(Path("run")).arms["best"].why
    said = capsys.readouterr()
    assert "recalibrated on 30 gold rows" in said.out
    assert cli.main([*given, "--method", "best", "--rule", "debiased"]) == 2
    assert "--rule best" in capsys.readouterr().err
    assert cli.main([*given[:-1], "both", "--rule", "best", "--rule", "debiased"]) == 0
    assert set(read_run(Path("both")).arms) == {"best", "debiased"}


def test_a_name_like_best_is_explained() -> None:
    with pytest.raises(ConfigError, match="did you mean best"):
        go(recipe=replace(QUICK, rule=("bets",)))
    assert Recipe().rule == ("debiased",)
