"""Pages: numbers as computed by hand, parts that are left out, names that stay names, and what a browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from tests.browser import CONTRAST, DESK, PHONE, chromium, executable, opened
from wdistill import EntropyMean, Evidence, compose, debiased, fidelity
from wdistill.report.accuracies import Difference, headline, holm, t_test
from wdistill.report.figures import maps, teacher
from wdistill.report.page import page
from wdistill.report.tables import terminal_table
from wdistill.report.words import duration, verdict
from wdistill.runs.outcome import Epoch, Outcome, Refresh, Training
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.rule import Fitted, Rule
from wdistill.weights.rules import Fidelity

# -- hand-made outcomes


@cache
def fitted(seed: int = 0, rule: Rule[...] = debiased, m: int = 300) -> Fitted:
    """A rule fitted on a teacher and a student that err where they are unsure."""
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(4), random.integers(0, 4, m - 4)])

    def model(skill: float) -> np.ndarray:
        sure = random.random(m)
        said = np.where(random.random(m) < skill + (1 - skill) * sure, labels, random.integers(0, 4, m))
        spread = random.dirichlet(np.ones(4), m)
        return (1 - 0.8 * sure[:, None]) * spread + 0.8 * sure[:, None] * np.eye(4)[said]

    teacher, student = model(0.6), model(0.3)
    return rule.fit(Evidence(labels, teacher, student, teacher, student))


def epochs(accuracies: Sequence[float | None], validation: Sequence[float | None] | None = None) -> tuple[Epoch, ...]:
    seen = validation or accuracies
    return tuple(
        Epoch(i, 1 / i, 0.1, known, test, 1000, 2.0) for i, (test, known) in enumerate(zip(accuracies, seen, strict=True), 1)
    )


def histogram(mean: float, rows: int, random: np.random.Generator) -> Histogram:
    return Histogram().plus(np.minimum(1, random.normal(mean, 0.15, rows).clip(0)))


def refresh(after: int, low: float, random: np.random.Generator, truth: bool = True, flat: bool = False) -> Refresh:
    right = Histogram().plus(np.ones(800)) if flat else histogram(0.97, 800, random)
    wrong = Histogram().plus(np.ones(200)) if flat else histogram(low, 200, random)
    known = (right, wrong) if truth else (None, None)
    return Refresh(after, right + wrong, *known, 12, 1, 3.4, 0.8, 0.02, f"weights/{after}.npy")


RULES = {
    "unweighted": 0.0,
    "debiased": 0.012,
    "fidelity": 0.004,
    "debiased,fidelity": 0.01,
    "threshold": -0.012,
    "oracle": 0.03,
}


def outcome(
    seed: int = 0, length: int = 30, arms: Mapping[str, float] = RULES, truth: bool = True, shift: float = 0.0
) -> Outcome:
    """A run in which each arm ends about as much above the first as said."""
    random = np.random.default_rng(seed)
    luck = random.normal(0, 0.008)
    trained = {}
    for name, gain in arms.items():
        curve = 0.84 + shift + luck + gain - 0.25 * np.exp(-np.arange(1, length + 1) / (length / 6))
        curve += random.normal(0, 0.003, length)
        states = {"debiased": (fitted(0), fitted(1)), "debiased,fidelity": (product(),)}
        steps = range(0, length, max(1, length // 5))
        flat = name == "unweighted"
        trained[name] = Training(
            name,
            epochs(curve.tolist(), (curve + random.normal(0, 0.01, length)).tolist()),
            tuple(refresh(i, 0.9 - 0.4 * i / length, random, truth, flat) for i in (steps[:1] if flat else steps)),
            states.get(name, ()),
            {"train": 2.0 * length, "evaluate": 0.3 * length, "forward": 4.0, "estimate": 0.1, "store": 0.4},
        )
    before = epochs((0.5 + 0.2 * np.arange(10) / 10 + luck).tolist())
    return Outcome(
        Path(f"/runs/trial-{seed}"),
        "finished",
        {"seed": seed, "student": {"rate": 0.1, "epochs": length}, "arms": list(arms), "targets": "soft"},
        {"python": "3.11.7", "torch": "2.13.0", "cpu": "Xeon, 2 cores", "commit": "6a4e5a0"},
        {"labeled": 500, "validation": 300, "unlabeled": 1000, "test": 10000},
        4,
        Training("teacher", epochs([0.8, 0.86 + luck]), seconds={"train": 40.0, "evaluate": 2.0}),
        Training("student", before, seconds={"train": 20.0, "evaluate": 1.0}),
        {
            "teacher": {"validation": 0.86, "unlabeled": 0.8, "test": 0.861 + luck},
            "student": {"validation": 0.7, "test": 0.69 + luck},
        },
        trained,
        {"teacher": 43.0, "student": 21.5, "labels": 3.0, **dict.fromkeys(arms, 2.35 * length + 5)},
        ("12 of 300 validation rows have a wrong teacher and a tiny student loss: their distortion is capped",),
    )


@cache
def product() -> Fitted:
    return fitted(0, compose(debiased, fidelity.using(over="unlabeled")))


def simple(arms: Mapping[str, Sequence[float]]) -> Outcome:
    """A run of which little is known: the teacher came as a table, the rules are a user's own."""
    return Outcome(
        Path("/runs/mine"),
        "finished",
        {"seed": 0},
        {},
        {"validation": 100, "unlabeled": 1000, "test": 100},
        3,
        None,
        Training("student", ()),
        {"teacher": {"test": 0.9}, "student": {"test": 0.6}},
        {name: Training(name, epochs(curve)) for name, curve in arms.items()},
        {},
    )


# -- the headline, by hand


def test_a_headline_by_hand() -> None:
    plain, better = [0.80, 0.82, 0.87], [0.83, 0.84, 0.88]
    trials = [simple({"unweighted": [0.5, one], "debiased": [0.9, other]}) for one, other in zip(plain, better, strict=True)]
    teacher, student, base, arm = headline(trials)
    assert [row.name for row in (teacher, student, base, arm)] == ["teacher", "student", "unweighted", "debiased"]
    assert teacher.final is not None and teacher.final.mean == pytest.approx(0.9) and teacher.max_on_test is None
    assert student.final is not None and student.final.mean == pytest.approx(0.6)
    assert base.final is not None and base.final.mean == pytest.approx(0.83)
    assert base.final.std == pytest.approx(np.sqrt((0.03**2 + 0.01**2 + 0.04**2) / 2))
    assert base.final.difference is None and base.max_on_test == base.final
    assert arm.final is not None and arm.final.values == tuple(better)
    gap = arm.final.difference
    assert gap is not None and gap.trials == 3 and gap.mean == pytest.approx(0.02)
    assert gap.standard_error == pytest.approx(np.sqrt((0.01**2 + 0 + 0.01**2) / 2 / 3))
    assert gap.p == pytest.approx(scipy.stats.ttest_rel(better, plain).pvalue)
    assert arm.max_on_test is not None and arm.max_on_test.mean == pytest.approx(0.9) and arm.max_on_test.std == 0


def test_the_epoch_chosen_on_validation_is_the_first_of_the_best() -> None:
    arm = Training("debiased", epochs([0.7, 0.8, 0.9, 0.6], [0.1, 0.5, 0.5, 0.2]))
    (row,) = headline([replace(simple({}), arms={"debiased": arm}, accuracies={})])
    assert row.chosen is not None and row.chosen.mean == 0.8
    assert row.max_on_test is not None and row.max_on_test.mean == 0.9
    assert row.final is not None and row.final.mean == 0.6


def test_one_trial_has_no_spread_and_two_have_no_test() -> None:
    one = simple({"unweighted": [0.8], "debiased": [0.9]})
    alone = headline([one])[-1].final
    assert alone is not None and alone.std is None and alone.difference == Difference(pytest.approx(0.1), None, None, 1)
    twice = headline([one, one])[-1].final
    assert twice is not None and twice.difference is not None and twice.difference.p is None


def test_without_an_unweighted_arm_the_first_is_the_baseline() -> None:
    rows = headline([simple({"fidelity": [0.8], "debiased": [0.7]})])
    assert [bool(row.final and row.final.difference) for row in rows] == [False, False, False, True]


def with_settings(trial: Outcome, rules: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Outcome:
    """The same run, whose arms have rules and settings of their own."""
    arms = {name: replace(arm, rule=rules[name][0], settings=rules[name][1]) for name, arm in trial.arms.items()}
    return replace(trial, arms=arms)


MIXED: dict[str, tuple[str, dict[str, Any]]] = {
    "debiased": ("debiased", {}),
    "unweighted": ("unweighted", {}),
    "unweighted-hard": ("unweighted", {"targets": "hard"}),
    "debiased-hard": ("debiased", {"targets": "hard"}),
    "refreshed-hard": ("debiased", {"targets": "hard", "refresh": 1, "confidence": "entropy"}),
    "refreshed": ("debiased", {"refresh": 1}),
    "hot": ("debiased", {"temperature": 4.0}),
    "gold-hard": ("debiased", {"targets": "hard", "validation_in_training": "yes"}),
}
OVER = {
    **dict.fromkeys(("debiased", "unweighted-hard", "refreshed", "hot", "gold-hard"), "unweighted"),
    "unweighted": None,
    "debiased-hard": "unweighted-hard",
    "refreshed-hard": "unweighted-hard",
}


def test_an_arm_is_compared_to_the_unweighted_arm_that_is_trained_as_it_is() -> None:
    """Settings about weights do not count; an arm that no unweighted one is like is compared to the baseline."""
    ends = {name: 0.8 + i / 100 for i, name in enumerate(MIXED)}
    rows = headline([with_settings(simple({name: [end] for name, end in ends.items()}), MIXED)])[2:]
    assert {row.name: row.base for row in rows} == OVER
    for row in rows:
        assert row.final is not None
        gap = row.final.difference
        assert (gap is None) == (row.base is None)
        assert gap is None or gap.mean == pytest.approx(ends[row.name] - ends[row.base or ""])


def test_the_baseline_is_known_by_its_rule_where_no_arm_has_its_name() -> None:
    ours = {"ours": ("debiased", {}), "plain": ("unweighted", {}), "plain-2": ("unweighted", {"refresh": 1})}
    rows = headline([with_settings(simple({name: [0.8] for name in ours}), ours)])[2:]
    assert {row.name: row.base for row in rows} == {"ours": "plain", "plain": None, "plain-2": "plain"}


def test_trainings_cut_short_are_not_compared_with_longer_ones() -> None:
    whole, cut = {"unweighted": [0.1, 0.8], "debiased": [0.1, 0.9]}, {"unweighted": [0.1, 0.7], "debiased": [0.2]}
    arm = headline([simple(whole), simple(cut)])[-1]
    assert arm.final is not None and arm.final.values == (0.9, None) and arm.final.std is None
    assert arm.final.difference is not None and arm.final.difference.trials == 1
    lone = headline([simple(cut)])[-1]
    assert lone.behind and "1 of 2 epochs" in _printed([simple(cut)])
    assert lone.epochs == 1 and lone.final is not None and lone.final.mean == 0.2 and lone.final.difference is None


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30])
def test_t_tests_are_those_of_scipy(freedom: int) -> None:
    for t in (0.0, 0.3, -1.7, 2.5, 8.0):
        assert t_test(t, freedom) == pytest.approx(2 * scipy.stats.t.sf(abs(t), freedom), abs=1e-12)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


# -- words


def said(trials: Sequence[Mapping[str, Sequence[float]]]) -> str:
    found = verdict(headline([simple(arms) for arms in trials]))
    return " ".join([*found.findings, found.basis])


def test_the_verdict_claims_no_more_than_a_test_shows() -> None:
    sure = [{"unweighted": [0.80 + i / 100], "debiased": [0.85 + i / 100 + i % 2 / 1000]} for i in range(5)]
    assert "Better than unweighted: debiased (+5.04 ± 0.02 points, p < 0.001)" in said(sure)
    assert "over 5 paired trials, at the 5 % level;" in said(sure)
    unsure = [{"unweighted": [0.80], "debiased": [0.80 + gain]} for gain in (0.03, -0.02, 0.01)]
    assert "No difference from unweighted beyond chance: debiased" in said(unsure)
    worse = [{"unweighted": [0.80], "a": [0.7 + i / 500], "b": [0.8]} for i in range(4)]
    assert "Worse than unweighted: a" in said(worse) and "corrected for 2 comparisons" in said(worse)
    assert "Exactly the same as unweighted in every trial: b." in said(worse)


def test_a_difference_that_is_the_same_in_every_trial_is_not_tested() -> None:
    """It would have no error and survive any correction; that it came out alike says nothing of the next trial."""
    bases = (0.3, 0.6, 0.8)
    even = [{"unweighted": [base], "a": [best]} for base, best in zip(bases, (0.4, 0.7, 0.9), strict=True)]
    gap = headline([simple(arms) for arms in even])[-1].final
    assert gap is not None and gap.difference == Difference(pytest.approx(0.1), 0.0, None, 3)
    found = verdict(headline([simple(arms) for arms in even]))
    assert found.findings == ("As far from unweighted in every trial, which no test can judge: a (+10.00 ± 0.00 points).",)
    assert found.basis == ""
    mixed = [arms | {"b": [base + luck]} for arms, base, luck in zip(even, bases, (0.03, -0.02, 0.01), strict=True)]
    assert "no test can judge: a" in said(mixed) and "beyond chance: b" in said(mixed) and "corrected" not in said(mixed)


def test_few_trials_prove_nothing() -> None:
    one = {"unweighted": [0.8], "debiased": [0.9], "fidelity": [0.8], "threshold": [0.75]}
    assert "80.00 %; debiased 10.00 points higher, fidelity at exactly the same and threshold 5.00 points lower." in said(
        [one]
    )
    assert "One trial cannot tell this from chance" in said([one])
    assert "Two trials are too few" in said([one, one])


def test_the_verdict_says_what_each_arm_is_compared_to() -> None:
    arms = {name: MIXED[name] for name in ("unweighted", "unweighted-hard", "debiased", "debiased-hard")}
    ends = {"unweighted": 0.8, "unweighted-hard": 0.7, "debiased": 0.81, "debiased-hard": 0.75}

    def trial(luck: float) -> Outcome:
        return with_settings(
            simple({name: [end + luck * (1 + 0.1 * i)] for i, (name, end) in enumerate(ends.items())}), arms
        )

    few = verdict(headline([trial(0)])).findings
    assert few[:2] == (
        "On the test rows, unweighted ended at 80.00 %; unweighted-hard 10.00 points lower and debiased 1.00 points higher.",
        "On the test rows, unweighted-hard ended at 70.00 %; debiased-hard 5.00 points higher.",
    )
    tested = verdict(headline([trial(i / 100) for i in range(4)]))
    starts = [finding.partition(" (")[0] for finding in tested.findings]
    assert starts == [
        "Better than unweighted: debiased",
        "Worse than unweighted: unweighted-hard",
        "Better than unweighted-hard: debiased-hard",
    ]
    assert "corrected for 3 comparisons" in tested.basis


def test_nothing_to_compare() -> None:
    assert said([{}]) == "No arm has been trained yet. "
    assert "unweighted at 80.00 %" in said([{"unweighted": [0.8]}])
    untested = replace(simple({}), arms={"debiased": Training("debiased", epochs([None], [0.5]))})
    assert "no arm was tested" in verdict(headline([untested])).findings[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2e-5, "20 µs"), (0.02, "20 ms"), (0.9996, "1 s"), (75.5, "75.5 s"), (600, "10 min"), (7265, "2 h 01 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# -- the terminal


def test_the_terminal_table_says_the_same_as_the_page() -> None:
    trials = [simple({"unweighted": [0.8 + i / 100], "[red]": [0.9]}) for i in range(3)]
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(terminal_table("natural [bold]", trials))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "natural [bold]: 3 trials" in printed and "[red]" in printed
    html = page({"natural": trials}, "t").replace("\u00a0", " ")
    for number in ("81.00 ± 1.00", "90.00 ± 0.00", "+9.00 ± 0.58"):
        assert number in printed and number in html
    assert "−" in _printed([simple({"unweighted": [0.8], "debiased": [0.7]})])


def test_the_terminal_names_what_an_arm_is_compared_to_where_that_differs() -> None:
    ends = {name: [0.8 + i / 100] for i, name in enumerate(MIXED)}
    printed = " ".join(_printed([with_settings(simple(ends), MIXED)]).split())
    assert "to unweighted, or to the arm named there, in points" in printed
    assert printed.count("over unweighted-hard") == 2 and "over unweighted " not in printed
    plain = " ".join(_printed([simple(ends)]).split())
    assert "over " not in plain and "the difference to unweighted in points" in plain


def _printed(trials: list[Outcome]) -> str:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(terminal_table("", trials))
    return console.file.getvalue()  # type: ignore[attr-defined]


# -- the page


class Reader(HTMLParser):
    """Checks that elements are balanced, and collects ids, references and texts."""

    VOID: ClassVar = {"meta", "link", "br", "img"}

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.headings: list[int] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            self.references |= set(re.findall(r"^#(.+)|url\(#(.+?)\)", value or "")) if name != "content" else set()
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@cache
def full() -> str:
    """Two settings of three trials with everything there is."""
    arms = {name: RULES[name] for name in ("unweighted", "debiased", "debiased,fidelity")}
    natural = [outcome(i, arms=arms) for i in range(3)]
    injected = [outcome(i, arms={"unweighted": 0, "debiased": 0.01}, truth=False) for i in range(2)]
    return page({"natural": natural, "injected": injected}, "Digits: natural and injected noise")


@pytest.mark.slow
def test_a_page_is_well_formed_with_unique_ids_and_headings_in_order() -> None:
    seen = Reader(full())
    assert len(seen.ids) == len(set(seen.ids))
    assert {one or other for one, other in seen.references if not re.fullmatch(r"[0-9a-f]{6}", one)} <= set(seen.ids)
    assert seen.headings[0] == 1 and all(b - a <= 1 for a, b in pairwise(seen.headings))


@pytest.mark.slow
def test_a_page_loads_nothing_and_styles_nothing_in_line() -> None:
    html, seen = full(), Reader(full())
    assert not [each for each in seen.attributes if each[1] == "style" or each[1].startswith("on")]
    links = [value for _, name, value in seen.attributes if name in ("href", "src")]
    assert links and all(value.startswith(("#", "data:image/png;base64,")) for value in links)
    assert "<script" not in html and "http:" not in html and "https:" not in html
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"default-src &#39;none&#39;; style-src &#39;sha256-{digest}&#39;; img-src data:;" in html


@pytest.mark.slow
def test_a_page_has_all_parts() -> None:
    text = Reader(full()).text
    for words in (
        "natural, in detail",
        "Test accuracy over the training",
        "Max on test of every arm",
        "Selected on the test rows",
        "Teacher's accuracy by margin",
        "Weights of rightly and wrongly labeled rows",
        "Weights of 2,000 unlabeled rows",  # injected: no truth
        "How the weights move",
        "Estimated error of the teacher",
        "Estimated distortion",
        "Weight at the first refresh",
        "Weight at the last refresh",
        "The debiased factor",
        "Every weight is exactly 1 in unweighted",
        "20 ms (1 %)",
        "800 ms (40 %)",
        "forward pass of a refresh (of an epoch)",
        "student.rate",
        "0 | 1 | 2",  # seeds
        "commit",
        "1 warning",
        "(in all trials)",
    ):
        assert words in text.replace("\u00a0", " "), words


@cache
def mixed() -> str:
    """Arms with settings of their own."""
    trials = [with_settings(outcome(i, length=4, arms=dict.fromkeys(MIXED, 0.01)), MIXED) for i in range(2)]
    return page({"mixed": trials}, "Arms with settings of their own")


def pairs(html: str, title: str) -> dict[str, str]:
    """The lines of one list of names and values."""
    found = re.search(rf"<h4>{title}</h4>\s*<dl class=\"pairs\">(.*?)</dl>", html, re.DOTALL)
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", found[1].replace("\u00a0", " "))) if found else {}


@pytest.mark.slow
def test_a_page_lists_the_settings_of_single_arms() -> None:
    assert pairs(mixed(), "Settings of single arms") == {
        "unweighted-hard": "targets = hard",
        "debiased-hard": "targets = hard",
        "refreshed-hard": "targets = hard; refresh = 1; confidence = entropy",
        "refreshed": "refresh = 1",
        "hot": "temperature = 4.0",
        "gold-hard": "targets = hard; validation_in_training = yes",
    }
    assert pairs(mixed(), "Recipe")["targets"] == "soft"
    other = [
        with_settings(simple({"own": [0.8]}), {"own": ("debiased", {"vid": ["a=b", "c=d"], "refresh": n})}) for n in (1, 2)
    ]
    found = pairs(page({"": other}, "t"), "Settings of single arms")
    assert found == {"own": "vid = a=b, c=d; refresh = 1 | vid = a=b, c=d; refresh = 2"}
    assert "single arms" not in full()


@pytest.mark.slow
def test_a_page_names_what_an_arm_is_compared_to_where_that_differs() -> None:
    text = Reader(mixed()).text.replace("\u00a0", " ")
    assert "the difference to unweighted, or to the arm named there, in points" in text
    assert "debiased-hard over unweighted-hard" in text and text.count("over unweighted-hard") == 2
    assert "over unweighted" not in Reader(full()).text and "named there" not in Reader(full()).text


@pytest.mark.slow
def test_the_teachers_figure_says_whose_eyes_it_sees_with() -> None:
    """An arm's margins are of its temperature and of the rows that weigh there: others go first."""
    hot, half = ("debiased", {"temperature": 4.0}), ("debiased", {"temperature": 2.0, "validation_in_training": "half"})
    trial = simple({"hot": [0.8], "cold": [0.8]})
    seen = replace(trial, arms={name: replace(arm, fitted=(fitted(),)) for name, arm in trial.arms.items()})
    for cold in ({}, {"targets": "hard"}):
        found = teacher([with_settings(seen, {"hot": hot, "cold": ("debiased", cold)})], "t")
        assert found is not None and "reads them" not in found.caption
    found = teacher([with_settings(seen, {"hot": half, "cold": hot})], "t")
    assert found is not None
    assert found.caption.endswith("; as hot reads them, with temperature = 2.0 and validation_in_training = half.")


@pytest.mark.slow
def test_the_same_outcomes_give_the_same_bytes() -> None:
    trials = [simple({"unweighted": [0.7, 0.8], "debiased": [0.8, 0.9]})] * 2
    assert page({"a": trials}, "t") == page({"a": trials}, "t")
    arm = Training("mine", (), fitted=(product(),))
    assert maps(arm, "m") == maps(arm, "m")


def test_parts_without_data_are_left_out() -> None:
    bare = replace(
        simple({"unweighted": [0.5, 0.8], "mine": [0.6, 0.9]}),
        accuracies={},
        recipe={},
        environment={},
        seconds={},
        warnings=(),
    )
    text = Reader(page({"": [bare]}, "A table of answers")).text
    assert "Results" in text and "Test accuracy over the training" in text
    for absent in ("teacher", "Weights", "Time", "Recipe", "Environment", "warning", "±", "trial 1", "interrupted"):
        assert absent not in text, absent
    assert "img-src" not in page({"": [bare]}, "no maps, no pictures")


@pytest.mark.slow
def test_a_rule_of_a_user_shows_its_weights_alone() -> None:
    """No truth, no plane, and one refresh: a histogram is all there is. Work of a kind nobody knows is other work."""
    found = replace(outcome(0, length=3, arms={"mine": 0.0}, truth=False), accuracies={}, teacher=None, warnings=())
    mine = replace(
        found.arms["mine"],
        refreshes=found.arms["mine"].refreshes[:1],
        fitted=(Fidelity(EntropyMean(count=1)),),
        seconds={"nap": 90.0},
    )
    text = Reader(page({"mine": [replace(found, arms={"mine": mine}, seconds={})]}, "t")).text
    assert "Weights of 1,000 unlabeled rows" in text and "90 s" in text
    for absent in ("margin", "Estimated", "How the weights move", "rightly", "nap", "store"):
        assert absent not in text, absent


def test_without_test_rows_the_validation_rows_are_drawn() -> None:
    arm = Training("debiased", epochs([None, None], [0.5, 0.6]))
    text = Reader(page({"mine": [replace(simple({}), accuracies={}, arms={"debiased": arm})]}, "t")).text
    assert "Validation accuracy over the training" in text and "no arm was tested" in text
    assert "Max on test" not in text and "chosen on validation" not in text


@pytest.mark.slow
def test_unfinished_runs_say_so_on_top() -> None:
    running = replace(simple({"unweighted": [0.5, 0.8], "debiased": [0.6]}), state="running")
    text = Reader(page({"mine": [running]}, "t")).text
    assert text.index("This run is still running; done so far: unweighted 2 epochs and debiased 1 epoch.") < 60
    assert "debiased 1 of 2 epochs" in text
    early = replace(simple({}), state="interrupted", student=Training("student", ()), accuracies={})
    text = Reader(page({"a": [simple({"unweighted": [0.5]}), early], "b": [early]}, "t")).text
    assert "a: Trial 2 of 2 was interrupted; done so far: no arm yet." in text
    assert "No arm has been trained yet." in text
    assert "There are no runs to show." in page({}, "t") and "There are no runs to show." in page({"none": []}, "t")


HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'",
    "</style><script>alert(2)</script>",
    "</title></svg>{{ 7 * 7 }}",
    "javascript:alert(3)",
    "$\\frac{1}{$ \u202egnp. \x00\x1b[31m 名前 " + "x" * 300,
]


@cache
def hostile() -> str:
    arms = {name: [0.8, 0.81 + i / 100] for i, name in enumerate(HOSTILE)}
    trial = with_settings(simple(arms), {name: (name, {"vid": HOSTILE, "targets": name}) for name in HOSTILE})
    trial = replace(
        trial,
        folder=Path("/runs/" + HOSTILE[0]),
        recipe={HOSTILE[1]: {HOSTILE[2]: HOSTILE}},
        environment={HOSTILE[3]: HOSTILE[0]},
        warnings=tuple(HOSTILE),
        seconds=dict.fromkeys(HOSTILE, 1.0),
        state=HOSTILE[0],
    )
    return page({name: [trial] for name in HOSTILE[:2]}, HOSTILE[2])


@pytest.mark.slow
def test_names_of_users_stay_names() -> None:
    html, seen = hostile(), Reader(hostile())
    assert html.count("<style") == html.count("</style") == 1 and "<script" not in html and "<img" not in html
    assert html.count("</title") == 1 and "{{ 7 * 7 }}" in html
    assert "\x00" not in html and "\x1b" not in html and "\u202e" not in html and "\\x1b" in html
    assert not [each for each in seen.attributes if each[1].startswith("on")]
    assert all(value.startswith("#") for _, name, value in seen.attributes if name in ("href", "src"))
    for name in HOSTILE[:5]:
        assert name in "".join(seen.texts)


@pytest.mark.slow
def test_a_large_comparison_stays_light() -> None:
    random = np.random.default_rng(0)

    def trial() -> Outcome:
        return simple({name: (0.8 + gain + random.normal(0, 0.01, 200)).tolist() for name, gain in RULES.items()})

    curves = len(page({name: [trial() for _ in range(10)] for name in ("natural", "injected")}, "t"))
    weights = len(full())  # of three arms; there would be up to twelve
    assert curves + 4 * weights < 2_000_000


def test_importing_pages_needs_no_heavy_library() -> None:
    code = "import sys, wdistill.report; print([m for m in ('jinja2', 'matplotlib', 'rich', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# -- in a browser


def test_without_chromium_and_apt_tests_are_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="no chromium on the path"):
        executable()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "full.html").write_text(full(), "utf-8")
    (folder / "hostile.html").write_text(hostile(), "utf-8")
    (folder / "mixed.html").write_text(mixed(), "utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in ("full", "hostile", "mixed")}


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_figure_is_seen(browser: Any, files: dict[str, str], width: int) -> None:
    with opened(browser, files["full"], width) as tab:
        boxes = [figure.bounding_box() for figure in tab.locator("figure > svg").all()]
        assert len(boxes) == full().count("<figure>") == 25
        assert all(box["width"] > 100 and box["height"] > 100 for box in boxes)
        marks = tab.evaluate("[...document.querySelectorAll('figure > svg')].map(e => e.getBBox().width)")
        assert min(marks) > 100
        blank = tab.evaluate("[...document.querySelectorAll('svg[role=img]')].filter(e => !e.getAttribute('aria-label'))")
        assert blank == []


@pytest.mark.parametrize("name", ["full", "hostile", "mixed"])
def test_a_phone_never_scrolls_sideways(browser: Any, files: dict[str, str], name: str) -> None:
    with opened(browser, files[name], PHONE) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE
        assert tab.evaluate("document.body.scrollWidth") <= PHONE


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_the_light_and_in_the_dark(browser: Any, files: dict[str, str], scheme: str) -> None:
    with opened(browser, files["full"], scheme=scheme) as tab:
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        level = np.mean([int(value) for value in re.findall(r"\d+", paper)[:3]])
        assert level < 50 if scheme == "dark" else level > 230
        found = tab.evaluate(CONTRAST)
        assert {each["drawn"] for each in found} == {True, False}
        assert [each for each in found if each["contrast"] < 4.5] == []


def test_print_is_light_and_cuts_no_figure(browser: Any, files: dict[str, str]) -> None:
    with opened(browser, files["full"], scheme="dark") as tab:
        tab.emulate_media(media="print")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert [each for each in tab.evaluate(CONTRAST) if each["contrast"] < 4.5] == []
        assert tab.evaluate("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
        assert tab.pdf(format="A4")[:5] == b"%PDF-"


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_settings_of_single_arms_are_seen(browser: Any, files: dict[str, str], width: int) -> None:
    with opened(browser, files["mixed"], width) as tab:
        own = tab.locator("dl.pairs").nth(1)
        assert own.locator("dt").all_inner_texts() == [name for name, (_, settings) in MIXED.items() if settings]
        assert own.is_visible() and own.bounding_box()["width"] <= width
        named = tab.locator("table.headline th .gap").all()
        assert [each.inner_text() for each in named] == ["over unweighted-hard"] * 2
        assert all(each.is_visible() for each in named)


def test_hostile_names_are_inert(browser: Any, files: dict[str, str]) -> None:
    with opened(browser, files["hostile"]) as tab:
        assert tab.evaluate("document.scripts.length + document.images.length") == 0
        assert tab.title() == HOSTILE[2]
        assert tab.locator("h2").first.inner_text() == HOSTILE[0]
        assert tab.locator("a").count() == 0
