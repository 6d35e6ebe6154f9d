"""A run that is killed at a crash point of the catalogue, or whose reader is, goes on by itself and ends the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.reliability.crashes import NUMBERS
from tests.tables import Killing
from wdistill import Streamed, UnfinishedError

pytestmark = [pytest.mark.kill, pytest.mark.proof]
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wrong() -> dict[str, str]:
    """What went wrong, by number; from a process of its own, in which nothing was trained before it forks."""
    done = subprocess.run([sys.executable, "-m", "tests.reliability.crashes"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_killed_at_a_point_of_the_catalogue_ends_with_the_same_bits(number: str, wrong: dict[str, str]) -> None:
    assert wrong[number] == ""


def test_a_reader_process_that_is_killed_is_an_unfinished_run() -> None:
    started, rows = time.monotonic(), Streamed(Killing(torch.arange(12.0)[:, None]), workers=1)
    with pytest.raises(UnfinishedError, match="a worker process died") as caught:
        list(rows.batches([torch.arange(6)]))
    error = caught.value
    assert error.exit_code == 75 and "Killing, workers=1" in error.where and "DataLoader worker" in error.found
    assert "run again" in error.remedy and time.monotonic() - started < 30
