"""The harness itself, in small: every file has a row in the table, and goals are named and found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.killing import child
from tests.reliability import artefacts, jobs
from tests.reliability.goals import goals

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [name for name in jobs.JOBS if name not in ("distill best", "export")])
def test_every_file_that_a_job_writes_has_a_row(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()

    def before(operation: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(f"{operation} {path}\n")

    def run(folder: Path) -> None:
        jobs.prepare_process()
        jobs.as_command(jobs.JOBS[name].run)(folder)

    assert child(tmp_path / "job", before, run) == 0
    written = artefacts.written_by(log.read_text().splitlines(), tmp_path / "job")
    left = {path.relative_to(tmp_path / "job").as_posix() for path in (tmp_path / "job").rglob("*") if path.is_file()}
    assert len(written) > 3 and left <= written | {"lock"}
    assert {path for path in written | left if artefacts.row_of(path) is None} == set()


def test_goals_have_names_of_their_own() -> None:
    names = [goal.name for goal in goals(False, 0)]
    assert len(names) == len(set(names)) > 25


def test_the_page_has_the_table_of_files() -> None:
    page = (Path(__file__).parent.parent / "docs" / "reliability.md").read_text()
    assert artefacts.table() in page, "run: python -m tests.reliability --write"


def test_every_promise_names_tests_that_exist() -> None:
    root = Path(__file__).parent.parent
    named = re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`", (root / "SECURITY.md").read_text())
    assert len(named) > 8
    assert [pair for pair in named if f"def {pair[1] or 'test'}" not in (root / pair[0]).read_text()] == []
