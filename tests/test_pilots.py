"""Pilot students: what they are taught, how they are judged, and that they foretell what a student gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests.distilling import QUICK, go, student, teacher
from tests.killing import splits
from wdistill import advise, best, unweighted
from wdistill.methods.best import correct_targets
from wdistill.methods.context import AuxiliaryPredictions, Context, one_hot
from wdistill.methods.interval import difference
from wdistill.methods.metric import parse_metric
from wdistill.methods.pilots import UNFORESEEN, UNFORESEEN_AFTER, PilotPredictions, Unforeseen, forecast, pilot_rows
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.text.linear_pilots import MOST, drawn_rows, linear_pilots
from wdistill.weights.evidence import Evidence


@given(st.integers(1, 500), st.integers(0, 9))
def test_every_row_is_either_taught_or_judged_on(n: int, seed: int) -> None:
    taught, judged = pilot_rows(n, seed)
    assert sorted([*taught, *judged]) == list(range(n)) and len(taught) == max(1, int(0.75 * n))
    assert len(drawn_rows(n, seed)) == n
    assert len(np.unique(drawn_rows(MOST + n, seed))) == MOST


def test_a_forecast_by_hand() -> None:
    targets = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4]])
    pilots = PilotPredictions(targets, one_hot(np.array([0, 0, 1, 1]), 2), one_hot(np.array([0, 1, 0, 0]), 2))
    found = forecast(pilots)
    assert found.value == pytest.approx((0 + 0.6 + 0 + 0.2) / 4)
    losses = forecast(pilots, parse_metric("log-loss", ["a", "b"]))
    assert losses.value > 0  # a smaller loss is a gain


@pytest.mark.parametrize("unforeseen", [UNFORESEEN, UNFORESEEN_AFTER])
@pytest.mark.parametrize("name", ["accuracy", "macro-f1", "balanced-accuracy", "f1:b", "log-loss"])
def test_an_interval_has_what_rows_leave_open_and_by_tried_metrics_how_far_students_are(
    name: str, unforeseen: Mapping[str, Unforeseen]
) -> None:
    rng = np.random.default_rng(3)
    pilots = PilotPredictions(*(rng.dirichlet(np.ones(2), 300) for _ in range(3)))
    metric = parse_metric(name, "ab")
    rows, found = difference(metric, pilots.corrected, pilots.plain, pilots.targets), forecast(pilots, metric, unforeseen)
    half = (rows.high - rows.low) / 2
    width = unforeseen.get(name, Unforeseen(0.0, 0.0))
    assert found.value - found.low == pytest.approx(np.hypot(half, 1.96 * width.below))
    assert found.high - found.value == pytest.approx(np.hypot(half, 1.96 * width.above))
    assert (name in unforeseen) == (name in ("accuracy", "macro-f1"))


def blobs(m: int, n: int, seed: int = 0) -> tuple[Context, np.ndarray, np.ndarray]:
    """Three classes that a line parts; a teacher that takes half of the last class for the first, an expert that knows."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, m + n)
    inputs = rng.normal(size=(m + n, 2)) + 3 * np.array([[0, 0], [2, 0], [0, 2]])[truth]
    wrong = (truth == 2) & (inputs[:, 0] > 0)
    said = np.where(wrong, 0, truth)
    teacher, expert = (0.85 * one_hot(each, 3) + 0.05 for each in (said, truth))
    evidence = Evidence(truth[:m], teacher[:m], None, teacher[m:], None, truth=truth[m:])
    return Context(evidence, {"expert": AuxiliaryPredictions(expert[:m], expert[m:])}), inputs, truth


def test_linear_pilots_foretell_what_a_regression_gains() -> None:
    context, inputs, truth = blobs(100, 2000)
    targets = correct_targets(context).targets.of
    rows = csr_array(inputs)
    found = forecast(linear_pilots(context, targets, rows[:100], np.arange(2000), rows[100:]))
    from wdistill.text.linear import fit_linear

    def accuracy(lesson: np.ndarray) -> float:
        taught = np.concatenate([one_hot(truth[:100], 3), lesson])
        return float(np.mean(fit_linear(rows, taught, penalty=0.1)(rows).argmax(axis=1) == truth))

    real = 100 * (accuracy(targets(context.unlabeled)) - accuracy(context.unlabeled["teacher"]))
    assert real > 5 and abs(100 * found.value - real) < 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*validation rows")
def test_pilots_are_told_first_kept_in_the_run_and_leave_the_arms_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, recipe = splits(), replace(QUICK, epochs=2)
    found = advise(teacher, student, **data, recipe=recipe, run=tmp_path / "run")
    first, *rest = capsys.readouterr().err.splitlines()
    assert "two pilot students will learn" in first and "2 epochs, as long as 1.5 arms take" in first and rest
    assert found.forecast is not None and found.forecast.low < found.forecast.value < found.forecast.high
    trained = {name: CheckpointStore(tmp_path / "run" / "pilots" / name).read("parameters.safetensors")
               for name in ("plain", "corrected")}  # fmt: skip
    assert trained["plain"] != trained["corrected"]
    again = advise(teacher, student, **data, recipe=recipe, run=tmp_path / "run")
    assert again.forecast == found.forecast
    after, alone = go(rule=best, recipe=recipe, run=tmp_path / "run"), go(rule=best, recipe=recipe)
    for one, other in zip(after.student.parameters(), alone.student.parameters(), strict=True):
        assert (one == other).all()
    judged = advise(teacher, student, **data, recipe=recipe, run=tmp_path / "run", metric="macro-f1").judged
    assert judged is not None and judged.forecast is not None and len(judged.by_class) == 3
    hard = advise(teacher, student, **data, recipe=replace(recipe, targets="hard"), rule=[unweighted, best])
    assert hard.forecast is not None
