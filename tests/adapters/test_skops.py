"""Students of scikit-learn on their way home: a file of skops, and types that nobody vouched for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skops")

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skops import io

from wdistill.adapters.sklearn import Distiller
from wdistill.adapters.sklearn_card import model_card_of
from wdistill.adapters.skops import load_student, save_student
from wdistill.core.errors import ConfigError, FileError
from wdistill.methods import crossfit
from wdistill.methods.statistics import wilson
from wdistill.report.card import plain
from wdistill.weights.debiased import debiased

X, Y = (part[:300] for part in load_digits(return_X_y=True))


def test_a_student_comes_back_with_the_same_predictions_and_without_its_distiller(tmp_path: Path) -> None:
    model = Distiller(LogisticRegression(max_iter=500)).fit(X, Y)
    assert save_student(model, tmp_path / "new" / "student.skops") == ()
    student = load_student(tmp_path / "new" / "student.skops")
    assert isinstance(student, LogisticRegression) and np.array_equal(student.predict_proba(X), model.predict_proba(X))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["student.skops"]


def test_a_pipeline_of_texts_comes_back(tmp_path: Path) -> None:
    texts = ["good film", "bad film", "very good", "very bad"]
    student = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0])
    save_student(student, tmp_path / "student.skops", card="# A student\n")
    assert np.array_equal(load_student(tmp_path / "student.skops").predict_proba(texts), student.predict_proba(texts))
    assert (tmp_path / "student.md").read_text() == "# A student\n"


def test_types_that_skops_does_not_know_are_named_and_refused_until_they_are_trusted(tmp_path: Path) -> None:
    student, path = RandomForestClassifier(3).fit(X, Y), tmp_path / "student.skops"
    types = save_student(student, path)
    assert types == ("sklearn.tree._tree.Tree",)
    with pytest.raises(FileError, match=r"sklearn\.tree\._tree\.Tree"):
        load_student(path)
    assert np.array_equal(load_student(path, trusted=types).predict(X), student.predict(X))


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harm",)

    student = LogisticRegression(max_iter=500).fit(X, Y)
    student.extra = Path.touch
    (tmp_path / "student.skops").write_bytes(io.dumps(student))
    with pytest.raises(FileError, match="nobody vouched for"):
        load_student(tmp_path / "student.skops")
    assert not (tmp_path / "harm").exists()


def test_what_others_cannot_load_is_not_saved(tmp_path: Path) -> None:
    local = make_pipeline(FunctionTransformer(lambda rows: rows), LogisticRegression(max_iter=500)).fit(X, Y)
    for student, message in ((local, "exists in this program alone"), (LogisticRegression(), "nothing to save")):
        with pytest.raises(ConfigError, match=message):
            save_student(student, tmp_path / "student.skops")
    with pytest.raises(ConfigError, match="skops"):
        save_student(local, tmp_path / "student.pkl")
    assert not any(tmp_path.iterdir())


def test_a_card_replaces_no_file_of_others(tmp_path: Path) -> None:
    (tmp_path / "student.md").write_text("mine")
    student = LogisticRegression(max_iter=500).fit(X, Y)
    with pytest.raises(ConfigError, match="something else"):
        save_student(student, tmp_path / "student.skops", card="ours")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("student.md", "mine")]


@pytest.mark.parametrize("method", ["best", debiased], ids=["best", "a rule"])
def test_the_card_of_a_distiller_tells_teacher_gold_verdict_and_recipe_and_its_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Any
) -> None:
    monkeypatch.setattr(crossfit, "TREES", 10)
    y = np.where(np.arange(300) < 100, Y, -1)
    teacher = 0.02 + 0.8 * np.eye(10)[np.where(np.arange(300) % 4, Y, (Y + 1) % 10)]
    model = Distiller(make_pipeline(StandardScaler(), LogisticRegression(C=0.5)), method).fit(X, y, teacher=teacher)
    card = model_card_of(model)
    save_student(model, tmp_path / "student.skops", card=card)
    assert (tmp_path / "student.md").read_text() == card == model_card_of(model)
    for told in (
        "library_name: sklearn",
        "10 classes (StandardScaler, then LogisticRegression)",
        "rows of 64 columns",
        f"- {plain(model.advice_.verdict)}",
        f"| teacher | accuracy | {wilson(0.75, 100).percent} | 100 gold rows |",
        "| gold | 100 |",
        "| pool | 200 |",
        f"Arm: {method}.",
        "| student of labels alone | accuracy |",
        "| logisticregression C | 0.5 |",
        "is not recorded here",
    ):
        assert told in card, told
    assert ("corrected, expected" in card) == (method == "best")  # targets of `best` are not those of a rule
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"rows": X}
    exec(card.split("```python\n")[1].split("```")[0], names)
    assert np.array_equal(names["classes"], model.predict(X))


def test_the_card_of_a_student_without_a_teacher_claims_nothing() -> None:
    assert "Nothing is recorded here of its teacher" in model_card_of(Distiller(LogisticRegression(max_iter=500)).fit(X, Y))
    with pytest.raises(NotFittedError):
        model_card_of(Distiller(LogisticRegression()))


@pytest.mark.parametrize("content", [None, b"", b"PK", b"no archive"])
def test_a_damaged_file_is_an_error_of_ours(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "student.skops").write_bytes(content)
    with pytest.raises(FileError, match="no student can be read"):
        load_student(tmp_path / "student.skops")
