"""The harness itself, in small: every file has a row in the table, and goals are named and found."""

from __future__ import annotations

import re
import shlex
import subprocess
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

import wdistill.report.page
from tests.reliability import artefacts, jobs, kept, rot, seeded
from tests.reliability.goals import Goal, goals, line, page, parser, proof_of, unproved, wanted
from tests.reliability.kept import Proof
from tests.reliability.seeds import READERS
from wdistill.core import store
from wdistill.core.errors import FileError
from wdistill.methods import crossfit
from wdistill.tables import job

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


HASHED = (
    "w.parquet.parts/part-000000.0.parquet",
    "w.parquet.parts/aligned-000000.0/rows-000000",
    "w.parquet.answers/aligned-tables.0/answers.parquet",
)


@pytest.mark.kill
@pytest.mark.parametrize("sample", HASHED)
def test_a_gate_is_red_where_files_are_not_compared_with_their_digests(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, setting in ((job, "PART"), (crossfit, "TREES"), (wdistill.report.page, "page")):
        monkeypatch.setattr(module, setting, getattr(module, setting))  # what is set below is undone at the end
    jobs.prepare_process()
    tried, failures = rot.prove(rot.GATES[sample], 6, 0, 0, 0)
    assert (tried, failures) == (6, [])
    monkeypatch.setattr(store, "is_intact", lambda path, file: path.is_file() and path.stat().st_size == file[0])
    assert rot.prove(rot.GATES[sample], 6, 0, 0, 0)[1]


def test_damage_that_nobody_names_in_so_many_tries_proves_nothing() -> None:
    assert rot.unnoticed({"a": [False] * 4, "b": [True, False]}) == ["a"]
    assert rot.unnoticed({"a": [False], "b": [True]}) == [] and rot.unnoticed({"a": [False], "b": []}) == ["a", "b"]


def test_a_seeded_defect_shows_that_quiet_gates_see_damage() -> None:
    called = [check.words[-1] for defect in seeded.DEFECTS for check in defect.checks]
    quiet = [sample for sample, gate in rot.GATES.items() if gate.quiet]
    assert quiet and all(any(f"rot.GATES[{sample!r}]" in call for call in called) for sample in quiet)


def test_what_an_error_names_is_what_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.npy").touch()
    for where, found, remedy, named in (
        ("a/x.npy", "other bytes", "restore it", "a/x.npy"),
        ("a", "x.npy, y.npy", "prepare it again", "a/x.npy"),
        ("a", f"No such file: '{tmp_path}/a/z.npy'", "prepare it again", "a/z.npy"),
        ("a", "x.npy", "remove it, or move it elsewhere", "a"),
        ("a", "x.npy", f"restore them, or remove the folder {tmp_path} to do this again", "."),
    ):
        error = FileError("bad", where=str(tmp_path / where), found=found, expected="another", remedy=remedy)
        assert rot.named_in(f"a warning of {tmp_path}/b\nerror: {error}\n", tmp_path) == [tmp_path / named]
    record, beside = tmp_path / "a" / "job.json", tmp_path / "a" / "x.npy"
    assert rot.concerns([tmp_path / "a"], record, gone=False) and not rot.concerns([], record, gone=False)
    assert rot.concerns([beside], record, gone=True) and not rot.concerns([beside], record, gone=False)


def test_a_proof_that_breaks_down_is_a_goal_that_does_not_hold() -> None:
    future: Future[Proof] = Future()
    future.set_exception(AssertionError("no file like w.parquet\nmore"))
    proof = proof_of(future, Goal("a", "all", lambda: (1, [])), 0)
    assert proof.failures == ["the proof broke down: AssertionError: no file like w.parquet"] and proof.goal == "a"
    assert ": 0 of 1 (all)" in line(proof, nightly=False)


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
