"""The demo runs anywhere, warns of nothing, prints every arm, and leaves one picture behind."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "examples" / "digits.py"


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DEMO)], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for arm in ("debiased", "shuffled", "oracle"):
        assert re.search(rf"{arm} +│ \d+\.\d\d +│ [+-]\d+\.\d\d ± \d+\.\d\d", done.stdout), done.stdout
    assert re.search(r"unweighted +│ \d+\.\d\d", done.stdout)
    assert re.search(r"teacher's margin +│ 0\.\d+ +│ 0\.\d+ +│ 0\.\d+", done.stdout)
    assert "In words: the student with debiased weights is" in done.stdout
    assert "not tuned on test accuracy" in done.stdout

    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [Path("demo/digits.png")]
    content = (tmp_path / "demo" / "digits.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width == 1600
    assert height >= 800
    assert len(content) > 50_000
    assert "demo/digits.png" in done.stdout.splitlines()[-1]
