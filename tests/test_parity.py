"""The leaderboard's stacked students are those that `wdistill.distill` trains, up to rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from experiments.confirmation.trial import Ramp
from experiments.leaderboard.stacked import Perceptrons, predictions, train
from wdistill import Evidence, Recipe, distill, fidelity, oracle, unweighted
from wdistill.training.optimizer import SCHEDULES

CLASSES, SIZES = 3, (4, 8, 3)
ROWS = {"labeled": 20, "validation": 15, "unlabeled": 46}  # 81 with gold: a single row is left over by batches of 16
RECIPE = Recipe(teacher_epochs=0, student_epochs=0, epochs=6, batch_size=16, rate=0.02, schedule="steps", seed=3)


@pytest.fixture(scope="module")
def splits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)

    def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(0, CLASSES, count)
        return (random.normal(size=(count, 4)) + 1.5 * np.eye(CLASSES, 4)[labels]).astype(np.float32), labels

    return {name: rows(count) for name, count in ROWS.items()}


def single(students: Perceptrons) -> nn.Sequential:
    """The first student as modules that `distill` takes."""
    layers: list[nn.Module] = []
    for weight, bias in zip(students.weights, students.biases, strict=True):
        linear = nn.Linear(weight.shape[1], weight.shape[2])
        linear.load_state_dict({"weight": weight[0].T.detach().clone(), "bias": bias[0, 0].detach().clone()})
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def start(seed: int) -> Perceptrons:
    torch.manual_seed(seed)
    return Perceptrons(SIZES)


def probabilities(model: nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(model(torch.from_numpy(inputs)).double().softmax(-1).numpy())


def by_product(splits: dict[str, Any], rule: Any, recipe: Recipe, run: Path) -> np.ndarray:
    arms = {"arm": rule, "beside": unweighted}  # two arms of a small student: the product trains them as one model, too
    report = distill(single(start(1)), single(start(0)), **splits, rule=arms, recipe=recipe, run=run)
    return probabilities(report.students["arm"], splits["unlabeled"][0])


def by_stack(splits: dict[str, Any], rule: Any, recipe: Recipe, *, copies: int = 1) -> np.ndarray:
    """The same rows in the same order as the product joins them: labeled, unlabeled, and gold where it is trained on."""
    teacher, student = single(start(1)), single(start(0))
    (gold, truth), (rest, known) = splits["validation"], splits["unlabeled"]
    read = [probabilities(model, part) for part in (gold, rest) for model in (teacher, student)]
    evidence = Evidence(truth, *read, probabilities(teacher, splits["labeled"][0]), known)
    soft = probabilities(teacher, rest)
    targets = soft if recipe.targets == "soft" else np.eye(CLASSES)[soft.argmax(axis=1)]
    parts = [splits["labeled"], (rest, None), *([(gold, truth)] if recipe.validation_in_training == "yes" else [])]
    wanted = np.concatenate([targets if labels is None else np.eye(CLASSES)[labels] for _, labels in parts])
    weights = np.concatenate([rule(evidence) if labels is None else np.ones(len(labels)) for _, labels in parts])
    students = start(0).copies(copies)

    def stacked(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).float().expand(copies, *values.shape)

    train(
        students,
        torch.from_numpy(np.concatenate([inputs for inputs, _ in parts])),
        stacked(wanted),
        stacked(weights),
        epochs=recipe.epochs,
        seed=recipe.seed,
        batch=recipe.batch_size,
        rate=recipe.rate,
        schedule=SCHEDULES[recipe.schedule],
    )
    return predictions(students, torch.from_numpy(rest))


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["soft", "hard"])
@pytest.mark.parametrize("gold", ["no", "yes"])
@pytest.mark.parametrize("rule", [unweighted, oracle, fidelity], ids=["unweighted", "zeros and ones", "fractions"])
def test_the_leaderboard_trains_the_student_that_distill_trains(
    splits: dict[str, Any], rule: Any, gold: Literal["no", "yes"], targets: Literal["soft", "hard"], tmp_path: Path
) -> None:
    recipe = replace(RECIPE, targets=targets, validation_in_training=gold)
    product, (stacked, *others) = (
        by_product(splits, rule, recipe, tmp_path / "run"),
        by_stack(splits, rule, recipe, copies=3),
    )
    before = probabilities(single(start(0)), splits["unlabeled"][0])
    assert np.abs(product - before).max() > 0.05  # it has learned something
    assert np.abs(product - stacked).max() < 1e-5 and all(np.abs(each - stacked).max() < 1e-6 for each in others)


def test_another_seed_or_weight_is_another_student(splits: dict[str, Any]) -> None:
    """What the comparison above would see."""
    found = by_stack(splits, unweighted, RECIPE)[0]
    for other in (by_stack(splits, oracle, RECIPE)[0], by_stack(splits, unweighted, replace(RECIPE, seed=4))[0]):
        assert np.abs(found - other).max() > 1e-3


def test_the_doubly_robust_target_moves_with_the_epochs() -> None:
    """After half of the epochs: the gold row's target has half of its shift; the loss is linear in it."""
    ramp = Ramp(torch.tensor([[0.0, 0.0], [2.0, -2.0]]), epochs=4)
    logits, targets = torch.tensor([[0.3, -0.2], [1.0, 0.5]]), torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    rows, logs = torch.tensor([0, 1]), torch.log_softmax(logits, dim=1)
    assert torch.allclose(ramp(logits, targets, rows), -(targets * logs).sum(1))
    ramp.after_epoch(2)
    moved = torch.tensor([[0.5, 0.5], [1.25, -0.25]])
    assert torch.allclose(ramp(logits, targets, rows), -(moved * logs).sum(1))
