"""The fuzzer of the readers: some hundred mutants in every run of the tests, and proof that it would tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability import fuzz
from tests.reliability.seeds import READERS, Seed
from wdistill.core.errors import InputError


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_damaged_files_are_read_as_they_were_or_refused(reader: str) -> None:
    mutants = 300 if reader == "tables" else 80
    report = fuzz.run(reader, range(mutants), seed=0)
    assert report.clean, report.failures
    assert report.same + report.other + report.refused == mutants and min(report.same + report.other, report.refused) > 0


def test_a_mutant_is_the_same_whenever_it_is_made() -> None:
    assert fuzz.mutant("costs", 3, 17) == fuzz.mutant("costs", 3, 17) != fuzz.mutant("costs", 4, 17)


@pytest.mark.kill
def test_the_fuzzer_tells_crashes_hangs_silent_changes_and_errors_that_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0)
    monkeypatch.setattr(fuzz, "_good", lambda *_: "rows")

    def read(_: Seed, __: dict[str, bytes], folder: Path) -> str:
        count = len(list(folder.glob("seen-*")))
        (folder / f"seen-{count}").touch()
        if count == 1:
            raise ZeroDivisionError
        if count == 2:
            raise InputError("refused")
        while count == 3:
            pass
        if count == 4:
            fuzz.os.abort()
        return "rows" if count == 0 else "others"

    monkeypatch.setattr(fuzz, "read", read)
    report = fuzz.run("tables", range(6), seed=0)
    found = (report.same, report.undeclared, report.refused, report.hangs, report.crashes, report.silent)
    assert found == (1, 1, 1, 1, 1, 1) and not report.clean
    assert [failure["what"] for failure in report.failures] == ["undeclared", "hangs", "crashes", "silent"]
    assert report.failures[1]["replay"] == "python -m tests.reliability.fuzz --reader tables --seed 0 --mutant 3"
