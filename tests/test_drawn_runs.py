"""How gold was drawn, in `wdistill distill`: in every form of file, in folds and estimates, and in what a run is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.distilling import QUICK, go, splits, undrawn, unlike
from tests.tables import write
from tests.test_cli import fail
from wdistill import Recipe, Report, cli, distill, unweighted
from wdistill.methods import advice, crossfit
from wdistill.methods.interval import estimate
from wdistill.methods.metric import parse_metric
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training.data import Data
from wdistill.training.files import DesignColumn, read_data
from wdistill.training.models.networks import NamedNetwork

pytestmark = pytest.mark.filterwarnings("ignore:.*validation rows", "ignore:.*gold rows")
GROUPS = np.array([f"0{row % 7}" for row in range(30)])
CHANCES = np.where(np.arange(30) % 3 == 0, 0.9, 0.05)
FORMS = ["{}.npz", "{}.parquet", "{}.csv", "{}"]
MODELS = ["--teacher", "mlp:inputs=6,classes=3,hidden=8", "--student", "mlp:inputs=6,classes=3,hidden=4"]
EPOCHS = ["--teacher-epochs", "1", "--student-epochs", "1", "--epochs", "2", "--batch-size", "16", "--device", "cpu"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(crossfit, "TREES", 5)


def save(form: str, **drawn: Any) -> None:
    """All splits in files of one form, the gold rows with more columns."""
    for name, (inputs, labels) in splits().items():
        columns: dict[str, Any] = {"inputs": inputs.numpy(), "label": labels.numpy()}
        columns |= {"id": np.array([f"{name}-{row}" for row in range(len(labels))])}
        columns |= drawn if name == "validation" else {}
        path = Path(form.format(name))
        if path.suffix:
            write(path, columns)
            continue
        path.mkdir(exist_ok=True)
        for column, values in columns.items():
            np.save(path / f"{column}.npy", values)


def words(form: str, *more: object, run: str = "run") -> list[str]:
    files = [word for name in splits() for word in (f"--{name}", form.format(name))]
    return ["distill", *MODELS, *files, "--run", run, *EPOCHS, *map(str, more)]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_file_tells_how_gold_was_drawn(form: str) -> None:
    save(form, group=GROUPS, chance=CHANCES)
    found = read_data(
        Path(form.format("validation")), DesignColumn("group", needed=False), DesignColumn("chance", needed=True)
    )
    assert found.groups.tolist() == GROUPS.tolist(), "text stays text"
    assert found.inclusion.tolist() == CHANCES.tolist()
    plain = read_data(Path(form.format("labeled")), DesignColumn("group", needed=False))
    assert plain.groups is None and plain.inclusion is None


@pytest.mark.slow
def test_the_command_trains_as_arrays_do_and_refuses_another_design(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def advised(context: Any, *more: Any) -> Any:
        seen.append(context)
        raise KeyboardInterrupt

    save("{}.npz", group=GROUPS, inclusion=CHANCES)
    with monkeypatch.context() as patch:
        patch.setattr(advice, "advise", advised)
        assert cli.main(words("{}.npz", "--method", "best", "--advise")) == 130
    (context,) = seen
    assert context.gold_weights == pytest.approx(1 / CHANCES) and context.gold_groups.tolist() == GROUPS.tolist()
    assert all(len({*context.folds[each == GROUPS].tolist()}) == 1 for each in GROUPS)
    with undrawn():
        assert cli.main(words("{}.npz", "--method", "best")) == 0
        arrays("same", GROUPS, CHANCES), arrays("plain")
    assert unlike(Path("run"), Path("same")) == []
    assert any(name.startswith("arms/best/parameters") for name in unlike(Path("run"), Path("plain")))
    capsys.readouterr()
    save("{}.npz", group=GROUPS[::-1], inclusion=CHANCES)
    assert "data validation groups" in fail(capsys, *words("{}.npz", "--method", "best"))
    save("{}.npz", group=GROUPS)
    assert re.search("data validation inclusion: .* → None", fail(capsys, *words("{}.npz", "--method", "best")))


def arrays(run: str, groups: Any = None, inclusion: Any = None) -> Report:
    """The same from arrays."""
    data: dict[str, Any] = {}
    for name, (inputs, labels) in splits().items():
        drawn = {"groups": groups, "inclusion": inclusion} if name == "validation" else {}
        data[name] = Data(inputs, labels, np.array([f"{name}-{row}" for row in range(len(labels))]), **drawn)
    models = NamedNetwork(MODELS[1]), NamedNetwork(MODELS[3])
    recipe = Recipe(teacher_epochs=1, student_epochs=1, epochs=2, batch_size=16, device="cpu", rule=("best",))
    return distill(*models, **data, recipe=recipe, run=run)


@pytest.mark.slow
def test_columns_may_have_other_names_and_labeled_rows_groups(capsys: pytest.CaptureFixture[str]) -> None:
    save("{}.parquet", doc=GROUPS, chance=CHANCES)
    inputs, labels = (values.numpy() for values in splits()["labeled"])
    names = np.array([f"labeled-{row}" for row in range(30)])
    write(Path("labeled.parquet"), {"id": names, "inputs": inputs, "label": labels, "doc": np.array(["00", *["z"] * 29])})
    with undrawn():
        given = words("{}.parquet", "--method", "best", "--group", "doc", "--inclusion", "chance")
        assert cli.main(given) == 0
    assert "5 of 30 gold rows are of 1 group that labeled rows have too" in capsys.readouterr().err
    state = CheckpointStore(Path("run")).state["identity"]["data"]
    assert (
        {"groups", "inclusion"} <= {*state["validation"]} and "groups" in state["labeled"] and "groups" not in state["test"]
    )


def test_estimates_on_gold_and_test_rows_follow_their_design() -> None:
    """By hand, from the final student: the metric with weights and groups, and weighted accuracies of epochs."""
    (inputs, labels), (others, truth) = splits()["validation"], splits()["test"]
    gold, spread = Data(inputs, labels, None, GROUPS, CHANCES), np.arange(20) // 4
    recipe, metric = replace(QUICK, metric="macro-f1"), parse_metric("macro-f1", "012")
    found = go(recipe=recipe, rule=unweighted, validation=gold, test=None)
    training, student = found.outcome.arms["unweighted"], found.outcome.judgement.students["unweighted"]
    with torch.no_grad():
        decided, on_test = (found.students["unweighted"](rows).argmax(1).numpy() for rows in (inputs, others))
    right = decided == labels.numpy()
    assert training.epochs[-1].validation == pytest.approx(np.average(right, weights=1 / CHANCES))
    assert training.epochs[-1].validation != pytest.approx(right.mean())
    assert training.epochs[-1].score == pytest.approx(metric(np.eye(3)[decided], labels.numpy(), 1 / CHANCES))
    assert student.measured_on == "gold"
    assert student.overall[0].likely == estimate(metric, np.eye(3)[decided], labels.numpy(), 1 / CHANCES, GROUPS)
    tested = go(recipe=recipe, rule=unweighted, validation=gold, test=Data(others, truth, None, spread)).outcome.judgement
    likely = tested.students["unweighted"].overall[0].likely
    assert likely == estimate(metric, np.eye(3)[on_test], truth.numpy(), None, spread)


@pytest.mark.parametrize(
    ("form", "drawn", "flags", "told"),
    [
        ("{}.npz", {}, ["--method", "best", "--group", "doc"], ["no column 'doc'", "validation.npz"]),
        ("{}.parquet", {}, ["--method", "best", "--inclusion", "chance"], ["no column 'chance'", "validation.parquet"]),
        ("{}", {}, ["--method", "best", "--inclusion", "chance"], ["no column 'chance'"]),
        (
            "{}.npz",
            {"inclusion": 20 * CHANCES},
            ["--method", "best"],
            ["no inclusion probabilities", "validation inclusion"],
        ),
        (
            "{}.parquet",
            {"inclusion": np.where(np.arange(30) == 4, np.nan, 0.5)},
            ["--rule", "best"],
            ["1 rows without a number", "'validation-4'"],
        ),
        ("{}.parquet", {"group": np.full(30, "d")}, ["--metric", "macro-f1"], ["all gold rows belong together"]),
        ("{}.npz", {"group": GROUPS}, ["--group", "group"], ["--group: no arm takes it", "--rule debiased"]),
        ("{}.npz", {"inclusion": CHANCES}, ["--rule", "unweighted", "--inclusion", "inclusion"], ["no arm takes it"]),
    ],
)
def test_what_cannot_be_read_or_used_is_one_clear_error(
    form: str, drawn: dict[str, Any], flags: list[str], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    save(form, **drawn)
    message = fail(capsys, *words(form, *flags))
    assert all(each in message for each in told), message
    assert not Path("run/teacher").exists()


def test_the_papers_rules_look_at_neither_column(capsys: pytest.CaptureFixture[str]) -> None:
    save("{}.npz", group=np.full(30, "d"), inclusion=20 * CHANCES)
    with undrawn():
        assert cli.main(words("{}.npz", "--rule", "unweighted")) == 0
    assert {"groups", "inclusion"}.isdisjoint(CheckpointStore(Path("run")).state["identity"]["data"]["validation"])


def test_answers_have_the_flags_too(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{row},text {row % 5},{'ab'[row % 2]}" for row in range(200))
    Path("a.csv").write_text(f"id,text,answer\n{rows}\n")
    Path("g.csv").write_text("id,label\n" + "\n".join(f"{row},{'ab'[row % 2]}" for row in range(60)) + "\n")
    given = ["distill", "--answers", "a.csv", "--gold", "g.csv", "--text", "text", "--run", "run"]
    assert "no column 'chance'" in fail(capsys, *given, "--inclusion", "chance")
    assert "no column 'doc'" in fail(capsys, *given, "--group", "doc")
