"""The documents tell the truth: their code runs, their commands parse, their names and links exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import docs
from tests.house import STEP, STEPS

ROOT = Path(__file__).parent.parent
FOLDERS = (".", "docs", "benchmarks", "experiments")
DOCUMENTS = {str(path.relative_to(ROOT)): path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))}
WIDTH = 120


def readme() -> str:
    return (ROOT / "README.md").read_text()


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text()


# ------------------------------------------------------------------------------------------------------------- the README


def test_the_readme_is_short_and_begins_with_code() -> None:
    lines = readme().splitlines()
    assert len(lines) <= 120
    assert next(number for number, line in enumerate(lines, 1) if line == "```python") <= 25


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", readme(), re.S)
    assert blocks
    code = "\n".join(blocks)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------------------------------------- pages made from code


@pytest.mark.parametrize("page", docs.pages(), ids=lambda path: path.name)
def test_pages_made_from_the_code_are_up_to_date(page: Path) -> None:
    assert page.read_text() == docs.pages()[page](), "run: python -m tests.docs"


def test_every_trainer_has_an_example_of_three_lines_at_most_and_names_what_it_closes() -> None:
    shared = {"paired", "tabular", "images"}  # what examples have in common
    assert {path.stem for path in docs.EXAMPLES.glob("*.py")} == {*docs.TRAINERS, *docs.FURTHER} | shared
    for file in (*docs.TRAINERS, *docs.FURTHER):
        assert 1 <= len(docs.lines_in(file)) <= 3 and len(docs.traps_in(file)) >= 2, file


def test_the_results_of_every_trainer_are_whole_trials_of_a_commit_without_changes() -> None:
    found = docs.trials_of_examples()
    assert {example for example, _ in found} == {*docs.TRAINERS, *docs.FURTHER}
    for where, trials in found.items():
        assert [each["trial"] for each in trials] == [*range(len(trials))] and len(trials) > 1, where
        assert len({(each["base"], each["commit"], *each["accuracies"]) for each in trials}) == 1, where
        assert re.fullmatch(r"[0-9a-f]{12}", trials[0]["commit"]), where


def test_the_picture_of_the_rooms_is_the_order_that_is_tested() -> None:
    assert " ← ".join(step[0] if len(step) == 1 else f"{{ {' | '.join(step)} }}" for step in STEPS) in architecture()


def test_the_tree_matches_the_disk() -> None:
    (tree,) = re.findall(r"```text\n(wdistill/ .*?)```", architecture(), re.S)
    listed = {line.split()[0] for line in tree.splitlines()}
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    on_disk = [path for path in tracked.stdout.splitlines() if (ROOT / path).exists()]
    assert listed == {path.split("/")[0] + "/" for path in on_disk if "/" in path and not path.startswith(".")}


def test_the_walks_name_files_that_exist() -> None:
    walks = "".join(re.findall(r"```text\n(cli/.*?|training/.*?)```", architecture(), re.S))
    files = set(re.findall(r"\b((?:[a-z_]+/)+(?:[a-z_]+\.py)?)", walks))
    assert len(files) > 15
    assert [each for each in sorted(files) if not (ROOT / "wdistill" / each).exists()] == []


# --------------------------------------------------------------------------------------------------------- every document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    path = DOCUMENTS[name]
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", path.read_text()):
        if not target.startswith("http"):
            file = (path.parent / target) if target else path
            assert file.exists(), target
            assert not anchor or file.suffix != ".md" or anchor in anchors(file.read_text()), f"{target}#{anchor}"


def anchors(text: str) -> set[str]:
    """The places of a document that can be linked to, named as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_prose_is_wrapped(name: str) -> None:
    text = re.sub(r"<!-- .*? made by .*?<!-- end -->|^```.*?^```", "", DOCUMENTS[name].read_text(), flags=re.S | re.M)
    long = [line for line in text.splitlines() if len(line) > WIDTH and not line.startswith(("|", "!["))]
    assert long == []


@pytest.mark.parametrize("name", ["equations.md", "theory.md", "best.md", "architecture.md"])
def test_every_name_is_in_the_module_that_is_said(name: str) -> None:
    rooms = dict.fromkeys(STEP, "wdistill") | {"theory": "experiments"}
    names = set(re.findall(r"`([a-z_]+(?:\.(?!html)\w+)+)`", (ROOT / "docs" / name).read_text()))
    names = {f"{rooms[each.split('.')[0]]}.{each}" for each in names if each.split(".")[0] in rooms}
    assert len(names) > 5
    assert [each for each in sorted(names) if not defined(each)] == []


def defined(dotted: str) -> bool:
    """Whether a dotted name is an object of the module that it names, or a module."""
    module, parts = dotted, []
    while True:
        try:
            value: Any = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, part = module.rpartition(".")
            parts.insert(0, part)
    for part in parts:
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return not parts or getattr(value, "__module__", module) == module


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if "```bash" in DOCUMENTS[name].read_text()])
def test_commands_parse(name: str) -> None:
    from wdistill.cli.entry import parser

    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENTS[name].read_text(), re.S)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    for line in lines:
        if line.startswith("wdistill "):
            parser().parse_args([word.strip("'") for word in line.split(" #")[0].split()[1:]])


SCRIPTS = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_examples_and_benchmarks_import_names_that_exist(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("wdistill", "experiments"):
            assert all(imported(str(node.module), alias.name) for alias in node.names), ast.unparse(node)


def imported(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", DOCUMENTS[name].read_text(), re.M)) <= targets
