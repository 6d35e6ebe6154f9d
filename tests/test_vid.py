"""VID: the formula, taps on any module, the whole loss weighted, and runs with it that go on with the same bits."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import wdistill
from tests.distilling import (
    MADE,
    QUICK,
    Dropping,
    bits,
    failing,
    go,
    seeded,
    splits,
    students,
    table,
    teacher,
    undrawn,
    unlike,
)
from tests.staging import MEASURED, RECIPE, N, Stopping, by_student, factor, made, number, refreshed, rows, stage, whole
from wdistill import CNN, MLP, ConfigError, Evidence, Recipe, debiased, unweighted
from wdistill.runs.checkpoints import CheckpointStore, read_manifest
from wdistill.training.data import Split
from wdistill.training.inputs import InMemory
from wdistill.training.jobs import TrainingJob, run_job
from wdistill.training.loop import run_stage
from wdistill.training.losses import weighted_loss, weighted_mean
from wdistill.training.stage import Callbacks, Examples, StoppedError
from wdistill.training.tensors import from_bytes
from wdistill.training.vid import (
    FLOOR,
    Regressor,
    capture_features,
    feature_shapes,
    paired_shapes,
    vid_auxiliary_loss,
    vid_loss,
)
from wdistill.weights.rule import as_rule


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


def random(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def images() -> dict[str, tuple[Tensor, Tensor]]:
    """The usual rows as pictures (1, 8, 8) of their six numbers."""
    spread = torch.randn(6, 64, generator=torch.Generator().manual_seed(5))
    return {name: ((inputs @ spread).view(-1, 1, 8, 8), labels) for name, (inputs, labels) in splits().items()}


def big() -> CNN:
    return CNN(1, 3, 3)


def small() -> CNN:
    return CNN(1, 3, 2)


# the formula -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(3, 4), (3, 4, 5), (3, 4, 2, 3), (2, 1, 2, 1, 2)])
def test_the_loss_is_the_formula(size: tuple[int, ...]) -> None:
    target, mean, variance = random(*size), random(*size, seed=1), random(size[1], seed=2).exp()
    found = vid_loss(target, mean, variance)
    assert found.shape == (size[0],) and found.dtype == torch.float64
    for row in range(size[0]):
        units = [
            0.5 * math.log(variance[c]) + (t - m) ** 2 / (2 * float(variance[c]))
            for c in range(size[1])
            for t, m in zip(target[row, c].flatten().tolist(), mean[row, c].flatten().tolist(), strict=True)
        ]
        assert found[row].item() == pytest.approx(sum(units) / len(units), rel=1e-12)
    spread = variance.sqrt().view(1, -1, *[1] * (len(size) - 2))
    wanted = -torch.distributions.Normal(mean, spread).log_prob(target).flatten(1).mean(1) - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(found, wanted)
    half = vid_loss(target.bfloat16(), mean.bfloat16(), variance.float())
    assert half.dtype == torch.float32  # half precision ends at the features
    torch.testing.assert_close(half.double(), found, rtol=0.05, atol=0.05)


def test_the_variance_begins_at_5_and_stays_above_its_floor() -> None:
    regressor = Regressor(2, 3, 2)
    torch.testing.assert_close(regressor.variance, torch.full((3,), 5.0))
    with torch.no_grad():
        regressor.raw.fill_(-1e4)
    assert (regressor.variance == FLOOR).all() and regressor(
        random(2, 2, 3, 3).float(), random(2, 3, 3, 3).float()
    ).isfinite().all()


def test_the_variance_that_minimises_the_loss_is_the_mean_square() -> None:
    target, mean = random(500, 1), torch.zeros(500, 1, dtype=torch.float64)
    best = target.square().mean()
    losses = [vid_loss(target, mean, (best * factor).view(1)).mean() for factor in (0.8, 1.0, 1.25)]
    assert losses[1] < losses[0] and losses[1] < losses[2]


@pytest.mark.parametrize(
    ("student", "teacher", "common"),
    [
        ((8, 8), (4, 4), (4, 4)),
        ((4, 4), (8, 8), (4, 4)),
        ((4, 6), (6, 3), (4, 3)),
        ((7,), (3,), (3,)),
        ((4, 4), (4, 4), (4, 4)),
    ],
)
def test_the_larger_is_pooled_to_the_smaller(
    student: tuple[int, ...], teacher: tuple[int, ...], common: tuple[int, ...]
) -> None:
    regressor = Regressor(2, 3, len(student))
    ours, theirs = random(5, 2, *student).float(), random(5, 3, *teacher, seed=1).float()
    pool = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d}[len(common)](common)
    wanted = vid_loss(pool(theirs), regressor.mean(pool(ours)), regressor.variance)
    torch.testing.assert_close(regressor(ours, theirs), wanted)


def test_the_mean_is_three_convolutions_or_one_linear_map() -> None:
    assert [type(each) for each in Regressor(2, 3, 2).mean] == [nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.Conv2d]
    assert {name: tuple(each.shape) for name, each in Regressor(2, 3, 1).named_parameters()} == {
        "raw": (3,),
        "mean.0.weight": (3, 2, 1),
        "mean.2.weight": (3, 3, 1),
        "mean.4.weight": (3, 3, 1),
    }
    assert {name: tuple(each.shape) for name, each in Regressor(2, 3, 0).named_parameters()} == {
        "raw": (3,),
        "mean.weight": (3, 2),
        "mean.bias": (3,),
    }


# taps ------------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A module of a user's: nested, works in place, calls one layer twice and another never, returns all sorts of things."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleDict({"linear": nn.Linear(6, 4), "relu": nn.ReLU(inplace=True)})
        self.twice = nn.Linear(4, 4)
        self.again = self.twice
        self.never = nn.Linear(4, 4)
        self.recurrent = nn.LSTM(4, 4, batch_first=True)
        self.flat = nn.Flatten(0)
        self.classes = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first["relu"](self.first["linear"](inputs))
        hidden = self.twice(self.twice(hidden))
        self.flat(hidden)
        return self.classes(hidden + self.recurrent(hidden[:, None])[0][:, 0])


def test_captured_features_are_the_outputs_of_layers() -> None:
    model, inputs = seeded(Block), random(5, 6).float()
    names = ["first.linear", "first.relu", "twice", "again", "classes"]
    with capture_features(model, names, "student") as features:
        logits = model(inputs)
        found = features()
        model(inputs * 2)
        later = features()
    first = model.first["linear"](inputs)
    torch.testing.assert_close(found["first.linear"], first)  # before the ReLU that worked in place
    torch.testing.assert_close(found["first.relu"], first.relu())
    torch.testing.assert_close(found["twice"], model.twice(model.twice(first.relu())))
    assert list(found) == names and torch.equal(found["again"], found["twice"]) and torch.equal(found["classes"], logits)
    assert not torch.equal(later["twice"], found["twice"])
    (gradient,) = torch.autograd.grad(found["first.relu"].sum(), model.first["linear"].bias)
    torch.testing.assert_close(gradient, (first > 0).float().sum(0))


def hooks(model: nn.Module) -> int:
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules())


def test_hooks_are_removed_whatever_happens() -> None:
    model = seeded(Block)
    with capture_features(model, ["twice", "classes"], "student"):
        assert hooks(model) == 3
    with pytest.raises(ZeroDivisionError), capture_features(model, ["twice"], "student"):
        _ = 1 / 0
    with pytest.raises(ConfigError), capture_features(model, ["twice", "thrice"], "student"):
        pass
    assert hooks(model) == 0


def test_a_pass_that_skips_a_layer_gives_no_features_of_the_one_before() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(inputs) if self.training else inputs

    model = Sometimes()
    with capture_features(model, ["layer"], "student") as features:
        model(torch.zeros(2, 6))
        features()
        model.eval()(torch.zeros(2, 6))
        with pytest.raises(ConfigError, match="not called"):
            features()


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        ("first.linaer", r"(?s)student has no such layer.*'first.linaer'.*did you mean first.linear"),
        ("xyz", r"(?s)no such layer.*inside Block: first, first.linear.*print the module"),
        ("never", r"(?s)layer never: .*is not called"),
        ("recurrent", r"(?s)layer recurrent: .*returns no features.*a tuple"),
        ("flat", r"(?s)layer flat: .*returns no features.*a tensor \(8,\)"),
    ],
)
def test_a_layer_that_gives_no_features_is_named(layer: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        feature_shapes(seeded(Block), ["twice", layer], "student", InMemory(random(9, 6).float()))
    error = caught.value
    assert all((error.what, error.where, error.found, error.expected, error.remedy))


def test_looking_at_shapes_changes_no_module() -> None:
    model = seeded(small).train()
    before = bits(model)
    assert feature_shapes(model, ["layers.2", "layers.11", "layers"], "student", InMemory(images()["labeled"][0])) == {
        "layers.2": (2, 8, 8),
        "layers.11": (8, 1, 1),
        "layers": (3,),
    }
    assert bits(model) == before and model.training and hooks(model) == 0


# the loss of a batch ---------------------------------------------------------------------------------------------------

PAIRS = Recipe(vid=("layers.1=layers.1", "layers.3=layers.2"), device="cpu")


def pair() -> tuple[MLP, MLP]:
    return seeded(lambda: MLP(6, 3, (4,)), 1), seeded(lambda: MLP(6, 3, (8,)), 2)


def gradients(weights: Tensor, at: Tensor, recipe: Recipe = PAIRS) -> list[Tensor]:
    """Of the weighted loss of some rows, by parameters of the student and of the regressors."""
    (student, master), (inputs, labels) = pair(), rows()
    with vid_auxiliary_loss(recipe, student, master, InMemory(inputs)) as auxiliary_loss:
        logits = student(inputs[at])
        loss = weighted_loss(logits, labels[at], weights) + weighted_mean(auxiliary_loss.per_example(inputs[at]), weights)
        trained = [*student.parameters(), *auxiliary_loss.module.parameters()]
        return list(torch.autograd.grad(loss, trained))


def test_a_weight_of_0_removes_an_example_from_student_and_regressors() -> None:
    weights = torch.tensor([1.0, 0.0, 0.5, 0.0])
    kept = weights > 0
    for found, wanted in zip(
        gradients(weights, torch.arange(4)), gradients(weights[kept], torch.arange(4)[kept]), strict=True
    ):
        torch.testing.assert_close(found, wanted / 2)  # a mean over 4 and over 2 rows
        assert found.abs().sum() > 0
    assert all((each == 0).all() for each in gradients(torch.zeros(3), torch.arange(3)))


def test_the_scale_is_linear_and_pairs_add_up() -> None:
    (student, master), (inputs, _) = pair(), rows()

    def found(**changes: Any) -> Tensor:
        with vid_auxiliary_loss(replace(PAIRS, **changes), student, master, InMemory(inputs)) as auxiliary_loss:
            student(inputs)
            return auxiliary_loss.per_example(inputs)

    both = found()
    assert both.shape == (N,) and both.std() > 0
    torch.testing.assert_close(found(vid_scale=2.5), 2.5 * both)
    torch.testing.assert_close(found(vid=PAIRS.vid[:1]) + found(vid=PAIRS.vid[1:]), both)  # each has its regressor
    assert torch.equal(found(), both) and not torch.equal(found(seed=1), both)


def test_the_teacher_learns_nothing() -> None:
    student, master, inputs = seeded(small), seeded(big).train(), images()["unlabeled"][0]
    before = bits(master)
    with vid_auxiliary_loss(replace(PAIRS, vid=("layers.6=layers.2",)), student, master, InMemory(inputs)) as auxiliary_loss:
        student(inputs)
        auxiliary_loss.per_example(inputs).sum().backward()
    assert bits(master) == before and not master.training  # batch norm counts nothing
    assert all(each.grad is None for each in master.parameters()) and hooks(master) == hooks(student) == 0
    assert all(each.grad is not None for each in auxiliary_loss.module.parameters())


def test_layers_of_different_dimensions_cannot_be_paired() -> None:
    with pytest.raises(ConfigError, match=r"(?s)vid: layers.2=layers.12: .*\(2, 8, 8\) in the student and \(12,\)"):
        paired_shapes(replace(PAIRS, vid=("layers.2=layers.12",)), small(), big(), InMemory(images()["labeled"][0]))


# the loop --------------------------------------------------------------------------------------------------------------


def guided_stage(folder: Path, recipe: Recipe, watch: Callbacks | None = None, seed: int = 0) -> nn.Module:
    """A training with VID, dropout and refreshed weights; `seed` is that of random numbers that must not matter."""
    torch.manual_seed(seed)
    student, master = seeded(Dropping, seed), seeded(teacher)
    with vid_auxiliary_loss(recipe, student, master, InMemory(rows()[0])) as auxiliary_loss:
        place = stage(folder, 3, made(hard=False), every=2, auxiliary_loss=auxiliary_loss, **refreshed(by_student))
        run_stage(place, student, recipe, MEASURED, watch)
    return student


GUIDED = replace(RECIPE, vid=("layers.2=layers.1", "layers=layers.3"), vid_scale=0.5, checkpoint_seconds=1e9)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_stop_at_any_step_changes_no_bit(tmp_path: Path, precision: Any) -> None:
    recipe, counting = replace(GUIDED, precision=precision), Stopping(10**9)
    guided_stage(tmp_path / "reference", recipe, Callbacks(counting))
    for at in range(1, counting.asked, 4 if precision == "float32" else 9):
        folder = tmp_path / str(at)
        with pytest.raises(StoppedError):
            guided_stage(folder, recipe, Callbacks(Stopping(at)))
        begun = read_manifest(folder).state
        guided_stage(folder, recipe, seed=at + 1 if begun else 0)  # the stored start counts
        assert whole(folder) == whole(tmp_path / "reference"), at


def test_regressors_are_in_checkpoints_and_in_no_result(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        guided_stage(tmp_path / "guided", GUIDED, Callbacks(Stopping(9)))
    checkpoints = CheckpointStore(tmp_path / "guided")
    stored = from_bytes(checkpoints.read(checkpoints.state["checkpoint"]), "")
    names = {name for name in stored if name.startswith("auxiliary/")}
    assert names == {f"auxiliary/{i}.{name}" for i in (0, 1) for name in ("raw", "mean.weight", "mean.bias")}
    assert not torch.equal(stored["auxiliary/0.raw"], Regressor(8, 8, 0).raw)  # they learn
    student = guided_stage(tmp_path / "guided", GUIDED)
    checkpoints = CheckpointStore(tmp_path / "guided")
    for file in ("parameters.safetensors", "chosen.safetensors"):
        assert from_bytes(checkpoints.read(file), "").keys() == student.state_dict().keys()
    with pytest.raises(StoppedError):
        run_stage(stage(tmp_path / "plain"), seeded(Dropping), replace(GUIDED, vid=()), {}, Callbacks(Stopping(3)))
    checkpoints = CheckpointStore(tmp_path / "plain")
    assert not [
        name for name in from_bytes(checkpoints.read(checkpoints.state["checkpoint"]), "") if name.startswith("auxiliary/")
    ]


@pytest.mark.parametrize(("decayed", "share"), [("kernels", 1), ("all", 1 - 0.5 * 0.125)])
def test_the_regressors_are_no_kernels_of_the_model(tmp_path: Path, decayed: Any, share: float) -> None:
    """Weights of 0 leave no gradient, so that all a step does is decay."""
    (student, master), inputs = (seeded(small), seeded(big)), images()["unlabeled"][0]
    settings: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.0, "rate": 0.5, "weight_decay": 0.125, "batch_size": 1000}
    recipe = replace(RECIPE, **settings, decayed=decayed, vid=("layers.0=layers.0",))
    n = len(inputs)
    examples = Examples(InMemory(inputs), torch.zeros(n, dtype=torch.long), torch.zeros(n), np.arange(n))
    with vid_auxiliary_loss(recipe, student, master, InMemory(inputs)) as auxiliary_loss:
        parts = {
            "student": student.layers[0].weight,
            "regressors": auxiliary_loss.module[0].mean[0].weight,
        }  # convolutions both
        before = {name: each.detach().clone() for name, each in parts.items()}
        run_stage(stage(tmp_path, 1, examples, auxiliary_loss=auxiliary_loss), student, recipe, {})
    assert torch.equal(parts["student"], before["student"] * (1 - 0.5 * 0.125))
    assert torch.equal(parts["regressors"], before["regressors"] * share)


# whole runs ------------------------------------------------------------------------------------------------------------


VID = replace(QUICK, vid=("layers.2=layers.6", "layers.10=layers.10", "layers.12=layers.12"), vid_scale=0.5, seed=4)


def weigh(evidence: Evidence) -> Any:
    return np.linspace(0, 1, len(evidence.teacher))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("vid") / "run"
    return folder, go(big, small, VID, rule=[weigh, debiased], run=folder, **images())


@pytest.mark.slow
def test_a_run_does_what_decision_24_says(finished: tuple[Path, Any]) -> None:
    """An arm by hand: weight × (cross-entropy + λ Σ VID), mean over the batch, with the teacher in eval mode."""
    folder, report = finished

    def stored(name: str, model: nn.Module) -> nn.Module:
        model.load_state_dict(from_bytes(CheckpointStore(folder / name).read("parameters.safetensors"), name))
        return model

    master, pupil, data = stored("teacher", big()).eval(), stored("student", small()).train(), images()
    regressors = []
    for each, sizes in zip(VID.vid, [(2, 6, 2), (8, 12, 2), (8, 12, 0)], strict=True):
        torch.manual_seed(number(4, "initial", "vid", each))
        regressors.append(Regressor(*sizes))
    inputs = torch.cat([data["labeled"][0], data["unlabeled"][0]])
    with torch.no_grad():
        targets = torch.cat([nn.functional.one_hot(data["labeled"][1], 3), master(data["unlabeled"][0]).softmax(1)]).float()
    weights = torch.cat([torch.ones(30), torch.linspace(0, 1, 60)])
    optimizer = torch.optim.Adam([*pupil.parameters(), *(each for one in regressors for each in one.parameters())], VID.rate)
    losses = []
    for epoch in range(2):
        order = torch.randperm(90, generator=torch.Generator().manual_seed(number(4, "arm", "order", epoch)))
        total = 0.0
        for at in order.split(16):
            optimizer.param_groups[0]["lr"] = VID.rate * factor(epoch + 1, 2)
            ours, theirs, hidden = [], [], inputs[at]
            for layer in pupil.layers:
                hidden = layer(hidden)
                ours.append(hidden)
            with torch.no_grad():
                seen = inputs[at]
                for layer in master.layers:
                    seen = layer(seen)
                    theirs.append(seen)
            each = -(targets[at] * hidden.log_softmax(1)).sum(1)
            for regressor, (mine, its) in zip(regressors, ((2, 6), (10, 10), (12, 12)), strict=True):
                each = each + 0.5 * regressor(ours[mine], theirs[its])
            loss = (weights[at] * each).sum() / len(at)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(at)
        losses.append(total / 90)
    assert [each.loss for each in report.outcome.arms["weigh"].epochs] == pytest.approx(losses, rel=1e-4)
    for name, value in report.students["weigh"].state_dict().items():
        torch.testing.assert_close(value, pupil.state_dict()[name], rtol=1e-3, atol=1e-5)


def test_the_students_of_a_run_have_no_regressors(finished: tuple[Path, Any]) -> None:
    folder, report = finished
    assert all(each.state_dict().keys() == small().state_dict().keys() for each in report.students.values())
    assert all(hooks(each) == 0 for each in report.students.values())
    assert report.outcome.recipe["vid"] == list(VID.vid) and report.outcome.recipe["vid_scale"] == 0.5
    assert go(big, small, VID, rule=[weigh, debiased], run=folder, **images()).outcome.state == "finished"
    plain = go(big, small, replace(VID, vid=(), vid_scale=1.0), rule=debiased, **images())
    first = [each.outcome.arms["debiased"].refreshes[0].weights for each in (report, plain)]
    assert first[0] == first[1]  # distortion and weights are of the cross-entropy alone
    assert students(plain)["debiased"] != students(report)["debiased"]


@pytest.mark.slow
@pytest.mark.proof
def test_a_run_goes_on_with_other_workers_and_the_same_bits(tmp_path: Path, finished: tuple[Path, Any]) -> None:
    """Broken off inside the first arm, whose regressors lie in its checkpoint, and ended by two workers."""
    given = {"rule": [weigh, debiased], "run": tmp_path / "run", **images()}
    with failing(0, errno.ENOSPC) as seen:  # no operation is the 0th
        go(big, small, VID, **{**given, "run": tmp_path / "whole"})
    checkpoint = next(at for at, each in enumerate(seen) if each.startswith("rename checkpoint-"))
    result = next(at for at, each in enumerate(seen) if at > checkpoint and each.startswith("open .parameters"))
    with failing(result + 1, errno.ENOSPC), pytest.raises(wdistill.StorageError):
        go(big, small, VID, **given)
    begun = read_manifest(tmp_path / "run" / "arms" / "weigh")
    assert "checkpoint" in begun.state and not begun.state.get("finished")
    go(big, small, replace(VID, workers=2), **given)
    assert unlike(tmp_path / "run", finished[0]) == []


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_teacher_that_comes_trained_and_half_precision(tmp_path: Path, precision: Any) -> None:
    master, pupil = seeded(big, 1).requires_grad_(False), seeded(small, 2)
    before = bits(master)
    recipe = replace(VID, teacher_epochs=0, student_epochs=0, precision=precision, augmentation=("flip",))
    report = go(master, pupil, recipe, rule=debiased, **images())
    assert bits(master) == before and all(math.isfinite(each.loss) for each in report.outcome.arms["debiased"].epochs)


class Seeing(nn.Module):
    """Notes what it reads, and in which mode; so do its copies."""

    def __init__(self, seen: list[tuple[bool, bool, Tensor]]) -> None:
        super().__init__()
        self.inner, self.seen = small(), seen

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append((self.training, torch.is_grad_enabled(), inputs))
        return self.inner(inputs)

    def __deepcopy__(self, memo: Any) -> Seeing:
        other = Seeing(self.seen)
        other.load_state_dict(self.state_dict())
        return other


def test_the_teacher_reads_what_the_student_reads_in_eval_mode() -> None:
    read: list[tuple[bool, bool, Tensor]] = []
    known: list[tuple[bool, bool, Tensor]] = []
    recipe = replace(MADE, vid=("inner.layers.6=inner.layers.6",), augmentation=("flip", "translate"))
    go(seeded(lambda: Seeing(read)), seeded(lambda: Seeing(known)), recipe, rule=unweighted, **images())
    steps = [inputs for training, _, inputs in known if training]
    assert len(steps) == 2 * 6 and not any(training or grad for training, grad, _ in read)
    assert all(torch.equal(one, other) for one, (_, _, other) in zip(steps, read[-12:], strict=True))


def test_an_arm_with_vid_and_one_without_share_start_batches_and_dropout(tmp_path: Path) -> None:
    """With a scale that no float32 can tell from nothing, both come to the same bits."""
    go(teacher, Dropping, QUICK, rule=[weigh], run=tmp_path / "run")
    data = {
        name: Split(name, InMemory(inputs), labels, np.arange(len(labels))) for name, (inputs, labels) in splits().items()
    }
    for seed, (name, scale) in enumerate({"faint": 1e-35, "guided": 1.0, "again": 1.0}.items()):
        recipe = replace(QUICK, vid=("layers.2=layers.1",), vid_scale=scale)
        models = seeded(Dropping, seed), seeded(teacher, seed)
        job = TrainingJob(tmp_path / "run", name, models[0], data, 3, recipe, "cpu", as_rule(weigh), models[1])
        run_job(job, Callbacks())
    plain, faint, other, again = (
        bits(from_bytes(CheckpointStore(tmp_path / "run" / "arms" / name).read("parameters.safetensors"), name))
        for name in ("weigh", "faint", "guided", "again")
    )
    assert plain == faint and plain != other
    assert other == again  # the modules were new ones: parameters come from the run, the teacher's too


# what is refused before any training -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "pairs", "match"),
    [
        (teacher, ("layers.9=layers.1",), r"(?s)the student has no such layer.*'layers.9'.*did you mean layers"),
        (teacher, ("layers.1=layer.1",), r"(?s)the teacher has no such layer.*'layer.1'.*did you mean layers.1"),
        (table(), ("layers.1=layers.1",), r"(?s)recipe: vid: a teacher that is a table.*layers.1=layers.1.*leave vid out"),
    ],
    ids=["student's layer", "teacher's layer", "a table"],
)
def test_vid_that_cannot_be_is_refused_before_training(master: Any, pairs: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        go(master, lambda: MLP(6, 3, (4,)), replace(QUICK, vid=pairs), run=tmp_path / "run")
    assert caught.value.remedy and not list((tmp_path / "run").glob("generation-*"))
