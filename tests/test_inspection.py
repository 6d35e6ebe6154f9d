"""Inspection: bins that no order of rows changes, histograms that add up exactly, and pictures that say what is known."""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from wdistill import ConfigError, InputError, Scores, entropy, margin
from wdistill.report.inspect import picture, tables
from wdistill.weights.debiased import Debiased
from wdistill.weights.diagnostics import Histogram, accuracy_by_margin, plane, reliability, standard_error
from wdistill.weights.equations import effective_sample_size

WEIGHTS = np.array([0.0, 0.05, 0.049, 0.15, 0.5, np.nextafter(1, 0), 1.0, 1.0])


def fitted(m: int = 60, seed: int = 0) -> Debiased:
    """A rule fitted on a teacher that errs where its margin is small."""
    random = np.random.default_rng(seed)
    margins = random.random(m)
    return Debiased(
        confidence=margin,
        targets="soft",
        estimate="paper",
        k=min(3, m),
        classes=3,
        points=np.stack([margins, random.random(m)], axis=1),
        wrong=random.random(m) > margins,
        truth_loss=random.random(m) + 0.1,
        target_loss=3 * random.random(m),
        margins=margins,
        certainty=0.5 + margins / 2,
        rounding=0.0,
    )


def words(fit: Debiased | None, histogram: Histogram | None, title: str = "") -> str:
    """Every text drawn in a picture, as the comments of its SVG spell them."""
    svg = picture(fit, histogram, title, "svg").decode()
    return "\n".join(re.findall(r"<!-- (.*?) -->", svg, re.DOTALL))


def printed(fit: Debiased | None, histogram: Histogram | None, notes: dict[str, str]) -> list[str]:
    shown = []
    for table in tables(fit, histogram, notes):
        console = Console(width=200, file=io.StringIO(), color_system=None)
        console.print(table)
        shown.append(console.file.getvalue())
    return shown


# -- bins


def test_bins_by_hand() -> None:
    first, second = accuracy_by_margin(np.array([0.4, 0.1, 0.3, 0.2]), np.array([False, True, False, False]), bins=2)
    assert (first.low, first.high, first.rows, first.accuracy) == (0.1, 0.2, 2, 0.5)
    assert (second.low, second.high, second.rows, second.accuracy) == (0.3, 0.4, 2, 1.0)
    assert first.mean == pytest.approx(0.15)
    assert second.standard_error == standard_error(2, 2)


@pytest.mark.parametrize("m", [1, 3, 10, 97, 100])
def test_bins_hold_equally_many_rows(m: int) -> None:
    rows = [each.rows for each in accuracy_by_margin(np.random.default_rng(m).random(m), np.zeros(m, bool))]
    assert sum(rows) == m
    assert max(rows) - min(rows) <= 1
    assert len(rows) == min(m, 10)


def test_equal_margins_share_a_bin_and_order_does_not_matter() -> None:
    random = np.random.default_rng(0)
    margins, wrong = np.round(random.random(200) ** 0.2, 1), random.random(200) < 0.3
    bins = accuracy_by_margin(margins, wrong)
    assert all(one.high < other.low for one, other in pairwise(bins))
    for _ in range(5):
        order = random.permutation(200)
        assert accuracy_by_margin(margins[order], wrong[order]) == bins


def test_standard_error_is_the_usual_one_for_many_rows_and_never_zero() -> None:
    assert standard_error(80_000, 100_000) == pytest.approx(np.sqrt(0.8 * 0.2 / 100_000), rel=1e-3)
    assert standard_error(3, 3) == pytest.approx(np.sqrt(4 / 5 * 1 / 5 / 6))


def test_calibration_error() -> None:
    wrong = np.array([True, False] * 50)
    assert reliability(np.full(100, 0.5), wrong).error == pytest.approx(0)
    assert reliability(np.full(100, 0.9), wrong).error == pytest.approx(0.4)
    two = reliability(np.repeat([0.6, 1.0], [25, 75]), np.repeat([True, False], [25, 75]))
    assert two.error == pytest.approx(0.25 * 0.6)


def test_bins_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="bins"):
        accuracy_by_margin(np.ones(3), np.zeros(3, bool), bins=0)
    with pytest.raises(InputError, match="3 and 2 rows"):
        accuracy_by_margin(np.ones(3), np.zeros(2, bool))
    with pytest.raises(InputError, match="0 rows"):
        reliability(np.ones(0), np.zeros(0, bool))


# -- histogram


def test_histogram_by_hand() -> None:
    found = Histogram().plus(WEIGHTS)
    expected = [0] * 20
    expected[0], expected[1], expected[3], expected[10], expected[19] = 2, 1, 1, 1, 1
    assert list(found.counts) == expected
    assert (found.ones, found.rows) == (2, 8)
    assert found.share_below_one == 6 / 8
    assert found.mean == pytest.approx(WEIGHTS.mean(), rel=1e-15)
    assert found.effective_sample_size == pytest.approx(effective_sample_size(WEIGHTS), rel=1e-14)


def test_every_edge_opens_its_bin() -> None:
    for i in range(20):
        assert Histogram().plus([i / 20]).counts[i] == 1


def test_chunks_in_any_order_give_the_same_record() -> None:
    weights = np.random.default_rng(0).random(10_000) ** 8
    whole = Histogram().plus(weights)
    for pieces in (3, 977):
        parts = np.array_split(weights[::-1], pieces)
        streamed = Histogram()
        for part in parts:
            streamed = streamed.plus(part)
        assert streamed == whole
        assert sum((Histogram().plus(part) for part in parts), Histogram()) == whole


def test_histogram_of_nothing_and_of_zeros() -> None:
    assert Histogram().plus([0.0][:0]) == Histogram()
    assert (Histogram().mean, Histogram().effective_sample_size, Histogram().share_below_one) == (0, 0, 0)
    assert Histogram().plus([0.0, 0.0]).effective_sample_size == 0


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [np.nan], [[0.5]]])
def test_only_weights_are_counted(bad: list[float]) -> None:
    with pytest.raises(InputError, match="weights"):
        Histogram().plus(bad)


def test_records_cannot_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Histogram().ones = 3  # type: ignore[misc]


# -- plane


def test_plane_covers_the_box_and_answers_as_the_rule_does() -> None:
    fit = fitted()
    found = plane(fit, size=7)
    assert [found.teacher[0], found.student[0]] == fit.points.min(axis=0).tolist()
    assert [found.teacher[-1], found.student[-1]] == fit.points.max(axis=0).tolist()
    weight, error, distortion, _ = fit.estimates(np.array([[found.teacher[5], found.student[2]]]))
    assert (found.weight[2, 5], found.error[2, 5], found.distortion[2, 5]) == (weight[0], error[0], distortion[0])
    assert np.ptp(found.weight) > 0
    assert found.points is fit.points


def test_plane_around_points_that_coincide() -> None:
    fit = replace(fitted(), points=np.full((60, 2), 0.25))
    found = plane(fit, size=5)
    assert found.teacher[0] < 0.25 < found.teacher[-1]
    assert np.ptp(found.error) == 0
    assert found.error[0, 0] == pytest.approx(fit.wrong.mean())


def test_plane_needs_two_points_a_side() -> None:
    with pytest.raises(ConfigError, match="size"):
        plane(fitted(), size=1)


# -- picture


@pytest.mark.slow
def test_png_is_1600_wide() -> None:
    for fit, histogram in ((fitted(), Histogram().plus(WEIGHTS)), (None, Histogram().plus(WEIGHTS))):
        content = picture(fit, histogram, "title", "png")
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">I", content[16:20]) == (1600,)


@pytest.mark.slow
def test_the_same_bytes_every_time() -> None:
    for kind in ("png", "svg"):
        first, second = (picture(fitted(), Histogram().plus(WEIGHTS), "title", kind) for _ in range(2))
        assert first == second


@pytest.mark.slow
def test_only_panels_of_what_is_known() -> None:
    histogram = Histogram().plus(WEIGHTS)
    both, rule_only, weights_only = words(fitted(), histogram), words(fitted(), None), words(None, histogram)
    assert all("Weights of 8" in text for text in (both, weights_only))
    assert all("Reliability" in text and "Estimated distortion" in text for text in (both, rule_only))
    assert "Weights of" not in rule_only
    assert "Weights of" not in words(fitted(), Histogram())
    assert "Reliability" not in weights_only
    assert "25.0% exactly 1" in both


def test_nothing_to_show() -> None:
    for histogram in (None, Histogram()):
        with pytest.raises(InputError, match="nothing to show"):
            picture(None, histogram, "title", "png")
    with pytest.raises(ConfigError, match="pdf"):
        picture(fitted(), None, "title", "pdf")  # type: ignore[arg-type]


def test_titles_are_text_and_not_mathematics() -> None:
    histogram = Histogram().plus(WEIGHTS)
    assert r"cost $\frac$ of it" in words(None, histogram, r"cost $\frac$ of it")  # as mathematics this is an error
    assert r"\x1b[31m □" in words(None, histogram, "\x1b[31m 口")
    assert "\n" + "a" * 54 + " … " + "b" * 54 + "\n" in words(None, histogram, "a" * 999 + "b" * 999) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("confidence", "word"),
    [
        (margin, "student's margin"),
        (entropy, "student's entropy (nats)"),
        (Scores(np.ones(60), np.ones(60)), "student's score"),
        (lambda values: values[:, 0], "student's confidence"),
    ],
)
def test_axes_are_named_by_the_confidence(confidence: object, word: str) -> None:
    assert word in words(replace(fitted(), confidence=confidence), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "estimate"),
    [(case, "paper") for case in ("all right", "all wrong", "one row", "three rows", "coincide", "saturated")]
    + [(case, estimate) for case in ("no loss", "huge") for estimate in ("conditional", "ratio")],
)
def test_odd_validation_sets_are_drawn(case: str, estimate: str) -> None:
    fit = replace(fitted({"one row": 1, "three rows": 3}.get(case, 60)), estimate=estimate, k=1)
    m = len(fit.wrong)
    if case in ("all right", "all wrong"):
        fit = replace(fit, wrong=np.full(m, case == "all wrong"))
    if case == "coincide":
        fit = replace(fit, points=np.full((m, 2), 0.25), margins=np.full(m, 0.25))
    if case == "saturated":
        near = 1 - np.logspace(-17, -3, m)
        fit = replace(fit, points=np.stack([near, near], axis=1), margins=near, certainty=near)
    if case == "no loss":
        fit = replace(fit, target_loss=np.zeros(m))
    if case == "huge":
        fit = replace(fit, truth_loss=np.zeros(m), target_loss=np.full(m, 27.6))
    assert f"{m} validation rows" in words(fit, None)


def test_pictures_heed_nobody_elses_settings() -> None:
    import matplotlib

    histogram = Histogram().plus(WEIGHTS)
    plain = picture(None, histogram, "title", "png")
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 40}):
        assert picture(None, histogram, "title", "png") == plain
        assert matplotlib.rcParams["font.size"] == 40


@pytest.mark.slow
def test_matplotlib_is_imported_only_to_draw_and_pyplot_never() -> None:
    code = (
        "import sys, wdistill.report.inspect as i; h = i.Histogram().plus([0.5, 1.0])\n"
        "assert not {'matplotlib', 'rich'} & set(sys.modules)\n"
        "i.picture(None, h, '', 'png'); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- tables


def test_tables_hold_the_numbers() -> None:
    fit, histogram = fitted(), Histogram().plus(WEIGHTS)
    summary, by_margin, calibration, weights = printed(fit, histogram, {"clipped": "7"})
    right = int((~fit.wrong).sum())
    assert f"{right / 60:.4f} ± {standard_error(right, 60):.4f}" in summary
    assert f"{histogram.effective_sample_size:,.1f}" in summary
    assert f"{fit.distortion.max():.4g}" in summary
    assert re.search(r"weights below 1 +│ 6 \(75.0%\)", summary)
    assert re.search(r"clipped +│ 7", summary)
    for text, bins in (
        (by_margin, accuracy_by_margin(fit.margins, fit.wrong, 6)),
        (calibration, reliability(fit.certainty, fit.wrong, 6).bins),
    ):
        assert [f"{each.accuracy:.4f}" in text for each in bins] == [True] * 6
    assert re.search(r"exactly 1 +│ +2 │ 25.0% │ █{20}", weights)


def test_tables_of_what_is_known() -> None:
    assert len(printed(fitted(), None, {})) == 3
    assert len(printed(None, Histogram().plus(WEIGHTS), {})) == 2
    (alone,) = printed(None, None, {"file": "[red]a\x1b[0m.csv"})
    assert r"[red]a\x1b[0m.csv" in alone


def test_shares_say_all_and_none_only_where_exact() -> None:
    weights = printed(None, Histogram().plus(np.r_[0.5, np.ones(5000)]), {})[1]
    assert "over 99.9%" in weights
    assert "under 0.1%" in weights
    assert "100%" in printed(None, Histogram().plus(np.ones(5)), {})[1]
