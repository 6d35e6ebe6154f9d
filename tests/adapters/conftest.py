"""What tests of the examples share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "adapters"


@pytest.fixture
def examples_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Examples import what they share from their own folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield FOLDER
    for name in [path.stem for path in FOLDER.glob("*.py")]:
        sys.modules.pop(name, None)
