"""`wdistill theory` as a user calls it: what it prints, what it writes, how it ends, and the page in a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from experiments.theory import measure
from experiments.theory.bias import debiasing
from experiments.theory.measure import EXPERIMENTS, TheoryExperiment
from experiments.theory.simulator import weight
from tests.browser import CONTRAST, DESK, PHONE, chromium, opened
from tests.shortening import SEED, bold, shorten
from tests.test_cli import fail, run
from wdistill import cli

pytestmark = pytest.mark.proof

NAMES = [each.name for each in EXPERIMENTS]


@dataclass(frozen=True)
class Done:
    """What one call of `wdistill theory all` left behind."""

    out: str
    err: str
    page: Path
    numbers: dict[str, Any]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("theory") / "new" / "folder"
    short = [
        replace(each, run=partial(each.run, steps=bold)) if each.name == "single_pass" else each for each in EXPERIMENTS
    ]
    words = ["theory", "all", "--seed", str(SEED), "--scale", "0.05", "--out", str(folder)]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        shorten(patch)
        patch.setattr(measure, "EXPERIMENTS", tuple(short))
        patch.setenv("COLUMNS", "140")
        assert cli.main(words) == 0, out.getvalue()
    assert sorted(path.name for path in folder.iterdir()) == ["findings.json", "theory.html"]
    numbers = json.loads((folder / "findings.json").read_text("utf-8"))
    return Done(out.getvalue(), err.getvalue(), folder / "theory.html", numbers)


def test_every_verdict_is_printed_with_its_numbers(done: Done) -> None:
    assert done.out.rstrip().splitlines()[-2] == "every claim holds" and "theory.html" in done.out.rstrip().splitlines()[-1]
    assert re.search(r"E\[R_S\^w\] = R, cross-entropy +│ 1\.\d{4} +│ 1\.\d+ ± 0\.\d+ +│ holds", done.out)
    assert re.search(r"beside it: clipped to \[0, 1\], cross-entropy +│ \d\.\d+, not \d\.\d+ +│ .* │ as expected", done.out)
    for name in NAMES:
        assert re.search(rf"^{name}: .*\(", done.out, re.M)
    assert "not as expected" not in done.out and "fails" not in done.out.replace("objective fails", "")
    assert "note: " in done.out


def test_progress_says_what_runs_and_how_long_it_takes(done: Done) -> None:
    lines = done.err.splitlines()
    assert len(lines) == len(NAMES)
    for number, (name, line) in enumerate(zip(NAMES, lines, strict=True), 1):
        assert re.fullmatch(rf"{name} \({number} of {len(NAMES)}\): about .+ left", line)


def test_the_numbers_are_written_whole(done: Done) -> None:
    assert done.numbers["seed"] == SEED and done.numbers["scale"] == 0.05 and "numpy" in done.numbers
    assert [each["name"] for each in done.numbers["findings"]] == NAMES
    for each in done.numbers["findings"]:
        assert each["holds"] and each["seconds"] > 0 and each["settings"] and each["title"] and each["place"]
        assert {check["contrast"] for check in each["checks"]} == {True, False}
        for check in each["checks"]:
            assert set(check) == {"claim", "predicted", "measured", "error", "holds", "contrast"} and check["holds"] is True
            assert check["claim"] in re.sub(r"\s+", " ", page_text(done))


def page_text(done: Done) -> str:
    text = re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", done.page.read_text("utf-8"), flags=re.S))
    for entity, letter in (("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&#34;", '"'), ("&amp;", "&"), ("\u00a0", " ")):
        text = text.replace(entity, letter)
    return text


def test_it_runs_as_a_command_of_its_own() -> None:
    assert run("theory", "squares", "--scale", "0.05").stdout.rstrip().endswith("every claim holds")


def test_the_same_seed_gives_the_same_numbers_and_another_others(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(seed: int) -> str:
        assert cli.main(["theory", "squares", "debiasing", "--scale", "0.05", "--seed", str(seed)]) == 0
        return re.sub(r"holds; .*", "", capsys.readouterr().out)

    first = printed(3)
    assert first == printed(3) != printed(4)
    assert first.index("debiasing: ") < first.index("squares: ")  # the paper's order


def test_a_claim_that_fails_is_said_everywhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mutant = partial(debiasing, weight=lambda error, distortion: weight(1 - error, distortion))
    monkeypatch.setattr(measure, "EXPERIMENTS", (TheoryExperiment("debiasing", mutant, 1.0, 0.1),))
    assert cli.main(["theory", "all", "--scale", "0.05", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "fails" in printed and "debiasing: not as the paper says" in printed and "every claim" not in printed
    assert json.loads((tmp_path / "findings.json").read_text("utf-8"))["findings"][0]["holds"] is False
    assert "1 of 1 experiments fail" in (tmp_path / "theory.html").read_text("utf-8")


def test_a_number_that_is_none_is_written_as_null(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mutant = partial(debiasing, weight=lambda error, distortion: float("nan") * weight(error, distortion))
    monkeypatch.setattr(measure, "EXPERIMENTS", (TheoryExperiment("debiasing", mutant, 1.0, 0.1),))
    assert cli.main(["theory", "all", "--scale", "0.05", "--out", str(tmp_path)]) == 1
    checks = json.loads((tmp_path / "findings.json").read_text("utf-8"))["findings"][0]["checks"]
    assert {check["measured"] is None for check in checks} == {True, False} and "nan" in capsys.readouterr().out


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["theory"], ["theory", "--list"]):
        assert cli.main(words) == 0
        printed = capsys.readouterr().out
        assert [line.split()[0] for line in printed.splitlines() if line[:1].strip()] == ["name", *NAMES]
    assert all(each.about and 0 < each.least <= each.seconds for each in EXPERIMENTS)


def test_small_scales_take_no_less_than_verdicts_need() -> None:
    each = TheoryExperiment("debiasing", debiasing, seconds=10.0, least=2.0)
    assert [each.takes(scale) for scale in (0.01, 0.5, 1.0, 2.0)] == [2, 5, 10, 20]


def test_bad_options_are_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "did you mean debiasing?" in fail(capsys, "theory", "debiasin")
    assert "--list says" in fail(capsys, "theory", "xyz")
    for option, value in (("--scale", "0"), ("--scale", "nan"), ("--scale", "much"), ("--seed", "-1"), ("--seed", "x")):
        assert repr(value) in fail(capsys, "theory", "squares", f"{option}={value}")
    (tmp_path / "file").touch()
    assert "cannot write" in fail(capsys, "theory", "squares", "--out", tmp_path / "file" / "below", code=3)


def test_help_and_the_list_need_no_torch() -> None:
    code = "import sys; from wdistill.cli import main; main(['theory', '--list']); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.endswith(
        "False\n"
    )


# -- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_figure_is_seen(browser: Any, done: Done, width: int) -> None:
    with opened(browser, done.page.as_uri(), width) as tab:
        boxes = [figure.bounding_box() for figure in tab.locator("figure > svg[role=img]").all()]
        assert len(boxes) >= 2 * len(NAMES) and all(box["width"] > 100 and box["height"] > 100 for box in boxes)
        assert tab.evaluate("Math.min(...[...document.querySelectorAll('figure > svg')].map(e => e.getBBox().width))") > 100
        for name in NAMES:
            section = tab.locator(f"section[aria-labelledby={name}]")
            assert section.locator("figure").count() >= 1 and section.locator("table").count() == 2
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_texts_of_a_figure_stay_inside_it(browser: Any, done: Done) -> None:
    outside = """() => [...document.querySelectorAll("figure > svg")].flatMap(svg => {
      const [x, y, width, height] = svg.getAttribute("viewBox").split(" ").map(Number), box = svg.getBoundingClientRect();
      const scale = width / box.width;
      return [...svg.querySelectorAll("text")].filter(text => {
        const own = text.getBoundingClientRect();
        return (own.left - box.left) * scale < -4 || (own.right - box.right) * scale > 4;
      }).map(text => text.textContent);
    })"""
    with opened(browser, done.page.as_uri(), DESK) as tab:
        assert tab.evaluate(outside) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_the_light_and_in_the_dark(browser: Any, done: Done, scheme: str) -> None:
    with opened(browser, done.page.as_uri(), scheme=scheme) as tab:
        found = tab.evaluate(CONTRAST)
        assert {each["drawn"] for each in found} == {True, False}
        assert [each for each in found if each["contrast"] < 4.5] == []


def test_links_lead_to_their_experiments(browser: Any, done: Done) -> None:
    with opened(browser, done.page.as_uri()) as tab:
        assert [link.get_attribute("href") for link in tab.locator("a").all()] == [f"#{name}" for name in NAMES]
        assert all(tab.locator(f"h2[id={name}]").count() == 1 for name in NAMES)
