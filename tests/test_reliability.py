"""The harness itself, in small: every file has a row in the table, and goals are named and found."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reliability import artefacts, jobs, kept, rot
from tests.reliability.goals import Goal, goals, line, page, parser, unproved, wanted
from tests.reliability.kept import Proof
from tests.reliability.seeds import READERS

pytestmark = pytest.mark.slow


EVERY = {**jobs.JOBS, **jobs.OTHERS, jobs.TWO_WORKERS.name: jobs.TWO_WORKERS}
LONG = ("distill best", "export", "distill", "distill of Datasets", "report", "demo", jobs.TWO_WORKERS.name)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.proof if name in LONG else ()) for name in EVERY])
def test_every_file_that_a_job_writes_has_a_row(name: str, tmp_path: Path) -> None:
    def run(folder: Path) -> None:
        jobs.prepare_process()
        jobs.as_command(EVERY[name].run)(folder)

    written, left = artefacts.written(run, tmp_path / "job")
    alone = name != jobs.TWO_WORKERS.name  # what its workers write is not in the log
    assert written and (not alone or {path for path in left if not path.endswith("lock")} <= written)
    assert {path for path in written | left if artefacts.row_of(path) is None} == set()


@pytest.mark.parametrize("nightly", [False, True])
def test_goals_have_names_of_their_own(nightly: bool) -> None:
    names = [(goal.name, goal.part) for goal in goals(nightly, 0)]
    assert len(names) == len(set(names)) > 25


def test_every_row_of_the_table_is_damaged() -> None:
    assert [gate.row for gate in rot.GATES.values()] == [row for row in artefacts.ARTEFACTS if not row.elsewhere]


def test_what_is_damaged_elsewhere_has_a_test_there() -> None:
    named = {row.elsewhere.partition("::")[::2] for row in artefacts.ARTEFACTS if row.elsewhere}
    root = Path(__file__).parent.parent
    assert {name for path, name in named if f"def {name}(" not in (root / path).read_text()} == set()


def test_a_million_mutants_are_tried_each_once() -> None:
    tried = dict[str, list[int]]()
    for goal in goals(True, 0):
        if goal.name.startswith("mutants"):
            reader, numbers, _ = goal.prove.args  # type: ignore[attr-defined]
            tried.setdefault(reader, []).extend(numbers)
    assert {*tried} == {*READERS} and sum(map(len, tried.values())) == 1_000_000
    assert all(numbers == list(range(len(numbers))) for numbers in tried.values())


def test_what_is_proved_at_this_code_is_not_proved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", tmp_path / "kept" / "proofs.jsonl")
    every = [Goal("a", "all", lambda: (1, [])), *(Goal("b", "all", lambda: (1, []), part) for part in ("1", "2"))]
    proof = Proof("a", "", "all", 3, [], 1.5, 0, kept.code(), "1234567", "Python")
    kept.keep(proof)
    kept.keep(replace(proof, goal="b", part="1"))
    kept.keep(replace(proof, goal="b", part="2", code="of another time", commit="7654321"))
    with kept.KEPT.open("a") as file:
        file.write('{"goal": "cut')
    assert kept.kept()[0] == proof
    assert unproved(every, seed=0) == every[2:] and unproved(every, seed=1) == every
    shown = page(every, kept.newest(kept.kept(), 0))
    assert "| a | 3 of 3 | all | 2 s | 0 | 1234567 |\n| b | 6 of 6 | all | 3 s | 0 | 1234567, 7654321 |\n" in shown
    assert "| c | not proved yet | all |" in page([Goal("c", "all", lambda: (1, []))], {})
    assert "| b | 3 of 3; 1 of 2 parts are proved |" in page(every, {("b", "2"): proof})
    elsewhere = "| a | 9 of 9 | all | 2 s | 0 | abc1234 |"
    assert elsewhere in page(every, {("b", "2"): proof}, f"# Before\n\n{elsewhere}\n")


def test_what_a_dirty_tree_proves_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", tmp_path / "proofs.jsonl")
    proof = Proof("a", "", "all", 3, [], 1.5, 0, kept.code(), "1234567", "Python")
    assert not kept.keep(replace(proof, commit="1234567-dirty")) and kept.kept() == []
    assert kept.keep(proof) and kept.kept() == [proof]
    root = tmp_path / "tree"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "test_a.py").write_text("")
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init"], ["add", "."], ["commit", "-m", "a"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    monkeypatch.setattr(kept, "ROOT", root)
    commits = []
    for name in ("docs.md", "tests/test_b.py"):
        (root / name).write_text("")
        kept.commit.cache_clear()
        commits.append(kept.commit())
    kept.commit.cache_clear()
    assert commits[1] == f"{commits[0]}-dirty" and len(commits[0]) == 7


@pytest.mark.parametrize("nightly", [False, True])
def test_a_goal_is_replayed_by_itself_as_it_was_proved(nightly: bool) -> None:
    every = list(goals(nightly, 3))
    for goal in every:
        shown = line(Proof(goal.name, goal.part, goal.target, 1, [], 1.0, 3, "", "1234567", "Python"), nightly)
        words = shlex.split(shown.rpartition("; ")[2])
        given = parser().parse_args(words[3:])
        assert words[:3] == ["python", "-m", "tests.reliability"] and (given.nightly, given.seed) == (nightly, 3)
        assert wanted(every, given.only) == [goal]


def test_the_page_has_the_table_of_files() -> None:
    page = (Path(__file__).parent.parent / "docs" / "reliability.md").read_text()
    assert artefacts.table() in page, "run: python -m tests.reliability --write"


def test_every_promise_names_tests_that_exist() -> None:
    root = Path(__file__).parent.parent
    named = re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`", (root / "SECURITY.md").read_text())
    assert len(named) > 8
    assert [pair for pair in named if f"def {pair[1] or 'test'}" not in (root / pair[0]).read_text()] == []
