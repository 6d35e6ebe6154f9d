"""The linear student on text: its logits are those of the features, and it trains, resumes and is exported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.distilling import bits, undrawn
from tests.texts import reviews, texts
from wdistill import Data, Recipe, Report, debiased, distill, export_student, load_student, unweighted
from wdistill.core.errors import ConfigError
from wdistill.text.features import TextFeatures, fit_features
from wdistill.text.integers import text_rows
from wdistill.text.linear import fit_linear
from wdistill.text.ngrams import COLUMNS
from wdistill.text.plain import row_of
from wdistill.training.export import export_run
from wdistill.training.models.networks import build
from wdistill.training.models.text import TEXT_RECIPE, TextBag, text_bag

torch.set_num_threads(1)

KNOWN = ["a good film", "not a good film", "a b c don’t 😀 é", "a a b c", "ΑΣ x y", "x y 我喜欢"] * 2
FEATURES = fit_features([KNOWN])


def drawn(features: TextFeatures, classes: int, seed: int = 0) -> TextBag:
    """A student with parameters as if it were trained."""
    bag = text_bag(features, classes)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in bag.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return bag


def parameters(bag: TextBag) -> Any:
    """Parameters of all columns (2¹⁹, K): 0 where the bag has none."""
    return torch.where((bag.places > 0)[1:, None], bag.weight[bag.places[1:].long()], 0).detach().numpy()


BAG = drawn(FEATURES, 3)


@given(
    st.lists(st.one_of(texts, st.sampled_from(KNOWN)), min_size=1, max_size=6), st.sampled_from([torch.int32, torch.int64])
)
def test_logits_are_those_of_the_features(batch: list[str | None], dtype: torch.dtype) -> None:
    with torch.no_grad():
        logits = BAG(torch.from_numpy(text_rows(batch, FEATURES)).to(dtype)).numpy()
        plain = BAG(torch.tensor([row_of(text, 600) for text in batch])).numpy()
    wanted = FEATURES.transform(batch) @ parameters(BAG) + BAG.bias.detach().numpy()
    assert np.allclose(logits, wanted, atol=1e-4) and np.allclose(plain, wanted, atol=1e-4)


def test_it_begins_at_zero_and_a_bag_without_features_counts_all_alike() -> None:
    rows = torch.from_numpy(text_rows(KNOWN))
    bag = build("text:classes=4")
    assert isinstance(bag, TextBag) and bag.arguments == {"classes": 4, "columns": COLUMNS} and not bag(rows).any()
    assert bag.weight.shape == (1 + COLUMNS, 4) and (bag.idf == 1).all()


def test_gradients_leave_alone_what_does_not_occur() -> None:
    bag, rows = text_bag(FEATURES, 2), torch.from_numpy(text_rows(KNOWN[:2], FEATURES))
    bag(rows)[:, 0].sum().backward()
    assert bag.weight.grad is not None and bag.idf.grad is None
    moved = set(torch.nonzero(bag.weight.grad.any(dim=1))[:, 0].tolist())
    assert moved == set(bag.places[rows & (2**20 - 1)].flatten().tolist()) - {0}


def test_a_bag_of_the_known_columns_learns_as_one_of_all_columns_does() -> None:
    small, whole, rows = text_bag(FEATURES, 3), TextBag(3), torch.from_numpy(text_rows(KNOWN, FEATURES))
    whole.idf.copy_(small.idf)
    targets = torch.eye(3)[torch.arange(len(KNOWN)) % 3]
    for bag in (small, whole):
        optimizer = torch.optim.Adam(bag.parameters(), 0.02)
        for _ in range(5):
            optimizer.zero_grad()
            (-(targets * bag(rows).log_softmax(1)).sum(1).mean()).backward()
            optimizer.step()
    assert small.weight.shape[0] < 100 and np.array_equal(parameters(small), parameters(whole))
    assert torch.equal(small(rows), whole(rows))


def test_the_recipe_is_one() -> None:
    recipe = Recipe(**TEXT_RECIPE)  # type: ignore[arg-type]
    assert (recipe.schedule, recipe.rate, recipe.batch_size, recipe.epochs, recipe.augmentation) == (
        "linear",
        0.02,
        256,
        10,
        (),
    )


def test_rows_of_other_numbers_are_refused() -> None:
    made = splits(FEATURES)
    made = {name: (inputs.astype(np.float32), labels) for name, (inputs, labels) in made.items()}
    with pytest.raises(ConfigError, match="cannot read its input"):
        distill(tables(made), text_bag(FEATURES, 2), **made, recipe=SHORT)


# in the loop ----------------------------------------------------------------------------------------------------------

SHORT = Recipe(**{**TEXT_RECIPE, "student_epochs": 1, "epochs": 2, "batch_size": 32}, device="cpu", checkpoint_seconds=0)  # type: ignore[arg-type]
TEXTS, LABELS = reviews(260)
FITTED = fit_features([TEXTS])


def splits(features: TextFeatures) -> dict[str, tuple[Any, Any]]:
    rows = text_rows(TEXTS, features, 128)
    parts = {"labeled": slice(0, 60), "validation": slice(60, 120), "unlabeled": slice(120, 220), "test": slice(220, 260)}
    return {name: (rows[part], LABELS[part]) for name, part in parts.items()}


def tables(made: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """A teacher that is mostly right."""
    rng = np.random.default_rng(5)
    return {name: 0.6 * rng.dirichlet([1, 1], len(labels)) + 0.4 * np.eye(2)[labels] for name, (_, labels) in made.items()}


def go(run: Path | None = None, **changes: Any) -> Report:
    made = splits(FITTED)
    data = {name: Data(inputs, labels) for name, (inputs, labels) in made.items()}
    with undrawn():
        return distill(tables(made), text_bag(FITTED, 2), **data, rule=debiased, run=run, **{"recipe": SHORT, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("text") / "run"
    return folder, go(folder)


@pytest.mark.slow
def test_it_trains_in_the_loop_and_gives_the_same_bits(finished: tuple[Path, Report]) -> None:
    assert bits(go().student) == bits(finished[1].student)
    assert np.array_equal(finished[1].student.idf[1:].numpy(), FITTED.idf)


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bits(
    tmp_path: Path, finished: tuple[Path, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    from wdistill.training import loop

    original, calls = loop.batch_loss, []

    def interrupted(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return original(*arguments, **named)

    monkeypatch.setattr(loop, "batch_loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "run")
    monkeypatch.setattr(loop, "batch_loss", original)
    assert bits(go(tmp_path / "run").student) == bits(finished[1].student)


@pytest.mark.slow
def test_an_exported_student_needs_only_the_plain_file(finished: tuple[Path, Report], tmp_path: Path) -> None:
    run, report = finished
    description = export_run(run, tmp_path / "student")
    assert description["network"] == "text" and description["input_dtype"] == "int32" and description["program"]
    assert bits(load_student(tmp_path / "student")) == bits(report.student)
    program = torch.export.load(tmp_path / "student" / "student.pt2").module()
    batch = [*TEXTS[:5], "", None, "words that nobody knows", "w1 😀 w2"]
    rows = torch.tensor([row_of(text, 512) for text in batch], dtype=torch.int32)
    with torch.no_grad():
        assert torch.allclose(program(rows), report.student.cpu().eval()(rows), atol=1e-6)
    assert json.loads((tmp_path / "student" / "student.json").read_text())["input_shape"] == [512]


@pytest.mark.slow
def test_it_is_exported_as_a_module(tmp_path: Path) -> None:
    rows = torch.from_numpy(text_rows(KNOWN, FEATURES, 16))
    export_student(BAG, rows[:1], tmp_path, None)
    assert torch.equal(load_student(tmp_path)(rows), BAG(rows))


@pytest.mark.slow
def test_it_is_as_good_as_logistic_regression_where_words_tell_the_class() -> None:
    made, labels = reviews(4000, seed=4, classes=3, tilt=4.0)
    features, names = fit_features([made[:2000]]), ("labeled", "validation", "unlabeled", "test")
    rows, parts = text_rows(made, features, 160), (slice(0, 200), slice(200, 300), slice(300, 2000), slice(2000, 4000))
    whole = {name: (rows[part], labels[part]) for name, part in zip(names, parts, strict=True)}
    teacher = {name: np.eye(3)[truth] for name, (_, truth) in whole.items()}  # always right
    recipe = replace(Recipe(**TEXT_RECIPE), student_epochs=1, validation_in_training="yes", device="cpu")  # type: ignore[arg-type]
    with undrawn():
        report = distill(teacher, text_bag(features, 3), **whole, rule=unweighted, recipe=recipe)
    with torch.no_grad():
        ours = report.student.cpu().eval()(torch.from_numpy(rows[2000:])).argmax(1).numpy()
    models = [fit_linear(features.transform(made[:2000]), np.eye(3)[labels[:2000]], None, penalty) for penalty in (1, 0.1)]
    theirs = [model(features.transform(made[2000:])).argmax(axis=1) for model in models]
    accuracies = [(predicted == labels[2000:]).mean() for predicted in (ours, *theirs)]
    assert 0.9 < max(accuracies[1:]) < 0.99 and accuracies[0] > max(accuracies[1:]) - 0.01, accuracies
