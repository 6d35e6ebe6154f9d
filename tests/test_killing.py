"""SIGKILL at operations on the disk of a small complete run: it goes on by itself and ends with the same bits.

One point of every kind is tried here; `make proofs` tries every point.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.kill
@pytest.mark.proof
def test_a_run_survives_a_kill_at_an_operation_of_every_kind() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.killing", "--kinds"], cwd=ROOT, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["failures"], done.returncode) == ([], 0), found["failures"][:3] or done.stderr[-2000:]
    assert 15 < found["points"] < found["operations"]
