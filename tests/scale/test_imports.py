"""Where Ray and Spark are installed, no process loads them unless they are asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale.clusters import rows_in_files
from tests.scale.commands import distilling
from tests.test_architecture import OF_ENGINES


def imported(folder: Path, *words: object) -> set[str]:
    """All modules that a command and the processes that it starts import, whether or not they drop them again."""
    command = [sys.executable, "-m", "wdistill", *map(str, words)]
    told = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=told, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return set(re.findall(r"^import time: .*\| +([\w.]+)$", done.stderr, re.MULTILINE))


def weighing(folder: Path) -> list[object]:
    given = rows_in_files(folder)
    return ["weigh", "--validation", *given.validation, "--unlabeled", *given.unlabeled, "--output"]


COMMANDS = {
    "help": lambda folder: ["weigh", "--help"],
    "weigh": lambda folder: [*weighing(folder), "w.parquet"],
    "engine local": lambda folder: [*weighing(folder), "w", "--engine", "local", "--workers", "2"],
    "distill": lambda folder: [*distilling(folder), "--epochs", 1, "--run", folder / "run"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_engines_are_loaded_only_where_they_are_asked_for(name: str, tmp_path: Path) -> None:
    modules = imported(tmp_path, *COMMANDS[name](tmp_path))
    assert "wdistill.cli.entry" in modules
    assert {module.partition(".")[0] for module in modules}.isdisjoint(OF_ENGINES)


def test_they_are_found_where_they_are_loaded(tmp_path: Path) -> None:
    """And are installed here."""
    (tmp_path / "my_teacher.py").write_text("import ray, pyspark, fsspec\ndef same(x):\n    return x / x.sum(1)[:, None]")
    words = ["label", "--teacher", "my_teacher:same", "--unlabeled", rows_in_files(tmp_path).unlabeled[0]]
    modules = imported(tmp_path, *words, "--inputs", "teacher", "--output", tmp_path / "labeled.parquet")
    assert {*OF_ENGINES} <= modules
