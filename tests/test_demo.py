"""The demo tells what its numbers say, whichever way they turn out; examples/digits.py leaves one picture behind."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wdistill.cli import digits
from wdistill.cli.digits import Forecast, inject, leader, splits, story
from wdistill.core.errors import ConfigError
from wdistill.report.seal import is_ours
from wdistill.report.tables import choices
from wdistill.runs.outcome import Epoch, Outcome, Refresh, Training
from wdistill.weights.diagnostics import Histogram

DEMO = Path(__file__).parents[1] / "examples" / "digits.py"


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DEMO)], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for arm in ("debiased", "shuffled", "oracle"):
        assert re.search(rf"{arm} +│ \d+\.\d\d +│ [+-]\d+\.\d\d ± \d+\.\d\d", done.stdout), done.stdout
    assert re.search(r"unweighted +│ \d+\.\d\d", done.stdout)
    assert re.search(r"teacher's margin +│ 0\.\d+ +│ 0\.\d+ +│ 0\.\d+", done.stdout)
    assert "In words: the student with debiased weights is" in done.stdout
    assert "not tuned on test accuracy" in done.stdout

    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [Path("demo/digits.png")]
    content = (tmp_path / "demo" / "digits.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width == 1600
    assert height >= 800
    assert len(content) > 50_000
    assert "demo/digits.png" in done.stdout.splitlines()[-1]


NATURAL = {
    "unweighted + gold": 0.90,
    "labels alone": 0.92,
    "paper + gold": 0.905,
    "best": 0.94,
    "shuffled + gold": 0.90,
    "oracle + gold": 0.95,
}
INJECTED = {"unweighted": 0.86, "paper": 0.88, "shuffled": 0.86, "oracle": 0.92}
FORECASTS = [Forecast("correct the targets: about +2.0 points", "93.0 % (90.0–95.0)", points) for points in (2.0, 2.2, 1.8)]


def outcomes(means: dict[str, float]) -> list[Outcome]:
    """Three trials, whose arms end around these test accuracies."""
    weights = Histogram().plus(np.array([0.5, 1.0]))
    refresh = Refresh(0, weights, weights, weights, 0, 0, 1.0, 0.1, 0.1, "weights/00000.parquet")
    trials = []
    for shift in (-0.01, 0.0, 0.01):
        arms = {}
        for i, (name, mean) in enumerate(means.items()):
            test = mean + shift + 0.0003 * i * np.sign(shift)
            arms[name] = Training(name, (Epoch(1, 0.1, 0.1, None, test, 10, 0.1),), (refresh,))
        student, rows = Training("student", ()), {"labeled": 80, "validation": 300, "unlabeled": 900, "test": 500}
        known = {"teacher": {"unlabeled": 0.9}}
        trials.append(Outcome(Path("run"), "finished", {}, {}, rows, 10, None, student, known, arms, {}))
    return trials


def test_the_first_ten_lines_are_the_verdict_and_every_arm_with_its_paired_difference() -> None:
    lines = story(FORECASTS, outcomes(NATURAL), outcomes(INJECTED))
    assert lines[0].startswith("Verdict of `advise`") and "correct the targets" in " ".join(lines[:2])
    for arm, mean in NATURAL.items():
        (line,) = (line for line in lines[:10] if line.startswith(f"{arm}  "))
        assert f"{100 * mean:.2f}" in line
        assert ("±" in line) == (arm != "unweighted + gold")
    assert all(len(line) <= 80 for line in lines)
    assert "predicted +2.00 points over unweighted + gold in the mean of all trials; +4.00" in " ".join(lines)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, "best is highest: beyond chance above labels alone (+2.00 ± 0.03), paper + gold"),
        ({"labels alone": 0.96}, "labels alone is highest: beyond chance above best (+2.00 ± 0.03)"),
        ({"best": 0.85, "labels alone": 0.8, "paper + gold": 0.8}, "unweighted + gold is highest: beyond chance above best"),
    ],
)
def test_the_sentence_follows_the_numbers_whichever_way_they_turn_out(changed: dict[str, float], wanted: str) -> None:
    assert wanted in leader(outcomes({**NATURAL, **changed}))


def test_a_lead_within_chance_is_called_one() -> None:
    trials = outcomes(NATURAL)
    mixed = []
    for trial, (best, labels) in zip(trials, [(0.95, 0.90), (0.90, 0.95), (0.94, 0.93)], strict=True):
        arms = dict.fromkeys(("unweighted + gold", "paper + gold"), labels) | {"best": best, "labels alone": labels}
        changed = {
            name: replace(trial.arms[name], epochs=(replace(trial.arms[name].epochs[0], test=test),))
            for name, test in arms.items()
        }
        mixed.append(replace(trial, arms={**trial.arms, **changed}))
    assert "best is highest: not beyond chance above any other." in leader(mixed)


def test_reasons_that_differ_by_trial_are_counted_not_listed() -> None:
    trials = outcomes(NATURAL)
    reasons = (
        "targets corrected by forest: +1.0",
        "targets corrected by forest: +2.0",
        "the teacher's own targets: no gain",
    )
    chosen = [
        replace(trial, arms={"best": replace(trial.arms["best"], why=why)})
        for trial, why in zip(trials, reasons, strict=True)
    ]
    counted = "targets corrected by forest (in 2 of 3 trials); the teacher's own targets (in 1 of 3 trials)"
    assert choices(chosen) == [("best", counted)] and choices(chosen[:1]) == [("best", reasons[0])]


def test_splits_share_no_row_and_only_unsure_rows_are_hit() -> None:
    parts = splits(3)
    assert {name: len(labels) for name, (_, labels) in parts.items()} == {
        "labeled": 80, "validation": 300, "test": 500, "unlabeled": 917
    }  # fmt: skip
    sure = np.where(np.eye(10, dtype=bool)[:5], 100.0, 0.0)
    assert (inject(sure, 0) == sure).all()
    unsure = np.tile(np.r_[0.02, 0.01, np.zeros(8)], (2000, 1))
    assert 0.85 < np.mean(inject(unsure, 0).argmax(axis=1) == 1) < 0.95


class Inline:
    """A pool that does the work here, so that settings can be smaller."""

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*given))
        return future


@pytest.mark.slow
@pytest.mark.proof
def test_an_old_folder_is_left_alone_and_the_same_demo_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def inline(*_: Any) -> Iterator[Inline]:
        yield Inline()

    monkeypatch.setattr(digits, "process_pool", inline)
    monkeypatch.setattr(digits, "TRIALS", 2)
    monkeypatch.setattr(digits, "RECIPE", replace(digits.RECIPE, teacher_epochs=8, student_epochs=20, epochs=3))
    old = tmp_path / "demo" / "natural" / "trial-0" / "generation-1.json"
    old.parent.mkdir(parents=True)
    old.write_text("a run of an older demo")
    digits.demo(tmp_path / "demo")
    first = capsys.readouterr().out
    assert first.startswith("Verdict of `advise`") and first.rstrip().endswith("report.html")
    assert is_ours(tmp_path / "demo" / "report.html") and old.read_text() == "a run of an older demo"
    digits.demo(tmp_path / "demo")
    assert capsys.readouterr().out == first


def test_a_page_of_somebody_else_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(ConfigError, match="not a page that wdistill wrote"):
        digits.demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
