"""For students of scikit-learn that split their rows: twins stay together where that can be had, else it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

from wdistill.adapters.expand import Expanded
from wdistill.core.errors import ConfigError, bad_value

MANY = 10_000  # rows above which early_stopping="auto" stops early, as in scikit-learn


def held_out(model: Any, rows: Expanded, seed: int) -> NDArray[np.bool_]:
    """Which expanded rows (e,) are for early stopping, all twins together; an error where the student would split them."""
    numbers, held = np.unique(rows.rows), np.zeros(len(rows.rows), bool)
    for prefix, part in _parts(model):
        given = part.get_params(deep=False)
        stopping, fraction = given.get("early_stopping"), given.get("validation_fraction")
        early = stopping is True or (stopping == "auto" and len(numbers) > MANY)
        if stopping == "auto" and not early:
            model.set_params(**{f"{prefix}early_stopping": False})  # by the number of rows, not of twins
        if early and fraction is not None:
            if prefix or not has_fit_parameter(part, "X_val"):
                raise _splits(part, "early_stopping=True", "set early_stopping=False and the number of iterations")
            count = round(fraction * len(numbers)) if fraction < 1 else int(fraction)
            held = np.isin(rows.rows, np.random.default_rng(seed).permutation(numbers)[:count])
        if given.get("n_iter_no_change") is not None and "early_stopping" not in given:
            raise _splits(part, "n_iter_no_change", "set n_iter_no_change=None and the number of iterations")
        if given.get("cv", "prefit") != "prefit":
            raise _splits(part, f"cv={given['cv']!r}", "search or calibrate around it: GridSearchCV(Distiller(…), …)")
        for name in ("oob_score", "probability"):
            if given.get(name) is True:
                raise _splits(part, f"{name}=True", "leave it out")
    return held


def _splits(part: Any, found: str, remedy: str) -> ConfigError:
    what = "this student would learn from a row and judge itself on its twin"
    expected = "a student that does not split its rows"
    return bad_value(what, type(part).__name__, found, expected, f'{remedy}; or take targets="hard", which makes no twins')


def _parts(model: Any) -> Iterator[tuple[str, Any]]:
    """The model and all models in it, each with the prefix of its parameters."""
    yield "", model
    inner = model.get_params().items()
    yield from (
        (f"{name}__", value) for name, value in inner if hasattr(value, "get_params") and not isinstance(value, type)
    )
