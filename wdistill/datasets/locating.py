"""Where data sets lie on the disk."""

from __future__ import annotations

import os
from pathlib import Path

SIZES = {"celeba": 64, "imagenet": 224}  # of sets whose images come in no size of their own; unless another is asked for


def root_of(root: Path | None = None) -> Path:
    """The folder of all data sets: as given, or $WDISTILL_DATA, or ~/.cache/wdistill."""
    return root or Path(os.environ.get("WDISTILL_DATA") or Path.home() / ".cache" / "wdistill")


def folder_of(name: str, root: Path, size: int | None = None) -> Path:
    """Where the prepared arrays of a data set are."""
    return root / name / (f"prepared-{size or SIZES[name]}" if name in SIZES else "prepared")
