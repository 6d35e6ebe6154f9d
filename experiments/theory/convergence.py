"""Uniform convergence (§4, and the corollary of Appendix D): both empirical risks of a whole class as the sample grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from experiments.theory import page
from experiments.theory.claims import SIGMAS, Check, Finding, away, falls, near
from experiments.theory.simulator import (
    Ints,
    Linear,
    Losses,
    Weight,
    World,
    bias,
    distortion,
    draw,
    empirical_risk,
    half_square,
    losses,
    risk,
    sample_variance,
    students,
    uncertain_world,
    variance,
    weight,
)
from wdistill.report.svg import BLUE, GREY, INK, ORANGE
from wdistill.weights.diagnostics import standard_error
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INSTANCES, DIMENSIONS, CLASSES = 300, 6, 4
MEMBERS = 40  # predictors of the class F
SAMPLES = 1000
SIZES = (
    16,
    64,
    256,
    1024,
    4096,
    16384,
    65536,
    2**20,
    2**24,
)  # n; from 16, where the theorem begins, to where variance decides
CHANCE = 0.05  # δ
RARE = 0.01  # how likely a rare loss is
FROM = 2  # the slope is fitted from the third size on, where the mean is about normal


class Bound(Protocol):
    def __call__(self, variance: Floats, n: int, growth: int, chance: float, largest: float) -> Floats: ...


def bernstein_bound(variance: Floats, n: int, growth: int, chance: float, largest: float) -> Floats:
    """√(18 V ln(2M/δ)/n) + 15 b ln(2M/δ)/(n − 1)  —  Theorem 6 of Maurer and Pontil in Appendix D, for h in [0, b]."""
    return spread_term(variance, n, growth, chance) + range_term(n, growth, chance, largest)


def spread_term(variance: Floats, n: int, growth: int, chance: float) -> Floats:
    """√(18 V ln(2M/δ)/n), the first term of Theorem 6 in Appendix D, with the sample variance; of its shape."""
    return np.asarray(np.sqrt(18.0 * variance * np.log(2.0 * growth / chance) / n))


def range_term(n: int, growth: int, chance: float, largest: float) -> float:
    """15 b ln(2M/δ)/(n − 1), the second term of Theorem 6 in Appendix D, without it."""
    return float(15.0 * largest * np.log(2.0 * growth / chance) / (n - 1))


@dataclass(frozen=True)
class Growing:
    """One empirical risk of every predictor in F, over samples of growing size."""

    name: str
    limit: Floats  # (F,) where it should go
    values: Floats  # (F, 2, N) h on the true and the corrupted label
    variance: Floats  # (F,) of h
    deviations: Floats  # (sizes, samples, F) from the limit
    bounds: Floats  # (sizes, samples, F) on their absolute values
    variances: Floats  # (sizes, samples, F) of the samples

    @property
    def top(self) -> float:
        """The largest h, or 1: the b of the bound."""
        return max(1.0, float(self.values.max()))

    @property
    def used(self) -> float:
        """The largest share of its bound that any deviation comes to."""
        return float((np.abs(self.deviations) / self.bounds).max())

    @property
    def largest(self) -> Floats:
        """(sizes, samples): of the absolute deviations, over the class."""
        return np.asarray(np.abs(self.deviations).max(axis=2))

    @property
    def scaled(self) -> Floats:
        """(sizes, samples): n·deviation²/Var, mean over the class; its expectation is 1 at every n."""
        sizes = np.array(SIZES)[:, None, None]
        return np.asarray((sizes * np.square(self.deviations) / self.variance).mean(axis=2))


def convergence(seed: int = 0, scale: float = 1.0, weight: Weight = weight, bound: Bound = bernstein_bound) -> Finding:
    """Uniform convergence: R_S → R + Bias and R_S^w → R over a whole class, within the empirical-Bernstein bound."""
    random = np.random.default_rng(seed)
    truth = Linear(random.normal(size=(DIMENSIONS, CLASSES)))
    world = uncertain_world(truth, INSTANCES, random)
    each = [losses(world, student, half_square) for student in students(truth, MEMBERS, random)]
    found = Losses(np.stack([one.truth for one in each]), np.stack([one.corrupted for one in each]))
    clean, off = risk(found), bias(world, found)
    weights = weight(world.error, distortion(found))
    values = {"R_S": found.observed, "R_S^w": weights[:, None, :] * found.observed}
    limits = {"R_S": clean + off, "R_S^w": clean}
    samples = max(50, round(scale * SAMPLES))
    drawn = [draw(world, n, samples, random) for n in SIZES]
    plain, weighted = (
        _grown(name, limits[name], values[name], variance(world, values[name]), drawn, bound) for name in values
    )
    checks: list[Check] = []
    for grown, goal in ((plain, "(R + Bias)"), (weighted, "R")):
        checks += [
            near(f"n·E[({grown.name} − {goal})²]/Var = 1 at n = {SIZES[at]:,}", 1.0, grown.scaled[at]) for at in (0, -1)
        ]
        claim = f"sup |{grown.name} − {goal}| against n ≥ {SIZES[FROM]}"
        checks.append(falls(claim, -0.5, SIZES[FROM:], grown.largest[FROM:]))
        checks += [_broken(grown), _variance(grown), _range_alone(grown)]
    checks.append(_remains(plain, off))
    checks += _rare(bound, samples, random)
    top, limit = float(values["R_S^w"].max()), float(1 / (1 - world.error.max()))
    checks.append(Check("largest w·ℓ of the class", f"above 1, ≤ {limit:.2f}", top, None, 1 < top <= limit, contrast=True))
    return Finding(
        name="convergence",
        title="Uniform convergence of the reweighted risk",
        place="Theorem of §4; corollary and remark of Appendix D.1",
        checks=tuple(checks),
        settings={
            "class F": f"{MEMBERS} linear predictors, so M(n) = 10·{MEMBERS}",
            "loss": "half squared error of the softmax, in [0, 1]",
            "instances": f"{INSTANCES} in {DIMENSIONS} dimensions, {CLASSES} classes; mean p(x) {world.error.mean():.3f}",
            "samples": f"{samples:,} of each n from {SIZES[0]} to {SIZES[-1]:,}; δ = {CHANCE}",
            "largest deviation over its bound": f"{plain.used:.2f} of the loss, {weighted.used:.2f} weighted",
            "variances, mean over F": f"{plain.variance.mean():.4f} of the loss, {weighted.variance.mean():.4f} weighted",
        },
        notes=(
            "The corollary takes the weighted class to lie in [0, 1]. It does only where w ≤ 1; weights exceed 1 "
            "where the distortion is below 1. The bound holds with its last term times the largest w·ℓ, at most 1/(1 − p).",
            "Decided is that both risks go where they should, as fast as their variances say, and that the bound needs its "
            "variance term: without it, it is broken. Not decided are the constants 18 and 15, and the growth M(n) inside a "
            "logarithm: no deviation comes near the bound, and half of it would be kept as well.",
        ),
        draw=lambda: {
            "Largest deviation over the class, weighted": _decline(weighted, BLUE),
            "Largest deviation over the class, unweighted": _decline(plain, ORANGE),
            "Distance from the clean risk, mean over the class": _distances(clean, plain, weighted),
        },
    )


def _grown(name: str, limit: Floats, values: Floats, spread: Floats, drawn: list[Ints], bound: Bound) -> Growing:
    variances = np.stack([sample_variance(each, values) for each in drawn])
    deviations = np.stack([empirical_risk(each, values) for each in drawn]) - limit
    top = max(1.0, float(values.max()))
    bounds = [bound(each, n, 10 * MEMBERS, CHANCE, top) for each, n in zip(variances, SIZES, strict=True)]
    return Growing(name, limit, values, spread, deviations, np.stack(bounds), variances)


def _broken(found: Growing) -> Check:
    """The share of samples in which any predictor of the class breaks the bound, at the size where most do."""
    broken = (np.abs(found.deviations) > found.bounds).any(axis=2).sum(axis=1)
    samples, most = found.deviations.shape[1], int(broken.max())
    claim = f"share of samples that break the bound on {found.name}"
    return Check(claim, f"≤ δ = {CHANCE}", most / samples, standard_error(most, samples), most / samples <= CHANCE)


def _range_alone(found: Growing) -> Check:
    """At the largest n the range term alone is no bound: what keeps it is the term with the sample variance."""
    alone = range_term(SIZES[-1], 10 * MEMBERS, CHANCE, found.top)
    samples, broken = found.deviations.shape[1], int((found.largest[-1] > alone).sum())
    share, error = broken / samples, standard_error(broken, samples)
    claim = f"share of samples that break the range term alone, {found.name}, n = {SIZES[-1]:,}"
    return Check(claim, f"> δ = {CHANCE}", share, error, share - SIGMAS * error > CHANCE, contrast=True)


def _rare(bound: Bound, samples: int, random: np.random.Generator) -> Iterator[Check]:
    """A loss of 1 with a small chance, else of 0: most small samples have no variance, and the variance term no bound."""
    world = World(np.zeros((1, 1)), np.array([0]), np.array([1]), np.array([RARE]))
    values = Losses(np.zeros((1, 1)), np.ones((1, 1))).observed
    n, drawn = SIZES[0], draw(world, SIZES[0], samples, random)
    off, spread = np.abs(empirical_risk(drawn, values) - RARE), sample_variance(drawn, values)
    about = f"a loss of 1 with chance {RARE:g}, else 0, n = {n}"
    broken = int((off > bound(spread, n, 10, CHANCE, 1.0)).sum())
    share, error = broken / samples, standard_error(broken, samples)
    yield Check(f"share of samples that break the bound on {about}", f"≤ δ = {CHANCE}", share, error, share <= CHANCE)
    alone = (off > spread_term(spread, n, 10, CHANCE))[:, 0].astype(np.float64)
    yield away(f"share that break the variance term alone: {about}", (1 - RARE) ** n, CHANCE, alone)


def _variance(found: Growing) -> Check:
    """The bound's variance term: sample variances are right in the mean, at the smallest size."""
    symbol = "V_S" if found.name == "R_S" else "V_S^w"
    return near(f"E[{symbol}]/Var = 1 at n = {SIZES[0]}", 1.0, (found.variances[0] / found.variance).mean(axis=1))


def _remains(found: Growing, off: Floats) -> Check:
    """R_S against R: the mean square over the class is Bias² + Var/n, and at the largest n little but Bias²."""
    squares = np.square(found.deviations[-1] + off).mean(axis=1) / np.square(off).mean()
    predicted = 1.0 + float(found.variance.mean() / SIZES[-1] / np.square(off).mean())
    return away(f"E[(R_S − R)²]/Bias² at n = {SIZES[-1]:,}", predicted, 0.0, squares)


def _decline(found: Growing, color: str) -> Figure:
    """The largest deviation, the bound and its two terms, against n."""
    figure, axes = page.panel(3.7)
    spread = [spread_term(found.variance, n, 10 * MEMBERS, CHANCE).mean() for n in SIZES]
    rest = [range_term(n, 10 * MEMBERS, CHANCE, found.top) for n in SIZES]
    axes.plot(SIZES, found.bounds.mean(axis=(1, 2)), color=INK, linewidth=1.8, label="bound")
    axes.plot(SIZES, spread, color=GREY, linewidth=1.2, linestyle=(0, (4, 2)), label="its variance term")
    axes.plot(SIZES, rest, color=GREY, linewidth=1.2, linestyle=(0, (1, 1.5)), label="its range term")
    low, middle, high = np.quantile(found.largest, [0.05, 0.5, 0.95], axis=1)
    axes.fill_between(SIZES, low, high, color=color, alpha=0.25, linewidth=0)
    axes.plot(SIZES, middle, color=color, marker="o", markersize=4, linewidth=1.8, label="measured, 90 % of samples")
    page.plain(axes)
    axes.set_xlabel("n")
    axes.set_ylabel("largest deviation")
    page.legend(figure)
    return figure


def _distances(clean: Floats, plain: Growing, weighted: Growing) -> Figure:
    """How far both risks are from the clean one: one stays at the bias, the other goes on."""
    figure, axes = page.panel(3.5)
    sizes = np.array(SIZES)
    for found, color, marker in ((plain, ORANGE, "s"), (weighted, BLUE, "o")):
        off = found.limit - clean
        measured = np.sqrt(np.square(found.deviations + off).mean(axis=(1, 2)))
        predicted = np.sqrt(np.square(off).mean() + found.variance.mean() / sizes)
        axes.plot(sizes, predicted, color=color, linewidth=1.4, label=f"{found.name}, predicted")
        axes.plot(sizes, measured, marker, color=color, markersize=5, label=f"{found.name}, measured")
    page.plain(axes)
    axes.set_xlabel("n")
    axes.set_ylabel("root mean square of risk − R")
    page.legend(figure)
    return figure
