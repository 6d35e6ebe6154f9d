"""Goals that are tests already: they run in a process of their own, and are counted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent.parent


def prove(files: Sequence[str], marks: str, words: str = "") -> tuple[int, list[str]]:
    """The tests of files that have these marks and whose names fit the words: how many ran, and those that failed."""
    with tempfile.TemporaryDirectory(prefix="suite-") as place:
        report = Path(place) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *files]
        command += ["-m", marks, "-k", words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    wrong = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    ran = [case for case in cases if case.find("skipped") is None]
    failures = [f"{name}: python -m pytest {' '.join(files)} -m {marks!r}" for name in wrong]
    if not ran or (done.returncode and not failures):
        failures.append(f"pytest ended with {done.returncode}: {' '.join(command[1:])}")
    return max(len(ran), len(failures)), failures
