"""The fuzzer of the readers: some hundred mutants in every run of the tests, and proof that it would tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability import fuzz
from wdistill.core.errors import InputError


@pytest.mark.slow
def test_damaged_tables_are_read_as_they_were_or_refused() -> None:
    report = fuzz.run(range(600), seed=0)
    assert report.clean, report.failures
    assert report.same + report.other + report.refused == 600 and min(report.same, report.other, report.refused) > 0


def test_a_mutant_is_the_same_whenever_it_is_made() -> None:
    assert fuzz.mutant(3, 17) == fuzz.mutant(3, 17) != fuzz.mutant(4, 17)


@pytest.mark.kill
def test_the_fuzzer_tells_crashes_hangs_silent_changes_and_errors_that_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0)
    monkeypatch.setattr(fuzz, "_good", lambda *_: "rows")

    def value(path: Path) -> str:
        count = len(list(path.parent.glob("seen-*")))
        (path.parent / f"seen-{count}").touch()
        if count == 1:
            raise ZeroDivisionError
        if count == 2:
            raise InputError("refused")
        while count == 3:
            pass
        if count == 4:
            fuzz.os.abort()
        return "rows" if count == 0 else "others"

    monkeypatch.setattr(fuzz, "value", value)
    report = fuzz.run(range(6), seed=0)
    found = (report.same, report.undeclared, report.refused, report.hangs, report.crashes, report.silent)
    assert found == (1, 1, 1, 1, 1, 1) and not report.clean
    assert [failure["what"] for failure in report.failures] == ["undeclared", "hangs", "crashes", "silent"]
    assert report.failures[1]["replay"] == "python -m tests.reliability.fuzz --seed 0 --mutant 3"
