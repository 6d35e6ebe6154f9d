"""Files of others under names that we use stay as they are, whatever a job does; more cases in `make reliability`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from tests.reliability.foreign import QUICK, Case, attempt, cases, forget


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


@pytest.mark.slow
@pytest.mark.kill
@settings(max_examples=max(15, settings().max_examples // 10))
@given(cases(QUICK))
def test_files_of_others_stay_as_they_are(case: Case) -> None:
    assert attempt(case) == ""
