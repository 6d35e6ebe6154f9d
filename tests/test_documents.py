"""Figures in documents are made of the lines of results, never by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from matplotlib.container import ErrorbarContainer

from benchmarks.measuring import RESULTS
from experiments.lab.documents import END, filled, mark
from experiments.lab.figures import rendered
from experiments.lab.items import Item
from experiments.lab.results import Line, budgets
from experiments.lab.tables import paired
from experiments.paper.catalogue import ITEMS
from experiments.paper.claims import CLAIMS, COLUMNS, claims, claims_figure, printed
from experiments.paper.reasons import reasons
from experiments.paper.reproduce import HERE, blocks, read_lines
from tests.test_views import line
from wdistill.report.words import signed

README = HERE.parent / "README.md"

DOCUMENTS = {HERE / "README.md": ("results", "reasons"), HERE.parent / "docs" / "results.md": ("claims",)}  # what is there
REMEDY = "run: wdistill reproduce all --trials 0"
PLACE = re.compile(r"-?\d+(?:\.\d+)?")  # a number in a figure, which rounding may touch
HASH = re.compile(r"\b[a-z][0-9a-f]{10}\b")  # a name that is made of such numbers


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(HERE.parent)))
def test_the_results_in_a_document_are_those_of_the_lines(document: Path) -> None:
    lines = {name: each for item in ITEMS for name, each in read_lines(item, HERE).items()}
    text = document.read_text()
    assert all(mark(name, "wdistill reproduce") in text for name in DOCUMENTS[document]) and END in text
    assert filled(text, blocks(lines)) == text, REMEDY


@pytest.mark.slow
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_tables_in_the_repository_are_those_of_the_lines(item: Item) -> None:
    known, path = read_lines(item, HERE), HERE / "tables" / f"{item.name}.md"
    if not any(known.values()):
        assert not path.exists(), f"a table without lines: {path}"
        return
    assert path.read_text() == item.tables(known), REMEDY
    for stem, figure in item.figures(known).items():
        path = HERE / "figures" / f"{stem}.svg"
        assert path.exists() and same_picture(path.read_text(), rendered(figure).decode()), f"{stem}: {REMEDY}"


@pytest.mark.slow
def test_the_figure_of_the_claims_is_that_of_the_lines() -> None:
    lines = {name: each for item in ITEMS for name, each in read_lines(item, HERE).items()}
    drawn = rendered(claims_figure(lines)).decode()
    assert same_picture((HERE / "figures" / "claims.svg").read_text(), drawn), REMEDY


def test_what_the_readme_says_by_hand_of_the_papers_weights_is_that_of_the_lines() -> None:
    """The paper's weights without gold as labels: row 2, last sentence."""
    lines = {name: each for item in ITEMS for name, each in read_lines(item, HERE).items()}
    pairs = [budgets(lines[name])[0] for name in COLUMNS["all small pairs"][0]]
    found = paired(pairs, "debiased", "unweighted", "final")
    assert found is not None and found.standard_error is not None and len(pairs) == 3
    gain = f"{signed(100 * found.mean)} ± {100 * found.standard_error:.2f} in {found.trials} trials of three small pairs"
    assert f"Without gold as labels: {gain} of models" in README.read_text()


def test_the_times_of_the_readme_are_those_that_were_measured_last() -> None:
    told = [json.loads(text) for text in RESULTS.read_text().splitlines()]
    wanted = {"n": 1_000_000, "K": 10, "kind": "probabilities", "peer": "NumPy + scikit-learn", "quick": False}
    last = [each for each in told if all(each.get(name) == value for name, value in wanted.items())][-1]
    assert last["threads"] == 2 and "Xeon" in last["cpu"] and "2.80GHz" in last["cpu"]
    times = f"{last['seconds']:.2f} s; {last['peer']} {last['peer_seconds']:.2f} s"
    how = f"`python -m benchmarks.weigh --only 1,2`, 2-core Xeon at 2.8 GHz, commit {last['commit'][:7]}"
    assert f"| Time to weigh 1,000,000 rows × 10 classes | {times} | {how} |" in README.read_text()


def same_picture(one: str, other: str) -> bool:
    """Whether two figures have the same words and lines, their places to a hundredth."""
    named = []
    for text in (one, other):
        order = {name: f"name{i}" for i, name in enumerate(dict.fromkeys(HASH.findall(text)))}
        named.append(HASH.sub(lambda found, order=order: order[found[0]], text))  # type: ignore[misc]
    words, places = ([split(text) for text in named] for split in (PLACE.split, PLACE.findall))
    return words[0] == words[1] and np.allclose(*(np.array(each, float) for each in places), rtol=0, atol=0.02)


def test_a_stale_figure_is_seen() -> None:
    one = '<path d="M 1.500 2 L 3.25 4"/><text>3 trials</text>'
    assert same_picture(one, one) and same_picture(one, one.replace("3.25", "3.255").replace("1.500", "1.499"))
    assert same_picture('<use href="#m0123456789"/>', '<use href="#mabcdefabcd"/>')
    for stale in (one.replace("3.25", "3.5"), one.replace("3 trials", "4 trials"), one.replace("path", "line")):
        assert not same_picture(one, stale)


@pytest.mark.slow
def test_no_figure_is_left_over() -> None:
    made = {stem for item in ITEMS if any((known := read_lines(item, HERE)).values()) for stem in item.figures(known)}
    assert {path.stem for path in (HERE / "figures").glob("*.svg")} == made | {
        "claims",
        "confirmation",
        "leaderboard",
        "leaderboard-predictions",
    }


@pytest.mark.parametrize("begin", blocks({}))
def test_a_place_is_filled_and_nothing_else_is_touched(begin: str) -> None:
    made = blocks({})
    before = f"one\n{begin}\nold\n{END}\ntwo\n"
    after = filled(before, made)
    assert after == f"one\n{begin}\n{made[begin]}{END}\ntwo\n"
    assert filled(after, made) == after and filled("no place", made) == "no place"


def test_a_place_inside_of_a_line_stays_there() -> None:
    begin = mark("few", "a command")
    before = f"| {begin}old\nones{END} | {begin}{END} |"
    assert filled(before, {begin: "new"}) == f"| {begin}new{END} | {begin}new{END} |"


def test_reasons_are_the_mean_weights_of_wrong_and_right_rows() -> None:
    def weighed(trial: int, wrong: float, right: float, name: str = "debiased") -> Line:
        weights: list[dict[str, float]] = [{"after": 0, "wrong": 1.0, "right": 1.0, "below_one": 0.2 + 0.1 * trial}]
        weights += [{"after": 3, "wrong": wrong, "right": right, "below_one": 0.9}]
        arms = {"unweighted": {}, name: {"weights": weights, "error": {"wrong": wrong / 2, "right": None}}}
        known = {"experiment": "x", "labels": 1500, "trial": trial, "repeat": None, "paper_budget": None}
        known["budget"] = {"epochs": 3, "unlabeled": 40}
        return {**known, "data": {}, "arms": arms, "teacher": {"unlabeled": 0.9 - trial / 10}}

    text = reasons({"x": [weighed(0, 0.5, 0.9), weighed(1, 0.7, 1.0)]})
    assert "| 1,500 | 15.0 % | – | – | 25 % | 0.600 / 0.950 | – | – | – | – | – |" in text
    known = weighed(0, 0.5, 0.9)
    known["arms"]["debiased"]["error"]["right"] = 0.125
    known["arms"]["debiased"]["distortion"] = {"wrong": 12345.6, "right": 1.0}
    alone = reasons({"x": [known]})
    assert "| 1,500 | 10.0 % | 0.250 / 0.125 | 12,346 / 1.000 | 20 % | 0.500 / 0.900 | – | – | – | – | – |" in alone
    assert "| 0.250 / 0.125 (1) | 12,346 / 1.000 (1) | 25 % |" in reasons({"x": [known, weighed(1, 0.7, 1.0)]})
    hot = reasons({"x": [weighed(0, 0.5, 0.9, "debiased-T0.1")]})
    assert "| x, T = 0.1 |" in hot and "| 20 % | 0.500 / 0.900 | – | – | – | – | – |" in hot


def test_a_claim_is_judged_by_trials_and_not_by_numbers_of_labels() -> None:
    """Trials 0 to 2 of two numbers of labels: their means are 1, 2 and 3 points; trial 3 lacks one, and does not count."""
    gains = {(0, 500): 0.0, (0, 1000): 2.0, (1, 500): 2.0, (1, 1000): 2.0, (2, 500): 1.0, (2, 1000): 5.0, (3, 500): 50.0}
    known = [line({"unweighted": 0.5, "debiased": 0.5 + gain / 100}, *at, repeat=at[0]) for at, gain in gains.items()]
    found = paired(budgets(known), "debiased", "unweighted", "best")
    assert found and found.trials == 3 and found.mean == pytest.approx(0.02)
    assert found.standard_error == pytest.approx(0.01 / np.sqrt(3))
    assert found.p == pytest.approx(float(scipy.stats.ttest_1samp([1, 2, 3], 0).pvalue))
    both = paired([*budgets(known), *budgets(known)], "debiased", "unweighted", "final")
    assert both and both.trials == 6
    assert paired(budgets(known), "vid", "unweighted", "best") is None


def test_a_claim_of_all_temperatures_is_their_mean() -> None:
    arms = {"unweighted-T1": 0.5, "debiased-T1": 0.51, "unweighted-T2": 0.5, "debiased-T2": 0.53, "debiased-T3": 0.9}
    found = paired([[line(arms, 0)]], "debiased-T*", "unweighted-T*", "best")
    assert found and found.mean == pytest.approx(0.02) and found.trials == 1


def test_claims_have_the_papers_differences_and_ours() -> None:
    gains = [1.0, 1.2, 0.8, 1.1, 0.9]
    known = [line({"unweighted": 0.5, "debiased": 0.5 + gain / 100}, i, repeat=i) for i, gain in enumerate(gains)]
    text = claims({"small-svhn": known, "unknown": known})
    assert (
        "| debiased − unweighted | +0.07 to +0.84 | +1.00 ± 0.07† / +1.00 ± 0.07† | +1.00 ± 0.07† / +1.00 ± 0.07† |" in text
    )
    assert "SVHN, small pair, 5 trials | all small pairs, 5 trials |" in text and "CelebA" not in text.splitlines()[0]
    assert "| debiased-vid − vid | +0.20 to +0.27 | – | – |" in text
    known[0]["arms"] |= dict.fromkeys(("vid", "debiased-vid"), known[0]["arms"]["debiased"])
    assert "| debiased-vid − vid | +0.20 to +0.27 | 0.00 / 0.00 (1) | 0.00 / 0.00 (1) |" in claims({"small-svhn": known})
    assert claims({}) == claims({"unknown": known}) == "No results yet.\n"


def test_the_paper_and_no_more_is_claimed_to_be_its() -> None:
    """The ranges of the paper's tables, found here by hand."""
    text = claims({"svhn": [line({"unweighted": 0.5, "debiased": 0.6})]})
    ranges = {"debiased-hard − unweighted-hard": "+0.13 to +0.52", "debiased-T* − unweighted-T*": "−0.11 to +0.93"}
    ranges |= {"unweighted-hard − unweighted": "−0.25 to −0.02", "composition − fidelity": "−0.29 to +2.45"}
    for pair, found in ranges.items():
        assert f"| {pair} | {found} |" in text


def test_the_figure_of_the_claims_shows_intervals_and_the_papers_range() -> None:
    gains = [1.0, 1.2, 0.8, 1.1, 0.9]
    known = [line({"unweighted": 0.5, "debiased": 0.5 + gain / 100}, i, repeat=i) for i, gain in enumerate(gains)]
    (axes,) = claims_figure({"small-svhn": known}).axes
    (row,) = [i for i, claim in enumerate(CLAIMS) if (claim.arm, claim.base) == ("debiased", "unweighted")]
    (bars,) = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    low, high = bars.lines[2][0].get_segments()[0][:, 0]
    expected = scipy.stats.ttest_1samp(gains, 0).confidence_interval()
    assert (low, high) == pytest.approx((expected.low, expected.high))
    boxes = [
        (patch.get_x(), patch.get_x() + patch.get_width(), round(patch.get_y() + patch.get_height() / 2))
        for patch in axes.patches
    ]
    assert [(left, right) for left, right, height in boxes if height == row] == [pytest.approx(printed(CLAIMS[row]))]
