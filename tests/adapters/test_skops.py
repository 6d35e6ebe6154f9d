"""Students of scikit-learn on their way home: a file of skops, and types that nobody vouched for."""

from __future__ import annotations

import io as streams
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skops")

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skops import io

from tests.reliability import artefacts, fuzz, rot
from tests.reliability.seeds import READERS, Reader, Seed
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
    model = Distiller(LogisticRegression(max_iter=5000)).fit(X, Y)
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

    student = LogisticRegression(max_iter=5000).fit(X, Y)
    student.extra = Path.touch
    (tmp_path / "student.skops").write_bytes(io.dumps(student))
    with pytest.raises(FileError, match="nobody vouched for"):
        load_student(tmp_path / "student.skops")
    assert not (tmp_path / "harm").exists()


def test_what_others_cannot_load_is_not_saved(tmp_path: Path) -> None:
    local = make_pipeline(FunctionTransformer(lambda rows: rows), LogisticRegression(max_iter=5000)).fit(X, Y)
    for student, message in ((local, "exists in this program alone"), (LogisticRegression(), "nothing to save")):
        with pytest.raises(ConfigError, match=message):
            save_student(student, tmp_path / "student.skops")
    with pytest.raises(ConfigError, match="skops"):
        save_student(local, tmp_path / "student.pkl")
    assert not any(tmp_path.iterdir())


def test_a_card_replaces_no_file_of_others(tmp_path: Path) -> None:
    (tmp_path / "student.md").write_text("mine")
    student = LogisticRegression(max_iter=5000).fit(X, Y)
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
    assert "Nothing is recorded here of its teacher" in model_card_of(Distiller(LogisticRegression(max_iter=5000)).fit(X, Y))
    with pytest.raises(NotFittedError):
        model_card_of(Distiller(LogisticRegression()))


@pytest.mark.parametrize("content", [None, b"", b"PK", b"no archive"])
def test_a_damaged_file_is_an_error_of_ours(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "student.skops").write_bytes(content)
    with pytest.raises(FileError, match="no student can be read"):
        load_student(tmp_path / "student.skops")


# damage ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("skops") / "student.skops"
    save_student(GaussianNB().fit(X[:, 20:24], Y), path)
    return path.read_bytes()


def test_every_file_of_a_student_has_a_row_in_the_table_of_files(tmp_path: Path) -> None:
    student = GaussianNB().fit(X, Y)
    written, left = artefacts.written(
        lambda folder: [save_student(student, folder / "student.skops", card="# A student")], tmp_path / "new"
    )
    assert left == {"student.skops", "student.md"}
    assert {path for path in written | left if artefacts.row_of(path) is None} == set()


@pytest.mark.slow
def test_no_flipped_bit_gives_another_student(content: bytes, tmp_path: Path) -> None:
    path, wanted = tmp_path / "student.skops", io.loads(content).predict_proba(X[:, 20:24])
    codes = list[str]()
    for way, number in [*(("flip", i) for i in range(1200)), *(("cut", i) for i in range(100)), ("loss", 0)]:
        path.write_bytes(content)
        rot.damage(path, way, np.random.default_rng([0, number]))
        found = rot.quietly(lambda: load_student(path).predict_proba(X[:, 20:24]))
        codes.append("refused" if isinstance(found, FileError) else "same")
        assert isinstance(found, FileError) or np.array_equal(found, wanted), (way, number)
    assert set(codes[1200:]) == {"refused"} and codes.count("refused") > 600


def in_all_headers(content: bytes, local: int, central: int, value: int) -> bytes:
    """An archive with another byte at a place of every header of a member, there and in the table of contents."""
    changed = bytearray(content)
    for mark, place in ((b"PK\3\4", local), (b"PK\1\2", central)):
        at = content.find(mark)
        while at >= 0:
            changed[at + place] = value
            at = content.find(mark, at + 1)
    return bytes(changed)


@pytest.mark.parametrize(("where", "value"), [((6, 8), 1), ((8, 10), 8), ((8, 10), 9), ((8, 10), 14)], ids=str)
def test_members_said_to_be_encrypted_or_compressed_are_damage(
    content: bytes, tmp_path: Path, where: tuple[int, int], value: int
) -> None:
    (tmp_path / "student.skops").write_bytes(in_all_headers(content, *where, value))
    with pytest.raises(FileError, match="no student can be read"):
        load_student(tmp_path / "student.skops")


def test_a_damaged_card_costs_no_student(content: bytes, tmp_path: Path) -> None:
    student = io.loads(content)
    save_student(student, tmp_path / "student.skops", card="# A student")
    for way in ("flip", "cut", "loss"):
        rot.damage(tmp_path / "student.md", way, np.random.default_rng(0))
        assert np.array_equal(load_student(tmp_path / "student.skops").theta_, student.theta_)
        save_student(student, tmp_path / "student.skops", card="# A student")
        assert (tmp_path / "student.md").read_text() == "# A student"


def said(path: Path) -> str:
    """What a student has learned: all of it, of one without trees."""
    warnings.filterwarnings("ignore", message="Trying to unpickle estimator")  # scikit-learn's, of another version
    learned = vars(load_student(path, trusted=("sklearn.tree._tree.Tree",)))
    arrays = {name: value.tolist() for name, value in learned.items() if isinstance(value, np.ndarray)}
    return repr([sorted(learned), sorted(arrays.items())])


def repacked(others: dict[str, bytes], schema: bytes, _: Random) -> dict[str, bytes]:
    """An archive with right checksums, whose schema was damaged."""
    stream = streams.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, member in {**others, "schema.json": schema}.items():
            archive.writestr(name, member)
    return {"student.skops": stream.getvalue()}


def seeds_of(*students: Any) -> Callable[[Path], tuple[Seed, ...]]:
    made = list[Seed]()
    for student in students:
        name, content = type(student).__name__, io.dumps(student)
        with zipfile.ZipFile(streams.BytesIO(content)) as archive:
            members = {each: archive.read(each) for each in archive.namelist()}
        schema = members.pop("schema.json")
        made.append(Seed(name, "student.skops", content, True, said))
        made.append(Seed(f"schema of {name}", "student.skops", schema, False, said, partial(repacked, members)))
    return lambda _: tuple(made)


@pytest.mark.slow
@pytest.mark.kill
def test_mutants_of_students_are_read_as_they_were_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = seeds_of(GaussianNB().fit(X, Y), RandomForestClassifier(2, max_depth=2).fit(X, Y))
    monkeypatch.setitem(READERS, "skops", Reader("students of scikit-learn", made))
    report = fuzz.run("skops", range(1000), seed=0)
    assert report.clean, report.failures
    assert report.refused > 500 and report.same + report.other > 20
