"""The catalogue of 144 faults and bad inputs, case by case."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.reliability import cases, crashes
from tests.reliability.cases import ALONE, CASES, CRASHES, Case, ProvedBy, check, prove_all
from tests.reliability.outcomes import Failure, exits, fact, refused, same, warned
from wdistill import ConfigError, FileError, InputError

ROOT = Path(__file__).parent.parent
SIZES = {"A": 29, "B": 23, "C": 10, "D": 10, "E": 12, "F": 20, "G": 12, "H": 16, "I": 12}
SLOW = """
B16 C4 C6 C7 C10 D3 D4 D6 D7 D9 E7 E11 G6 G12 H2 I1 I3 I8 I10 I11 I12
"""  # runs that train to their end, or take a second


def marked(case: Case) -> object:
    marks = [pytest.mark.slow] if case.number in SLOW.split() else []
    marks += [pytest.mark.kill] if case.number == "H2" else []
    return pytest.param(case, id=case.number, marks=marks)


@pytest.mark.parametrize("case", [*map(marked, CASES)])
def test_a_case_comes_to_what_is_expected(case: Case, tmp_path: Path) -> None:
    if isinstance(case.prove, ProvedBy):
        assert case.prove.names
    else:
        check(case, tmp_path)


def test_the_numbers_are_those_of_the_catalogue() -> None:
    wanted = [f"{letter}{number}" for letter, size in SIZES.items() for number in range(1, size + 1)]
    assert [case.number for case in CASES] == wanted and len(wanted) == 144
    assert all(case.what and case.expected for case in CASES)


def test_every_test_that_is_named_exists() -> None:
    for case in CASES:
        for name in case.tests:
            path, _, function = name.partition("::")
            assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE), f"{case.number}: {name}"
    killed = {case.number for case in CASES if f"tests/{CRASHES}" in case.tests}
    assert killed == {*crashes.NUMBERS}, "the points of tests/reliability/crashes.py"


@pytest.mark.parametrize("here", [True, False])
def test_cases_whose_software_is_not_here_are_named_and_their_tests_not_run(
    monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    monkeypatch.setattr(cases, "find_spec", lambda module: module if here else None)
    run = list[str]()

    def noted(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        run.extend(command)
        return subprocess.CompletedProcess([], 0, "144 passed", "")

    monkeypatch.setattr("subprocess.run", noted)
    assert {case.number for case in CASES if not case.is_decided} == (set() if here else {"H10", "H12"})
    assert prove_all(nightly=True) == (144 if here else 142, [])
    assert any(word.startswith("tests/scale/test_ray.py") for word in run) == here
    assert ("not decided: H10, H12, for want of ray" in cases.target(nightly=True)) != here


def test_tests_that_refuse_a_network_run_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = list[list[str]]()

    def noted(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess([], 1, "", "no network namespace can be had")

    monkeypatch.setattr("subprocess.run", noted)
    _, failures = prove_all(nightly=True)
    plain, apart = commands
    assert "tests/test_cases.py" in plain and not any(word.startswith(ALONE) for word in plain)
    assert "tests.scale.alone" in apart and all(word.startswith(ALONE) for word in apart if "::" in word)
    assert len(failures) == 2 and "no network namespace" in failures[1] and "tests.scale.alone python -m" in failures[1]


def test_a_failure_is_told_with_its_number_and_how_to_replay_it() -> None:
    lines = [
        "FAILED tests/test_cases.py::test_a_case_comes_to_what_is_expected[A1] - Failure: a reason",
        "FAILED tests/test_signals.py::test_workers_save_and_die_as_they_should",
        f"ERROR tests/{CRASHES}[F8]",
    ]
    apart = ["FAILED tests/scale/test_ranks.py::test_an_error_of_one_process_is_told_by_the_first - AssertionError"]
    for code, stdouts, wanted in (
        (1, ["\n".join(lines), "\n".join(apart)], ["A1", "F17, H5, H15", "F8", "H4"]),
        (0, ["144 passed", "9 passed"], []),
        (2, ["", ""], ["", ALONE]),
    ):
        done = [subprocess.CompletedProcess([], code, stdout, "no such file") for stdout in stdouts]
        with patch("subprocess.run", side_effect=done):
            tried, failures = prove_all(nightly=True)
        assert tried == sum(case.is_decided for case in CASES) and len(failures) == len(wanted)
        assert all(
            each.startswith(number) and "python -m pytest" in each for each, number in zip(failures, wanted, strict=True)
        )


# the checks themselves ------------------------------------------------------------------------------------------------


def test_the_checks_see_what_is_not_as_it_should_be() -> None:
    whole = {"where": "here", "found": "this", "expected": "that", "remedy": "do it"}

    def raising(error: Exception) -> object:
        raise error

    assert refused(InputError, lambda: raising(InputError("bad", **whole)), "bad", "here")
    failures = [
        lambda: refused(InputError, lambda: None),
        lambda: refused(InputError, lambda: raising(FileError("bad", **whole))),
        lambda: refused(InputError, lambda: raising(InputError("bad", **whole)), "worse"),
        *(
            lambda part=part: refused(InputError, lambda: raising(InputError("bad", **{**whole, part: ""})))
            for part in whole
        ),
        lambda: exits(0, ["show", "nowhere"]),
        lambda: exits(2, ["show", "nowhere"], "elsewhere"),
        lambda: warned(lambda: None),
        lambda: same(1, 2),
        lambda: fact(False, "nothing"),
        lambda: check(Case("A1", "nothing", "InputError", lambda folder: None), ROOT),
        lambda: check(Case("A1", "another", "InputError", lambda folder: fact(True, "")), ROOT),
    ]
    for failure in failures:
        with pytest.raises(Failure):
            failure()
    with pytest.raises(ZeroDivisionError):  # an exception that is not ours is never a pass
        refused(ConfigError, lambda: 1 / 0)
