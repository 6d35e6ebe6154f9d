"""Commands that run the experiments need a checkout of the repository: the installed package does not have them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from wdistill.core.errors import FileError


def from_checkout(module: str) -> Any:
    """A module of the experiments, from the checkout that the package lies in or from the current folder."""
    for place in (Path(__file__).parent.parent.parent, Path.cwd()):
        if (place / "experiments" / "paper" / "catalogue.py").exists():
            if str(place) not in sys.path:
                sys.path.insert(0, str(place))
            return importlib.import_module(module)
    raise FileError(
        "the experiments are not here",
        where=str(Path.cwd()),
        found="no folder experiments/",
        expected="a checkout of wdistill's repository",
        remedy="run it from the folder of the checkout",
    )
