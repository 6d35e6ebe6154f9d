"""SIGKILL at every operation on the disk of a small complete run: it goes on by itself and ends with the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHARES = 6  # of the points, so that several processes can try them side by side


@pytest.mark.parametrize("share", range(SHARES))
def test_a_run_survives_a_kill_at_every_point(share: int) -> None:
    command = [sys.executable, "-m", "tests.killing", "--every", str(SHARES), "--offset", str(share)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failures"] == [], found["failures"][:3]
    assert found["operations"] > 200 and found["points"] >= found["operations"] // SHARES
