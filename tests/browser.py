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
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PHONE, DESK = 360, 1280
CONTRAST = """() => {
  const read = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const found = read(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
  };
  const texts = [...document.body.querySelectorAll("*")].filter(e =>
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
  return texts.map(e => {
    const drawn = e.namespaceURI.endsWith("svg");
    const [a, b] = [light(read(getComputedStyle(e)[drawn ? "fill" : "color"])), light(behind(e))];
    return {drawn, text: e.textContent.slice(0, 40), contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)};
  });
}"""
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


@contextmanager
def opened(browser: Any, address: str, width: int = DESK, scheme: str = "light") -> Iterator[Any]:
    """A tab that must neither complain nor ask for anything but the page itself."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(address)
    yield tab
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [address]
    context.close()


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
