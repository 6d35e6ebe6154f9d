"""Chromium for tests: found, or installed where that is possible; otherwise the test is skipped, and says why."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running Chromium without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = executable()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        try:
            yield browser
        finally:
            browser.close()


def executable() -> str:
    """Where Chromium is; Debian's is installed once where root may do so."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "wdistill-chromium.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one of several workers installs, the others wait
            found = _found() or _install()
    if found is None:
        pytest.skip("no chromium on the path, and it cannot be installed: not root, no apt-get, or no network")
    return found


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _install() -> str | None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        try:
            done = subprocess.run(["apt-get", *words], env=quiet, capture_output=True, timeout=600)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode:
            return None
    return _found()
