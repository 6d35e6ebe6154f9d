"""Numbers that must not change by accident, on any machine: see tests/net.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import net

pytestmark = pytest.mark.proof
ROOT = Path(__file__).resolve().parent.parent
REMEDY = (
    "to see the numbers: python -m tests.net --only CASE --keep FOLDER, here and in a checkout of a commit that passes; "
    "where they shall change: python -m tests.net --freeze"
)


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Digests of all steady parts."""
    output = tmp_path_factory.mktemp("net") / "net.json"
    environment = {**os.environ, **net.SETTING, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.net", "--steady", "--output", str(output)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert output.exists(), done.stderr[-3000:]
    digests: dict[str, Any] = json.loads(output.read_text())
    assert digests.pop("checkout") == str(ROOT), "the net has looked at another wdistill"
    return digests


def parts_of(case: str, digests: dict[str, Any]) -> dict[str, Any]:
    return {part: digest for part, digest in digests.items() if part.partition(": ")[0] == case}


@pytest.mark.parametrize("case", sorted(net.STEADY))
def test_steady_numbers_are_those_of_every_machine(case: str, now: dict[str, Any]) -> None:
    wanted, found = parts_of(case, json.loads(net.FROZEN.read_text())), parts_of(case, now)
    different = [part for part in dict.fromkeys([*wanted, *found]) if wanted.get(part) != found.get(part)]
    assert wanted and not different, "\n".join([*different, REMEDY])
