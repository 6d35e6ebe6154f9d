"""The theory laboratory's descents, cut short for tests: fewer steps, and larger ones, so that lists still arrive."""

from __future__ import annotations

import pytest

from experiments.theory import multi_pass, single_pass
from wdistill.weights.equations import Floats

SEED = 7  # with which every claim holds at this size


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Horizons, samples and starts for a few seconds; `single_pass` needs `bold` steps beside them."""
    patch.setattr(single_pass, "HORIZONS", (8, 16, 32, 64, 128, 256))
    patch.setattr(single_pass, "FEWEST", 128)
    patch.setattr(single_pass, "HARSH_HORIZON", 256)
    for name, value in {
        "HORIZONS": (16, 64, 256),
        "SIZES": (16, 256),
        "RESTS": (64, 16384),
        "FEWEST": 96,
        "LOOKED": 8,
        "STARTS": 2,
        "PATIENCE": 400,
        "FACTOR": 2 * multi_pass.FACTOR,
    }.items():
        patch.setattr(multi_pass, name, value)


def bold(horizon: int, lipschitz: float, diameter: float) -> Floats:
    """The lemma's steps for a sixth of the Lipschitz constant."""
    return single_pass.last_iterate_steps(horizon, lipschitz / 6, diameter)
