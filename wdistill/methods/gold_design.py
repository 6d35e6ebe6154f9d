"""How gold rows were drawn: the groups that they belong to, and the probability with which each was drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import bad_input
from wdistill.weights.confidence import Floats

GROUP, INCLUSION = "group", "inclusion"  # columns of gold tables that are recognised by their names
LEAST_INCLUSION = 1e-15  # a probability of being drawn that is less is none


@dataclass(frozen=True, eq=False)
class GoldDesign:
    """How gold rows were drawn; without weights and groups one by one, each with the same probability."""

    weights: Floats | None = None  # (m,) 1 / the probability of being drawn
    groups: NDArray[Any] | None = None  # (m,) of rows that belong together

    @property
    def even(self) -> bool:
        """Whether rows simply count."""
        return self.weights is None and self.groups is None


def check_groups(values: NDArray[Any], where: str, fewest: int = 2) -> NDArray[Any]:
    """Groups (m,) as strings, from numbers or strings; a row without one, and fewer groups than `fewest`, are errors."""
    given = np.array([_name(each) for each in values.tolist()], np.str_)
    missing = np.flatnonzero(given == "")
    if len(missing):
        remedy = "give a row that belongs to no other a group of its own"
        found, expected = f"{len(missing)} rows without one", "a number or a text in every row"
        raise bad_input("rows without a group", where, found, expected, remedy, missing)
    if len(np.unique(given)) < fewest:
        found, expected = f"one group of {len(given)} rows", "groups of which some can be left out"
        remedy = "label rows of other groups too, or leave the groups out"
        raise bad_input("all gold rows belong together", where, found, expected, remedy)
    return given


def _name(value: Any) -> str:
    """A group as text; nothing where it is no number and no text."""
    if isinstance(value, float):
        return (str(int(value)) if value.is_integer() else str(value)) if np.isfinite(value) else ""
    return str(value).strip() if isinstance(value, str | int) else ""


def inclusion_weights(values: NDArray[Any], where: str) -> Floats:
    """1 / inclusion probabilities (m,), which must be above 0 and at most 1, none missing: numbers, or texts of numbers."""
    chances = np.array([_number(each) for each in values.tolist()], np.float64)
    missing = np.flatnonzero(np.isnan(chances))
    if len(missing):
        remedy = (
            "leave out rows that were chosen, such as those to teach of `advise --plan`: nothing can be judged on them; "
            "rows that were drawn at random have all the same probability"
        )
        found, expected = f"{len(missing)} rows without a number", "the probability of being drawn in every row"
        raise bad_input("gold rows without an inclusion probability", where, found, expected, remedy, missing)
    bad = np.flatnonzero(~((chances >= LEAST_INCLUSION) & (chances <= 1)))
    if len(bad):
        found = f"{len(bad)} others, such as {chances[bad[0]]:g}"
        expected = f"numbers above 0, at least {LEAST_INCLUSION:g}, and at most 1"
        remedy = "write the probability with which the row was drawn, not its weight or a percentage"
        raise bad_input("these are no inclusion probabilities", where, found, expected, remedy, bad)
    return np.asarray(1.0 / chances)


def _number(value: Any) -> float:
    """A number, or a text of one; NaN where it is neither."""
    try:
        return float(value) if value is not None else float("nan")
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def effective_weights(weights: Floats) -> Floats:
    """Weights (m,) scaled to sum to the number of rows that they are worth, (Σ w)² / Σ w²: beside a prior, that counts."""
    return np.asarray(weights * (weights.sum() / np.square(weights).sum()))
