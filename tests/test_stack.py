"""Small students of several arms as one stack: each as if it were trained alone, and with the same bits however it ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.distilling import MADE, Dropping, contents, failing, go, seeded, splits, student, teacher, undrawn, unlike
from tests.staging import MEASURED, Stopping, by_student, made, refreshed, stage, whole
from tests.staging import RECIPE as STAGE_RECIPE
from wdistill import (
    CNN,
    MLP,
    NumericalError,
    Recipe,
    Report,
    StorageError,
    arm,
    best,
    debiased,
    distill,
    fidelity,
    read_run,
    unweighted,
)
from wdistill.methods import robust
from wdistill.methods.context import MethodArm
from wdistill.text.integers import text_rows
from wdistill.training import jobs
from wdistill.training.loop import run_stage, run_stages
from wdistill.training.models.networks import TableMLP
from wdistill.training.models.text import TextBag
from wdistill.training.predict import predict
from wdistill.training.stack import SMALL, stack_of
from wdistill.training.stage import Callbacks, Stage, StoppedError

CLOSE = 1e-5  # the largest difference of a parameter, after a few dozen steps in float32


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


class Residual(nn.Module):
    """A user's own forward: functions, a sum, layers that are used in another order than they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first, self.middle = nn.Linear(5, 3), nn.Linear(6, 5), nn.Linear(5, 5, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.first(functional.dropout(inputs.flatten(1), 0.0)))
        logits: Tensor = self.last(hidden + functional.gelu(self.middle(hidden)).tanh())
        return logits


def standardising() -> TableMLP:
    made = TableMLP(6, 3, (4,))
    made.mean += 0.5
    made.scale *= 2
    return made


# each as if alone ------------------------------------------------------------------------------------------------------

ARMS = {
    "plain": unweighted,
    "weighed": debiased,
    "refreshed": arm(debiased, refresh=1),
    "hard": arm(fidelity, targets="hard"),
}
OTHERS = {
    "warm": arm(debiased, temperature=2.0, temperature_squared=True),
    "robust": MethodArm("robust", robust.taylor),
    "plain": unweighted,
    "gold": arm(unweighted, validation_in_training="yes"),
    "best": best,
    "half": arm(debiased, validation_in_training="half"),
}
MADE_LONGER = replace(MADE, epochs=5, rate=0.02)


def assert_alike(stacked: Report, alone: Report, close: float = CLOSE) -> None:
    for name, model in alone.students.items():
        other = stacked.students[name].state_dict()
        for key, value in model.state_dict().items():
            torch.testing.assert_close(other[key], value, rtol=0, atol=close)
        one, two = (report.outcome.arms[name] for report in (stacked, alone))
        assert [each.loss for each in one.epochs] == pytest.approx([each.loss for each in two.epochs], rel=1e-4)
        assert [each.rate for each in one.epochs] == [each.rate for each in two.epochs]
        assert [(each.validation, each.test) for each in one.epochs] == [(each.validation, each.test) for each in two.epochs]
        assert [each.weights.mean for each in one.refreshes] == pytest.approx([each.weights.mean for each in two.refreshes])
        assert (one.why, one.gold) == (two.why, two.gold)


def both_ways(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Report]) -> tuple[Report, Report]:
    """Of a run whose arms are stacked, and the same one by one."""
    stacks: list[int] = []

    def counted(stages: Any, *more: Any) -> None:
        stacks.append(len(stages))
        run_stages(stages, *more)

    monkeypatch.setattr("wdistill.training.arm.run_stages", counted)
    stacked = run()
    assert stacks and min(stacks) > 1, "nothing was stacked: the comparison would be of one thing with itself"
    monkeypatch.setattr(jobs, "_is_stackable", lambda run, prepared: False)
    stacks.clear()
    alone = run()
    assert not stacks
    return stacked, alone


@pytest.mark.slow
@pytest.mark.parametrize("rules", [ARMS, OTHERS], ids=["rules", "losses, temperatures and gold rows"])
@pytest.mark.parametrize("make", [student, standardising, Dropping, Residual])
def test_arms_in_a_stack_are_those_trained_alone(make: Any, rules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stacked, alone = both_ways(monkeypatch, lambda: go(seeded(teacher, 1), seeded(make, 2), MADE_LONGER, rule=rules))
    assert_alike(stacked, alone)
    start = seeded(make, 2).state_dict()
    moved = max((value - start[key]).abs().max() for key, value in alone.students["plain"].state_dict().items())
    assert moved > 100 * CLOSE


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"optimizer": "sgd", "weight_decay": 0.1}, {"weight_decay": 0.01, "decayed": "kernels"}]
)
def test_every_optimizer_keeps_the_students_apart(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = replace(MADE_LONGER, **settings)
    assert_alike(*both_ways(monkeypatch, lambda: go(seeded(teacher, 1), seeded(student, 2), recipe, rule=ARMS)))


WORDS = ("good", "bad", "fine", "poor", "day", "night", "cat", "dog")


@pytest.mark.slow
def test_bags_of_words_in_a_stack_are_those_trained_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    sizes = {"labeled": 20, "validation": 30, "unlabeled": 60, "test": 20}
    texts = {name: [" ".join(random.choice(WORDS, 5)) for _ in range(rows)] for name, rows in sizes.items()}
    data = {
        name: (text_rows(each, length=16), np.array(["good" in text for text in each], int)) for name, each in texts.items()
    }
    table = {name: random.dirichlet([2.0, 1.0], rows) for name, rows in sizes.items()}
    run = lambda: distill(table, TextBag(2), **data, rule=ARMS, recipe=replace(MADE_LONGER, classes=2))  # noqa: E731
    assert_alike(*both_ways(monkeypatch, run))


# what is stacked -------------------------------------------------------------------------------------------------------


class Mixing(Residual):
    """Mixes what is beside: in a stack, the students."""

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.last(self.first(inputs).softmax(0))
        return logits


class Moody(Residual):
    """Another network in training."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        return self.last(hidden.softmax(-1) if self.training else hidden)  # type: ignore[no-any-return]


def tied() -> nn.Module:
    layers = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    layers[2].weight = layers[0].weight
    return layers


def frozen() -> nn.Module:
    layers = student()
    layers.layers[1].requires_grad_(False)
    return layers


def hooked() -> nn.Module:
    layers = student()
    layers.layers[1].register_forward_hook(lambda module, inputs, output: output * 2)
    return layers


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "over an axis": Mixing,
    "another in training": Moody,
    "tied": tied,
    "frozen": frozen,
    "hooked": hooked,
    "normed": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)),
    "a layer twice": lambda: nn.Sequential(*[nn.Linear(6, 6)] * 2),
    "large": lambda: MLP(6, 3, (SMALL // 6,)),
    "unknown layers": lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
    "of double precision": lambda: student().double(),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_stacked_is_not(make: Callable[[], nn.Module]) -> None:
    assert stack_of(make(), 3, torch.randn(4, 6)) is None


def test_neither_images_nor_sequences_are_stacked() -> None:
    assert stack_of(CNN(1, 3), 2, torch.randn(4, 1, 8, 8)) is None
    assert stack_of(nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 3)), 3, torch.randn(3, 3, 6)) is None


def test_asking_changes_no_student() -> None:
    model = seeded(Dropping).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    stack = stack_of(model, 3, splits()["labeled"][0][:4])
    assert stack is not None and model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_stack_is_split_and_joined() -> None:
    stack = stack_of(seeded(standardising), 3, splits()["labeled"][0][:4])
    assert stack is not None and len(stack) == 3 and stack.shared == {"mean", "scale"}
    with torch.no_grad():
        for value in stack.model.parameters():
            value += torch.arange(3.0).view(3, *[1] * (value.ndim - 1))
    parts = stack.split(stack.model.state_dict())
    assert all(torch.equal(value, stack.model.state_dict()[name]) for name, value in stack.join(parts).items())
    inputs = MEASURED["test"].inputs
    for number, logits in enumerate(predict(stack.model, inputs)):
        np.testing.assert_allclose(predict(stack.student(number), inputs), logits, rtol=1e-4, atol=1e-4)


# however it ends -------------------------------------------------------------------------------------------------------


def stages(folder: Path, epochs: int = 3) -> list[Stage]:
    soft = made(hard=False)
    still = replace(soft, weights=torch.linspace(0, 1, len(soft)))
    plain = replace(stage(folder / "plain", epochs, still, trajectory=True), name="plain")
    every = stage(folder / "every", epochs, soft, every=2, **refreshed(by_student))
    return [plain, replace(every, name="every")]


def run_both(folder: Path, callbacks: Callbacks | None = None, recipe: Recipe = STAGE_RECIPE) -> None:
    stack = stack_of(seeded(Dropping), 2, splits()["labeled"][0][:4])
    assert stack is not None
    run_stages(stages(folder), stack, recipe, MEASURED, callbacks)


def came_to(folder: Path) -> list[object]:
    return [whole(folder / name) for name in ("plain", "every")]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    run_both(folder)
    return folder


def test_a_stop_at_any_step_changes_no_bit(reference: Path, tmp_path: Path) -> None:
    recipe = replace(STAGE_RECIPE, checkpoint_seconds=1e9)
    counting = Stopping(10**9)
    run_both(tmp_path / "counting", Callbacks(counting), recipe)
    for at in range(0, counting.asked, 3):
        with pytest.raises(StoppedError):
            run_both(tmp_path / str(at), Callbacks(Stopping(at)), recipe)
        run_both(tmp_path / str(at), recipe=recipe)
        assert came_to(tmp_path / str(at)) == came_to(reference), at


def test_a_failure_at_any_operation_changes_no_bit(reference: Path, tmp_path: Path) -> None:
    """Between the commits of two arms, one has a checkpoint more, or is finished: both resume from the one before."""
    with failing(10**9, 28) as seen:
        run_both(tmp_path / "seen")
    apart = 0
    for at in range(1, len(seen) + 1, 2):
        folder = tmp_path / str(at)
        with failing(at, 28), pytest.raises((StorageError, OSError)):
            run_both(folder)
        apart += _manifests(folder / "plain") != _manifests(folder / "every")
        run_both(folder)
        assert came_to(folder) == came_to(reference), seen[at - 1]
    assert apart > 3


def _manifests(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("generation-*.json"))


@pytest.mark.parametrize("lost", ["plain", "every"])
def test_an_arm_that_was_lost_is_made_again_with_the_same_bits(lost: str, reference: Path, tmp_path: Path) -> None:
    """The others are trained along, as they have a part in the bits; nothing of theirs is written or removed."""
    shutil.copytree(reference, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / lost)
    (other,) = {"plain", "every"} - {lost}
    before = contents(tmp_path / "run" / other)
    run_both(tmp_path / "run")
    assert contents(tmp_path / "run" / other) == before
    assert came_to(tmp_path / "run") == came_to(reference)


def test_a_finished_stack_is_only_read(reference: Path) -> None:
    before = contents(reference)
    stack = stack_of(seeded(Dropping, 5), 2, splits()["labeled"][0][:4])
    assert stack is not None
    run_stages(stages(reference), stack, STAGE_RECIPE, MEASURED)
    assert contents(reference) == before
    model = seeded(Dropping, 6)
    run_stage(stages(reference)[1], model, STAGE_RECIPE, MEASURED)
    assert all(torch.equal(value, stack.student(1).state_dict()[name]) for name, value in model.state_dict().items())


def test_a_loss_that_is_not_finite_names_its_arm(tmp_path: Path) -> None:
    stack = stack_of(seeded(student), 2, splits()["labeled"][0][:4])
    first, second = stages(tmp_path)
    bad = replace(first, examples=replace(first.examples, weights=torch.full((len(first.examples),), float("nan"))))
    assert stack is not None
    with pytest.raises(NumericalError, match="plain, epoch 1, step 1: the loss is not finite"):
        run_stages([second, bad], stack, STAGE_RECIPE, MEASURED)


@pytest.mark.slow
def test_a_run_of_stacked_arms_is_told_arm_by_arm(tmp_path: Path) -> None:
    report = go(seeded(teacher, 1), seeded(student, 2), MADE, rule=ARMS, run=tmp_path / "run")
    again = read_run(tmp_path / "run")
    assert list(again.arms) == list(ARMS) == list(report.students)
    seconds: Mapping[str, float] = again.seconds
    assert all(seconds[name] > 0 for name in ARMS) and len({again.arms[name].seconds["train"] for name in ARMS}) == 1
    assert not unlike(tmp_path / "run", tmp_path / "run")
