"""The MSE proposition of Appendix D: where the unweighted loss of one example is closer to the clean one than the weighted.

Both errors are proportional to ℓ(f_true(x), f(x))², which is 1 here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.theory import page
from experiments.theory.claims import Check, Finding, farthest, none_far
from experiments.theory.simulator import Weight, weight
from wdistill.report.svg import BLUE, GREEN, GREY, INK, ORANGE
from wdistill.weights.equations import Floats, debiasing_weight

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = 80  # errors, and distortions below 1; as many above
LARGEST = 4.0  # distortion
DRAWS = 200_000  # labels at every point
SAME = 1e-12  # squared errors that differ by less are equal, up to rounding; no point lies on the border
CUTS = {0.1: GREEN, 0.4: ORANGE, 3.0: BLUE}  # distortions of the second figure

Region = Callable[[Floats, Floats], NDArray[np.bool_]]  # error, distortion → whether MSE(x) < MSE^w(x)


def unweighted_error(error: Floats, distortion: Floats) -> Floats:
    """MSE(x) = p (1 − distortion)²  —  the proof in Appendix D.2; any shape."""
    p, d = error, distortion
    return p * np.square(1 - d)


def weighted_error(error: Floats, distortion: Floats, weights: Floats) -> Floats:
    """MSE^w(x) = (1 − p)(1 − w)² + p (1 − w·distortion)²  —  the proof in Appendix D.2; any shape."""
    p, d, w = error, distortion, weights
    return (1 - p) * np.square(1 - w) + p * np.square(1 - w * d)


def largest_error(distortion: Floats) -> Floats:
    """(1 − 2·distortion)/(1 − distortion)², below which p must be  —  the proposition of Appendix D.2; 0 from 1/2 on."""
    d = np.minimum(distortion, 0.5)
    return np.asarray((1 - 2 * d) / np.square(1 - d))


def region(error: Floats, distortion: Floats) -> NDArray[np.bool_]:
    """Where MSE(x) < MSE^w(x): distortion < 1/2 and p in (0, largest_error)  —  the proposition of Appendix D.2."""
    return (distortion < 0.5) & (error > 0) & (error < largest_error(distortion))


@dataclass(frozen=True)
class Simulated:
    """Means over drawn labels, at points of error p(x); (points,) each."""

    unweighted: Floats  # of (ℓ(f_true, f) − ℓ(y, f))²
    weighted: Floats  # of (ℓ(f_true, f) − w·ℓ(y, f))²
    errors: Floats  # (3, points): standard errors of the two, and of their difference

    @property
    def sigmas(self) -> Floats:
        """unweighted − weighted in standard errors; (points,)."""
        return over(self.unweighted - self.weighted, self.errors[2])


def over(difference: Floats, error: Floats) -> Floats:
    """In standard errors; where both are 0, 0."""
    return np.asarray(difference / np.maximum(error, SAME))


def simulate(error: Floats, distortion: Floats, weights: Floats, draws: int, random: np.random.Generator) -> Simulated:
    """Draw labels y | x at every point, corrupted with probability p(x), and average the squared errors."""
    losses = np.stack([np.ones_like(distortion), distortion])  # on the true label, on the corrupted one
    plain, weighted = np.square(1 - losses), np.square(1 - weights * losses)  # (2, points)
    share = random.binomial(draws, error) / draws
    spread = np.sqrt(error * (1 - error) / draws)
    sizes = np.stack([plain, weighted, plain - weighted])
    errors = np.abs(sizes[:, 1] - sizes[:, 0]) * spread
    return Simulated(_mean(share, plain), _mean(share, weighted), errors)


def _mean(share: Floats, values: Floats) -> Floats:
    right, wrong = values
    return np.asarray((1 - share) * right + share * wrong)


def squares(seed: int = 0, scale: float = 1.0, weight: Weight = weight, region: Region = region) -> Finding:
    """The MSE proposition of Appendix D: MSE(x) < MSE^w(x) where distortion < 1/2 and p is small, and nowhere else."""
    random = np.random.default_rng(seed)
    draws = max(1000, round(scale * DRAWS))
    side = (np.arange(GRID) + 0.5) / GRID
    error, distortion = (each.ravel() for each in np.meshgrid(side, np.concatenate([side, 1 + (LARGEST - 1) * side])))
    weights, clipped = weight(error, distortion), debiasing_weight(error, distortion)
    found = simulate(error, distortion, weights, draws, random)
    again = simulate(error, distortion, weights, draws, random)  # labels of its own for MSE^w: else one deviation, twice
    beside = simulate(error, distortion, clipped, draws, random)
    plain, weighted = unweighted_error(error, distortion), weighted_error(error, distortion, weights)
    points, limit, predicted = len(error), farthest(len(error)), region(error, distortion)
    sure = np.abs(found.sigmas) > limit
    checks = (
        _none("points where equations and region disagree", (weighted - plain > SAME) != predicted),
        _agree(sure, (found.sigmas < 0) == predicted),
        none_far("simulated MSE from its equation", over(found.unweighted - plain, found.errors[0])),
        none_far("simulated MSE^w from its equation", over(again.weighted - weighted, again.errors[1])),
        _none("points where MSE < MSE^w with weights clipped to [0, 1]", beside.sigmas < -limit, contrast=True),
    )
    return Finding(
        name="squares",
        title="Squared error of one prediction",
        place="Proposition of Appendix D.2",
        checks=checks,
        settings={
            "points": f"{points:,}: p in (0, 1), distortion in (0, {LARGEST:g})",
            "in the region": f"{predicted.sum():,} as predicted",
            "labels": f"{draws:,} at every point, drawn anew for the last two rows",
            "decided by simulation": f"{sure.sum():,} points, beyond {limit:.1f} standard errors of the difference",
        },
        notes=(
            "The weighted loss has the larger error only where its weight exceeds 1. Clipped weights never have it: the "
            "paper's reason to project onto [0, 1], paid for with the bias that Proposition 2.1's contrast shows.",
        ),
        draw=lambda: {
            "Where the unweighted loss is closer": _plane(error, distortion, found.sigmas, limit),
            "MSE^w / MSE": _cuts(weight, draws, np.random.default_rng(seed)),
        },
    )


def _none(claim: str, broken: NDArray[np.bool_], contrast: bool = False) -> Check:
    return Check(claim, "0", int(broken.sum()), None, not broken.any(), contrast)


def _agree(sure: NDArray[np.bool_], same: NDArray[np.bool_]) -> Check:
    """Simulation and region agree wherever simulation decides, and it decides most points."""
    wrong = int((sure & ~same).sum())
    claim = "points where simulation and region disagree"
    return Check(claim, "0, most points decided", wrong, None, wrong == 0 and bool(sure.mean() > 0.5))


def _plane(error: Floats, distortion: Floats, sigmas: Floats, limit: float) -> Figure:
    """Every fourth point with a distortion below 1, as simulated, and the predicted border."""
    figure, axes = page.panel(4.3)
    shape = (-1, GRID)
    p, d, off = (each.reshape(shape)[2:GRID:4, 2::4].ravel() for each in (error, distortion, sigmas))
    kinds = {
        "MSE < MSE^w": (off < -limit, "o", ORANGE, 4.5),
        "MSE > MSE^w": (off > limit, "o", BLUE, 1.8),
        "undecided": (np.abs(off) <= limit, "x", GREY, 4.5),
    }
    for name, (chosen, marker, color, size) in kinds.items():
        axes.plot(p[chosen], d[chosen], marker, color=color, markersize=size, linestyle="", label=name)
    border = np.linspace(0, 0.5, 200)
    axes.plot(largest_error(border), border, color=INK, linewidth=1.8, label="predicted border")
    axes.set(xlim=(0, 1.01), ylim=(0, 1.01), xlabel="p(x)", ylabel="distortion")
    page.legend(figure)
    return figure


def _cuts(weight: Weight, draws: int, random: np.random.Generator) -> Figure:
    """The ratio of both errors over p, for some distortions."""
    figure, axes = page.panel(3.6)
    fine, coarse = np.linspace(0.005, 0.995, 200), np.linspace(0.05, 0.95, 19)
    axes.axhline(1, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
    for cut, color in CUTS.items():
        d = np.full_like(fine, cut)
        ratio = weighted_error(fine, d, weight(fine, d)) / unweighted_error(fine, d)
        axes.plot(fine, ratio, color=color, linewidth=1.6, label=f"distortion {cut:g}")
        d = np.full_like(coarse, cut)
        found = simulate(coarse, d, weight(coarse, d), draws, random)
        axes.plot(coarse, found.weighted / found.unweighted, "o", color=color, markersize=4)
    axes.plot([], [], "o", color=GREY, markersize=4, label="simulated")
    page.plain(axes, "y")
    axes.set(xlabel="p(x)", ylabel="MSE^w / MSE")
    page.legend(figure)
    return figure
