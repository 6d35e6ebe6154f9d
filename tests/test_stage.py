"""The training loop against one written from the decisions alone; where it stops, it goes on with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.distilling import MADE, QUICK, Dropping, bits, go, seeded, splits, student, table, teacher, undrawn
from tests.staging import MEASURED, RECIPE, N, Stopping, by_student, factor, made, number, refreshed, rows, stage, whole
from wdistill import CifarResNet, Evidence, MobileNet, NumericalError, Recipe, debiased
from wdistill.runs.checkpoints import CheckpointStore, read_manifest
from wdistill.training.arm import rows_that_weigh, split_gold
from wdistill.training.data import Split
from wdistill.training.inputs import InMemory
from wdistill.training.labels import by_module, read_labels, read_table
from wdistill.training.loop import run_stage
from wdistill.training.optimizer import make_optimizer
from wdistill.training.passes import batches_of
from wdistill.training.predict import predict
from wdistill.training.stage import Callbacks, StoppedError
from wdistill.training.tensors import from_bytes


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


# the loop, once more ---------------------------------------------------------------------------------------------------


def bare(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    weights: Callable[[nn.Module, int], Tensor],
    recipe: Recipe,
    order: str,
    every: int | None = None,
) -> list[float]:
    """Lines 8 to 10 of Algorithm 1 in plain PyTorch; the mean loss of every epoch."""
    optimizer = torch.optim.Adam(model.parameters(), recipe.rate)
    losses, n, temperature = [], len(inputs), recipe.temperature
    for epoch in range(recipe.epochs):
        if epoch == 0 or (every and epoch % every == 0):
            model.eval()
            now = weights(model, epoch)
            model.train()
        generator = torch.Generator().manual_seed(number(recipe.seed, order, "order", epoch))
        permuted, total = torch.randperm(n, generator=generator), 0.0
        for step, first in enumerate(range(0, n, recipe.batch_size)):
            rows = permuted[first : first + recipe.batch_size]
            torch.manual_seed(number(recipe.seed, order, epoch, step))
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * (factor(epoch + 1, recipe.epochs) if recipe.schedule == "steps" else 1)
            each = -(targets[rows] * torch.log_softmax(model(inputs[rows]) / temperature, dim=1)).sum(1)
            loss = (now[rows] * each).sum() / len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        losses.append(total / n)
    return losses


@pytest.mark.parametrize("schedule", ["constant", "steps"])
def test_the_loop_does_what_the_decisions_say(tmp_path: Path, schedule: Any) -> None:
    recipe = replace(RECIPE, epochs=6, schedule=schedule, temperature=2.0, seed=5)
    for name, make in {"plain": student, "dropping": Dropping}.items():
        ours, theirs, examples = seeded(make), seeded(make), made(hard=False)
        run_stage(
            stage(tmp_path / name, 6, examples, temperature=2.0, every=2, **refreshed(by_student)), ours, recipe, MEASURED
        )
        losses = bare(theirs, rows()[0], examples.targets, by_student, recipe, "here", every=2)
        for key, value in ours.state_dict().items():
            torch.testing.assert_close(value, theirs.state_dict()[key], rtol=1e-5, atol=1e-6)
        state = read_manifest(tmp_path / name).state
        assert [each["loss"] for each in state["epochs"]] == pytest.approx(losses, rel=1e-5)
        rates = [0.01 * (factor(epoch, 6) if schedule == "steps" else 1) for epoch in range(1, 7)]
        assert [each["rate"] for each in state["epochs"]] == rates


def test_weights_of_0_and_1_give_the_sum_over_the_kept_rows(tmp_path: Path) -> None:
    kept = torch.arange(N) % 3 == 0
    recipe = replace(RECIPE, optimizer="sgd", momentum=0.0, batch_size=N, rate=0.5)
    ours, theirs, (inputs, labels) = seeded(student), seeded(student), rows()
    run_stage(stage(tmp_path, 1, made(weights=kept.float())), ours, recipe, {})
    loss = nn.functional.cross_entropy(theirs(inputs[kept]), labels[kept], reduction="sum") / N
    loss.backward()
    for value, start in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(value, start - 0.5 * start.grad, rtol=1e-5, atol=1e-6)
    assert read_manifest(tmp_path).state["epochs"][0]["loss"] == pytest.approx(loss.item(), rel=1e-5)


class Convolving(nn.Module):
    """A kernel, and parameters of every other sort."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.linear = nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(self.norm(self.convolution(inputs[:, None])).flatten(1))


@pytest.mark.parametrize("decayed", ["all", "kernels"])
def test_one_step_with_weight_decay_by_hand(tmp_path: Path, decayed: Any) -> None:
    settings: dict[str, Any] = {"momentum": 0.0, "batch_size": N, "rate": 0.5, "weight_decay": 0.125}
    recipe = replace(RECIPE, optimizer="sgd", decayed=decayed, **settings)
    ours, theirs, (inputs, labels) = seeded(Convolving), seeded(Convolving), rows()
    run_stage(stage(tmp_path / "step", 1), ours, recipe, {})
    nn.functional.cross_entropy(theirs(inputs), labels).backward()
    decays = {name for name, _ in theirs.named_parameters() if decayed == "all" or name == "convolution.weight"}
    found = dict(ours.named_parameters())
    for name, start in theirs.named_parameters():
        wanted = start - 0.5 * (start.grad + (0.125 * start if name in decays else 0))
        torch.testing.assert_close(found[name], wanted, rtol=1e-5, atol=1e-6)
    still, start = seeded(Convolving), dict(seeded(Convolving).named_parameters())
    run_stage(stage(tmp_path / "still", 1, made(weights=torch.zeros(N))), still, recipe, {})  # no gradient: decay alone
    for name, value in still.named_parameters():
        assert torch.equal(value, start[name] * 0.9375 if name in decays else start[name]), name


@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        (Convolving, ["convolution.weight"]),
        (student, []),
        (
            lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 1, 3), nn.Conv3d(1, 1, 1)),
            ["0.weight", "2.weight"],
        ),
        (lambda: MobileNet(channels=1, classes=2, width=0.25), None),
        (lambda: CifarResNet(channels=1, classes=2, depth=11), None),
    ],
    ids=["one kernel", "none", "other layers", "mobilenet", "resnet"],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_kernels_are_the_weights_of_convolutions(model: Any, kernels: list[str] | None, optimizer: Any) -> None:
    """Of Keras' networks: all parameters of four dimensions. Those that are not trained are in no group."""
    network = model()
    parameters = dict(network.named_parameters())
    wanted = [name for name, each in parameters.items() if each.ndim == 4] if kernels is None else kernels
    names = {id(each): name for name, each in parameters.items()}
    last = list(parameters.values())[-1].requires_grad_(False)
    recipe = replace(RECIPE, optimizer=optimizer, weight_decay=0.1, decayed="kernels")
    found = make_optimizer(network, nn.Module(), recipe).param_groups
    assert [group["weight_decay"] for group in found] == [0.1, 0.0]
    decaying, others = ({names[id(each)] for each in group["params"]} for group in found)
    assert decaying == {*wanted} - {names[id(last)]} and decaying | others == {*parameters} - {names[id(last)]}
    whole = make_optimizer(network, nn.Module(), replace(recipe, decayed="all")).param_groups
    assert [group["weight_decay"] for group in whole] == [0.1] and len(whole[0]["params"]) == len(parameters) - 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_stop_changes_no_bit_where_kernels_alone_decay(tmp_path: Path, optimizer: Any) -> None:
    recipe = replace(RECIPE, optimizer=optimizer, weight_decay=0.1, decayed="kernels", checkpoint_seconds=1e9)
    run_stage(stage(tmp_path / "reference"), seeded(Convolving), recipe, {})
    for at in (1, 5):
        with pytest.raises(StoppedError):
            run_stage(stage(tmp_path / str(at)), seeded(Convolving), recipe, {}, Callbacks(Stopping(at)))
        run_stage(stage(tmp_path / str(at)), seeded(Convolving, 9), recipe, {})  # the stored parameters count
        assert whole(tmp_path / str(at)) == whole(tmp_path / "reference")
    run_stage(stage(tmp_path / "all"), seeded(Convolving), replace(recipe, decayed="all"), {})
    assert whole(tmp_path / "all") != whole(tmp_path / "reference")


def test_weights_are_estimated_before_the_first_epoch_and_after_every_second(tmp_path: Path) -> None:
    seen: dict[int, dict[str, bytes]] = {}

    def look(model: nn.Module, after: int) -> Tensor:
        seen[after] = bits(model)
        return by_student(model, after)

    run_stage(stage(tmp_path / "a", 5, every=2, **refreshed(look)), seeded(student), RECIPE, MEASURED)
    assert list(seen) == [0, 2, 4] and seen[0] == bits(seeded(student))
    short = seeded(student)
    run_stage(stage(tmp_path / "b", 2, every=2, **refreshed(by_student)), short, RECIPE, MEASURED)
    assert seen[2] == bits(short)  # the student as it was then
    listed = read_manifest(tmp_path / "a").files  # the first and the newest are kept
    assert sorted(name for name in listed if name.startswith("weights/")) == ["weights/00000.bin", "weights/00004.bin"]
    seen.clear()
    run_stage(stage(tmp_path / "c", 5, **refreshed(look)), seeded(student), RECIPE, MEASURED)
    assert list(seen) == [0]


@pytest.mark.parametrize(
    ("n", "size", "sizes"),
    [(33, 16, [16, 17]), (32, 16, [16, 16]), (17, 16, [17]), (34, 16, [16, 16, 2]), (1, 16, [1]), (5, 16, [5])],
)
def test_a_single_row_left_over_joins_the_batch_before(n: int, size: int, sizes: Sequence[int]) -> None:
    found = list(batches_of(torch.arange(n), size))
    assert [len(each) for each in found] == sizes and torch.equal(torch.cat(found), torch.arange(n))


class Noting(Dropping):
    """Notes the mode of every forward pass, and of how many rows."""

    seen: list[tuple[bool, int]] = []  # noqa: RUF012 (a copy of the module shall write here too)

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append((self.training, len(inputs)))
        return super().forward(inputs)


def test_estimation_and_accuracies_are_in_eval_mode_and_steps_in_train_mode() -> None:
    Noting.seen.clear()
    go(teacher, Noting, replace(QUICK, refresh=1, student_epochs=0), rule=debiased)
    union, others = 90, {"validation": 30, "unlabeled": 60, "test": 20}
    steps = [rows for training, rows in Noting.seen if training]
    assert steps == 2 * [16, 16, 16, 16, 16, 10] and sum(steps) == 2 * union
    evaluated = [rows for training, rows in Noting.seen if not training]
    look = [others["validation"], others["unlabeled"]]
    each = [others["validation"], others["test"]]
    assert evaluated == [2, *each, *look, *each, *look, *each]  # first of all, the student as it came


def test_a_teacher_labels_in_eval_mode() -> None:
    model, (inputs, labels) = seeded(Dropping).train(), rows()
    read = by_module(model, "float32", Callbacks())
    split = Split("unlabeled", InMemory(inputs), labels, np.arange(N))
    assert (read(split, slice(0, N)) == read(split, slice(0, N))).all()
    assert model.training  # and is left as it was


def test_the_temperature_is_in_loss_distortion_and_confidence(tmp_path: Path) -> None:
    """A whole arm by hand: teacher as a table, student as it comes, one weight a row."""
    seen: list[Evidence] = []

    def spy(evidence: Evidence) -> Any:
        seen.append(evidence)
        return np.linspace(0.2, 1, len(evidence.teacher))

    recipe = replace(MADE, temperature=2.5, epochs=3, seed=4)
    start = seeded(student)
    report = go(table("logits"), start, replace(recipe, kind="logits"), rule=[spy, debiased], run=tmp_path / "run")
    (evidence,), given, data = seen, table("logits"), splits()
    np.testing.assert_allclose(evidence.teacher, given["unlabeled"] / 2.5, rtol=1e-5)
    np.testing.assert_allclose(evidence.validation_student, predict(start, InMemory(data["validation"][0])) / 2.5, rtol=1e-6)

    def soft(logits: Any) -> Any:
        return torch.softmax(torch.as_tensor(logits).double() / 2.5, dim=1).numpy()

    wanted = debiased(
        Evidence(
            data["validation"][1].numpy(),
            soft(given["validation"]),
            soft(predict(start, InMemory(data["validation"][0]))),
            soft(given["unlabeled"]),
            soft(predict(start, InMemory(data["unlabeled"][0]))),
        )
    )
    checkpoints = CheckpointStore(tmp_path / "run" / "arms" / "debiased")
    stored = read_table(checkpoints.read("weights/00000.parquet"), ["id", "weight"])
    assert np.abs(stored["weight"] - wanted).max() < 1e-5 and stored["id"].tolist() == list(range(60))
    targets = torch.cat([nn.functional.one_hot(data["labeled"][1], 3), torch.from_numpy(soft(given["unlabeled"]))]).float()
    weights = torch.cat([torch.ones(30), torch.linspace(0.2, 1, 60)])
    inputs, theirs = torch.cat([data["labeled"][0], data["unlabeled"][0]]), seeded(student)
    losses = bare(theirs, inputs, targets, lambda model, after: weights, replace(recipe, schedule="steps"), "arm")
    assert [each.loss for each in report.outcome.arms["spy"].epochs] == pytest.approx(losses, rel=1e-4)
    for name, value in report.students["spy"].state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_the_square_of_the_temperature_scales_the_loss() -> None:
    plain, squared = (
        go(table(), seeded(student), replace(MADE, temperature=2.0, temperature_squared=each), rule=debiased).outcome
        for each in (False, True)
    )
    first = [each.arms["debiased"].epochs[0].loss for each in (plain, squared)]
    assert first[1] == pytest.approx(4 * first[0], rel=0.05)  # Adam steps the same at first, whatever the scale


@pytest.mark.parametrize(("mode", "trained", "weighing"), [("no", 90, 30), ("yes", 120, 30), ("half", 105, 15)])
def test_validation_rows_train_too_if_asked(mode: Any, trained: int, weighing: int) -> None:
    seen: list[Evidence] = []

    def spy(evidence: Evidence) -> Any:
        seen.append(evidence)
        return np.ones(len(evidence.teacher))

    recipe = replace(MADE, validation_in_training=mode)
    report = go(table(), seeded(student), recipe, rule=spy)
    assert len(seen[0].validation_labels) == weighing and report.outcome.arms["spy"].epochs[0].examples == trained
    inputs, labels = splits()["validation"]
    split = Split("validation", InMemory(inputs), labels, np.arange(30))
    weigh, train = split_gold(split, recipe)
    assert (seen[0].validation_labels == weigh.labels.numpy()).all()
    at = rows_that_weigh(30, recipe)
    np.testing.assert_allclose(np.exp(seen[0].validation_teacher), table()["validation"][at], rtol=1e-5)
    if mode == "half":
        assert sorted([*weigh.ids, *train.ids]) == list(range(30))
        assert rows_that_weigh(30, replace(recipe, seed=1)).tolist() != at.tolist()


# what goes wrong -------------------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_before_the_step_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    def weights(model: nn.Module, after: int) -> Tensor:
        return torch.ones(N) if after == 0 else torch.full((N,), float("nan"))

    model = seeded(student)
    with pytest.raises(NumericalError, match="epoch 2, step 1") as caught:
        run_stage(stage(tmp_path, 3, every=1, **refreshed(weights)), model, RECIPE, MEASURED)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(number(0, "here", "order", 1)))
    assert ", ".join(str(100 + row) for row in order[:5].tolist()) in caught.value.found and caught.value.exit_code == 4
    checkpoints = CheckpointStore(tmp_path)
    assert checkpoints.state["epoch"] == 1
    stored = from_bytes(checkpoints.read(checkpoints.state["checkpoint"]), "")
    assert all(torch.equal(stored[f"model/{name}"], value) for name, value in model.state_dict().items())


def test_a_buffer_may_hold_infinities(tmp_path: Path) -> None:
    model = seeded(student)
    model.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))
    run_stage(stage(tmp_path), model, RECIPE, {})
    assert read_manifest(tmp_path).state["finished"]


def test_parameters_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    recipe = replace(RECIPE, optimizer="sgd", rate=1e38, batch_size=N)
    with pytest.raises(NumericalError, match="parameters"):
        run_stage(stage(tmp_path, scale=1e6), seeded(student), recipe, {})
    assert not read_manifest(tmp_path).state


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_stop_at_any_step_changes_no_bit(tmp_path: Path, precision: Any) -> None:
    """Dropout, batch norm, augmented rates, weights that are refreshed: all go on as if nothing had been."""
    recipe = replace(RECIPE, precision=precision, schedule="warmup", checkpoint_seconds=1e9)

    def run(folder: Path, watch: Callbacks | None = None, seed: int = 0) -> None:
        place = stage(folder, 3, made(hard=False), every=2, **refreshed(by_student))
        run_stage(place, seeded(Dropping, seed), recipe, MEASURED, watch)

    counting = Stopping(10**9)
    run(tmp_path / "reference", Callbacks(counting))
    points = range(0, counting.asked, 3 if precision == "float32" else 7)
    assert len(points) > 2
    for at in points:
        folder = tmp_path / str(at)
        with pytest.raises(StoppedError):
            run(folder, Callbacks(Stopping(at)))
        run(folder, seed=at + 1 if (folder / "generation-000001.json").exists() else 0)  # the stored start counts
        assert whole(folder) == whole(tmp_path / "reference"), at


def test_a_run_stopped_again_and_again_ends_where_it_should(tmp_path: Path) -> None:
    def run(folder: Path, watch: Callbacks | None = None) -> None:
        place = stage(folder, 2, every=1, **refreshed(by_student))
        run_stage(place, seeded(Dropping), replace(RECIPE, checkpoint_seconds=1e9), MEASURED, watch)

    run(tmp_path / "reference")
    for _ in range(50):
        try:
            run(tmp_path / "often", Callbacks(Stopping(3)))
            break
        except StoppedError:
            pass
    assert read_manifest(tmp_path / "often").state.get("finished")
    assert whole(tmp_path / "often") == whole(tmp_path / "reference")


def test_the_scale_of_float16_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.amp, "GradScaler", partial(torch.amp.GradScaler, growth_interval=3))
    recipe = replace(RECIPE, precision="float16", checkpoint_seconds=1e9)
    run_stage(stage(tmp_path / "reference", 4), seeded(student), recipe, {})
    with pytest.raises(StoppedError):
        run_stage(stage(tmp_path / "stopped", 4), seeded(student), recipe, {}, Callbacks(Stopping(1)))
    run_stage(stage(tmp_path / "stopped", 4), seeded(student), recipe, {})
    assert whole(tmp_path / "stopped") == whole(tmp_path / "reference")


def test_labels_are_read_as_they_were_stored(tmp_path: Path) -> None:
    report = go(table("logits"), student, replace(QUICK, kind="logits"), run=tmp_path / "run")
    for name, values in table("logits").items():
        found = read_labels(tmp_path / "run" / "labels", name)
        assert found is not None and (found == values.astype(np.float32)).all()
    assert report.outcome.teacher is None and report.outcome.accuracies["teacher"].keys() == table().keys()
